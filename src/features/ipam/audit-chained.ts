import type { Finding } from "./audit.ts";

/** A node whose `coild` is behind another plugin, as it reports it in its answer to Inspect. */
export interface ChainedNode {
  readonly node: string;
  /** The links that it has marked. */
  readonly chained: readonly { readonly podUid: string; readonly ifname: string; readonly hostName: string }[];
}

/** A running pod that has an address of its own. */
export interface ChainedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly node: string;
}

/** Finds pods whose link is not marked, and marks that belong to no pod, on these nodes. Pure. */
export function auditChained(nodes: readonly ChainedNode[], pods: readonly ChainedPod[]): Finding[] {
  return nodes.flatMap(({ node, chained }) => {
    const own = pods.filter((pod) => pod.node === node);
    const marked = new Set(chained.map(({ podUid }) => podUid));
    const known = new Set(own.map(({ uid }) => uid));
    const unmarked = own.filter(({ uid }) => !marked.has(uid));
    const strays = chained.filter(({ podUid }) => !known.has(podUid));
    return [
      ...unmarked.map(({ namespace, name }): Finding => {
        return { kind: "unmarked-pod", node, text: `no link has the mark of pod ${namespace}/${name}` };
      }),
      ...strays.map(({ hostName, podUid, ifname }): Finding => {
        const text = `link ${hostName} has the mark of pod UID ${podUid}, interface ${ifname}, but that pod does not run on this node`;
        return { kind: "stray-mark", node, text };
      }),
    ];
  });
}
