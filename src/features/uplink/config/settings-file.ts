import { type Clock, systemClock } from "#base/clock";
import { lookAt, watchFiles } from "#base/file";
import { type Logger, nullLogger } from "#base/log";
import { DEFAULT_SETTINGS } from "./defaults.ts";
import { UplinkConfigError } from "./errors.ts";
import { readInput } from "./input-file.ts";
import { parseSettings } from "./parse.ts";
import { type ConfigSource, type ConfigState, Listeners } from "./source.ts";

export interface ConfigDeps {
  readonly log?: Logger;
  readonly clock?: Clock;
}

/**
 * The declarative file (spec uplink-proxy 2.2). A file that is wrong, or gone, changes nothing but `current.error`: what was
 * read before stays in force. Before the first good one there are no uplinks, and nothing is ready.
 */
export class SettingsFile implements ConfigSource {
  readonly #path: string;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #listeners = new Listeners();
  #seen: string;
  #state: ConfigState = { settings: DEFAULT_SETTINGS, ready: false };

  /** Reads the file at once; never throws for what it says. */
  constructor({ log = nullLogger, clock = systemClock }: ConfigDeps, options: { readonly path: string }) {
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
    this.#listeners.tell();
  }

  run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    return watchFiles([this.#path], () => this.reload(), { signal, clock: this.#clock, since: this.#seen });
  }

  #read(): ConfigState {
    try {
      const { settings, refused, notes } = parseSettings(readInput(this.#path), this.#path);
      for (const reason of refused) this.#log.error("uplink refused", { file: this.#path, reason });
      for (const note of notes) this.#log.info(note, { file: this.#path });
      this.#log.info("configuration read", { file: this.#path, uplinks: settings.uplinks.length });
      const error = refused.join("; ");
      return { settings, ready: true, ...(error === "" ? {} : { error }) };
    } catch (error) {
      if (!(error instanceof UplinkConfigError)) throw error;
      this.#log.error("configuration refused; the one before stays in force", { file: this.#path, error });
      return { ...this.#state, error: error.message };
    }
  }
}
