import { isEqual } from "#base/collections";
import type { NamedNic, NicStatus } from "#kube/nic";

/** Fields of a NIC with which it needs another port. Groups and the tag are changed on the port that it has. */
const FIXED = ["portID", "subnet", "ip", "mac", "ipv6Enabled", "defaultRoute"] as const;

/**
 * The NICs that a claim gets when its pod asks for others (docs/spec/vpc-nics.md#10); `undefined` if it has them. A NIC that is wanted with another
 * port, and one whose former port is not released yet, is left out until that port is released: both have one name at the provider. `claimed`
 * are the NICs of the claim, `shown` those of its status. Pure.
 */
export function planNics(
  claimed: readonly NamedNic[],
  shown: readonly NicStatus[],
  wanted: readonly NamedNic[],
): readonly NamedNic[] | undefined {
  const next = wanted.flatMap((nic): NamedNic[] => {
    const old = claimed.find(({ name }) => name === nic.name);
    const status = shown.find(({ name }) => name === nic.name);
    if (old === undefined) return status === undefined ? [nic] : [];
    // A user may write down the port that a NIC was given.
    const isAssigned = old.portID === undefined && nic.portID !== undefined && nic.portID === status?.portID;
    const { portID, ...rest } = nic;
    const same: NamedNic = isAssigned || portID === undefined ? rest : nic;
    return FIXED.every((field) => old[field] === same[field]) ? [same] : [];
  });
  return isEqual(next, claimed) ? undefined : next;
}

/** The names that `next` has and `before` has not. Pure. */
export function added(before: readonly NamedNic[], next: readonly NamedNic[]): readonly string[] {
  return next.flatMap(({ name }) => (before.some((one) => one.name === name) ? [] : [name]));
}
