import { assertNever, ExpectedError } from "#base/errors";
import { isKernelError, type KernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { Route, RouteKey } from "#kernel/route";
import { TABLE_MAIN } from "../state/index.ts";
import type { RoutingChange } from "./changes.ts";

/** `partial`: the kernel refused some changes; the others were made. */
export type RoutingErrorCode = "partial";

/** The kernel refused some changes; `cause` has every refusal. */
export class RoutingError extends ExpectedError<RoutingErrorCode> {
  override readonly name = "RoutingError";
}

/** Maximum number of refusals that a message lists. */
const MAX_SHOWN = 3;

/**
 * Makes every change that the kernel accepts: an error of one uplink does not affect the others. A rule whose table has no end marker is
 * not added, and a table whose rule could not be deleted is not emptied. The process may end at any step; a later
 * call with a new plan then makes the rest. A change that another program has made meanwhile is not a failure. Throws {@link RoutingError}
 * after all changes were tried.
 */
export function applyRouting(stack: Pick<NetStack, "routes" | "rules">, plan: readonly RoutingChange[]): void {
  const refusals: KernelError[] = [];
  const unsafe = new Set<string>();
  for (const change of plan) {
    if (unsafe.has(placeOf(change)) && change.op !== "add-route" && change.op !== "replace-route") continue;
    try {
      makeChange(stack, change);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      if (isMoot(change, error)) continue;
      refusals.push(error);
      if (guards(change)) unsafe.add(placeOf(change));
    }
  }
  if (refusals.length === 0) return;
  const shown = refusals.slice(0, MAX_SHOWN).map(({ message }) => message);
  const more = refusals.length > MAX_SHOWN ? ` and ${refusals.length - MAX_SHOWN} others` : "";
  const summary = `${refusals.length} of ${plan.length} changes of uplink routing failed: ${shown.join("; ")}${more}`;
  throw new RoutingError("partial", summary, { cause: new AggregateError(refusals) });
}

function makeChange({ routes, rules }: Pick<NetStack, "routes" | "rules">, change: RoutingChange): void {
  if (change.op === "add-route") routes.add(change.route);
  else if (change.op === "replace-route") routes.replace(change.route);
  else if (change.op === "delete-route") routes.delete(keyOf(change.route));
  else if (change.op === "add-rule") rules.add(change.rule, { besideEqual: change.besideEqual === true });
  else if (change.op === "delete-rule") rules.delete(change.rule);
  else assertNever(change);
}

/** The attributes that identify a route to the kernel. */
function keyOf({ dst, table, protocol, type, linkIndex, gateway, metric }: Route): RouteKey {
  return { dst, table, protocol, type, linkIndex, gateway, metric };
}

/** Returns true if the error means that another program made the change first, or that the link was removed together with its routes. */
function isMoot({ op }: RoutingChange, error: KernelError): boolean {
  if (op === "delete-route" || op === "delete-rule") return error.code === "not-found" || error.code === "no-device";
  return error.code === "already-exists";
}

/** Returns true if later changes of the same table and family depend on this change. */
function guards(change: RoutingChange): boolean {
  if (change.op === "delete-rule") return true;
  // In the main table, a route with its new metric is added before the route with the old metric is deleted.
  return change.op === "add-route" && (change.route.type === "unreachable" || change.route.table === TABLE_MAIN);
}

function placeOf(change: RoutingChange): string {
  return "rule" in change
    ? `${change.rule.family} ${change.rule.table}`
    : `${change.route.dst.family} ${change.route.table}`;
}
