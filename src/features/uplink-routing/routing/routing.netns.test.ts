import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { parseSettings } from "#features/uplink-config";
import { KernelError } from "#kernel/errors";
import { everything, indexOf, makeBed, type Ports, routes, rules, settingsOf, sync } from "#test/uplink-routing-bed";
import { Bed } from "#test/uplink-wan-bed";
import { makeSnapshot, readKernel } from "../state/index.ts";
import { localFault } from "../uplink-health/index.ts";
import { applyRouting, planFlush, planRouting } from "./index.ts";

const ip = IpAddress.parse;
const cidr = Cidr.parse;

test("routing: a table and rules for each uplink, both families, and a second sync is empty", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  assert.ok(sync(bed.stack, settings) > 0);
  assert.equal(sync(bed.stack, settings), 0);
  const table = 500 + indexOf(bed, "eth0");
  assert.deepEqual(routes(bed, table), [
    "default via 192.0.2.1 dev eth0 proto 157 src 192.0.2.10",
    "unreachable default proto 157 metric 4294967295",
    "192.0.2.0/24 dev eth0 proto 157 scope link src 192.0.2.10",
  ]);
  assert.deepEqual(routes(bed, table, "-6"), [
    "2001:db8:1::/64 dev eth0 proto 157 src 2001:db8:1::10 metric 1024 pref medium",
    "default via 2001:db8:1::1 dev eth0 proto 157 src 2001:db8:1::10 metric 1024 pref medium",
    "unreachable default dev lo proto 157 metric 4294967295 pref medium",
  ]);
  assert.deepEqual(rules(bed), [
    "0: from all lookup local",
    "13000: from all to 10.42.0.0/16 lookup main proto 157",
    "13000: from all to 10.43.0.0/16 lookup main proto 157",
    `15000: from 192.0.2.10 lookup ${table} proto 157`,
    `15000: from 198.51.100.10 lookup ${table + 1} proto 157`,
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
    "default via 198.51.100.1 dev eth1 proto 157 metric 5001",
    "unreachable default proto 157 metric 4294967295",
    "10.8.0.0/16 via 198.51.100.7 dev eth1 proto 157",
    "10.9.0.0/16 via 198.51.100.7 dev eth1 proto 157 mtu 1400",
    "198.51.100.0/24 dev eth1 proto 157 scope link src 198.51.100.10",
  ]);
  const six = routes(bed, 500 + eth1, "-6");
  assert.ok(six.includes(`fe80::/64 dev eth1 proto 157 metric ${eth1} pref medium`), six.join("\n"));
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

test("routing: when manage is off, objects of an earlier run are removed", async (t) => {
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
  assert.ok(everything(bed).includes(`14000: from 192.0.2.10 lookup ${3000 + indexOf(bed, "eth0")} proto 157`));
  assert.equal(sync(bed.stack, fresh), 0);
  applyRouting(bed.stack, planFlush(readKernel(bed.stack), fresh.routing));
  assert.equal(everything(bed), before);
});

test("routing: a refusal of the kernel costs one uplink its routes and no other", async (t) => {
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

test("routing: a static uplink over a point-to-point link has a default route without a gateway, and it is no local fault", async (t) => {
  const bed = await Bed.create();
  t.after(() => bed[Symbol.asyncDispose]());
  bed.run("ip", "tuntap", "add", "dev", "wwan0", "mode", "tun");
  bed.run("ip", "address", "add", "203.0.113.7/32", "dev", "wwan0");
  bed.run("ip", "link", "set", "wwan0", "up");
  const uplinks = [{ name: "lte", interface: "wwan0", mode: "static", addresses: ["203.0.113.7/32"] }];
  const { settings } = parseSettings(JSON.stringify({ version: 1, uplinks }), "test");
  const sync = (): number => {
    const { changes } = planRouting(settings, readKernel(bed.stack));
    applyRouting(bed.stack, changes);
    return changes.length;
  };
  assert.ok(sync() > 0);
  assert.equal(sync(), 0);
  const listing = readKernel(bed.stack);
  const { tables } = planRouting(settings, listing);
  assert.match(bed.run("ip", "route", "get", "198.51.100.99", "from", "203.0.113.7"), / dev wwan0 table \d+ /);
  const [lte] = makeSnapshot({ settings, ready: true, listing, tables }).uplinks;
  // Nobody has opened the other end of the device, so it has no carrier.
  assert.equal(lte && localFault({ ...lte, isUp: true }, listing), undefined);
});

test("routing: objects of a release with protocol 186 get the present number without a gap, and what has only that number stays", async (t) => {
  const bed = await makeBed(t);
  const eth0 = indexOf(bed, "eth0");
  // As routing daemons have them, at places of ours too.
  bed.run("ip", "route", "add", "unreachable", "default", "table", "900", "proto", "186");
  bed.run("ip", "rule", "add", "from", "203.0.113.0/24", "lookup", "900", "priority", "15000", "proto", "186");
  bed.run("ip", "rule", "add", "from", "203.0.113.9", "lookup", "900", "priority", "14000", "proto", "186");
  bed.run("ip", "rule", "add", "lookup", "local", "priority", "12000", "proto", "186");
  bed.run("ip", "route", "add", "10.77.0.0/16", "via", "192.0.2.7", "proto", "186");
  bed.run("ip", "route", "add", "10.43.9.0/24", "via", "192.0.2.7", "proto", "186", "table", "400");
  bed.run("ip", "-6", "route", "add", "2001:db8:77::/48", "via", "2001:db8:1::7", "proto", "186", "table", "1001");
  const before = everything(bed);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  const wanted = everything(bed);
  applyRouting(bed.stack, planFlush(readKernel(bed.stack), settings.routing));
  assert.equal(everything(bed), before);
  const old = settingsOf(bed, { routing: { ...settings.routing, routeProtocol: 186, podCIDRs: [], serviceCIDRs: [] } });
  const both = settingsOf(bed, { routing: { podCIDRs: [], serviceCIDRs: [] } });
  const route400 = ["10.43.9.0/24", "via", "192.0.2.7", "proto", "186", "table", "400"];
  sync(bed.stack, old);
  // That release deleted what others had in this table.
  bed.run("ip", "route", "replace", ...route400);
  assert.match(everything(bed), /from 192\.0\.2\.10 lookup \d+ proto (bgp|186)/);
  const { changes } = planRouting(both, readKernel(bed.stack));
  for (const change of changes) {
    applyRouting(bed.stack, [change]);
    assert.ok(rules(bed).some((line) => line.startsWith(`15000: from 192.0.2.10 lookup ${500 + eth0} `)));
    assert.match(bed.run("ip", "route", "get", "198.51.100.99", "from", "192.0.2.10"), / via 192\.0\.2\.1 .* table 5/);
    assertNoEmptyTable(bed);
  }
  assert.equal(sync(bed.stack, both), 0);
  sync(bed.stack, settings);
  assert.equal(everything(bed), wanted);
  // And a flush knows both.
  sync(bed.stack, old);
  bed.run("ip", "route", "replace", ...route400);
  applyRouting(bed.stack, planFlush(readKernel(bed.stack), settings.routing));
  assert.equal(everything(bed), before);
});
