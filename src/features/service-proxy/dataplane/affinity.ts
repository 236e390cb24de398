import { setImmediate as nextTurn } from "node:timers/promises";
import type { AbortOptions } from "#base/async";
import { isKernelError } from "#kernel/errors";
import {
  type ByteString,
  ElementBatch,
  type ElementTable,
  type NftElements,
  type RawElement,
} from "#kernel/nft-elements";
import type { ObservedFrontEnd } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";
import type { GenerationTracker } from "./generation-tracker.ts";

/** Endpoints that a front end with affinity has lost. Affinity entries that name them have to be deleted. */
export interface AffinityLoss {
  /** The key of the service port in the affinity map. */
  readonly key: ByteString;
  readonly endpoints: ReadonlySet<ByteString>;
}

/** Endpoints that clients outside the cluster may use, and those that pods and this node may use. */
type Eligible = Readonly<Record<"outside" | "inside", ReadonlySet<ByteString>>>;

/** Maximum of listings of the affinity map. The map is listed again until a listing shows no entry of a lost endpoint. */
const MAX_PASSES = 4;
/** Maximum of entries that one transaction deletes; the kernel needs about a millisecond to delete them. */
const DELETED_AT_ONCE = 500;

const NONE: Eligible = { outside: new Set(), inside: new Set() };

/**
 * The endpoints that a front end loses by a change, and those of `pending`, an earlier loss whose entries are not deleted yet, that it has not
 * got back. `undefined`: no affinity entry has to be deleted. Pure.
 */
export function affinityLoss(
  before: ObservedFrontEnd | undefined,
  after: ObservedFrontEnd | undefined,
  pending?: AffinityLoss,
): AffinityLoss | undefined {
  const [had, has] = [affinityOf(before), affinityOf(after)];
  const lost = [
    ...[...had.outside].filter((one) => !has.outside.has(one)),
    ...[...had.inside].filter((one) => !has.inside.has(one)),
    ...[...(pending?.endpoints ?? [])].filter((one) => !has.outside.has(one) || !has.inside.has(one)),
  ];
  const key = before?.affinityKey ?? pending?.key;
  return lost.length === 0 || key === undefined ? undefined : { key, endpoints: new Set(lost) };
}

/** The endpoints that affinity entries of this front end may name. */
function affinityOf(frontEnd: ObservedFrontEnd | undefined): Eligible {
  return frontEnd === undefined || frontEnd.affinitySeconds === 0 ? NONE : eligible(frontEnd);
}

/**
 * Which affinity entries are stale, by their service port: those that name an endpoint which a front end has lost and no front end of the port has
 * for all clients; and with `isFull` those that name no endpoint of their service port. The latter finds what an earlier process has not deleted,
 * but not an endpoint that only pods, or only clients outside, may still use. Pure.
 */
export function staleEntries(
  family: ElementTable["family"],
  {
    losses,
    known,
    isFull,
  }: {
    readonly losses: ReadonlyMap<string, AffinityLoss>;
    /** All front ends of the table. */
    readonly known: ReadonlyMap<string, ObservedFrontEnd>;
    readonly isFull: boolean;
  },
): (entry: RawElement) => boolean {
  const addressBytes = family === "ip" ? 4 : 16;
  const lost = new Map<ByteString, Set<ByteString>>();
  for (const { key, endpoints } of losses.values()) lost.set(key, new Set([...(lost.get(key) ?? []), ...endpoints]));
  // A service port may have an entry for each of many clients.
  const found = new Map<ByteString, Eligible[]>();
  for (const frontEnd of known.values()) {
    const { affinityKey: key } = frontEnd;
    if (key === undefined || !(isFull || lost.has(key))) continue;
    found.set(key, [...(found.get(key) ?? []), affinityOf(frontEnd)]);
  }
  return ({ key, value }) => {
    if (typeof value !== "string") return false;
    const port = key.slice(addressBytes);
    const eligibles = found.get(port) ?? [];
    if (lost.get(port)?.has(value) === true)
      return !eligibles.some(({ outside, inside }) => outside.has(value) && inside.has(value));
    return isFull && !eligibles.some(({ outside, inside }) => outside.has(value) || inside.has(value));
  };
}

/**
 * Endpoints that may get new connections: `outside` for clients outside the cluster, `inside` for pods and this node. The two sets can
 * differ only with externalTrafficPolicy Local.
 */
function eligible({ localVerdict, slots, localSlots }: ObservedFrontEnd): Eligible {
  const known = (all: readonly (ByteString | undefined)[]): ByteString[] => all.filter((one) => one !== undefined);
  if (localVerdict !== undefined) return { outside: new Set(known(localSlots)), inside: new Set(known(slots)) };
  const all = new Set([...known(slots), ...known(localSlots)]);
  return { outside: all, inside: all };
}

/**
 * Deletes stale affinity entries and returns their number. Lists the map in slices. An entry may expire during the call. Rejects with
 * `KernelError`.
 */
export async function deleteAffinity(
  { elements, generations }: { readonly elements: NftElements; readonly generations: GenerationTracker },
  table: ElementTable,
  isStale: (entry: RawElement) => boolean,
  options: AbortOptions,
): Promise<number> {
  let deleted = 0;
  // A listing may lack entries while packets add entries to the map, and a packet that is being processed may add an entry after the
  // listing.
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    const stale = await elements.listInSlices(table, SETS.affinity, { ...options, keep: isStale });
    if (stale.length === 0) break;
    await deleteStale({ elements, generations }, table, stale, options);
    deleted += stale.length;
  }
  return deleted;
}

/** Deletes these entries, in many transactions; those that expire meanwhile are left out. Rejects with `KernelError`. */
export async function deleteStale(
  deps: { readonly elements: NftElements; readonly generations: GenerationTracker },
  table: ElementTable,
  stale: readonly RawElement[],
  options: AbortOptions,
): Promise<void> {
  for (let at = 0; at < stale.length; at += DELETED_AT_ONCE) {
    await deleteClients(deps, table, stale.slice(at, at + DELETED_AT_ONCE), options);
    await nextTurn();
    options.signal?.throwIfAborted();
  }
}

/** Deletes these entries in one transaction. If the transaction fails because an entry has expired, deletes the two halves separately. */
async function deleteClients(
  deps: { readonly elements: NftElements; readonly generations: GenerationTracker },
  table: ElementTable,
  stale: readonly RawElement[],
  options: AbortOptions,
): Promise<void> {
  const batch = new ElementBatch(table, { record: deps.elements.wantsRecords });
  for (const { key } of stale) batch.delete(SETS.affinity, key);
  try {
    await deps.generations.transact(() => deps.elements.commit(batch, options));
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    const half = stale.length >> 1;
    if (half === 0) return;
    await deleteClients(deps, table, stale.slice(0, half), options);
    await deleteClients(deps, table, stale.slice(half), options);
  }
}
