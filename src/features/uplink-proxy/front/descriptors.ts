import { readdirSync, statSync } from "node:fs";
import { openFilesLimit } from "#base/open-files";

/** If more than this share of the limit is in use, no tunnel is begun (docs/spec/uplink-proxy.md#9.3). */
const MAX_SHARE = 0.9;
/** Places in the shared counts. */
const COUNTED = 0;
const SINCE = 1;
const COUNTS = 2;
/** A number above any limit. */
const ALL = 0x3fff_ffff;

/** Options of {@link Descriptors}. */
export interface DescriptorsOptions {
  /** Memory of the counts that other threads share. Default: memory of this object only. */
  readonly memory?: SharedArrayBuffer;
  /** Default: the soft limit of this process. */
  readonly limit?: number;
  /** Counts open descriptors. Default: those of this process in /proc. */
  readonly count?: () => number;
}

/**
 * Knows if the process runs out of descriptors, over all threads. They are counted only if the noted number of openings since the last count
 * could have reached the limit: rarely when the count is far below the limit, each time when it is near.
 */
export class Descriptors {
  readonly #counts: Int32Array;
  readonly #most: number;
  readonly #count: () => number;

  constructor({ memory, limit, count }: DescriptorsOptions = {}) {
    this.#counts = new Int32Array(memory ?? new SharedArrayBuffer(COUNTS * 4));
    this.#most = (limit ?? openFilesLimit()) * MAX_SHARE;
    this.#count = count ?? countDescriptors;
    // No count is known yet.
    if (memory === undefined) Atomics.store(this.#counts, COUNTED, ALL);
  }

  /** The memory of the counts, for the other threads. */
  get memory(): SharedArrayBuffer {
    return this.#counts.buffer as SharedArrayBuffer;
  }

  /** Notes opened descriptors. */
  opened(count: number): void {
    Atomics.add(this.#counts, SINCE, count);
  }

  /** True if more than nine tenths of the descriptors are in use. */
  get areShort(): boolean {
    const atMost = Atomics.load(this.#counts, COUNTED) + Atomics.load(this.#counts, SINCE);
    if (atMost < this.#most) return false;
    Atomics.store(this.#counts, SINCE, 0);
    const counted = Math.min(ALL, this.#count());
    Atomics.store(this.#counts, COUNTED, counted);
    return counted >= this.#most;
  }
}

function countDescriptors(): number {
  // Linux 6.2 has the number as the size of the folder.
  const { size } = statSync("/proc/self/fd");
  if (size > 0) return size;
  try {
    return readdirSync("/proc/self/fd").length;
  } catch (error) {
    // Listing the descriptors needs a free descriptor; if none is free, all are in use.
    if (!isExhausted(error)) throw error;
    return ALL;
  }
}

function isExhausted(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "EMFILE" || code === "ENFILE";
}
