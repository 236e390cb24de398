import type { IpAddress } from "#base/ip";
import { diffComments } from "../filter/index.ts";
import { CLIENT_TABLE, planRouter, planRules, routerScope } from "../router/index.ts";
import { fitsIpv6, type TunnelDriver, usableAddresses } from "../tunnel/index.ts";
import { driverNamed, hasIpv6Off } from "./clients.ts";
import { type Difference, differencesOf } from "./differences.ts";
import { type EgressFinding, listed } from "./finding.ts";
import { egressScope } from "./observe.ts";
import { type AuditedPod, addressesOf, type NodePods } from "./pods.ts";
import type { ClientSettings, EgressNode, PodSpace, SpaceId } from "./state.ts";

type Ref = { readonly namespace: string; readonly name: string };

/** A client of one Egress. */
interface Client {
  readonly key: string;
  readonly node: string;
  readonly addresses: readonly IpAddress[];
}

/** Pure: the routers on a node, compared with the clients of their Egresses, wherever these are. */
export function auditRouters(
  at: NodePods,
  {
    pods,
    nodes,
    hasEgress,
  }: {
    readonly pods: readonly AuditedPod[];
    readonly nodes: readonly EgressNode[];
    readonly hasEgress: (key: string) => boolean;
  },
): { readonly findings: readonly EgressFinding[]; readonly routers: number } {
  const { node, spaces } = at;
  const { clients: settings } = node;
  if (settings === undefined) return { findings: [], routers: 0 };
  const own = pods.filter((pod) => pod.node === node.node && pod.routerOf !== undefined && pod.hasNetwork);
  const living = new Set(pods.filter(({ hasNetwork }) => hasNetwork).flatMap(({ addresses }) => addresses.map(String)));
  const findings = own.flatMap((pod) => {
    const key = pod.routerOf ?? "";
    const say = (kind: EgressFinding["kind"], text: string): EgressFinding => ({ kind, node: node.node, text });
    if (!hasEgress(key))
      return pod.isLeaving
        ? []
        : [say("router-leftover", `pod ${pod.key} has the labels of a router of Egress ${key}, which does not exist`)];
    // One that has not started, or is leaving, has not all or nothing any more.
    if (pod.isLeaving || !pod.isRunning || pod.addresses.length === 0) return [];
    const found = spaces.get(pod.metadata.uid);
    const who = `router ${pod.key}`;
    if (found === undefined) return [say("router-namespace", `no network namespace on this node is that of ${who}`)];
    if (found.why !== undefined)
      return [say("router-namespace", `the network namespace of ${who} was not read: ${found.why}`)];
    if (found.space === undefined)
      return [say("router-lacks", `${who} has neither tunnel nor rule: see the log of its coil-egress`)];
    const [namespace = "", name = ""] = key.split("/");
    const clients = clientsOf(pods, key);
    return auditRouter(
      pod,
      { ...found, space: found.space },
      { settings, clients, living, nodes, egress: { namespace, name }, say },
    );
  });
  return { findings, routers: own.length };
}

function clientsOf(pods: readonly AuditedPod[], key: string): Client[] {
  const uses = ({ uses: all }: AuditedPod): boolean =>
    all.some(({ egress, use }) => use.kind === "client" && `${egress.namespace}/${egress.name}` === key);
  return pods.filter((pod) => pod.hasNetwork && pod.addresses.length > 0 && uses(pod));
}

function auditRouter(
  pod: AuditedPod,
  { space, ...id }: SpaceId & { readonly space: PodSpace },
  at: {
    readonly settings: ClientSettings;
    readonly clients: readonly Client[];
    readonly living: ReadonlySet<string>;
    readonly nodes: readonly EgressNode[];
    readonly egress: Ref;
    readonly say: (kind: EgressFinding["kind"], text: string) => EgressFinding;
  },
): EgressFinding[] {
  const { settings, clients, living, egress, say } = at;
  const who = `router ${pod.key}`;
  if (space.mtuBytes === undefined) return [say("router-namespace", `${who} has no interface ${space.ifname}`)];
  const { port } = settings;
  const mode = modeOf(space, settings.driver ?? "fou");
  const isOff = hasIpv6Off(space) || !fitsIpv6(driverNamed(mode.driver), space.mtuBytes).fits;
  const addresses = usableAddresses(addressesOf(pod, id), isOff);
  const router = { egress, addresses, ifname: space.ifname, mtuBytes: space.mtuBytes };
  const plan = planRouter(
    router,
    clients.flatMap((client) => client.addresses),
    { driver: driverNamed(mode.driver), port, sourcePortAuto: mode.sourcePortAuto },
  );
  const owners = new Map(clients.flatMap(({ key, addresses: own }) => own.map((one) => [String(one), key] as const)));
  const endText = (end: IpAddress): string => {
    const owner = owners.get(String(end));
    return owner === undefined ? `${end}` : `${end} of pod ${owner}`;
  };
  const isOurLink = egressScope(port).isOurLink;
  const differences = differencesOf(plan, space.net, { scope: routerScope(port), isOurLink, endText });
  const noWay = new Set<string>();
  const stray = new Set<string>();
  const lacks: string[] = [];
  const surplus: string[] = [];
  for (const one of differences) {
    const client = clientIn(one);
    if (client === undefined) (one.side === "surplus" ? surplus : lacks).push(one.text);
    else (one.side === "surplus" ? stray : noWay).add(endText(client));
  }
  const of = (kind: EgressFinding["kind"], text: string, items: Iterable<string>): EgressFinding[] => {
    const texts = [...items];
    return texts.length === 0 ? [] : [say(kind, `${text} ${listed(texts)}`)];
  };
  return [
    ...space.unread.map((why) => say("router-lacks", `${who}: ${why}`)),
    ...of("router-lacks", `${who} lacks`, lacks),
    ...of("router-surplus", `${who} has too much:`, surplus),
    ...of("router-no-way", `${who} has no way to`, noWay),
    ...of(
      "router-stray-way",
      `${who} has a way to what is no client of Egress ${egress.namespace}/${egress.name}:`,
      stray,
    ),
    ...of(
      "egress-driver",
      `${who} has tunnels of ${mode.driver}, but those of its clients are of another driver: --tunnel-driver of the routers and of coild must agree:`,
      otherDrivers(at, mode.driver),
    ),
    ...auditFilter(who, router, space, say),
    ...of(
      "router-flows",
      `connection tracking of ${who} has entries of addresses that no pod has:`,
      (space.router?.flows ?? [])
        .filter(({ source }) => !living.has(String(source)))
        .map(({ source, entries }) => `${source} (${entries})`),
    ),
  ];
}

function auditFilter(
  who: string,
  router: Parameters<typeof planRules>[0],
  { router: state }: PodSpace,
  say: (kind: EgressFinding["kind"], text: string) => EgressFinding,
): EgressFinding[] {
  if (state === undefined) return [];
  const wanted = planRules(router);
  const cells = wanted.map(({ family, kind }) => `${family} ${kind}`);
  const rest = state.rules.filter(({ family, kind }) => !cells.includes(`${family} ${kind}`));
  const parts = wanted.map((rule) => {
    const isOf = ({ family, kind }: { readonly family: 4 | 6; readonly kind: string }): boolean =>
      family === rule.family && kind === rule.kind;
    return diffComments([rule], state.rules.filter(isOf));
  });
  const missing = parts.flatMap((part) => part.missing);
  const stale = [...parts.flatMap((part) => part.stale), ...rest];
  const words = { masquerade: "that masquerades", invalid: "that drops packets of no connection" } as const;
  return [
    ...missing.map(({ family, kind }) =>
      say("router-filter", `the packet filter of ${who} lacks the IPv${family} rule ${words[kind]}`),
    ),
    ...stale.map(({ family, kind, comment }) =>
      say(
        "router-filter",
        `the packet filter of ${who} has an IPv${family} rule "${comment}" ${words[kind]} and that it does not need`,
      ),
    ),
  ];
}

/** Derives the mode of a router from its kernel objects: its driver, and the kind of source port. */
function modeOf(
  { net }: PodSpace,
  fallback: TunnelDriver["name"],
): { readonly driver: TunnelDriver["name"]; readonly sourcePortAuto: boolean } {
  const isVxlan = net.links.some(({ name }) => name === "coil_vxlan");
  const fou = net.links.find(({ name }) => /^fou[46]_/.test(name));
  const isFou = fou !== undefined || net.links.some(({ name }) => name.startsWith("coil_ipip"));
  const encap = fou?.details !== undefined && "encap" in fou.details ? fou.details.encap : undefined;
  return { driver: isVxlan ? "vxlan" : isFou ? "fou" : fallback, sourcePortAuto: encap?.sourcePort === 0 };
}

/** Nodes of clients whose tunnels are of another driver. */
function otherDrivers(
  { clients, nodes }: { readonly clients: readonly Client[]; readonly nodes: readonly EgressNode[] },
  driver: TunnelDriver["name"],
): string[] {
  const used = new Set(clients.map(({ node }) => node));
  return nodes.flatMap(({ node, clients: one }) =>
    used.has(node) && one?.driver !== undefined && one.driver !== driver ? [`node ${node} (${one.driver})`] : [],
  );
}

/** The client's address that a difference is about: that of its route, or of its link. */
function clientIn({ end, route }: Difference): IpAddress | undefined {
  return end ?? (route?.table === CLIENT_TABLE && route.dst.hostBits === 0 ? route.dst.base : undefined);
}
