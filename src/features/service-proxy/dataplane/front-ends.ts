import { sleep, TimeSlice } from "#base/async";
import { changeFrontEnd, type ObservedFrontEnd, serviceOf } from "../plan/index.ts";
import type { RuleOptions } from "../rules/index.ts";
import { type AffinityLoss, affinityLoss, deleteAffinity, staleEntries } from "./affinity.ts";
import type { ObservedTable } from "./observed-table.ts";
import type { RemovedFrontEnds } from "./removed-front-ends.ts";
import {
  addChains,
  affinitySets,
  deleteAffinitySets,
  deleteChains,
  emptyChains,
  shapesOf,
  writeAffinityChains,
  writeCompiled,
} from "./table-rules.ts";
import { type DataPlaneDeps, SETTLE_MS, type WantedState } from "./types.ts";
import type { BatchList, TableWriter } from "./writer.ts";

/** A batch is committed at this size, in bytes: it takes a few milliseconds to encode. */
const BATCH_BYTES = 2 << 20;
/** A batch is committed at this share of what the kernel takes at a time: the next front end may have thousands of endpoints. */
const BATCH_SHARE = 1 / 4;
/** Work yields to the event loop after this time, milliseconds (docs/spec/service-proxy.md#1.1). */
const SLICE_MS = 8;

/** State and collaborators of {@link syncFrontEnds}. */
export interface FrontEndWork {
  readonly deps: DataPlaneDeps;
  readonly writer: TableWriter;
  readonly observed: ObservedTable;
  readonly options: RuleOptions;
  /** Front ends whose plans changed. A difference in any other front end counts as drift. */
  readonly requested: ReadonlySet<string>;
  /**
   * Endpoints whose affinity entries have to be deleted, by front end. They are kept here until that is done: once the kernel has the new
   * endpoints, nothing else shows which were lost.
   */
  readonly losses: Map<string, AffinityLoss>;
  /** Collects the UDP front ends that the kernel loses: connection tracking goes on translating their flows. */
  readonly removed: RemovedFrontEnds;
  /** All front ends are synced. Then all affinity entries are compared with them. */
  readonly isFull: boolean;
}

/**
 * Syncs these front ends in groups. Adds the endpoints and changes the verdicts of each group. After the last group, deletes the affinity
 * entries of lost endpoints, and {@link SETTLE_MS} later removes the old elements of all groups.
 */
export async function syncFrontEnds(
  work: FrontEndWork,
  wanted: Pick<WantedState, "services" | "recorded">,
  ids: Iterable<string>,
): Promise<void> {
  const { deps, writer, observed, losses } = work;
  const { clock } = deps;
  const { signal } = writer.options;
  const removals: BatchList[] = [];
  const maxBytes = Math.min(BATCH_BYTES, deps.elements.maxBatchBytes * BATCH_SHARE);
  let group = new Group(writer);
  let isTimeoutLeft = work.isFull;
  const slice = new TimeSlice({ clock, lengthMs: SLICE_MS });
  for (const id of ids) {
    const before = observed.frontEnds.get(id);
    const count = group.count;
    const after = change(before, id, wanted, group.phases);
    if (!work.requested.has(id)) writer.drifted(group.count - count);
    group.updates.push([id, after]);
    if (before !== undefined && before.affinitySeconds !== after?.affinitySeconds) isTimeoutLeft = true;
    const loss = affinityLoss(before, after, losses.get(id));
    if (before !== undefined && after === undefined) work.removed.add(before);
    if (loss === undefined) losses.delete(id);
    else losses.set(id, loss);
    if (group.byteLength > maxBytes) {
      removals.push(await finish(work, group));
      group = new Group(writer);
    }
    if (slice.isOver) await slice.yield();
    signal?.throwIfAborted();
  }
  removals.push(await finish(work, group));
  await deleteLost(work);
  if (removals.some(({ count }) => count > 0)) {
    await sleep(SETTLE_MS, { clock, signal });
    for (const list of removals) await writer.commitAll(list);
  }
  if (isTimeoutLeft) await deleteTimeouts(work);
  await deleteUnusedChains(work);
}

/** Writes the difference of one front end into the phases. Returns what the kernel then holds. */
function change(
  before: ObservedFrontEnd | undefined,
  id: string,
  { services, recorded = (_service, work) => ({ value: work() }) }: Pick<WantedState, "services" | "recorded">,
  phases: Group["phases"],
): ObservedFrontEnd | undefined {
  const wanted = services.frontEnd(id);
  // What is removed is what this program has written: it depends on no object.
  if (wanted === undefined) return changeFrontEnd(before, undefined, phases);
  const done = recorded(serviceOf(wanted), () => changeFrontEnd(before, wanted, phases));
  return done === undefined ? changeFrontEnd(before, undefined, phases) : done.value;
}

/** Deletes the chains of shapes that no front end has needed for a while, as after a change of the number of endpoints. */
async function deleteUnusedChains({ deps, writer, observed, options }: FrontEndWork): Promise<void> {
  const now = deps.clock.monotonic();
  observed.uses.review(observed.chains, options, now);
  const names = observed.uses.expired(now);
  if (names.length === 0) return;
  await writer.run(deleteChains(writer.table, names));
  for (const name of names) observed.chains.delete(name);
  observed.uses.deleted(names);
}

/**
 * Deletes the affinity timeouts that no front end has: their rules, which each new connection passes, then their sets. Entries of clients stay.
 */
async function deleteTimeouts({ writer, observed, options }: FrontEndWork): Promise<void> {
  const used = new Set<number>();
  for (const { affinitySeconds } of observed.frontEnds.values()) used.add(affinitySeconds);
  const kept = observed.affinityTimeouts.filter((seconds) => used.has(seconds));
  const unused = observed.affinityTimeouts.filter((seconds) => !used.has(seconds));
  if (unused.length === 0) return;
  await writer.commitRules((batch) => writeAffinityChains(batch, kept, options));
  observed.affinityTimeouts = kept;
  await writer.run(deleteAffinitySets(writer.table, unused, options));
}

/** Deletes the affinity entries of lost endpoints. */
async function deleteLost({ deps, writer, observed, losses, isFull }: FrontEndWork): Promise<void> {
  if (losses.size === 0 && !isFull) return;
  const { table, options } = writer;
  const isStale = staleEntries(table.family, { losses, known: observed.frontEnds, isFull });
  await deleteAffinity(deps, table, isStale, options);
  losses.clear();
}

/** Front ends whose changes are committed together. */
class Group {
  readonly phases: ReturnType<TableWriter["phases"]>;
  readonly updates: [id: string, frontEnd: ObservedFrontEnd | undefined][] = [];

  constructor(writer: TableWriter) {
    this.phases = writer.phases();
  }

  /** Number of elements. */
  get count(): number {
    return this.phases.add.count + this.phases.switch.count + this.phases.remove.count;
  }

  get byteLength(): number {
    return this.phases.add.byteLength + this.phases.switch.byteLength;
  }
}

/** Commits a group. Returns the removals, for later. */
async function finish(work: FrontEndWork, { phases, updates }: Group): Promise<BatchList> {
  const { writer, observed } = work;
  await prepare(work, updates);
  await writer.commit(phases.add);
  await writer.commit(phases.switch);
  for (const [id, frontEnd] of updates) {
    const before = observed.frontEnds.get(id);
    observed.uses.replace(before, frontEnd);
    observed.tally.replace(before, frontEnd);
    if (frontEnd === undefined) observed.frontEnds.delete(id);
    else observed.frontEnds.set(id, frontEnd);
  }
  return phases.remove;
}

/** Makes the chains and affinity sets that the group's verdicts need. */
async function prepare(work: FrontEndWork, updates: Group["updates"]): Promise<void> {
  const { writer, observed, options } = work;
  const chains = new Set<string>();
  const timeouts = new Set(observed.affinityTimeouts);
  for (const [, frontEnd] of updates) {
    for (const verdict of [frontEnd?.verdict, frontEnd?.localVerdict]) {
      if (verdict !== undefined && "chain" in verdict && !observed.chains.has(verdict.chain)) chains.add(verdict.chain);
    }
    if ((frontEnd?.affinitySeconds ?? 0) > 0) timeouts.add(frontEnd?.affinitySeconds ?? 0);
  }
  if (chains.size > 0) await addShapes(work, chains);
  if (timeouts.size === observed.affinityTimeouts.length) return;
  const sorted = [...timeouts].sort((a, b) => a - b);
  await writer.run(affinitySets(writer.table, sorted, options));
  await writer.commitRules((batch) => writeAffinityChains(batch, sorted, options));
  observed.affinityTimeouts = sorted;
}

/** Makes the chains of these shapes, in such an order that each chain is complete before a verdict leads to it. */
async function addShapes({ writer, observed, options }: FrontEndWork, names: ReadonlySet<string>): Promise<void> {
  const chains = shapesOf(names, options, observed.chains);
  await writer.run(emptyChains(writer.table, chains));
  await writer.commitRules((batch) => writeCompiled(batch, chains, options));
  await writer.run(addChains(writer.table, chains, options));
  for (const { name } of chains) observed.chains.add(name);
}
