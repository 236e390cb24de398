import type { IpFamily } from "#base/ip";
import { setV8Flag } from "#base/v8-flags";

/**
 * Makes V8 return memory after all families have been synced. The first sync leaves half of the heap empty, in pages that V8 would keep
 * for the next peak, but later syncs are small. The flags are not set earlier, because the start would then take 1.5 times as long.
 */
export class SmallHeap {
  readonly #waiting: Set<IpFamily>;
  readonly #setFlags: (flags: string) => void;

  /** `setFlags` sets flags of V8; tests replace it. */
  constructor(families: readonly IpFamily[], setFlags: (flags: string) => void = setV8Flag) {
    this.#waiting = new Set(families);
    this.#setFlags = setFlags;
  }

  synced(family: IpFamily): void {
    if (this.#waiting.delete(family) && this.#waiting.size === 0) this.#setFlags("--optimize-for-size");
  }
}
