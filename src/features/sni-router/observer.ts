import type { Direction } from "./relay.ts";

/**
 * The outcome of a client. `routed`: it is connected to a backend. Refused: `unknown_name` and `no_name` (no route), `not_tls`,
 * `too_large` and `timeout` (no valid hello), `no_backend` (no backend could be reached), `overload` (too many clients). `gone`: it
 * left before.
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

/** The counters of the router. */
export interface RouterObserver {
  /** Called once for each client. `route` is the name of the route; empty if there is none. */
  decided(route: string, result: RouteResult): void;
  /** The number of connected clients. */
  connected(clients: number): void;
  /** Bytes passed on, without the PROXY header. */
  passed(route: string, direction: Direction, bytes: number): void;
  /** `host:port` could not be reached. */
  backendFailed(backend: string): void;
  /** The routes were read again; `refused`: they are wrong. */
  reloaded(result: "ok" | "refused"): void;
}
