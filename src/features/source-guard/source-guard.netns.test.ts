import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { Cidr, IpAddress, type MacAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import { NftTransaction, openNft } from "#kernel/nft";
import { ElementBatch, openNftElements } from "#kernel/nft-elements";
import {
  advertisement,
  arp,
  type Frame,
  icmpv6,
  redirect,
  routerAdvertisement,
  sendFrames,
  solicitation,
  tagged,
  udp,
  vxlan,
  withExtensions,
} from "#test/forged-frames";
import { until } from "#test/lab";
import {
  GUARD_REASONS,
  type GuardedLink,
  type GuardMode,
  type GuardReason,
  removeGuard,
  SourceGuard,
} from "./index.ts";

const ip = IpAddress.parse;
const POD = { v4: ip("10.1.0.2"), v6: ip("fd01::2"), local: ip("fe80::2") };
const OTHER = { v4: ip("10.1.0.3"), v6: ip("fd01::3") };
const NODE = { v4: ip("10.1.255.1"), v6: ip("fd01::1:1"), local: ip("fe80::1") };
const OUTSIDE = { v4: ip("192.0.2.9"), v6: ip("2001:db8::9") };
const ALL_NODES = ip("ff02::1");
const ALL_ROUTERS = ip("ff02::2");
const MLD_ROUTERS = ip("ff02::16");
const solicited = (address: IpAddress): IpAddress =>
  IpAddress.fromBytes(Buffer.concat([ip("ff02::1:ff00:0").toBytes().subarray(0, 13), address.toBytes().subarray(13)]));

interface End {
  readonly netns: NetNs;
  readonly link: { readonly index: number; readonly mac: MacAddress; readonly peerMac: MacAddress };
  /** The host's end. */
  readonly ifindex: number;
}

/** A node that forwards, with the links of two pods and an uplink, each to a namespace of its own, and the guard on the pods' links. */
function bed(mode: GuardMode = "on") {
  const stack = new DisposableStack();
  const kernel = openKernel();
  const node = stack.use(kernel.createAnonymousNetNs());
  const host = stack.use(kernel.openStack(node));
  host.sysctl.set("net/ipv4/ip_forward", 1);
  host.sysctl.set("net/ipv6/conf/all/forwarding", 1);
  const join = (name: string): End => {
    const netns = stack.use(kernel.createAnonymousNetNs());
    const far = stack.use(kernel.openStack(netns));
    const { index } = host.links.create({ kind: "veth", name, peer: { name: "eth0", netns } });
    for (const [at, link] of [
      [host, name],
      [far, "eth0"],
    ] as const) {
      at.sysctl.set(`net/ipv6/conf/${link}/accept_dad`, 0);
      // The kernels at both ends send nothing by themselves.
      at.sysctl.set(`net/ipv6/conf/${link}/addr_gen_mode`, 1);
      at.links.set(at.links.get({ name: link })?.index ?? assert.fail(), { up: true });
    }
    const peer = far.links.get({ name: "eth0" });
    const macs = [peer?.mac, host.links.get({ name })?.mac];
    if (peer === undefined || macs[0] === undefined || macs[1] === undefined) assert.fail();
    return { netns, link: { index: peer.index, mac: macs[0], peerMac: macs[1] }, ifindex: index };
  };
  const [a, b, uplink] = [join("pod-a"), join("pod-b"), join("uplink")];
  for (const end of [a, b]) {
    host.addresses.add({ linkIndex: end.ifindex, address: NODE.v4, prefixLength: 32 });
    host.addresses.add({ linkIndex: end.ifindex, address: NODE.local, prefixLength: 64, scope: "link", noDad: true });
    host.addresses.add({ linkIndex: end.ifindex, address: NODE.v6, prefixLength: 128, noDad: true });
  }
  host.addresses.add({ linkIndex: uplink.ifindex, address: ip("192.0.2.1"), prefixLength: 24 });
  host.addresses.add({ linkIndex: uplink.ifindex, address: ip("2001:db8::1"), prefixLength: 64, noDad: true });
  for (const address of [POD.v4, POD.v6]) host.routes.add({ dst: Cidr.host(address), linkIndex: a.ifindex });
  for (const address of [OTHER.v4, OTHER.v6]) host.routes.add({ dst: Cidr.host(address), linkIndex: b.ifindex });
  const nft = stack.use(openNft(node));
  const elements = stack.use(openNftElements(node));
  const guard = new SourceGuard({ nft, elements }, { mode });
  const links: GuardedLink[] = [
    { ifindex: a.ifindex, addresses: [POD.v4, POD.v6], extra: [] },
    { ifindex: b.ifindex, addresses: [OTHER.v4, OTHER.v6], extra: [] },
  ];
  guard.sync(links);
  // What passes the guard is counted behind it.
  const behind = new NftTransaction({ family: "inet", name: "behind" }).replaceTable();
  behind
    .chain("passed", { type: "filter", hook: "prerouting", priority: -280, policy: "accept" })
    .rule("passed", "counter");
  const behindArp = new NftTransaction({ family: "arp", name: "behind" }).replaceTable();
  behindArp
    .chain("passed", { type: "filter", hook: "input", priority: 10, policy: "accept" })
    .rule("passed", "counter");
  nft.run(behind);
  nft.run(behindArp);
  const passed = (): number =>
    (["inet", "arp"] as const).reduce(
      (sum, family) => sum + (nft.listCounters({ family, name: "behind" }, "passed")[0]?.packets ?? 0),
      0,
    );
  const refused = (): number => GUARD_REASONS.reduce((sum, reason) => sum + guard.counts()[reason], 0);
  /** Sends the frames, and returns what passed and what was refused, when all have been judged. */
  const judge = async (from: End, frames: readonly Frame[]) => {
    const before = { passed: passed(), counts: guard.counts(), refused: refused() };
    sendFrames(from.netns, from.link, frames);
    const judged = (): number => (mode === "on" ? passed() + refused() - before.refused : passed()) - before.passed;
    await until("every frame was judged", () => judged() >= frames.length, {
      everyMs: 1,
      deadlineMs: 10_000,
      seen: () => `${judged()} of ${frames.length}`,
    });
    assert.equal(judged(), frames.length);
    const counts = guard.counts();
    return {
      passed: passed() - before.passed,
      refused: Object.fromEntries(
        GUARD_REASONS.map((reason) => [reason, counts[reason] - before.counts[reason]] as const).filter(
          ([, count]) => count > 0,
        ),
      ),
    };
  };
  return {
    ...{ node, host, nft, elements, guard, links, a, b, uplink, judge },
    neighbours: (ifindex: number): number => host.neighbours.list({ linkIndex: ifindex }).length,
    [Symbol.dispose]: () => stack.dispose(),
  };
}

/** Every kind of packet of a pod, by what must become of it. */
function kinds(mac: MacAddress): Readonly<Record<GuardReason | "allowed", readonly (readonly [string, Frame])[]>> {
  const me = { ip: POD.local, mac };
  const any6 = ip("::");
  const outer = udp(OTHER.v4, OUTSIDE.v4);
  const echo = Buffer.from([0, 1, 0, 1]);
  return {
    allowed: [
      ["IPv4", udp(POD.v4, OUTSIDE.v4)],
      ["IPv6", udp(POD.v6, OUTSIDE.v6)],
      ["a first fragment of IPv4", udp(POD.v4, OUTSIDE.v4, { fragment: "first" })],
      ["a later fragment of IPv4", udp(POD.v4, OUTSIDE.v4, { fragment: "later" })],
      ["a fragment of IPv6", udp(POD.v6, OUTSIDE.v6, { fragment: "later" })],
      ["extension headers", withExtensions(udp(POD.v6, OUTSIDE.v6))],
      ["a tag with VID 0", tagged(0, udp(POD.v4, OUTSIDE.v4))],
      ["to the node", udp(POD.v6, NODE.v6)],
      ["to the node's link-local address", icmpv6(128, POD.v6, NODE.local, echo)],
      ["an ARP request", arp("request", { ip: POD.v4, mac }, NODE.v4)],
      ["an ARP reply", arp("reply", { ip: POD.v4, mac }, NODE.v4)],
      ["an ARP probe for its own address", arp("request", { ip: ip("0.0.0.0"), mac }, POD.v4)],
      ["a solicitation", solicitation({ ip: POD.v6, mac }, NODE.local)],
      ["a solicitation by multicast", solicitation({ ip: POD.v6, mac }, solicited(NODE.local), NODE.local)],
      ["a solicitation from the link-local address", solicitation(me, solicited(NODE.local), NODE.local)],
      ["an advertisement", advertisement({ ip: POD.v6, mac }, NODE.local)],
      ["an advertisement from the link-local address", advertisement(me, ALL_NODES)],
      ["a router solicitation", icmpv6(133, POD.local, ALL_ROUTERS)],
      ["an MLD report", icmpv6(143, POD.local, MLD_ROUTERS)],
      ["an MLD report with a router alert", withExtensions(icmpv6(143, POD.local, MLD_ROUTERS))],
      ["duplicate address detection", icmpv6(135, any6, solicited(POD.v6), Buffer.concat([echo, POD.v6.toBytes()]))],
      ["an MLD report without an address", icmpv6(143, any6, MLD_ROUTERS)],
    ],
    source: [
      ["IPv4 of another pod", udp(OTHER.v4, OUTSIDE.v4)],
      ["IPv4 of the node", udp(NODE.v4, OUTSIDE.v4)],
      ["IPv4 of somebody outside", udp(OUTSIDE.v4, OTHER.v4)],
      ["IPv4 without an address", udp(ip("0.0.0.0"), ip("255.255.255.255"))],
      ["IPv6 of another pod", udp(OTHER.v6, OUTSIDE.v6)],
      ["IPv6 of somebody outside", udp(OUTSIDE.v6, OTHER.v6)],
      ["IPv6 without an address", udp(any6, OUTSIDE.v6)],
      ["a router solicitation without an address", icmpv6(133, any6, ALL_ROUTERS)],
      ["to the node from another pod", udp(OTHER.v4, NODE.v4)],
      ["to the node's link-local address from another pod", udp(OTHER.v6, NODE.local)],
      ["a first fragment", udp(OTHER.v4, OUTSIDE.v4, { fragment: "first" })],
      ["a later fragment", udp(OTHER.v4, OUTSIDE.v4, { fragment: "later" })],
      ["a first fragment of IPv6", udp(OTHER.v6, OUTSIDE.v6, { fragment: "first" })],
      ["a later fragment of IPv6", udp(OTHER.v6, OUTSIDE.v6, { fragment: "later" })],
      ["extension headers", withExtensions(udp(OTHER.v6, OUTSIDE.v6))],
      ["a tag with VID 0", tagged(0, udp(OTHER.v4, OUTSIDE.v4))],
      ["IPv6 with a tag with VID 0", tagged(0, udp(OTHER.v6, OUTSIDE.v6))],
      ["VXLAN", vxlan(OTHER.v4, NODE.v4, outer)],
      ["VXLAN over IPv6", vxlan(OTHER.v6, NODE.v6, outer)],
      ["a solicitation of another pod", solicitation({ ip: OTHER.v6, mac }, NODE.local)],
      ["an advertisement of another pod", advertisement({ ip: OTHER.v6, mac }, NODE.local)],
      ["an ICMPv6 redirect of another pod", redirect(OTHER.v6, NODE.v6, POD.v6, OUTSIDE.v6)],
    ],
    arp: [
      ["a request of another pod", arp("request", { ip: OTHER.v4, mac }, NODE.v4)],
      ["a reply of another pod", arp("reply", { ip: OTHER.v4, mac }, NODE.v4)],
      ["an announcement of the node's address", arp("request", { ip: NODE.v4, mac }, NODE.v4)],
      ["a probe for another pod's address", arp("request", { ip: ip("0.0.0.0"), mac }, OTHER.v4)],
      ["a reply without an address", arp("reply", { ip: ip("0.0.0.0"), mac }, POD.v4)],
      ["a request with a tag with VID 0", tagged(0, arp("request", { ip: OTHER.v4, mac }, NODE.v4))],
    ],
    "link-local": [
      ["a router advertisement", routerAdvertisement(me, ALL_NODES)],
      ["a router advertisement with extension headers", withExtensions(routerAdvertisement(me, ALL_NODES))],
      ["a router advertisement with a tag with VID 0", tagged(0, routerAdvertisement(me, ALL_NODES))],
      ["a redirect", redirect(POD.local, NODE.local, POD.v6, OUTSIDE.v6)],
      ["a redirect with the node's source", redirect(NODE.local, NODE.local, POD.v6, OUTSIDE.v6)],
      ["an MLD query", icmpv6(130, POD.local, ALL_NODES, Buffer.alloc(20))],
      ["UDP", udp(POD.local, NODE.local)],
      ["an echo request", icmpv6(128, POD.local, NODE.local, echo)],
      ["a solicitation to outside", solicitation(me, OUTSIDE.v6)],
      ["a solicitation to a neighbour that is not the node", solicitation(me, ip("fe80::99"))],
      ["a packet to a neighbour that is not the node", udp(POD.v6, ip("fe80::99"))],
    ],
    outside: [],
  };
}

/** All kinds of one verdict at once; if the sum is another one, each by itself, so that it is named. */
async function judgeKinds(
  at: ReturnType<typeof bed>,
  expected: (verdict: string, count: number) => Awaited<ReturnType<ReturnType<typeof bed>["judge"]>>,
): Promise<void> {
  for (const [verdict, frames] of Object.entries(kinds(at.a.link.mac))) {
    if (frames.length === 0) continue;
    const found = await at.judge(
      at.a,
      frames.map(([, frame]) => frame),
    );
    if (isDeepStrictEqual(found, expected(verdict, frames.length))) continue;
    for (const [what, frame] of frames)
      assert.deepEqual(await at.judge(at.a, [frame]), expected(verdict, 1), `${verdict}: ${what}`);
    assert.fail(`${verdict}: ${JSON.stringify(found)}`);
  }
}

test("SourceGuard: of every kind of packet of a pod, what has the pod's sources passes, and nothing else does", async () => {
  using at = bed();
  await judgeKinds(at, (verdict, count) =>
    verdict === "allowed" ? { passed: count, refused: {} } : { passed: 0, refused: { [verdict]: count } },
  );
});

test("SourceGuard: with count everything passes, and is counted by the same reasons", async () => {
  using at = bed("count");
  await judgeKinds(at, (verdict, count) => ({
    passed: count,
    refused: verdict === "allowed" ? {} : { [verdict]: count },
  }));
});

test("SourceGuard: a pod's address that comes in by an uplink is refused; other packets of the uplink and of loopback are not judged", async () => {
  using at = bed();
  for (const from of [POD.v4, POD.v6, OTHER.v4]) {
    const to = from.family === 4 ? OTHER.v4 : OTHER.v6;
    assert.deepEqual(await at.judge(at.uplink, [udp(from, to)]), { passed: 0, refused: { outside: 1 } });
  }
  // A release without a guard may run here by now, and the address be of a pod elsewhere or of a new link.
  at.host.routes.delete({ dst: Cidr.host(OTHER.v4), linkIndex: at.b.ifindex });
  assert.equal((await at.judge(at.uplink, [udp(OTHER.v4, POD.v4)])).passed, 1);
  const others = [
    udp(OUTSIDE.v4, POD.v4),
    udp(OUTSIDE.v6, POD.v6),
    routerAdvertisement({ ip: ip("fe80::9"), mac: at.uplink.link.mac }, ALL_NODES),
  ];
  assert.deepEqual(await at.judge(at.uplink, others), { passed: 3, refused: {} });
});

test("SourceGuard: the first refused packet of each link and reason is told once, with its source", async () => {
  using at = bed();
  const { mac } = at.a.link;
  await at.judge(at.a, [
    udp(OUTSIDE.v4, OTHER.v4),
    udp(OTHER.v4, OUTSIDE.v4),
    arp("request", { ip: OTHER.v4, mac }, NODE.v4),
    routerAdvertisement({ ip: POD.local, mac }, ALL_NODES),
  ]);
  await at.judge(at.uplink, [udp(POD.v6, OTHER.v6)]);
  const told = at.guard.refusals().map(({ reason, ifindex, source }) => `${reason} ${ifindex} ${source}`);
  assert.deepEqual(told.sort(), [
    `arp ${at.a.ifindex} ${OTHER.v4}`,
    `link-local ${at.a.ifindex} ${POD.local}`,
    `outside ${at.uplink.ifindex} ${POD.v6}`,
    `source ${at.a.ifindex} ${OUTSIDE.v4}`,
  ]);
  at.guard.detach(at.a.ifindex);
  at.guard.sync(at.links.slice(1));
  assert.deepEqual(at.guard.refusals(), [], "what is told of a link goes with it");
});

test("SourceGuard: after 10,000 forged ARP and NDP packets of a pod the node has at most 16 neighbours on its link, and resolves a new one", async () => {
  using at = bed();
  const { mac } = at.a.link;
  const frames: Frame[] = [];
  for (let number = 1; number <= 2500; number += 1) {
    const v4 = IpAddress.fromValue(4, ip("10.200.0.0").value + BigInt(number));
    const v6 = IpAddress.fromValue(6, ip("fd77::").value + BigInt(number));
    const local = IpAddress.fromValue(6, ip("fe80::5:0:0").value + BigInt(number));
    frames.push(
      arp("request", { ip: v4, mac }, NODE.v4),
      solicitation({ ip: v6, mac }, NODE.v6),
      solicitation({ ip: local, mac }, NODE.local),
      // The node would look for each of these.
      udp(POD.v6, local),
    );
  }
  const found = await at.judge(at.a, frames);
  assert.equal(found.passed, 8, "as many link-local sources as a link may have");
  assert.ok(at.neighbours(at.a.ifindex) <= 16, `${at.neighbours(at.a.ifindex)} neighbours`);
  // These sources stay: a further one is refused, and they are not.
  const first = IpAddress.fromValue(6, ip("fe80::5:0:0").value + 1n);
  assert.equal((await at.judge(at.a, [solicitation({ ip: first, mac }, NODE.local)])).passed, 1);
  using outside = openKernel().openStack(at.uplink.netns);
  outside.addresses.add({ linkIndex: at.uplink.link.index, address: OUTSIDE.v4, prefixLength: 24 });
  sendFrames(at.a.netns, at.a.link, [udp(POD.v4, OUTSIDE.v4)]);
  const entry = () =>
    at.host.neighbours.list({ linkIndex: at.uplink.ifindex }).find(({ address }) => address.equals(OUTSIDE.v4));
  await until("the node has resolved its neighbour", () => entry()?.mac?.equals(at.uplink.link.mac) === true);
});

test("SourceGuard: extra sources pass as far as they go; the node learns single ones alone as neighbours", async () => {
  using at = bed();
  const { mac } = at.a.link;
  const [first, second] = at.links;
  const vip = ip("203.0.113.7");
  const extra = [
    Cidr.host(vip),
    Cidr.parse("198.51.100.0/25"),
    Cidr.parse("198.51.100.128/25"),
    Cidr.parse("fd99::/64"),
  ];
  at.guard.attach({ ...(first ?? assert.fail()), extra });
  const passes = async (frame: Frame): Promise<boolean> => (await at.judge(at.a, [frame])).passed === 1;
  assert.ok(await passes(udp(vip, OUTSIDE.v4)));
  assert.ok(await passes(udp(ip("198.51.100.200"), OUTSIDE.v4)));
  assert.ok(await passes(udp(ip("fd99::77"), OUTSIDE.v6)));
  assert.ok(await passes(arp("request", { ip: vip, mac }, NODE.v4)));
  assert.ok(!(await passes(arp("request", { ip: ip("198.51.100.1"), mac }, NODE.v4))));
  assert.ok(!(await passes(solicitation({ ip: ip("fd99::77"), mac }, NODE.local))));
  assert.ok(!(await passes(udp(OTHER.v4, OUTSIDE.v4))));
  assert.equal((await at.judge(at.b, [udp(vip, OUTSIDE.v4)])).passed, 0, "they are of one link");
  assert.equal((await at.judge(at.uplink, [udp(vip, POD.v4)])).passed, 1, "and of nobody alone");
  at.guard.attach({ ...(first ?? assert.fail()), extra: [Cidr.parse("0.0.0.0/0"), Cidr.parse("::/0")] });
  assert.ok(await passes(udp(ip("8.8.8.8"), OUTSIDE.v4)));
  assert.ok(await passes(udp(OUTSIDE.v6, OTHER.v6)));
  assert.ok(!(await passes(routerAdvertisement({ ip: POD.local, mac }, ALL_NODES))));
  at.guard.attach(first ?? assert.fail());
  assert.ok(!(await passes(udp(vip, OUTSIDE.v4))));
  assert.equal(at.guard.sync([first, second].filter((one) => one !== undefined)), 0);
});

test("SourceGuard: a second sync is empty, also in a new process; what it does not know of a link stays", async () => {
  using at = bed();
  const [first = assert.fail(), second = assert.fail()] = at.links;
  const extra = [Cidr.parse("198.51.100.0/24"), Cidr.parse("203.0.113.7/32")];
  at.guard.attach({ ...first, extra });
  assert.equal(at.guard.sync([{ ...first, extra }, second]), 0);
  const next = new SourceGuard(at, { mode: "on" });
  const unknown = at.links.map((link) => ({ ...link, extra: undefined }));
  assert.equal(next.sync(unknown), 0);
  assert.equal((await at.judge(at.a, [udp(ip("198.51.100.5"), OUTSIDE.v4)])).passed, 1);
  next.attach({ ...first, extra: [] });
  assert.equal((await at.judge(at.a, [udp(ip("198.51.100.5"), OUTSIDE.v4)])).passed, 0);
  assert.equal(next.sync(at.links), 0);
  const later = new SourceGuard(at, { mode: "count" });
  assert.ok(later.sync(at.links) > 0, "another mode has other rules");
  assert.equal(new SourceGuard(at, { mode: "count" }).sync(at.links), 0);
});

test("SourceGuard: the first guard of a node judges no link before its extra sources are known, but new links; a guard that is there stays on", async () => {
  using at = bed();
  const [first = assert.fail(), second = assert.fail()] = at.links;
  const held = { ...first, extra: undefined, isHeld: true };
  const passes = async (): Promise<boolean> => (await at.judge(at.a, [udp(OUTSIDE.v4, NODE.v4)])).passed === 1;
  const next = new SourceGuard(at, { mode: "on" });
  assert.equal(next.sync([held, second]), 0);
  assert.ok(!(await passes()), "it was judged before");
  removeGuard(at);
  const fresh = new SourceGuard(at, { mode: "on" });
  fresh.sync([held, second]);
  assert.ok(await passes());
  assert.equal((await at.judge(at.b, [udp(OUTSIDE.v4, NODE.v4)])).passed, 0, "a new link is judged at once");
  assert.equal(fresh.sync([held, second]), 0);
  const later = new SourceGuard(at, { mode: "on" });
  assert.equal(later.sync([held, second]), 0, "a process that starts before they are known holds the link too");
  assert.ok(later.sync([{ ...held, isHeld: false }, second]) > 0);
  assert.ok(!(await passes()));
  at.nft.run(new NftTransaction({ family: "inet", name: "source-guard" }).insertRule("prerouting", "accept"));
  assert.ok(later.sync([held, second]) > 0);
  assert.ok(!(await passes()), "tables that are written again judge the links that they judged");
});

test("SourceGuard: a link that is being made keeps its elements in a sync that does not have it", async () => {
  using at = bed();
  const [first = assert.fail(), second = assert.fail()] = at.links;
  const next = new SourceGuard(at, { mode: "on" });
  assert.equal(next.sync([second], { keep: new Set([first.ifindex]) }), 0);
  assert.equal((await at.judge(at.a, [udp(OTHER.v4, OUTSIDE.v4)])).passed, 0);
  assert.ok(next.sync([second]) > 0);
  assert.equal(
    (await at.judge(at.a, [udp(OTHER.v4, OUTSIDE.v4)])).passed,
    0,
    "the other pod's address is still its own",
  );
  assert.equal((await at.judge(at.a, [udp(OUTSIDE.v4, OTHER.v4)])).passed, 1, "but the link is not judged any more");
});

test("SourceGuard: what another program flushes, deletes or changes is noticed and written again, with the elements of all links", async () => {
  using at = bed();
  assert.equal(at.guard.isDamaged(), false);
  at.nft.run(new NftTransaction({ family: "inet", name: "somebody" }).addTable());
  assert.equal(at.guard.isDamaged(), false, "a table of somebody else");
  const damages: readonly (readonly [string, () => void])[] = [
    ["a table", () => at.nft.run(new NftTransaction({ family: "arp", name: "source-guard" }).removeTable())],
    [
      "a chain",
      () => at.nft.run(new NftTransaction({ family: "inet", name: "source-guard" }).flushChain("prerouting")),
    ],
    [
      "a rule",
      () => at.nft.run(new NftTransaction({ family: "inet", name: "source-guard" }).insertRule("prerouting", "accept")),
    ],
  ];
  const extra = ["203.0.113.7/32", "198.51.100.0/24", "fd99::/64", "fd98::1/128"].map((text) => Cidr.parse(text));
  const links = at.links.map((link, number) => ({ ...link, extra: number === 0 ? extra : [Cidr.parse("0.0.0.0/0")] }));
  at.guard.sync(links);
  for (const [what, damage] of damages) {
    damage();
    assert.equal(at.guard.isDamaged(), true, what);
    assert.ok(at.guard.sync(links) > 0, what);
    assert.equal(at.guard.isDamaged(), false, what);
    assert.equal(at.guard.sync(links), 0, what);
    assert.equal((await at.judge(at.a, [udp(ip("203.0.113.7"), OUTSIDE.v4)])).passed, 1, what);
    assert.equal((await at.judge(at.a, [udp(OTHER.v4, OUTSIDE.v4)])).passed, 0, what);
  }
  at.elements.commitNow(new ElementBatch({ family: "inet", name: "source-guard" }).flush("links").flush("pods4"));
  const indexes = at.links.map(({ ifindex }) => ifindex);
  assert.deepEqual(at.guard.differing(links), indexes);
  at.guard.attach(at.links[0] ?? assert.fail());
  assert.ok(at.guard.sync(at.links) > 0, "elements");
  assert.deepEqual(at.guard.differing(at.links), []);
  assert.equal((await at.judge(at.a, [udp(POD.v4, OUTSIDE.v4)])).passed, 1);
  assert.equal(removeGuard(at), 2);
  assert.deepEqual(at.guard.differing(at.links), indexes);
  at.guard.detach(at.b.ifindex);
  assert.equal((await at.judge(at.a, [udp(OTHER.v4, OUTSIDE.v4)])).passed, 0, "a link that goes finds them lost");
  assert.equal(removeGuard(at), 2);
  assert.equal(removeGuard(at), 0);
});

test("SourceGuard: the number of rules does not depend on the links", () => {
  using at = bed();
  const rules = (): number => at.elements.ruleHandles({ family: "inet", name: "source-guard" }).length;
  const before = rules();
  const many = Array.from({ length: 300 }, (_, number): GuardedLink => {
    const at = BigInt(number);
    const addresses = [
      IpAddress.fromValue(4, ip("10.9.0.0").value + at),
      IpAddress.fromValue(6, ip("fd09::").value + at),
    ];
    return { ifindex: 1000 + number, addresses, extra: [] };
  });
  at.guard.sync(many);
  assert.equal(rules(), before);
  assert.equal(at.guard.sync(many), 0);
});
