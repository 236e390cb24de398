import type { NeutronPort, NeutronSubnet } from "#cloud/neutron";
import type { PortStatus, VpcPort, VpcSubnet } from "./provider.ts";

const STATUSES: readonly PortStatus[] = ["ACTIVE", "DOWN", "BUILD", "ERROR", "N/A"];

/** The port of Neutron, or of a cloud that has its objects, as every provider tells it. */
export function portOf(port: NeutronPort): VpcPort {
  return {
    id: port.id,
    name: port.name,
    networkId: port.networkId,
    projectId: port.projectId,
    status: STATUSES.find((status) => status === port.status) ?? "UNKNOWN",
    mac: port.mac,
    addresses: port.fixedIps,
    deviceId: port.deviceId,
    deviceOwner: port.deviceOwner,
    description: port.description,
    createdAt: port.createdAt,
    revision: port.revision,
    securityGroups: port.securityGroups,
    binding: { host: port.host, vifType: port.vifType, ...port.vifDetails },
  };
}

export function subnetOf(subnet: NeutronSubnet): VpcSubnet {
  return subnet;
}
