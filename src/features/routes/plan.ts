import type { Route, RoutePort, RouteSpec } from "#kernel/route";

/** One difference between the routes that are and those that should be. */
export type RouteChange =
  | { readonly op: "set"; readonly route: RouteSpec }
  | { readonly op: "unset"; readonly route: Route };

/**
 * Pure. Both sides hold the routes of one table and protocol, `desired` one for each prefix. What is set replaces what
 * has the same prefix, atomically; sets come before unsets, so coverage never shrinks midway.
 */
export function planRoutes(actual: Iterable<Route>, desired: Iterable<RouteSpec>): RouteChange[] {
  const stale = new Map<string, Route>();
  const surplus: Route[] = [];
  for (const route of actual) {
    const key = route.dst.toString();
    if (stale.has(key)) surplus.push(route);
    else stale.set(key, route);
  }
  const plan: RouteChange[] = [];
  for (const route of desired) {
    const key = route.dst.toString();
    const before = stale.get(key);
    if (before === undefined || !sameWay(before, route)) plan.push({ op: "set", route });
    stale.delete(key);
  }
  for (const route of [...stale.values(), ...surplus]) plan.push({ op: "unset", route });
  return plan;
}

/** Idempotent: may stop at any step and be run again from a fresh plan. Throws `KernelError`. */
export function applyRoutes(routes: Pick<RoutePort, "replace" | "delete">, plan: readonly RouteChange[]): void {
  for (const change of plan) {
    if (change.op === "set") routes.replace(change.route);
    else routes.delete(change.route);
  }
}

function sameWay(a: Route, b: RouteSpec): boolean {
  const gateways =
    a.gateway === undefined ? b.gateway === undefined : b.gateway !== undefined && a.gateway.equals(b.gateway);
  return gateways && (b.linkIndex === undefined || a.linkIndex === b.linkIndex) && a.type === (b.type ?? "unicast");
}
