import { CLOUDS } from "./clouds.ts";
import type { PortBinding, VpcPort } from "./provider.ts";

/** Types of plugging that this suite has: those of the ports of all clouds. */
export const PLUGGABLE: readonly string[] = CLOUDS.flatMap(({ vifTypes }) => vifTypes);

/** The types of ports that are not plugged anywhere. */
const NOT_PLUGGED: readonly string[] = ["", "unbound", "binding_failed"];

/** True for a port that can be plugged on its host. */
export function isPlumbable({ binding }: Pick<VpcPort, "binding">): boolean {
  return binding.host !== "" && isPluggable(binding);
}

/** True for a port that is bound to a host in a way that no part of this suite can plug, such as `vhostuser`, `bridge` or `hw_veb`. */
export function isForeignVif({ host, ...how }: Pick<PortBinding, "host" | "vifType" | "vethName">): boolean {
  return host !== "" && !NOT_PLUGGED.includes(how.vifType) && !isPluggable(how);
}

/** True for a way of plugging that this suite has. A device that an agent of the cloud makes is taken whatever the type is called. Pure. */
export function isPluggable({ vifType = "", vethName }: Partial<Pick<PortBinding, "vifType" | "vethName">>): boolean {
  return vethName === undefined ? PLUGGABLE.includes(vifType) : !NOT_PLUGGED.includes(vifType);
}

const READY_WHEN_PLUGGED: readonly string[] = CLOUDS.flatMap((cloud) =>
  cloud.isReadyWhenPlugged ? cloud.vifTypes : [],
);

/** True for a way of plugging whose ports are ready when their device is plugged, whatever status the cloud tells. Pure. */
export function isReadyWhenPlugged({ vifType }: Pick<PortBinding, "vifType">): boolean {
  return READY_WHEN_PLUGGED.includes(vifType);
}
