import type { AbortOptions } from "#base/async";
import type { ProviderError } from "./errors.ts";

/** One address of a port. */
export interface PortAddress {
  readonly subnetId: string;
  readonly ip: string;
}

/** A port as every provider tells it. Texts that are not known are empty. */
export interface VpcPort {
  readonly id: string;
  readonly name: string;
  readonly networkId: string;
  readonly projectId: string;
  readonly status: PortStatus;
  readonly mac: string;
  readonly addresses: readonly PortAddress[];
  readonly deviceId: string;
  readonly deviceOwner: string;
  readonly description: string;
  /** An instant of ISO 8601. */
  readonly createdAt: string;
  readonly revision: number | undefined;
  readonly securityGroups: readonly string[];
  readonly binding: PortBinding;
}

/** `UNKNOWN` is any other word. */
export type PortStatus = "ACTIVE" | "DOWN" | "BUILD" | "ERROR" | "N/A" | "UNKNOWN";

/** The host at which a port is plugged, and the way in which it is plugged. */
export interface PortBinding {
  /** The host; empty if there is none. */
  readonly host: string;
  readonly vifType: string;
  readonly ovsHybridPlug?: boolean | undefined;
  readonly bridgeName?: string | undefined;
  readonly datapathType?: string | undefined;
  readonly portFilter?: boolean | undefined;
  /** The device that Alcor's agent makes, and its namespace. */
  readonly vethName?: string | undefined;
  readonly netns?: string | undefined;
}

/** A subnet of a VPC. */
export interface VpcSubnet {
  readonly id: string;
  readonly name: string;
  readonly networkId: string;
  readonly cidr: string;
  readonly ipVersion: 4 | 6;
  readonly gateway: string | undefined;
  readonly nameservers: readonly string[];
  readonly routes: readonly { readonly dst: string; readonly via: string }[];
  /** True if each port of the network gets an address of it, which follows from its MAC. */
  readonly isAutomatic?: boolean | undefined;
  /** The ranges from which ports get addresses, if the provider tells them. */
  readonly pools?: readonly { readonly start: string; readonly end: string }[];
}

/** A VPC, with what its ports need. */
export interface Vpc {
  /** The name or id by which it was asked for. */
  readonly ref: string;
  readonly projectId: string | undefined;
  /** The networks, by id. */
  readonly networks: ReadonlyMap<string, { readonly mtu: number }>;
  readonly subnets: readonly VpcSubnet[];
}

/** The properties that a NIC requires of its port. */
export interface PortWish {
  readonly subnet?: string | undefined;
  /** An address of the subnet, which must be given. */
  readonly ip?: string | undefined;
  readonly mac?: string | undefined;
  /** Names or ids. Empty: the provider's own default. */
  readonly securityGroups: readonly string[];
  /** True if the groups may be of any project, since the operator has named them. Default: of the VPC's project, or shared with it. */
  readonly trustsGroups?: boolean | undefined;
  readonly wantsIpv6: boolean;
  /** True if it says that it wants none: otherwise a VPC of IPv6 alone gives it an address all the same. Default false. */
  readonly refusesIpv6?: boolean | undefined;
}

/** The owner of a port (docs/spec/vpc-nics.md#5.3). */
export interface PortIdentity {
  readonly name: string;
  /** The uid of the pod. */
  readonly deviceId: string;
  readonly deviceOwner: string;
  /** At most 255 bytes. */
  readonly description: string;
  readonly tags: readonly string[];
}

/** A port to be made. */
export interface PortRequest {
  readonly identity: PortIdentity;
  readonly vpc: Vpc;
  readonly wish: PortWish;
  /** The host that it is bound to at once, if it is known already. */
  readonly host: string | undefined;
}

/** The end of one {@link PortRequest}. */
export type PortResult = { readonly port: VpcPort } | { readonly error: ProviderError };

/** The fields of a user's port before its use, which are restored when the pod is gone. */
export interface SavedDevice {
  readonly deviceId: string;
  readonly deviceOwner: string;
  readonly host: string;
}

/** The security groups that a port gets. */
export interface SecurityGroupsChange extends Pick<PortWish, "securityGroups" | "trustsGroups"> {
  readonly vpc: Vpc;
}

/** An agent of a provider on a host. */
export interface ProviderAgent {
  readonly host: string;
  /** Such as `Open vSwitch agent`. */
  readonly kind: string;
  readonly isAlive: boolean;
}

/** The ports that a project may have, and has. */
export interface PortQuota {
  /** `undefined`: there is no limit. */
  readonly limit: number | undefined;
  /** With those that are being made. */
  readonly used: number;
}

/** Which VPC is meant. */
export interface VpcRef {
  /** Its name or id. */
  readonly vpc: string;
  /** The project in which a name is looked up; of a VPC by id, the project that it must be of. */
  readonly projectId: string | undefined;
}

/** Options of requests that make ports. */
export interface CreateOptions extends AbortOptions {
  /** Waits for the turn of one request to the cloud, of which one call makes many; what it rejects with ends the call. */
  readonly pace?: (() => Promise<void>) | undefined;
}

/** Options of a request for ports by id. */
export interface GetOptions extends AbortOptions {
  /** True if it is part of a look, as {@link VpcProvider.pollPorts} is: who limits requests lets it wait for looks alone. */
  readonly isLook?: boolean | undefined;
}

/** The greatest age of the answer. */
export interface ResolveOptions extends AbortOptions {
  /** In milliseconds, at most a minute, which is the default. */
  readonly maxAgeMs?: number | undefined;
}

/** The facts that a cloud tells of itself. Every method rejects as those of {@link VpcProvider}. */
export interface ProviderDiagnosis {
  /** The names of the extensions that the server has. */
  extensions(options: AbortOptions): Promise<ReadonlySet<string>>;
  /** The agents of all hosts. */
  agents(options: AbortOptions): Promise<readonly ProviderAgent[]>;
  /** The quota of ports of a project; `limit` is absent without one. */
  portQuota(projectId: string, options: AbortOptions): Promise<PortQuota>;
}

/**
 * The cloud that has the VPCs. Every method rejects with {@link ProviderError}, and with the signal's reason. None makes a request twice; what
 * an ambiguous failure has done is looked up by the caller.
 */
export interface VpcProvider extends AsyncDisposable {
  readonly name: string;
  /** The facts for a diagnosis; absent: the cloud does not tell them. */
  readonly diagnosis?: ProviderDiagnosis | undefined;
  /** The VPC with its networks and subnets, as they were at most a minute ago, or `maxAgeMs`. */
  resolve(ref: VpcRef, options: ResolveOptions): Promise<Vpc>;
  /** Makes ports. There is one result for each request, in their order; a bad request does not fail the others. */
  createPorts(requests: readonly PortRequest[], options: CreateOptions): Promise<readonly PortResult[]>;
  /** The ports of these devices. */
  findPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]>;
  /** The ports with these ids, whole; one that is missing does not exist. */
  getPorts(ids: readonly string[], options: GetOptions): Promise<ReadonlyMap<string, VpcPort>>;
  /** Status and binding of the ports of these devices: an answer that is short. */
  pollPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]>;
  /**
   * Binds a port to a host. A binding that failed is a result, not an error: {@link PortBinding.vifType} tells. `ifRevision`: rejects with
   * `PortChanged` if the port has another revision by now.
   */
  bindPort(
    id: string,
    binding: { readonly host: string; readonly deviceId: string; readonly deviceOwner: string },
    options: AbortOptions & { readonly ifRevision?: number | undefined },
  ): Promise<VpcPort>;
  /** Gives a port these security groups, names or ids of the VPC's project, in place of those that it has. Empty: the provider's default ones. */
  setSecurityGroups(id: string, groups: SecurityGroupsChange, options: AbortOptions): Promise<void>;
  /** Gives a user's port back. A port that is gone is no error. */
  releasePort(id: string, saved: SavedDevice, options: AbortOptions): Promise<void>;
  /** Deletes a port. A port that is gone is no error. */
  deletePort(id: string, options: AbortOptions): Promise<void>;
  /** All ports with this owner, page after page. */
  eachOwned(deviceOwner: string, options: AbortOptions): AsyncIterable<VpcPort>;
  /** All ports with this tag, page after page; none on a server without tags. */
  eachTagged(tag: string, options: AbortOptions): AsyncIterable<VpcPort>;
  /** The state of the agent of a host, for the message of a binding that failed: `no agent`, `the agent … is not alive`. */
  describeHost(host: string, options: AbortOptions): Promise<string>;
}
