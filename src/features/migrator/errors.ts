import { ExpectedError } from "#base/errors";

/**
 * - `invalid-data`: the data of v1 cannot be converted; {@link MigratorError.faults} has every fault.
 * - `invalid-export`: the file is not an export of etcd.
 * - `etcd-unreachable`: no endpoint gave an answer. `etcd-refused`: etcd has refused the request.
 * - `compacted`: etcd no longer has the requested revision.
 * - `stale-export`: v1 was still installed when the export was made.
 * - `stuck`: an object still exists after the time limit of its deletion.
 */
export type MigratorErrorCode =
  | "invalid-data"
  | "invalid-export"
  | "etcd-unreachable"
  | "etcd-refused"
  | "compacted"
  | "stale-export"
  | "stuck";

/** The migration cannot continue. */
export class MigratorError extends ExpectedError<MigratorErrorCode> {
  override readonly name = "MigratorError";
  /** Each fault of `invalid-data`, with its key; otherwise empty. */
  readonly faults: readonly string[];

  constructor(
    code: MigratorErrorCode,
    message: string,
    init: { readonly cause?: unknown; readonly faults?: readonly string[] } = {},
  ) {
    super(code, message, "cause" in init ? { cause: init.cause } : {});
    this.faults = init.faults ?? [];
  }
}
