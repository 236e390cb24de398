import type { AbortOptions } from "#base/async";
import type { IpAddress, IpFamily } from "#base/ip";
import type { NetNsRef } from "#kernel/netns";
import type { LabServices, LabState } from "#lab/host";
import { SERVICE_PORT } from "./services-objects.ts";
import { type BackendPod, type ObservedServices, ofFamily } from "./services-observe.ts";
import type { ServiceTry } from "./services-report.ts";
import { type BackendResult, requestBackend } from "./services-request.ts";

/** Timeout of an answer on a busy machine, and of a connection whose packets are dropped, in milliseconds. */
const ANSWER_MS = 5000;
const SILENCE_MS = 1000;
/** Connections of one client that must all reach the same pod. */
const STICKY_TRIES = 5;

/** One planned try, with the wanted result. */
export interface PlannedTry {
  readonly from: string;
  readonly netns: NetNsRef;
  readonly to: string;
  readonly address: IpAddress;
  readonly port: number;
  /** Pods that may answer, or the wanted failure. */
  readonly wanted: readonly BackendPod[] | "refused" | "silent";
  /** The client address that the pod must see, if it is certain: a pod that reaches itself is masqueraded. */
  readonly seen?: IpAddress | undefined;
}

interface MatrixInput {
  readonly state: Pick<LabState, "nodes" | "families">;
  readonly at: LabServices;
  readonly observed: ObservedServices;
  readonly addressesOf: (node: string) => readonly IpAddress[];
  readonly outside: readonly IpAddress[];
}

/** Pure: the tries of one family: every kind of Service, from pods, nodes and outside. */
export function planTries(place: MatrixInput, family: IpFamily): readonly PlannedTry[] {
  const { state, at, observed, addressesOf, outside } = place;
  const podsOf = (app: string, node?: string): readonly BackendPod[] =>
    observed.pods.filter((pod) => pod.app === app && (node === undefined || pod.node === node));
  const to = (name: string, kind: string, address: IpAddress | undefined, port: number) =>
    address === undefined ? [] : [{ to: `${name} by ${kind}`, address, port }];
  const cluster = (name: string) => {
    const { clusterIps = [] } = observed.services.get(name) ?? {};
    return to(name, "cluster IP", ofFamily(clusterIps, family), SERVICE_PORT);
  };
  const balanced = (name: string) => {
    const { ingress = [] } = observed.services.get(name) ?? {};
    return to(name, "balancer IP", ofFamily(ingress, family), SERVICE_PORT);
  };
  const nodePort = (name: string, node: string) => {
    const { nodePort: port = 0 } = observed.services.get(name) ?? {};
    return to(name, `NodePort of ${node}`, ofFamily(addressesOf(node), family), port);
  };
  const local = (name: string, node: string): PlannedTry["wanted"] => {
    const own = podsOf(name, node);
    return own.length === 0 ? "silent" : own;
  };
  const web = podsOf("web");
  return state.nodes.flatMap((node) => {
    const pod = podsOf("web", node.name)[0];
    const fromOutside = { from: "outside", netns: { name: at.outside } };
    const seen = ofFamily(outside, family);
    const fromNode = { from: node.name, netns: { name: node.netns } };
    const tries: PlannedTry[] = [
      ...cluster("web").map((one) => ({ ...fromNode, ...one, wanted: web })),
      ...nodePort("web", node.name).map((one) => ({ ...fromOutside, ...one, wanted: web })),
      ...nodePort("edge", node.name).map((one) => ({ ...fromOutside, ...one, wanted: local("edge", node.name), seen })),
    ];
    if (pod === undefined) return tries;
    const fromPod = { from: pod.name, netns: { path: pod.netns } };
    const self = ofFamily(pod.addresses, family);
    return [
      ...tries,
      ...cluster("web").map((one) => ({ ...fromPod, ...one, wanted: web, seen: self })),
      ...balanced("web").map((one) => ({ ...fromPod, ...one, wanted: web })),
      ...nodePort("web", node.name).map((one) => ({ ...fromPod, ...one, wanted: web })),
      ...cluster("near").map((one) => ({ ...fromPod, ...one, wanted: local("edge", node.name), seen: self })),
      ...cluster("lonely").map((one) => ({ ...fromPod, ...one, wanted: "refused" as const })),
    ];
  });
}

/** Runs the tries of every family of the lab, and checks that one client stays with one pod. Rejects as `requestBackend` does. */
export async function tryServices(place: MatrixInput, options: AbortOptions): Promise<readonly ServiceTry[]> {
  const results: ServiceTry[] = [];
  for (const family of place.state.families as readonly IpFamily[]) {
    const planned = planTries(place, family);
    results.push(...(await Promise.all(planned.map((one) => tryOne(one, options)))));
    const sticky = await trySticky(place, family, options);
    if (sticky !== undefined) results.push(sticky);
  }
  return results;
}

async function tryOne(one: PlannedTry, options: AbortOptions): Promise<ServiceTry> {
  const timeoutMs = one.wanted === "silent" ? SILENCE_MS : ANSWER_MS;
  const result = await requestBackend(one.netns, one, { ...options, timeoutMs });
  return judge(one, result);
}

/** Pure: compares a result with the wanted one. */
export function judge({ from, to, address, port, wanted, seen }: PlannedTry, result: BackendResult): ServiceTry {
  const whom = typeof wanted === "string" ? wanted : `one of ${wanted.map(({ name }) => name).join(", ")}`;
  const base = { from, to: `${to}, ${address} port ${port}`, wanted: whom };
  if (!("answer" in result)) return { ...base, got: result.error, ok: result.why === wanted };
  const { backend, client } = result.answer;
  const pod =
    typeof wanted === "string"
      ? undefined
      : wanted.find(({ addresses }) => addresses.some((one) => one.equals(backend)));
  if (pod === undefined) return { ...base, got: `${backend} answered`, ok: false };
  const isSelf = seen !== undefined && backend.equals(seen);
  if (seen === undefined || isSelf || client.equals(seen)) return { ...base, got: pod.name, ok: true };
  return { ...base, got: `${pod.name}, which saw ${client} instead of ${seen}`, ok: false };
}

async function trySticky(place: MatrixInput, family: IpFamily, options: AbortOptions): Promise<ServiceTry | undefined> {
  const address = ofFamily(place.observed.services.get("sticky")?.clusterIps ?? [], family);
  const [client] = place.state.nodes;
  if (address === undefined || client === undefined) return undefined;
  const pods = new Set<string>();
  for (let count = 0; count < STICKY_TRIES; count += 1) {
    const at = { address, port: SERVICE_PORT };
    const result = await requestBackend({ name: client.netns }, at, { ...options, timeoutMs: ANSWER_MS });
    pods.add("answer" in result ? result.answer.backend.toString() : result.error);
  }
  const to = `sticky by cluster IP, ${address} port ${SERVICE_PORT}`;
  return {
    from: client.name,
    to,
    wanted: `the same pod ${STICKY_TRIES} times`,
    got: [...pods].join(", "),
    ok: pods.size === 1 && [...pods].every((text) => !text.includes(" ")),
  };
}
