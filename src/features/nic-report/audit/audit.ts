import type { Pod } from "#kube/client";
import type { NicClaim } from "#kube/nic";
import { auditClaims } from "./claims.ts";
import type { NicFinding } from "./finding.ts";
import { auditNode, isOf } from "./nodes.ts";
import { type AuditedPorts, auditPorts } from "./ports.ts";
import type { NicAuditRules } from "./rules.ts";
import type { NicNode } from "./state.ts";

/** The input of the comparison. */
export interface NicAuditInput extends Omit<AuditedPorts, "isRunning"> {
  readonly pods: readonly Pod[];
  readonly claims: readonly NicClaim[];
  /** The nodes whose `nic-agent` was asked. */
  readonly nodes: readonly NicNode[];
}

/** The numbers of objects that were compared. */
export interface NicCoverage {
  readonly claims: number;
  /** Ports of providers that were asked. */
  readonly ports: number;
  /** NICs in the journals of nodes that were asked. */
  readonly nics: number;
  /** Claims of pods on nodes that were not asked. */
  readonly claimsElsewhere: number;
}

/** The result of {@link auditNics}. */
export interface NicAudit {
  readonly findings: readonly NicFinding[];
  readonly checked: NicCoverage;
}

/**
 * Finds every difference between the wishes of pods, NicClaims, the ports of providers, and journals, devices and switches of nodes. An operation
 * in progress can appear as a difference. Pure.
 */
export function auditNics(input: NicAuditInput, rules: NicAuditRules): NicAudit {
  const { pods, claims, nodes, ports } = input;
  const running = new Set(
    pods
      .filter(({ status }) => !["Succeeded", "Failed"].includes(status?.phase ?? ""))
      .map(({ metadata }) => metadata.uid),
  );
  const isRunning = (uid: string): boolean => running.has(uid);
  const isElsewhere = (claim: NicClaim): boolean =>
    claim.status?.nodeName !== undefined && !nodes.some(({ node }) => isOf(claim, node));
  return {
    findings: [
      ...auditClaims({ pods, claims }, rules),
      ...auditPorts(claims, { ...input, isRunning }, rules),
      ...nodes.flatMap((node) => auditNode(node, { pods, claims })),
    ],
    checked: {
      claims: claims.length,
      ports: [...ports.values()].reduce((sum, list) => sum + list.length, 0),
      nics: nodes.reduce((sum, { sandboxes }) => sum + sandboxes.reduce((all, { nics }) => all + nics.length, 0), 0),
      claimsElsewhere: claims.filter(isElsewhere).length,
    },
  };
}
