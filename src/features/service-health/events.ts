import { type Clock, systemClock } from "#base/clock";

/** What people are told of with an Event in the API (docs/spec/service-proxy.md#1.9). */
export interface HealthEvent {
  /** The Node that this program is on, or an object; of no kind: a Service. */
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
    | "UnreadableObject";
  readonly note: string;
}

/** Takes Events. Must not throw: a failure to write one affects nothing else. */
export type EventSink = (event: HealthEvent) => void;

/** At most one Event of a kind in so long, milliseconds (docs/spec/service-proxy.md#1.5). */
export const EVENT_PAUSE_MS = 600_000;
/** So many keys are remembered; when more come, the oldest may be told of again early. */
export const MAX_REMEMBERED_KEYS = 4096;

/** The Event at a program's start. */
export function startingEvent(): HealthEvent {
  return { about: "node", type: "Normal", reason: "Starting", note: "The service proxy has started" };
}

/** Lets one through for each key in {@link EVENT_PAUSE_MS}. */
export class EventLimit {
  readonly #clock: Clock;
  /** Key → when it was last let through, monotonic milliseconds. The longest ago first. */
  readonly #last = new Map<string, number>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** True at most once for a key in {@link EVENT_PAUSE_MS}. */
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
