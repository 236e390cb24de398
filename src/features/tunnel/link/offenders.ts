import type { Clock } from "#base/clock";
import { groupOf } from "#base/places";
import type { TokenBucket } from "#base/rate-limit";
import type { SpentLimits } from "#wire/http2";
import type { TransportPeer } from "../http2/transport.ts";

/**
 * The time for which a peer that exceeded a limit is refused, in milliseconds. The bursts that each connection may send are then no more, in the long run, than what one that stays may
 * send.
 */
export const REST_MS = 10_000;
/** Offenders that are remembered. With more, the one that came first is forgotten. */
const MAX_OFFENDERS = 4096;

/** Use on connections that have ended counts for so long at most, in milliseconds. */
const LONGEST_DEBT_MS = 60_000;
const NOTHING: SpentLimits = { framesMs: 0, resetsMs: 0 };

/** When what a peer has used up of each limit will have come back, `Clock.monotonic` milliseconds. */
interface Debt {
  readonly framesUntil: number;
  readonly resetsUntil: number;
}

export interface OffendersOptions {
  /** Addresses behind which many clients are that nobody tells apart. Default: none. */
  readonly isShared?: ((address: string) => boolean) | undefined;
}

/**
 * The clients that were sent away for a flood, and the used part of the limits of others. Whoever exceeds one, known by address (of IPv6 the /64) and certificate, is refused for a while; whoever ends a
 * connection before that begins the next one with what was left, so that coming again resets no limit.
 */
export class Offenders {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #isShared: (address: string) => boolean;
  /** Until when each is refused, `Clock.monotonic` milliseconds. The first one ends first. */
  readonly #until = new Map<string, number>();
  /** The one that has changed last is the last one. */
  readonly #debts = new Map<string, Debt>();
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(clock: Pick<Clock, "monotonic">, { isShared = () => false }: OffendersOptions = {}) {
    this.#clock = clock;
    this.#isShared = isShared;
  }

  /** The peer was sent away. */
  note(peer: TransportPeer): void {
    const who = this.#identityOf(peer);
    if (who === undefined) return;
    setLast(this.#until, who, this.#clock.monotonic() + REST_MS);
  }

  /** The part of its limits that the peer has used up on connections that have ended. */
  spentBy(peer: TransportPeer): SpentLimits {
    const debt = this.#debts.size === 0 ? undefined : this.#debts.get(this.#identityOf(peer) ?? "");
    if (debt === undefined) return NOTHING;
    const now = this.#clock.monotonic();
    return { framesMs: Math.max(0, debt.framesUntil - now), resetsMs: Math.max(0, debt.resetsUntil - now) };
  }

  /** A connection of the peer begins with what {@link Offenders.spentBy} tells. The function is to be called at its end, with what is used up then. */
  begin(peer: TransportPeer): (spent: SpentLimits) => void {
    const before = this.spentBy(peer);
    const begunAt = this.#clock.monotonic();
    return (spent) => {
      const who = this.#identityOf(peer);
      const now = this.#clock.monotonic();
      // What it has begun with counts already.
      const own = (endMs: number, beginMs: number): number =>
        Math.max(0, endMs - Math.max(0, beginMs - (now - begunAt)));
      const more = { framesMs: own(spent.framesMs, before.framesMs), resetsMs: own(spent.resetsMs, before.resetsMs) };
      if (who === undefined || more.framesMs + more.resetsMs < 1) return;
      const { framesUntil = now, resetsUntil = now } = this.#debts.get(who) ?? {};
      const until = (at: number, ms: number): number => Math.min(Math.max(at, now) + ms, now + LONGEST_DEBT_MS);
      setLast(this.#debts, who, {
        framesUntil: until(framesUntil, more.framesMs),
        resetsUntil: until(resetsUntil, more.resetsMs),
      });
    };
  }

  /** The bucket that all connections of the peer share; `undefined` for those that nobody can tell apart. */
  bucketOf(peer: TransportPeer, make: () => TokenBucket): TokenBucket | undefined {
    const who = this.#identityOf(peer);
    if (who === undefined) return undefined;
    const bucket = this.#buckets.get(who) ?? make();
    setLast(this.#buckets, who, bucket);
    return bucket;
  }

  /** For how long the peer is refused, in milliseconds; 0: it is not. */
  restOf(peer: TransportPeer): number {
    if (this.#until.size === 0) return 0;
    const now = this.#clock.monotonic();
    for (const [who, until] of this.#until) {
      if (until > now) break;
      this.#until.delete(who);
    }
    const until = this.#until.get(this.#identityOf(peer) ?? "");
    return until === undefined ? 0 : until - now;
  }

  /** `undefined` for those that nobody can tell apart: clients of a UNIX socket, and of a balancer that does not say whose a connection is. */
  #identityOf({ address, balancer, commonName = "" }: TransportPeer): string | undefined {
    const host = address.slice(0, Math.max(0, address.lastIndexOf(":")));
    if (host === "" || (balancer === undefined && this.#isShared(host))) return undefined;
    return `${groupOf(host)} ${commonName}`;
  }
}

/** Sets an entry as the last one. Beyond the maximum the first one is forgotten. */
function setLast<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
  for (const [first] of map) {
    if (map.size <= MAX_OFFENDERS) break;
    map.delete(first);
  }
}
