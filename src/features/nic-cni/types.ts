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

/** The place of a NIC; each kind of device has its own. */
export interface DevicePlace {
  readonly kind: string;
}

/** One NIC. */
export interface NicPlan<Place extends DevicePlace = DevicePlace> {
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
  readonly place: Place;
  /** True: it is being added to a sandbox that runs. What is left of it after a restart is removed. */
  readonly pending?: boolean;
}

/** The settings of NICs in the configuration of a network. NICs that are added to a sandbox later have the same settings. */
export interface PlugSettings {
  /** The type of the configuration, which says which kind of device is plugged. */
  readonly type: string;
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
