import type { OvsSwitch } from "#cloud/ovsdb";
import type { NetStack } from "#kernel/net";
import { taken } from "../errors.ts";
import { deviceNames, ownerOf } from "../names.ts";
import { obstacle, placeAt, removeNeutronNic, type SwitchFacts } from "./make.ts";
import type { NeutronNic } from "./place.ts";

type Options = { readonly signal: AbortSignal };

/** NICs at places as the switches say of themselves. Rejects with `OvsdbError`. */
export async function atSwitches(
  nics: readonly NeutronNic[],
  switchOf: (ovsdb: string) => OvsSwitch,
  options: Options,
): Promise<readonly NeutronNic[]> {
  const facts = new Map<string, SwitchFacts>();
  for (const ovsdb of new Set(nics.map(({ place }) => place.ovsdb))) {
    const ovs = switchOf(ovsdb);
    const [bridges, externalIds] = await Promise.all([ovs.bridges(options), ovs.externalIds(options)]);
    facts.set(ovsdb, { bridges, externalIds });
  }
  return nics.map((nic) => {
    const known = facts.get(nic.place.ovsdb);
    return known === undefined ? nic : { ...nic, place: placeAt(nic.place, known) };
  });
}

/** Removes devices and ports of the same ports that the journal does not know. Rejects with `NicCniError` `collision` for those of others. */
export async function removeObstacles(
  nics: readonly NeutronNic[],
  { host, switchOf }: { readonly host: NetStack; readonly switchOf: (ovsdb: string) => OvsSwitch },
  options: Options,
): Promise<void> {
  for (const ovsdb of new Set(nics.map(({ place }) => place.ovsdb))) {
    const ovs = switchOf(ovsdb);
    const ports = await ovs.ports(options);
    for (const nic of nics.filter(({ place }) => place.ovsdb === ovsdb)) {
      const { outer, tap } = deviceNames(nic.portId);
      for (const port of ports.filter(({ device }) => device === outer || device === tap)) {
        const owner = port.externalIds["iface-id"];
        if (owner !== nic.portId)
          throw taken(nic, `port ${port.device} of ${port.bridge} is of ${owner ?? "no port of a VPC"}`);
        await ovs.deletePort(port.device, { ...options, only: { "iface-id": nic.portId } });
      }
      const link = obstacle(host, nic);
      const owner = ownerOf(link?.alias);
      if (link !== undefined && owner?.portId !== nic.portId)
        throw taken(nic, `device ${link.name} is of ${owner?.portId ?? "another program"}`);
      if (owner !== undefined) await removeNeutronNic({ host, ovs, containerId: owner.containerId }, nic, options);
    }
  }
}
