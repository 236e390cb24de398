import type { Clock } from "#base/clock";

/** A count that a server told is believed for so long after its stream ended, milliseconds. */
const REMEMBERED_MS = 60_000;

/** How many servers there are, as far as one can know (docs/spec/tunnel.md#11). */
export class ServerCount {
  readonly #clock: Clock;
  readonly #leases: (() => number | undefined) | undefined;
  readonly #source: "default" | "max";
  readonly #told = new Map<string, { count: number; endedAt: number | undefined }>();

  /**
   * `leases`: how many valid leases there are; `undefined` while that is not known. `source`: `default` takes leases where
   * they are counted, else what servers tell; `max` the larger of both.
   */
  constructor(
    clock: Clock,
    options: { readonly leases?: () => number | undefined; readonly source: "default" | "max" },
  ) {
    this.#clock = clock;
    this.#leases = options.leases;
    this.#source = options.source;
  }

  /** A server's stream has opened and told its count. */
  opened(serverID: string, count: number): void {
    this.#told.set(serverID, { count, endedAt: undefined });
  }

  /** A server's stream has ended. */
  closed(serverID: string): void {
    const told = this.#told.get(serverID);
    if (told !== undefined) told.endedAt = this.#clock.monotonic();
  }

  /** At least 1. */
  get value(): number {
    const told = this.#fromHeaders();
    if (this.#leases === undefined) return told;
    const leases = Math.max(1, this.#leases() ?? 1);
    return this.#source === "max" ? Math.max(told, leases) : leases;
  }

  /** The largest that any live server tells, so that one that is behind does not lower it. */
  #fromHeaders(): number {
    let most = 1;
    const now = this.#clock.monotonic();
    for (const [serverID, { count, endedAt }] of this.#told) {
      if (endedAt !== undefined && now - endedAt > REMEMBERED_MS) this.#told.delete(serverID);
      else most = Math.max(most, count);
    }
    return most;
  }
}
