import { ExpectedError } from "#base/errors";

/**
 * - `config-changed`: the configuration file says something else than at the start; a supervisor starts the program again
 * - `kernel-too-old`: for the rules of Services
 */
export type ServiceProxyErrorCode = "config-changed" | "kernel-too-old";

/** What ends `service-proxy`, beside a command line that is wrong. */
export class ServiceProxyError extends ExpectedError<ServiceProxyErrorCode> {
  override readonly name = "ServiceProxyError";
}
