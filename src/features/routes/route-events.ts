import type { Cidr } from "#base/ip";
import type { MonitorEvent } from "#kernel/monitor";
import type { Route } from "#kernel/route";

/** fe80::/10 */
const LINK_LOCAL = "fe80:";

/** The wanted routes, as {@link NodeRoutes} has them. */
export interface WantedRoutes {
  readonly wants: (dst: Cidr) => boolean;
  /** True if the last sync could not set all routes. */
  readonly isBehind: boolean;
  /** The ifindexes of the links that our routes led to when all were compared the last time. */
  readonly links: ReadonlySet<number>;
}

/** The work that an event makes due: nothing, a comparison of all routes, or that the route of this prefix alone is set again. */
export type DueRoutes = "none" | "all" | Cidr;

/**
 * Finds in the kernel's events what makes a comparison of all routes due, or one route. The kernel removes IPv4 routes without an event when their
 * link goes down, so it needs the links that our routes lead to: those of the last comparison, and those of our routes' events since the
 * start. It forgets them with the link. Holds at most one entry for each link of the node.
 */
export class RouteEvents {
  readonly #place: { readonly table: number; readonly protocol: number };
  /** Ifindex → the last known state; `undefined` before its first event. */
  readonly #uplinks = new Map<number, boolean | undefined>();

  constructor(place: { readonly table: number; readonly protocol: number }) {
    this.#place = place;
  }

  /** Takes an event. Something is due if routes of ours may be gone, or if those that could not be set may be possible now. Cheap. */
  due(event: MonitorEvent, wanted: WantedRoutes): DueRoutes {
    // The event may also be late, of a block that is in use again: so the comparison of all routes would be a high price.
    if (event.kind === "route" && event.op === "delete" && this.#isOurs(event.route))
      return wanted.wants(event.route.dst) ? event.route.dst : "none";
    return this.#areAllDue(event, wanted) ? "all" : "none";
  }

  #isOurs({ table, protocol }: Route): boolean {
    return table === this.#place.table && protocol === this.#place.protocol;
  }

  #areAllDue(event: MonitorEvent, wanted: WantedRoutes): boolean {
    switch (event.kind) {
      case "resync":
        // What was known of the links is older than the loss.
        for (const index of this.#uplinks.keys()) this.#uplinks.set(index, undefined);
        return true;
      case "link":
        return this.#isLinkDue(event, wanted);
      case "address":
        // The last address of a link takes its IPv4 routes along.
        return this.#isUplink(event.address.linkIndex, wanted) && (event.op === "delete" || wanted.isBehind);
      case "route":
        return event.op === "new" && this.#isNewRouteDue(event.route, wanted);
      case "rule":
      case "forwarding":
        return false;
    }
  }

  #isUplink(index: number, { links }: WantedRoutes): boolean {
    return this.#uplinks.has(index) || links.has(index);
  }

  #isLinkDue({ op, link: { index, up } }: MonitorEvent & { readonly kind: "link" }, wanted: WantedRoutes): boolean {
    if (!this.#isUplink(index, wanted)) return false;
    const before = this.#uplinks.get(index);
    if (op === "delete") this.#uplinks.delete(index);
    else this.#uplinks.set(index, up);
    return op === "delete" || before !== up;
  }

  #isNewRouteDue(route: Route, wanted: WantedRoutes): boolean {
    if (route.table !== this.#place.table) return false;
    const { dst, linkIndex } = route;
    if (this.#isOurs(route)) {
      if (linkIndex !== undefined && !this.#uplinks.has(linkIndex)) this.#uplinks.set(linkIndex, undefined);
      return false;
    }
    // A new way to a gateway. Those to a single host, and those that each link has, come with every pod.
    return wanted.isBehind && dst.hostBits > 0 && !dst.base.toString().startsWith(LINK_LOCAL);
  }
}
