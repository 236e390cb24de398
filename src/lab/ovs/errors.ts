import { ExpectedError } from "#base/errors";

/**
 * - `not-installed`: Debian's package `openvswitch-switch` is missing.
 * - `start-failed`: the database or the switch did not start in time.
 */
export type OvsProcessesErrorCode = "not-installed" | "start-failed";

/** Open vSwitch could not be started. The message has the reason. */
export class OvsProcessesError extends ExpectedError<OvsProcessesErrorCode> {
  override readonly name = "OvsProcessesError";
}
