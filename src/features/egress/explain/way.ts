import type { IpAddress } from "#base/ip";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import type { UsedBy } from "../access/index.ts";
import { guardOf } from "../client/index.ts";
import { agrees, askKernel, type SentPacket, traceWay, viewWay, type Way, type WayView } from "./trace.ts";
import { routeText, ruleText } from "./words.ts";

/** A rule that applies to a packet, in words. */
export interface WayRow {
  readonly priority: number;
  readonly rule: string;
  /** The route, or why the next rule is asked. */
  readonly result: string;
}

/** A tunnel, as its link has it. */
export interface WayTunnel {
  readonly driver: "vxlan" | "fou";
  /** The address that the tunnel's packets go to. */
  readonly remote: IpAddress;
  /** The UDP port that they go to. */
  readonly port: number;
  /** The network identifier of VXLAN. */
  readonly vni?: number;
}

/** The way of a packet inside a namespace. */
export interface WayAnswer {
  /** `tunnel`: into a tunnel. `link`: out by another interface. `local`: to the namespace itself. `refused`: nowhere. */
  readonly outcome: "tunnel" | "link" | "local" | "refused";
  readonly mark: number;
  readonly rows: readonly WayRow[];
  /** The row that decides; absent if no rule does. */
  readonly decidedBy?: WayRow & { readonly table?: number };
  readonly device?: Pick<Link, "name" | "kind" | "mtu" | "up">;
  /** The source that the kernel chooses, if the route names it. */
  readonly source?: string;
  /** The route that refuses is the one that holds the place of a missing tunnel. */
  readonly isGuard: boolean;
  /** The use by which the pod came to the Egress of such a route. */
  readonly guardBy?: UsedBy;
  /** The kernel's own look-up has the same result. */
  readonly isConfirmed: boolean;
  /** The kernel's own answer, in words. */
  readonly kernel: string;
  readonly tunnel?: WayTunnel;
}

/** Reads rules, routes and links of a namespace, and asks its kernel, where a packet of its own goes. Throws `KernelError`. */
export function findWay(net: Pick<NetStack, "links" | "routes" | "rules">, packet: SentPacket): WayAnswer {
  const view = viewWay(net, packet.destination.family);
  return wayAnswer(view, packet, traceWay(view, packet), askKernel(net, packet));
}

/** Pure: rules, routes and the kernel's answer as one answer. Where they disagree, the kernel is right. */
export function wayAnswer(
  { links }: WayView,
  { mark }: SentPacket,
  way: Way,
  kernel: ReturnType<typeof askKernel>,
): WayAnswer {
  const rows = way.map(({ rule, route, result }) => ({
    priority: rule.priority,
    rule: ruleText(rule),
    result: resultText(route, result, links),
  }));
  const last = way.at(-1);
  const row = rows.at(-1);
  const isConfirmed = agrees(way, kernel);
  const route = "route" in kernel ? kernel.route : undefined;
  const link = links.find(({ index }) => index === (route?.linkIndex ?? route?.multipath?.[0]?.linkIndex));
  const tunnel = link === undefined ? undefined : tunnelOf(link);
  const isDecided = isConfirmed && row !== undefined && (last?.result === "leaves" || last?.result === "refused");
  const table = last?.rule.action === "lookup" ? last.rule.table : undefined;
  const guardBy = last?.result === "refused" && last.route !== undefined ? guardOf(last.route) : undefined;
  return {
    outcome:
      route === undefined ? "refused" : route.type === "local" ? "local" : tunnel === undefined ? "link" : "tunnel",
    mark,
    rows,
    ...(isDecided ? { decidedBy: { ...row, ...(table === undefined ? {} : { table }) } } : {}),
    ...(link === undefined ? {} : { device: deviceOf(link) }),
    ...(route?.src === undefined ? {} : { source: String(route.src) }),
    isGuard: guardBy !== undefined,
    ...(guardBy === undefined ? {} : { guardBy }),
    isConfirmed,
    kernel: "route" in kernel ? `${routeText(kernel.route, links)} table ${kernel.route.table}` : kernel.refused,
    ...(tunnel === undefined ? {} : { tunnel }),
  };
}

const deviceOf = ({ name, kind, mtu, up }: Link): NonNullable<WayAnswer["device"]> => ({
  name,
  ...(kind === undefined ? {} : { kind }),
  mtu,
  up,
});

function resultText(route: Route | undefined, result: Way[number]["result"], links: readonly Link[]): string {
  if (route !== undefined) return routeText(route, links);
  return result === "next" ? "no route" : result === "jump" ? "goes on there" : "refused";
}

/** The tunnel of a link; `undefined` for any other link. */
function tunnelOf({ details }: Link): WayTunnel | undefined {
  switch (details?.kind) {
    case "vxlan": {
      const { remote, port, vni } = details;
      return remote === undefined || port === undefined
        ? undefined
        : { driver: "vxlan", remote, port, ...(vni === undefined ? {} : { vni }) };
    }
    case "ipip":
    case "ip6tnl": {
      const { remote, encap } = details;
      return remote === undefined || encap === undefined
        ? undefined
        : { driver: "fou", remote, port: encap.destinationPort };
    }
    default:
      return undefined;
  }
}
