/** A device of the host that a NIC needs. */
export interface WantedDevice {
  readonly name: string;
  /** The Linux bridge that it is a port of; absent: none of ours. */
  readonly master?: string | undefined;
}

/** The port of a switch that a NIC needs. */
export interface WantedPort {
  /** The socket of the switch's database. */
  readonly ovsdb: string;
  readonly bridge: string;
  readonly device: string;
  readonly externalIds: Readonly<Record<string, string>>;
}

/** The kernel objects of a NIC in a network namespace, for people: routes and rules in the words of ip(8). */
export interface NicLink {
  readonly isUp: boolean;
  readonly mac?: string | undefined;
  /** Bytes. */
  readonly mtu: number;
  /** With prefix lengths. */
  readonly addresses: readonly string[];
  readonly routes: readonly string[];
  readonly rules: readonly string[];
}

/** One NIC as the journal of its node has it, and what is there of it. */
export interface NodeNic {
  readonly name: string;
  readonly portId: string;
  /** The kind of its device. */
  readonly kind: string;
  /** False: a virtual machine configures itself, so the namespace has nothing. */
  readonly isConfigured: boolean;
  /** True: it is being added to a sandbox that runs, so parts of it may be missing. */
  readonly isPending?: boolean | undefined;
  readonly mac?: string | undefined;
  /** Bytes. */
  readonly mtu?: number | undefined;
  /** With prefix lengths. */
  readonly addresses: readonly string[];
  readonly devices: readonly WantedDevice[];
  readonly port?: WantedPort | undefined;
  /** The differences between the network namespace and the plan, in words. */
  readonly differences: readonly string[];
  /** Absent: the namespace has no such interface. */
  readonly link?: NicLink | undefined;
}

/** The NICs of one container. */
export interface NicSandbox {
  readonly containerId: string;
  readonly podUid: string;
  readonly netns: string;
  /** True if the network namespace exists. */
  readonly isThere: boolean;
  readonly nics: readonly NodeNic[];
}

/** A device of the host whose alias is ours. */
export interface HostDevice {
  readonly name: string;
  readonly isUp: boolean;
  /** The name of the bridge that it is a port of. */
  readonly master?: string | undefined;
  readonly portId: string;
  readonly containerId: string;
}

/** A port of a switch as its database has it. */
export interface SwitchPort {
  readonly bridge: string;
  readonly device: string;
  readonly externalIds: Readonly<Record<string, string>>;
  /** Absent: the switch does not serve it. */
  readonly ofport?: number | undefined;
  readonly error: string;
}

/** A switch of the node. */
export interface SwitchState {
  readonly ovsdb: string;
  /** The reason why it could not be read; then the rest is empty. */
  readonly fault?: string | undefined;
  readonly bridges: readonly string[];
  readonly ports: readonly SwitchPort[];
}

/** The NICs of a node as its `nic-agent` tells them. */
export interface NicNode {
  readonly node: string;
  /** The names of the NicClaims that it knows. */
  readonly claims: readonly string[];
  readonly sandboxes: readonly NicSandbox[];
  readonly devices: readonly HostDevice[];
  readonly switches: readonly SwitchState[];
}
