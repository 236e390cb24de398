import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { Settings, Snapshot, Uplink, UplinkAddress, UplinkSettings, UplinkStatus } from "#base/uplink-model";
import type { NextHop } from "#kernel/route";
import { isUp } from "./link-state.ts";
import { type KernelListing, linkOf, TABLE_MAIN, type UplinkLink } from "./listing.ts";
import { canBeSource, isUsableSource } from "./source-address.ts";

/** DNS servers and domains that an interface has from DHCP or a router. */
export interface ResolverData {
  readonly dnsServers: readonly IpAddress[];
  readonly searchDomains: readonly string[];
}

/** The inputs of {@link makeSnapshot}. */
export interface SnapshotInputs {
  readonly settings: Settings;
  readonly ready: boolean;
  readonly listing: KernelListing;
  /** The routing table in use for each uplink, by name. */
  readonly tables?: ReadonlyMap<string, number>;
  /** Returns the status from evidence and probes. Default: the status in the settings. */
  readonly stateOf?: (uplink: string) => { readonly status: UplinkStatus; readonly lastProbe?: string } | undefined;
  /** Returns DNS data for `observe` and `external` uplinks whose settings have no servers. */
  readonly resolverOf?: (ifName: string, ifIndex: number) => ResolverData;
}

const LINK_LOCAL = [Cidr.parse("169.254.0.0/16"), Cidr.parse("fe80::/10")];
const NO_RESOLVER: ResolverData = { dnsServers: [], searchDomains: [] };

/** Pure: the present uplinks, and the other data on which the choice of an uplink depends. */
export function makeSnapshot(inputs: SnapshotInputs): Snapshot {
  const { settings, ready, listing } = inputs;
  const localAddresses = distinct(listing.addresses.map(({ address }) => address));
  return {
    ready,
    maxCost: settings.maxCost,
    dialTimeoutMs: settings.dialTimeoutMs,
    uplinks: uplinksOf(inputs),
    localAddresses,
    bypass: bypassOf(settings, localAddresses),
  };
}

function uplinksOf(inputs: SnapshotInputs): readonly Uplink[] {
  // A source rule cannot distinguish two uplinks with the same address: the first one gets it.
  const taken = new Set<string>();
  return inputs.settings.uplinks.map((settings) => {
    const uplink = uplinkOf(settings, inputs);
    const addresses = uplink.addresses.map((own) =>
      own.isUsable && taken.has(own.address.toString()) ? { ...own, isUsable: false } : own,
    );
    for (const { address } of addresses) taken.add(address.toString());
    return { ...uplink, addresses };
  });
}

function uplinkOf(settings: UplinkSettings, inputs: SnapshotInputs): Uplink {
  const found = linkOf(inputs.listing, settings.interface);
  const { link } = found;
  const known = inputs.stateOf?.(settings.name);
  const table = inputs.tables?.get(settings.name);
  const gateways = gatewaysOf(settings, inputs.listing, link?.index);
  const isUpNow = link === undefined ? settings.published?.isUp === true : isUp(link);
  return {
    name: settings.name,
    ifName: settings.interface,
    cost: settings.cost,
    isManagement: settings.management,
    isL3: settings.published?.isL3 ?? true,
    isValid: settings.published?.isValid ?? true,
    isUp: isUpNow,
    weight: settings.weight,
    addresses: addressesOf(settings, found),
    ...gateways,
    ...resolverOf(settings, inputs, link?.index),
    status: known?.status ?? settings.status,
    ...(table === undefined ? {} : { table }),
    ...(known?.lastProbe === undefined ? {} : { lastProbe: known.lastProbe }),
  };
}

function addressesOf(settings: UplinkSettings, { addresses }: UplinkLink): readonly UplinkAddress[] {
  if (settings.mode === "observe" || (settings.addresses.length === 0 && settings.published === undefined)) {
    return addresses.map((own) => ({
      address: own.address,
      prefixLength: own.prefixLength,
      isUsable: isUsableSource(own),
    }));
  }
  return settings.addresses.map(({ address, prefixLength }) => {
    const own = addresses.find((one) => one.address.equals(address));
    // The publisher of a status is responsible for the addresses in it: if an address is missing, the bind fails.
    const isUsable = own === undefined ? settings.published !== undefined && canBeSource(address) : isUsableSource(own);
    return { address, prefixLength: own?.prefixLength ?? prefixLength, isUsable };
  });
}

function gatewaysOf(
  settings: UplinkSettings,
  listing: KernelListing,
  linkIndex: number | undefined,
): Pick<Uplink, "gateway4" | "gateway6"> {
  const of = (family: IpFamily): IpAddress | undefined => {
    const said = family === 4 ? settings.gateway4 : settings.gateway6;
    if (said !== undefined || settings.mode === "static" || linkIndex === undefined) return said;
    return defaultRoutes(listing, family, linkIndex)[0];
  };
  const [gateway4, gateway6] = [of(4), of(6)];
  return { ...(gateway4 === undefined ? {} : { gateway4 }), ...(gateway6 === undefined ? {} : { gateway6 }) };
}

/** The gateways of the main table's default routes over a link, the preferred one first. */
function defaultRoutes(listing: KernelListing, family: IpFamily, linkIndex: number): IpAddress[] {
  return listing.routes
    .filter((route) => route.family === family && route.table === TABLE_MAIN && route.dst.prefixLength === 0)
    .sort((a, b) => (a.metric ?? 0) - (b.metric ?? 0))
    .flatMap((route): readonly Pick<NextHop, "linkIndex" | "gateway">[] => route.multipath ?? [route])
    .flatMap((way) => (way.linkIndex === linkIndex && way.gateway !== undefined ? [way.gateway] : []));
}

function resolverOf(
  settings: UplinkSettings,
  inputs: SnapshotInputs,
  linkIndex: number | undefined,
): Pick<Uplink, "dnsServers" | "searchDomains"> {
  const { dnsServers, searchDomains } = settings;
  const knows = dnsServers.length > 0 || settings.mode === "static" || settings.published !== undefined;
  if (knows || linkIndex === undefined) return { dnsServers, searchDomains };
  const inherited = inputs.resolverOf?.(settings.interface, linkIndex) ?? NO_RESOLVER;
  return {
    dnsServers: inherited.dnsServers,
    searchDomains: searchDomains.length > 0 ? searchDomains : inherited.searchDomains,
  };
}

/**
 * Pure: destinations that are dialled through the main table, whether or not a client's NO_PROXY has them (docs/spec/uplink-proxy.md#10.3).
 */
export function bypassOf({ routing, cluster }: Settings, localAddresses: readonly IpAddress[]): readonly Cidr[] {
  const { nodeIP, prefixLength } = cluster;
  const node = nodeIP === undefined ? [] : [Cidr.of(nodeIP, Math.min(prefixLength ?? nodeIP.bits, nodeIP.bits))];
  return [
    ...localAddresses.map((address) => Cidr.host(address)),
    ...node,
    ...routing.podCIDRs,
    ...routing.serviceCIDRs,
    ...LINK_LOCAL,
  ];
}

function distinct(addresses: readonly IpAddress[]): IpAddress[] {
  return [...new Map(addresses.map((address) => [address.toString(), address])).values()];
}
