import type { Difference, Identity, SeenNode, ThisHost, WaitReason } from "./types.ts";

/** A Node that shows another machine for longer than this is another machine's, in milliseconds. A kubelet writes what has changed after 10 s. */
export const SUSPECT_MS = 30_000;
/** A twin has gone when nothing showed it for this time, in milliseconds. */
export const QUIET_MS = 120_000;
/** An API server's cache lags behind for less than this, in milliseconds. */
const LAG_MS = 60_000;
/** So many changes of the machine within {@link QUIET_MS} are another machine's: a start of this one makes one change at most. */
const TWIN_CHANGES = 2;

/** The settings of a comparison. */
export interface IdentityRules extends Pick<ThisHost, "bootId"> {
  /** False where no InternalIP of Nodes is an address of their hosts. */
  readonly comparesAddresses: boolean;
}

/** One look at the Node and at the addresses of this host. */
export interface Observation {
  /** `undefined`: the Node does not exist. */
  readonly node: SeenNode | undefined;
  /** True if one of the Node's InternalIPs, or of its ExternalIPs if it has no InternalIP, is an address of this host. */
  readonly isHere: boolean;
  /** Milliseconds of a clock that never goes back. */
  readonly nowMs: number;
}

/** Earlier observations leave this. */
export interface Memory {
  readonly identity: Identity;
  /** The last version of the Node shows this, whatever came before. */
  readonly shows: Finding;
  /** The Node as it was seen first. */
  readonly first: SeenNode | undefined;
  /** The Node as it was seen last, also after its deletion. */
  readonly last: SeenNode | undefined;
  /** {@link Memory.last} came at this time. */
  readonly lastMs: number;
  /** True if {@link Memory.last} had an address of this host. */
  readonly wasHere: boolean;
  /** True once a kubelet has written the Node's status since the first observation, or in this boot. */
  readonly isWritten: boolean;
  /** Times of the last changes from one machine to another; at most {@link TWIN_CHANGES}. */
  readonly changes: readonly number[];
  /** The time since which the Node shows another machine without a pause; `undefined`: it does not. */
  readonly otherSinceMs: number | undefined;
  /** The last status of another machine, and its difference. */
  readonly other: { readonly node: SeenNode; readonly difference: Difference } | undefined;
  /** The last time at which the Node showed another machine, or changed from one to another. */
  readonly troubleMs: number;
  /** The time since which the Node is ours without a pause, its absence left out; `undefined`: it is not. */
  readonly oursSinceMs: number | undefined;
}

/** Before the first observation. */
export const NOTHING_SEEN: Memory = {
  identity: { kind: "waiting", reason: "no-node" },
  shows: "no-node",
  first: undefined,
  last: undefined,
  lastMs: Number.NEGATIVE_INFINITY,
  wasHere: false,
  isWritten: false,
  changes: [],
  otherSinceMs: undefined,
  other: undefined,
  troubleMs: Number.NEGATIVE_INFINITY,
  oursSinceMs: undefined,
};

/**
 * Pure: takes one observation. Call it for each version of the Node that is seen, and while {@link dependsOnTime} is true also every
 * second. A version that is older than the last one is ignored, and {@link Memory.last} stays: API servers may answer from caches.
 */
export function observe(before: Memory, shown: Observation, rules: IdentityRules): Memory {
  const { nowMs } = shown;
  // A Node that was deleted, and an API server that was restored from a backup, may show lower versions for good.
  const isIgnored = before.shows !== "no-node" && nowMs - before.lastMs < LAG_MS && isOlder(shown.node, before.last);
  const node = isIgnored ? before.last : shown.node;
  const isHere = isIgnored ? before.wasHere : shown.isHere;
  const first = before.first ?? node;
  const isWritten =
    before.isWritten || (node !== undefined && (node.bootId === rules.bootId || wasWritten(first, node)));
  const shows = compare(node, isHere, isWritten, rules);
  const isOther = shows === "boot-id" || shows === "addresses";
  const hasChanged = isChange(before, node, isHere, rules);
  const changes = [...before.changes, ...(hasChanged ? [nowMs] : [])]
    .filter((at) => nowMs - at < QUIET_MS)
    .slice(-TWIN_CHANGES);
  const otherSinceMs = isOther ? (before.otherSinceMs ?? nowMs) : undefined;
  const memory = {
    ...{ shows, first, isWritten, changes, otherSinceMs },
    last: node ?? before.last,
    lastMs: node === undefined || node === before.last ? before.lastMs : nowMs,
    wasHere: node === undefined ? before.wasHere : isHere,
    other: isOther && node !== undefined ? { node, difference: shows } : before.other,
    troubleMs: isOther || hasChanged ? nowMs : before.troubleMs,
  };
  const identity = twinOf(before, memory, nowMs) ?? identityWithoutTwin(shows, node);
  // A Node that is deleted shows no other machine.
  const isAbsent = identity.kind === "waiting" && identity.reason === "no-node";
  const oursSinceMs =
    identity.kind === "ours" ? (before.oursSinceMs ?? nowMs) : isAbsent ? before.oursSinceMs : undefined;
  return { ...memory, identity, oursSinceMs };
}

/**
 * Pure: true once the Node has been ours for so long that another machine's kubelet would have shown itself. A block that is empty here may have another
 * machine's pods before. Nodes without a boot id, which no kubelet writes, have no such delay.
 */
export function isSettled({ oursSinceMs, troubleMs, last }: Memory, nowMs: number): boolean {
  if (oursSinceMs === undefined || nowMs - troubleMs < QUIET_MS) return false;
  return last?.bootId === "" || nowMs - oursSinceMs >= SUSPECT_MS;
}

/** Pure: true while time alone, or an address of this host, can change the identity: observe it every second. */
export function dependsOnTime({ kind, ...rest }: Identity): boolean {
  if (kind === "waiting") return "reason" in rest && rest.reason !== "no-node";
  return kind === "suspect" || kind === "twin";
}

/** One version of the Node shows one of these. */
type Finding = WaitReason | "ours" | Difference;

/** The order of the comparisons matters: a boot id that counts is proof, addresses are a hint. */
function compare(
  node: SeenNode | undefined,
  isHere: boolean,
  isWritten: boolean,
  { bootId, comparesAddresses }: IdentityRules,
): Finding {
  if (node === undefined) return "no-node";
  const isOtherBoot = bootId !== undefined && node.bootId !== "" && node.bootId !== bootId;
  if (isOtherBoot && isWritten) return "boot-id";
  if (!comparesAddresses) return isOtherBoot ? "status-not-written" : "ours";
  if (isHere) return "ours";
  if (node.addresses.length === 0) return "no-address";
  return isWritten ? "addresses" : "status-not-written";
}

function identityWithoutTwin(shows: Finding, node: SeenNode | undefined): Identity {
  if (shows === "ours") return { kind: "ours" };
  if ((shows === "boot-id" || shows === "addresses") && node !== undefined)
    return { kind: "suspect", other: node, difference: shows };
  if (shows === "no-address" || shows === "status-not-written") return { kind: "waiting", reason: shows };
  return { kind: "waiting", reason: "no-node" };
}

function twinOf(
  before: Memory,
  { changes, otherSinceMs, other, last, troubleMs }: Omit<Memory, "identity" | "oursSinceMs">,
  nowMs: number,
): Identity | undefined {
  const known = before.identity.kind === "twin" ? before.identity : undefined;
  const isLong = otherSinceMs !== undefined && nowMs - otherSinceMs > SUSPECT_MS;
  const isSure = isLong || changes.length >= TWIN_CHANGES;
  const lasts = known !== undefined && nowMs - troubleMs < QUIET_MS;
  const shown = other?.node ?? last;
  if (!(isSure || lasts) || shown === undefined) return undefined;
  return {
    kind: "twin",
    other: shown,
    difference: other?.difference ?? "addresses",
    sinceMs: known?.sinceMs ?? nowMs,
  };
}

/** True if the Node passed from one machine to another between two versions. A change of this host's addresses alone is none. */
function isChange(
  { last, wasHere }: Memory,
  node: SeenNode | undefined,
  isHere: boolean,
  { bootId, comparesAddresses }: IdentityRules,
): boolean {
  if (last === undefined || node === undefined || last === node) return false;
  if (bootId !== undefined && last.bootId !== "" && node.bootId !== "" && last.bootId !== node.bootId) return true;
  if (!comparesAddresses || last.addresses.length === 0 || node.addresses.length === 0) return false;
  return wasHere !== isHere && textOf(last.addresses) !== textOf(node.addresses);
}

/** True if a kubelet has written the status since the Node was first seen. */
function wasWritten(first: SeenNode | undefined, node: SeenNode): boolean {
  if (first === undefined) return false;
  return (
    node.uid !== first.uid ||
    (node.bootId !== "" && node.bootId !== first.bootId) ||
    (node.heartbeat !== "" && node.heartbeat !== first.heartbeat)
  );
}

/** Resource versions of one object are numbers that grow; others than numbers are not compared. */
function isOlder(node: SeenNode | undefined, last: SeenNode | undefined): boolean {
  if (node === undefined || last === undefined || node.uid !== last.uid) return false;
  const [a, b] = [node.resourceVersion, last.resourceVersion];
  if (![a, b].every((one) => /^\d{1,20}$/.test(one))) return false;
  return BigInt(a) < BigInt(b);
}

function textOf(addresses: readonly string[]): string {
  return addresses.toSorted().join(" ");
}
