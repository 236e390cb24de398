import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { parseSettings } from "#features/uplink-config";
import { everything, indexOf, makeBed, routes, rules, settingsOf, sync } from "#test/uplink-routing-bed";
import { readKernel } from "../state/index.ts";
import { applyRouting, planFlush, planRouting } from "./index.ts";

const ip = IpAddress.parse;
const cidr = Cidr.parse;

test("routing: a table with foreign routes is left alone; the uplink's is the next free one from base + 1000", async (t) => {
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
  assert.deepEqual(routes(bed, 400), ["10.43.0.0/16 via 10.244.244.2 dev cluster0 proto 157"]);
  assert.match(routes(bed, 400, "-6").join(), /^fd00:43::\/108 dev cluster0 proto 157 src fd00:244::2/);
  assert.ok(rules(bed).includes("13000: from all to 10.43.0.0/16 lookup 400 proto 157"));
  assert.ok(rules(bed, "-6").includes("13000: from all to fd00:43::/108 lookup 400 proto 157"));
  bed.stack.links.delete(cluster.index);
  sync(bed.stack, settings);
  assert.ok(rules(bed).includes("13000: from all to 10.43.0.0/16 lookup main proto 157"));
  assert.deepEqual(routes(bed, 400), []);
});

test("routing: the local table's rule can be moved and is put back", async (t) => {
  const bed = await makeBed(t);
  const before = everything(bed);
  const settings = settingsOf(bed, { routing: { localRulePriority: 12_000 } });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.equal(rules(bed)[0], "12000: from all lookup local proto 157");
  assert.equal(rules(bed, "-6")[0], "12000: from all lookup local proto 157");
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
