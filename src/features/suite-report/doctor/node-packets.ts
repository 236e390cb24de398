import { MIN_IPV6_MTU_BYTES } from "#base/ip";
import type { Rule } from "#kernel/rule";
import { ALLOW_ALL, forwardDrops, forwardDropText } from "../forward-drops.ts";
import { flagOf, type SuiteCommand } from "../programs.ts";
import { type FaultCheck, judged } from "./faults.ts";
import { hasPodNetwork, runs } from "./node-cni.ts";
import type { InputFinding, NeededPort, NodeFacts } from "./node-facts.ts";

/** The table of local addresses, whose rule comes first on every machine. */
const LOCAL_TABLE = 255;

/** The host forwards packets of both families. */
export function forwarding(facts: NodeFacts): readonly FaultCheck[] {
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

/** No rule for all packets comes before the rule of the pods. */
export function ruleOrder(facts: NodeFacts): readonly FaultCheck[] {
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

/** No packet filter of others drops what the node forwards for pods. */
export function forwardFilters({ forward }: NodeFacts): readonly FaultCheck[] {
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

/** No packet filter of others drops connections to ports that others must reach. */
export function inputFilters({ input, processes }: NodeFacts): readonly FaultCheck[] {
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

/** systemd-networkd leaves rules and routes of others alone. */
export function networkd({ networkd: found, processes }: NodeFacts): readonly FaultCheck[] {
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

function takesAll({ from, to, iif, oif, fwmark, invert, action, table, suppressPrefixLength }: Rule): boolean {
  const isAny = (range: Rule["from"]): boolean => range === undefined || range.prefixLength === 0;
  if (invert === true || iif !== undefined || oif !== undefined || fwmark !== undefined) return false;
  if (!isAny(from) || !isAny(to) || suppressPrefixLength !== undefined) return false;
  // The rule of VRFs has no table of its own: packets of others pass it.
  return action === "lookup" ? table !== LOCAL_TABLE && table !== 0 : action !== "nop" && action !== "goto";
}

/** No other proxy has left rules here. */
export function rivals(facts: NodeFacts): readonly FaultCheck[] {
  if (runs(facts, "service-proxy") === undefined) return [];
  const { ok, wrong } = judged("rival-proxy", "Services");
  if (facts.rivals.length === 0) return [ok("no other proxy has left rules here")];
  return facts.rivals.map((text) => {
    const [what = text, fix = "remove its rules"] = text.split(/; (?:remove (?:it|them) with )/);
    return wrong(what, `remove the DaemonSet kube-proxy from the node, then: ${fix}`);
  });
}

/** The node has a route to each range of Services. */
export function serviceRoutes(facts: NodeFacts): readonly FaultCheck[] {
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

/** Packets for 127.0.0.1 are not accepted from outside. */
export function routeLocalnet(facts: NodeFacts): readonly FaultCheck[] {
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

/** No pod has a larger MTU than the narrowest uplink. */
export function mtu(facts: NodeFacts): readonly FaultCheck[] {
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
export function ipv6Mtu(facts: NodeFacts): readonly FaultCheck[] {
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
