/** The cost of an Egress on a node: at an ADD, and from an edit of the Egress to the last of its pods. */
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Semaphore, sleep } from "#base/async";
import { openKernel } from "#kernel/net";
import { deleteNetNs } from "#kernel/netns";
import { type Draft, type Pod, resources, type Service } from "#kube/client";
import { coilResources, type Egress, egressLabels } from "#kube/coil";
import { runCall, type Side } from "./cni-add.calls.ts";
import { makeNode, NAMESPACES, NODE, netnsName, openWorld, type World } from "./cni-add.world.ts";

const EGRESS = { namespace: NAMESPACES.ipv4, name: "nat" };
const SERVICE_ADDRESS = "10.96.77.1";
/** Table of destinations outside the private ranges. */
const WIDE_TABLE = 118;
const DESTINATION = "198.51.100.0/24";
const EDIT_TIMEOUT_MS = 30_000;
/** Pods of the kinds `plain-N` and `client-N`. */
type Kind = "plain" | "client";

/** Times in milliseconds. */
export interface PodTimes {
  readonly addMs: Readonly<Record<Kind, readonly number[]>>;
  /** From each edit's request to the last pod's route. */
  readonly editMs: readonly number[];
}

/** `adds` ADDs of pods of each kind in turns, each in a new namespace; then `edits` edits of an Egress with `pods` clients. */
export async function measurePods(
  { adds, pods, edits }: { readonly adds: number; readonly pods: number; readonly edits: number },
  { signal }: { readonly signal: AbortSignal },
): Promise<PodTimes> {
  await using world = await openWorld(pods, { signal, coildFlags: ["--tunnel-driver=vxlan"] });
  await makeObjects(world, pods, signal);
  const folder = join(world.dir, "bin");
  mkdirSync(folder);
  for (const name of ["coil", "coil-standalone"])
    copyFileSync(join(import.meta.dirname, "../dist/cni", name), join(folder, name));
  const config = join(world.dir, "ours.json");
  writeFileSync(config, JSON.stringify({ cniVersion: "1.0.0", name: "bench", type: "coil", socket: world.socket }));
  const call = (command: "ADD" | "DEL", netns: string, pod: string, id: string): Promise<number> => {
    const side: Side = {
      executable: join(folder, "coil"),
      config,
      node: world.ourNode,
      pods: [`/run/netns/${netns}`],
      args: () => `IgnoreUnknown=1;K8S_POD_NAMESPACE=${EGRESS.namespace};K8S_POD_NAME=${pod}`,
    };
    return runCall(side, command, { id, out: join(world.dir, `result-${id}`), signal });
  };
  const addMs = { plain: [] as number[], client: [] as number[] };
  // The first of each kind is not counted: it requests a block, and compiles code.
  for (let at = -1; at < adds; at += 1) {
    for (const kind of ["plain", "client"] as const) {
      const netns = netnsName(`add-${kind}`);
      makeNode(netns, []);
      const id = `${kind}-${at}`;
      const ms = await call("ADD", netns, `${kind}-0`, id);
      if (at >= 0) addMs[kind].push(ms);
      await call("DEL", netns, `${kind}-0`, id);
      deleteNetNs(netns);
    }
  }
  const slots = new Semaphore(8);
  const names = world.ourPods.map((netns, at) => ({ netns, pod: `client-${at}` }));
  await Promise.all(names.map(({ netns, pod }) => slots.run(() => call("ADD", netns, pod, pod), { signal })));
  return { addMs, editMs: await timeEdits(world, edits, signal) };
}

async function makeObjects({ api }: World, pods: number, signal: AbortSignal): Promise<void> {
  const egress = { metadata: EGRESS, spec: { replicas: 1, destinations: [DESTINATION] } } as Draft<Egress>;
  await api.create(coilResources.egresses, egress, { signal });
  const service = {
    metadata: { ...EGRESS, labels: egressLabels(EGRESS.name) },
    spec: { clusterIP: SERVICE_ADDRESS, clusterIPs: [SERVICE_ADDRESS], ports: [{ port: 5555, protocol: "UDP" }] },
  } as unknown as Draft<Service>;
  await api.create(resources.services, service, { signal });
  const make = (name: string, annotations: Record<string, string>): Promise<Pod> => {
    const spec = { nodeName: NODE, containers: [{ name: "main", image: "none" }] };
    const pod = { metadata: { name, namespace: EGRESS.namespace, annotations }, spec } as Draft<Pod>;
    return api.create(resources.pods, pod, { signal });
  };
  await make("plain-0", {});
  for (let at = 0; at < pods; at += 1)
    await make(`client-${at}`, { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: EGRESS.name });
}

/** Each edit has another second destination. */
async function timeEdits({ api, ourPods }: World, edits: number, signal: AbortSignal): Promise<number[]> {
  await using undo = new AsyncDisposableStack();
  const kernel = openKernel();
  const stacks = ourPods.map((name) => {
    using netns = kernel.openNetNs({ name });
    return undo.use(kernel.openStack(netns));
  });
  const times: number[] = [];
  for (let at = 0; at < edits; at += 1) {
    const added = `203.0.113.${at}/32`;
    const from = performance.now();
    const body = { spec: { destinations: [DESTINATION, added] } };
    await api.patch(coilResources.egresses, EGRESS, { type: "merge", body }, { signal });
    let left = stacks;
    while (left.length > 0) {
      if (performance.now() - from > EDIT_TIMEOUT_MS)
        throw new Error(
          `${left.length} of ${stacks.length} pods have no route to ${added} after ${EDIT_TIMEOUT_MS} ms`,
        );
      await sleep(10, { signal });
      left = left.filter(
        (stack) => !stack.routes.list({ family: 4, table: WIDE_TABLE }).some(({ dst }) => String(dst) === added),
      );
    }
    times.push(performance.now() - from);
  }
  return times;
}
