import { isEqual } from "#base/collections";
import { type FieldFault, forbidden } from "#kube/crd";
import type { NamedNic } from "#kube/nic";
import { type NamedWish, PRIMARY_NIC } from "./defaults.ts";

/** The facts that the rules of an update read beside both wishes. */
export interface UpdateContext {
  /** True if the policy allows to add and remove NICs. */
  readonly hotplug: boolean;
  /** True if every NIC of the new wish was written with its name. */
  readonly allNamed: boolean;
  /** The ids of the ports that the NICs have, by the name of the NIC, where the claim is known. */
  readonly assigned?: ReadonlyMap<string, string> | undefined;
}

/** Fields of a NIC that do not change while it exists. Groups and the tag may change. */
const FIXED = ["subnet", "ip", "mac", "ipv6Enabled", "defaultRoute"] as const;
const PERMANENT = "may not change";

/** Checks the change of a running pod's wish (docs/spec/vpc-nics.md#1.2, update rules). Both wishes have their defaults. Pure. */
export function updateFaults(before: NamedWish, after: NamedWish, context: UpdateContext): FieldFault[] {
  if (before.vpc !== after.vpc) return [forbidden("vpc", PERMANENT)];
  const faults: FieldFault[] = [];
  const news = new Map(after.nics.map((nic) => [nic.name, nic]));
  for (const old of before.nics) {
    const nic = news.get(old.name);
    if (nic !== undefined) faults.push(...changeFaults(old, nic, context));
    else if (old.name === PRIMARY_NIC) {
      faults.push(forbidden(`nics[${PRIMARY_NIC}]`, "the primary NIC may not be removed"));
    }
  }
  for (const nic of after.nics) {
    const isNew = !before.nics.some(({ name }) => name === nic.name);
    // The default route of a running pod stays where its connections are.
    if (isNew && nic.defaultRoute === true) {
      faults.push(
        forbidden(`nics[${nic.name}].defaultRoute`, "may not be set on a NIC that is added to a running pod"),
      );
    }
  }
  const names = (wish: NamedWish): string[] => wish.nics.map(({ name }) => name);
  const isSame = isEqual(names(before).sort(), names(after).sort());
  if (!isSame && !(context.hotplug && context.allNamed)) faults.push(forbidden("nics", "NICs are immutable"));
  return faults;
}

function changeFaults(before: NamedNic, after: NamedNic, { assigned }: UpdateContext): FieldFault[] {
  const path = `nics[${before.name}]`;
  const faults: FieldFault[] = [];
  const port = before.portID ?? (after.portID === undefined ? undefined : assigned?.get(before.name));
  if (port !== undefined && port !== after.portID) {
    faults.push(forbidden(`${path}.portID`, "may not change once assigned"));
  }
  for (const field of FIXED) {
    if (before[field] !== after[field]) faults.push(forbidden(`${path}.${field}`, PERMANENT));
  }
  return faults;
}
