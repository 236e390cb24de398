import { Cidr, type IpAddress } from "#base/ip";
import type { Settings, UplinkSettings } from "#base/uplink-model";
import type { Address } from "#kernel/address";
import type { RuleSpec } from "#kernel/rule";
import { canBeSource, type KernelListing, linkOf, TABLE_LOCAL, TABLE_MAIN } from "../state/index.ts";
import { isOwnRule, TABLE_SERVICES } from "./ownership.ts";
import type { UplinkTables } from "./tables.ts";

/**
 * Pure: one rule for each address of an uplink. An address that two uplinks have is the first one's. The rule of an address that
 * moved to an interface that is no uplink stays as long as the address does, so that its packets do not leave by another,
 * perhaps more expensive, uplink (docs/spec/uplink-proxy.md#3.2); also where the uplink's interface was renamed under it.
 */
export function sourceRules(settings: Settings, listing: KernelListing, tables: UplinkTables): RuleSpec[] {
  const found = new Map<string, { readonly address: IpAddress; readonly table: number }>();
  const claim = (address: IpAddress, table: number): void => {
    const key = address.toString();
    if (canBeSource(address) && !found.has(key)) found.set(key, { address, table });
  };
  const onUplinks = new Set<string>();
  for (const uplink of settings.uplinks) {
    const table = tables.get(uplink.name);
    const { addresses } = linkOf(listing, uplink.interface);
    for (const { address } of addresses) onUplinks.add(address.toString());
    if (table !== undefined) for (const { address } of ruled(uplink, addresses)) claim(address, table);
  }
  const inUse = new Set(tables.values());
  const elsewhere = listing.addresses.filter(({ address }) => !onUplinks.has(address.toString()));
  for (const { address } of elsewhere) {
    const table =
      configuredTable(address, settings, tables) ??
      formerTable(address, settings, listing, (one) => inUse.has(one)) ??
      // Its interface has another name for now: the table without routes keeps its packets out of the main table.
      (isOfAbsent(address, settings, tables) ? formerTable(address, settings, listing, () => true) : undefined);
    if (table !== undefined) claim(address, table);
  }
  const { rulePriority: priority, routeProtocol: protocol } = settings.routing;
  return [...found.values()].map(({ address, table }) => ({
    family: address.family,
    priority,
    from: Cidr.host(address),
    table,
    protocol,
  }));
}

/** For a static uplink, only addresses of its configuration: its table has routes for no other. */
function ruled(uplink: UplinkSettings, addresses: readonly Address[]): readonly Address[] {
  if (uplink.mode !== "static") return addresses;
  return addresses.filter(({ address }) => uplink.addresses.some((one) => one.address.equals(address)));
}

function configuredTable(address: IpAddress, { uplinks }: Settings, tables: UplinkTables): number | undefined {
  const uplink = uplinks.find(
    ({ mode, addresses }) => mode === "static" && addresses.some((one) => one.address.equals(address)),
  );
  return uplink === undefined ? undefined : tables.get(uplink.name);
}

/** Whether the address belongs to a static uplink whose interface is missing. */
function isOfAbsent(address: IpAddress, { uplinks }: Settings, tables: UplinkTables): boolean {
  return uplinks.some(
    ({ name, mode, addresses }) =>
      mode === "static" && !tables.has(name) && addresses.some((one) => one.address.equals(address)),
  );
}

function formerTable(
  address: IpAddress,
  { routing }: Settings,
  listing: KernelListing,
  isWanted: (table: number) => boolean,
): number | undefined {
  const rule = listing.rules.find(
    (one) => one.from?.base.equals(address) === true && isWanted(one.table) && isOwnRule(one, routing),
  );
  return rule?.table;
}

/** Pure: rules for the cluster's prefixes, before any source rule (docs/spec/uplink-proxy.md#3.1). `viaServices`: those with a route in 400. */
export function clusterRules({ routing }: Settings, viaServices: readonly Cidr[]): RuleSpec[] {
  const { kubeRulePriority: priority, routeProtocol: protocol, podCIDRs, serviceCIDRs } = routing;
  const tableOf = (prefix: Cidr): number =>
    viaServices.some((one) => one.equals(prefix)) ? TABLE_SERVICES : TABLE_MAIN;
  const prefixes = new Map<string, RuleSpec>();
  for (const to of podCIDRs) {
    prefixes.set(to.toString(), { family: to.family, priority, to, table: TABLE_MAIN, protocol });
  }
  for (const to of serviceCIDRs) {
    prefixes.set(to.toString(), { family: to.family, priority, to, table: tableOf(to), protocol });
  }
  return [...prefixes.values()];
}

/** Pure: the moved rules of the local table; none where they stay the kernel's. */
export function localRules({ routing }: Settings): RuleSpec[] {
  const { localRulePriority: priority, routeProtocol: protocol } = routing;
  return priority === 0 ? [] : ([4, 6] as const).map((family) => ({ family, priority, table: TABLE_LOCAL, protocol }));
}
