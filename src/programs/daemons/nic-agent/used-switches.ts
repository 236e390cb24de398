import { type SandboxPlan, switchesOf } from "#features/nic-cni";
import type { NicClaim } from "#kube/nic";

/**
 * The databases of switches that pods of this node need: those of NICs that are there, and `own`, the agent's, for NICs that the provider has bound here by
 * Open vSwitch and that are to be plugged. A node without such NICs may have no switch. Pure.
 */
export function usedSwitches(
  plans: readonly Pick<SandboxPlan, "nics">[],
  claims: readonly NicClaim[],
  own: string,
): ReadonlySet<string> {
  const used = plans.flatMap(({ nics }) => switchesOf(nics));
  const isBound = ({ metadata, status }: NicClaim): boolean =>
    metadata.deletionTimestamp === undefined && (status?.nics ?? []).some(({ vifType }) => vifType === "ovs");
  return new Set([...used, ...(claims.some(isBound) ? [own] : [])]);
}
