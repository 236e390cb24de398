import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import { IpAddress } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { repeat } from "#base/reconcile";
import type { CniService } from "#features/cni";
import type { PodNetwork } from "#features/pod-network";
import { type KubeApi, type Pod, resources } from "#kube/client";
import type { EventRecorder } from "#kube/events";
import { namespacesOfProcesses, sandboxesByProcesses } from "./by-processes.ts";
import { sandboxesOfRuntime } from "./by-runtime.ts";
import { ForgottenJudge, type SandboxState } from "./judge.ts";

/** Reason of the event of the Node. */
const ATTACHMENT_COLLECTED = "AttachmentCollected";
/** The interface whose addresses a Pod's status has. */
const FIRST_INTERFACE = "eth0";
/** A grace has at least this number of looks. */
const LOOKS_PER_GRACE = 3;
const MAX_LOOK_MS = 300_000;

/** The dependencies of {@link collectForgotten}. */
export interface CollectorParts {
  readonly network: Pick<PodNetwork, "list" | "places">;
  readonly service: Pick<CniService, "collect">;
  readonly api: Pick<KubeApi, "listAll">;
  readonly events: Pick<EventRecorder, "record">;
  readonly onCollected: () => void;
  readonly health: HealthPart;
  readonly log: Logger;
  readonly clock: Clock;
  /** Default: what `/proc` tells. */
  readonly processes?: typeof namespacesOfProcesses;
}

/** Settings of {@link collectForgotten}. */
interface CollectorOptions {
  readonly nodeName: string;
  /** Socket of the container runtime; empty: processes tell. */
  readonly criSocket: string;
  /** 0: nothing is collected. */
  readonly graceMs: number;
  readonly signal: AbortSignal;
}

/**
 * Removes the attachments that their runtime has forgotten while their namespaces stay pinned: no DEL will come for them, and their addresses would be taken until the
 * machine ends (docs/spec/pod-network.md#4.10). Runs until the signal aborts. A look that cannot be made whole removes nothing.
 */
export async function collectForgotten(parts: CollectorParts, options: CollectorOptions): Promise<void> {
  const { health, log, clock } = parts;
  const { graceMs, signal } = options;
  const judge = new ForgottenJudge({ graceMs, clock });
  const repeats = new Repeats();
  health.ok();
  if (graceMs === 0) return;
  await repeat(
    async () => {
      health.ok(await look(parts, options, judge));
      repeats.forget("look");
    },
    {
      signal,
      clock,
      everyMs: Math.min(MAX_LOOK_MS, Math.ceil(graceMs / LOOKS_PER_GRACE)),
      backoff: new Backoff({ initialMs: 5000, maxMs: MAX_LOOK_MS }),
      onFailure: (error) => {
        judge.interrupted();
        health.degraded(error);
        if (repeats.isNew("look", error.message))
          log.warn("cannot look for attachments that the container runtime has forgotten; trying again", {
            error: error.message,
          });
      },
    },
  );
}

/** Makes one look, and collects. The API server is asked only if an attachment has no sandbox. Returns the state in words. */
async function look(parts: CollectorParts, options: CollectorOptions, judge: ForgottenJudge): Promise<string> {
  const { network, api } = parts;
  const { nodeName, criSocket, signal } = options;
  const stateOf = await sandboxStates(parts, criSocket, signal);
  if (stateOf === undefined) {
    judge.interrupted();
    return "attachments that the container runtime forgets are not collected: coild does not see the processes of this machine; set --cri-socket, or hostPID";
  }
  const attachments = network.list().map(({ containerId, ifname, addresses }) => ({
    containerId,
    ifname,
    addresses: addresses.map(String),
  }));
  const isAnyGone = attachments.some(({ containerId }) => stateOf(containerId) === "gone");
  const pods = isAnyGone
    ? (await api.listAll(resources.pods, { fieldSelector: `spec.nodeName=${nodeName}`, signal })).items
    : [];
  const nameless = criSocket === "" ? pods.find((pod) => isWithoutAddress(pod)) : undefined;
  if (nameless !== undefined) {
    judge.interrupted();
    const { namespace, name } = nameless.metadata;
    return `attachments without a process are not judged: Pod ${namespace}/${name} has no address yet, and one of them may be its; --cri-socket would tell`;
  }
  const forgotten = judge.look(attachments, stateOf, addressesOf(pods));
  const failures: unknown[] = [];
  for (const one of forgotten) {
    try {
      await parts.service.collect(one, { signal });
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      failures.push(error);
      continue;
    }
    report(parts, nodeName, one);
  }
  if (failures.length > 0) throw failures[0];
  return judge.waiting === 0 ? "" : `${judge.waiting} attachments without a sandbox and without a Pod object`;
}

/** `undefined`: nobody can tell. */
async function sandboxStates(
  { network, processes = namespacesOfProcesses }: CollectorParts,
  criSocket: string,
  signal: AbortSignal,
): Promise<((containerId: string) => SandboxState) | undefined> {
  if (criSocket !== "") return await sandboxesOfRuntime(criSocket, { signal });
  const places = network.places();
  const seen = processes();
  if (seen === undefined) return undefined;
  const stateOf = sandboxesByProcesses(places, seen);
  // The status of a Pod has the addresses of its first interface alone.
  const shown = new Set(places.flatMap(({ containerId, ifname }) => (ifname === FIRST_INTERFACE ? [containerId] : [])));
  return (containerId) => (shown.has(containerId) ? stateOf(containerId) : "unknown");
}

/** Pure: the addresses of pods that have not ended. Two pods that show one address both count. */
function addressesOf(pods: readonly Pick<Pod, "spec" | "status">[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const { spec, status } of pods) {
    if (spec?.hostNetwork === true || status?.phase === "Succeeded" || status?.phase === "Failed") continue;
    for (const { ip } of status?.podIPs ?? []) {
      const address = ip === undefined ? undefined : IpAddress.tryParse(ip);
      if (address !== undefined) found.add(String(address));
    }
  }
  return found;
}

/** Returns true if a Pod may have a sandbox that its status does not show: runtimes without a process for the sandbox, as CRI-O, have none while an image is pulled. */
function isWithoutAddress({ spec, status }: Pod): boolean {
  if (spec?.hostNetwork === true || status?.phase === "Succeeded" || status?.phase === "Failed") return false;
  return (status?.podIPs ?? []).length === 0;
}

function report(
  { events, log, onCollected }: CollectorParts,
  nodeName: string,
  one: { readonly containerId: string; readonly ifname: string; readonly addresses: readonly string[] },
): void {
  onCollected();
  const { containerId, ifname, addresses } = one;
  log.warn(
    "an attachment was removed and its addresses are free: the container runtime has no such sandbox, no Pod of this node has its addresses, and no DEL came",
    { containerID: containerId, ifname, addresses },
  );
  events.record({
    regarding: { apiVersion: "v1", kind: "Node", name: nodeName, uid: nodeName },
    type: "Normal",
    reason: ATTACHMENT_COLLECTED,
    note: `The container runtime forgot sandbox ${containerId} without a CNI DEL. Its interface ${ifname} was removed, and ${addresses.join(", ")} can be given to other pods.`,
  });
}
