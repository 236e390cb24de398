import type { Clock } from "#base/clock";

/** The state of an uplink for one destination. */
export type PenaltyState =
  | "good"
  /** The uplink is tried last until the penalty ends. */
  | "penalised"
  /** The penalty has ended without evidence that the uplink works again: it is tried, and the next tier starts soon after it. */
  | "probation";

/** `no-connection`: no answer to a handshake. `blackhole` and `stall`: handshakes were answered, but bytes were lost. */
export type PenaltyCause = "no-connection" | "blackhole" | "stall";

/** One request tries out an uplink for all. While the trial runs, other requests see the uplink as penalised. */
export interface Trial {
  /** May be called more than once. */
  end(): void;
}

/** One penalty, as /healthz shows it. */
export interface Penalty {
  readonly destination: string;
  readonly uplink: string;
  /** Monotonic milliseconds. */
  readonly until: number;
}

/** A change that the other threads must make too. */
export type PenaltyEvent =
  | { readonly kind: "add"; readonly destination: string; readonly uplink: string; readonly cause: PenaltyCause }
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

/** The part of the whole time for which a cause is penalised. */
const SHARE: Readonly<Record<PenaltyCause, number>> = { "no-connection": 1, blackhole: 1, stall: 0.5 };

interface Entry extends Penalty {
  readonly strikes: number;
  /** Only a byte proves that the uplink works: handshakes have succeeded before. */
  readonly needsByte: boolean;
  /** A connection was made since the penalty began. */
  readonly hasConnected: boolean;
}

/**
 * Penalties of uplinks for each destination (docs/spec/uplink-proxy.md#6.4): they change only the order and never exclude an uplink.
 * Durations are monotonic, so that a clock that jumps changes none.
 */
export class Penalties {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  /** The running trials of this thread. */
  readonly #trials = new Map<string, Trial>();
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
    const id = key(destination, uplink);
    const entry = this.#entries.get(id);
    if (entry === undefined || isProven(entry)) return "good";
    if (entry.until > this.#clock.monotonic() || this.#trials.has(id)) return "penalised";
    return entry.hasConnected ? "good" : "probation";
  }

  /** A running penalty is not extended. */
  add(destination: string, uplink: string, cause: PenaltyCause = "no-connection"): void {
    if (this.#add(destination, uplink, cause)) this.onEvent?.({ kind: "add", destination, uplink, cause });
  }

  /** Another uplink of the same cost, dialled later, has connected first. The third time in a row and each time after it adds a penalty. */
  lost(destination: string, uplink: string): void {
    const races = this.#noteLoss(key(destination, uplink));
    this.onEvent?.({ kind: "lost", destination, uplink });
    if (races >= LOST_RACES) this.add(destination, uplink);
  }

  /**
   * A connection was made: ends the probation and the row of lost races. After bytes were lost, one request at a time still tries the uplink
   * out until a byte comes, and so long the count of penalties stays.
   */
  confirm(destination: string, uplink: string): void {
    if (this.#entries.size === 0 && this.#lost.size === 0) return;
    if (this.#confirm(key(destination, uplink))) this.onEvent?.({ kind: "confirm", destination, uplink });
  }

  /** Removes the penalty. Call when a byte was received over the uplink. */
  clear(destination: string, uplink: string): void {
    if (this.#entries.size === 0) return;
    if (this.#entries.delete(key(destination, uplink))) this.onEvent?.({ kind: "clear", destination, uplink });
  }

  /** Returns true if a penalty has ended, and nothing has proved since that the uplink works. */
  needsTrial(destination: string, uplink: string): boolean {
    if (this.#entries.size === 0) return false;
    const entry = this.#entries.get(key(destination, uplink));
    return entry !== undefined && !isProven(entry) && entry.until <= this.#clock.monotonic();
  }

  /** Begins a trial of an uplink that may not work; `undefined` while another one runs. The caller ends it. */
  beginTrial(destination: string, uplink: string): Trial | undefined {
    const id = key(destination, uplink);
    if (this.#trials.has(id)) return undefined;
    const trial: Trial = {
      end: () => {
        if (this.#trials.get(id) === trial) this.#trials.delete(id);
      },
    };
    this.#trials.set(id, trial);
    return trial;
  }

  /** Applies a change of another thread. */
  apply(event: PenaltyEvent): void {
    const id = key(event.destination, event.uplink);
    if (event.kind === "add") this.#add(event.destination, event.uplink, event.cause);
    else if (event.kind === "clear") this.#entries.delete(id);
    else if (event.kind === "lost") this.#noteLoss(id);
    else this.#confirm(id);
  }

  /** The running penalties. */
  list(): Penalty[] {
    const now = this.#clock.monotonic();
    return [...this.#entries.values()].filter((entry) => entry.until > now && !isProven(entry));
  }

  #noteLoss(id: string): number {
    const races = (this.#lost.get(id) ?? 0) + 1;
    this.#lost.delete(id);
    this.#lost.set(id, races);
    this.#trim();
    return races;
  }

  /** Returns true if it changed anything. */
  #confirm(id: string): boolean {
    const wasLosing = this.#lost.delete(id);
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.hasConnected) return wasLosing;
    if (entry.needsByte && entry.until > this.#clock.monotonic()) return wasLosing;
    this.#entries.set(id, { ...entry, hasConnected: true });
    return true;
  }

  #add(destination: string, uplink: string, cause: PenaltyCause): boolean {
    const id = key(destination, uplink);
    const now = this.#clock.monotonic();
    const known = this.#entries.get(id);
    // Many tunnels of one destination may fail at the same time: they count as one failure.
    if (known !== undefined && known.until > now && !isProven(known)) return false;
    const strikes = (known?.strikes ?? 0) + 1;
    const { penaltyMs, penaltyMaxMs } = this.#options;
    const lengthMs = Math.min(penaltyMaxMs, penaltyMs * 2 ** Math.min(strikes - 1, 30)) * SHARE[cause];
    const needsByte = cause !== "no-connection" || known?.needsByte === true;
    this.#entries.delete(id);
    this.#entries.set(id, { destination, uplink, until: now + lengthMs, strikes, needsByte, hasConnected: false });
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

function isProven({ needsByte, hasConnected }: Entry): boolean {
  return hasConnected && !needsByte;
}

function key(destination: string, uplink: string): string {
  return `${uplink}\0${destination}`;
}
