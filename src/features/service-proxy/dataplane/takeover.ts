import { type AbortOptions, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import type { ServiceTable } from "./service-table.ts";
import { SETTLE_MS, type SyncReport, type WantedState } from "./types.ts";

/** Suffix of the name of the replacement table, which serves while the table is made again. */
export const REPLACEMENT_SUFFIX = "-takeover";
/**
 * The replacement's chains run right after those of the table that it replaces, and translate the packets that the replaced table left
 * untranslated.
 */
export const REPLACEMENT_PRIORITY_OFFSET = 1;

/**
 * Replaces a table of another program, or of another layout of ours; no connection is lost (docs/spec/service-proxy.md#2.12). A table
 * cannot be renamed, and the old one has sets and chains of the same names. So a replacement table is filled and hooked beside the old
 * table, the old table is removed, the new one is filled and hooked, and the replacement is removed. A complete table is in force at every
 * moment. If a takeover stops at any step, the next takeover continues from there.
 */
export async function takeOver(
  { table, replacement }: { readonly table: ServiceTable; readonly replacement: ServiceTable },
  wanted: WantedState,
  options: AbortOptions & { readonly clock: Clock },
): Promise<SyncReport> {
  const { signal, clock } = options;
  const settle = (): Promise<void> => sleep(SETTLE_MS, { clock, signal });
  const first = await replacement.sync(wanted, { signal, full: true });
  await settle();
  if (table.state() === "foreign") await table.remove();
  const second = await table.sync(wanted, { signal, full: true });
  await settle();
  await replacement.remove();
  const changes = first.changes + second.changes;
  return {
    kind: "full",
    changes,
    drift: changes,
    isRepair: true,
    transactions: first.transactions + second.transactions,
    bytes: first.bytes + second.bytes,
  };
}
