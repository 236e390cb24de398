import { type AbortOptions, sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import type { FamilyTable } from "./family-table.ts";
import { type Desired, SETTLE_MS, type SyncReport } from "./types.ts";

/** Ends the name of the table that stands in while the other is made anew. */
export const STAND_IN_SUFFIX = "-takeover";
/** The stand-in's chains come right after those of the table that it stands in for: what that one lets go unanswered it answers. */
export const STAND_IN_OFFSET = 1;

/**
 * Replaces a table that another program, or another layout of ours, made, without a connection that meets neither
 * (docs/spec/service-proxy.md#2.12). Tables cannot be renamed, and those of others have sets and chains of the names that ours has; so a
 * stand-in is filled and
 * hooked beside the old table, then the old one goes, the new one is filled and hooked, and the stand-in goes. At every moment one that is
 * whole is in force, and it may end at any step: what is left is whole, and the next takeover goes on from it.
 */
export async function takeOver(
  { table, standIn }: { readonly table: FamilyTable; readonly standIn: FamilyTable },
  desired: Desired,
  options: AbortOptions & { readonly clock?: Clock | undefined },
): Promise<SyncReport> {
  const { signal, clock = systemClock } = options;
  const settle = (): Promise<void> => sleep(SETTLE_MS, { clock, signal });
  const first = await standIn.sync(desired, { signal, full: true });
  await settle();
  if (table.state() === "foreign") await table.remove();
  const second = await table.sync(desired, { signal, full: true });
  await settle();
  await standIn.remove();
  const changes = first.changes + second.changes;
  return {
    kind: "full",
    changes,
    drift: changes,
    transactions: first.transactions + second.transactions,
    bytes: first.bytes + second.bytes,
  };
}
