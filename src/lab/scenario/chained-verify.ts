import type { AbortOptions } from "#base/async";
import { type KubeApi, resources } from "#kube/client";

/** The state of a node in the answer of a `coild` without address management. */
export interface ChainedNode {
  readonly node: string;
  readonly chained: readonly { readonly podUid: string; readonly ifname: string }[];
}

/** The part of a report on a lab whose `coil` is behind another plugin. */
export interface ChainedReport {
  /** Number of links that coil has marked. */
  readonly marked: number;
  /** Pods whose link is not marked. */
  readonly unmarked: readonly string[];
  /** Marks of no running pod, as `NODE UID`. */
  readonly strays: readonly string[];
}

/** Compares the links that are marked on the nodes with the lab's running pods. */
export async function verifyChained(
  api: KubeApi,
  nodes: readonly ChainedNode[],
  { signal }: AbortOptions,
): Promise<ChainedReport> {
  const { items } = await api.listAll(resources.pods, { signal });
  const running = items.filter(({ status }) => status?.phase === "Running" && (status.podIPs ?? []).length > 0);
  const marked = nodes.flatMap(({ node, chained }) => chained.map(({ podUid }) => `${node} ${podUid}`));
  const wanted = running.map(({ spec, metadata }) => `${spec?.nodeName} ${metadata.uid}`);
  const unmarked = running
    .filter((_pod, at) => !marked.includes(wanted[at] ?? ""))
    .map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
  return { marked: marked.length, unmarked, strays: marked.filter((one) => !wanted.includes(one)) };
}

/** Pure: every pod's link is marked once, and no other link is marked. */
export function chainedWorks(
  { marked, unmarked, strays }: ChainedReport,
  { pods }: { readonly pods: number },
): boolean {
  return marked === pods && unmarked.length === 0 && strays.length === 0;
}
