import type { Uplink } from "#base/uplink-model";
import type { KernelListing } from "../state/index.ts";
import { TABLE_MAIN } from "../state/index.ts";

/**
 * Pure: the reason why an uplink cannot work, from the state of this host alone; `undefined` if there is none
 * (docs/spec/uplink-proxy.md#3.3).
 */
export function localFault(uplink: Uplink, listing: KernelListing): string | undefined {
  if (!uplink.isUp) return "link down";
  const families = new Set(uplink.addresses.filter(({ isUsable }) => isUsable).map(({ address }) => address.family));
  if (families.size === 0) return "no usable address";
  const link = listing.links.find(({ name }) => name === uplink.ifName);
  const table = uplink.table ?? TABLE_MAIN;
  const leads = listing.routes.some(
    (route) =>
      route.table === table &&
      route.type === "unicast" &&
      route.dst.prefixLength === 0 &&
      families.has(route.family) &&
      (route.multipath ?? [route]).some(({ linkIndex }) => linkIndex === link?.index),
  );
  return leads ? undefined : "no default route";
}
