import { setFlagsFromString } from "node:v8";
import type { IpFamily } from "#base/ip";

/**
 * The first sync leaves half of the heap empty, in pages that V8 would keep: it weighs what is to come against what it has just seen. From
 * here on little comes. So, once all families have been synced, its collections give back what they can; not before, for
 * a start would take half as long again.
 */
export class SmallHeap {
  readonly #waiting: Set<IpFamily>;
  readonly #setFlags: (flags: string) => void;

  /** `setFlags`: of V8. */
  constructor(families: readonly IpFamily[], setFlags: (flags: string) => void = setFlagsFromString) {
    this.#waiting = new Set(families);
    this.#setFlags = setFlags;
  }

  synced(family: IpFamily): void {
    if (this.#waiting.delete(family) && this.#waiting.size === 0) this.#setFlags("--optimize-for-size");
  }
}
