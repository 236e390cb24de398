import type { SelectionSettings } from "#base/uplink-model";

/** RFC 6298 section 2: the retransmission timeout before the round-trip time (RTT) is known, in milliseconds. */
const INITIAL_RTO_MS = 1000;
/** The least timeout. DNS repeats its queries as often. */
const MIN_RTO_MS = 400;
/** RFC 6298 section 2.3: the weights of a new measurement, in the mean and in its deviation. */
const ALPHA = 1 / 8;
const BETA = 1 / 4;
/** The deviation counts at least as this share of the RTT: a path without jitter may get some. */
const MIN_DEVIATION = 1 / 16;
/** Number of timeouts until an attempt has had its time: its SYN was sent in each of them. */
const TIMEOUTS = 3;

interface Rtt {
  readonly meanMs: number;
  readonly deviationMs: number;
}

/**
 * The time for which an attempt over an uplink is waited for before a more expensive uplink is tried (docs/spec/uplink-proxy.md#6.1.4). It follows the
 * RTT that connections over the uplink had, so that a slow uplink is not taken for a dead one. Holds at most one entry for each uplink.
 */
export class Patience {
  readonly #settings: () => Pick<SelectionSettings, "tierDelayMs">;
  readonly #rtts = new Map<string, Rtt>();

  constructor(settings: () => Pick<SelectionSettings, "tierDelayMs">) {
    this.#settings = settings;
  }

  /** A connection over the uplink had this RTT, in milliseconds. */
  measured(uplink: string, rttMs: number): void {
    const known = this.#rtts.get(uplink);
    if (known === undefined) {
      this.#rtts.set(uplink, { meanMs: rttMs, deviationMs: rttMs / 2 });
      return;
    }
    const deviationMs = (1 - BETA) * known.deviationMs + BETA * Math.abs(known.meanMs - rttMs);
    this.#rtts.set(uplink, { meanMs: (1 - ALPHA) * known.meanMs + ALPHA * rttMs, deviationMs });
  }

  /** Forgets uplinks that are gone. */
  keep(uplinks: ReadonlySet<string>): void {
    for (const name of this.#rtts.keys()) if (!uplinks.has(name)) this.#rtts.delete(name);
  }

  /** Time after which a SYN without an answer is sent again from another port, in milliseconds (RFC 6298). */
  retryMs(uplink: string): number {
    const rtt = this.#rtts.get(uplink);
    if (rtt === undefined) return INITIAL_RTO_MS;
    return Math.max(MIN_RTO_MS, rtt.meanMs + 4 * Math.max(rtt.deviationMs, MIN_DEVIATION * rtt.meanMs));
  }

  /** Least time for the uplink's own DNS servers, in milliseconds. */
  dnsMs(uplink: string): number {
    return TIMEOUTS * this.retryMs(uplink);
  }

  /** Time that an attempt has from its first SYN, in milliseconds; at least `selection.tierDelayMs`. */
  of(uplink: string): number {
    const { tierDelayMs } = this.#settings();
    return Math.max(tierDelayMs === "timeout" ? 0 : tierDelayMs, this.dnsMs(uplink));
  }
}
