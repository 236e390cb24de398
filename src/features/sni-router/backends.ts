import type { Clock } from "#base/clock";
import { formatHostPort, type HostPort } from "#wire/http-connect";
import type { Route, RouteTable } from "./routes.ts";

/** For this time after a failed attempt, a backend is tried after the others, in milliseconds. */
export const AVOID_MS = 10_000;

/**
 * The order in which the backends of a route are tried: round robin. An agent connects again and again through one address until it
 * has met every proxy server, so the same backend must not always be first.
 */
export class BackendOrder {
  readonly #clock: Clock;
  readonly #turns = new WeakMap<Route, number>();
  /** The time of the last failure by `host:port`. The map has only backends of the routes, so its size is limited. */
  readonly #failedAt = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Each backend once, beginning with the next one; backends that failed within {@link AVOID_MS} are last. */
  next(route: Route): readonly HostPort[] {
    const turn = this.#turns.get(route) ?? 0;
    this.#turns.set(route, (turn + 1) % route.backends.length);
    const rotated = [...route.backends.slice(turn), ...route.backends.slice(0, turn)];
    const { good = [], avoided = [] } = Object.groupBy(rotated, (one) => (this.#isAvoided(one) ? "avoided" : "good"));
    return [...good, ...avoided];
  }

  /** Records a failure. Returns true if the backend had not failed before. */
  failed(backend: HostPort): boolean {
    const key = formatHostPort(backend);
    const isNew = !this.#failedAt.has(key);
    this.#failedAt.set(key, this.#clock.monotonic());
    return isNew;
  }

  /** Records a success. Returns true if the backend had failed before. */
  connected(backend: HostPort): boolean {
    return this.#failedAt.delete(formatHostPort(backend));
  }

  /** Forgets backends that no route has. */
  keepOnly(table: RouteTable): void {
    const known = table.backends;
    for (const key of this.#failedAt.keys()) if (!known.has(key)) this.#failedAt.delete(key);
  }

  #isAvoided(backend: HostPort): boolean {
    const failedAt = this.#failedAt.get(formatHostPort(backend));
    return failedAt !== undefined && this.#clock.monotonic() - failedAt < AVOID_MS;
  }
}
