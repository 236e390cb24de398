import { Cidr } from "#base/ip";
import { type ByteString, type ElementBatch, type Verdict, verdictText } from "#kernel/nft-elements";
import { affinityNodePortSet, affinitySet, SETS } from "../rules/index.ts";
import { type FrontEnd, NO_ENDPOINTS, type ObservedFrontEnd } from "./front-end.ts";
import { allowKeys, slotBytes } from "./keys.ts";
import { overlapFinder } from "./ranges.ts";
import { assignSlots } from "./slots.ts";

/**
 * The batches of one update, committed in this order (docs/spec/service-proxy.md#2.8). A packet looks into several maps one after the
 * other, and may see one of them before and another after a commit. So the elements that a verdict leads to are added before it, and
 * removed after it.
 */
export interface Phases {
  /** Adds endpoints, or replaces them in their slots. */
  readonly add: ElementChanges;
  /** Changes verdicts. */
  readonly switch: ElementChanges;
  /** Removes elements that no verdict leads to; committed when no packet that saw the old verdicts is being processed any more. */
  readonly remove: ElementChanges;
}

/** Takes changes of elements: a batch, or several. */
export interface ElementChanges {
  add(...change: Parameters<ElementBatch["add"]>): unknown;
  delete(...change: Parameters<ElementBatch["delete"]>): unknown;
}

/** Names of the sets that hold a front end. */
interface FrontEndSets {
  readonly verdicts: string;
  readonly localVerdicts: string;
  readonly slots: string;
  readonly localSlots: string;
  readonly noEndpoints: string;
}

const BY_ADDRESS: FrontEndSets = {
  verdicts: SETS.serviceIps,
  localVerdicts: SETS.localVerdicts,
  slots: SETS.endpoints,
  localSlots: SETS.endpointsLocal,
  noEndpoints: SETS.noEndpoints,
};
const BY_NODE_PORT: FrontEndSets = {
  verdicts: SETS.nodePorts,
  localVerdicts: SETS.nodePortLocalVerdicts,
  slots: SETS.nodePortEndpoints,
  localSlots: SETS.nodePortEndpointsLocal,
  noEndpoints: SETS.noEndpointsNodePorts,
};

/**
 * Writes the difference between `observed` and `wanted` into the phases. Returns what the kernel then holds: `wanted`, with its endpoints
 * in the slots that they were given. `observed` or `wanted` may be absent. Pure but for the batches.
 */
export function changeFrontEnd(
  observed: ObservedFrontEnd | undefined,
  wanted: FrontEnd | undefined,
  phases: Phases,
): FrontEnd | undefined {
  const { key, isNodePort } = wanted ?? observed ?? { key: "", isNodePort: false };
  const names = isNodePort ? BY_NODE_PORT : BY_ADDRESS;
  const comment = wanted?.service.slice(0, 127);
  const slots = changeSlots(names.slots, key, observed?.slots ?? [], wanted?.slots ?? [], phases);
  const localSlots = changeSlots(names.localSlots, key, observed?.localSlots ?? [], wanted?.localSlots ?? [], phases);
  changeRanges(key, observed, wanted?.sourceRanges, phases);
  changeAffinity(key, isNodePort, observed?.affinitySeconds ?? 0, wanted?.affinitySeconds ?? 0, phases);
  const keys = isNodePort ? SETS.nodePortAffinityKeys : SETS.affinityKeys;
  if (observed?.affinityKey !== wanted?.affinityKey) {
    if (observed?.affinityKey !== undefined) phases.switch.delete(keys, key);
    if (wanted?.affinityKey !== undefined) phases.switch.add(keys, key, wanted.affinityKey);
  }
  changeVerdict(names.localVerdicts, key, observed?.localVerdict, wanted?.localVerdict, {
    comment,
    add: phases.switch,
    remove: phases.remove,
  });
  const switched = { comment, add: phases.switch, remove: phases.switch };
  changeVerdict(names.verdicts, key, observed?.verdict, wanted?.verdict, switched);
  const refused = (frontEnd: ObservedFrontEnd | undefined): Verdict | undefined =>
    frontEnd?.noEndpoints === true ? NO_ENDPOINTS : undefined;
  changeVerdict(names.noEndpoints, key, refused(observed), refused(wanted), switched);
  if (wanted === undefined) return undefined;
  // The slots are nearly always those of the plan. Then one object is both the planned and the observed front end.
  if (isSameList(slots, wanted.slots) && isSameList(localSlots, wanted.localSlots)) return wanted;
  return { ...wanted, slots, localSlots };
}

function isSameList(a: readonly ByteString[], b: readonly ByteString[]): boolean {
  return a.length === b.length && a.every((one, at) => one === b[at]);
}

function changeSlots(
  set: string,
  key: ByteString,
  observed: readonly (ByteString | undefined)[],
  wanted: readonly ByteString[],
  phases: Phases,
): readonly ByteString[] {
  const slots = assignSlots(observed, wanted);
  for (const [slot, endpoint] of slots.entries()) {
    const before = observed[slot];
    if (before === endpoint) continue;
    const full = key + slotBytes(slot);
    if (before !== undefined) phases.add.delete(set, full);
    phases.add.add(set, full, endpoint);
  }
  for (let slot = slots.length; slot < observed.length; slot += 1) {
    if (observed[slot] !== undefined) phases.remove.delete(set, key + slotBytes(slot));
  }
  return slots;
}

function changeVerdict(
  set: string,
  key: ByteString,
  observed: Verdict | undefined,
  wanted: Verdict | undefined,
  how: { readonly comment: string | undefined; readonly add: ElementChanges; readonly remove: ElementChanges },
): void {
  if (observed !== undefined && wanted !== undefined && verdictText(observed) === verdictText(wanted)) return;
  if (observed !== undefined) (wanted === undefined ? how.remove : how.add).delete(set, key);
  if (wanted !== undefined) how.add.add(set, key, wanted, how.comment);
}

function changeRanges(
  key: ByteString,
  observed: ObservedFrontEnd | undefined,
  wanted: readonly string[] | undefined,
  phases: Phases,
): void {
  const isGuarded = observed?.isGuarded ?? observed?.sourceRanges !== undefined;
  const [before, after] = [new Set(observed?.sourceRanges), new Set(wanted)];
  const stale = new Set([...before].filter((range) => !after.has(range)).map((range) => Cidr.parse(range)));
  const overlapping = overlapFinder([...stale]);
  for (const text of after) {
    if (before.has(text)) continue;
    const range = Cidr.parse(text);
    // The kernel refuses overlapping intervals, so the old interval is deleted first. One transaction deletes the old and adds the new
    // interval: no source is refused in between.
    for (const old of overlapping(range))
      if (stale.delete(old)) phases.add.delete(SETS.firewallAllow, ...allowKeys(key, old));
    phases.add.add(SETS.firewallAllow, allowKeys(key, range)[0], undefined, undefined, allowKeys(key, range)[1]);
  }
  for (const old of stale) phases.remove.delete(SETS.firewallAllow, ...allowKeys(key, old));
  if (!isGuarded && wanted !== undefined) phases.switch.add(SETS.firewallVips, key);
  if (isGuarded && wanted === undefined) phases.switch.delete(SETS.firewallVips, key);
}

function changeAffinity(key: ByteString, isNodePort: boolean, observed: number, wanted: number, phases: Phases): void {
  if (observed === wanted) return;
  const setOf = isNodePort ? affinityNodePortSet : affinitySet;
  if (observed > 0) phases.switch.delete(setOf(observed), key);
  if (wanted > 0) phases.switch.add(setOf(wanted), key);
}
