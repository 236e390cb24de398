import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { RouteSync } from "./index.ts";
import { exportRoutes, routesToNodes } from "./wanted.ts";

const TABLE = 119;
const PROTOCOL = 30;
let serial = 0;

/** A namespace with an uplink of both families, gone with the test. */
function host(t: TestContext) {
  const kernel = openKernel();
  serial += 1;
  const name = `isthmus-rs-${process.pid}-${serial}`;
  using netns = kernel.createNetNs(name);
  t.after(() => kernel.deleteNetNs(name));
  const stack = kernel.openStack(netns);
  t.after(() => stack[Symbol.dispose]());
  const ip = (...args: string[]): string => execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
  ip("link", "set", "lo", "up");
  ip("link", "add", "uplink", "type", "bridge");
  ip("link", "set", "uplink", "up");
  ip("address", "add", "192.0.2.254/24", "dev", "uplink");
  ip("-6", "address", "add", "2001:db8::fe/64", "dev", "uplink", "nodad");
  const sync = new RouteSync(stack, { table: TABLE, protocol: PROTOCOL });
  const shown = (family = "-4"): string[] =>
    ip(family, "route", "show", "table", String(TABLE))
      .split("\n")
      .map((line) => line.trim().replaceAll(/ +/g, " "))
      .filter((line) => line !== "")
      .sort();
  return { name, ip, sync, shown };
}

const place = { table: TABLE, protocol: PROTOCOL };
const exported = (...prefixes: string[]) =>
  exportRoutes(
    prefixes.map((text) => Cidr.parse(text)),
    1,
    place,
  );
const node = (address: string, ...prefixes: string[]) => {
  const ip = IpAddress.parse(address);
  const one = { name: "n", ipv4: ip.family === 4 ? ip : undefined, ipv6: ip.family === 6 ? ip : undefined };
  return routesToNodes([{ ...one, prefixes: prefixes.map((text) => Cidr.parse(text)) }], place).routes;
};

test("RouteSync: adds missing routes in both families, and a second sync changes nothing", (t) => {
  const { sync, shown } = host(t);
  const wanted = exported("10.0.0.0/27", "10.0.0.32/32", "fd00::/123");
  assert.equal(sync.sync(wanted), 3);
  assert.equal(sync.sync(wanted), 0);
  assert.deepEqual(shown(), ["10.0.0.0/27 dev lo proto 30", "10.0.0.32 dev lo proto 30"]);
  assert.deepEqual(shown("-6"), ["fd00::/123 dev lo proto 30 metric 1024 pref medium"]);
  assert.equal(sync.sync(wanted.slice(1)), 1);
  assert.deepEqual(
    sync
      .list()
      .map(({ dst }) => dst.toString())
      .sort(),
    ["10.0.0.32/32", "fd00::/123"],
  );
});

test("RouteSync: routes of other protocols in its table, and its protocol in other tables, are left alone", (t) => {
  const { ip, sync, shown } = host(t);
  ip("route", "add", "198.51.100.0/24", "via", "192.0.2.9", "proto", "static", "table", String(TABLE));
  ip("route", "add", "203.0.113.0/24", "via", "192.0.2.9", "proto", String(PROTOCOL), "table", "120");
  ip("-6", "route", "add", "2001:db8:1::/48", "via", "2001:db8::9", "proto", "static", "table", String(TABLE));
  sync.sync(exported("10.0.0.0/27", "fd00::/123"));
  assert.equal(sync.clear(), 2);
  assert.deepEqual(shown(), ["198.51.100.0/24 via 192.0.2.9 dev uplink proto static"]);
  assert.match(shown("-6").join(), /^2001:db8:1::\/48 via 2001:db8::9 dev uplink proto static/);
  assert.match(ip("route", "show", "table", "120"), /203\.0\.113\.0\/24/);
  assert.equal(sync.clear(), 0);
});

for (const [family, first, second, prefix] of [
  ["-4", "192.0.2.1", "192.0.2.2", "10.0.0.0/27"],
  ["-6", "2001:db8::1", "2001:db8::2", "fd00::/123"],
] as const) {
  test(`RouteSync: a changed gateway is replaced without a gap (${family})`, async (t) => {
    const { name, sync, shown } = host(t);
    sync.sync(node(first, prefix));
    const monitor = spawn("ip", ["-n", name, family, "monitor", "route"], { stdio: ["ignore", "pipe", "inherit"] });
    let events = "";
    monitor.stdout.setEncoding("utf8").on("data", (text: string) => {
      events += text;
    });
    t.after(() => monitor.kill());
    // A route that comes and goes until the monitor is seen to listen.
    while (!/\b(198\.51\.100\.0|2001:db8:9::)/.test(events)) {
      const probe = family === "-4" ? "198.51.100.0/24" : "2001:db8:9::/48";
      sync.sync([...node(first, prefix), ...node(first, probe)]);
      sync.sync(node(first, prefix));
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(sync.sync(node(second, prefix)), 1);
    assert.equal(shown(family).length, 1);
    assert.match(shown(family)[0] ?? "", new RegExp(`via ${second} `));
    assert.equal(sync.sync(node(second, prefix)), 0);
    while (!events.includes(`via ${second}`)) await new Promise((resolve) => setImmediate(resolve));
    monitor.kill();
    await once(monitor, "close");
    const deleted = events.split("\n").filter((line) => line.startsWith("Deleted") && line.includes(prefix));
    assert.deepEqual(deleted, [], "nothing was deleted, so there was always a route");
  });
}

test("RouteSync: a prefix that moves from loopback to a node and back is one change each time", (t) => {
  const { sync, shown } = host(t);
  sync.sync(exported("10.0.0.0/27"));
  assert.equal(sync.sync(node("192.0.2.1", "10.0.0.0/27")), 1);
  assert.deepEqual(shown(), ["10.0.0.0/27 via 192.0.2.1 dev uplink proto 30"]);
  assert.equal(sync.sync(exported("10.0.0.0/27")), 1);
  assert.deepEqual(shown(), ["10.0.0.0/27 dev lo proto 30"]);
});
