import { getHeapStatistics } from "node:v8";
import { runInNewContext } from "node:vm";
import { isShortage } from "#base/open-files";
import { setsV8Flags, setV8Flag } from "#base/v8-flags";
import type { MemoryProfile } from "../programs.ts";

/** Pauses before the first releases, in milliseconds: after a usual start, and after one with large tables. */
const AFTER_START_MS = [5000, 25_000] as const;
/** Pause between later looks at the memory, in milliseconds. */
const LOOK_MS = 60_000;
/** Number of looks after which memory is released however little it has grown: ten minutes. */
const LOOKS = 10;
/** A program that used less of the processor than this between two looks is at rest, in milliseconds: 1 %. */
const REST_MS = 600;
/** So is one that used no more than this many times its least, up to {@link MOST_REST_MS}: a `coild` with some hundred pods uses 1 % by looking at the kernel. */
const REST_FACTOR = 1.5;
/** 3 %. */
const MOST_REST_MS = 1800;
/** After a collection other threads of V8 free pages and buffers, in milliseconds; then what the C library has of them is released too. */
const SWEPT_MS = 3000;
/** A heap of more than this in use is not collected by {@link ownHeap}, in bytes: nothing else runs meanwhile, 100 ms for 60 MiB. */
const SMALL_HEAP_BYTES = 32 * 1024 * 1024;
/** Memory that has grown by this since the last release is released at the next look, in bytes. */
const GROWN_BYTES = 4 * 1024 * 1024;

/** The part of the process that {@link releaseMemoryAtRest} uses; tests replace it. */
export interface ProcessMemory {
  /** Returns free memory of the C library to the kernel. */
  readonly release: () => Promise<void>;
  /** The resident memory, in bytes. */
  readonly rss: () => number;
  /** Absent for programs that are to keep a large heap. */
  readonly heap?: HeapControl;
}

/** The part of V8's heap that {@link releaseMemoryAtRest} uses. */
export interface HeapControl {
  /** Makes the heap small, once. */
  readonly shrink: () => void;
  /** Collects garbage, and returns the pages that are empty then. Nothing else runs meanwhile. */
  readonly collect: () => void;
  /** The bytes that the heap has in use, garbage included. */
  readonly usedBytes: () => number;
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
 * collected once it is at rest after work. After that a daemon holds no more live objects than before the work; what is left is code that V8 has compiled meanwhile.
 *
 * Before the first release the heap is made small. With these settings from the start, a start would take a third more of the processor, since
 * V8 would collect a heap that only grows.
 */
export function releaseMemoryAtRest(memory: ProcessMemory): void {
  const { heap } = memory;
  let kept = Number.NEGATIVE_INFINITY;
  let looks = 0;
  /** The bytes that the heap had in use when it was collected last. The resident memory does not show garbage, because V8 keeps its pages. */
  let collected = Number.POSITIVE_INFINITY;
  /** The program has worked since then, or that was ten minutes ago: what a program at rest does makes garbage too. */
  let isWorth = true;
  let looksSince = 0;
  let usedMs = 0;
  let leastMs = 0;
  let isFirstMinute = true;
  /** Returns whether garbage was collected. `isFirst`: of a look that is not a minute after the last one. */
  const collectAtRest = (isFirst: boolean): boolean => {
    if (heap === undefined) return false;
    const before = usedMs;
    usedMs = heap.usedMs();
    const spentMs = usedMs - before;
    const isAtRest = spentMs <= Math.max(REST_MS, Math.min(MOST_REST_MS, REST_FACTOR * leastMs));
    if (!isFirst) {
      leastMs = isFirstMinute ? spentMs : Math.min(leastMs, spentMs);
      isFirstMinute = false;
    }
    const used = heap.usedBytes();
    collected = Math.min(collected, used);
    looksSince += 1;
    if (!isAtRest || looksSince >= LOOKS) isWorth = true;
    if (!isAtRest || !isWorth || used - collected < GROWN_BYTES) return false;
    heap.collect();
    collected = heap.usedBytes();
    isWorth = false;
    looksSince = 0;
    return true;
  };
  const look = async (isDue: boolean): Promise<void> => {
    looks += 1;
    const isCollected = collectAtRest(isDue);
    if (!isDue && !isCollected && looks < LOOKS && memory.rss() - kept < GROWN_BYTES) return;
    await releaseNow();
    if (isCollected) setTimeout(() => void unlessShort(releaseNow()), SWEPT_MS).unref();
  };
  const releaseNow = async (): Promise<void> => {
    await memory.release();
    kept = memory.rss();
    looks = 0;
  };
  // Reading the memory's size and loading the library need descriptors. Where there are none, the next look may find some.
  const unlessShort = (work: Promise<void>): Promise<void> =>
    work.catch((error: unknown) => {
      if (!isShortage(error)) throw error;
    });
  const tryLook = (isDue: boolean): Promise<void> => unlessShort(look(isDue));
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

/** The memory of this process. With the profile `small` its heap is kept small; with `host` it is only collected at rest, however large it is. */
export function ownMemory(profile: MemoryProfile): ProcessMemory {
  const memory = { release: releaseOwn, rss: process.memoryUsage.rss };
  switch (profile) {
    case "small":
      return { ...memory, heap: ownHeap };
    case "host":
      return { ...memory, heap: { ...ownHeap, shrink: () => undefined, collect: () => collectHeap() } };
    case "stream":
    case "tables":
      return memory;
  }
}

/**
 * After `shrink` V8 keeps little compiled code and few free pages, and the next collection comes when the heap has grown by a part of what is in use, not by the garbage of
 * thousands of calls. A large heap is not collected: the pause would delay its calls by more than the memory is worth.
 */
const ownHeap: HeapControl = {
  shrink: () => {
    setV8Flag("--optimize-for-size");
    collectSmallHeap({ flavor: "regular" });
  },
  // It compacts, and returns the pages that V8 would keep for later; the other one moves little: after churn a third of the old generation's pages is empty, and stays.
  collect: () => collectSmallHeap({ flavor: "last-resort" }),
  usedBytes: () => {
    const { used_heap_size: used, external_memory: external } = getHeapStatistics();
    return used + external;
  },
  usedMs: () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
};

function collectSmallHeap({ flavor }: { readonly flavor: "regular" | "last-resort" }): void {
  if (getHeapStatistics().used_heap_size <= SMALL_HEAP_BYTES) collectHeap(flavor);
}

function collectHeap(flavor: "regular" | "last-resort" = "last-resort"): void {
  // Without its flag there is no collection to ask for.
  if (!setsV8Flags()) return;
  setV8Flag("--expose-gc");
  (runInNewContext("gc") as (how: object) => void)({ type: "major", execution: "sync", flavor });
}

/** The module is loaded only here, because programs that end at once should not load it. */
async function releaseOwn(): Promise<void> {
  const { releaseFreeMemory } = await import("#kernel/memory");
  releaseFreeMemory();
}
