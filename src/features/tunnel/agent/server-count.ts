import type { Clock } from "#base/clock";

/** The time for which the count of a server is used after its stream has ended, in milliseconds. */
const REMEMBERED_MS = 60_000;

/** The number of servers, from their headers and Leases (docs/spec/tunnel.md#11). */
export class ServerCount {
  readonly #clock: Clock;
  readonly #leases: (() => number | undefined) | undefined;
  readonly #source: "default" | "max";
  readonly #reported = new Map<string, { count: number; endedAt: number | undefined }>();

  /**
   * `leases`: the number of valid Leases; it returns `undefined` while that is unknown. `source`: `default` takes Leases if they are
   * counted, else the servers' headers; `max` takes the larger number.
   */
  constructor(
    clock: Clock,
    options: { readonly leases?: () => number | undefined; readonly source: "default" | "max" },
  ) {
    this.#clock = clock;
    this.#leases = options.leases;
    this.#source = options.source;
  }

  /** Records that a server's stream has opened, with its `serverCount` header. */
  opened(serverID: string, count: number): void {
    this.#reported.set(serverID, { count, endedAt: undefined });
  }

  /** Records that a server's stream has ended. */
  closed(serverID: string): void {
    const reported = this.#reported.get(serverID);
    if (reported !== undefined) reported.endedAt = this.#clock.monotonic();
  }

  /** The number of servers, at least 1. */
  get value(): number {
    const reported = this.#fromHeaders();
    if (this.#leases === undefined) return reported;
    const leases = Math.max(1, this.#leases() ?? 1);
    return this.#source === "max" ? Math.max(reported, leases) : leases;
  }

  /** The largest count of any server, so that a server with an old count does not lower the number. */
  #fromHeaders(): number {
    let most = 1;
    const now = this.#clock.monotonic();
    for (const [serverID, { count, endedAt }] of this.#reported) {
      if (endedAt !== undefined && now - endedAt > REMEMBERED_MS) this.#reported.delete(serverID);
      else most = Math.max(most, count);
    }
    return most;
  }
}
