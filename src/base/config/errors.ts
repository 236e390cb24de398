import { ExpectedError } from "#base/errors";

export type ConfigErrorCode = "invalid-flags" | "invalid-value";

/** A command line or a value is not valid. `faults` has one sentence for each fault. */
export class ConfigError extends ExpectedError<ConfigErrorCode> {
  override readonly name = "ConfigError";
  readonly faults: readonly string[];

  constructor(code: ConfigErrorCode, faults: readonly string[]) {
    super(code, faults.join("; "));
    this.faults = faults;
  }
}
