/** Places in the shared counts. */
const TUNNELS = 0;
const DIALLING = 1;
const STARVED = 2;
const COUNTS = 3;

/** Limits of {@link Room}. */
export interface RoomLimits {
  readonly tunnels: number;
  readonly dialling: number;
}

/**
 * How many tunnels there are and are being dialled, over all threads: the counts lie in memory that threads share (spec uplink-proxy
 * 9.3). A request takes a place before it is dialled and gives it back when its tunnel has ended.
 */
export class Room {
  readonly #counts: Int32Array;
  readonly #limits: () => RoomLimits;

  /** `memory` comes from {@link Room.memory} of the first thread. */
  constructor(limits: () => RoomLimits, memory: SharedArrayBuffer = new SharedArrayBuffer(COUNTS * 4)) {
    this.#counts = new Int32Array(memory);
    this.#limits = limits;
  }

  /** For the other threads. */
  get memory(): SharedArrayBuffer {
    return this.#counts.buffer as SharedArrayBuffer;
  }

  /** Tunnels, those that are being dialled included. */
  get tunnels(): number {
    return Atomics.load(this.#counts, TUNNELS);
  }

  get dialling(): number {
    return Atomics.load(this.#counts, DIALLING);
  }

  /** Descriptors are running out: nothing new. */
  get isStarved(): boolean {
    return Atomics.load(this.#counts, STARVED) !== 0;
  }

  set isStarved(isStarved: boolean) {
    Atomics.store(this.#counts, STARVED, isStarved ? 1 : 0);
  }

  /** A place for a tunnel that is to be dialled, or false. */
  tryTake(): boolean {
    if (this.isStarved) return false;
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
