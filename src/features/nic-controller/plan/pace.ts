import { hasPort, isPlumbed, wished } from "./nic.ts";
import { type ClaimRecord, hasCondition, isPlugged, nicsOf } from "./record.ts";

/** The pauses between polls of ports, in milliseconds (docs/spec/vpc-nics.md#5.6): those that are plugged and not active, at first; those of claims for which a
 * request whose end is not known may still make one; those that wait for the node; all others. */
const POLL_PLUGGED_MS = 250;
/** For how long it stays so after a plug; most ports are active by then. Later polls are rarer and rarer. */
const POLL_QUICK_MS = 2000;
const POLL_DOUBT_MS = 3000;
const POLL_WAITING_MS = 5000;
const POLL_SETTLED_MS = 60_000;
/** A port that is down is polled again when that has lasted long enough to matter, in milliseconds. */
const POLL_DOWN_MS = 31_000;

/** The longest pause between polls of a port that is plugged and not active, in milliseconds (docs/spec/vpc-nics.md#5.6). */
export const PLUGGED_MAX_MS = 2000;
/** Growth of that pause. */
const SLOWER = 1.5;

/** When the ports of a claim that has come to rest are polled; `now` is of the monotonic clock. Empty: as planned before. Pure. */
export function planPolls(record: ClaimRecord, now: number): Partial<ClaimRecord> {
  // A request whose end is not known may still make the first one.
  if (!nicsOf(record).some(hasPort) && now >= record.doubtUntil) return { pollAt: undefined };
  const pluggedAt = hasCondition(record.claim, "Plugged") ? (record.pluggedAt ?? now) : record.pluggedAt;
  const { everyMs, awaited } = paceOf(record, now);
  const known = { pluggedAt, awaited };
  const isFirst = record.pollAt === undefined;
  const isQuick = everyMs === POLL_PLUGGED_MS;
  // With a NIC that was plugged just now, polls begin anew. A pace that is the same has been slowed down by the polls, or goes on.
  const isSame = isQuick ? record.pollEveryMs <= PLUGGED_MAX_MS : record.pollEveryMs === everyMs;
  if (!isFirst && awaited <= record.awaited && isSame) return known;
  // What was stored by an earlier process may be old.
  const isOld = isFirst && record.touchedAt === Number.NEGATIVE_INFINITY;
  return {
    ...known,
    pollEveryMs: everyMs,
    ...(isQuick ? { quickUntil: now + POLL_QUICK_MS } : {}),
    pollAt: isOld || isQuick ? now : now + everyMs,
  };
}

/** The pause between polls, and the number of NICs that are plugged and wait to be active. */
function paceOf(record: ClaimRecord, now: number): { readonly everyMs: number; readonly awaited: number } {
  const { claim } = record;
  const waiting = wished(claim.spec.nics, nicsOf(record)).filter(
    (nic) => isPlumbed(nic, undefined) && nic.state !== "Ready",
  );
  const awaited = waiting.filter(({ name }) => isPlugged(claim, name)).length;
  if (awaited > 0) return { everyMs: POLL_PLUGGED_MS, awaited };
  if (now < record.doubtUntil) return { everyMs: POLL_DOUBT_MS, awaited };
  if (waiting.length > 0) return { everyMs: POLL_WAITING_MS, awaited };
  return { everyMs: record.observation.downSince.size > 0 ? POLL_DOWN_MS : POLL_SETTLED_MS, awaited };
}

/** When the ports of a claim are polled after a poll that begins at `now`, on the monotonic clock. Pure. */
export function afterPoll({ pollEveryMs, quickUntil }: ClaimRecord, now: number): Partial<ClaimRecord> {
  const slower = Math.min(PLUGGED_MAX_MS, pollEveryMs * SLOWER);
  const everyMs = pollEveryMs < PLUGGED_MAX_MS && now >= quickUntil ? slower : pollEveryMs;
  return { pollEveryMs: everyMs, pollAt: now + everyMs };
}
