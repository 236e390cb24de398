import { ExpectedError } from "#base/errors";

/**
 * - `config-changed`: the configuration file has changed since the start; a supervisor starts the program again
 */
export type ServiceProxyErrorCode = "config-changed";

/** An error that ends `service-proxy`. */
export class ServiceProxyError extends ExpectedError<ServiceProxyErrorCode> {
  override readonly name = "ServiceProxyError";
}
