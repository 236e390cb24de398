import { isEqual } from "#base/collections";
import { Cidr } from "#base/ip";
import {
  isForeignVif,
  isPluggable,
  isPlumbable,
  PLUGGABLE,
  type SavedDevice,
  type Vpc,
  type VpcPort,
} from "#cloud/vpc";
import type { NamedNic, NicStatus } from "#kube/nic";
import { MAX_PAUSE_MS, type NicFault, retryDelayMs } from "./retry.ts";

/** Failed bindings in a row after which the host's agents are asked about, and the NIC counts as failed. */
export const BINDING_TRIES = 5;

/**
 * The statuses of all NICs of a claim, in its order, and then those of NICs that the pod does not want any more; a NIC without one has not been
 * looked at. Pure.
 */
export function completed(wishes: readonly NamedNic[], nics: readonly NicStatus[]): readonly NicStatus[] {
  const wished = wishes.map(({ name, tag }) =>
    tagged(nics.find((nic) => nic.name === name) ?? { name, state: "InProgress" }, tag),
  );
  return [...wished, ...leaving(wishes, nics)];
}

/** The NICs that a pod wants. Pure. */
export function wished(wishes: readonly NamedNic[], nics: readonly NicStatus[]): readonly NicStatus[] {
  return nics.filter((nic) => wishes.some(({ name }) => name === nic.name));
}

/** The NICs that a pod does not want any more, and whose ports are not released yet. Pure. */
export function leaving(wishes: readonly NamedNic[], nics: readonly NicStatus[]): readonly NicStatus[] {
  return nics.filter((nic) => !wishes.some(({ name }) => name === nic.name));
}

function tagged(nic: NicStatus, tag: string | undefined): NicStatus {
  if (nic.tag === tag) return nic;
  const { tag: _, ...rest } = nic;
  return tag === undefined ? rest : { ...rest, tag };
}

/** The security groups that a NIC names; none: the default ones. */
export function groupsOf({ securityGroup, securityGroups }: NamedNic): readonly string[] {
  return securityGroups ?? (securityGroup === undefined ? [] : [securityGroup]);
}

/**
 * Returns true if a port that the controller has made has to be given other groups. Of a port whose groups are not recorded, as after a crash, they are
 * those of its NIC if the claim never changed. Pure.
 */
export function needsGroups(nic: NicStatus, wish: NamedNic, isOriginal: boolean): boolean {
  if (!hasPort(nic) || nic.createdByController !== true || nic.reason === "PortLost") return false;
  if (nic.securityGroups === undefined) return !isOriginal;
  return !isEqual(nic.securityGroups, groupsOf(wish));
}

/** Returns true if a NIC has its port: it is known, and of a user's port also that it was taken over. */
export function hasPort({ portID, mac }: NicStatus): boolean {
  return portID !== undefined && mac !== undefined;
}

/** Returns true if a NIC can be plugged on a host. */
export function isPlumbed(nic: NicStatus, host: string | undefined): boolean {
  return (
    hasPort(nic) &&
    nic.host !== undefined &&
    nic.host !== "" &&
    (host === undefined || nic.host === host) &&
    isPluggable(nic)
  );
}

/**
 * Returns true if a NIC may be tried now: it has not failed, or its pause is over. A pause that is longer than any is of a clock that was wrong, and over.
 */
export function isDue({ nextRetryAt }: NicStatus, now: number): boolean {
  if (nextRetryAt === undefined) return true;
  const leftMs = Date.parse(nextRetryAt) - now;
  return !(leftMs > 0 && leftMs <= MAX_PAUSE_MS);
}

/** An instant as claims have it, in whole milliseconds. */
export function instant(ms: number): string {
  return new Date(ms).toISOString();
}

/** Without what a failure leaves. */
export function settled({
  reason: _reason,
  message: _message,
  attempts: _attempts,
  nextRetryAt: _next,
  ...nic
}: NicStatus): NicStatus {
  return nic;
}

/** A NIC after a failure: its reason, and when it is tried again (docs/spec/vpc-nics.md#12). Pure. */
export function failed(nic: NicStatus, fault: NicFault, { now, random }: { now: number; random: number }): NicStatus {
  const attempts = (nic.reason === fault.reason ? (nic.attempts ?? 0) : 0) + 1;
  const isPassing =
    fault.reason === "BindingFailed" ? attempts < BINDING_TRIES : ["fast", "at-once"].includes(fault.retry);
  return {
    ...nic,
    state: isPassing ? "InProgress" : "Failed",
    reason: fault.reason,
    message: fault.message,
    attempts,
    nextRetryAt: instant(now + retryDelayMs(fault, attempts, random)),
  };
}

/** An address of a port whose subnet a VPC does not have, as when the subnet is younger than what is known of the VPC. Pure. */
export function addressOfUnknownSubnet({ addresses }: VpcPort, vpc: Vpc): VpcPort["addresses"][number] | undefined {
  return addresses.find(({ subnetId }) => !vpc.subnets.some(({ id }) => id === subnetId));
}

/**
 * A NIC with a port of which all is known: its VPC has the subnets of all its addresses. `created`: whether the controller has made it; `wish`: what the pod
 * asks for. Pure.
 */
export function withPort(
  nic: NicStatus,
  {
    port,
    vpc,
    created,
    wish,
    now,
  }: { port: VpcPort; vpc: Vpc; created: boolean; wish: NamedNic | undefined; now: number },
): NicStatus {
  const ips = usedAddresses(port, vpc, created ? wish : undefined).map(({ ip, subnetId }) => {
    const subnet = vpc.subnets.find(({ id }) => id === subnetId);
    // A guess would cut the pod off from its network for good.
    if (subnet === undefined) throw new Error(`subnet ${subnetId} of port ${port.id} is not known`);
    return {
      ip,
      prefixLength: Cidr.parse(subnet.cidr).prefixLength,
      subnetID: subnetId,
      ...(subnet.gateway === undefined ? {} : { gateway: subnet.gateway }),
    };
  });
  const subnets = vpc.subnets.filter(({ id }) => ips.some(({ subnetID }) => subnetID === id));
  const routes = subnets.flatMap((subnet) => subnet.routes.map(({ dst, via }) => ({ dst, via })));
  const nameservers = [...new Set(subnets.flatMap((subnet) => subnet.nameservers))];
  return {
    ...settled(nic),
    state: "InProgress",
    portID: port.id,
    portName: port.name,
    createdByController: created,
    networkID: port.networkId,
    ...(ips[0] === undefined ? {} : { subnetID: ips[0].subnetID }),
    mac: port.mac,
    mtu: vpc.networks.get(port.networkId)?.mtu ?? 1500,
    ips,
    ...(routes.length === 0 ? {} : { routes }),
    ...(nameservers.length === 0 ? {} : { dns: { nameservers } }),
    createdAt: nic.createdAt ?? instant(now),
    ...bindingOf(port),
  };
}

/**
 * The addresses of a port that its NIC uses. Neutron gives a port one of each subnet with SLAAC or stateless DHCPv6, whatever it is asked for; a NIC that does
 * not want IPv6 leaves it to the port. Without a wish, as of a user's port, all are used.
 */
function usedAddresses({ addresses }: VpcPort, vpc: Vpc, wish: NamedNic | undefined): VpcPort["addresses"] {
  if (wish === undefined || wantsIpv6(wish, vpc)) return addresses;
  const ipv4 = addresses.filter(({ ip }) => !ip.includes(":"));
  return ipv4.length === 0 ? addresses : ipv4;
}

function wantsIpv6({ ipv6Enabled, ip = "", subnet }: NamedNic, vpc: Vpc): boolean {
  if (ipv6Enabled === true || ip.includes(":")) return true;
  const ids = subnet === undefined ? [] : subnetIds(vpc, subnet);
  return vpc.subnets.some(({ id, ipVersion }) => ipVersion === 6 && ids.includes(id));
}

/** The fields of a NIC's status that describe a binding. Pure. */
export function bindingOf({ binding }: Pick<VpcPort, "binding">): Partial<NicStatus> {
  const { host, vifType, ovsHybridPlug, bridgeName, datapathType, portFilter, vethName, netns } = binding;
  const details = { ovsHybridPlug, bridgeName, datapathType, portFilter };
  const known = Object.entries(details).filter(([, value]) => value !== undefined);
  return {
    host,
    vifType,
    ...(known.length === 0 ? {} : { vifDetails: Object.fromEntries(known) }),
    ...(vethName === undefined ? {} : { vethName }),
    ...(netns === undefined ? {} : { netns }),
  };
}

/** A NIC after an attempt to bind its port: a binding that failed is an answer like any other (docs/spec/vpc-nics.md#5.5). Pure. */
export function bound(
  nic: NicStatus,
  { port, host, agents }: { port: VpcPort; host: string; agents: string | undefined },
  when: { now: number; random: number },
): NicStatus {
  const known = { ...nic, ...bindingOf(port) };
  if (isPlumbable(port)) return { ...settled(known), state: known.state === "Ready" ? "Ready" : "InProgress" };
  if (isForeignVif(port.binding)) return failed(known, foreignVif(port, host), when);
  const why = agents === undefined ? "" : `: ${agents}`;
  const message = `port ${port.id} cannot be bound to host ${host}, vif_type ${port.binding.vifType || "none"}${why}`;
  return failed(known, { reason: "BindingFailed", message, retry: "fast" }, when);
}

/** The fault of a port that is bound in a way that nobody here can plug. */
function foreignVif({ id, binding }: VpcPort, host: string): NicFault {
  const message = `port ${id} is bound to host ${host} as vif_type ${JSON.stringify(binding.vifType)}, which cannot be plugged; ${PLUGGABLE.join(" and ")} can`;
  return { reason: "VifTypeUnsupported", message, retry: "slow" };
}

/** A NIC that loses what it had of its port, so that another one is made. Pure. */
export function withoutPort({ name, tag, attempts, nextRetryAt, reason, message }: NicStatus): NicStatus {
  const nic: NicStatus = { name, state: "InProgress" };
  return Object.assign(
    nic,
    Object.fromEntries(
      Object.entries({ tag, attempts, nextRetryAt, reason, message }).filter(([, value]) => value !== undefined),
    ),
  );
}

/** The facts that decide whether a user's port can be taken. */
export interface PortTaking {
  readonly wish: NamedNic;
  readonly vpc: Vpc;
  readonly podUID: string;
  /** The project to which the policy binds the VPC for the pod's namespace: in a shared network others have ports as well. */
  readonly projectID: string | undefined;
  /** The host of the pod, if it is known. */
  readonly host: string | undefined;
  /** Another pod whose claim has the port, in words. */
  readonly holder: string | undefined;
  /** The pod of this cluster for which the port was made, as `namespace/name`. */
  readonly madeFor?: string | undefined;
  /** The name of another NIC of the pod that has the port. */
  readonly other?: string | undefined;
}

/** The reason why a user's port cannot be taken (docs/spec/vpc-nics.md#6.5); `undefined`: it can be. Pure. */
export function portFault(port: VpcPort | undefined, taking: PortTaking): NicFault | undefined {
  const { wish } = taking;
  if (port === undefined)
    return { reason: "PortNotFound", message: `there is no port ${wish.portID ?? ""}`, retry: "slow" };
  const isOther = otherPort(port, taking);
  if (isOther !== undefined) return { ...isOther, retry: "never" };
  const message = portUse(port, taking);
  return message === undefined ? undefined : { reason: "PortInUse", message, retry: "slow" };
}

/** The fault of a port that is not the one that a NIC wants. */
function otherPort(
  port: VpcPort,
  { wish, vpc, projectID }: PortTaking,
): Pick<NicFault, "reason" | "message"> | undefined {
  const id = wish.portID ?? "";
  if (!vpc.networks.has(port.networkId)) {
    const message = `port ${id} is of network ${port.networkId}, which is not VPC ${vpc.ref}`;
    return { reason: "PortNotInVpc", message };
  }
  if (projectID !== undefined && port.projectId !== "" && port.projectId !== projectID) {
    const message = `port ${id} is of another project than VPC ${vpc.ref} is for this namespace`;
    return { reason: "PortNotInVpc", message };
  }
  if (wish.ip !== undefined && !port.addresses.some(({ ip }) => ip === wish.ip)) {
    const has = port.addresses.map(({ ip }) => ip).join(", ") || "no address";
    return { reason: "PortMismatch", message: `port ${id} has ${has}, not ${wish.ip}` };
  }
  if (wish.subnet !== undefined && !isOfSubnet(port, vpc, wish.subnet)) {
    return { reason: "PortMismatch", message: `port ${id} has no address of subnet ${wish.subnet}` };
  }
  return undefined;
}

/** The present user of a port, in words; `undefined`: it has none. */
function portUse(
  { deviceId, deviceOwner, binding }: VpcPort,
  { wish, podUID, host, holder, madeFor, other }: PortTaking,
): string | undefined {
  const id = wish.portID ?? "";
  if (other !== undefined) return `port ${id} is that of the pod's NIC ${other}`;
  if (holder !== undefined) return `port ${id} is claimed by ${holder}`;
  if (deviceId !== "" && deviceId !== podUID) {
    const device = `device ${deviceId} of ${deviceOwner || "an unknown owner"}`;
    return `port ${id} is in use by ${madeFor === undefined ? device : `pod ${madeFor} (${device})`}`;
  }
  if (deviceId !== podUID && binding.host !== "" && binding.host !== host)
    return `port ${id} is bound to host ${binding.host}`;
  return undefined;
}

/** Returns true if a VPC has a subnet of a name or id. Pure. */
export function hasSubnet(vpc: Vpc, ref: string | undefined): boolean {
  return ref === undefined || subnetIds(vpc, ref).length > 0;
}

function subnetIds(vpc: Vpc, ref: string): readonly string[] {
  return vpc.subnets.filter(({ id, name }) => id === ref.toLowerCase() || name === ref).map(({ id }) => id);
}

function isOfSubnet(port: VpcPort, vpc: Vpc, ref: string): boolean {
  const ids = subnetIds(vpc, ref);
  return port.addresses.some(({ subnetId }) => ids.includes(subnetId));
}

/** The fields of a user's port before it is taken. A port that was taken already keeps the fields that were saved. Pure. */
export function savedDevice(nic: NicStatus, port: VpcPort, podUID: string): NonNullable<NicStatus["savedDevice"]> {
  if (nic.savedDevice !== undefined) return nic.savedDevice;
  const isTaken = port.deviceId === podUID;
  return isTaken
    ? { deviceID: "", deviceOwner: "", host: "" }
    : { deviceID: port.deviceId, deviceOwner: port.deviceOwner, host: port.binding.host };
}

/** The fields that are restored when a user's port is given back. Pure. */
export function restored({ savedDevice: saved }: NicStatus): SavedDevice {
  return { deviceId: saved?.deviceID ?? "", deviceOwner: saved?.deviceOwner ?? "", host: saved?.host ?? "" };
}
