import { readFile } from "node:fs/promises";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { KubeConfigError } from "./errors.ts";

/** The time after which tokens and certificates on disk are read again, in milliseconds; projected tokens change every hour or so. */
export const FILE_TTL_MS = 60_000;

/** A small file that other programs rewrite. */
export class CachedFile {
  readonly #path: string;
  readonly #what: string;
  readonly #clock: Clock;
  #value: string | undefined;
  #readAt = 0;

  /** `what` is the name of the setting that has the file's path, for messages. */
  constructor(path: string, what: string, clock: Clock) {
    this.#path = path;
    this.#what = what;
    this.#clock = clock;
  }

  /** The content, at most a minute old. If the file cannot be read now, the last content is returned; rejects if there is none. */
  async read(): Promise<string> {
    const now = this.#clock.monotonic();
    if (this.#value !== undefined && now - this.#readAt < FILE_TTL_MS) return this.#value;
    try {
      const text = await readFile(this.#path, "utf8");
      // A file that is empty is being written at the moment.
      if (text !== "" || this.#value === undefined) this.#value = text;
    } catch (cause) {
      // The file may be absent for a moment while it is rewritten; its last content is used until the server refuses it.
      if (this.#value === undefined) {
        throw new KubeConfigError(
          "unreadable",
          `Cannot read ${this.#path}, named by ${this.#what}: ${describeError(cause)}`,
          {
            cause,
          },
        );
      }
    }
    this.#readAt = now;
    return this.#value;
  }

  /** Makes the next {@link read} read from disk. */
  expire(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
  }
}
