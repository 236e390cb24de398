import { type KubeApi, type Pod, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { type AuditedBlock, type AuditedNode, type AuditedPod, audit, type Finding } from "./audit.ts";
import { auditChained, type ChainedNode, type ChainedPod } from "./audit-chained.ts";

/** The numbers of objects that were compared. */
export interface AuditCoverage {
  readonly nodes: number;
  readonly blocks: number;
  readonly pods: number;
  readonly links: number;
  readonly exportedRoutes: number;
}

/**
 * Reads blocks, pods and Nodes of the API server and compares them with `nodes`. On nodes whose `coild` is behind another plugin only the
 * marks of links are compared, because the other plugin manages the addresses. Rejects with `KubeError`.
 */
export async function auditCluster(
  api: KubeApi,
  nodes: readonly (AuditedNode | ChainedNode)[],
  options: {
    readonly signal: AbortSignal;
    /** The nodes to audit; blocks and pods of other nodes are left out. Default: all nodes. */
    readonly only?: ReadonlySet<string> | undefined;
    /** Returns true if a pod has its addresses of another network than the pod network. */
    readonly isElsewhere: (pod: Pod) => boolean;
  },
): Promise<{ readonly findings: readonly Finding[]; readonly checked: AuditCoverage; readonly wantedRoutes: number }> {
  const { signal, only, isElsewhere } = options;
  const chained = nodes.filter((node): node is ChainedNode => "chained" in node);
  const own = nodes.filter((node): node is AuditedNode => !("chained" in node));
  const [blocks, pods, nodeObjects] = await Promise.all([
    // A cluster in which every coild is behind another plugin need not have Coil's types.
    chained.length > 0 && own.length === 0 ? { items: [] } : api.listAll(coilResources.addressBlocks, { signal }),
    api.listAll(resources.pods, { signal }),
    api.listAll(resources.nodes, { signal }),
  ]);
  const isIncluded = ({ node }: { readonly node: string }): boolean => only?.has(node) !== false;
  const inspected = new Set(own.map((node) => node.node));
  const isChained = new Set(chained.map((node) => node.node));
  const auditedBlocks = blocks.items.map(auditedBlock).filter(isIncluded);
  const auditedPods = pods.items
    .filter((pod) => !isElsewhere(pod))
    .flatMap(auditedPod)
    .filter(isIncluded);
  const findings = audit({
    blocks: auditedBlocks,
    pods: auditedPods.filter(({ node }) => !isChained.has(node)),
    nodeNames: nodeObjects.items.map((node) => node.metadata.name),
    nodes: own,
  });
  return {
    findings: [...findings, ...auditChained(chained, auditedPods)],
    wantedRoutes: auditedBlocks
      .filter((block) => inspected.has(block.node))
      .reduce((sum, { ipv4, ipv6 }) => sum + (ipv4 === undefined ? 0 : 1) + (ipv6 === undefined ? 0 : 1), 0),
    checked: {
      nodes: nodes.length,
      blocks: auditedBlocks.length,
      pods: auditedPods.length,
      links: nodes.reduce((sum, node) => sum + ("chained" in node ? node.chained : node.kernel).length, 0),
      exportedRoutes: own.reduce((sum, node) => sum + node.exported.length, 0),
    },
  };
}

function auditedBlock(block: AddressBlock): AuditedBlock {
  const { name, uid, labels = {}, deletionTimestamp } = block.metadata;
  return {
    name,
    uid,
    pool: labels[POOL_LABEL] ?? "",
    node: labels[NODE_LABEL] ?? "",
    ipv4: block.ipv4,
    ipv6: block.ipv6,
    deleting: deletionTimestamp !== undefined,
  };
}

/** Pods that have addresses of the pod network and have not ended. */
function auditedPod(pod: Pod): (AuditedPod & ChainedPod)[] {
  const ended = pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
  const ips = (pod.status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
  const { nodeName = "", hostNetwork } = pod.spec ?? {};
  if (ended || hostNetwork === true || nodeName === "" || ips.length === 0) return [];
  return [
    { namespace: pod.metadata.namespace ?? "", name: pod.metadata.name, uid: pod.metadata.uid, node: nodeName, ips },
  ];
}
