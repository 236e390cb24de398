import type { PortIdentity, VpcPort } from "#cloud/vpc";

/** The owner of the devices of all ports of this suite. */
export const DEVICE_OWNER = "compute:isthmus";
/** The tag of all ports of this suite, on servers that have tags. */
export const PORT_TAG = "isthmus";
/** Neutron's limit of a description, in bytes. */
const MAX_DESCRIPTION_BYTES = 255;
const UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const PORT_NAME = new RegExp(`^nic-(${UUID})-(.{1,15})$`);

/** The owner of a port, as its description names it. */
export interface PortOwner {
  readonly cluster: string;
  readonly namespace: string;
  /** The name of the pod, or its beginning. */
  readonly pod: string;
  readonly nic: string;
}

/** The name of the port of a NIC; with the uid it is the same on every look. */
export function portName(podUID: string, nic: string): string {
  return `nic-${podUID}-${nic}`;
}

/** The tag of the ports of a cluster. */
export function clusterTag(clusterId: string): string {
  return `cluster-${clusterId}`;
}

/** The attributes by which a port is found again (docs/spec/vpc-nics.md#5.3). Pure. */
export function portIdentity(podUID: string, owner: PortOwner): PortIdentity {
  return {
    name: portName(podUID, owner.nic),
    deviceId: podUID,
    deviceOwner: DEVICE_OWNER,
    description: describeOwner(owner),
    tags: [PORT_TAG, clusterTag(owner.cluster)],
  };
}

/** The description of a port: JSON, of at most 255 bytes. A pod's name that is too long is cut. */
export function describeOwner({ cluster, namespace, pod, nic }: PortOwner): string {
  const text = (name: string): string => JSON.stringify({ cluster, ns: namespace, pod: name, nic });
  const excess = Buffer.byteLength(text(pod)) - MAX_DESCRIPTION_BYTES;
  return excess <= 0 ? text(pod) : text(pod.slice(0, Math.max(0, pod.length - excess)));
}

/** Returns true if a description can have the name of its pod cut. */
export function mayBeCut(description: string): boolean {
  return Buffer.byteLength(description) >= MAX_DESCRIPTION_BYTES - 3;
}

/** The owner that a description names; `undefined` for any other text. Pure; the text is of anybody. */
export function readOwner(description: string): PortOwner | undefined {
  if (description.length > 4 * MAX_DESCRIPTION_BYTES || !description.startsWith("{")) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(description);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  const { cluster, ns, pod, nic } = value as Readonly<Record<string, unknown>>;
  const isText = (one: unknown): one is string => typeof one === "string";
  if (!isText(cluster) || !isText(ns) || !isText(pod) || !isText(nic)) return undefined;
  return { cluster, namespace: ns, pod, nic };
}

/** The uid and the NIC that the name of a port of ours has. */
export function readPortName(name: string): { readonly podUID: string; readonly nic: string } | undefined {
  const [, podUID, nic] = PORT_NAME.exec(name) ?? [];
  return podUID === undefined || nic === undefined ? undefined : { podUID, nic };
}

/** The pod of this cluster for which a port was made, as `namespace/name`; a name that is too long is cut. `undefined`: it is another's. Pure. */
export function podOfPort(
  { deviceOwner, description }: Pick<VpcPort, "deviceOwner" | "description">,
  clusterId: string,
): string | undefined {
  const owner = deviceOwner === DEVICE_OWNER ? readOwner(description) : undefined;
  return owner?.cluster === clusterId ? `${owner.namespace}/${owner.pod}` : undefined;
}

/** Returns true if a port's description says that it was made for a pod of another namespace. Pure. */
export function isOfOther({ description }: Pick<VpcPort, "description">, namespace: string): boolean {
  const owner = readOwner(description);
  return owner !== undefined && owner.namespace !== namespace;
}

/** The port of a NIC, and further ones with the same identity. */
export interface OwnPorts {
  readonly port: VpcPort;
  readonly surplus: readonly VpcPort[];
}

/**
 * The ports that this suite has made for a pod, by NIC (docs/spec/vpc-nics.md#5.3). Of several the recorded one is kept, else the oldest; of the
 * same age the one with the smallest id. `recorded` has the ids of the NICs. With a `namespace`, a port whose description names another one is not
 * theirs: a claim that was copied into another namespace has the uid of a pod that is not its own. Pure.
 */
export function ownPorts(
  ports: readonly VpcPort[],
  podUID: string,
  recorded: ReadonlyMap<string, string> = new Map(),
  namespace?: string,
): ReadonlyMap<string, OwnPorts> {
  const isOurs = (port: VpcPort): boolean =>
    port.deviceId === podUID &&
    port.deviceOwner === DEVICE_OWNER &&
    (namespace === undefined || !isOfOther(port, namespace));
  const byNic = Map.groupBy(ports.filter(isOurs), ({ name }) => {
    const read = readPortName(name);
    return read?.podUID === podUID ? read.nic : undefined;
  });
  const found = new Map<string, OwnPorts>();
  for (const [nic, same] of byNic) {
    if (nic === undefined) continue;
    const rank = ({ id, createdAt }: VpcPort): string => `${id === recorded.get(nic) ? 0 : 1} ${createdAt} ${id}`;
    const [port, ...surplus] = same.sort((one, other) => (rank(one) < rank(other) ? -1 : 1));
    if (port !== undefined) found.set(nic, { port, surplus });
  }
  return found;
}
