import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import type { ByteString, ElementTable, NftElements, RawElement } from "#kernel/nft-elements";
import type { ObservedFrontEnd } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";
import { deleteStale } from "./affinity.ts";
import type { GenerationTracker } from "./generation-tracker.ts";

/** The least number of clients that a Service with affinity may have, however many such Services there are. */
export const MIN_SHARE = 1024;

/** The entries of a Service that were removed because they exceeded its share. */
export interface TrimmedService {
  /** `namespace/name`, or `namespace/*` for all Services of a namespace that share one share. */
  readonly service: string;
  readonly removed: number;
}

/** Returns the number of clients that each of `services` owners of shares may have in a map that takes `total` clients. Pure. */
export function affinityShare(total: number, services: number): number {
  return Math.max(MIN_SHARE, Math.floor(total / Math.max(1, services)));
}

/** The Services of the keys in the affinity map. Pure. */
export function servicesOfKeys(frontEnds: Iterable<ObservedFrontEnd>): ReadonlyMap<ByteString, string> {
  const services = new Map<ByteString, string>();
  for (const { affinityKey, service } of frontEnds)
    if (affinityKey !== undefined) services.set(affinityKey, /^[^/]*\/[^/:]*/.exec(service)?.[0] ?? service);
  return services;
}

/**
 * The owners of the shares: the Services, or where the map cannot take the least number of clients of all of them, their namespaces as `namespace/*`. Else a
 * tenant with many Services would have the whole map. Pure.
 */
export function shareOwners(services: ReadonlyMap<ByteString, string>, total: number): ReadonlyMap<ByteString, string> {
  if (new Set(services.values()).size * MIN_SHARE <= total) return services;
  return new Map(Array.from(services, ([key, service]) => [key, service.replace(/\/.*/, "/*")] as const));
}

/**
 * For each Service with more clients than `share`, the time at which the youngest client expires that has to go; `ends` are the times at which its
 * clients expire. All clients of a Service have one timeout, so those that expire first have been away for longest. Pure.
 */
export function thresholds(
  ends: ReadonlyMap<string, readonly number[]>,
  share: number,
): ReadonlyMap<string, { readonly end: number; readonly count: number }> {
  const found = new Map<string, { readonly end: number; readonly count: number }>();
  for (const [service, all] of ends) {
    const count = all.length - share;
    const end = count > 0 ? Float64Array.from(all).sort()[count - 1] : undefined;
    if (end !== undefined) found.set(service, { end, count });
  }
  return found;
}

/**
 * Removes the oldest clients of each Service that has more than its share of the affinity map, so that others always find room. Lists the map twice,
 * in slices. Rejects with `KernelError`.
 */
export async function trimAffinity(
  deps: { readonly elements: NftElements; readonly generations: GenerationTracker; readonly clock: Clock },
  table: ElementTable,
  { frontEnds, total }: { readonly frontEnds: ReadonlyMap<string, ObservedFrontEnd>; readonly total: number },
  options: AbortOptions,
): Promise<readonly TrimmedService[]> {
  const { elements, clock } = deps;
  const services = shareOwners(servicesOfKeys(frontEnds.values()), total);
  const addressBytes = table.family === "ip" ? 4 : 16;
  const serviceOf = ({ key }: RawElement): string | undefined => services.get(key.slice(addressBytes));
  const endOf = ({ expiresInMs = 0 }: RawElement): number => clock.monotonic() + expiresInMs;
  const ends = new Map<string, number[]>();
  const note = (entry: RawElement): boolean => {
    const service = serviceOf(entry);
    if (service === undefined) return false;
    const list = ends.get(service);
    if (list === undefined) ends.set(service, [endOf(entry)]);
    else list.push(endOf(entry));
    return false;
  };
  await elements.listInSlices(table, SETS.affinity, { ...options, keep: note });
  const share = affinityShare(total, new Set(services.values()).size);
  const above = thresholds(ends, share);
  ends.clear();
  if (above.size === 0) return [];
  const removed = new Map<string, number>();
  const isOld = (entry: RawElement): boolean => {
    const service = serviceOf(entry);
    const threshold = service === undefined ? undefined : above.get(service);
    if (service === undefined || threshold === undefined) return false;
    const count = removed.get(service) ?? 0;
    // The clock's steps are coarser than the kernel's.
    if (count >= threshold.count || endOf(entry) > threshold.end + 1) return false;
    removed.set(service, count + 1);
    return true;
  };
  const old = await elements.listInSlices(table, SETS.affinity, { ...options, keep: isOld });
  await deleteStale(deps, table, old, options);
  return Array.from(removed, ([service, count]) => ({ service, removed: count }));
}
