import type { StatsEvent } from "../stats/index.ts";

type Connected = Extract<StatsEvent, { readonly kind: "connected" }>;
type Closed = Extract<StatsEvent, { readonly kind: "closed" }>;
type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Tunnels that were opened, or that were closed: those that are alike are one event with their count. */
export class EventAggregator<Event extends Connected | Closed> {
  readonly #isAlike: (a: Event, b: Event) => boolean;
  #byTarget = new Map<string, Writable<Event>[]>();
  #newest: Writable<Event> | undefined;
  #size = 0;

  constructor(isAlike: (a: Event, b: Event) => boolean) {
    this.#isAlike = isAlike;
  }

  /** Events that {@link take} would give. */
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

  /** All of them, the one that was counted last at the end; none is left. */
  take(): readonly Event[] {
    const events = [...this.#byTarget.values()].flat();
    const newest = this.#newest;
    this.#byTarget = new Map();
    this.#newest = undefined;
    this.#size = 0;
    return newest === undefined ? [] : [...events.filter((one) => one !== newest), newest];
  }
}

/** Connections over the same uplink, on which nothing else was tried. */
export function areConnectedAlike(a: Connected, b: Connected): boolean {
  return a.ifName === b.ifName && a.cost === b.cost && a.failures.length === 0 && b.failures.length === 0;
}

/** Tunnels over the same uplink that ended for the same reason. */
export function areClosedAlike(a: Closed, b: Closed): boolean {
  return a.ifName === b.ifName && a.reason === b.reason;
}

function join(sum: Writable<Connected | Closed>, event: Connected | Closed): void {
  sum.count += event.count;
  if (sum.kind !== "closed" || event.kind !== "closed") return;
  sum.up += event.up;
  sum.down += event.down;
  sum.durationMs += event.durationMs;
}
