import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { parseSettings } from "#features/uplink-config";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import type { RouteSpec } from "#kernel/route";
import type { RuleSpec } from "#kernel/rule";
import { readKernel } from "../state/index.ts";
import { applyRouting, planFlush, planRouting, type RoutingChange } from "./index.ts";

const NO_CLUSTER = { podCIDRs: [], serviceCIDRs: [] };

/** A node with `eth0` (index 1), `eth1` (2) and `br0` (3), each up, and its uplinks' addresses and default routes of IPv4. */
class Node {
  readonly stack: NetStack;

  constructor() {
    const kernel = new FakeKernel();
    const far = kernel.createNetNs("far");
    this.stack = kernel.openStack(kernel.createNetNs("node"));
    for (const name of ["eth0", "eth1", "br0"]) {
      this.stack.links.create({ kind: "veth", name, up: true, peer: { name: `${name}p`, netns: far, up: true } });
    }
    this.assign("eth0", "192.0.2.10", 24).assign("eth1", "198.51.100.10", 24);
    this.route("192.0.2.1", 100).route("198.51.100.1", 200);
  }

  indexOf(name: string): number {
    return this.stack.links.get({ name })?.index ?? assert.fail(name);
  }

  assign(ifName: string, address: string, prefixLength: number): this {
    this.stack.addresses.add({
      linkIndex: this.indexOf(ifName),
      address: IpAddress.parse(address),
      prefixLength,
      noDad: true,
    });
    return this;
  }

  unassign(ifName: string, address: string, prefixLength: number): this {
    this.stack.addresses.delete({ linkIndex: this.indexOf(ifName), address: IpAddress.parse(address), prefixLength });
    return this;
  }

  /** A default route of the main table, or a route of another table. */
  route(gateway: string, metric: number, other: { readonly dst?: string; readonly table?: number } = {}): this {
    const { dst = "0.0.0.0/0", table = 254 } = other;
    this.stack.routes.add({ dst: Cidr.parse(dst), gateway: IpAddress.parse(gateway), metric, table, protocol: 4 });
    return this;
  }

  /** The changes of IPv4 as `ip` would be told them; interfaces by name, tables as `t:NAME` where they are that of an uplink. */
  plan(config: Readonly<Record<string, unknown>>): string[] {
    const listing = readKernel(this.stack);
    const { settings } = parseSettings(JSON.stringify({ version: 1, ...config }), "test");
    const { changes, tables } = planRouting(settings, listing);
    const names = new Map([...tables].map(([name, table]) => [table, `t:${name}`]));
    return changes.filter(isIPv4).map((change) => describe(change, { listing, names }));
  }

  apply(config: Readonly<Record<string, unknown>>): this {
    const { settings } = parseSettings(JSON.stringify({ version: 1, ...config }), "test");
    applyRouting(this.stack, planRouting(settings, readKernel(this.stack)).changes);
    return this;
  }
}

function isIPv4(change: RoutingChange): boolean {
  return "rule" in change ? change.rule.family === 4 : change.route.dst.family === 4;
}

interface Names {
  readonly listing: ReturnType<typeof readKernel>;
  readonly names: ReadonlyMap<number, string>;
}

function describe(change: RoutingChange, { listing, names }: Names): string {
  const table = (id = 254): string => (id === 254 ? "main" : (names.get(id) ?? String(id)));
  if ("rule" in change) {
    const { from, to, priority, table: id }: RuleSpec = change.rule;
    const match = [from === undefined ? "" : `from ${from}`, to === undefined ? "" : `to ${to}`].join("").trim();
    return `${change.op} ${priority}: ${match} lookup ${table(id)}`;
  }
  const { dst, type, gateway, linkIndex, metric, onlink, table: id }: RouteSpec = change.route;
  const link = listing.links.find(({ index }) => index === linkIndex)?.name;
  const way = [
    gateway === undefined ? "" : ` via ${gateway}`,
    link === undefined || type === "unreachable" ? "" : ` dev ${link}`,
    onlink === true ? " onlink" : "",
    metric === undefined || metric === 0 || type === "unreachable" ? "" : ` metric ${metric}`,
  ].join("");
  return `${change.op} ${type === "unreachable" ? "unreachable " : ""}${dst}${way} table ${table(id)}`;
}

const LAN = { name: "lan", interface: "eth0" };
const LTE = { name: "lte", interface: "eth1", cost: 10 };

const ROWS: readonly {
  readonly why: string;
  readonly node?: (node: Node) => void;
  /** In force, and applied, before. */
  readonly before?: Readonly<Record<string, unknown>>;
  readonly after?: (node: Node) => void;
  readonly config: Readonly<Record<string, unknown>>;
  readonly plan: readonly string[];
}[] = [
  {
    why: "observe: the end of the table first, then a copy of the main table's routes, the source rule last",
    config: { uplinks: [LAN], routing: NO_CLUSTER },
    plan: [
      "add-route unreachable 0.0.0.0/0 table t:lan",
      "add-route 192.0.2.0/24 dev eth0 table t:lan",
      "add-route 0.0.0.0/0 via 192.0.2.1 dev eth0 metric 100 table t:lan",
      "add-rule 15000: from 192.0.2.10/32 lookup t:lan",
    ],
  },
  {
    why: "static: the table is made of the settings, with a gateway outside every prefix on the link",
    config: {
      uplinks: [{ ...LAN, mode: "static", addresses: ["192.0.2.10/24"], gateway4: "203.0.113.1" }],
      routing: NO_CLUSTER,
    },
    plan: [
      "add-route unreachable 0.0.0.0/0 table t:lan",
      "add-route 192.0.2.0/24 dev eth0 table t:lan",
      "add-route 0.0.0.0/0 via 203.0.113.1 dev eth0 onlink table t:lan",
      "add-rule 15000: from 192.0.2.10/32 lookup t:lan",
    ],
  },
  {
    why: "settled: nothing is left to do",
    before: { uplinks: [LAN, LTE] },
    config: { uplinks: [LAN, LTE] },
    plan: [],
  },
  {
    why: "pods and Services are looked up in main before any source",
    config: { uplinks: [], routing: { podCIDRs: ["10.42.0.0/16"], serviceCIDRs: ["10.43.0.0/16"] } },
    plan: ["add-rule 13000: to 10.42.0.0/16 lookup main", "add-rule 13000: to 10.43.0.0/16 lookup main"],
  },
  {
    why: "Services go through table 400 where the cluster has an interface of its own",
    node: (node) => void node.assign("br0", "10.244.0.2", 24),
    config: {
      uplinks: [],
      routing: { podCIDRs: [], serviceCIDRs: ["10.43.0.0/16"], clusterInterface: "br0" },
    },
    plan: ["add-route 10.43.0.0/16 via 10.244.0.2 dev br0 table 400", "add-rule 13000: to 10.43.0.0/16 lookup 400"],
  },
  {
    why: "a link that is down keeps its rule and the end of its table: its packets go nowhere",
    before: { uplinks: [LAN], routing: NO_CLUSTER },
    after: (node) => void node.stack.links.set(node.indexOf("eth0"), { up: false }),
    config: { uplinks: [LAN], routing: NO_CLUSTER },
    plan: [],
  },
  {
    why: "an address that is removed takes its rule along",
    node: (node) => void node.assign("eth0", "192.0.2.11", 24),
    before: { uplinks: [LAN], routing: NO_CLUSTER },
    after: (node) => void node.unassign("eth0", "192.0.2.11", 24),
    config: { uplinks: [LAN], routing: NO_CLUSTER },
    plan: ["delete-rule 15000: from 192.0.2.11/32 lookup t:lan"],
  },
  {
    why: "an uplink that is taken out: the rule goes first, the end of the table last",
    before: { uplinks: [LAN, LTE], routing: NO_CLUSTER },
    config: { uplinks: [LAN], routing: NO_CLUSTER },
    plan: [
      "delete-rule 15000: from 198.51.100.10/32 lookup LTE",
      "delete-route 198.51.100.0/24 dev eth1 table LTE",
      "delete-route 0.0.0.0/0 via 198.51.100.1 dev eth1 metric 200 table LTE",
      "delete-route unreachable 0.0.0.0/0 table LTE",
    ],
  },
  { why: "manage is off: nothing", config: { uplinks: [LAN, LTE], routing: { manage: false } }, plan: [] },
];

test("planRouting: each situation has its changes, in an order in which no rule leads to an empty table", () => {
  for (const { why, node: setUp, before, after, config, plan } of ROWS) {
    const node = new Node();
    setUp?.(node);
    if (before !== undefined) node.apply(before);
    after?.(node);
    // The table of an uplink that is gone has no name any more.
    const gone = String(500 + node.indexOf("eth1"));
    assert.deepEqual(
      node.plan(config).map((line) => line.replace(new RegExp(`(lookup|table) ${gone}$`), "$1 LTE")),
      plan,
      why,
    );
  }
});

test("planRouting: setMetrics ranks the main table's default routes by cost, and each way is there at every step", () => {
  const node = new Node();
  const uplinks = [
    { ...LAN, cost: 10 },
    { ...LTE, cost: 0 },
  ];
  const main = node.plan({ uplinks, routing: { ...NO_CLUSTER, setMetrics: true } }).filter((one) => /main$/.test(one));
  assert.deepEqual(main, [
    "add-route 0.0.0.0/0 via 192.0.2.1 dev eth0 metric 5001 table main",
    "add-route 0.0.0.0/0 via 198.51.100.1 dev eth1 metric 5000 table main",
    "delete-route 0.0.0.0/0 via 192.0.2.1 dev eth0 metric 100 table main",
    "delete-route 0.0.0.0/0 via 198.51.100.1 dev eth1 metric 200 table main",
  ]);
});

test("planRouting: a table that has foreign routes is left alone; the uplink gets the next free one from base + 1000", () => {
  const node = new Node();
  node.route("192.0.2.1", 0, { dst: "10.77.0.0/16", table: 500 + node.indexOf("eth0") });
  const { settings } = parseSettings(JSON.stringify({ version: 1, uplinks: [LAN] }), "test");
  assert.deepEqual([...planRouting(settings, readKernel(node.stack)).tables], [["lan", 1500]]);
});

test("planFlush: everything with our marks goes, rules first, and nothing else", () => {
  const node = new Node();
  const before = readKernel(node.stack);
  const config = { uplinks: [LAN, LTE] };
  node.apply(config);
  const { settings } = parseSettings(JSON.stringify({ version: 1, ...config }), "test");
  const plan = planFlush(readKernel(node.stack), settings.routing);
  const lastRule = plan.findLastIndex(({ op }) => op === "delete-rule");
  assert.ok(lastRule >= 0 && plan.slice(0, lastRule).every(({ op }) => op === "delete-rule"));
  applyRouting(node.stack, plan);
  assert.deepEqual(readKernel(node.stack), before);
});
