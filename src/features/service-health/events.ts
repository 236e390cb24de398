import type { Clock } from "#base/clock";

/** An Event in the API (docs/spec/service-proxy.md#1.9). */
export interface HealthEvent {
  /** This program's Node, or an object; an object without a kind is a Service. */
  readonly about:
    | "node"
    | {
        readonly kind?: "Service" | "EndpointSlice" | "Node" | "ServiceCIDR";
        readonly namespace: string;
        readonly name: string;
      };
  readonly type: "Normal" | "Warning";
  readonly reason:
    | "Starting"
    | "FailedToStartProxierHealthcheck"
    | "FailedToStartMetricServer"
    | "FailedToStartServiceHealthcheck"
    | "ExternalAddressInUse"
    | "ExternalAddressRefused"
    | "ExternalAddressListened"
    | "UnreadableObject"
    | "UnreadableSourceRange"
    | "SourceRangesOfOneFamily"
    | "ServiceTooLarge";
  readonly note: string;
}

/** Takes Events. Must not throw: a failure to write one affects nothing else. */
export type EventSink = (event: HealthEvent) => void;

/** Shortest time between two Events of one key, milliseconds (docs/spec/service-proxy.md#1.5). */
export const EVENT_PAUSE_MS = 600_000;
/**
 * Maximum of keys that are kept. Beyond this number the oldest key is dropped; its next Event may then come earlier than {@link
 * EVENT_PAUSE_MS}.
 */
export const MAX_REMEMBERED_KEYS = 4096;

/** The Event at a program's start. */
export function startingEvent(): HealthEvent {
  return { about: "node", type: "Normal", reason: "Starting", note: "The service proxy has started" };
}

/** Lets one Event through for each key in {@link EVENT_PAUSE_MS}. */
export class EventLimit {
  readonly #clock: Clock;
  /** Key → when its last Event was let through, monotonic milliseconds; the oldest first. */
  readonly #last = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** True if an Event of this key may be written now: at most once in {@link EVENT_PAUSE_MS}. */
  take(key: string): boolean {
    const now = this.#clock.monotonic();
    const last = this.#last.get(key);
    if (last !== undefined && now - last < EVENT_PAUSE_MS) return false;
    this.#last.delete(key);
    this.#last.set(key, now);
    const [oldest] = this.#last.keys();
    if (this.#last.size > MAX_REMEMBERED_KEYS && oldest !== undefined) this.#last.delete(oldest);
    return true;
  }
}
