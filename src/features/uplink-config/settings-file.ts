import type { Clock } from "#base/clock";
import { LOOK_MS, lookAt, watchFiles } from "#base/file";
import type { Logger } from "#base/log";
import { type ConfigSource, type ConfigState, DEFAULT_SETTINGS } from "#base/uplink-model";
import { UplinkConfigError } from "./errors.ts";
import { readInput } from "./input-file.ts";
import { Listeners } from "./listeners.ts";
import { parseSettings } from "./parse.ts";

const WHAT_TO_DO = "replace the file by a rename, or send SIGHUP";

export interface ConfigDeps {
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Follows the declarative file (docs/spec/uplink-proxy.md#2.2). A wrong or missing file changes only `current.error`: the settings that
 * were read before stay in force. Before the first valid file there are no uplinks, and `ready` is false.
 *
 * A file that replaces another by a rename is read at once. A file that is written in place is read when nobody has written to
 * it for a moment; if it has become shorter, the write may have been cut off, and only {@link reload} adopts it.
 */
export class SettingsFile implements ConfigSource {
  readonly #path: string;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #listeners = new Listeners();
  #seen: string;
  /** Fingerprint of the file that the settings in force were read from; empty while there are none. */
  #adopted = "";
  #cancelSettle: (() => void) | undefined;
  #state: ConfigState = { settings: DEFAULT_SETTINGS, ready: false };

  /** Reads the file at once. Does not throw if the content is wrong. */
  constructor({ log, clock }: ConfigDeps, options: { readonly path: string }) {
    this.#path = options.path;
    this.#log = log;
    this.#clock = clock;
    this.#seen = lookAt([this.#path]);
    this.#state = this.#read();
  }

  get current(): ConfigState {
    return this.#state;
  }

  onChange(listener: () => void): Disposable {
    return this.#listeners.add(listener);
  }

  reload(): void {
    this.#seen = lookAt([this.#path]);
    this.#state = this.#read();
    this.#listeners.notify();
  }

  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    try {
      await watchFiles([this.#path], () => this.#changed(), { signal, clock: this.#clock, since: this.#seen });
    } finally {
      this.#cancelSettle?.();
    }
  }

  #changed(): void {
    this.#cancelSettle?.();
    const now = lookAt([this.#path]);
    if (!isSameFile(now, this.#adopted)) {
      this.reload();
      return;
    }
    // Each further write calls this function again, which restarts the timer.
    this.#cancelSettle = this.#clock.after(LOOK_MS - 1, () => {
      if (lookAt([this.#path]) === now) this.#writtenInPlace(now);
    });
  }

  #writtenInPlace(now: string): void {
    if (sizeOf(now) >= sizeOf(this.#adopted)) {
      this.reload();
      return;
    }
    const error = this.#fault() ?? `${this.#path} was written in place and is shorter than before: ${WHAT_TO_DO}`;
    this.#log.error("the changed configuration was not read; the earlier configuration stays in force", { error });
    this.#state = { ...this.#state, error };
    this.#listeners.notify();
  }

  /** The fault of the file as it is now; `undefined` if the file is valid. */
  #fault(): string | undefined {
    try {
      parseSettings(readInput(this.#path), this.#path);
      return undefined;
    } catch (error) {
      if (!(error instanceof UplinkConfigError)) throw error;
      return error.message;
    }
  }

  #read(): ConfigState {
    try {
      const { settings, refused, notes } = parseSettings(readInput(this.#path), this.#path);
      for (const reason of refused) this.#log.error("uplink refused", { file: this.#path, reason });
      for (const note of notes) this.#log.info(note, { file: this.#path });
      this.#log.info("configuration read", { file: this.#path, uplinks: settings.uplinks.length });
      const error = refused.join("; ");
      this.#adopted = this.#seen;
      return { settings, ready: true, ...(error === "" ? {} : { error }) };
    } catch (error) {
      if (!(error instanceof UplinkConfigError)) throw error;
      this.#log.error("the changed configuration was refused; the earlier configuration stays in force", {
        file: this.#path,
        error,
      });
      return { ...this.#state, error: error.message };
    }
  }
}

/** Returns true if two fingerprints `dev:ino:mtime:size` are of the same file. */
function isSameFile(a: string, b: string): boolean {
  const identity = (text: string): string => text.split(":").slice(0, 2).join(":");
  return identity(a) === identity(b);
}

function sizeOf(fingerprint: string): number {
  return Number(fingerprint.split(":")[3] ?? 0);
}
