import { readFileSync, statSync } from "node:fs";
import { describeError } from "#base/errors";

/**
 * Files that other programs rewrite (secret volumes swap symlinks, docs/spec/pod-network.md#2.6), and what is made of their texts. They are read when that is
 * asked for, and again when a modification time changes, or when they could not be read. Texts that cannot be used leave the last value in force.
 */
export class FollowedFiles<T> {
  readonly #paths: readonly string[];
  readonly #make: (texts: readonly string[]) => T;
  readonly #onFault: (why: string) => void;
  #stamp = "";
  /** The reason why the files could not be used the last time. */
  #fault = "";
  #value: T | undefined;

  /** `make` throws for texts that cannot be used. `onFault` is called once for each state of the files that cannot be used. */
  constructor(
    paths: readonly string[],
    make: (texts: readonly string[]) => T,
    onFault: (why: string) => void = () => undefined,
  ) {
    this.#paths = paths;
    this.#make = make;
    this.#onFault = onFault;
  }

  /** The value that counts now; `undefined` if there was none yet. Synchronous, because it runs when a connection arrives. */
  current(): T | undefined {
    try {
      const stamp = this.#look();
      if (stamp === this.#stamp) return this.#value;
      const texts = this.#paths.map((path) => readFileSync(path, "utf8"));
      // Only what was read needs no other look: a read may have failed for want of descriptors.
      this.#stamp = stamp;
      this.#fault = "";
      this.#value = this.#make(texts);
    } catch (error) {
      // Files and OpenSSL fail in many ways; each means the same: the value that works is kept.
      const why = `${this.#paths[0]}: ${describeError(error)}`;
      if (why !== this.#fault) this.#onFault(why);
      this.#fault = why;
    }
    return this.#value;
  }

  /** Identifies the state of the files. */
  #look(): string {
    return this.#paths
      .map((path) => {
        const stat = statSync(path, { throwIfNoEntry: false });
        return stat === undefined ? "absent" : `${stat.ino}:${stat.mtimeMs}:${stat.size}`;
      })
      .join(" ");
  }
}
