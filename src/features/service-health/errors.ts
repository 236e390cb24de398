import { ExpectedError } from "#base/errors";

/** `invalid-address`: not an IP address to listen on; `cannot-listen`: the kernel refused it. */
export type ServiceHealthErrorCode = "invalid-address" | "cannot-listen";

/** Thrown by everything in this module. */
export class ServiceHealthError extends ExpectedError<ServiceHealthErrorCode> {
  override readonly name = "ServiceHealthError";
}
