import { inspectEgress, inspectNodes } from "#features/cni";
import {
  auditEgressCluster,
  decodeNode,
  type EgressCoverage,
  type EgressFinding,
  type EgressNode,
} from "#features/egress";
import { type AuditCoverage, type AuditedNode, auditCluster, type ChainedNode, type Finding } from "#features/ipam";
import type { KubeApi } from "#kube/client";

/** Everything that `isthmus audit` compares. */
export interface WholeAudit {
  readonly findings: readonly (Finding | EgressFinding)[];
  /** `egress` is absent if Egress NAT was not compared. */
  readonly checked: AuditCoverage & { readonly egress?: EgressCoverage };
  /** What was not compared, and why. */
  readonly notes: readonly string[];
  /** The prefixes that nodes should export. */
  readonly wantedRoutes: number;
}

/**
 * Compares the API server with the nodes whose `coild` serves at these sockets. Rejects with `KubeError`, `GrpcCallError`, `InspectionError` and
 * `EgressStateError`.
 */
export async function auditWhole(
  api: KubeApi,
  sockets: readonly string[],
  {
    signal,
    only,
    hasEgress,
  }: {
    readonly signal: AbortSignal;
    /** The nodes whose blocks and pods are compared; default: all. */
    readonly only?: ReadonlySet<string> | undefined;
    /** Whether Egress NAT is compared too. */
    readonly hasEgress: boolean;
  },
): Promise<WholeAudit> {
  const nodes = await inspectNodes<AuditedNode | ChainedNode>(sockets, { signal });
  const { findings, checked, wantedRoutes } = await auditCluster(api, nodes, { signal, only });
  if (!hasEgress) return { findings, checked, notes: [], wantedRoutes };
  const notes: string[] = [];
  const note = (text: string): void => void notes.push(text);
  const inspect = (): Promise<EgressNode[]> => inspectPods(sockets, { note, signal });
  const egress = await auditEgressCluster(api, inspect, { note, signal });
  return {
    findings: [...findings, ...(egress?.findings ?? [])],
    checked: { ...checked, ...(egress === undefined ? {} : { egress: egress.checked }) },
    // They are found in any order.
    notes: notes.sort(),
    wantedRoutes,
  };
}

async function inspectPods(
  sockets: readonly string[],
  { note, signal }: { readonly note: (text: string) => void; readonly signal: AbortSignal },
): Promise<EgressNode[]> {
  const answers = await Promise.all(
    sockets.map(async (socket) => ({ socket, answer: await inspectEgress(socket, { signal }) })),
  );
  return answers.flatMap(({ socket, answer }) => {
    if (answer === undefined) {
      note(`pods of the node of ${socket} are not compared with Egresses: its coild is of another version`);
      return [];
    }
    const node = decodeNode(answer);
    if (node.clients === undefined)
      note(`pods of node ${node.node} are not compared with Egresses: its coild has --enable-egress=false`);
    return [node];
  });
}
