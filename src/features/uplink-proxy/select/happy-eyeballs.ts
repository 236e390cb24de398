import { type AbortSignalLike, LightAbortSignal } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";

/** Delay of the next address beside the earlier ones (RFC 8305 section 5), in milliseconds. */
const ATTEMPT_DELAY_MS = 250;
/** Maximum number of pairs of source and destination that are tried over one uplink. */
const MAX_PAIRS = 8;
/** The number of times that the first pair of each family is tried again, from another port, while nothing answers. */
const RETRIES = 2;

/** A connection to be made: an address, and the address to make it from (absent: the routing table chooses it). */
export interface Pair {
  readonly address: IpAddress;
  readonly source: IpAddress | undefined;
}

/** A resource that was opened and can be closed. */
export interface Closable {
  destroy(): void;
}

/** Opens a connection; rejects with the system's error, or with the signal's reason, and leaves no open connection. */
export type Connect<C extends Closable> = (
  pair: Pair,
  port: number,
  options: {
    readonly signal: AbortSignalLike;
    /** The largest segment of the connection, in bytes. Default: what the link allows. */
    readonly maxSegmentBytes?: number | undefined;
  },
) => Promise<C>;

/**
 * Destinations with the sources of their family: IPv6 and IPv4 alternate, IPv6 first if there is a source for it, all destinations with the
 * first source come before those with the next source. Empty if sources and destinations have no common family. `undefined` sources:
 * unbound.
 */
export function pairUp(addresses: readonly IpAddress[], sources: readonly IpAddress[] | undefined): Pair[] {
  const ordered = interleave(addresses);
  if (sources === undefined) return ordered.slice(0, MAX_PAIRS).map((address) => ({ address, source: undefined }));
  const own = { 4: sources.filter(({ family }) => family === 4), 6: sources.filter(({ family }) => family === 6) };
  const pairs: Pair[] = [];
  for (let round = 0; round < sources.length && pairs.length < MAX_PAIRS; round += 1) {
    for (const address of ordered) {
      const source = own[address.family][round];
      if (source !== undefined && pairs.length < MAX_PAIRS) pairs.push({ address, source });
    }
  }
  return pairs;
}

function interleave(addresses: readonly IpAddress[]): readonly IpAddress[] {
  if (addresses.length < 2) return addresses;
  const six = addresses.filter(({ family }) => family === 6);
  const four = addresses.filter(({ family }) => family === 4);
  const turns = Array.from({ length: Math.max(six.length, four.length) }, (_, at) => [six[at], four[at]]);
  return turns.flat().filter((address) => address !== undefined);
}

/** A pair that could not be connected, and why. */
export class PairError extends Error {
  override readonly name = "PairError";
  readonly pair: Pair;

  constructor(pair: Pair, cause: unknown) {
    super("cannot connect", { cause });
    this.pair = pair;
  }
}

/** Options of {@link connectAny}. */
export interface ConnectAnyOptions<C extends Closable> {
  readonly connect: Connect<C>;
  readonly clock: Clock;
  readonly signal: AbortSignalLike;
  /** Time without an answer after which a pair is tried again, in milliseconds: the SYN or its answer may be lost. Default: never. */
  readonly retryMs?: number | undefined;
  /** See {@link Connect}. */
  readonly maxSegmentBytes?: number | undefined;
}

/** A pair with the time since the start of the one before, in milliseconds. */
interface PlannedPair {
  readonly pair: Pair;
  readonly afterMs: number;
}

/** Pure: the pairs in the order of their starts; those that are tried again come last. */
function planPairs(pairs: readonly Pair[], retryMs: number | undefined): readonly PlannedPair[] {
  const first = pairs.map((pair, at) => ({ pair, afterMs: at === 0 ? 0 : ATTEMPT_DELAY_MS }));
  if (retryMs === undefined) return first;
  const again = [4, 6].flatMap((family) => pairs.find(({ address }) => address.family === family) ?? []);
  const round = again.map((pair, at) => ({ pair, afterMs: at === 0 ? Math.max(ATTEMPT_DELAY_MS, retryMs) : 0 }));
  return [...first, ...Array.from({ length: RETRIES }, () => round).flat()];
}

/**
 * The first established connection of several pairs. The next pair is tried beside the earlier ones if those take long, or at once if all
 * have failed. Rejects with the last {@link PairError} once all failed, or with the signal's reason; every other connection is closed.
 */
export function connectAny<C extends Closable>(
  pairs: readonly Pair[],
  port: number,
  { connect, clock, signal, retryMs, maxSegmentBytes }: ConnectAnyOptions<C>,
): Promise<{ readonly connection: C; readonly pair: Pair }> {
  const [only] = pairs;
  if (only === undefined) return Promise.reject(new RangeError("connectAny: the list of pairs is empty"));
  if (pairs.length === 1 && retryMs === undefined) {
    return connect(only, port, { signal, maxSegmentBytes }).then(
      (connection) => ({ connection, pair: only }),
      (error: unknown) => Promise.reject(signal.aborted ? signal.reason : new PairError(only, error)),
    );
  }
  return new Promise((resolve, reject) => {
    const stop = new LightAbortSignal();
    const planned = planPairs(pairs, retryMs);
    let next = 0;
    let running = 0;
    let isDone = false;
    let cancelTimer: (() => void) | undefined;
    const finish = (): void => {
      isDone = true;
      cancelTimer?.();
      signal.removeEventListener("abort", onAbort);
      stop.abort(new Error("another address connected faster"));
    };
    const onAbort = (): void => {
      finish();
      reject(signal.reason);
    };
    const begin = (): void => {
      cancelTimer?.();
      const pair = planned[next]?.pair;
      if (pair === undefined) return;
      next += 1;
      running += 1;
      const following = planned[next];
      if (following !== undefined) cancelTimer = clock.after(following.afterMs, begin);
      connect(pair, port, { signal: stop, maxSegmentBytes }).then(
        (connection) => {
          if (isDone) return connection.destroy();
          finish();
          resolve({ connection, pair });
        },
        (error: unknown) => {
          running -= 1;
          if (isDone || running > 0) return;
          if (next < pairs.length) return begin();
          finish();
          reject(new PairError(pair, error));
        },
      );
    };
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    else begin();
  });
}
