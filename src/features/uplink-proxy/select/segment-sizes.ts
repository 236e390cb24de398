import type { Clock } from "#base/clock";

/** The least MTU of IPv6 (RFC 8200 section 5) without the headers of IPv6 and TCP; every path of the internet has it. */
export const SMALL_SEGMENT_BYTES = 1220;
/** The time after which larger segments are tried again (RFC 4821 section 7.7), in milliseconds. */
const LOWERED_MS = 600_000;

/**
 * Uplinks whose path loses large packets without a word (docs/spec/uplink-proxy.md#6.5). Their connections are opened with
 * {@link SMALL_SEGMENT_BYTES} as the largest segment of both directions. Holds at most one entry for each uplink.
 */
export class SegmentSizes {
  readonly #clock: Clock;
  readonly #until = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The largest segment for a new connection, in bytes; `undefined`: the kernel's choice. */
  of(uplink: string): number | undefined {
    return (this.#until.get(uplink) ?? 0) > this.#clock.monotonic() ? SMALL_SEGMENT_BYTES : undefined;
  }

  /** Connections over the uplink have small segments from now on, for ten minutes. Returns true if they had not before. */
  lower(uplink: string): boolean {
    const isNew = this.of(uplink) === undefined;
    if (isNew) this.#until.set(uplink, this.#clock.monotonic() + LOWERED_MS);
    return isNew;
  }

  /** Forgets uplinks that are gone. */
  keep(uplinks: ReadonlySet<string>): void {
    for (const name of this.#until.keys()) if (!uplinks.has(name)) this.#until.delete(name);
  }
}
