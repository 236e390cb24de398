import { Cidr, type IpAddress } from "#base/ip";
import type { Settings, UplinkSettings } from "#base/uplink-model";
import type { Address } from "#kernel/address";
import type { RuleSpec } from "#kernel/rule";
import { canBeSource, type KernelListing, linkOf, TABLE_LOCAL, TABLE_MAIN } from "../state/index.ts";
import { isOwnRule, TABLE_SERVICES } from "./ownership.ts";
import type { UplinkTables } from "./tables.ts";

/**
 * Pure: one rule for each address of an uplink. If two uplinks have an address, its rule leads to the first one's table. If an
 * address moves to an interface that is not an uplink, or the uplink's interface is renamed, the rule stays while the address exists: its
 * packets must not leave over another, perhaps more expensive, uplink (docs/spec/uplink-proxy.md#3.2).
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
      // The uplink's interface is missing, perhaps renamed. The rule stays: the table, though without routes, stops the address's packets.
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

/** The addresses that get a rule. For a static uplink only configured addresses do: its table has no routes for others. */
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

/** Returns true if the address belongs to a static uplink whose interface is missing. */
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

/** Pure: rules for the cluster's prefixes, before any source rule (docs/spec/uplink-proxy.md#3.1). `viaServices` have a route in 400. */
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

/** Pure: the moved rules of the local table; none if the settings do not move these rules. */
export function localRules({ routing }: Settings): RuleSpec[] {
  const { localRulePriority: priority, routeProtocol: protocol } = routing;
  return priority === 0 ? [] : ([4, 6] as const).map((family) => ({ family, priority, table: TABLE_LOCAL, protocol }));
}
