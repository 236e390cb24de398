import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { NodeRoutes, type RouterNode } from "./index.ts";

const PLACE = { table: 254, protocol: 31 };
const NODES = 250;
/** Blocks of each node; 5,000 blocks in all, each with a prefix of both families. */
const BLOCKS_EACH = 20;
/** docs/spec/pod-network.md: a sync of 5,000 blocks takes 2 s at most, here as processor time, which others on the machine do not change. */
const BUDGET_MS = 2000;

/** A namespace with an uplink of both families and routes of others in its main table, gone with the test. */
function host(t: TestContext) {
  const kernel = openKernel();
  const name = `isthmus-nr-${process.pid}`;
  using netns = kernel.createNetNs(name);
  t.after(() => kernel.deleteNetNs(name));
  const stack = kernel.openStack(netns);
  t.after(() => stack[Symbol.dispose]());
  const ip = (...args: string[]): string =>
    execFileSync("ip", ["-n", name, ...args], { encoding: "utf8", maxBuffer: 64 << 20 });
  ip("link", "set", "lo", "up");
  ip("link", "add", "uplink", "type", "bridge");
  ip("link", "set", "uplink", "up");
  ip("address", "add", "192.0.2.254/24", "dev", "uplink");
  ip("-6", "address", "add", "2001:db8::ffff/64", "dev", "uplink", "nodad");
  ip("route", "add", "default", "via", "192.0.2.253");
  ip("route", "add", "10.200.0.0/16", "via", "192.0.2.252", "proto", "static");
  ip("route", "add", "10.201.0.0/27", "dev", "uplink", "proto", "30");
  ip("-6", "route", "add", "default", "via", "2001:db8::fffe");
  ip("-6", "route", "add", "fd99::/123", "via", "2001:db8::fffe", "proto", "static");
  const lines = (family: string): string[] =>
    ip(family, "route", "show")
      .split("\n")
      .map((line) => line.trim().replaceAll(/ +/g, " "));
  const foreign = (): string[] => [...lines("-4"), ...lines("-6")].filter((line) => !line.includes("proto 31"));
  const ways = (): Map<string, string> =>
    new Map(
      [...lines("-4"), ...lines("-6")].flatMap((line) => {
        const [, dst, gateway] = /^(\S+) via (\S+) dev uplink proto 31/.exec(line) ?? [];
        return dst === undefined || gateway === undefined ? [] : [[dst, gateway] as const];
      }),
    );
  return { stack, foreign, ways };
}

/** Block `k` of the cluster: 10.0.0.0/8 and fd00::/64 cut in blocks of 32 addresses. */
function block(k: number): [Cidr, Cidr] {
  const ipv4 = `10.${k >> 11}.${(k >> 3) & 255}.${(k & 7) * 32}/27`;
  return [
    Cidr.parse(ipv4),
    Cidr.parse(
      `fd00::${(k * 32)
        .toString(16)
        .padStart(5, "0")
        .replace(/(.*)(.{4})/, "$1:$2")}/123`,
    ),
  ];
}

const gateways = (last: number) => ({
  ipv4: IpAddress.parse(`192.0.2.${last}`),
  ipv6: IpAddress.parse(`2001:db8::${last.toString(16)}`),
});

test("NodeRoutes: 5,000 blocks of both families are routed within 2 s; a gateway changes, a block moves, and routes of others in the main table stay", (t) => {
  const { stack, foreign, ways } = host(t);
  const before = foreign();
  assert.ok(before.length > 8, before.join("\n"));
  const nodes = new Map<string, RouterNode>();
  for (let at = 0; at < NODES; at += 1) {
    const prefixes = Array.from({ length: BLOCKS_EACH }, (_, k) => block(at * BLOCKS_EACH + k)).flat();
    nodes.set(`node${at}`, { name: `node${at}`, ...gateways(at + 1), prefixes });
  }
  const wanted = (): Map<string, string> =>
    new Map(
      [...nodes.values()].flatMap(({ ipv4, ipv6, prefixes }) =>
        prefixes.map((prefix) => [`${prefix}`, `${prefix.family === 4 ? ipv4 : ipv6}`] as const),
      ),
    );
  const routes = new NodeRoutes({ stack, clock: systemClock }, { ...PLACE, wholeEveryMs: 600_000 });
  const sync = (of: NodeRoutes, ...changed: string[]) => {
    const started = process.cpuUsage();
    const result = of.sync({ all: () => nodes.values(), get: (name) => nodes.get(name), changed });
    const { user, system } = process.cpuUsage(started);
    return { ...result, cpuMs: (user + system) / 1000 };
  };

  const first = sync(routes);
  assert.deepEqual([first.changes, first.whole, routes.size], [10_000, true, 10_000]);
  assert.deepEqual(ways(), wanted());

  // Another process of it, as after a restart: everything is listed and compared, and nothing changes.
  const restarted = sync(new NodeRoutes({ stack, clock: systemClock }, { ...PLACE, wholeEveryMs: 600_000 }));
  assert.deepEqual([restarted.changes, restarted.whole], [0, true]);
  for (const { cpuMs } of [first, restarted]) assert.ok(cpuMs <= BUDGET_MS, `a sync took ${cpuMs} ms`);

  // The address of a node changes; a block moves from one node to another; a node goes.
  const changedNode = nodes.get("node7") ?? assert.fail();
  nodes.set("node7", { ...changedNode, ...gateways(NODES + 1) });
  const [from, to] = [nodes.get("node8") ?? assert.fail(), nodes.get("node9") ?? assert.fail()];
  nodes.set("node8", { ...from, prefixes: from.prefixes.slice(2) });
  nodes.set("node9", { ...to, prefixes: [...to.prefixes, ...from.prefixes.slice(0, 2)] });
  nodes.delete("node10");
  const some = sync(routes, "node7", "node8", "node9", "node10");
  // All blocks of two nodes and one block, each of both families.
  assert.deepEqual([some.changes, some.whole], [2 * (2 * BLOCKS_EACH + 1), false]);
  assert.deepEqual(ways(), wanted());

  nodes.clear();
  const last = sync(new NodeRoutes({ stack, clock: systemClock }, { ...PLACE, wholeEveryMs: 600_000 }));
  assert.equal(last.changes, 10_000 - 2 * BLOCKS_EACH);
  assert.equal(ways().size, 0);
  assert.deepEqual(foreign(), before);
});
