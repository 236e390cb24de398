import { type AbortOptions, unlessAborted } from "#base/async";

/** Resolves when all informers have synced; rejects with the signal's reason when the signal aborts first. */
export async function allSynced(
  informers: Iterable<{ readonly synced: Promise<void> }>,
  options: AbortOptions = {},
): Promise<void> {
  await unlessAborted(Promise.all(Array.from(informers, (informer) => informer.synced)), options);
}
