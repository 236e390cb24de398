import type { Clock } from "#base/clock";
import { fingerprint, lookAt, watchFiles } from "#base/file";
import type { Logger } from "#base/log";
import {
  type ConfigSource,
  type ConfigState,
  DEFAULT_SETTINGS,
  type Settings,
  type UplinkSettings,
} from "#base/uplink-model";
import { UplinkConfigError } from "./errors.ts";
import { EVE_DEFAULTS, type EveGlobalConfig, parseGlobalConfig, parseNetworkStatus } from "./eve-documents.ts";
import { readInput } from "./input-file.ts";
import { Listeners } from "./listeners.ts";
import type { ConfigDeps } from "./settings-file.ts";

export interface EveInputOptions {
  /** Path of nim's `DeviceNetworkStatus`. */
  readonly statusFile: string;
  /** Path of zedagent's `ConfigItemValueMap`. */
  readonly globalConfigFile: string;
  /** Values for settings that the documents do not have; the uplinks in it are ignored. Default: the default settings. */
  readonly base?: Settings;
}

/**
 * Follows the two documents that EVE's agents publish (docs/spec/uplink-proxy.md#2.1). Ready once both were read. If the status is deleted,
 * the list of uplinks becomes empty; if the configuration is deleted, nothing changes. If a document is malformed, its last valid content
 * stays in force. EVE programs the routing of its uplinks itself, so this suite's routing is off.
 */
export class EveInputs implements ConfigSource {
  readonly #options: EveInputOptions;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #listeners = new Listeners();
  #seen: string;
  #uplinks: readonly UplinkSettings[] = [];
  #global: EveGlobalConfig = EVE_DEFAULTS;
  #sawStatus = false;
  #sawGlobal = false;
  #loggedZeroTimer = false;
  #state: ConfigState;

  constructor({ log, clock }: ConfigDeps, options: EveInputOptions) {
    this.#options = options;
    this.#log = log;
    this.#clock = clock;
    this.#seen = lookAt(this.#paths);
    this.#state = this.#read();
  }

  get current(): ConfigState {
    return this.#state;
  }

  onChange(listener: () => void): Disposable {
    return this.#listeners.add(listener);
  }

  reload(): void {
    this.#seen = lookAt(this.#paths);
    this.#state = this.#read();
    this.#listeners.notify();
  }

  run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    return watchFiles(this.#paths, () => this.reload(), { signal, clock: this.#clock, since: this.#seen });
  }

  get #paths(): readonly string[] {
    return [this.#options.statusFile, this.#options.globalConfigFile];
  }

  #read(): ConfigState {
    const errors = [this.#attempt(() => this.#readStatus()), this.#attempt(() => this.#readGlobal())];
    const error = errors.filter((text) => text !== undefined).join("; ");
    const base = this.#options.base ?? DEFAULT_SETTINGS;
    return {
      settings: {
        ...base,
        maxCost: this.#global.maxCost,
        dialTimeoutMs: this.#global.dialTimeoutMs,
        uplinks: this.#uplinks,
        routing: { ...base.routing, manage: false },
        probe: { ...base.probe, targets: [] },
      },
      ready: this.#sawStatus && this.#sawGlobal,
      ...(error === "" ? {} : { error }),
    };
  }

  #readStatus(): void {
    const { statusFile } = this.#options;
    if (fingerprint(statusFile) === "absent") {
      this.#uplinks = [];
      return;
    }
    this.#uplinks = parseNetworkStatus(readInput(statusFile), statusFile);
    this.#sawStatus = true;
  }

  #readGlobal(): void {
    const { globalConfigFile } = this.#options;
    if (fingerprint(globalConfigFile) === "absent") return;
    this.#global = parseGlobalConfig(readInput(globalConfigFile), globalConfigFile, this.#global);
    this.#sawGlobal = true;
    if (this.#global.zeroTimer && !this.#loggedZeroTimer) {
      this.#loggedZeroTimer = true;
      this.#log.warn("timer.dial.timeout is 0; the default value is used instead", {
        dialTimeoutMs: this.#global.dialTimeoutMs,
      });
    }
  }

  #attempt(work: () => void): string | undefined {
    try {
      work();
      return undefined;
    } catch (error) {
      if (!(error instanceof UplinkConfigError)) throw error;
      this.#log.error("a published document was refused; the document before it stays in force", { error });
      return error.message;
    }
  }
}
