import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import type { Settings, Snapshot } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { character } from "#test/characters";
import { isUsableSource, makeSnapshot, parseResolverData, readKernel, type SnapshotInputs } from "./index.ts";

const ip = IpAddress.parse;

function setUp() {
  const kernel = new FakeKernel();
  const netns = kernel.createNetNs("node");
  const far = kernel.createNetNs("far");
  const stack: NetStack = kernel.openStack(netns);
  const plug = (name: string, ...addresses: readonly string[]): number => {
    const peer = { name: `p-${name}`, netns: far, up: true };
    const { index } = stack.links.create({ kind: "veth", name, up: true, peer });
    for (const text of addresses) {
      const [address = "", length] = text.split("/");
      stack.addresses.add({ linkIndex: index, address: ip(address), prefixLength: Number(length), noDad: true });
    }
    return index;
  };
  return { kernel, stack, plug };
}

const settingsOf = (value: Readonly<Record<string, unknown>>): Settings =>
  parseSettings(JSON.stringify({ version: 1, ...value }), "test").settings;

const snapshotOf = (stack: NetStack, settings: Settings, more: Partial<SnapshotInputs> = {}): Snapshot =>
  makeSnapshot({ settings, ready: true, listing: readKernel(stack), ...more });

const shown = (snapshot: Snapshot, at = 0): string[] =>
  (snapshot.uplinks[at]?.addresses ?? []).map(
    ({ address, isUsable }) => `${address}${isUsable ? "" : " (not usable)"}`,
  );

test("makeSnapshot: an observed uplink is what the kernel has: addresses in its order, gateways of the preferred default routes", () => {
  const { stack, plug } = setUp();
  plug("eth0", "192.0.2.10/24", "192.0.2.11/24", "169.254.7.7/16", "2001:db8::10/64");
  for (const [dst, gateway, metric] of [
    ["0.0.0.0/0", "192.0.2.2", 200],
    ["0.0.0.0/0", "192.0.2.1", 100],
    ["::/0", "2001:db8::1", 100],
  ] as const) {
    stack.routes.add({ dst: Cidr.parse(dst), gateway: ip(gateway), metric });
  }
  const snapshot = snapshotOf(stack, settingsOf({ uplinks: [{ name: "lan", interface: "eth0", cost: 3 }] }));
  const [lan] = snapshot.uplinks;
  assert.deepEqual(
    shown(snapshot).filter((text) => !text.startsWith("fe80")),
    ["192.0.2.10", "192.0.2.11", "169.254.7.7 (not usable)", "2001:db8::10"],
  );
  assert.ok(shown(snapshot).some((text) => /^fe80.* \(not usable\)$/.test(text)));
  assert.deepEqual([String(lan?.gateway4), String(lan?.gateway6)], ["192.0.2.1", "2001:db8::1"]);
  assert.deepEqual([lan?.isUp, lan?.isL3, lan?.isValid, lan?.cost, lan?.weight], [true, true, true, 3, 1]);
});

test("makeSnapshot: a static uplink has the configured addresses, usable where the kernel has them", () => {
  const { stack, plug } = setUp();
  plug("eth0", "192.0.2.10/24", "203.0.113.5/24");
  const settings = settingsOf({
    uplinks: [
      {
        name: "lan",
        interface: "eth0",
        mode: "static",
        addresses: ["192.0.2.10/24", "192.0.2.99/24"],
        gateway4: "192.0.2.1",
      },
      { name: "usb", interface: "usb0", mode: "static", addresses: ["198.51.100.1/24"] },
    ],
  });
  const snapshot = snapshotOf(stack, settings, { tables: new Map([["lan", 502]]) });
  assert.deepEqual(shown(snapshot), ["192.0.2.10", "192.0.2.99 (not usable)"]);
  assert.equal(String(snapshot.uplinks[0]?.gateway4), "192.0.2.1");
  assert.equal(snapshot.uplinks[0]?.table, 502);
  assert.deepEqual([snapshot.uplinks[1]?.isUp, shown(snapshot, 1)], [false, ["198.51.100.1 (not usable)"]]);
});

test("makeSnapshot: an address on two uplinks is the first one's", () => {
  const { stack, plug } = setUp();
  plug("eth0", "192.0.2.10/24");
  plug("eth1", "192.0.2.10/24", "192.0.2.20/24");
  const uplinks = ["eth0", "eth1"].map((name) => ({ name, interface: name }));
  const snapshot = snapshotOf(stack, settingsOf({ uplinks }));
  const ofUplink = (at: number): string[] => shown(snapshot, at).filter((text) => text.startsWith("192"));
  assert.deepEqual([ofUplink(0), ofUplink(1)], [["192.0.2.10"], ["192.0.2.10 (not usable)", "192.0.2.20"]]);
});

test("makeSnapshot: a published uplink has the published state, though the kernel does not know it", () => {
  const { stack } = setUp();
  const base = settingsOf({
    uplinks: [{ name: "eth0", interface: "eth0", mode: "external", addresses: ["192.0.2.5/32"] }],
  });
  const [uplink] = base.uplinks;
  assert.ok(uplink !== undefined);
  const published = { isL3: false, isValid: false, isUp: true };
  const snapshot = snapshotOf(stack, { ...base, uplinks: [{ ...uplink, published }] });
  const [eth0] = snapshot.uplinks;
  assert.deepEqual([eth0?.isUp, eth0?.isL3, eth0?.isValid, shown(snapshot)], [true, false, false, ["192.0.2.5"]]);
});

test("makeSnapshot: a link without carrier or down is not up", () => {
  const { kernel, stack, plug } = setUp();
  const index = plug("eth0", "192.0.2.10/24");
  const settings = settingsOf({ uplinks: [{ name: "lan", interface: "eth0" }] });
  using far = kernel.openStack(kernel.openNetNs({ name: "far" }));
  far.links.set(far.links.get({ name: "p-eth0" })?.index ?? 0, { up: false });
  assert.equal(snapshotOf(stack, settings).uplinks[0]?.isUp, false);
  far.links.set(far.links.get({ name: "p-eth0" })?.index ?? 0, { up: true });
  assert.equal(snapshotOf(stack, settings).uplinks[0]?.isUp, true);
  stack.links.set(index, { up: false });
  assert.equal(snapshotOf(stack, settings).uplinks[0]?.isUp, false);
});

test("makeSnapshot: the bypass set holds this host, the node's subnet, pods, Services and link-local", () => {
  const { stack, plug } = setUp();
  plug("eth0", "192.0.2.10/24");
  const snapshot = snapshotOf(stack, settingsOf({ cluster: { nodeIP: "10.244.244.2", prefixLength: 24 } }));
  const holds = (text: string): boolean => snapshot.bypass.some((prefix) => prefix.contains(ip(text)));
  for (const text of ["192.0.2.10", "10.244.244.99", "10.42.7.7", "10.43.0.1", "169.254.169.254", "fe80::1"]) {
    assert.ok(holds(text), text);
  }
  for (const text of ["192.0.2.11", "10.44.0.1", "203.0.113.80", "2001:db8::1"]) assert.ok(!holds(text), text);
  assert.ok(snapshot.localAddresses.some((address) => String(address) === "192.0.2.10"));
});

test("makeSnapshot: DNS servers are the configured ones, else those recorded for the interface, which a static uplink never uses", () => {
  const { stack, plug } = setUp();
  for (const name of ["eth0", "eth1", "eth2"]) plug(name);
  const settings = settingsOf({
    uplinks: [
      { name: "a", interface: "eth0", dnsServers: ["192.0.2.53"] },
      { name: "b", interface: "eth1" },
      { name: "c", interface: "eth2", mode: "static", addresses: ["198.51.100.10/24"] },
    ],
  });
  const resolverOf = () => ({ dnsServers: [ip("10.0.0.53")], searchDomains: ["told.example"] });
  assert.deepEqual(
    snapshotOf(stack, settings, { resolverOf }).uplinks.map((uplink) => [
      uplink.dnsServers.map(String),
      uplink.searchDomains,
    ]),
    [
      [["192.0.2.53"], []],
      [["10.0.0.53"], ["told.example"]],
      [[], []],
    ],
  );
});

test("isUsableSource: tentative, failed, deprecated, link-local, loopback, multicast and unspecified addresses are none", () => {
  const own = {
    linkIndex: 2,
    address: ip("2001:db8::1"),
    prefixLength: 64,
    scope: "global",
    noDad: false,
    tentative: false,
    dadFailed: false,
    permanent: true,
    secondary: false,
  } as const;
  assert.ok(isUsableSource(own));
  assert.ok(!isUsableSource({ ...own, tentative: true }));
  assert.ok(!isUsableSource({ ...own, dadFailed: true }));
  assert.ok(!isUsableSource({ ...own, deprecated: true }));
  for (const text of ["169.254.100.1", "fe80::1", "127.0.0.1", "::1", "224.0.0.1", "ff02::1", "0.0.0.0", "::"]) {
    assert.ok(!isUsableSource({ ...own, address: ip(text) }), text);
  }
});

test("parseResolverData: resolv.conf and systemd's files are read; words that are no server are skipped", () => {
  const servers = (text: string) => {
    const { dnsServers, searchDomains } = parseResolverData(text);
    return [dnsServers.map(String), searchDomains];
  };
  assert.deepEqual(
    servers("# by dhclient\nnameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch lan.example corp.example\n"),
    [
      ["192.0.2.53", "2001:db8::53"],
      ["lan.example", "corp.example"],
    ],
  );
  assert.deepEqual(servers("ADMIN_STATE=configured\nDNS=192.0.2.53 2001:db8::53#dns.example\nDOMAINS=lan.example\n"), [
    ["192.0.2.53", "2001:db8::53"],
    ["lan.example"],
  ]);
  assert.deepEqual(servers("SERVERS=127.0.0.53 0.0.0.0 fe80::1%2 192.0.2.1:53\nDNS_OVER_TLS=no\n"), [[], []]);
  assert.deepEqual(servers(""), [[], []]);
});

test("parseResolverData: takes any text (fuzz)", () => {
  const word = fc.constantFrom(
    "nameserver",
    "search",
    "DNS=",
    "SERVERS=",
    "DOMAINS=",
    " ",
    "\n",
    "192.0.2.1",
    "::1",
    "a.b",
  );
  const textOf = fc.oneof(
    fc.string({ unit: character }),
    fc.array(word).map((words) => words.join(" ")),
  );
  fc.assert(
    fc.property(textOf, (text) => {
      const { dnsServers, searchDomains } = parseResolverData(text);
      assert.ok(dnsServers.length <= 16 && searchDomains.length <= 16);
    }),
  );
});
