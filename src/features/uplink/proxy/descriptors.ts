import { readdir, readFile } from "node:fs/promises";
import { sleep } from "#base/async";
import type { Clock } from "#base/clock";
import type { Room } from "../front/index.ts";

/** Above this share of the limit nothing new is begun (spec uplink-proxy 9.3). */
const MAX_SHARE = 0.9;
/** Between two counts, milliseconds. */
const PAUSE_MS = 1000;
/** With fewer tunnels than this share of the limit there is nothing to count: each has two descriptors. */
const MIN_SHARE = 0.25;

/** Watches how many descriptors the process has left, and closes the {@link Room} when they run out. */
export class DescriptorWatch {
  readonly #room: Room;
  readonly #clock: Clock;
  readonly #list: () => Promise<readonly string[]>;

  /** `list` gives the names of the descriptors that are open; default: those of this process. */
  constructor(room: Room, clock: Clock, list = (): Promise<readonly string[]> => readdir("/proc/self/fd")) {
    this.#room = room;
    this.#clock = clock;
    this.#list = list;
  }

  /** Until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const limit = parseOpenFiles(await readFile("/proc/self/limits", "utf8"));
    while (!signal.aborted) {
      const isNear = this.#room.tunnels >= limit * MIN_SHARE || this.#room.isStarved;
      if (isNear) this.#room.isStarved = (await this.#count()) >= limit * MAX_SHARE;
      await sleep(PAUSE_MS, { signal, clock: this.#clock });
    }
  }

  async #count(): Promise<number> {
    try {
      return (await this.#list()).length;
    } catch (error) {
      // To count them takes one: where there is none, all are in use.
      if (!isExhausted(error)) throw error;
      return Number.POSITIVE_INFINITY;
    }
  }
}

function isExhausted(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "EMFILE" || code === "ENFILE";
}

/** The soft limit of open files in the text of /proc/self/limits (proc(5)); infinity where there is none. */
export function parseOpenFiles(text: string): number {
  const match = /^Max open files\s+(\d+)/m.exec(text);
  return match === null ? Number.POSITIVE_INFINITY : Number(match[1]);
}
