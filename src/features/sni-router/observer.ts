import type { Direction } from "./relay.ts";

/**
 * What became of a client. `routed`: a backend has it. Refused: `unknown_name` and `no_name` have no route,
 * `not_tls`, `too_large` and `timeout` are of no proper hello, `no_backend` could be reached, `overload`: too many
 * clients. `gone`: it left before.
 */
export type RouteResult =
  | "routed"
  | "unknown_name"
  | "no_name"
  | "not_tls"
  | "too_large"
  | "timeout"
  | "gone"
  | "no_backend"
  | "overload";

/** Who counts. */
export interface RouterObserver {
  /** Once for each client. `route` is the name of the route, empty when it came to none. */
  decided(route: string, result: RouteResult): void;
  /** How many clients are connected now. */
  connected(clients: number): void;
  /** Bytes passed on, without the PROXY header. */
  passed(route: string, direction: Direction, bytes: number): void;
  /** `host:port` could not be reached. */
  backendFailed(backend: string): void;
}
