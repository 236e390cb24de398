import { ExpectedError } from "#base/errors";

export type SniRouterErrorCode = "invalid-routes" | "unreadable-routes" | "cannot-listen" | "no-backend";

/** Routes that cannot be used, an address that cannot be listened on, or a route none of whose backends answers. */
export class SniRouterError extends ExpectedError<SniRouterErrorCode> {
  override readonly name = "SniRouterError";
}
