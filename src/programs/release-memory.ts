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
/** A program that used less of the processor than this between two looks is at rest, in milliseconds: 1 %. */
const REST_MS = 600;
/** A heap of more than this in use is not collected by {@link ownHeap}, in bytes: nothing else runs meanwhile, 100 ms for 60 MiB. */
const SMALL_HEAP_BYTES = 32 * 1024 * 1024;
/** Memory that has grown by this since the last release is released at the next look, in bytes. */
const GROWN_BYTES = 4 * 1024 * 1024;

/** What {@link releaseMemoryAtRest} needs of the process; tests replace it. */
export interface ProcessMemory {
  /** Returns free memory of the C library to the kernel. */
  readonly release: () => Promise<void>;
  /** The resident memory, in bytes. */
  readonly rss: () => number;
  /** Absent for programs that are to keep a large heap. */
  readonly heap?: HeapControl;
}

/** What {@link releaseMemoryAtRest} needs of V8's heap. */
export interface HeapControl {
  /** Makes the heap small, once. */
  readonly shrink: () => void;
  /** Collects garbage. Nothing else runs meanwhile. */
  readonly collect: () => void;
  /** The processor's time that the process has used, in milliseconds. */
  readonly usedMs: () => number;
}

/**
 * Makes a long-running program return free memory of the C library to the kernel: after its start, every ten minutes, and within a minute
 * of work that made it grow. A start reads and compiles code, parses lists of objects and allocates buffers; a drain of a node makes and
 * deletes many pods at once. The C library keeps most of that memory after it was freed: 11 MiB of 45 in a service proxy with 1,000 Services,
 * 5 to 7 MiB in a `coild` after thousands of ADDs (bench/footprint.ts). A release takes a few milliseconds, a look some microseconds. The
 * timers keep no process alive.
 *
 * V8 collects garbage when the heap grows, so a program at rest keeps what its last work left: 16 MiB in a `coil-ipam-controller` after 2,400 pods. Its heap is
 * collected once it is at rest.
 *
 * Before the first release the heap is made small. With these settings from the start, a start would take a third more of the processor, since
 * V8 would collect a heap that only grows.
 */
export function releaseMemoryAtRest(memory: ProcessMemory): void {
  const { heap } = memory;
  let kept = Number.NEGATIVE_INFINITY;
  let looks = 0;
  /** The smallest resident memory since the heap was collected. */
  let collected = Number.POSITIVE_INFINITY;
  let usedMs = 0;
  /** Returns whether garbage was collected. */
  const collectAtRest = (): boolean => {
    if (heap === undefined) return false;
    const [before, rss] = [usedMs, memory.rss()];
    usedMs = heap.usedMs();
    // V8 returns the pages of a collection later.
    collected = Math.min(collected, rss);
    if (usedMs - before > REST_MS || rss - collected < GROWN_BYTES) return false;
    heap.collect();
    collected = memory.rss();
    return true;
  };
  const look = async (isDue: boolean): Promise<void> => {
    looks += 1;
    const isCollected = collectAtRest();
    if (!isDue && !isCollected && looks < LOOKS && memory.rss() - kept < GROWN_BYTES) return;
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
    heap?.shrink();
    await tryLook(true);
    later(rest);
  };
  setTimeout(() => void settle(), first).unref();
}

/** The memory of this process; its heap is kept small if `isSmall`. */
export function ownMemory(isSmall: boolean): ProcessMemory {
  const memory = { release: releaseNow, rss: process.memoryUsage.rss };
  return isSmall ? { ...memory, heap: ownHeap } : memory;
}

/**
 * After `shrink` V8 keeps little compiled code and few free pages, and the next collection comes when the heap has grown by a part of what is in use, not by the garbage of
 * thousands of calls. A large heap is not collected: the pause would delay its calls by more than the memory is worth.
 */
const ownHeap: HeapControl = {
  shrink: () => {
    setV8Flag("--optimize-for-size");
    collectSmallHeap();
  },
  collect: collectSmallHeap,
  usedMs: () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
};

function collectSmallHeap(): void {
  // Without its flag there is no collection to ask for.
  if (!setsV8Flags() || getHeapStatistics().used_heap_size > SMALL_HEAP_BYTES) return;
  setV8Flag("--expose-gc");
  (runInNewContext("gc") as () => void)();
}

/** The module is loaded only here, because programs that end at once should not load it. */
async function releaseNow(): Promise<void> {
  const { releaseFreeMemory } = await import("#kernel/memory");
  releaseFreeMemory();
}
