import { inspectEgress, inspectNodes } from "#features/cni";
import {
  auditEgressCluster,
  decodeNode,
  type EgressCoverage,
  type EgressFinding,
  type EgressNode,
} from "#features/egress";
import { type AuditCoverage, type AuditedNode, auditCluster, type ChainedNode, type Finding } from "#features/ipam";
import type { NicCoverage, NicFinding } from "#features/nic-report";
import type { KubeApi, Pod } from "#kube/client";
import { CLAIM_ANNOTATION } from "#kube/nic";
import { auditNicsOf, type NicSources } from "./nics.ts";

/** Everything that `isthmus audit` compares. */
export interface WholeAudit {
  readonly findings: readonly (Finding | EgressFinding | NicFinding)[];
  /** `egress` is absent if Egress NAT was not compared, `nics` if there are no NICs of VPCs. */
  readonly checked: AuditCoverage & { readonly egress?: EgressCoverage; readonly nics?: NicCoverage };
  /** The parts that were not compared, each with the reason. */
  readonly notes: readonly string[];
  /** The prefixes that nodes should export. */
  readonly wantedRoutes: number;
}

/**
 * Compares the API server with the nodes whose `coild` serves at these sockets, and the NICs of VPCs with those of `nics`. Without a socket of `coild` only
 * NICs are compared. Rejects with `KubeError`, `GrpcCallError`, `InspectionError`, `EgressStateError` and `NicReportError`.
 */
export async function auditWhole(
  api: KubeApi,
  sockets: readonly string[],
  {
    signal,
    only,
    hasEgress,
    nics,
  }: {
    readonly signal: AbortSignal;
    /** The nodes whose blocks and pods are compared; default: all. */
    readonly only?: ReadonlySet<string> | undefined;
    /** True if Egress NAT is compared too. */
    readonly hasEgress: boolean;
    /** Absent: NICs of VPCs are not compared. */
    readonly nics?: NicSources | undefined;
  },
): Promise<WholeAudit> {
  const nodes = await inspectNodes<AuditedNode | ChainedNode>(sockets, { signal });
  const notes: string[] = [];
  const note = (text: string): void => void notes.push(text);
  // A node of another plugin has no coild, and need not have Coil's types.
  const isOfNics = sockets.length === 0 && nics !== undefined;
  const { findings, checked, wantedRoutes } = isOfNics
    ? NO_PODS
    : await auditCluster(api, nodes, { signal, only, isElsewhere: hasNics });
  const inspect = (): Promise<EgressNode[]> => inspectPods(sockets, { note, signal });
  const egress = hasEgress && !isOfNics ? await auditEgressCluster(api, inspect, { note, signal }) : undefined;
  const ofNics = nics === undefined ? undefined : await auditNicsOf(api, nics, { note, signal });
  return {
    findings: [...findings, ...(egress?.findings ?? []), ...(ofNics?.findings ?? [])],
    checked: {
      ...checked,
      ...(egress === undefined ? {} : { egress: egress.checked }),
      ...(ofNics === undefined ? {} : { nics: ofNics.checked }),
    },
    // They are found in any order.
    notes: notes.sort(),
    wantedRoutes,
  };
}

/** Its addresses are of a VPC, and may be the same as others' there. */
function hasNics({ metadata: { uid, annotations } }: Pod): boolean {
  return annotations?.[CLAIM_ANNOTATION] === uid;
}

const NO_PODS = {
  findings: [],
  checked: { nodes: 0, blocks: 0, pods: 0, links: 0, exportedRoutes: 0 },
  wantedRoutes: 0,
} as const;

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
