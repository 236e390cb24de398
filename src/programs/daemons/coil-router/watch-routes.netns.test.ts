// quiet: it measures times
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { Dirty, sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { reconcile } from "#base/reconcile";
import { NodeRoutes } from "#features/routes";
import { openKernel } from "#kernel/net";
import { reloadAsNetworkd } from "#test/networkd";
import { watchRoutes } from "./watch-routes.ts";

const PLACE = { table: 254, protocol: 31 };
/** The time within which routes must be back, in milliseconds. */
const SOON_MS = 1000;
const NODE = {
  name: "b",
  ipv4: IpAddress.parse("192.0.2.2"),
  ipv6: IpAddress.parse("2001:db8::2"),
  prefixes: ["10.1.0.0/27", "fd01::/123"].map((text) => Cidr.parse(text)),
};
let serial = 0;

/** A node whose routes are kept as coil-router keeps them, except that no comparison is due by time. */
async function router(t: TestContext) {
  const kernel = openKernel();
  serial += 1;
  const name = `isthmus-wr-${process.pid}-${serial}`;
  const netns = kernel.createNetNs(name);
  const stack = kernel.openStack(netns);
  const ip = (...args: readonly string[]): string => execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
  ip("link", "set", "lo", "up");
  const addresses = (): void => {
    ip("address", "replace", "192.0.2.1/24", "dev", "uplink");
    ip("-6", "address", "replace", "2001:db8::1/64", "dev", "uplink", "nodad");
  };
  const makeUplink = (): void => {
    ip("link", "add", "uplink", "type", "bridge");
    ip("link", "set", "uplink", "up");
    addresses();
  };
  makeUplink();
  let wholes = 0;
  const dirty = new Dirty();
  const health = new Health();
  const stops: AbortController[] = [];
  const start = (): { readonly end: () => Promise<void> } => {
    const stop = new AbortController();
    stops.push(stop);
    const routes = new NodeRoutes({ stack, clock: systemClock }, { ...PLACE, wholeEveryMs: 3_600_000 });
    const { signal } = stop;
    const running = Promise.all([
      watchRoutes({ netns, routes, place: PLACE, dirty, clock: systemClock, log: nullLogger }, { signal }),
      reconcile({
        dirty,
        health: health.part("routes"),
        signal,
        resyncMs: 3_600_000,
        sync: async () => {
          wholes += 1;
          return routes.sync({ all: () => [NODE], get: () => NODE, changed: [] }).changes;
        },
      }),
    ]);
    return {
      end: async () => {
        stop.abort();
        await running;
      },
    };
  };
  const first = start();
  const ends = [first.end];
  t.after(async () => {
    for (const end of ends) await end();
    stack[Symbol.dispose]();
    netns[Symbol.dispose]();
    kernel.deleteNetNs(name);
  });
  const has = (family: string): boolean => /proto 31/.test(ip(family, "route", "show"));
  const restart = async (): Promise<void> => {
    await ends.pop()?.();
    ends.push(start().end);
  };
  const sync = {
    get wholes() {
      return wholes;
    },
  };
  await sleep(200);
  assert.ok(has("-4") && has("-6"));
  return { ip, has, addresses, makeUplink, restart, stack, sync, health };
}

/** Fails unless the condition holds in time. */
async function soon(what: string, holds: () => boolean): Promise<void> {
  const startMs = performance.now();
  while (!holds() && performance.now() - startMs < 10 * SOON_MS) await sleep(10);
  const tookMs = Math.round(performance.now() - startMs);
  assert.ok(tookMs < SOON_MS, `${what} took ${tookMs} ms`);
}

test("watchRoutes: after a flap of the uplink the routes are back within a second, also with addresses that come later", async (t) => {
  const { ip, has, addresses, restart, health } = await router(t);
  for (const how of ["first", "after a restart"]) {
    ip("link", "set", "uplink", "down");
    ip("link", "set", "uplink", "up");
    // The kernel keeps the IPv4 address of a link that goes down, and removes the IPv6 one.
    await soon(`IPv4, ${how}`, () => has("-4"));
    await sleep(2000);
    assert.ok(!has("-6"));
    assert.equal(health.parts[0]?.status, "degraded");
    addresses();
    await soon(`IPv6, ${how}`, () => has("-6"));
    assert.equal(health.parts[0]?.status, "ok");
    await restart();
    await sleep(300);
  }
});

test("watchRoutes: routes that somebody removes, and those of an uplink that is deleted and made again, are back within a second", async (t) => {
  const { ip, has, makeUplink } = await router(t);
  ip("route", "flush", "proto", "31");
  await soon("IPv4", () => has("-4"));
  ip("-6", "route", "flush", "proto", "31");
  await soon("IPv6", () => has("-6"));
  ip("link", "del", "uplink");
  // So long that the pauses between attempts have grown.
  await sleep(3000);
  assert.ok(!has("-4") && !has("-6"));
  makeUplink();
  await soon("both", () => has("-4") && has("-6"));
  ip("address", "del", "192.0.2.1/24", "dev", "uplink");
  await sleep(3000);
  assert.ok(!has("-4"));
  ip("address", "add", "192.0.2.1/24", "dev", "uplink");
  await soon("after a change of the address", () => has("-4"));
});

test("watchRoutes: what systemd-networkd removes when it reloads is back within a second", async (t) => {
  const { has, stack } = await router(t);
  const { routes } = reloadAsNetworkd(stack);
  assert.equal(routes, 2);
  await soon("both", () => has("-4") && has("-6"));
});

test("watchRoutes: links and routes of others, as pods have them, cause no comparison; a loop of removals one a second", async (t) => {
  const { ip, has, sync } = await router(t);
  const before = sync.wholes;
  for (let at = 0; at < 10; at += 1) {
    ip("link", "add", `p${at}`, "type", "veth", "peer", "name", `q${at}`);
    ip("link", "set", `p${at}`, "up");
    ip("address", "add", "192.0.2.1/32", "dev", `p${at}`);
    ip("route", "add", `10.9.0.${at}/32`, "dev", `p${at}`, "table", "116");
    ip("link", "del", `p${at}`);
  }
  await sleep(300);
  assert.equal(sync.wholes, before);
  const startMs = performance.now();
  while (performance.now() - startMs < 6000) {
    if (has("-4")) ip("route", "flush", "proto", "31");
    await sleep(20);
  }
  const during = sync.wholes - before;
  assert.ok(during >= 4 && during <= 12, `${during} comparisons in 6 s`);
  await soon("at last", () => has("-4"));
});
