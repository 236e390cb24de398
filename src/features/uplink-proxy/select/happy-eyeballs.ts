import { type AbortSignalLike, LightAbortSignal } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";

/** Delay of the next address beside the earlier ones (RFC 8305 section 5), in milliseconds. */
const ATTEMPT_DELAY_MS = 250;
/** Maximum number of pairs of source and destination that are tried over one uplink. */
const MAX_PAIRS = 8;

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
  options: { readonly signal: AbortSignalLike },
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

/**
 * The first established connection of several pairs. The next pair is tried beside the earlier ones if those take long, or at once if all
 * have failed. Rejects with the last {@link PairError} once all failed, or with the signal's reason; every other connection is closed.
 */
export function connectAny<C extends Closable>(
  pairs: readonly Pair[],
  port: number,
  { connect, clock, signal }: { readonly connect: Connect<C>; readonly clock: Clock; readonly signal: AbortSignalLike },
): Promise<{ readonly connection: C; readonly pair: Pair }> {
  const [only] = pairs;
  if (only === undefined) return Promise.reject(new RangeError("connectAny: the list of pairs is empty"));
  if (pairs.length === 1) {
    return connect(only, port, { signal }).then(
      (connection) => ({ connection, pair: only }),
      (error: unknown) => Promise.reject(signal.aborted ? signal.reason : new PairError(only, error)),
    );
  }
  return new Promise((resolve, reject) => {
    const stop = new LightAbortSignal();
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
      const pair = pairs[next];
      if (pair === undefined) return;
      next += 1;
      running += 1;
      if (next < pairs.length) cancelTimer = clock.after(ATTEMPT_DELAY_MS, begin);
      connect(pair, port, { signal: stop }).then(
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
