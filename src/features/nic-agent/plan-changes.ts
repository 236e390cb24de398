import type { NicClaim, NicStatus } from "#kube/nic";
import { isPlumbable, type NodePlace, orderedNics } from "./gates.ts";

/** The NIC whose address is the pod's, wherever the pod lists it (docs/spec/vpc-nics.md#1.1). */
export const PRIMARY = "eth0";

/** The known facts of a NIC in a sandbox. */
export interface PluggedNic {
  readonly name: string;
  readonly portId: string;
  /** The place in the list of the pod. */
  readonly index: number;
  /** True: an agent has ended while it was added. */
  readonly pending?: boolean;
}

/** The changes of a running sandbox. */
export interface SandboxChanges {
  /** In this order, before anything is plugged. */
  readonly unplug: readonly PluggedNic[];
  readonly plug: readonly NicStatus[];
}

/**
 * The difference between the NICs of a sandbox that runs and those of its claim (docs/spec/vpc-nics.md#10). The primary NIC stays. A NIC that is half
 * made is removed and made again; one whose port was replaced as well. Pure.
 */
export function planChanges(
  claim: NicClaim,
  { nics: plugged, ifname }: { readonly nics: readonly PluggedNic[]; readonly ifname?: string | undefined },
  place: NodePlace,
): SandboxChanges {
  // The whole pod is about to end.
  if (claim.metadata.deletionTimestamp !== undefined) return { unplug: [], plug: [] };
  const wanted = orderedNics(claim);
  // A runtime may have given the primary NIC another name; plans of older agents do not say which, and there it is the first one.
  const named = (wish: string | undefined): PluggedNic | undefined => plugged.find(({ name }) => name === wish);
  const primary = named(PRIMARY) ?? named(ifname) ?? plugged.find(({ index }) => index === 0);
  const unplug = plugged.filter((one) => {
    if (one === primary) return false;
    const { name, portId, pending } = one;
    if (pending === true) return true;
    const nic = wanted.find((wish) => wish.name === name);
    return nic === undefined || (nic.portID !== undefined && nic.portID !== portId);
  });
  const stays = plugged.filter((one) => !unplug.includes(one));
  const plug = wanted.filter((nic) => {
    if (nic.name === PRIMARY) return false;
    const isThere = stays.some(({ name, portId }) => name === nic.name || portId === nic.portID);
    return !isThere && isPlumbable(claim, nic, place);
  });
  return { unplug, plug };
}
