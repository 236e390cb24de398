import { type KubeApi, type Pod, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { type AuditedBlock, type AuditedNode, type AuditedPod, audit, type Finding } from "./audit.ts";

/** The numbers of objects that were compared. */
export interface AuditCoverage {
  readonly nodes: number;
  readonly blocks: number;
  readonly pods: number;
  readonly links: number;
  readonly exportedRoutes: number;
}

/** Reads blocks, pods and Nodes of the API server and compares them with `nodes`. Rejects with `KubeError`. */
export async function auditCluster(
  api: KubeApi,
  nodes: readonly AuditedNode[],
  options: {
    readonly signal: AbortSignal;
    /** The nodes to audit; blocks and pods of other nodes are left out. Default: all nodes. */
    readonly only?: ReadonlySet<string> | undefined;
  },
): Promise<{ readonly findings: readonly Finding[]; readonly checked: AuditCoverage; readonly wantedRoutes: number }> {
  const { signal, only } = options;
  const [blocks, pods, nodeObjects] = await Promise.all([
    api.listAll(coilResources.addressBlocks, { signal }),
    api.listAll(resources.pods, { signal }),
    api.listAll(resources.nodes, { signal }),
  ]);
  const isIncluded = ({ node }: { readonly node: string }): boolean => only?.has(node) !== false;
  const inspected = new Set(nodes.map((node) => node.node));
  const auditedBlocks = blocks.items.map(auditedBlock).filter(isIncluded);
  const auditedPods = pods.items.flatMap(auditedPod).filter(isIncluded);
  const findings = audit({
    blocks: auditedBlocks,
    pods: auditedPods,
    nodeNames: nodeObjects.items.map((node) => node.metadata.name),
    nodes,
  });
  return {
    findings,
    wantedRoutes: auditedBlocks
      .filter((block) => inspected.has(block.node))
      .reduce((sum, { ipv4, ipv6 }) => sum + (ipv4 === undefined ? 0 : 1) + (ipv6 === undefined ? 0 : 1), 0),
    checked: {
      nodes: nodes.length,
      blocks: auditedBlocks.length,
      pods: auditedPods.length,
      links: nodes.reduce((sum, node) => sum + node.kernel.length, 0),
      exportedRoutes: nodes.reduce((sum, node) => sum + node.exported.length, 0),
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
function auditedPod(pod: Pod): AuditedPod[] {
  const ended = pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
  const ips = (pod.status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
  const { nodeName = "", hostNetwork } = pod.spec ?? {};
  if (ended || hostNetwork === true || nodeName === "" || ips.length === 0) return [];
  return [{ namespace: pod.metadata.namespace ?? "", name: pod.metadata.name, node: nodeName, ips }];
}
