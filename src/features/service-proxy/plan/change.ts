import { Cidr } from "#base/ip";
import { type ByteString, type ElementBatch, type Verdict, verdictText } from "#kernel/nft-elements";
import { affinityNodePortSet, affinitySet, SETS } from "../rules/index.ts";
import { type FrontEnd, type ObservedFrontEnd, NO_ENDPOINTS } from "./front-end.ts";
import { allowKeys, slotBytes } from "./keys.ts";
import { assignSlots } from "./slots.ts";

/**
 * The batches of one update, committed in this order (docs/spec/service-proxy.md#2.8). Packets look into several maps one after the
 * other, and may see one of them before and another after a commit; so whatever a verdict leads to is there before the verdict,
 * and goes after it.
 */
export interface Phases {
  /** Endpoints are added, and replaced in their slots. */
  readonly fill: ElementBatch;
  /** Verdicts change. */
  readonly turn: ElementBatch;
  /** What nothing leads to any more goes; not sooner than packets that saw the old verdict are through. */
  readonly clear: ElementBatch;
}

/** The sets of a front end, by what it is. */
interface Names {
  readonly verdicts: string;
  readonly short: string;
  readonly slots: string;
  readonly localSlots: string;
  readonly noEndpoints: string;
}

const BY_ADDRESS: Names = {
  verdicts: SETS.serviceIps,
  short: SETS.serviceShort,
  slots: SETS.endpoints,
  localSlots: SETS.endpointsLocal,
  noEndpoints: SETS.noEndpoints,
};
const BY_NODE_PORT: Names = {
  verdicts: SETS.nodePorts,
  short: SETS.nodePortsShort,
  slots: SETS.nodePortEndpoints,
  localSlots: SETS.nodePortEndpointsLocal,
  noEndpoints: SETS.noEndpointsNodePorts,
};

/**
 * Writes what makes `observed` into `wanted` into the phases, and returns what the kernel then holds: `wanted` with its endpoints in the
 * slots that they got. Either may be absent. Pure but for the batches.
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
  const { turn, clear } = phases;
  changeRanges(key, observed, wanted?.sourceRanges, phases);
  changeAffinity(key, isNodePort, observed?.affinitySeconds ?? 0, wanted?.affinitySeconds ?? 0, phases);
  changeVerdict(names.short, key, observed?.short, wanted?.short, { comment, add: turn, remove: clear });
  changeVerdict(names.verdicts, key, observed?.verdict, wanted?.verdict, { comment, add: turn, remove: turn });
  const refused = (frontEnd: ObservedFrontEnd | undefined): Verdict | undefined =>
    frontEnd?.noEndpoints === true ? NO_ENDPOINTS : undefined;
  changeVerdict(names.noEndpoints, key, refused(observed), refused(wanted), { comment, add: turn, remove: turn });
  if (wanted === undefined) return undefined;
  // Nearly always it is as planned, and one object stands for both.
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
  { fill, clear }: Phases,
): readonly ByteString[] {
  const slots = assignSlots(observed, wanted);
  for (const [slot, endpoint] of slots.entries()) {
    const before = observed[slot];
    if (before === endpoint) continue;
    const full = key + slotBytes(slot);
    if (before !== undefined) fill.delete(set, full);
    fill.add(set, full, endpoint);
  }
  for (let slot = slots.length; slot < observed.length; slot += 1) {
    if (observed[slot] !== undefined) clear.delete(set, key + slotBytes(slot));
  }
  return slots;
}

function changeVerdict(
  set: string,
  key: ByteString,
  observed: Verdict | undefined,
  wanted: Verdict | undefined,
  how: { readonly comment: string | undefined; readonly add: ElementBatch; readonly remove: ElementBatch },
): void {
  if (observed !== undefined && wanted !== undefined && verdictText(observed) === verdictText(wanted)) return;
  if (observed !== undefined) (wanted === undefined ? how.remove : how.add).delete(set, key);
  if (wanted !== undefined) how.add.add(set, key, wanted, how.comment);
}

function changeRanges(
  key: ByteString,
  observed: ObservedFrontEnd | undefined,
  wanted: readonly string[] | undefined,
  { fill, turn, clear }: Phases,
): void {
  const isGuarded = observed?.isGuarded ?? observed?.sourceRanges !== undefined;
  const [before, after] = [new Set(observed?.sourceRanges), new Set(wanted)];
  const stale = [...before].filter((range) => !after.has(range)).map((range) => Cidr.parse(range));
  for (const text of after) {
    if (before.has(text)) continue;
    const range = Cidr.parse(text);
    // An interval that overlaps another is refused, so the other goes first; what is in both stays allowed without a gap.
    for (const old of stale.filter((other) => other.overlaps(range))) {
      fill.delete(SETS.firewallAllow, ...allowKeys(key, old));
      stale.splice(stale.indexOf(old), 1);
    }
    fill.add(SETS.firewallAllow, allowKeys(key, range)[0], undefined, undefined, allowKeys(key, range)[1]);
  }
  for (const old of stale) clear.delete(SETS.firewallAllow, ...allowKeys(key, old));
  if (!isGuarded && wanted !== undefined) turn.add(SETS.firewallVips, key);
  if (isGuarded && wanted === undefined) turn.delete(SETS.firewallVips, key);
}

function changeAffinity(key: ByteString, isNodePort: boolean, observed: number, wanted: number, { turn }: Phases): void {
  if (observed === wanted) return;
  const setOf = isNodePort ? affinityNodePortSet : affinitySet;
  if (observed > 0) turn.delete(setOf(observed), key);
  if (wanted > 0) turn.add(setOf(wanted), key);
}
