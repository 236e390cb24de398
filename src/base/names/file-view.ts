import { readFile, stat } from "node:fs/promises";
import type { Clock } from "#base/clock";

/** The time after which the file is checked again, in milliseconds. */
const RECHECK_MS = 5000;
/** The maximum size of a file, in bytes; a larger file is not read. */
const MAX_FILE_BYTES = 1 << 20;

/** The parsed content of a small file, read again after changes; `absent` if the file cannot be read. */
export class FileView<T> {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #parse: (text: string) => T;
  readonly #absent: T;
  #value: T;
  #version = "";
  #checkedAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;

  constructor(
    path: string,
    options: { readonly clock: Clock; readonly parse: (text: string) => T; readonly absent: T },
  ) {
    this.#path = path;
    this.#clock = options.clock;
    this.#parse = options.parse;
    this.#absent = options.absent;
    this.#value = options.absent;
  }

  /** A call while the file is read waits for the new content. */
  async get(): Promise<T> {
    if (this.#reading === undefined && this.#clock.monotonic() - this.#checkedAt >= RECHECK_MS) {
      this.#checkedAt = this.#clock.monotonic();
      this.#reading = this.#refresh().finally(() => {
        this.#reading = undefined;
      });
    }
    await this.#reading;
    return this.#value;
  }

  async #refresh(): Promise<void> {
    try {
      const { mtimeMs, size, ino } = await stat(this.#path);
      const version = `${ino}:${mtimeMs}:${size}`;
      if (version === this.#version || size > MAX_FILE_BYTES) return;
      this.#value = this.#parse(await readFile(this.#path, "utf8"));
      this.#version = version;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
      this.#value = this.#absent;
      this.#version = "";
    }
  }
}
