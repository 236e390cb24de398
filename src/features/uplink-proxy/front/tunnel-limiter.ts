import { Descriptors } from "./descriptors.ts";

/** Places in the shared counts. */
const TUNNELS = 0;
const DIALLING = 1;
const COUNTS = 2;

/** Memory that threads share. */
export interface TunnelLimiterMemory {
  readonly counts: SharedArrayBuffer;
  readonly descriptors: SharedArrayBuffer;
}

/** Limits of {@link TunnelLimiter}. */
export interface TunnelLimits {
  readonly tunnels: number;
  readonly dialling: number;
}

/**
 * The number of tunnels, open or being dialled, of all threads: the counts lie in memory that threads share
 * (docs/spec/uplink-proxy.md#9.3). A request takes a place before it is dialled and gives it back when its tunnel has ended.
 */
export class TunnelLimiter {
  readonly #counts: Int32Array;
  readonly #limits: () => TunnelLimits;
  readonly descriptors: Descriptors;

  /** `memory` comes from {@link TunnelLimiter.memory} of the first thread. */
  constructor(
    limits: () => TunnelLimits,
    options: { readonly memory?: TunnelLimiterMemory; readonly descriptors?: Descriptors } = {},
  ) {
    const { memory } = options;
    this.#counts = new Int32Array(memory?.counts ?? new SharedArrayBuffer(COUNTS * 4));
    this.#limits = limits;
    this.descriptors =
      options.descriptors ?? new Descriptors(memory === undefined ? {} : { memory: memory.descriptors });
  }

  /** The memory of the counts, for the other threads. */
  get memory(): TunnelLimiterMemory {
    return { counts: this.#counts.buffer as SharedArrayBuffer, descriptors: this.descriptors.memory };
  }

  /** Number of tunnels, including those that are being dialled. */
  get tunnels(): number {
    return Atomics.load(this.#counts, TUNNELS);
  }

  get dialling(): number {
    return Atomics.load(this.#counts, DIALLING);
  }

  /** Takes a place for a tunnel that will be dialled; false if no place is free. */
  tryTake(): boolean {
    if (this.descriptors.areShort) return false;
    const { tunnels, dialling } = this.#limits();
    if (Atomics.add(this.#counts, TUNNELS, 1) >= tunnels) {
      Atomics.sub(this.#counts, TUNNELS, 1);
      return false;
    }
    if (Atomics.add(this.#counts, DIALLING, 1) >= dialling) {
      Atomics.sub(this.#counts, DIALLING, 1);
      Atomics.sub(this.#counts, TUNNELS, 1);
      return false;
    }
    // Counts the descriptor of the connection to the destination.
    this.descriptors.opened(1);
    return true;
  }

  /** Call when the dial of a tunnel is over, with or without success. */
  dialled(): void {
    Atomics.sub(this.#counts, DIALLING, 1);
  }

  /** Gives a place back. Call when the tunnel has ended or could not begin. */
  giveBack(): void {
    Atomics.sub(this.#counts, TUNNELS, 1);
  }
}
