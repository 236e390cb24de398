import { systemClock } from "#base/clock";
import { allSynced } from "#kube/informer";
import type { Part } from "../../shared/daemon-kit/index.ts";
import type { CoildKit } from "./common.ts";
import { keepForwardOf } from "./keep-forward.ts";
import { keepKernel } from "./keep-kernel.ts";
import { LostAttachments } from "./lost-attachments.ts";
import type { CoildNode } from "./node-state.ts";
import { watchGuard } from "./open-guard.ts";
import { RemovalConflict } from "./removal-conflict.ts";
import { watchKernel } from "./watch-kernel.ts";

/** The kernel's state of this node's pods: links, routes, rules and filters stay as they should be, whatever other programs do. */
export function kernelParts(kit: CoildKit, node: CoildNode): readonly Part[] {
  const { values, log } = kit;
  const { own, network, setUp, guardKeeper, marks } = node;
  const exportedTo = { table: values.exportTableId, protocol: values.protocolId };
  const watched = { netns: own, network, exportedTo, pods: marks.kernel, exported: marks.routes };
  const guarded =
    guardKeeper === undefined ? undefined : { guard: guardKeeper, dirty: marks.kernel, clock: systemClock };
  return [
    { name: "set-up", run: (at) => setUp.run(at) },
    { name: "watch-kernel", run: (at) => watchKernel({ ...watched, clock: systemClock, log }, at) },
    keepKernelPart(kit, node),
    forwardPart(kit, node),
    ...(guarded === undefined ? [] : [{ name: "source-guard", run: (at) => watchGuard(guarded, at) } satisfies Part]),
    ...extraSourceParts(kit, node),
  ];
}

function keepKernelPart({ values, health, metrics, log }: CoildKit, node: CoildNode): Part {
  const { network, ipam, notes, clients, guardKeeper, marks } = node;
  const part = health.part("kernel", { needed: "always" });
  const lost = new LostAttachments({ health: health.part("attachments", { needed: "always" }), log, notes });
  const conflict = new RemovalConflict({ clock: systemClock, log, onConflict: metrics.onConflict });
  const keeper: Parameters<typeof keepKernel>[0] = {
    network,
    ipam,
    lost,
    guard: guardKeeper,
    dirty: marks.kernel,
    health: part,
    onSurveyed: (repaired) => {
      metrics.onRepaired(repaired);
      // A client that was compared meanwhile may have lacked an address.
      if (repaired.pods + repaired.links > 0) clients?.recheck();
      conflict.surveyed(repaired);
    },
    onRemade: ({ containerId, ifname }) =>
      log.warn(
        "the link of a pod was removed and has been created again, without the limits and policies of later plugins: delete the pod if it needs them",
        { containerID: containerId, ifname },
      ),
  };
  const { registerFromMain } = values;
  return { name: "keep-kernel", run: ({ signal }) => keepKernel(keeper, { registerFromMain, signal }) };
}

/** The rules by which packets of pods pass iptables' FORWARD. */
function forwardPart({ health, log }: CoildKit, { own, ipam, blocks, marks }: CoildNode): Part {
  const part = health.part("forward");
  part.ok();
  const parts = { netns: own, blocks: () => ipam.prefixes, dirty: marks.forward, health: part };
  return {
    name: "forward",
    run: async ({ signal }) => {
      // Before, no block is known, and the rules of an earlier process would be removed.
      await blocks.wait({ signal });
      await keepForwardOf({ ...parts, log: log.child("forward") }, { signal });
    },
  };
}

function extraSourceParts(
  { api, environment: nodeName }: Pick<CoildKit, "api" | "environment">,
  { extraSources, namespaces, blocks }: Pick<CoildNode, "extraSources" | "namespaces" | "blocks">,
): readonly Part[] {
  if (extraSources === undefined) return [];
  const run: Part["run"] = async ({ signal }) => {
    await allSynced([namespaces], { signal });
    await blocks.wait({ signal });
    await extraSources.learn({ api, nodeName }, { signal });
  };
  return [{ name: "extra-sources", run }];
}
