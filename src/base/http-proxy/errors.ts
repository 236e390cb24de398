import { ExpectedError } from "#base/errors";

/**
 * - `invalid`: a setting is not the URL of a proxy.
 * - `refused`: the proxy answered that it does not connect.
 * - `unreachable`: the proxy did not answer.
 */
export type HttpProxyErrorCode = "invalid" | "refused" | "unreachable";

/** A proxy that cannot be used. The message never has its password. */
export class HttpProxyError extends ExpectedError<HttpProxyErrorCode> {
  override readonly name = "HttpProxyError";
}
