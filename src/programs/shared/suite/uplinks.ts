import type { NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";

const MAIN_TABLE = 254;

/** A link, with its MTU in bytes. */
interface LinkMtu {
  readonly name: string;
  readonly mtu: number;
}

/** The links by which packets leave this machine: those of the default routes that the kernel uses, IPv4 first. Throws `KernelError`. */
export function uplinksOf(stack: NetStack): readonly LinkMtu[] {
  const routes = ([4, 6] as const).map((family) => stack.routes.list({ family, table: MAIN_TABLE }));
  return linksOfRoutes(stack, routes.flatMap(usedDefaults));
}

/** The links of routes, each once, in the order of the routes. Throws `KernelError`. */
export function linksOfRoutes(stack: Pick<NetStack, "links">, routes: readonly Route[]): readonly LinkMtu[] {
  const links = new Map(stack.links.list().map((link) => [link.index, link]));
  const indexes = new Set(routes.map(({ linkIndex }) => linkIndex ?? 0));
  return [...indexes].flatMap((index) => {
    const link = links.get(index);
    return link === undefined ? [] : [{ name: link.name, mtu: link.mtu }];
  });
}

/** The default routes of one family with the lowest metric: others, such as those of further uplinks, are for when these are gone. Pure. */
export function usedDefaults(routes: readonly Route[]): readonly Route[] {
  const defaults = routes.filter(({ dst }) => dst.prefixLength === 0);
  const lowest = Math.min(...defaults.map(({ metric = 0 }) => metric));
  return defaults.filter(({ metric = 0 }) => metric === lowest);
}
