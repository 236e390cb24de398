/** The remedies for an operator, by the reason of a NIC (docs/spec/vpc-nics.md#12). */
const REMEDIES: Readonly<Record<string, string>> = {
  VpcNotFound:
    "write the name or id of a network that the provider has into isthmus.dev/vpc, or bind the VPC to its project in the NicPolicy",
  SubnetNotFound: "write the name or id of a subnet of the VPC",
  SecurityGroupNotFound: "write the name or id of a security group of the VPC's project",
  AmbiguousVpc: "write the id instead of the name",
  AmbiguousSubnet: "write the id instead of the name",
  AmbiguousSecurityGroup: "write the id instead of the name",
  IpInUse: "the NIC gets the address when its holder gives it back; or ask for another one",
  MacInUse: "the NIC gets the MAC address when its holder gives it back; or ask for another one",
  SubnetFull: "add a subnet or a larger allocation pool, or delete ports: nicctl gc finds those that nobody uses",
  ProviderQuota: "raise the quota of ports of the project, or delete ports: nicctl gc finds those that nobody uses",
  QuotaExceeded: "raise maxPorts of the tenant in the NicPolicy, or delete pods",
  IpNotInSubnet: "make the pod anew with an address of the subnet",
  IpIsGateway: "make the pod anew with another address, or allow it by allowGatewayAddress of the provider",
  NoAddress: "add a subnet to the network",
  BadRequest: "make the pod anew with values that the provider accepts; its words are in the message",
  PortNotFound: "write the id of a port that exists",
  PortMismatch: "make the pod anew with the subnet and address that the port has",
  PortNotInVpc: "make the pod anew with a port of the VPC",
  PortInUse: "free the port, or use another one",
  PortError: "look at the port at the provider",
  PortLost: "make the pod anew: somebody has deleted its port",
  PortDown: "look at the provider's agent on the node; isthmus audit there compares devices and switch",
  BindingFailed:
    "start the provider's agent on that host, or set the annotation isthmus.dev/provider-host of the Node to the name of its host at the provider (nicctl doctor)",
  VifTypeUnsupported:
    "let a mechanism driver bind the port as vif_type ovs on that host: binding:vnic_type normal, and no vhostuser sockets of Open vSwitch (datapath_type of the bridge)",
  DeleteConflict: "detach the port from the trunk or router that uses it",
  ProviderUnavailable: "nicctl doctor tells whether the provider answers",
  AuthFailed: "renew the credentials of nic-controller (nicctl doctor)",
  Unauthorized: "give the role of nic-controller the right that the message names (nicctl doctor)",
  ProviderUnknown: "add the provider to the NicPolicy",
};

/** Returns the remedy for a reason; `undefined` for an unknown reason. Pure. */
export function remedyOf(reason: string | undefined): string | undefined {
  return reason !== undefined && Object.hasOwn(REMEDIES, reason) ? REMEDIES[reason] : undefined;
}
