import { ExpectedError } from "#base/errors";

/**
 * - `config-changed`: the configuration file has changed since the start; a supervisor starts the program again
 * - `wrong-family`: the configuration has addresses of another family than the Node
 */
export type ServiceProxyErrorCode = "config-changed" | "wrong-family";

/** An error that ends `service-proxy`. */
export class ServiceProxyError extends ExpectedError<ServiceProxyErrorCode> {
  override readonly name = "ServiceProxyError";
}
