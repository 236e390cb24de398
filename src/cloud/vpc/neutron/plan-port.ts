import { Cidr, IpAddress, IpParseError } from "#base/ip";
import type { PortDraft } from "#cloud/neutron";
import { ProviderError, type ProviderReason } from "../errors.ts";
import type { PortRequest, PortWish, Vpc, VpcSubnet } from "../provider.ts";

/** Settings of the mapping of NICs to ports. */
export interface PlanOptions {
  /** True if a NIC may have the address of its subnet's gateway, which Neutron accepts. Default false. */
  readonly allowsGatewayAddress?: boolean | undefined;
}

type FixedIps = NonNullable<PortDraft["fixed_ips"]>;

/**
 * The body that makes the port of a NIC (docs/spec/vpc-nics.md#6.3). `securityGroups` are ids. Pure. Throws {@link ProviderError} for a wish
 * that the VPC cannot fulfil.
 */
export function planPort(
  { identity, vpc, wish, host }: PortRequest,
  securityGroups: readonly string[],
  options: PlanOptions = {},
): PortDraft {
  const { networkId, fixedIps } = planAddresses(vpc, wish, options);
  return {
    network_id: networkId,
    ...(vpc.projectId === undefined ? {} : { project_id: vpc.projectId }),
    name: identity.name,
    admin_state_up: true,
    device_id: identity.deviceId,
    device_owner: identity.deviceOwner,
    description: identity.description,
    ...(fixedIps === undefined ? {} : { fixed_ips: fixedIps }),
    ...(wish.mac === undefined ? {} : { mac_address: wish.mac }),
    ...(securityGroups.length === 0 ? {} : { security_groups: securityGroups }),
    ...(identity.tags.length === 0 ? {} : { tags: identity.tags }),
    ...(host === undefined ? {} : { "binding:host_id": host }),
    "binding:vnic_type": "normal",
  };
}

/** The subnet of a VPC by its id, or by its name there. Throws {@link ProviderError}. */
export function subnetByRef({ ref, subnets }: Vpc, name: string): VpcSubnet {
  const byId = subnets.find(({ id }) => id === name.toLowerCase());
  if (byId !== undefined) return byId;
  const [first, second] = subnets.filter((subnet) => subnet.name === name);
  if (first === undefined) {
    const there = subnets.map((subnet) => subnet.name || subnet.id).slice(0, 10);
    throw refusal("SubnetNotFound", `VPC ${ref} has no subnet ${name}; it has ${there.join(", ") || "none"}`, "slow");
  }
  if (second !== undefined) {
    throw refusal("AmbiguousSubnet", `VPC ${ref} has several subnets named ${name}: write the id of one`, "slow");
  }
  return first;
}

function planAddresses(
  vpc: Vpc,
  wish: PortWish,
  options: PlanOptions,
): { readonly networkId: string; readonly fixedIps: FixedIps | undefined } {
  if (wish.subnet !== undefined) {
    const subnet = subnetByRef(vpc, wish.subnet);
    if (wish.ip !== undefined) checkAddress(subnet, wish.ip, options);
    const own = { subnet_id: subnet.id, ...(wish.ip === undefined ? {} : { ip_address: wish.ip }) };
    const second = subnet.ipVersion === 4 && wish.wantsIpv6 ? ofFamily(vpc, subnet.networkId, 6) : undefined;
    return {
      networkId: subnet.networkId,
      fixedIps: [own, ...(second === undefined ? [] : [{ subnet_id: second.id }])],
    };
  }
  const networkId = onlyNetwork(vpc);
  const hasIpv6 = ofFamily(vpc, networkId, 6) !== undefined;
  const ipv4 = ofFamily(vpc, networkId, 4);
  // Neutron itself gives an address of each family that the network has.
  if (wish.wantsIpv6 || !hasIpv6) return { networkId, fixedIps: undefined };
  if (ipv4 === undefined && wish.refusesIpv6 === true) {
    const text = `VPC ${vpc.ref} has IPv6 subnets alone, and the NIC has ipv6Enabled: false`;
    throw refusal("SubnetNotFound", text, "slow");
  }
  if (ipv4 === undefined) return { networkId, fixedIps: undefined };
  return { networkId, fixedIps: [{ subnet_id: ipv4.id }] };
}

/** Returns the subnet of a family: of several the first by name and id, so that every call returns the same one. */
function ofFamily({ subnets }: Vpc, networkId: string, family: 4 | 6): VpcSubnet | undefined {
  const fitting = subnets.filter((subnet) => subnet.networkId === networkId && subnet.ipVersion === family);
  return fitting.sort((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1))[0];
}

function keyOf({ name, id }: VpcSubnet): string {
  return `${name}\0${id}`;
}

function onlyNetwork({ ref, networks }: Vpc): string {
  const [first, second] = networks.keys();
  if (first === undefined) throw refusal("VpcNotFound", `VPC ${ref} has no network`, "slow");
  if (second !== undefined) {
    throw refusal("AmbiguousSubnet", `VPC ${ref} has several networks: name the subnet of the NIC`, "never");
  }
  return first;
}

function checkAddress(subnet: VpcSubnet, text: string, { allowsGatewayAddress = false }: PlanOptions): void {
  const { address, cidr } = parsed(subnet, text);
  if (!cidr.contains(address)) {
    throw refusal("IpNotInSubnet", `${text} is not in subnet ${subnet.name || subnet.id}, ${subnet.cidr}`, "never");
  }
  const isGateway = subnet.gateway !== undefined && address.equals(IpAddress.parse(subnet.gateway));
  if (isGateway && !allowsGatewayAddress) {
    throw refusal("IpIsGateway", `${text} is the gateway of subnet ${subnet.name || subnet.id}`, "never");
  }
}

function parsed(subnet: VpcSubnet, text: string): { readonly address: IpAddress; readonly cidr: Cidr } {
  try {
    return { address: IpAddress.parse(text), cidr: Cidr.parse(subnet.cidr) };
  } catch (error) {
    if (!(error instanceof IpParseError)) throw error;
    throw refusal("BadRequest", `${text} cannot be an address of subnet ${subnet.cidr}: ${error.message}`, "never");
  }
}

function refusal(reason: ProviderReason, message: string, retry: "never" | "slow"): ProviderError {
  return new ProviderError(reason, message, { retry });
}
