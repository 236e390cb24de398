import type { Settings } from "./settings.ts";

/** The present state of the configuration. Immutable. */
export interface ConfigState {
  readonly settings: Settings;
  /** True when every required input was read at least once (docs/spec/uplink-proxy.md#2.1). */
  readonly ready: boolean;
  /** The reason why the newest input, or a part of the input, is not in force. */
  readonly error?: string;
}

/** A source of settings: a settings file, or documents that other agents publish. */
export interface ConfigSource {
  readonly current: ConfigState;
  /** Called after each change of `current`. */
  onChange(listener: () => void): Disposable;
  /** Reads everything again now (SIGHUP). Never throws: faults are in `current.error`. */
  reload(): void;
  /** Watches the files until the signal aborts. */
  run(options: { readonly signal: AbortSignal }): Promise<void>;
}
