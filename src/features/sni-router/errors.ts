import { ExpectedError } from "#base/errors";

export type SniRouterErrorCode = "invalid-routes" | "unreadable-routes" | "cannot-listen" | "no-backend";

/** The routes cannot be used, an address cannot be listened on, or no backend of a route answers. */
export class SniRouterError extends ExpectedError<SniRouterErrorCode> {
  override readonly name = "SniRouterError";
}
