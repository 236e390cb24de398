import type { Fact } from "#base/diagnosis";
import { MIN_IPV6_MTU_BYTES } from "#base/ip";
import type { Rule } from "#kernel/rule";
import { ALLOW_ALL, type ForwardFinding, forwardDrops, forwardDropText } from "../forward-drops.ts";
import { flagOf, type SuiteCommand } from "../programs.ts";
import { parseCertificate, validityFault } from "./certificate.ts";
import { type FaultCheck, judged } from "./faults.ts";
import { markChecks, type NodeMarks } from "./mark-checks.ts";

/** A CNI configuration file of the node, in the order in which the runtime reads them. */
export interface CniFile {
  readonly file: string;
  /** The plugins that it names; a delegate of a plugin among them. */
  readonly plugins: readonly { readonly type: string; readonly socket: string | undefined }[];
  /** The reason why the runtime cannot use it. */
  readonly fault?: string;
}

/** What the kernel has of the source guard. */
export interface GuardFacts {
  readonly tables: readonly string[];
  /** The first refused packets, one for each link and reason. */
  readonly refusals: readonly {
    readonly reason: string;
    readonly source: string;
    /** Name of the link by which it came in. */
    readonly link: string;
    /** Addresses of the pod at the link; empty for a link that is no pod's. */
    readonly pod: readonly string[];
  }[];
}

/** What one filter of packets to this node does with the first packet to a TCP port. */
export interface InputFinding extends Pick<ForwardFinding, "filter" | "family" | "outcome" | "by" | "allow"> {
  readonly port: number;
}

/** A TCP port of a program of the suite that others must reach. */
export interface NeededPort {
  readonly program: string;
  readonly port: number;
  /** The clients that connect, and what fails without, as `load balancers ask for health there`. */
  readonly why: string;
}

/** A destination to which the common source ports of a router have run out (docs/spec/pod-network.md#9.3). */
export interface CrowdedRouter {
  /** The Egress, as `namespace/name`. */
  readonly egress: string;
  readonly destination: string;
  /** The clients with the most flows, with their numbers. */
  readonly clients: readonly string[];
}

/** What was found of this machine. A fact of a part that is not here is empty. */
export interface NodeFacts {
  /** Milliseconds since the epoch. */
  readonly now: number;
  readonly processes: readonly SuiteCommand[];
  readonly cniDir: string;
  readonly cni: Fact<readonly CniFile[]>;
  /** Folders of the node that the pod of this command does not mount: what they have is not known. */
  readonly notMounted: readonly string[];
  readonly cniBinDir: string;
  readonly executables: readonly { readonly path: string; readonly fault?: string | undefined }[];
  /** Sockets of daemons, and what became of a call. */
  readonly sockets: readonly { readonly program: string; readonly path: string; readonly fault?: string | undefined }[];
  readonly forwarding: { readonly ipv4: boolean; readonly ipv6: boolean | undefined };
  readonly rules: readonly Rule[];
  /** The numbers of a `coild` without flags. */
  readonly podDefaults: { readonly tableId: number; readonly rulePriority: number };
  /** What systemd-networkd removes of others when it starts or reloads; `undefined` where it does not run. */
  readonly networkd: Fact<{ readonly rules: boolean; readonly routes: boolean }> | undefined;
  /** Objects of other proxies, each with the command that removes it. */
  readonly rivals: readonly string[];
  /** The ranges of Services in the tables of service-proxy, with what keeps the node from sending to them, if anything. */
  readonly serviceRanges: Fact<readonly { readonly range: string; readonly fault?: string | undefined }[]>;
  /** The sysctl net.ipv4.conf.all.route_localnet is on. */
  readonly routesLocalnet: boolean;
  /** `undefined` where no coild runs that makes links. */
  readonly forward: Fact<readonly ForwardFinding[]> | undefined;
  /** What filters do with packets to ports of {@link neededPorts}. */
  readonly input: Fact<readonly InputFinding[]>;
  /** The source guard; `undefined` where no coild runs that makes links. */
  readonly guard: Fact<GuardFacts> | undefined;
  readonly conntrack: { readonly count: number; readonly max: number } | undefined;
  /** Sources of tunnel packets to routers of Egresses that leave this node as another address, each with it. */
  readonly translated: Fact<readonly { readonly source: string; readonly leavesAs: string }[]>;
  /** The routers of Egresses on this machine, and their destinations without common source ports. */
  readonly sourcePorts: { readonly routers: number; readonly crowded: Fact<readonly CrowdedRouter[]> };
  readonly uplinks: readonly { readonly name: string; readonly mtu: number }[];
  readonly podLinks: readonly { readonly name: string; readonly mtu: number }[];
  /** Ports at which somebody else answers. */
  readonly ports: readonly { readonly program: string; readonly port: number; readonly fault?: string | undefined }[];
  /** The marks of programs by their estates; `undefined` where no program has one. */
  readonly marks: NodeMarks | undefined;
  readonly folders: readonly {
    readonly path: string;
    readonly isReadOnly: boolean;
    /** Shares from 0 to 1. */
    readonly freeSpace: number;
    readonly freeFiles: number;
  }[];
  /** Names of the features that the kernel lacks. */
  readonly lacking: readonly string[];
  readonly certificates: readonly { readonly program: string; readonly path: string; readonly pem: Fact<string> }[];
  /** Own time minus the server's, in milliseconds; `undefined` where nothing of the suite is here and no API server is given. */
  readonly clock: Fact<number> | undefined;
}

/** Plugins of the suite, and the daemons that serve them. */
export const DAEMONS: Readonly<Record<string, { readonly program: string; readonly socket: string }>> = {
  coil: { program: "coild", socket: "/run/coild.sock" },
  "vpc-neutron": { program: "nic-agent", socket: "/run/isthmus/vpc.sock" },
  "vpc-alcor": { program: "nic-agent", socket: "/run/isthmus/vpc.sock" },
};

/** Plugins that let a pod send with any source. */
const UNGUARDED: ReadonlySet<string> = new Set(["ptp", "bridge", "macvlan", "ipvlan", "host-device", "vlan"]);
/** Tables of the source guard. */
const GUARD_TABLES = 2;
/** Plugins that call the network of others, which their configuration need not show. */
const META_PLUGINS: ReadonlySet<string> = new Set(["multus", "multus-shim"]);
/** The share of the table of connections from which it is told. */
const FULL = 0.9;
/** The share of space or files below which a folder is full. */
const LITTLE = 0.01;
/** Differences of clocks, in milliseconds: the header Date has whole seconds; Leases last 15 s. */
const APART_MS = 5000;
const FAR_APART_MS = 15_000;
/** What drivers of tunnels need, by the names of the probes. */
const DRIVERS: Readonly<Record<string, readonly string[]>> = {
  fou: ["fou", "fou6", "ipip", "ip6tnl"],
  vxlan: ["vxlan"],
};
/** The kernel's module of a kind of links, where it has another name. */
const MODULES: Readonly<Record<string, string>> = { ip6tnl: "ip6_tunnel" };
/** The table of local addresses, whose rule comes first on every machine. */
const LOCAL_TABLE = 255;

const NOT_MOUNTED =
  "is not mounted in this pod: run isthmus doctor on the node, or mount the node's folder at this path";

/** Judges a node. On a machine without any part of the suite nothing is found. Pure. */
export function judgeSuiteNode(facts: NodeFacts): readonly FaultCheck[] {
  return [
    ...cniOrder(facts),
    ...executables(facts),
    ...sockets(facts),
    ...forwarding(facts),
    ...ruleOrder(facts),
    ...networkd(facts),
    ...forwardFilters(facts),
    ...inputFilters(facts),
    ...sourceGuard(facts),
    ...rivals(facts),
    ...serviceRoutes(facts),
    ...routeLocalnet(facts),
    ...conntrack(facts),
    ...translatedClients(facts),
    ...sourcePorts(facts),
    ...mtu(facts),
    ...ipv6Mtu(facts),
    ...ports(facts),
    ...markChecks(facts.marks),
    ...folders(facts),
    ...kernel(facts),
    ...certificates(facts),
    ...clock(facts),
  ];
}

const isOurs = ({ plugins }: CniFile): boolean => plugins.some(({ type }) => Object.hasOwn(DAEMONS, type));
const runs = ({ processes }: NodeFacts, program: string): SuiteCommand | undefined =>
  processes.find((one) => one.program === program);

/** Returns true if pods of this node get their network from the suite: by a daemon that runs, or by the configuration. */
export function hasPodNetwork(facts: Pick<NodeFacts, "processes" | "cni">): boolean {
  const isRun = facts.processes.some(({ program }) => program === "coild" || program === "nic-agent");
  return isRun || ("value" in facts.cni && facts.cni.value.some(isOurs));
}

function cniOrder(facts: NodeFacts): readonly FaultCheck[] {
  if (!hasPodNetwork(facts)) return [];
  const { ok, wrong, warning, unknown } = judged("cni-order", facts.cniDir);
  const install = "run coil-installer with CNI_NETCONF";
  if (facts.notMounted.includes(facts.cniDir)) return [unknown(NOT_MOUNTED)];
  if ("fault" in facts.cni) return [warning(`cannot be read: ${facts.cni.fault}`, install)];
  const [first] = facts.cni.value;
  const own = facts.cni.value.find(isOurs);
  if (own === undefined) {
    const now = first === undefined ? "" : `; the runtime uses ${first.file} (${typesOf(first)})`;
    return [wrong(`no configuration names a plugin of the suite: pods get no network of it${now}`, install)];
  }
  if (own.fault !== undefined) return [wrong(`${own.file} cannot be used: ${own.fault}`, install)];
  if (first === undefined || first === own) return [ok(`${own.file} is the first configuration`)];
  if (first.plugins.some(({ type }) => META_PLUGINS.has(type)))
    return [unknown(`${first.file} comes first and is of Multus, which calls what its clusterNetwork names`)];
  const other = `${facts.cniDir}/${first.file}`;
  const text = `${first.file} comes before ${own.file}, so the runtime uses it, and new pods get its network`;
  return [wrong(text, `mv ${other} ${other}.disabled`)];
}

const typesOf = ({ plugins }: CniFile): string => plugins.map(({ type }) => type).join(", ") || "no plugin";

function executables(facts: NodeFacts): readonly FaultCheck[] {
  const { executables: found, notMounted, cniBinDir } = facts;
  if (notMounted.includes(cniBinDir) && hasPodNetwork(facts))
    return [judged("cni-executable", cniBinDir).unknown(NOT_MOUNTED)];
  return found.map(({ path, fault }) => {
    const { ok, wrong } = judged("cni-executable", path);
    if (fault === undefined) return ok("can be run");
    const name = path.slice(path.lastIndexOf("/") + 1);
    const isOwn = Object.hasOwn(DAEMONS, name.replace(/-standalone$/, ""));
    return wrong(fault, isOwn ? "run coil-installer" : `install the CNI plugin ${name} into the folder`);
  });
}

function sockets({ sockets: found, processes }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ program, path, fault }) => {
    const { ok, wrong } = judged("daemon-socket", `${program} at ${path}`);
    if (fault === undefined) return ok("answers");
    const other = processes.find((one) => one.program === program);
    const own = other === undefined ? undefined : flagOf(other.flags, "socket");
    if (own !== undefined && own !== path)
      return wrong(
        `does not answer: ${program} listens at ${own}`,
        `start it with --socket=${path}, or change socket in the CNI configuration`,
      );
    if (other !== undefined)
      return wrong(`runs and does not answer: ${fault}`, `look at the log of ${program}, and restart it`);
    return wrong(`does not answer, and does not run here: ${fault}`, `start ${program}, and look at its log`);
  });
}

function forwarding(facts: NodeFacts): readonly FaultCheck[] {
  if (!hasPodNetwork(facts) && runs(facts, "service-proxy") === undefined) return [];
  const { ipv4, ipv6 } = facts.forwarding;
  // coild that gives addresses sets both. Elsewhere a cluster of IPv4 alone has no need of the other.
  const coild = runs(facts, "coild");
  const isSetHere = coild !== undefined && flagOf(coild.flags, "enable-ipam") !== "false";
  const families = [
    { key: "net.ipv4.ip_forward", isOn: ipv4 },
    ...(ipv6 === undefined ? [] : [{ key: "net.ipv6.conf.all.forwarding", isOn: ipv6 }]),
  ];
  return families.map(({ key, isOn }) => {
    const { ok, warning, wrong } = judged("forwarding", key);
    const set = `sysctl -w ${key}=1, and the same in /etc/sysctl.d`;
    // Without that the kernel removes such a route at this moment.
    const remedy = key.includes("ipv6")
      ? `${set}; before, where the default route comes from router advertisements: sysctl -w net.ipv6.conf.LINK.accept_ra=2`
      : set;
    if (isOn) return ok("is on");
    if (key.includes("ipv6") && ipv4 && !isSetHere)
      return warning("is off: the node drops packets of pods with IPv6; right where no pod has it", remedy);
    return wrong("is off: the node drops packets of pods", remedy);
  });
}

function ruleOrder(facts: NodeFacts): readonly FaultCheck[] {
  const coild = runs(facts, "coild");
  if (coild === undefined) return [];
  const table = Number(flagOf(coild.flags, "pod-table-id") ?? facts.podDefaults.tableId);
  const priority = Number(flagOf(coild.flags, "pod-rule-prio") ?? facts.podDefaults.rulePriority);
  // Behind another plugin coild makes no rule.
  if (flagOf(coild.flags, "enable-ipam") === "false" || table === 0) return [];
  const families = [...new Set(facts.rules.map(({ family }) => family))];
  return families.flatMap((family): readonly FaultCheck[] => {
    const { ok, wrong } = judged("rule-order", `IPv${family} rules`);
    const ip = family === 4 ? "ip" : "ip -6";
    const rules = facts.rules.filter((rule) => rule.family === family);
    const isOwn = rules.some((rule) => rule.priority === priority && rule.table === table);
    // A node without IPv6 has no pods of it.
    if (!isOwn && family === 6 && facts.forwarding.ipv6 === undefined) return [];
    if (!isOwn) {
      const text = `there is no rule ${priority} that looks up table ${table}: coild has not made it, or something removes it`;
      return [wrong(text, `restart coild, and look for what removes it: ${ip} monitor rule`)];
    }
    const earlier = rules.find((rule) => rule.priority < priority && takesAll(rule));
    if (earlier === undefined) return [ok(`rule ${priority} comes before all rules for all packets`)];
    const what = earlier.action === "lookup" ? `looks up table ${earlier.table}` : `is ${earlier.action}`;
    const text = `rule ${earlier.priority} ${what} for all packets, before rule ${priority} of the pods`;
    return [wrong(text, `${ip} rule delete priority ${earlier.priority}, and add it again above ${priority}`)];
  });
}

function forwardFilters({ forward }: NodeFacts): readonly FaultCheck[] {
  if (forward === undefined) return [];
  if ("fault" in forward)
    return [judged("forward-filter", "filters of forwarded packets").unknown(`cannot be read: ${forward.fault}`)];
  const found = forwardDrops(forward.value).map((drop): FaultCheck => {
    const { wrong, unknown } = judged("forward-filter", drop.filter);
    const text = forwardDropText(drop);
    return drop.outcome === "maybe" ? unknown(text) : wrong(text, `${drop.allow.join("; ")}; ${ALLOW_ALL}`);
  });
  return found.length > 0
    ? found
    : [judged("forward-filter", "filters of forwarded packets").ok("let packets of pods pass")];
}

function inputFilters({ input, processes }: NodeFacts): readonly FaultCheck[] {
  const needed = neededPorts(processes);
  if (needed.length === 0) return [];
  const all = judged("input-filter", "filters of packets to this node");
  if ("fault" in input) return [all.unknown(`cannot be read: ${input.fault}`)];
  const found = needed.flatMap(({ program, port, why }) =>
    [
      ...Map.groupBy(
        input.value.filter((one) => one.port === port && one.outcome !== "accepted"),
        ({ filter }) => filter,
      ).values(),
    ].map((group): FaultCheck => {
      const [{ filter, outcome, by, allow }] = group as [InputFinding];
      const { warning, unknown } = judged("input-filter", filter);
      const families = [...new Set(group.map(({ family }) => `IPv${family}`))].join(" and ");
      const what = `connections to TCP port ${port} of ${program} (${families}) by ${by}`;
      if (outcome === "maybe")
        return unknown(`drops ${what}, unless a rule that cannot be judged here accepts them before: ${why}`);
      return warning(
        `drops ${what}: ${why}`,
        `${allow}; for those alone who are to reach it, and the same in the file that loads the filter`,
      );
    }),
  );
  return found.length > 0 ? found : [all.ok(`let packets to ${needed.map(({ port }) => port).join(", ")} pass`)];
}

/** Pure: the TCP ports that others must reach, by the flags of the programs that run. A port of loopback is none. */
export function neededPorts(processes: readonly Pick<SuiteCommand, "program" | "flags">[]): NeededPort[] {
  return processes.flatMap(({ program, flags }) =>
    (NEEDED_PORTS[program] ?? []).flatMap(({ flag, initial, why, unless }) => {
      const text = flagOf(flags, flag) ?? initial;
      const port = Number(/^(?:.*:)?(\d{1,5})$/.exec(text)?.[1] ?? 0);
      const isOff = unless !== undefined && (flagOf(flags, unless) ?? "") !== "";
      return port === 0 || isOff || /^(?:127\.|localhost:|\[::1\])/.test(text) ? [] : [{ program, port, why }];
    }),
  );
}

/** Ports of programs, by flag and default. `unless`: a flag that takes the port's place. */
const NEEDED_PORTS: Readonly<
  Record<
    string,
    readonly { readonly flag: string; readonly initial: string; readonly why: string; readonly unless?: string }[]
  >
> = {
  "service-proxy": [
    {
      flag: "healthz-bind-address",
      initial: ":10256",
      why: "load balancers ask for the node's health there, and send it nothing without an answer",
    },
  ],
  "proxy-server": [
    { flag: "agent-port", initial: "8091", why: "agents of the tunnel connect there" },
    { flag: "server-port", initial: "8090", why: "API servers connect there", unless: "uds-name" },
  ],
  "coil-ipam-controller": [webhookPort(":9443")],
  "coil-controller": [webhookPort(":9443")],
  "coil-egress-controller": [webhookPort(":9444")],
  "nic-controller": [webhookPort(":9445")],
};

function webhookPort(initial: string) {
  return {
    flag: "webhook-addr",
    initial,
    why: "the API server calls webhooks there, and refuses writes without an answer",
  };
}

/** Programs with rules or routes in the node's network. */
const ROUTING: ReadonlySet<string> = new Set(["coild", "coil-router", "uplink-proxy"]);

function networkd({ networkd: found, processes }: NodeFacts): readonly FaultCheck[] {
  const affected = [...new Set(processes.map(({ program }) => program).filter((one) => ROUTING.has(one)))].sort();
  if (found === undefined || affected.length === 0) return [];
  const { ok, warning, unknown } = judged("networkd", "systemd-networkd");
  if ("fault" in found) return [unknown(found.fault)];
  const { rules, routes } = found.value;
  const kinds = [
    ...(rules ? [{ name: "rules", setting: "ManageForeignRoutingPolicyRules" }] : []),
    ...(routes ? [{ name: "routes", setting: "ManageForeignRoutes" }] : []),
  ];
  if (kinds.length === 0) return [ok("leaves rules and routes of others alone")];
  const names = kinds.map(({ name }) => name).join(" and ");
  return [
    warning(
      `removes ${names} of others when it starts or reloads, those of ${affected.join(", ")} too: they are back within a second`,
      `printf '[Network]\\n${kinds.map(({ setting }) => `${setting}=no\\n`).join("")}' > /etc/systemd/networkd.conf.d/isthmus.conf, and systemctl restart systemd-networkd`,
    ),
  ];
}

function sourceGuard(facts: NodeFacts): readonly FaultCheck[] {
  const coild = runs(facts, "coild");
  if (coild === undefined) return [];
  const { ok, warning, unknown, wrong } = judged("source-guard", "sources of pods");
  if (flagOf(coild.flags, "enable-ipam") === "false") return guardOfOthers(facts);
  const mode = flagOf(coild.flags, "source-guard") ?? "on";
  const off = "let --source-guard=count show what it would drop, then set it to on";
  if (mode === "off") return [warning("are not checked (--source-guard=off): any pod can send as any other", off)];
  if (facts.guard === undefined) return [];
  if ("fault" in facts.guard) return [unknown(`cannot be read: ${facts.guard.fault}`)];
  const { tables, refusals } = facts.guard.value;
  if (tables.length < GUARD_TABLES)
    return [
      wrong(
        "are not checked: the tables of the source guard are missing",
        "look at the log of coild: the kernel may lack nf_tables with inet and arp, or another program removes them",
      ),
    ];
  const done = mode === "count" ? "passed, and would be dropped with --source-guard=on" : "are dropped";
  const found = refusals.map(({ reason, source, link, pod }) => {
    const at = judged("source-guard", pod.length === 0 ? link : `${link} (pod ${pod.join(", ")})`);
    if (reason === "outside")
      return at.warning(
        `packets with the source ${source} of a pod of this node come in by this link: they ${done}`,
        "find out who sends them: somebody forges the address, or a load balancer returns packets of pods unchanged",
      );
    if (reason === "link-local")
      return at.warning(
        `link-local packets of IPv6 from ${source} ${done}`,
        "a pod may use neighbour discovery and MLD with its node, from at most 8 addresses; use the pod's address for all else",
      );
    return at.warning(
      `packets with the source ${source} (${reason}), which is not the pod's, ${done}`,
      "if the pod shall route for others: annotate its Namespace with isthmus.dev/allowed-sources and the pod with isthmus.dev/extra-sources",
    );
  });
  if (found.length > 0) return found;
  return [ok(mode === "count" ? "are counted, and nothing is dropped (--source-guard=count)" : "are checked")];
}

/** Behind another plugin that one guards, or nobody does. */
function guardOfOthers({ cni }: NodeFacts): readonly FaultCheck[] {
  const { warning, unknown } = judged("source-guard", "sources of pods");
  const chain = "value" in cni ? cni.value.find(isOurs)?.plugins.map(({ type }) => type) : undefined;
  const plugin = chain?.find((type) => !Object.hasOwn(DAEMONS, type));
  if (plugin === undefined) return [];
  if (!UNGUARDED.has(plugin))
    return [unknown(`are up to ${plugin}, behind which coild is: its documents say whether it checks them`)];
  return [
    warning(
      `are checked by nobody: coild is behind ${plugin}, which lets pods send with any source`,
      "let a network policy's enforcer guard them, or give pods their links by coild",
    ),
  ];
}

function takesAll({ from, to, iif, oif, fwmark, invert, action, table, suppressPrefixLength }: Rule): boolean {
  const isAny = (range: Rule["from"]): boolean => range === undefined || range.prefixLength === 0;
  if (invert === true || iif !== undefined || oif !== undefined || fwmark !== undefined) return false;
  if (!isAny(from) || !isAny(to) || suppressPrefixLength !== undefined) return false;
  // The rule of VRFs has no table of its own: packets of others pass it.
  return action === "lookup" ? table !== LOCAL_TABLE && table !== 0 : action !== "nop" && action !== "goto";
}

function rivals(facts: NodeFacts): readonly FaultCheck[] {
  if (runs(facts, "service-proxy") === undefined) return [];
  const { ok, wrong } = judged("rival-proxy", "Services");
  if (facts.rivals.length === 0) return [ok("no other proxy has left rules here")];
  return facts.rivals.map((text) => {
    const [what = text, fix = "remove its rules"] = text.split(/; (?:remove (?:it|them) with )/);
    return wrong(what, `remove the DaemonSet kube-proxy from the node, then: ${fix}`);
  });
}

function serviceRoutes(facts: NodeFacts): readonly FaultCheck[] {
  if (runs(facts, "service-proxy") === undefined) return [];
  if ("fault" in facts.serviceRanges)
    return [judged("service-route", "ranges of Services").unknown(facts.serviceRanges.fault)];
  return facts.serviceRanges.value.map(({ range, fault }) => {
    const { ok, wrong } = judged("service-route", range);
    if (fault === undefined) return ok("the node has a route to it");
    const ip = range.includes(":") ? "ip -6" : "ip";
    return wrong(
      `the node cannot send to it (${fault}): its own programs reach no Service`,
      `${ip} route add default via GATEWAY, or ${ip} route add ${range} dev UPLINK, and the same in the node's network configuration`,
    );
  });
}

function routeLocalnet(facts: NodeFacts): readonly FaultCheck[] {
  if (runs(facts, "service-proxy") === undefined) return [];
  const { ok, warning } = judged("route-localnet", "net.ipv4.conf.all.route_localnet");
  if (!facts.routesLocalnet) return [ok("is off")];
  return [
    warning(
      "is on: packets for 127.0.0.1 from outside are accepted; kube-proxy's mode iptables sets it for NodePorts, and leaves it",
      "sysctl -w net.ipv4.conf.all.route_localnet=0, and remove the file in /etc/sysctl.d that sets it; the CNI plugin portmap sets it for its own links",
    ),
  ];
}

function conntrack(facts: NodeFacts): readonly FaultCheck[] {
  const { conntrack: table, processes } = facts;
  const isUsed = processes.length > 0 || hasPodNetwork(facts);
  if (table === undefined || table.max === 0 || !isUsed) return [];
  const { ok, wrong } = judged("conntrack", "table of connections");
  const text = `has ${table.count} of ${table.max} entries`;
  if (table.count < table.max * FULL) return [ok(text)];
  return [wrong(text, `sysctl -w net.netfilter.nf_conntrack_max=${table.max * 2}`)];
}

function translatedClients(facts: NodeFacts): readonly FaultCheck[] {
  if (runs(facts, "coild") === undefined) return [];
  const { ok, wrong, unknown } = judged("egress-translated", "clients of Egresses");
  if (!("value" in facts.translated)) return [unknown(facts.translated.fault)];
  const [first] = facts.translated.value;
  if (first === undefined) return [ok("no packets of clients leave with another source")];
  const text = `packets of ${facts.translated.value.length} leave with another source, so no router takes them: those of ${first.source} as ${first.leavesAs}`;
  const remedy =
    "give kube-proxy the pods' pools as clusterCIDR, and turn masqueradeAll (--masquerade-all) and ipMasq of the plugin ptp or bridge off";
  return [wrong(text, remedy)];
}

function sourcePorts({ sourcePorts: { routers, crowded } }: NodeFacts): readonly FaultCheck[] {
  if (routers === 0) return [];
  const { ok, unknown } = judged("egress-ports", "routers of Egresses");
  if (!("value" in crowded)) return [unknown(crowded.fault)];
  if (crowded.value.length === 0) return [ok(`the common source ports of ${routers} suffice`)];
  return crowded.value.map(({ egress, destination, clients }) => {
    const text = `has no common source port left to ${destination}; most flows have ${clients.join(", ")}`;
    const remedy =
      "find out why these pods hold so many connections; or raise spec.replicas of the Egress, with sessionAffinity None and for FoU fouSourcePortAuto, as otherwise a pod keeps its router";
    return judged("egress-ports", `a router of Egress ${egress}`).warning(text, remedy);
  });
}

function mtu(facts: NodeFacts): readonly FaultCheck[] {
  const { uplinks, podLinks } = facts;
  const [smallest] = [...uplinks].sort((a, b) => a.mtu - b.mtu);
  const [largest] = [...podLinks].sort((a, b) => b.mtu - a.mtu);
  if (runs(facts, "coild") === undefined || smallest === undefined || largest === undefined) return [];
  const { ok, wrong } = judged("mtu", `uplink ${smallest.name}`);
  if (largest.mtu <= smallest.mtu) return [ok(`has MTU ${smallest.mtu}, and pods at most ${largest.mtu}`)];
  const text = `has MTU ${smallest.mtu}, and ${podLinks.filter((one) => one.mtu > smallest.mtu).length} pods have more: ${largest.name} has ${largest.mtu}`;
  return [
    wrong(
      text,
      `ip link set ${smallest.name} mtu ${largest.mtu}; or coild --mtu=${smallest.mtu}, and make the pods again`,
    ),
  ];
}

/** Linux has no IPv6 on a link below its smallest MTU, so pods get no IPv6 address there. */
function ipv6Mtu(facts: NodeFacts): readonly FaultCheck[] {
  const coild = runs(facts, "coild");
  if (coild === undefined || flagOf(coild.flags, "enable-ipam") === "false") return [];
  const [uplink] = [...facts.uplinks].sort((a, b) => a.mtu - b.mtu);
  const set = Number(flagOf(coild.flags, "mtu") ?? 0);
  const bytes = set > 0 ? set : uplink?.mtu;
  if (bytes === undefined || bytes >= MIN_IPV6_MTU_BYTES) return [];
  const subject = set > 0 || uplink === undefined ? "--mtu of coild" : `uplink ${uplink.name}`;
  const remedy = `coild --mtu=${MIN_IPV6_MTU_BYTES}`;
  return [
    judged("mtu", subject).warning(
      `is ${bytes}, and IPv6 needs at least ${MIN_IPV6_MTU_BYTES}: pods get no IPv6 address, and pods of pools with IPv6 alone do not start; right where no pool has IPv6`,
      set > 0 || uplink === undefined ? remedy : `ip link set ${uplink.name} mtu ${MIN_IPV6_MTU_BYTES}; or ${remedy}`,
    ),
  ];
}

function ports({ ports: found }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ program, port, fault }) => {
    const { ok, wrong } = judged("port-taken", `port ${port} of ${program}`);
    if (fault === undefined) return ok("is the program's or free");
    return wrong(fault, `end that process, or start ${program} with another --health-addr`);
  });
}

function folders({ folders: found }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ path, isReadOnly, freeSpace, freeFiles }) => {
    const { ok, wrong } = judged("folder", path);
    if (isReadOnly)
      return wrong(
        "is mounted read-only",
        `mount -o remount,rw the file system of ${path}; a kernel does this after errors of the disk, see dmesg`,
      );
    if (freeSpace < LITTLE)
      return wrong(`is full: ${percent(freeSpace)} of its space is free`, `free space on the file system of ${path}`);
    if (freeFiles < LITTLE)
      return wrong(
        `is full: ${percent(freeFiles)} of its inodes are free`,
        `remove files on the file system of ${path}`,
      );
    return ok(`has ${percent(freeSpace)} of its space free`);
  });
}

const percent = (share: number): string => `${(share * 100).toFixed(share < LITTLE ? 1 : 0)}%`;

function kernel(facts: NodeFacts): readonly FaultCheck[] {
  const lacking = new Set(facts.lacking);
  const found: FaultCheck[] = [];
  if (runs(facts, "service-proxy") !== undefined) {
    const { ok, wrong } = judged("kernel", "service-proxy");
    const missing = [...lacking].filter((name) => name.startsWith("nft"));
    found.push(
      missing.length === 0
        ? ok("the kernel has nftables")
        : wrong(`the kernel lacks ${missing.join(", ")}`, "modprobe -a nf_tables nft_chain_nat nft_numgen nft_masq"),
    );
  }
  for (const command of facts.processes.filter(({ program }) => program === "coild" || program === "coil-egress")) {
    const driver = flagOf(command.flags, "tunnel-driver");
    const missing = (DRIVERS[driver ?? ""] ?? []).filter((name) => lacking.has(name));
    if (driver === undefined) continue;
    const { ok, wrong } = judged("kernel", `${command.program} --tunnel-driver=${driver}`);
    found.push(
      missing.length === 0
        ? ok("the kernel has the driver")
        : wrong(
            `the kernel lacks ${missing.join(", ")}`,
            `modprobe -a ${missing.map((name) => MODULES[name] ?? name).join(" ")}; or --tunnel-driver=auto on all nodes and routers`,
          ),
    );
  }
  return found;
}

function certificates({ certificates: found, now }: NodeFacts): readonly FaultCheck[] {
  return found.map(({ program, path, pem }) => {
    const { ok, warning, wrong } = judged("certificate", `${path} of ${program}`);
    const remedy = `renew ${path}; ${program} reads the new file by itself`;
    if ("fault" in pem)
      return wrong(`cannot be read: ${pem.fault}`, `write ${path}, or correct the flag of ${program}`);
    const certificate = parseCertificate(pem.value);
    if (certificate === undefined) return wrong("is not a certificate in PEM", remedy);
    const fault = validityFault(certificate, now);
    if (fault === undefined) return ok(`is valid until ${certificate.validTo}`);
    return (fault.isExpired ? wrong : warning)(fault.text, remedy);
  });
}

function clock({ clock: offset }: NodeFacts): readonly FaultCheck[] {
  if (offset === undefined) return [];
  const { ok, warning, wrong, unknown } = judged("clock", "clock");
  if ("fault" in offset) return [unknown(offset.fault)];
  const seconds = Math.round(Math.abs(offset.value) / 1000);
  const text = `is ${seconds} s ${offset.value > 0 ? "ahead of" : "behind"} the API server's`;
  const remedy = "systemctl start chrony (or the time service of the machine), then: chronyc tracking";
  if (Math.abs(offset.value) > FAR_APART_MS) return [wrong(text, remedy)];
  return Math.abs(offset.value) > APART_MS ? [warning(text, remedy)] : [ok("agrees with the API server's")];
}
