import { getHeapStatistics } from "node:v8";
import { setV8Flag } from "#base/v8-flags";

/** The number of bytes by which the heap and its buffers may grow between two collections of the old generation. */
const ROOM_BYTES = 24 * 1024 * 1024;
/** When the heap is looked at first, once the program is loaded, and then again, in milliseconds. */
const FIRST_LOOK_MS = 500;
const LOOK_MS = 5000;
/** Below this V8's own rule gives more room. */
const LEAST_PERCENT = 100;

/**
 * Pure: by how many percent of what is in use a heap may grow until the next collection of its old generation, as V8's flag
 * `--heap-growing-percent` takes it; 0: V8's own rule.
 */
export function growthPercent(usedBytes: number): number {
  const percent = Math.ceil((100 * ROOM_BYTES) / Math.max(1, usedBytes));
  return percent < LEAST_PERCENT ? 0 : percent;
}

/**
 * Leaves room for buffers that are read, relayed and garbage a moment later. V8 counts them as growth of the old generation, though each
 * collection of the young one frees them: between two of these they are up to 20 MiB. Its own rule allows a heap of 9 MiB, which a program of
 * the tunnel has, to grow by 8 MiB. So V8 would mark the whole heap a hundred times for each GiB, which takes as much of the processor as the
 * relaying itself. A large heap keeps V8's rule, which allows it more. The timers keep no process alive.
 *
 * V8 takes compiled code only with the flags of its writing. So the flag is set after the start, and is gone when code is written at the end
 * (`load-compiled.ts`).
 */
export function keepHeapRoom(): void {
  let set = 0;
  const look = (): void => {
    const percent = growthPercent(getHeapStatistics().used_heap_size);
    if (percent === set) return;
    set = percent;
    setV8Flag(`--heap-growing-percent=${percent}`);
  };
  setTimeout(look, FIRST_LOOK_MS).unref();
  setInterval(look, LOOK_MS).unref();
  process.prependOnceListener("exit", () => {
    if (set !== 0) setV8Flag("--heap-growing-percent=0");
  });
}
