import { ExpectedError } from "#base/errors";
import { isKernelError, type KernelError } from "#kernel/errors";
import type { Route, RouteKey, RoutePort, RouteSpec } from "#kernel/route";

/** One change from the actual to the wanted routes. */
export type RouteChange =
  | { readonly op: "set"; readonly route: RouteSpec }
  | { readonly op: "unset"; readonly route: RouteKey };

/**
 * The changes from `actual` to `wanted`. Both hold the routes of one table and protocol, `wanted` one route for each prefix. A route that
 * is set replaces the route of the same prefix atomically. Routes are set before others are deleted, so that no prefix is without its route
 * in between. Pure.
 */
export function planRoutes(actual: Iterable<Route>, wanted: Iterable<RouteSpec>): RouteChange[] {
  const stale = new Map<string, Route>();
  const surplus: Route[] = [];
  for (const route of actual) {
    const key = route.dst.toString();
    if (stale.has(key)) surplus.push(route);
    else stale.set(key, route);
  }
  const plan: RouteChange[] = [];
  for (const route of wanted) {
    const key = route.dst.toString();
    const before = stale.get(key);
    if (before === undefined || !sameWay(before, route)) plan.push({ op: "set", route });
    stale.delete(key);
  }
  for (const route of [...stale.values(), ...surplus]) plan.push({ op: "unset", route });
  return plan;
}

/** `partial`: the kernel refused some changes; the others were made. */
export type RouteSyncErrorCode = "partial";

/** The changes that the kernel refused. The message names prefixes; `cause` has every refusal. */
export class RouteSyncError extends ExpectedError<RouteSyncErrorCode> {
  override readonly name = "RouteSyncError";
}

/** A message names at most this many refusals. */
const TOLD = 3;

/**
 * Makes every change that can be made: if one node is unreachable, the routes of the other nodes are still set. Idempotent: may be run
 * again with a new plan. Throws {@link RouteSyncError} after all changes were tried.
 */
export function applyRoutes(routes: Pick<RoutePort, "replace" | "delete">, plan: readonly RouteChange[]): void {
  const refusals: KernelError[] = [];
  for (const change of plan) {
    try {
      if (change.op === "set") routes.replace(change.route);
      else routes.delete(change.route);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      refusals.push(error);
    }
  }
  if (refusals.length === 0) return;
  const told = refusals.slice(0, TOLD).map(({ message }) => message);
  const more = refusals.length > TOLD ? ` and ${refusals.length - TOLD} others` : "";
  throw new RouteSyncError(
    "partial",
    `${refusals.length} of ${plan.length} route changes failed: ${told.join("; ")}${more}`,
    {
      cause: new AggregateError(refusals),
    },
  );
}

function sameWay(a: Route, b: RouteSpec): boolean {
  const gateways =
    a.gateway === undefined ? b.gateway === undefined : b.gateway !== undefined && a.gateway.equals(b.gateway);
  return gateways && (b.linkIndex === undefined || a.linkIndex === b.linkIndex) && a.type === (b.type ?? "unicast");
}
