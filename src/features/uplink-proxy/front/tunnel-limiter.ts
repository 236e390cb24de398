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
 * How many tunnels there are and are being dialled, over all threads: the counts lie in memory that threads share
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

  /** For the other threads. */
  get memory(): TunnelLimiterMemory {
    return { counts: this.#counts.buffer as SharedArrayBuffer, descriptors: this.descriptors.memory };
  }

  /** Tunnels, those that are being dialled included. */
  get tunnels(): number {
    return Atomics.load(this.#counts, TUNNELS);
  }

  get dialling(): number {
    return Atomics.load(this.#counts, DIALLING);
  }

  /** A place for a tunnel that is to be dialled, or false. */
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
    // For its destination.
    this.descriptors.opened(1);
    return true;
  }

  /** It was dialled, with or without success. */
  dialled(): void {
    Atomics.sub(this.#counts, DIALLING, 1);
  }

  /** Its tunnel has ended, or never began. */
  giveBack(): void {
    Atomics.sub(this.#counts, TUNNELS, 1);
  }
}
