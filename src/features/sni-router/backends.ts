import type { Clock } from "#base/clock";
import { formatHostPort, type HostPort } from "#wire/http-connect";
import type { Route, RouteTable } from "./routes.ts";

/** A backend that could not be reached is tried after the others for so long, milliseconds. */
export const AVOID_MS = 10_000;

/**
 * In which order the backends of a route are tried. They take turns: an agent connects again and again through one address
 * until it has met every proxy server, so always the same one would never do.
 */
export class BackendOrder {
  readonly #clock: Clock;
  readonly #turns = new WeakMap<Route, number>();
  /** When those that failed last did so, by `host:port`; never more than the routes have. */
  readonly #failedAt = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Each backend once, beginning with the next in turn; those that failed lately come last. */
  next(route: Route): readonly HostPort[] {
    const turn = this.#turns.get(route) ?? 0;
    this.#turns.set(route, (turn + 1) % route.backends.length);
    const rotated = [...route.backends.slice(turn), ...route.backends.slice(0, turn)];
    const { good = [], avoided = [] } = Object.groupBy(rotated, (one) => (this.#isAvoided(one) ? "avoided" : "good"));
    return [...good, ...avoided];
  }

  /** True when the backend had been well until now. */
  failed(backend: HostPort): boolean {
    const key = formatHostPort(backend);
    const isNew = !this.#failedAt.has(key);
    this.#failedAt.set(key, this.#clock.monotonic());
    return isNew;
  }

  /** True when the backend had failed the time before. */
  connected(backend: HostPort): boolean {
    return this.#failedAt.delete(formatHostPort(backend));
  }

  /** Forgets backends that no route has any more. */
  keepOnly(table: RouteTable): void {
    const known = table.backends;
    for (const key of this.#failedAt.keys()) if (!known.has(key)) this.#failedAt.delete(key);
  }

  #isAvoided(backend: HostPort): boolean {
    const failedAt = this.#failedAt.get(formatHostPort(backend));
    return failedAt !== undefined && this.#clock.monotonic() - failedAt < AVOID_MS;
  }
}
