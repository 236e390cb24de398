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
  readonly key: ByteString;
  readonly isNodePort: boolean;
  readonly endpoints: ReadonlySet<ByteString>;
}

/** Maximum of listings of the affinity map. The map is listed again until a listing shows no entry of a lost endpoint. */
const MAX_PASSES = 4;
/** Maximum of entries that one transaction deletes; the kernel needs about a millisecond to delete them. */
const DELETED_AT_ONCE = 500;

/** Length of protocol and port at the end of a key, in bytes. */
const PORT_BYTES = 8;

/** The endpoints that a front end loses by a change. `undefined`: no affinity entry has to be deleted. Pure. */
export function affinityLoss(
  before: ObservedFrontEnd | undefined,
  after: ObservedFrontEnd | undefined,
): AffinityLoss | undefined {
  if (before === undefined || before.affinitySeconds === 0) return undefined;
  const none = { outside: new Set<ByteString>(), inside: new Set<ByteString>() };
  const kept = after === undefined || after.affinitySeconds === 0 ? none : eligible(after);
  const had = eligible(before);
  const lost = [
    ...[...had.outside].filter((one) => !kept.outside.has(one)),
    ...[...had.inside].filter((one) => !kept.inside.has(one)),
  ];
  if (lost.length === 0) return undefined;
  return { key: before.key, isNodePort: before.isNodePort, endpoints: new Set(lost) };
}

/**
 * Endpoints that may get new connections: `outside` for clients outside the cluster, `inside` for pods and this node. The two sets can
 * differ only with externalTrafficPolicy Local.
 */
function eligible({
  localVerdict,
  slots,
  localSlots,
}: ObservedFrontEnd): Record<"outside" | "inside", ReadonlySet<ByteString>> {
  const known = (all: readonly (ByteString | undefined)[]): ByteString[] => all.filter((one) => one !== undefined);
  if (localVerdict !== undefined) return { outside: new Set(known(localSlots)), inside: new Set(known(slots)) };
  const all = new Set([...known(slots), ...known(localSlots)]);
  return { outside: all, inside: all };
}

/**
 * Deletes the affinity entries of lost endpoints and returns their number. Lists the map, in slices, only if there is a loss. An entry may
 * expire during the call. Rejects with `KernelError`.
 */
export async function deleteAffinity(
  { elements, generations }: { readonly elements: NftElements; readonly generations: GenerationTracker },
  table: ElementTable,
  losses: readonly AffinityLoss[],
  options: AbortOptions,
): Promise<number> {
  if (losses.length === 0) return 0;
  const byFrontEnd = new Map(losses.map((loss) => [loss.key, loss]));
  const addressBytes = table.family === "ip" ? 4 : 16;
  const isStale = ({ key, value }: RawElement): boolean => {
    const loss = byFrontEnd.get(key.slice(addressBytes)) ?? byFrontEnd.get(key.slice(-PORT_BYTES));
    return typeof value === "string" && loss?.endpoints.has(value) === true;
  };
  let deleted = 0;
  // A listing may lack entries while packets add entries to the map, and a packet that is being processed may add an entry after the
  // listing.
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    const stale = (await elements.listInSlices(table, SETS.affinity, options)).filter(isStale);
    if (stale.length === 0) break;
    for (let at = 0; at < stale.length; at += DELETED_AT_ONCE) {
      await deleteClients({ elements, generations }, table, stale.slice(at, at + DELETED_AT_ONCE), options);
      await nextTurn();
      options.signal?.throwIfAborted();
    }
    deleted += stale.length;
  }
  return deleted;
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
