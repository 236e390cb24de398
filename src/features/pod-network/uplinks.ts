import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { MonitorEvent } from "#kernel/monitor";
import type { NetStack } from "#kernel/net";

const TABLE_MAIN = 254;

/**
 * The links that default routes of the main table use. The kernel can list a table only as a whole, and with coil-router in a large cluster
 * it has tens of thousands of routes. So while the caller passes the kernel's events, the table is listed only after an event that may
 * concern a default route; without events it is listed each time.
 */
export class Uplinks {
  readonly #routes: Pick<NetStack["routes"], "list">;
  #indexes: ReadonlySet<number> | undefined;
  #isWatched = false;

  constructor(routes: Pick<NetStack["routes"], "list">) {
    this.#routes = routes;
  }

  /** The first of these links with the smallest MTU; `undefined` without a default route. */
  narrowest(links: readonly Link[]): Link | undefined {
    const known = this.all;
    return links.filter((link) => known.has(link.index)).sort((a, b) => a.mtu - b.mtu)[0];
  }

  /** The indexes of these links. */
  get all(): ReadonlySet<number> {
    return this.#indexes ?? this.#list();
  }

  /** Sets whether {@link Uplinks.note} is called for each event of links, addresses and routes. */
  set isWatched(isWatched: boolean) {
    this.#isWatched = isWatched;
    this.#indexes = undefined;
  }

  /**
   * Handles an event of the kernel. When a link is set down, or an address is removed, the kernel removes IPv4 routes without an event for
   * them.
   */
  note(event: MonitorEvent): void {
    if (this.#concerns(event)) this.#indexes = undefined;
  }

  #concerns(event: MonitorEvent): boolean {
    if (event.kind === "resync") return true;
    if (event.kind === "route") return event.route.table === TABLE_MAIN && event.route.dst.prefixLength === 0;
    if (event.kind === "link") return this.#indexes?.has(event.link.index) === true;
    return event.kind === "address" && this.#indexes?.has(event.address.linkIndex) === true;
  }

  /**
   * A family whose routes cannot be listed (the kernel may lack IPv6) counts as a family without default routes, and is listed again each
   * time.
   */
  #list(): ReadonlySet<number> {
    const indexes = new Set<number>();
    let isWhole = true;
    for (const family of [4, 6] as const) {
      try {
        for (const { dst, type, linkIndex, multipath } of this.#routes.list({ family, table: TABLE_MAIN })) {
          if (dst.prefixLength !== 0 || type !== "unicast") continue;
          if (linkIndex !== undefined) indexes.add(linkIndex);
          for (const hop of multipath ?? []) if (hop.linkIndex !== undefined) indexes.add(hop.linkIndex);
        }
      } catch (error) {
        if (!isKernelError(error)) throw error;
        isWhole = false;
      }
    }
    if (this.#isWatched && isWhole) this.#indexes = indexes;
    return indexes;
  }
}
