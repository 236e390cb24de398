import type { NetStack } from "#kernel/net";
import type { RouteSpec } from "#kernel/route";
import { applyRoutes, planRoutes } from "./plan.ts";

export interface RouteSyncOptions {
  readonly table: number;
  readonly protocol: number;
}

/** Keeps the routes of one table and protocol as they should be. */
export class RouteSync {
  readonly #stack: Pick<NetStack, "routes">;
  readonly #options: RouteSyncOptions;

  constructor(stack: Pick<NetStack, "routes">, options: RouteSyncOptions) {
    this.#stack = stack;
    this.#options = options;
  }

  /** Adds what is missing, replaces what leads elsewhere, deletes the rest of ours. Returns how many changes that took. */
  sync(desired: readonly RouteSpec[]): number {
    const { table, protocol } = this.#options;
    const actual = ([4, 6] as const).flatMap((family) => this.#stack.routes.list({ family, table, protocol }));
    const plan = planRoutes(actual, desired);
    applyRoutes(this.#stack.routes, plan);
    return plan.length;
  }

  /** Deletes every route of ours. */
  clear(): number {
    return this.sync([]);
  }
}
