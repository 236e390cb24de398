import type { Direction } from "./relay.ts";

/**
 * The outcome of a client. `routed`: the client is connected to a backend. Refused clients: `unknown_name` and `no_name` (no route),
 * `not_tls`, `too_large` and `timeout` (no valid hello), `no_header` (a balancer that has to send a PROXY header sent none), `no_backend` (no backend could be reached), `overload` (too many clients). `gone`:
 * the client left before its outcome was decided.
 */
export type RouteResult =
  | "routed"
  | "unknown_name"
  | "no_name"
  | "not_tls"
  | "too_large"
  | "timeout"
  | "no_header"
  | "gone"
  | "no_backend"
  | "overload";

/** The counters of the router. */
export interface RouterObserver {
  /** Called once for each client. `route` is the name of the route; empty if there is none. */
  decided(route: string, result: RouteResult): void;
  /** The number of connected clients. */
  connected(clients: number): void;
  /** Bytes were passed on; the PROXY header does not count. */
  passed(route: string, direction: Direction, bytes: number): void;
  /** `host:port` could not be reached. */
  backendFailed(backend: string): void;
  /** The routes were read again; `refused`: the new routes are wrong. */
  reloaded(result: "ok" | "refused"): void;
}
