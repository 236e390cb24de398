import type { Clock } from "#base/clock";
import { assertNever } from "#base/errors";
import type { StatsEvent } from "./events.ts";
import { MetricsMap } from "./metrics-map.ts";

/** Counters of the whole program since its start (docs/spec/uplink-proxy.md#8). */
export class Counters {
  readonly #clock: Clock;
  requests = 0;
  dialFailures = 0;
  notReady = 0;
  tunnelIdleClosed = 0;
  bytesUp = 0;
  bytesDown = 0;
  activeTunnels = 0;
  replays = 0;
  blackholes = 0;
  overload = 0;
  denied = 0;
  /** Requests with credentials that are wrong. */
  wrongTokens = 0;
  readonly successByPort = new Map<string, number>();
  readonly failureByPort = new Map<string, number>();
  readonly fallbackByPort = new Map<string, number>();
  readonly tunnelsByPort = new Map<string, number>();
  /** Down and up by interface. */
  readonly bytesByPort = new Map<string, { up: number; down: number }>();
  lastSuccess:
    | { readonly at: number; readonly target: string; readonly ifName: string; readonly cost: number }
    | undefined;
  lastError: { readonly at: number; readonly text: string } | undefined;
  readonly map: MetricsMap;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.map = new MetricsMap();
  }

  /** Counts one event, of this thread or of another thread. */
  record(event: StatsEvent): void {
    switch (event.kind) {
      case "request":
        this.requests += event.count;
        break;
      case "overload":
        this.overload += 1;
        break;
      case "wrong-token":
        this.wrongTokens += 1;
        break;
      case "denied":
        this.denied += 1;
        break;
      case "failed":
        this.#failed(event);
        break;
      case "connected":
        this.#connected(event);
        break;
      case "blackhole":
        this.blackholes += 1;
        this.#attemptFailed(event.ifName, event.target);
        break;
      case "replayed":
        this.replays += 1;
        this.#move(event.from, event.to);
        add(this.fallbackByPort, event.to, 1);
        break;
      case "attempts":
        for (const { ifName } of event.failures) this.#attemptFailed(ifName, event.target);
        break;
      case "closed":
        this.#closed(event);
        break;
      case "bytes":
        this.#bytes(event);
        break;
      default:
        assertNever(event);
    }
  }

  #failed({ target, isNotReady, summary, failures }: StatsEvent & { readonly kind: "failed" }): void {
    this.dialFailures += 1;
    if (isNotReady) this.notReady += 1;
    this.lastError = { at: this.#clock.now(), text: `${target}: ${summary}` };
    for (const { ifName } of failures) this.#attemptFailed(ifName, target);
  }

  #connected({ target, ifName, cost, failures, count }: StatsEvent & { readonly kind: "connected" }): void {
    this.activeTunnels += count;
    add(this.tunnelsByPort, ifName, count);
    add(this.successByPort, ifName, count);
    if (failures.length > 0) add(this.fallbackByPort, ifName, count);
    for (const failure of failures) this.#attemptFailed(failure.ifName, target);
    this.lastSuccess = { at: this.#clock.now(), target, ifName, cost };
  }

  #attemptFailed(ifName: string, target: string): void {
    add(this.failureByPort, ifName, 1);
    this.map.attemptFailed(ifName, target, this.#clock.now());
  }

  #move(from: string, to: string): void {
    remove(this.tunnelsByPort, from, 1);
    add(this.tunnelsByPort, to, 1);
  }

  #closed(event: StatsEvent & { readonly kind: "closed" }): void {
    const { target, ifName, reason, isBlackholed, count } = event;
    this.activeTunnels -= count;
    remove(this.tunnelsByPort, ifName, count);
    if (reason === "idle") this.tunnelIdleClosed += count;
    // It was counted as a failure.
    if (!isBlackholed) this.map.tunnelsClosed(ifName, target, event, this.#clock.now());
  }

  #bytes({ ifName, up, down }: StatsEvent & { readonly kind: "bytes" }): void {
    this.bytesUp += up;
    this.bytesDown += down;
    const known = this.bytesByPort.get(ifName) ?? { up: 0, down: 0 };
    this.bytesByPort.set(ifName, { up: known.up + up, down: known.down + down });
  }
}

function add(counts: Map<string, number>, key: string, by: number): void {
  counts.set(key, (counts.get(key) ?? 0) + by);
}

function remove(counts: Map<string, number>, key: string, by: number): void {
  const left = (counts.get(key) ?? 0) - by;
  if (left > 0) counts.set(key, left);
  else counts.delete(key);
}
