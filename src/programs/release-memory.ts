/** Pauses before the first releases, in milliseconds: after a usual start, and after one with large tables. */
const AFTER_START_MS = [5000, 25_000] as const;
/** Pause between later looks at the memory, in milliseconds. */
const LOOK_MS = 60_000;
/** Number of looks after which memory is released however little it has grown: ten minutes. */
const LOOKS = 10;
/** Memory that has grown by this since the last release is released at the next look, in bytes. */
const GROWN_BYTES = 4 * 1024 * 1024;

/** What {@link releaseMemoryAtRest} needs of the process; tests replace it. */
export interface ProcessMemory {
  /** Returns free memory of the C library to the kernel. */
  readonly release: () => Promise<void>;
  /** The resident memory, in bytes. */
  readonly rss: () => number;
}

/**
 * Makes a long-running program return free memory of the C library to the kernel: after its start, every ten minutes, and within a minute
 * of work that made it grow. A start reads and compiles code, parses lists of objects and allocates buffers; a drain of a node makes and
 * deletes many pods at once. The C library keeps most of that memory after it was freed: 11 MiB of 45 in a service proxy with 1,000 Services,
 * 5 to 7 MiB in a `coild` after thousands of ADDs (bench/footprint.ts). A release takes a few milliseconds, a look some microseconds. The
 * timers keep no process alive.
 */
export function releaseMemoryAtRest(
  memory: ProcessMemory = { release: releaseNow, rss: process.memoryUsage.rss },
): void {
  let kept = Number.NEGATIVE_INFINITY;
  let looks = 0;
  const look = async (isDue: boolean): Promise<void> => {
    looks += 1;
    if (!isDue && looks < LOOKS && memory.rss() - kept < GROWN_BYTES) return;
    await memory.release();
    kept = memory.rss();
    looks = 0;
  };
  const later = ([first, ...rest]: readonly number[]): void => {
    const next = (): void => void look(first !== undefined).then(() => later(rest));
    setTimeout(next, first ?? LOOK_MS).unref();
  };
  later(AFTER_START_MS);
}

/** The module is loaded only here, because programs that end at once should not load it. */
async function releaseNow(): Promise<void> {
  const { releaseFreeMemory } = await import("#kernel/memory");
  releaseFreeMemory();
}
