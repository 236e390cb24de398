import type { AbortOptions } from "#base/async";
import { Cidr, type IpFamily } from "#base/ip";
import type { KubeApi } from "#kube/client";
import { coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import type { LabIdentity } from "#lab/ownership";
import { pingMesh } from "#lab/ping";
import { naturally } from "./natural.ts";
import { type ObservedCluster, ownNodes } from "./observe.ts";
import type { LabReport } from "./report.ts";

/** The part of a report that is read from the cluster; the caller adds the rest. */
export type Verified = Pick<LabReport, "nodes" | "pods" | "pings" | "families" | "addresses" | "cluster">;

/** Pings all nodes and pods from every pod, and checks that addresses are unique and inside a block of their node. */
export async function verifyCluster(
  api: KubeApi,
  {
    identity,
    cluster,
    ranges,
  }: {
    readonly identity: LabIdentity;
    readonly cluster: ObservedCluster;
    /** The prefixes of each node's pods where another plugin gives addresses; `undefined`: its blocks. */
    readonly ranges?: Readonly<Record<string, readonly string[]>> | undefined;
  },
  options: AbortOptions & {
    readonly pingDeadlineMs: number;
    readonly onProgress: (done: number, total: number) => void;
  },
): Promise<Verified> {
  const blocks = await api.listAll(coilResources.addressBlocks, options);
  const nodes = await ownNodes(api, identity, options);
  const pings = await pingMesh(cluster.pods, cluster.nodes, {
    signal: options.signal,
    deadlineMs: options.pingDeadlineMs,
    onProgress: options.onProgress,
  });
  const ofRanges = Object.entries(ranges ?? {}).flatMap(([node, texts]) =>
    texts.map((text) => ({ node, cidr: Cidr.parse(text) })),
  );
  const ofBlocks = blocks.items.flatMap((block) =>
    [block.ipv4, block.ipv6].flatMap((text) =>
      text === undefined ? [] : [{ node: block.metadata.labels?.[NODE_LABEL] ?? "", cidr: Cidr.parse(text) }],
    ),
  );
  const prefixes = Map.groupBy([...ofBlocks, ...ofRanges], (entry) => entry.node);
  const addresses = cluster.pods.flatMap((pod) => pod.addresses.map((address) => ({ pod, address })));
  const unique = new Set(addresses.map(({ address }) => address.toString())).size === addresses.length;
  const outside = addresses.filter(
    ({ pod, address }) => !(prefixes.get(pod.node) ?? []).some(({ cidr }) => cidr.contains(address)),
  );
  const families = ([4, 6] as const).filter((family: IpFamily) =>
    addresses.some(({ address }) => address.family === family),
  );
  return {
    nodes: nodes.length,
    pods: cluster.pods.length,
    families: families.map((family) => (family === 4 ? "ipv4" : "ipv6")),
    pings: { ...pings, acrossNodes: countAcross(cluster.pods) },
    addresses: { total: addresses.length, unique, outsideBlocks: outside.map(({ address }) => address.toString()) },
    cluster: {
      nodes: nodes.toSorted(byName).map((node) => ({
        name: node.metadata.name,
        addresses: cluster.nodes.find(({ name }) => name === node.metadata.name)?.addresses.map(String) ?? [],
        pods: cluster.pods.filter((pod) => pod.node === node.metadata.name).length,
        blocks: blocks.items
          .filter((block) => block.metadata.labels?.[NODE_LABEL] === node.metadata.name)
          .sort(byName)
          .map((block) => ({
            name: block.metadata.name,
            pool: block.metadata.labels?.[POOL_LABEL] ?? "",
            prefixes: [block.ipv4, block.ipv6].filter((text) => text !== undefined),
          })),
      })),
      pods: cluster.pods
        .toSorted((a, b) => naturally(a.name, b.name))
        .map((pod) => ({ name: pod.name, node: pod.node, addresses: pod.addresses.map(String) })),
    },
  };
}

type Named = { readonly metadata: { readonly name: string } };

function byName(a: Named, b: Named): number {
  return naturally(a.metadata.name, b.metadata.name);
}

/** Number of pairs of a pod and another pod's address that are on different nodes. */
function countAcross(pods: ObservedCluster["pods"]): number {
  return ([4, 6] as const)
    .map((family) => pods.filter((pod) => pod.addresses.some((address) => address.family === family)))
    .map((members) => {
      const perNode = [...Map.groupBy(members, (pod) => pod.node).values()];
      return members.length ** 2 - perNode.reduce((sum, { length }) => sum + length ** 2, 0);
    })
    .reduce((sum, pairs) => sum + pairs, 0);
}
