import { ExpectedError } from "#base/errors";

/** `invalid-address`: the text is not an IP address to listen on; `cannot-listen`: the kernel refused the address. */
export type ServiceHealthErrorCode = "invalid-address" | "cannot-listen";

/** Thrown by everything in this module. */
export class ServiceHealthError extends ExpectedError<ServiceHealthErrorCode> {
  override readonly name = "ServiceHealthError";
}
