import type { Cidr, IpAddress } from "#base/ip";
import type { LinkDetails } from "#kernel/link";
import { routeText, ruleText } from "../explain/index.ts";
import {
  diffNet,
  EGRESS_PROTOCOL,
  type NetChange,
  type NetPlan,
  type NetScope,
  type ObservedNet,
  type PlannedRoute,
} from "../net-plan/index.ts";

/** One object that differs from a plan. */
export interface Difference {
  /** `lacks`: the namespace lacks it, or has it with other properties. `surplus`: the plan does not have it. `moved`: a tunnel with another far end. */
  readonly side: "lacks" | "surplus" | "moved";
  /** The object in words. */
  readonly text: string;
  /** The far end of a tunnel's link; the present one, unless the link is missing. */
  readonly end?: IpAddress | undefined;
  /** The destination and table, if the object is a route. */
  readonly route?: { readonly dst: Cidr; readonly table: number };
}

/** The order in which differences are told: a link explains more than its routes do. */
const ORDER: readonly NetChange["op"][] = [
  ...(["make-link", "delete-links", "raise-link", "change-link", "open-port", "close-port"] as const),
  ...(["add-rule", "delete-rule", "put-route", "delete-route", "put-neighbour", "set"] as const),
];

/** Pure: what of a namespace may be ours by this scope or carries our mark. */
function inScope(observed: ObservedNet, scope: NetScope): ObservedNet {
  const isMarked = ({ protocol }: { readonly protocol?: number }): boolean => protocol === EGRESS_PROTOCOL;
  return {
    ...observed,
    rules: observed.rules.filter((rule) => scope.isOurRule(rule) || isMarked(rule)),
    routes: observed.routes.filter((route) => scope.tables.has(route.table) || isMarked(route)),
  };
}

/**
 * Pure: how a namespace differs from its plan. What follows from a difference of a link (its neighbours, its routes) is not told beside it.
 * `isOurLink`: of a client or a router. `endText`: words for the far end of a tunnel.
 */
export function differencesOf(
  plan: NetPlan,
  all: ObservedNet,
  {
    scope,
    isOurLink,
    endText,
  }: {
    readonly scope: NetScope;
    readonly isOurLink: (name: string) => boolean;
    readonly endText: (end: IpAddress) => string;
  },
): Difference[] {
  const observed = inScope(all, scope);
  const before = new Map(observed.links.map((link) => [link.name, link]));
  const changes = diffNet(plan, observed, isOurLink);
  const made = new Set(changes.flatMap((change) => (change.op === "make-link" ? [change.link.spec.name] : [])));
  const linkText = (name: string, details: LinkDetails | object | undefined): string => {
    const end = endOf(details);
    return `link ${name}${end === undefined ? "" : ` to ${endText(end)}`}`;
  };
  const differencesIn = (change: NetChange): Difference[] => {
    const lacks = (text: string, more: Pick<Difference, "end" | "route"> = {}): Difference[] => [
      { side: "lacks", text, ...more },
    ];
    const surplus = (text: string, more: Pick<Difference, "end" | "route"> = {}): Difference[] => [
      { side: "surplus", text, ...more },
    ];
    switch (change.op) {
      case "set":
        return lacks(
          `setting ${change.key}=${change.value} (it is ${observed.settings.get(change.key) ?? "not there"})`,
        );
      case "open-port":
        return lacks(`FoU port ${change.entry.port} of IPv${change.entry.family}`);
      case "close-port":
        return surplus(`FoU port ${change.entry.port} of IPv${change.entry.family}`);
      case "make-link": {
        const { spec } = change.link;
        const actual = before.get(spec.name);
        if (actual === undefined) return lacks(linkText(spec.name, spec), { end: endOf(spec) });
        const [from, to] = [endOf(actual.details), endOf(spec)];
        if (from === undefined || to === undefined || from.equals(to))
          return lacks(`${linkText(spec.name, spec)} with the properties that it needs`);
        return [{ side: "moved", text: `link ${spec.name} leads to ${from} instead of ${endText(to)}`, end: from }];
      }
      case "change-link": {
        const { mtu } = change.change;
        const texts = [...(mtu === undefined ? [] : [`MTU ${mtu}`]), ...(change.change.arp === false ? ["NOARP"] : [])];
        return lacks(
          `${texts.join(" and ")} of link ${change.name}${mtu === undefined ? "" : ` (it is ${before.get(change.name)?.mtu})`}`,
        );
      }
      case "raise-link":
        return made.has(change.name) ? [] : lacks(`link ${change.name} up`);
      case "delete-links":
        return change.links
          .filter(({ name }) => !made.has(name))
          .flatMap(({ name, details }) => surplus(linkText(name, details), { end: endOf(details) }));
      case "put-neighbour":
        return made.has(change.name) ? [] : lacks(`neighbour ${change.neighbour.address} of link ${change.name}`);
      case "add-rule":
        return lacks(ruleWords(change.rule));
      case "delete-rule":
        return surplus(ruleWords(change.rule));
      case "put-route": {
        const { link } = change.route;
        // Of a link that is there and differs the route is likely to be there too.
        if (link !== undefined && made.has(link) && before.has(link)) return [];
        return lacks(plannedRouteWords(change.route), { route: change.route });
      }
      case "delete-route":
        return surplus(`route ${routeText(change.route, observed.links)} of table ${change.route.table}`, {
          route: change.route,
        });
    }
  };
  return changes.toSorted((a, b) => ORDER.indexOf(a.op) - ORDER.indexOf(b.op)).flatMap(differencesIn);
}

/** The far end of a tunnel. */
function endOf(details: object | undefined): IpAddress | undefined {
  return (details as { readonly remote?: IpAddress } | undefined)?.remote;
}

function ruleWords(rule: Parameters<typeof ruleText>[0]): string {
  return `IPv${rule.family} rule ${rule.priority} ${ruleText(rule)}`;
}

function plannedRouteWords({ link, type, dst, metric, gateway, table }: PlannedRoute): string {
  const way = link === undefined ? {} : { linkIndex: 0 };
  const hop = gateway === undefined ? {} : { gateway };
  return `route ${routeText({ type, dst, metric, ...way, ...hop }, [{ index: 0, name: link ?? "" }])} of table ${table}`;
}
