import type { NetStack } from "#kernel/net";
import type { Route, RouteSpec } from "#kernel/route";
import { applyRoutes, planRoutes } from "./plan.ts";

export interface RouteSyncOptions {
  readonly table: number;
  readonly protocol: number;
}

/** Brings the routes of one table and protocol to the wanted state. */
export class RouteSync {
  readonly #stack: Pick<NetStack, "routes">;
  readonly #options: RouteSyncOptions;

  constructor(stack: Pick<NetStack, "routes">, options: RouteSyncOptions) {
    this.#stack = stack;
    this.#options = options;
  }

  /** Adds missing routes, replaces wrong ones, and deletes our other routes. Returns the number of changes. */
  sync(wanted: readonly RouteSpec[]): number {
    const plan = planRoutes(this.list(), wanted);
    applyRoutes(this.#stack.routes, plan);
    return plan.length;
  }

  /** Our routes that the kernel has. */
  list(): Route[] {
    const { table, protocol } = this.#options;
    return ([4, 6] as const).flatMap((family) => this.#stack.routes.list({ family, table, protocol }));
  }

  /** Deletes all our routes. Returns their number. */
  clear(): number {
    return this.sync([]);
  }
}
