import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import { parseSettings } from "../config/index.ts";
import type { Settings } from "../model/index.ts";
import { readKernel } from "../state/index.ts";
import { Bed } from "../testing/bed.ts";
import { applyRouting, planFlush, planRouting } from "./index.ts";

const ip = IpAddress.parse;
const cidr = Cidr.parse;

function settingsOf(bed: Bed, rest: Readonly<Record<string, unknown>> = {}, mode = "static"): Settings {
  const uplinks = bed.uplinkEntries.map((entry) =>
    mode === "static" ? entry : { name: entry["name"], interface: entry["interface"], cost: entry["cost"], mode },
  );
  return parseSettings(JSON.stringify({ version: 1, uplinks, ...rest }), "test").settings;
}

type Ports = Pick<NetStack, "links" | "addresses" | "routes" | "rules">;

/** One pass; how many changes it made. */
function sync(stack: Ports, settings: Settings): number {
  const { changes } = planRouting(settings, readKernel(stack));
  applyRouting(stack, changes);
  return changes.length;
}

const tidy = (text: string): string[] =>
  text
    .split("\n")
    .map((line) => line.trim().replaceAll(/\s+/g, " "))
    .filter((line) => line !== "");

const routes = (bed: Bed, table: number | string, family = "-4"): string[] =>
  tidy(bed.run("sh", "-c", `ip ${family} route show table ${table} 2>/dev/null || true`));
const rules = (bed: Bed, family = "-4"): string[] => tidy(bed.run("ip", family, "rule", "show"));

/** All rules, and all routes but those of the local table. The order of rules of one priority follows from how they came. */
const everything = (bed: Bed): string =>
  [...rules(bed).sort(), ...rules(bed, "-6").sort(), ...routes(bed, "all"), ...routes(bed, "all", "-6")]
    .filter((line) => !/table local|^(local|broadcast|multicast|anycast) /.test(line))
    .join("\n");

const indexOf = (bed: Bed, ifName: string): number => bed.stack.links.get({ name: ifName })?.index ?? 0;

async function makeBed(t: TestContext): Promise<Bed> {
  const bed = await Bed.create();
  t.after(() => bed[Symbol.asyncDispose]());
  return bed;
}

test("routing: a table and rules for each uplink, both families, and a second sync is empty", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  assert.ok(sync(bed.stack, settings) > 0);
  assert.equal(sync(bed.stack, settings), 0);
  const table = 500 + indexOf(bed, "eth0");
  assert.deepEqual(routes(bed, table), [
    "default via 192.0.2.1 dev eth0 proto bgp src 192.0.2.10",
    "unreachable default proto bgp metric 4294967295",
    "192.0.2.0/24 dev eth0 proto bgp scope link src 192.0.2.10",
  ]);
  assert.deepEqual(routes(bed, table, "-6"), [
    "2001:db8:1::/64 dev eth0 proto bgp src 2001:db8:1::10 metric 1024 pref medium",
    "default via 2001:db8:1::1 dev eth0 proto bgp src 2001:db8:1::10 metric 1024 pref medium",
    "unreachable default dev lo proto bgp metric 4294967295 pref medium",
  ]);
  assert.deepEqual(rules(bed), [
    "0: from all lookup local",
    "13000: from all to 10.42.0.0/16 lookup main proto bgp",
    "13000: from all to 10.43.0.0/16 lookup main proto bgp",
    `15000: from 192.0.2.10 lookup ${table} proto bgp`,
    `15000: from 198.51.100.10 lookup ${table + 1} proto bgp`,
    "32766: from all lookup main",
    "32767: from all lookup default",
  ]);
});

test("routing: observe copies every route of the main table that leads over the uplink, and follows it", async (t) => {
  const bed = await makeBed(t);
  const eth1 = indexOf(bed, "eth1");
  bed.stack.routes.add({ dst: cidr("10.9.0.0/16"), gateway: ip("198.51.100.7"), mtu: 1400 });
  bed.stack.routes.add({
    dst: cidr("10.8.0.0/16"),
    multipath: [
      { gateway: ip("192.0.2.7"), weight: 1 },
      { gateway: ip("198.51.100.7"), weight: 3 },
    ],
  });
  const settings = settingsOf(bed, {}, "observe");
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.deepEqual(routes(bed, 500 + eth1), [
    "default via 198.51.100.1 dev eth1 proto bgp metric 5001",
    "unreachable default proto bgp metric 4294967295",
    "10.8.0.0/16 via 198.51.100.7 dev eth1 proto bgp",
    "10.9.0.0/16 via 198.51.100.7 dev eth1 proto bgp mtu 1400",
    "198.51.100.0/24 dev eth1 proto bgp scope link src 198.51.100.10",
  ]);
  const six = routes(bed, 500 + eth1, "-6");
  assert.ok(six.includes(`fe80::/64 dev eth1 proto bgp metric ${eth1} pref medium`), six.join("\n"));
  bed.stack.routes.delete({ dst: cidr("10.9.0.0/16") });
  assert.equal(sync(bed.stack, settings), 1);
  bed.stack.routes.replace({ dst: cidr("0.0.0.0/0"), gateway: ip("198.51.100.9"), metric: 5001 });
  assert.equal(sync(bed.stack, settings), 1);
  assert.match(routes(bed, 500 + eth1)[0] ?? "", /^default via 198\.51\.100\.9 /);
});

test("routing: killed between any two steps, the next pass comes to the same state", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  const steps = sync(bed.stack, settings);
  const whole = everything(bed);
  const flush = planFlush(readKernel(bed.stack), settings.routing);
  for (let step = 0; step < steps; step += 1) {
    applyRouting(bed.stack, planFlush(readKernel(bed.stack), settings.routing));
    const { changes } = planRouting(settings, readKernel(bed.stack));
    assert.equal(changes.length, steps);
    applyRouting(bed.stack, changes.slice(0, step));
    assertNoEmptyTable(bed);
    assert.equal(sync(bed.stack, settings), steps - step);
    assert.equal(everything(bed), whole);
    assert.equal(sync(bed.stack, settings), 0);
  }
  for (let step = 0; step < flush.length; step += 1) {
    applyRouting(bed.stack, planFlush(readKernel(bed.stack), settings.routing).slice(0, step));
    assertNoEmptyTable(bed);
    sync(bed.stack, settings);
    assert.equal(everything(bed), whole);
  }
});

/** No rule leads to a table in which a packet falls through to the next rule. */
function assertNoEmptyTable(bed: Bed): void {
  for (const family of [4, 6] as const) {
    for (const rule of bed.stack.rules.list(family).filter(({ priority }) => priority === 15_000)) {
      const there = bed.stack.routes.list({ family, table: rule.table });
      assert.ok(
        there.some(({ type }) => type === "unreachable"),
        `IPv${family} rule to table ${rule.table} has no end`,
      );
    }
  }
}

test("routing: a flush leaves the namespace as it was before, and foreign routes and rules untouched", async (t) => {
  const bed = await makeBed(t);
  const eth0 = indexOf(bed, "eth0");
  // Others use our priorities, our tables, and our protocol number elsewhere.
  bed.run("ip", "rule", "add", "from", "203.0.113.9", "lookup", String(500 + eth0), "priority", "15000");
  bed.run("ip", "rule", "add", "to", "10.42.0.0/16", "lookup", "700", "priority", "13000", "proto", "static");
  bed.run("ip", "-6", "rule", "add", "from", "2001:db8:9::9", "lookup", "900", "priority", "15000", "proto", "static");
  bed.run("ip", "route", "add", "10.77.0.0/16", "via", "192.0.2.7", "proto", "186");
  bed.run("ip", "route", "add", "10.78.0.0/16", "via", "192.0.2.7", "proto", "186", "table", "1001");
  bed.run("ip", "-6", "route", "add", "2001:db8:77::/48", "via", "2001:db8:1::7", "proto", "186", "table", "1001");
  const before = everything(bed);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  // And into a table of ours.
  bed.run("ip", "route", "add", "10.79.0.0/16", "via", "192.0.2.7", "proto", "static", "table", String(500 + eth0));
  const foreign = routes(bed, 500 + eth0).filter((line) => line.includes("10.79"));
  assert.equal(sync(bed.stack, settings), 0);
  applyRouting(bed.stack, planFlush(readKernel(bed.stack), settings.routing));
  assert.deepEqual(routes(bed, 500 + eth0), foreign);
  bed.run("ip", "route", "del", "10.79.0.0/16", "table", String(500 + eth0));
  assert.equal(everything(bed), before);
});

test("routing: a link that goes down keeps its rule and leads nowhere; up again, its table is restored", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  const whole = routes(bed, 500 + indexOf(bed, "eth0"));
  const eth0 = indexOf(bed, "eth0");
  bed.stack.links.set(eth0, { up: false });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.deepEqual(routes(bed, 500 + eth0), ["unreachable default proto bgp metric 4294967295"]);
  assert.throws(() => bed.run("ip", "route", "get", "203.0.113.80", "from", "192.0.2.10"), /unreachable|No route/i);
  assert.match(bed.run("ip", "route", "get", "203.0.113.80"), /dev eth1/);
  bed.stack.links.set(eth0, { up: true });
  // The kernel dropped its own default route too; that is not ours to restore.
  sync(bed.stack, settings);
  assert.deepEqual(routes(bed, 500 + eth0), whole);
  assert.match(bed.run("ip", "route", "get", "203.0.113.80", "from", "192.0.2.10"), /via 192\.0\.2\.1 dev eth0/);
});

test("routing: an address that goes takes its rule along, one that moves to another uplink is looked up there", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed, {}, "observe");
  const [eth0, eth1] = [indexOf(bed, "eth0"), indexOf(bed, "eth1")];
  bed.stack.addresses.add({ linkIndex: eth0, address: ip("192.0.2.11"), prefixLength: 24 });
  bed.stack.addresses.add({ linkIndex: eth0, address: ip("2001:db8:1::11"), prefixLength: 64, noDad: true });
  sync(bed.stack, settings);
  assert.ok(rules(bed).includes(`15000: from 192.0.2.11 lookup ${500 + eth0} proto bgp`));
  assert.ok(rules(bed, "-6").includes(`15000: from 2001:db8:1::11 lookup ${500 + eth0} proto bgp`));
  for (const [address, prefixLength] of [
    ["192.0.2.11", 24],
    ["2001:db8:1::11", 64],
  ] as const) {
    bed.stack.addresses.delete({ linkIndex: eth0, address: ip(address), prefixLength });
    bed.stack.addresses.add({ linkIndex: eth1, address: ip(address), prefixLength, noDad: address.includes(":") });
  }
  sync(bed.stack, settings);
  assert.deepEqual(
    [...rules(bed), ...rules(bed, "-6")].filter((line) => /\.11 |::11 /.test(line)),
    [
      `15000: from 192.0.2.11 lookup ${500 + eth1} proto bgp`,
      `15000: from 2001:db8:1::11 lookup ${500 + eth1} proto bgp`,
    ],
  );
  bed.stack.addresses.delete({ linkIndex: eth1, address: ip("192.0.2.11"), prefixLength: 24 });
  sync(bed.stack, settings);
  assert.ok(!rules(bed).some((line) => line.includes("192.0.2.11")));
  assert.equal(sync(bed.stack, settings), 0);
});

test("routing: an address that left for an interface that is no uplink keeps its rule, so that it takes no dearer way", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed, {}, "observe");
  const eth0 = indexOf(bed, "eth0");
  sync(bed.stack, settings);
  const bridge = bed.stack.links.create({ kind: "bridge", name: "br0", up: true });
  bed.stack.addresses.add({ linkIndex: bridge.index, address: ip("192.0.2.10"), prefixLength: 24 });
  bed.stack.addresses.delete({ linkIndex: eth0, address: ip("192.0.2.10"), prefixLength: 24 });
  sync(bed.stack, settings);
  assert.ok(rules(bed).includes(`15000: from 192.0.2.10 lookup ${500 + eth0} proto bgp`));
  assert.equal(sync(bed.stack, settings), 0);
  bed.stack.links.delete(bridge.index);
  sync(bed.stack, settings);
  assert.ok(!rules(bed).some((line) => line.includes("192.0.2.10")));
});

test("routing: an interface that is renamed under its uplink: the address leads nowhere, and not over a dearer uplink", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  const index = indexOf(bed, "eth0");
  bed.stack.links.set(index, { up: false });
  bed.stack.links.set(index, { name: "renamed" });
  bed.stack.links.set(index, { up: true });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.ok(rules(bed).includes(`15000: from 192.0.2.10 lookup ${500 + index} proto bgp`));
  assert.deepEqual(routes(bed, 500 + index), ["unreachable default proto bgp metric 4294967295"]);
  bed.stack.addresses.delete({ linkIndex: index, address: ip("192.0.2.10"), prefixLength: 24 });
  sync(bed.stack, settings);
  assert.doesNotMatch(rules(bed).join("\n"), /192\.0\.2\.10/);
  assert.deepEqual(routes(bed, 500 + index), []);
  assert.equal(sync(bed.stack, settings), 0);
});

test("routing: an uplink that is taken out of the settings takes its rules along, whatever else is absent", async (t) => {
  const bed = await makeBed(t);
  const absent = { name: "modem", interface: "wwan0", cost: 9, mode: "static", addresses: ["203.0.113.9/24"] };
  const all = settingsOf(bed, { uplinks: [...bed.uplinkEntries, absent] });
  sync(bed.stack, all);
  const settings = settingsOf(bed, { uplinks: [...bed.uplinkEntries.slice(1), absent] });
  sync(bed.stack, settings);
  assert.doesNotMatch(rules(bed).join("\n"), /192\.0\.2\.10/);
  assert.deepEqual(routes(bed, 500 + indexOf(bed, "eth0")), []);
});

test("routing: an interface that is plugged in anew gets a table of its new index, and nothing of the old one stays", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  const old = indexOf(bed, "eth1");
  bed.stack.links.delete(old);
  sync(bed.stack, settings);
  assert.deepEqual([...routes(bed, 500 + old), ...routes(bed, 500 + old, "-6")], []);
  assert.ok(!rules(bed).some((line) => line.includes("198.51.100.10")));
  assert.equal(sync(bed.stack, settings), 0);
  const link = bed.stack.links.create({ kind: "bridge", name: "eth1", up: true });
  assert.notEqual(link.index, old);
  bed.stack.addresses.add({ linkIndex: link.index, address: ip("198.51.100.10"), prefixLength: 24 });
  sync(bed.stack, settings);
  assert.ok(rules(bed).includes(`15000: from 198.51.100.10 lookup ${500 + link.index} proto bgp`));
  assert.equal(routes(bed, 500 + link.index).length, 3);
  assert.equal(sync(bed.stack, settings), 0);
});

test("routing: a table that somebody else uses is left to him; the uplink's is the next free one from base + 1000", async (t) => {
  const bed = await makeBed(t);
  const [eth0, eth1] = [indexOf(bed, "eth0"), indexOf(bed, "eth1")];
  const foreign = ["10.88.0.0/16", "via", "192.0.2.7", "proto", "static"] as const;
  bed.run("ip", "route", "add", ...foreign, "table", String(500 + eth0));
  bed.run("ip", "route", "add", ...foreign, "table", String(500 + eth1));
  bed.run("ip", "route", "add", ...foreign, "table", "1500");
  const settings = settingsOf(bed);
  const { tables } = planRouting(settings, readKernel(bed.stack));
  assert.deepEqual(
    [...tables],
    [
      ["eth0", 1501],
      ["eth1", 1502],
    ],
  );
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.deepEqual(routes(bed, 500 + eth0), ["10.88.0.0/16 via 192.0.2.7 dev eth0 proto static"]);
  // The choice is in the kernel: it holds for a restart, a link that is down, and a table that becomes free later.
  bed.stack.links.set(eth1, { up: false });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.deepEqual(
    [...planRouting(settings, readKernel(bed.stack)).tables],
    [
      ["eth0", 1501],
      ["eth1", 1502],
    ],
  );
  applyRouting(bed.stack, planFlush(readKernel(bed.stack), settings.routing));
  assert.deepEqual([...routes(bed, 1501), ...routes(bed, 1502)], []);
});

test("routing: on a host without IPv6 addresses the tables of IPv4 are whole, and nothing is tried again and again", async (t) => {
  const bed = await makeBed(t);
  for (const name of ["all", "default", "lo", "eth0", "eth1"])
    bed.stack.sysctl.set(`net.ipv6.conf.${name}.disable_ipv6`, 1);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.equal(routes(bed, 500 + indexOf(bed, "eth0")).length, 3);
});

test("routing: overlapping subnets with different addresses each have their own connected route", async (t) => {
  const bed = await makeBed(t);
  const eth1 = indexOf(bed, "eth1");
  bed.stack.addresses.add({ linkIndex: eth1, address: ip("192.0.2.20"), prefixLength: 24 });
  const entries = bed.uplinkEntries.map((entry, at) =>
    at === 0 ? entry : { ...entry, addresses: ["192.0.2.20/24"], gateway4: "192.0.2.1", gateway6: null },
  );
  const { settings } = parseSettings(JSON.stringify({ version: 1, uplinks: entries }), "test");
  sync(bed.stack, settings);
  assert.match(bed.run("ip", "route", "get", "192.0.2.77", "from", "192.0.2.10"), /dev eth0/);
  assert.match(bed.run("ip", "route", "get", "192.0.2.77", "from", "192.0.2.20"), /dev eth1/);
});

test("routing: a gateway outside the prefix is reached on the link", async (t) => {
  const bed = await makeBed(t);
  const entries = bed.uplinkEntries.map((entry) => ({ ...entry, gateway4: "10.255.0.1", gateway6: "2001:db8:ff::1" }));
  const { settings } = parseSettings(JSON.stringify({ version: 1, uplinks: entries }), "test");
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  const table = 500 + indexOf(bed, "eth0");
  assert.match(routes(bed, table)[0] ?? "", /^default via 10\.255\.0\.1 dev eth0 .*onlink/);
  assert.ok(routes(bed, table, "-6").some((line) => /^default via 2001:db8:ff::1 dev eth0 .*onlink/.test(line)));
});

test("routing: Services go through table 400 where the cluster has an interface of its own, else through main", async (t) => {
  const bed = await makeBed(t);
  const cluster = bed.stack.links.create({ kind: "bridge", name: "cluster0", up: true });
  bed.stack.addresses.add({ linkIndex: cluster.index, address: ip("10.244.244.2"), prefixLength: 24 });
  bed.stack.addresses.add({ linkIndex: cluster.index, address: ip("fd00:244::2"), prefixLength: 64, noDad: true });
  const settings = settingsOf(bed, {
    routing: { clusterInterface: "cluster0", serviceCIDRs: ["10.43.0.0/16", "fd00:43::/108"], podCIDRs: [] },
    cluster: { nodeIP: "10.244.244.2", prefixLength: 24 },
  });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.deepEqual(routes(bed, 400), ["10.43.0.0/16 via 10.244.244.2 dev cluster0 proto bgp"]);
  assert.match(routes(bed, 400, "-6").join(), /^fd00:43::\/108 dev cluster0 proto bgp src fd00:244::2/);
  assert.ok(rules(bed).includes("13000: from all to 10.43.0.0/16 lookup 400 proto bgp"));
  assert.ok(rules(bed, "-6").includes("13000: from all to fd00:43::/108 lookup 400 proto bgp"));
  bed.stack.links.delete(cluster.index);
  sync(bed.stack, settings);
  assert.ok(rules(bed).includes("13000: from all to 10.43.0.0/16 lookup main proto bgp"));
  assert.deepEqual(routes(bed, 400), []);
});

test("routing: the local table's rule can be moved and is put back", async (t) => {
  const bed = await makeBed(t);
  const before = everything(bed);
  const settings = settingsOf(bed, { routing: { localRulePriority: 12_000 } });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.equal(rules(bed)[0], "12000: from all lookup local proto bgp");
  assert.equal(rules(bed, "-6")[0], "12000: from all lookup local proto bgp");
  applyRouting(bed.stack, planFlush(readKernel(bed.stack), settings.routing));
  assert.equal(everything(bed), before);
});

test("routing: with setMetrics the main table's default routes are ranked by cost, whichever step is the last", async (t) => {
  const bed = await makeBed(t);
  const entries = bed.uplinkEntries.map((entry, at) => ({ ...entry, cost: 1 - at }));
  const source = { version: 1, uplinks: entries, routing: { setMetrics: true } };
  const { settings } = parseSettings(JSON.stringify(source), "test");
  const defaults = (family: string): (string | undefined)[][] =>
    routes(bed, "main", family)
      .filter((line) => line.startsWith("default"))
      .map((line) => /dev (\S+).* metric (\d+)/.exec(line)?.slice(1) ?? []);
  const ranked = [
    ["eth1", "5000"],
    ["eth0", "5001"],
  ];
  const swap = (): void => {
    for (const [net, first, second] of [
      ["0.0.0.0/0", "192.0.2.1", "198.51.100.1"],
      ["::/0", "2001:db8:1::1", "2001:db8:2::1"],
    ] as const) {
      for (const route of bed.stack.routes.list({ family: net === "::/0" ? 6 : 4, table: 254 })) {
        if (route.dst.prefixLength === 0) bed.stack.routes.delete(route);
      }
      bed.stack.routes.add({ dst: cidr(net), gateway: ip(first), metric: 5000 });
      bed.stack.routes.add({ dst: cidr(net), gateway: ip(second), metric: 5001 });
    }
  };
  const steps = sync(bed.stack, settings);
  for (let step = 0; step <= steps; step += 1) {
    swap();
    const { changes } = planRouting(settings, readKernel(bed.stack));
    applyRouting(bed.stack, changes.slice(0, step));
    for (const family of ["-4", "-6"]) {
      assert.deepEqual(new Set(defaults(family).map(([link]) => link)), new Set(["eth0", "eth1"]), `step ${step}`);
    }
    sync(bed.stack, settings);
    sync(bed.stack, settings);
    assert.equal(sync(bed.stack, settings), 0, `step ${step}`);
    assert.deepEqual([defaults("-4"), defaults("-6")], [ranked, ranked], `after step ${step}`);
  }
});

test("routing: when manage is off, what an earlier run left is removed", async (t) => {
  const bed = await makeBed(t);
  const before = everything(bed);
  sync(bed.stack, settingsOf(bed));
  sync(bed.stack, settingsOf(bed, { routing: { manage: false } }));
  assert.equal(everything(bed), before);
});

test("routing: new numbers replace old ones without a moment in which a source has no rule", async (t) => {
  const bed = await makeBed(t);
  const old = settingsOf(bed);
  const fresh = settingsOf(bed, { routing: { tableBase: 3000, rulePriority: 14_000, kubeRulePriority: 12_500 } });
  const before = everything(bed);
  sync(bed.stack, old);
  const { changes } = planRouting(fresh, readKernel(bed.stack), [old.routing]);
  applyRouting(bed.stack, changes);
  assert.ok(changes.findLastIndex(({ op }) => op === "add-rule") < changes.findIndex(({ op }) => op === "delete-rule"));
  assert.ok(!everything(bed).includes("15000:"));
  assert.ok(everything(bed).includes(`14000: from 192.0.2.10 lookup ${3000 + indexOf(bed, "eth0")} proto bgp`));
  assert.equal(sync(bed.stack, fresh), 0);
  applyRouting(bed.stack, planFlush(readKernel(bed.stack), fresh.routing));
  assert.equal(everything(bed), before);
});

test("routing: what the kernel refuses costs one uplink its routes and no other", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  const table = 500 + indexOf(bed, "eth0");
  const stack: Ports = {
    ...bed.stack,
    routes: {
      ...bed.stack.routes,
      add(spec) {
        if (spec.table === table) throw new KernelError("failed", `Cannot add a route to ${table}: no memory`);
        bed.stack.routes.add(spec);
      },
    },
  };
  assert.throws(() => sync(stack, settings), { name: "RoutingError", code: "partial" });
  assert.ok(!rules(bed).some((line) => line.includes("192.0.2.10")), "no rule to a table without an end");
  assert.ok(rules(bed).some((line) => line.includes("198.51.100.10")));
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
});
