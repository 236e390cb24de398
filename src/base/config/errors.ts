import { ExpectedError } from "#base/errors";

export type ConfigErrorCode = "invalid-flags" | "invalid-value";

/** A command line or value that is not understood. `faults` has one sentence for each thing to mend. */
export class ConfigError extends ExpectedError<ConfigErrorCode> {
  override readonly name = "ConfigError";
  readonly faults: readonly string[];

  constructor(code: ConfigErrorCode, faults: readonly string[]) {
    super(code, faults.join("; "));
    this.faults = faults;
  }
}
