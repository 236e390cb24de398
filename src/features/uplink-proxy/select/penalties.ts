import type { Clock } from "#base/clock";

/** The state of an uplink for one destination. */
export type PenaltyState =
  | "good"
  /** The uplink is tried last until the penalty ends. */
  | "penalised"
  /** The penalty has ended without evidence that the uplink works again: it is tried, and the next tier starts soon after it. */
  | "probation";

/** One penalty, as /healthz shows it. */
export interface Penalty {
  readonly destination: string;
  readonly uplink: string;
  /** Monotonic milliseconds. */
  readonly until: number;
}

/** A change that the other threads must make too. */
export type PenaltyEvent =
  | { readonly kind: "add"; readonly destination: string; readonly uplink: string; readonly share: number }
  | { readonly kind: "lost" | "confirm" | "clear"; readonly destination: string; readonly uplink: string };

/** The settings of penalties. */
export interface PenaltyOptions {
  /** Duration of the first penalty; each further penalty has twice the duration of the last. */
  readonly penaltyMs: number;
  readonly penaltyMaxMs: number;
  /** Pairs of destination and uplink; the least recently used pair is dropped first. */
  readonly penaltyEntries: number;
}

/** Races that an uplink must lose in a row to uplinks of its cost before it is penalised (docs/spec/uplink-proxy.md#6.1.4). */
const LOST_RACES = 3;

interface Entry extends Penalty {
  readonly strikes: number;
  readonly isConfirmed: boolean;
}

/**
 * Penalties of uplinks for each destination (docs/spec/uplink-proxy.md#6.4): they change only the order and never exclude an uplink.
 * Durations are monotonic, so that a clock that jumps changes none.
 */
export class Penalties {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  readonly #trials = new Set<string>();
  /** Races lost in a row. */
  readonly #lost = new Map<string, number>();
  #options: PenaltyOptions;
  /** Called for each change made here, not for those of {@link Penalties.apply}. */
  onEvent: ((event: PenaltyEvent) => void) | undefined;

  constructor(clock: Clock, options: PenaltyOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  configure(options: PenaltyOptions): void {
    this.#options = options;
    this.#trim();
  }

  stateOf(destination: string, uplink: string): PenaltyState {
    // In the common case there are no penalties.
    if (this.#entries.size === 0) return "good";
    const entry = this.#entries.get(key(destination, uplink));
    if (entry === undefined || entry.isConfirmed) return "good";
    return entry.until > this.#clock.monotonic() ? "penalised" : "probation";
  }

  /** `share` 0.5 for a stall, 1 for a blackhole or a connect that timed out. A running penalty is not extended. */
  add(destination: string, uplink: string, share = 1): void {
    if (this.#add(destination, uplink, share)) this.onEvent?.({ kind: "add", destination, uplink, share });
  }

  /** Another uplink of the same cost, dialled later, has connected first. The third time in a row and each time after it adds a penalty. */
  lost(destination: string, uplink: string): void {
    const races = this.#noteLoss(key(destination, uplink));
    this.onEvent?.({ kind: "lost", destination, uplink });
    if (races >= LOST_RACES) this.add(destination, uplink);
  }

  /** A connection was made: ends the probation and the row of lost races. The count of penalties stays until a byte comes. */
  confirm(destination: string, uplink: string): void {
    if (this.#entries.size === 0 && this.#lost.size === 0) return;
    if (this.#confirm(key(destination, uplink))) this.onEvent?.({ kind: "confirm", destination, uplink });
  }

  /** Removes the penalty. Call when a byte was received over the uplink. */
  clear(destination: string, uplink: string): void {
    if (this.#entries.size === 0) return;
    if (this.#entries.delete(key(destination, uplink))) this.onEvent?.({ kind: "clear", destination, uplink });
  }

  /** Begins a trial of an uplink that may not work; false while another one runs. The caller ends it with {@link endTrial}. */
  beginTrial(destination: string, uplink: string): boolean {
    const id = key(destination, uplink);
    if (this.#trials.has(id)) return false;
    this.#trials.add(id);
    return true;
  }

  endTrial(destination: string, uplink: string): void {
    this.#trials.delete(key(destination, uplink));
  }

  /** Applies a change of another thread. */
  apply(event: PenaltyEvent): void {
    const id = key(event.destination, event.uplink);
    if (event.kind === "add") this.#add(event.destination, event.uplink, event.share);
    else if (event.kind === "clear") this.#entries.delete(id);
    else if (event.kind === "lost") this.#noteLoss(id);
    else this.#confirm(id);
  }

  /** The running penalties. */
  list(): Penalty[] {
    const now = this.#clock.monotonic();
    return [...this.#entries.values()].filter(({ until, isConfirmed }) => until > now && !isConfirmed);
  }

  #noteLoss(id: string): number {
    const races = (this.#lost.get(id) ?? 0) + 1;
    this.#lost.delete(id);
    this.#lost.set(id, races);
    this.#trim();
    return races;
  }

  /** Whether it changed anything. */
  #confirm(id: string): boolean {
    const wasLosing = this.#lost.delete(id);
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.isConfirmed) return wasLosing;
    this.#entries.set(id, { ...entry, isConfirmed: true });
    return true;
  }

  #add(destination: string, uplink: string, share: number): boolean {
    const id = key(destination, uplink);
    const now = this.#clock.monotonic();
    const known = this.#entries.get(id);
    // Many tunnels of one destination may fail at the same time: they count as one failure.
    if (known !== undefined && known.until > now && !known.isConfirmed) return false;
    const strikes = (known?.strikes ?? 0) + 1;
    const { penaltyMs, penaltyMaxMs } = this.#options;
    const lengthMs = Math.min(penaltyMaxMs, penaltyMs * 2 ** Math.min(strikes - 1, 30)) * share;
    this.#entries.delete(id);
    this.#entries.set(id, { destination, uplink, until: now + lengthMs, strikes, isConfirmed: false });
    this.#trim();
    return true;
  }

  #trim(): void {
    for (const pairs of [this.#entries, this.#lost]) {
      for (const id of pairs.keys()) {
        if (pairs.size <= this.#options.penaltyEntries) break;
        pairs.delete(id);
      }
    }
  }
}

function key(destination: string, uplink: string): string {
  return `${uplink}\0${destination}`;
}
