import assert from "node:assert/strict";
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { addToEstate, type ClaimSet, type KernelClaim } from "#base/estate";
import { Cidr, IpAddress } from "#base/ip";
import { planNode } from "#features/uninstall";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import type { RouteSpec } from "#kernel/route";
import { nodePrograms, placesOf } from "#test/uninstall-places";
import { bootId, ownNetns } from "../../shared/estate/index.ts";
import { changedSettings, readNode } from "./read-node.ts";

test("changedSettings: a setting whose link is gone is none", () => {
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  stack.links.create({ kind: "bridge", name: "eth0" });
  const [there, gone] = ["net/ipv6/conf/eth0/accept_ra", "net/ipv6/conf/eth1/accept_ra"] as const;
  stack.sysctl.set(there, 2);
  assert.deepEqual(changedSettings(stack, { [there]: "1", [gone]: "1" }), [{ key: there, former: "1", now: "2" }]);
});

/** A plan of `nic-agent` with one NIC of Alcor, whose device is in the sandbox. */
const alcorPlan = (containerId: string, names: readonly string[]): string =>
  JSON.stringify({
    ...{ containerId, podUid: "uid-1", network: "vpc", netns: "/run/netns/s", dns: {} },
    nics: names.map((name, index) => ({
      ...{ name, portId: "30b6911d-1111-4111-8111-000000000001", index, metric: 100, acceptRa: false },
      ...{ addresses: ["10.0.0.5/24"], routes: [], rules: [] },
      place: { kind: "alcor", netns: "/run/netns/vpc-ns1", device: "veth30b6911d-11", waitMs: 1, mizarTuning: true },
    })),
  });

const readPlan = async (stack: NetStack, root: string): Promise<ReturnType<typeof planNode>> =>
  planNode(
    readNode({ stack, nft: new FakeNft(), elements: new FakeNftElements() }, placesOf(root, await nodePrograms())),
    { pods: true, restoreSettings: false },
  );

test("readNode: NICs that are in sandboxes alone are known by nic-agent's journal, and refuse the removal by container", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  const journal = join(root, "var/lib/isthmus/cni");
  const write = (name: string, text: string): void => writeFileSync(join(journal, name), text);
  mkdirSync(journal, { recursive: true });
  mkdirSync(join(root, "run/netns"), { recursive: true });
  writeFileSync(join(root, "run/netns/s"), "");
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const read = async () => (await readPlan(stack, root)).refused;
  write("c0.json", alcorPlan("c0", []));
  assert.deepEqual(await read(), [], "a plan without a NIC is no reason");
  write("c1.json", alcorPlan("c1", ["eth0", "eth1"]));
  assert.deepEqual(await read(), [
    "containers have NICs of VPCs (c1: eth0, eth1): delete their pods while nic-agent runs, which unplugs their ports",
  ]);
  write("c2.json", "{");
  const [, fault = ""] = await read();
  assert.match(fault, /c2\.json is not JSON: remove it if its container is gone/);
  assert.ok(fault.includes(root), fault);
});

test("readNode: NICs of a sandbox that is gone are removed, and refuse nothing; a folder without /run cannot tell", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "var/lib/isthmus/cni"), { recursive: true });
  writeFileSync(join(root, "var/lib/isthmus/cni/c1.json"), alcorPlan("c1", ["eth0"]));
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const read = () => readPlan(stack, root);
  assert.match((await read()).refused.join(), /containers have NICs of VPCs \(c1: eth0\)/);
  mkdirSync(join(root, "run"));
  const { refused, removals } = await read();
  assert.deepEqual(refused, []);
  assert.deepEqual(removals[0], {
    op: "unplug",
    containerId: "c1",
    what: "remove NICs eth0 of container c1",
    why: "nic-agent's, by its journal; the sandbox is gone",
  });
  stack.links.create({ kind: "bridge", name: "tap1", alias: "isthmus-nic:p:c1" });
  assert.match((await read()).refused.join(), /containers have NICs of VPCs \(c1: eth0\)/, "a device of it is there");
});

test("readNode: the bind address of the tunnel on lo is named and stays, that of proxy-agent goes with its link; the counters of uplink-proxy go", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "run/mgmtproxy/MetricsMap"), { recursive: true });
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const lo = stack.links.get({ name: "lo" }) ?? assert.fail();
  const bind = stack.links.create({ kind: "dummy", name: "knode0", alias: "ISTHMUS:bind" });
  const address = IpAddress.parse("10.255.255.1");
  stack.addresses.add({ linkIndex: bind.index, address, prefixLength: 32 });
  assert.deepEqual((await readPlan(stack, root)).kept, []);
  stack.addresses.add({ linkIndex: lo.index, address, prefixLength: 32 });
  const { kept, removals } = await readPlan(stack, root);
  assert.match(kept.join(), /^address 10\.255\.255\.1\/32 on lo: .*ip address delete 10\.255\.255\.1\/32 dev lo$/);
  assert.deepEqual(
    removals.map(({ what }) => what.replace(root, "")),
    ["delete link knode0", "remove /run/mgmtproxy"],
  );
});

/** The estate of a program, as its daemon leaves it. */
function leave(root: string, program: string, set: Partial<ClaimSet>): void {
  const here = { boot: bootId(), netns: String(ownNetns()), kernel: [], files: [] };
  addToEstate(join(root, "run/isthmus", program), program, { ...here, ...set });
}

/** A node with routes and rules of a coild, a coil-router and an uplink-proxy with these numbers, and those of others. */
function busyNode(t: TestContext) {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "run"));
  const kernel = new FakeKernel();
  const own = kernel.openNetNs("own");
  const stack = kernel.openStack(own);
  t.after(() => {
    for (const one of [stack, own]) one[Symbol.dispose]();
  });
  const lo = stack.links.get({ name: "lo" }) ?? assert.fail();
  const add = (dst: string, table: number, protocol: number, more: Partial<RouteSpec> = {}): void =>
    stack.routes.add({ dst: Cidr.parse(dst), table, protocol, linkIndex: lo.index, scope: "link", ...more });
  add("10.0.0.1/32", 200, 77);
  add("10.0.1.0/24", 219, 77);
  add("10.0.2.0/24", 254, 78);
  for (const table of [200, 254]) add("192.0.2.0/24", table, 4);
  stack.rules.add({ family: 4, priority: 1234, table: 200 });
  stack.rules.add({ family: 4, priority: 1234, table: 200, from: Cidr.parse("192.0.2.0/24") });
  add("0.0.0.0/0", 3002, 99, { type: "unreachable", metric: 0xffff_ffff, linkIndex: undefined, scope: "global" });
  stack.rules.add({ family: 4, priority: 21, table: 3002, from: Cidr.parse("192.0.2.1/32"), protocol: 99 });
  return { root, stack, plan: () => readPlan(stack, root) };
}

const COILD: readonly KernelClaim[] = [
  { id: "pod-routes", kind: "routes", table: 200, protocol: 77 },
  { id: "export-routes", kind: "routes", table: 219, protocol: 77 },
  { id: "pod-rule", kind: "rules", priority: 1234, table: 200 },
];
const UPLINKS: readonly KernelClaim[] = [
  { id: "uplink-routes", kind: "routes", table: [3001, 0xffff_ffff], protocol: 98 },
  { id: "source-rules", kind: "rules", priority: 21, table: [3001, 0xffff_ffff], protocol: 98 },
];

test("readNode: marks of configured numbers are found by the estates, and those of others with the same table or priority stay", async (t) => {
  const { root, plan, stack } = busyNode(t);
  const before = await plan();
  assert.deepEqual(before.removals, []);
  assert.match(before.unfinished.join("\n"), /routes of table 3002 and protocol 99 end as those of an uplink/);
  leave(root, "coild", { kernel: COILD });
  leave(root, "coil-router", { kernel: [{ id: "node-routes", kind: "routes", table: 254, protocol: 78 }] });
  stack.routes.add({
    dst: Cidr.parse("0.0.0.0/0"),
    table: 3003,
    protocol: 98,
    type: "unreachable",
    metric: 0xffff_ffff,
  });
  leave(root, "uplink-proxy", { kernel: UPLINKS });
  const { removals, unsure } = await plan();
  assert.deepEqual(
    removals.map(({ what }) => what.replace(root, "")),
    [
      "delete IPv4 rule 1234: lookup 200",
      "delete route 10.0.0.1/32 of table 200",
      "delete route 10.0.1.0/24 of table 219",
      "delete route 10.0.2.0/24 of table 254",
      "delete 1 routes of uplinks",
      "remove /run/isthmus",
    ],
  );
  assert.deepEqual(unsure, []);
});

test("readNode: hostile estates remove nothing of others; each claim that does not count is named", async (t) => {
  const { root, plan } = busyNode(t);
  const hostile: readonly KernelClaim[] = [
    { id: "pod-routes", kind: "routes", table: 254, protocol: 4 },
    { id: "pod-routes", kind: "routes", table: 200, protocol: 4 },
    { id: "pod-routes", kind: "routes", table: [1, 0xffff_ffff], protocol: 77 },
    { id: "pod-rule", kind: "rules", priority: 1234, table: 254 },
    { id: "pod-rule", kind: "rules", priority: [1, 32_765], table: [1, 252] },
    { id: "guard-inet", kind: "nft-table", family: "inet", name: "filter" },
    { id: "uplink-routes", kind: "routes", table: [1, 0xffff_ffff], protocol: 77 },
  ];
  leave(root, "coild", { kernel: hostile });
  leave(root, "coil-router", { kernel: [{ id: "node-routes", kind: "routes", table: 254, protocol: 12 }] });
  leave(root, "uplink-proxy", {
    kernel: [{ id: "uplink-routes", kind: "routes", table: [1, 0xffff_ffff], protocol: 4 }],
  });
  const { removals, unsure } = await plan();
  assert.deepEqual(
    removals.map(({ what }) => what.replace(root, "")),
    ["remove /run/isthmus"],
  );
  assert.equal(unsure.filter((line) => line.startsWith("the estate of coild claims ")).length, hostile.length);
  assert.match(
    unsure.join("\n"),
    /coil-router claims the main table, protocol 12: the protocol is that of a routing daemon/,
  );
});

test("readNode: the estate of another network namespace, or of an earlier boot, claims nothing in the kernel", async (t) => {
  const { root, plan, stack } = busyNode(t);
  leave(root, "coild", { kernel: COILD, netns: "1" });
  const state = join(root, "var/lib/isthmus/coild");
  addToEstate(state, "coild", { boot: "0", netns: String(ownNetns()), kernel: COILD, files: [] });
  stack.rules.add({ family: 4, priority: 2000, table: 116 });
  const { removals, unsure } = await plan();
  assert.ok(!removals.some(({ op }) => op === "delete-route"));
  assert.match(unsure.join(), /coild has left no estate on this node/);
  const given = { coild: { podTableId: 200, podRulePrio: 1234, protocolId: 77, exportTableId: undefined } };
  const nodeKernel = { stack, nft: new FakeNft(), elements: new FakeNftElements() };
  const flagged = planNode(readNode(nodeKernel, placesOf(root, await nodePrograms(), given)), {
    ...{ pods: true, restoreSettings: false },
  });
  assert.deepEqual(flagged.unsure, []);
  assert.deepEqual(
    flagged.removals.slice(0, 3).map(({ what }) => what),
    ["delete IPv4 rule 1234: lookup 200", "delete IPv4 rule 2000: lookup 116", "delete route 10.0.0.1/32 of table 200"],
  );
});

test("readNode: the bind address that proxy-agent has added to lo goes by its estate and scope, others stay", async (t) => {
  const { root, plan, stack } = busyNode(t);
  const lo = stack.links.get({ name: "lo" })?.index ?? assert.fail();
  const [own, theirs, wide] = ["10.255.255.1", "10.9.9.9", "10.9.9.8"].map((text) => IpAddress.parse(text)) as [
    IpAddress,
    IpAddress,
    IpAddress,
  ];
  stack.addresses.add({ linkIndex: lo, address: own, prefixLength: 32, scope: "host" });
  stack.addresses.add({ linkIndex: lo, address: theirs, prefixLength: 32 });
  stack.addresses.add({ linkIndex: lo, address: wide, prefixLength: 32, scope: "host" });
  const removed = async (): Promise<readonly string[]> =>
    (await plan()).removals.flatMap(({ op, what }) => (op === "delete-address" ? [what] : []));
  assert.deepEqual(await removed(), []);
  const claims = [own, theirs].map(
    (address) => ({ id: "lo-address", kind: "address", address: String(address), link: "lo" }) as const,
  );
  leave(root, "proxy-agent", { kernel: claims });
  assert.deepEqual(await removed(), ["delete address 10.255.255.1/32 of lo"]);
  if (process.getuid?.() !== 0) return;
  for (const path of ["", "estate.json"]) chownSync(join(root, "run/isthmus/proxy-agent", path), 1000, 1000);
  assert.deepEqual(await removed(), [], "of another user it is too little");
});
