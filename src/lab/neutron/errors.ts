import { ExpectedError } from "#base/errors";

/**
 * - `not-installed`: programs of Debian packages are missing.
 * - `start-failed`: a program ended, or was not ready in time.
 * - `refused`: Neutron answered a request with a status of 400 or more.
 */
export type NeutronBedErrorCode = "not-installed" | "start-failed" | "refused";

/** The bed could not be started, or Neutron refused a request of its own. The message has the program's or Neutron's last words. */
export class NeutronBedError extends ExpectedError<NeutronBedErrorCode> {
  override readonly name = "NeutronBedError";
}
