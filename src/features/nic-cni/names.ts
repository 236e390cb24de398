/** The characters of a port's id that names of devices have: the agent of Neutron looks for these names (docs/spec/vpc-nics.md#8.2). */
const ID_CHARACTERS = 11;
/** The beginning of the aliases of the host's devices. */
export const NIC_ALIAS = "isthmus-nic:";

/** The names of the host's devices for a port; each has at most 15 bytes. */
export interface DeviceNames {
  /** The Linux bridge. */
  readonly bridge: string;
  /** The veth between the Linux bridge (`inner`) and the integration bridge (`outer`). */
  readonly inner: string;
  readonly outer: string;
  /** The host's end of the NIC. */
  readonly tap: string;
}

/** The names for a port's id. */
export function deviceNames(portId: string): DeviceNames {
  const part = portId.slice(0, ID_CHARACTERS);
  return { bridge: `qbr${part}`, inner: `qvb${part}`, outer: `qvo${part}`, tap: `tap${part}` };
}

/** The name under which Alcor's agent makes a port's device. */
export function alcorDeviceName(portId: string): string {
  return `veth${portId.slice(0, ID_CHARACTERS)}`;
}

/** The alias of the host's devices of a port, which marks them as ours. */
export function aliasOf(portId: string, containerId: string): string {
  return `${NIC_ALIAS}${portId}:${containerId}`;
}

/** Port and container of an alias; `undefined` for a device that is not ours. */
export function ownerOf(
  alias: string | undefined,
): { readonly portId: string; readonly containerId: string } | undefined {
  if (alias?.startsWith(NIC_ALIAS) !== true) return undefined;
  const [portId = "", containerId = ""] = alias.slice(NIC_ALIAS.length).split(":");
  return { portId, containerId };
}
