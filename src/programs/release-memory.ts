import { getHeapStatistics } from "node:v8";
import { runInNewContext } from "node:vm";
import { isShortage } from "#base/open-files";
import { setsV8Flags, setV8Flag } from "#base/v8-flags";

/** Pauses before the first releases, in milliseconds: after a usual start, and after one with large tables. */
const AFTER_START_MS = [5000, 25_000] as const;
/** Pause between later looks at the memory, in milliseconds. */
const LOOK_MS = 60_000;
/** Number of looks after which memory is released however little it has grown: ten minutes. */
const LOOKS = 10;
/** A heap of more than this in use is not collected by {@link shrinkHeap}, in bytes: nothing else runs meanwhile, 100 ms for 60 MiB. */
const SMALL_HEAP_BYTES = 32 * 1024 * 1024;
/** Memory that has grown by this since the last release is released at the next look, in bytes. */
const GROWN_BYTES = 4 * 1024 * 1024;

/** What {@link releaseMemoryAtRest} needs of the process; tests replace it. */
export interface ProcessMemory {
  /** Returns free memory of the C library to the kernel. */
  readonly release: () => Promise<void>;
  /** The resident memory, in bytes. */
  readonly rss: () => number;
  /** Makes V8's heap small, once; absent for programs that are to keep a large one. */
  readonly shrinkHeap?: () => void;
}

/**
 * Makes a long-running program return free memory of the C library to the kernel: after its start, every ten minutes, and within a minute
 * of work that made it grow. A start reads and compiles code, parses lists of objects and allocates buffers; a drain of a node makes and
 * deletes many pods at once. The C library keeps most of that memory after it was freed: 11 MiB of 45 in a service proxy with 1,000 Services,
 * 5 to 7 MiB in a `coild` after thousands of ADDs (bench/footprint.ts). A release takes a few milliseconds, a look some microseconds. The
 * timers keep no process alive.
 *
 * Before the first release the heap is made small. With these settings from the start, a start would take a third more of the processor, since
 * V8 would collect a heap that only grows.
 */
export function releaseMemoryAtRest(memory: ProcessMemory): void {
  let kept = Number.NEGATIVE_INFINITY;
  let looks = 0;
  const look = async (isDue: boolean): Promise<void> => {
    looks += 1;
    if (!isDue && looks < LOOKS && memory.rss() - kept < GROWN_BYTES) return;
    await memory.release();
    kept = memory.rss();
    looks = 0;
  };
  // Reading the memory's size and loading the library need descriptors. Where there are none, the next look may find some.
  const tryLook = (isDue: boolean): Promise<void> =>
    look(isDue).catch((error: unknown) => {
      if (!isShortage(error)) throw error;
    });
  const later = ([first, ...rest]: readonly number[]): void => {
    const next = (): void => void tryLook(first !== undefined).then(() => later(rest));
    setTimeout(next, first ?? LOOK_MS).unref();
  };
  const [first, ...rest] = AFTER_START_MS;
  const settle = async (): Promise<void> => {
    memory.shrinkHeap?.();
    await tryLook(true);
    later(rest);
  };
  setTimeout(() => void settle(), first).unref();
}

/** The memory of this process; its heap is made small if `isSmall`. */
export function ownMemory(isSmall: boolean): ProcessMemory {
  const memory = { release: releaseNow, rss: process.memoryUsage.rss };
  return isSmall ? { ...memory, shrinkHeap } : memory;
}

/**
 * Collects the heap, and lets V8 keep little compiled code and few free pages from now on. After the collection the next one comes when the heap
 * has grown by a part of what is in use, not by the garbage of thousands of calls. A large heap is not collected here: the pause would delay its
 * calls by more than the memory is worth.
 */
function shrinkHeap(): void {
  // Without its flag there is no collection to ask for.
  if (!setsV8Flags()) return;
  setV8Flag("--optimize-for-size");
  if (getHeapStatistics().used_heap_size > SMALL_HEAP_BYTES) return;
  setV8Flag("--expose-gc");
  (runInNewContext("gc") as () => void)();
}

/** The module is loaded only here, because programs that end at once should not load it. */
async function releaseNow(): Promise<void> {
  const { releaseFreeMemory } = await import("#kernel/memory");
  releaseFreeMemory();
}
