import type { Clock } from "#base/clock";
import { keepNewest } from "#base/collections";
import type { IpAddress } from "#base/ip";
import type { DnsSettings } from "#base/uplink-model";
import type { DnsRecord } from "./query.ts";

/** The cached answer for a name. */
export interface CachedAnswer {
  /** Empty if the name has no addresses. */
  readonly addresses: readonly IpAddress[];
  /** Monotonic milliseconds. */
  readonly freshUntil: number;
}

/**
 * Answers of one uplink's servers. An answer is kept for its TTL, and longer for the case that servers fail
 * (docs/spec/uplink-proxy.md#6.3).
 */
export class DnsCache {
  readonly #clock: Clock;
  readonly #settings: () => DnsSettings;
  readonly #entries = new Map<string, CachedAnswer>();

  constructor(clock: Clock, settings: () => DnsSettings) {
    this.#clock = clock;
    this.#settings = settings;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** An answer that has not expired. */
  fresh(name: string): CachedAnswer | undefined {
    const entry = this.#entries.get(name);
    return entry !== undefined && entry.freshUntil > this.#clock.monotonic() ? entry : undefined;
  }

  /** An answer with addresses that expired at most `staleMs` ago. */
  stale(name: string): CachedAnswer | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined || entry.addresses.length === 0) return undefined;
    return this.#clock.monotonic() - entry.freshUntil <= this.#settings().staleMs ? entry : undefined;
  }

  /** Stores an answer; without records, the name has no addresses. The answer that was stored least recently is dropped first. */
  store(name: string, records: readonly DnsRecord[]): void {
    const { minTtlMs, maxTtlMs, negativeTtlMs, cacheEntries } = this.#settings();
    const ttlMs = Math.min(...records.map(({ ttlSeconds }) => ttlSeconds * 1000));
    const keptMs = records.length === 0 ? negativeTtlMs : Math.min(maxTtlMs, Math.max(minTtlMs, ttlMs));
    this.#entries.delete(name);
    this.#entries.set(name, {
      addresses: records.map(({ address }) => address),
      freshUntil: this.#clock.monotonic() + keptMs,
    });
    keepNewest(this.#entries, cacheEntries);
  }
}
