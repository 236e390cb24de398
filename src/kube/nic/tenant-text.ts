import type { NicStatus } from "./types.ts";

/** The texts that a pod's author may read, by the reason of a NIC. */
const TEXTS: Readonly<Record<string, string>> = {
  VpcNotFound: "there is no such VPC for this namespace",
  SubnetNotFound: "the VPC has no such subnet",
  SecurityGroupNotFound: "there is no such security group for this VPC",
  AmbiguousVpc: "the name does not tell one VPC: write its id",
  AmbiguousSubnet: "the name does not tell one subnet: write its id",
  AmbiguousSecurityGroup: "the name does not tell one security group: write its id",
  IpInUse: "the address is in use",
  MacInUse: "the MAC is in use",
  SubnetFull: "the subnet has no free address",
  ProviderQuota: "the project of the VPC may have no more ports",
  IpNotInSubnet: "the address is not one of the subnet",
  IpIsGateway: "the address is that of the subnet's gateway",
  NoAddress: "the network gives no address",
  BadRequest: "the cloud refuses what the NIC asks for",
  PortNotFound: "there is no such port",
  PortChanged: "the port has been changed meanwhile",
  PortMismatch: "the port does not have the address or the subnet of the NIC",
  // Whether a port exists elsewhere is not for a tenant to know.
  PortNotInVpc: "there is no such port in the VPC for this namespace",
  PortInUse: "the port is in use",
  PortError: "the cloud says that the port is in error",
  PortLost: "the port was deleted at the cloud",
  PortDown: "the port is down",
  BindingFailed: "the port cannot be bound to the pod's node",
  VifTypeUnsupported: "the port is of a kind that pods cannot have",
  DeleteConflict: "something else uses the port",
  ProviderUnavailable: "the cloud does not answer",
  ProviderUnknown: "the cloud of the VPC is not set up",
  AuthFailed: "the cloud does not serve the controller",
  Unauthorized: "the cloud does not serve the controller",
};

/**
 * Returns the text of a failure that the author of a pod may read, in events, the pod's condition and errors of CNI: nothing of others, such as ids of networks, names of hosts,
 * holders of addresses and inner addresses, which `message` of the status has for operators. A quota is the tenant's own, so its message is whole. Empty without
 * a reason. Pure.
 */
export function tenantText({ reason, message }: Pick<NicStatus, "reason" | "message">): string {
  if (reason === undefined) return "";
  if (reason === "QuotaExceeded") return message ?? "";
  return Object.hasOwn(TEXTS, reason) ? (TEXTS[reason] ?? "") : "the cloud refuses it";
}
