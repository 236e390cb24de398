/**
 * The plan of the NICs of a sandbox, as plain data: it is written to the journal as JSON before anything is made, and read again by DEL, CHECK
 * and repairs.
 */

/** A route in the sandbox; through the NIC that it is of. */
export interface PlannedRoute {
  /** A CIDR. */
  readonly dst: string;
  /** The gateway; absent: the destination is on the link. */
  readonly via?: string;
  /** Absent: the main table. */
  readonly table?: number;
  readonly metric?: number;
  /** True: the gateway is on the link although no prefix of the NIC covers it. */
  readonly onlink?: boolean;
}

/** A policy rule in the sandbox: packets from an address of a NIC use the NIC's own table. */
export interface PlannedRule {
  /** A CIDR of one address. */
  readonly from: string;
  readonly table: number;
  readonly priority: number;
}

/** Where a NIC of Neutron is plugged (docs/spec/vpc-nics.md#8.2, #8.3). */
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

/** Where the device of a NIC of Alcor is made by Alcor's agent (docs/spec/vpc-nics.md#9). */
export interface AlcorPlace {
  readonly kind: "alcor";
  /** The path of the VPC's network namespace. */
  readonly netns: string;
  /** The name of the device in it. */
  readonly device: string;
  /** The time in which the device has to appear, in milliseconds. */
  readonly waitMs: number;
  readonly mizarTuning: boolean;
  /** What the device had before it was moved; absent until it was found. It is restored when the device goes back. */
  readonly saved?: SavedDevice;
}

/** Settings of a device that a move to another namespace drops. */
export interface SavedDevice {
  readonly mac?: string;
  readonly mtu: number;
  /** Addresses with prefix lengths. */
  readonly addresses: readonly string[];
  readonly routes: readonly PlannedRoute[];
}

/** One NIC. */
export interface NicPlan {
  /** The name in the sandbox. */
  readonly name: string;
  readonly portId: string;
  /** The place in the list of the pod, from 0. */
  readonly index: number;
  /** The metric of its default routes. */
  readonly metric: number;
  readonly mac?: string;
  /** Bytes; absent: the kernel's or the agent's. */
  readonly mtu?: number;
  /** Addresses with prefix lengths, such as `10.0.0.5/24`. */
  readonly addresses: readonly string[];
  /** In this order; those of the table of the NIC too. */
  readonly routes: readonly PlannedRoute[];
  readonly rules: readonly PlannedRule[];
  /** True: of a secondary network; its default routes are in its own table alone. */
  readonly secondary?: boolean;
  /** True: router advertisements configure further addresses. */
  readonly acceptRa: boolean;
  readonly place: NeutronPlace | AlcorPlace;
  /** True: it is being added to a sandbox that runs. What is left of it after a restart is removed. */
  readonly pending?: boolean;
}

/** What the configuration of a network says of NICs; those that are added to a sandbox later are made the same. */
export interface PlugSettings {
  readonly type: "vpc-neutron" | "vpc-alcor";
  readonly plugMode: "auto" | "hybrid" | "direct";
  readonly vmMode: "veth" | "tap";
  readonly vmMultiQueue: boolean;
  readonly vmOwnerUid?: number;
  readonly ovsdb?: string;
  readonly integrationBridge?: string;
  readonly nsPrefix: string;
  /** Milliseconds; 0: the default. */
  readonly probe_tm_ms: number;
  readonly mizarTuning: boolean;
}

/** Name servers of a sandbox. */
export interface PlannedDns {
  readonly nameservers?: readonly string[];
  readonly search?: readonly string[];
}

/** All NICs of a sandbox. */
export interface SandboxPlan {
  readonly containerId: string;
  readonly podUid: string;
  /** The name of the CNI network, for GC. */
  readonly network: string;
  /** The CNI_IFNAME of the ADD: CHECK and DEL with another one are not of these NICs. Absent in plans of older agents, and without a journal. */
  readonly ifname?: string;
  /** The path of the sandbox's network namespace. */
  readonly netns: string;
  /** In the order of the pod. */
  readonly nics: readonly NicPlan[];
  readonly dns: PlannedDns;
  /** Absent in plans of older agents: no NIC can be added. */
  readonly settings?: PlugSettings;
}
