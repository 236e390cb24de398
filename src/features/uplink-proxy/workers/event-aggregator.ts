import type { StatsEvent } from "../stats/index.ts";

type Connected = Extract<StatsEvent, { readonly kind: "connected" }>;
type Closed = Extract<StatsEvent, { readonly kind: "closed" }>;
type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Tunnels that were opened, or that were closed: equal events are merged into one event with their count. */
export class EventAggregator<Event extends Connected | Closed> {
  readonly #isAlike: (a: Event, b: Event) => boolean;
  #byTarget = new Map<string, Writable<Event>[]>();
  #newest: Writable<Event> | undefined;
  #size = 0;

  constructor(isAlike: (a: Event, b: Event) => boolean) {
    this.#isAlike = isAlike;
  }

  /** The number of events that {@link take} would return. */
  get size(): number {
    return this.#size;
  }

  add(event: Event): void {
    const ofTarget = this.#byTarget.get(event.target) ?? [];
    const like = ofTarget.find((one) => this.#isAlike(one, event));
    this.#newest = like ?? { ...event };
    if (like !== undefined) join(like, event);
    else {
      this.#byTarget.set(event.target, ofTarget);
      ofTarget.push(this.#newest);
      this.#size += 1;
    }
  }

  /** Returns and removes all events; the event that was counted last is at the end. */
  take(): readonly Event[] {
    const events = [...this.#byTarget.values()].flat();
    const newest = this.#newest;
    this.#byTarget = new Map();
    this.#newest = undefined;
    this.#size = 0;
    return newest === undefined ? [] : [...events.filter((one) => one !== newest), newest];
  }
}

/** Returns true if two connections used the same uplink and tried no other uplink before. */
export function areConnectedAlike(a: Connected, b: Connected): boolean {
  return a.ifName === b.ifName && a.cost === b.cost && a.failures.length === 0 && b.failures.length === 0;
}

/** Tunnels over the same uplink that ended for the same reason. */
export function areClosedAlike(a: Closed, b: Closed): boolean {
  return a.ifName === b.ifName && a.reason === b.reason && a.isBlackholed === b.isBlackholed;
}

function join(sum: Writable<Connected | Closed>, event: Connected | Closed): void {
  sum.count += event.count;
  if (sum.kind !== "closed" || event.kind !== "closed") return;
  sum.up += event.up;
  sum.down += event.down;
  sum.durationMs += event.durationMs;
}
