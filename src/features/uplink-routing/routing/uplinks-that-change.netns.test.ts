import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { indexOf, makeBed, routes, rules, settingsOf, sync } from "#test/uplink-routing-bed";

const ip = IpAddress.parse;

test("routing: a link that goes down keeps its rule and leads nowhere; up again, its table is restored", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  const whole = routes(bed, 500 + indexOf(bed, "eth0"));
  const eth0 = indexOf(bed, "eth0");
  bed.stack.links.set(eth0, { up: false });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.deepEqual(routes(bed, 500 + eth0), ["unreachable default proto 157 metric 4294967295"]);
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
  assert.ok(rules(bed).includes(`15000: from 192.0.2.11 lookup ${500 + eth0} proto 157`));
  assert.ok(rules(bed, "-6").includes(`15000: from 2001:db8:1::11 lookup ${500 + eth0} proto 157`));
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
      `15000: from 192.0.2.11 lookup ${500 + eth1} proto 157`,
      `15000: from 2001:db8:1::11 lookup ${500 + eth1} proto 157`,
    ],
  );
  bed.stack.addresses.delete({ linkIndex: eth1, address: ip("192.0.2.11"), prefixLength: 24 });
  sync(bed.stack, settings);
  assert.ok(!rules(bed).some((line) => line.includes("192.0.2.11")));
  assert.equal(sync(bed.stack, settings), 0);
});

test("routing: an address that left for an interface that is no uplink keeps its rule, so that its traffic takes no more expensive uplink", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed, {}, "observe");
  const eth0 = indexOf(bed, "eth0");
  sync(bed.stack, settings);
  const bridge = bed.stack.links.create({ kind: "bridge", name: "br0", up: true });
  bed.stack.addresses.add({ linkIndex: bridge.index, address: ip("192.0.2.10"), prefixLength: 24 });
  bed.stack.addresses.delete({ linkIndex: eth0, address: ip("192.0.2.10"), prefixLength: 24 });
  sync(bed.stack, settings);
  assert.ok(rules(bed).includes(`15000: from 192.0.2.10 lookup ${500 + eth0} proto 157`));
  assert.equal(sync(bed.stack, settings), 0);
  bed.stack.links.delete(bridge.index);
  sync(bed.stack, settings);
  assert.ok(!rules(bed).some((line) => line.includes("192.0.2.10")));
});

test("routing: an interface that is renamed under its uplink: the address leads nowhere, and not over a more expensive uplink", async (t) => {
  const bed = await makeBed(t);
  const settings = settingsOf(bed);
  sync(bed.stack, settings);
  const index = indexOf(bed, "eth0");
  bed.stack.links.set(index, { up: false });
  bed.stack.links.set(index, { name: "renamed" });
  bed.stack.links.set(index, { up: true });
  sync(bed.stack, settings);
  assert.equal(sync(bed.stack, settings), 0);
  assert.ok(rules(bed).includes(`15000: from 192.0.2.10 lookup ${500 + index} proto 157`));
  assert.deepEqual(routes(bed, 500 + index), ["unreachable default proto 157 metric 4294967295"]);
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
  assert.ok(rules(bed).includes(`15000: from 198.51.100.10 lookup ${500 + link.index} proto 157`));
  assert.equal(routes(bed, 500 + link.index).length, 3);
  assert.equal(sync(bed.stack, settings), 0);
});
