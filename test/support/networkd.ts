/**
 * The effect of systemd-networkd on others' rules and routes when it starts or reloads.
 *
 * Owns: {@link reloadAsNetworkd}. Does not know: who has made them.
 */
import type { NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";

/** RTPROT_KERNEL of linux/rtnetlink.h. */
const PROTOCOL_KERNEL = 2;

/**
 * Removes the routing policy rules and routes that systemd-networkd has not configured, as it does with ManageForeignRoutingPolicyRules=yes and ManageForeignRoutes=yes,
 * its defaults (manager_drop_foreign_routing_policy_rules, link_drop_foreign_routes): all but those of the kernel. `isOwn`: the routes that it has configured. Returns
 * the numbers of removed objects.
 */
export function reloadAsNetworkd(
  stack: NetStack,
  isOwn: (route: Route) => boolean = () => false,
): { readonly rules: number; readonly routes: number } {
  const removed = { rules: 0, routes: 0 };
  for (const family of [4, 6] as const) {
    for (const rule of stack.rules.list(family)) {
      if (rule.protocol === PROTOCOL_KERNEL) continue;
      stack.rules.delete(rule);
      removed.rules += 1;
    }
    for (const route of stack.routes.list({ family })) {
      if (route.protocol === PROTOCOL_KERNEL || isOwn(route)) continue;
      const { dst, table, protocol, type, metric } = route;
      stack.routes.delete({ dst, table, protocol, type, metric });
      removed.routes += 1;
    }
  }
  return removed;
}
