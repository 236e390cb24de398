import type { OvsPortState, OvsSwitch } from "#cloud/ovsdb";
import type { Kernel, NetStack } from "#kernel/net";
import { deviceNames, ownerOf } from "../names.ts";
import { openHost } from "../namespaces.ts";
import type { SandboxPlan } from "../types.ts";
import type { NeutronNic, NeutronPlace } from "./place.ts";

/** The switch in which ports are looked for. */
export type SwitchPlace = Pick<NeutronPlace, "ovsdb" | "bridge">;

/** A plan that is enough for a removal, from ports of the switch with the container's id, and devices with its alias; `undefined`: there are none. */
export async function scanSwitch(
  { kernel, switchOf }: { readonly kernel: Kernel; readonly switchOf: (ovsdb: string) => OvsSwitch },
  containerId: string,
  { ovsdb, bridge }: SwitchPlace,
  options: { readonly signal: AbortSignal },
): Promise<SandboxPlan | undefined> {
  const all = await switchOf(ovsdb).ports(options);
  const ports = all.filter(({ externalIds }) => externalIds["vm-id"] === containerId);
  using host = openHost(kernel);
  const known = ports.map(({ externalIds }) => externalIds["iface-id"] ?? "");
  const others = strays(host, { containerId, known }, { ovsdb, bridge });
  if (ports.length + others.length === 0) return undefined;
  return {
    containerId,
    podUid: ports[0]?.externalIds["vm-uuid"] ?? "",
    network: "",
    netns: "",
    nics: [...ports.map((port) => scannedNic(port, { ovsdb, bridge })), ...others],
    dns: {},
  };
}

/** NICs of a container besides those of `known` ports, by the aliases of devices: those of an earlier ADD whose journal was lost. */
export function strays(
  host: NetStack,
  { containerId, known }: { readonly containerId: string; readonly known: readonly string[] },
  place: SwitchPlace,
): readonly NeutronNic[] {
  const owners = host.links.list().flatMap(({ alias }) => ownerOf(alias) ?? []);
  const found = owners.filter((owner) => owner.containerId === containerId && !known.includes(owner.portId));
  return Array.from(new Set(found.map(({ portId }) => portId)), (portId) => {
    const { outer, tap, inner } = deviceNames(portId);
    const device = host.links.get({ name: inner }) === undefined ? tap : outer;
    return scannedNic(
      { bridge: place.bridge, device, externalIds: { "iface-id": portId }, ofport: undefined, error: "" },
      place,
    );
  });
}

/** A NIC that is enough for a removal, from a port of the switch. */
function scannedNic(port: OvsPortState, { ovsdb, bridge }: SwitchPlace): NeutronNic {
  const portId = port.externalIds["iface-id"] ?? "";
  return {
    name: port.device,
    portId,
    index: 0,
    metric: 0,
    addresses: [],
    routes: [],
    rules: [],
    acceptRa: false,
    place: {
      kind: "neutron",
      ovsdb,
      bridge,
      hybrid: port.device === deviceNames(portId).outer,
      end: "veth",
      netdev: false,
      externalIds: port.externalIds,
    },
  };
}
