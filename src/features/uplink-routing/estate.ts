import type { ClaimKind, ClaimOf, Holding, KernelClaim, Span } from "#base/estate";
import { IpAddress } from "#base/ip";
import { DEFAULT_SETTINGS, type ListenerSettings, POD_ADDRESS, POD_BRIDGE, type Settings } from "#base/uplink-model";
import type { Route } from "#kernel/route";
import { ANCHOR_PROTOCOL } from "./guard/anchor-plan.ts";
import { GUARD_TABLE, ownMark, TRANSPARENT_TABLE } from "./guard/index.ts";
import { LAST_TABLE, otherTables as otherTablesOf, TABLE_SERVICES } from "./routing/index.ts";
import { TABLE_LOCAL, TABLE_MAIN } from "./state/index.ts";

const ROUTING = { table: "`routing.tableBase`", protocol: "`routing.routeProtocol`" };
const TRANSPARENT = {
  ...{ table: "`transparent.table`", protocol: "`routing.routeProtocol`" },
  ...{ priority: "`transparent.rulePriority`", fwmark: "`transparent.mark`" },
};

/** The kernel objects of the uplinks with these settings. Pure. */
export function uplinksEstate(settings: Settings): readonly Holding[] {
  const { routing } = settings;
  return [...routingEstate(routing), ...guardEstate(settings), ...transparentEstate(settings)];
}

function routingEstate(routing: Settings["routing"]): readonly Holding[] {
  const { routeProtocol: protocol, kubeRulePriority } = routing;
  const tables: Span = [routing.tableBase + 1, LAST_TABLE];
  return [
    {
      claims: [{ id: "uplink-routes", kind: "routes", table: tables, protocol }],
      flags: ROUTING,
      what: "routes of an uplink, in the table of its interface's index above the base, or 1000 above where others use that; the last route is `unreachable`",
    },
    {
      claims: [{ id: "service-routes", kind: "routes", table: TABLE_SERVICES, protocol }],
      flags: { protocol: ROUTING.protocol },
      what: "routes to Services, where the cluster has an interface of its own",
    },
    {
      claims: [{ id: "source-rules", kind: "rules", priority: routing.rulePriority, table: tables, protocol }],
      flags: { ...ROUTING, priority: "`routing.rulePriority`" },
      what: "`from` an address of an uplink, to its table",
    },
    {
      claims: [TABLE_MAIN, TABLE_SERVICES].map((table) => ({
        ...{ id: table === TABLE_MAIN ? "cluster-rules" : "service-rules", kind: "rules" as const },
        ...{ priority: kubeRulePriority, table, protocol },
      })),
      flags: { protocol: ROUTING.protocol, priority: "`routing.kubeRulePriority`" },
      what: "`to` pods and Services",
    },
    {
      claims: [{ id: "local-rule", kind: "rules", priority: routing.localRulePriority, table: TABLE_LOCAL, protocol }],
      flags: { protocol: ROUTING.protocol, priority: "`routing.localRulePriority`" },
      what: "the kernel's rule of the local table, if it is moved",
    },
  ];
}

function guardEstate({ listeners }: Settings): readonly Holding[] {
  const pods = listeners.filter(({ role, assignAddress }) => role === "pod" && assignAddress);
  const addresses = pods.length > 0 ? pods : [{ address: POD_ADDRESS, interface: POD_BRIDGE }];
  return [
    {
      claims: [{ id: "port-guard", kind: "nft-table", ...GUARD_TABLE }],
      what: "closes the listeners' ports on uplinks",
    },
    {
      claims: addresses.map(({ address, interface: link = POD_BRIDGE }) => ({
        ...({ id: "pod-address", kind: "address", address: String(address), link, protocol: ANCHOR_PROTOCOL } as const),
      })),
      flags: { address: "`listeners`", link: "`listeners`" },
      what: "address of the listener for pods, on the pods' bridge",
    },
  ];
}

function transparentEstate({ transparent, routing: { routeProtocol: protocol } }: Settings): readonly Holding[] {
  const { table, mark, rulePriority } = transparent;
  return [
    {
      claims: [
        { id: "redirect", kind: "nft-table", ...TRANSPARENT_TABLE },
        { id: "redirect-routes", kind: "routes", table, protocol },
        { id: "redirect-rule", kind: "rules", priority: rulePriority, table, fwmark: mark, protocol },
      ],
      flags: TRANSPARENT,
      what: "transparent mode",
    },
    {
      claims: [{ id: "own-mark", kind: "mark", value: ownMark(transparent) }],
      flags: { value: "`transparent.mark`" },
      what: "own sockets in transparent mode",
    },
  ];
}

/** The settings whose kernel objects have these claims; a number that no claim has is the default. Pure. */
export function settingsOfClaims(claims: readonly KernelClaim[]): Settings {
  const find = <Kind extends ClaimKind>(kind: Kind, id: string): ClaimOf<Kind> | undefined =>
    claims.find((claim): claim is ClaimOf<Kind> => claim.kind === kind && claim.id === id);
  const priorityOf = (id: string, otherwise: number): number => {
    const priority = find("rules", id)?.priority;
    return typeof priority === "number" ? priority : otherwise;
  };
  const { routing, transparent } = DEFAULT_SETTINGS;
  const routes = find("routes", "uplink-routes");
  const redirect = find("rules", "redirect-rule");
  const table = redirect?.table;
  return {
    ...DEFAULT_SETTINGS,
    routing: {
      ...routing,
      tableBase: typeof routes?.table === "object" ? routes.table[0] - 1 : routing.tableBase,
      routeProtocol: routes?.protocol ?? routing.routeProtocol,
      rulePriority: priorityOf("source-rules", routing.rulePriority),
      kubeRulePriority: priorityOf("cluster-rules", routing.kubeRulePriority),
      localRulePriority: priorityOf("local-rule", routing.localRulePriority),
    },
    transparent: {
      ...transparent,
      table: typeof table === "number" ? table : transparent.table,
      mark: redirect?.fwmark ?? transparent.mark,
      rulePriority: priorityOf("redirect-rule", transparent.rulePriority),
    },
    listeners: claims.flatMap((claim) => (claim.id === "pod-address" ? podListener(claim) : [])),
  };
}

function podListener(claim: KernelClaim): readonly ListenerSettings[] {
  const [host] = DEFAULT_SETTINGS.listeners;
  const address = claim.kind === "address" ? IpAddress.tryParse(claim.address) : undefined;
  if (claim.kind !== "address" || address === undefined || host === undefined) return [];
  return [{ ...host, role: "pod", address, interface: claim.link, assignAddress: true }];
}

/** Tables that end as those of uplinks do, with marks of none of these settings, such as `table 3002 and protocol 99`. Pure. */
export function otherTables(routes: readonly Route[], settings: readonly Settings[]): readonly string[] {
  return otherTablesOf(
    routes,
    settings.map(({ routing }) => routing),
  );
}
