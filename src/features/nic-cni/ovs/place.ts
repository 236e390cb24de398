import * as v from "valibot";
import { whole } from "../schemas.ts";
import type { NicPlan } from "../types.ts";

/** The place of a NIC of Neutron (docs/spec/vpc-nics.md#8.2, #8.3). */
export interface NeutronPlace {
  readonly kind: "neutron";
  /** The socket of Open vSwitch's database. */
  readonly ovsdb: string;
  /** The integration bridge. */
  readonly bridge: string;
  /** True: a Linux bridge is between the sandbox and the integration bridge. */
  readonly hybrid: boolean;
  /** True until the switch was asked: the port's binding does not say whether it needs the Linux bridge; with OVN none is needed. */
  readonly hybridUnlessOvn?: boolean;
  /** The host's end: a veth whose peer is the NIC, or a TAP device for the runtime of a virtual machine. */
  readonly end: "veth" | "tap";
  /** True: the switch is in user space, so the sandbox computes checksums by itself. */
  readonly netdev: boolean;
  /** True: the TAP device can have several queues. */
  readonly multiQueue?: boolean;
  /** The user of the TAP device; absent: root. */
  readonly ownerUid?: number;
  /** The interface's external ids. */
  readonly externalIds: Readonly<Record<string, string>>;
}

/** A NIC of Neutron. */
export type NeutronNic = NicPlan<NeutronPlace>;

/** A place of the journal. */
export const neutronPlace = v.object({
  kind: v.literal("neutron"),
  ovsdb: v.string(),
  bridge: v.string(),
  hybrid: v.boolean(),
  hybridUnlessOvn: v.exactOptional(v.boolean()),
  end: v.picklist(["veth", "tap"]),
  netdev: v.boolean(),
  multiQueue: v.exactOptional(v.boolean()),
  ownerUid: v.exactOptional(whole),
  externalIds: v.record(v.string(), v.string()),
});

/** True for a NIC that Open vSwitch plugs. */
export function isNeutron(nic: NicPlan): nic is NeutronNic {
  return nic.place.kind === "neutron";
}

/** The sockets of the databases of switches that NICs are ports of. Pure. */
export function switchesOf(nics: readonly NicPlan[]): readonly string[] {
  return nics.filter(isNeutron).map(({ place }) => place.ovsdb);
}
