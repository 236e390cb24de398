import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { FakeSockDiag } from "#kernel/sock-diag";
import type { AddressClaim, ClusterFacts } from "../plan/index.ts";
import { AddressGuard, BOOT_MS, type LateListener } from "./address-guard.ts";

const NODE = IpAddress.parse("198.51.100.1");
const OTHER = IpAddress.parse("198.51.100.9");
const CLUSTER: ClusterFacts = {
  ...{ isClusterIP: () => false, endpointsAt: () => [], nodePortOf: () => undefined, apiServerPorts: () => new Set() },
};
const CLAIM: AddressClaim = {
  ...{ service: "shop/web", namespace: "shop", address: NODE, protocol: "TCP", port: 80 },
  ...{ key: "key", frontEnd: "198.51.100.1:80/TCP", isLoadBalancer: false },
};

function setUp({ given = false } = {}) {
  const clock = new FakeClock();
  const sockets = new FakeSockDiag();
  const late: LateListener[] = [];
  const lines: number[] = [];
  const state = { uptimeMs: BOOT_MS, given, changes: 0, isFailing: false };
  const guard = new AddressGuard(
    {
      sockets: {
        listeners: () => {
          if (state.isFailing) throw new KernelError("not-found", "Cannot list sockets: no such protocol");
          return sockets.listeners();
        },
        [Symbol.dispose]: () => undefined,
      },
      uptimeMs: () => state.uptimeMs,
      wasGiven: () => state.given,
      onLateListener: (listener) => late.push(listener),
      onChange: () => {
        state.changes += 1;
      },
      clock,
      log: createLogger({ name: "t", write: () => lines.push(1) }),
    },
    { mode: "guarded", hostPorts: [], clusterCIDRs: [] },
  );
  guard.setHostAddresses(4, [NODE]);
  const judge = async (): Promise<string | undefined> => {
    // The kernel's answer serves for a moment.
    await clock.advance(1000);
    return guard.judge(4, CLAIM, CLUSTER);
  };
  const judgeOther = async (): Promise<string | undefined> => {
    await clock.advance(1000);
    return guard.judge(4, { ...CLAIM, key: "other", address: OTHER, frontEnd: "198.51.100.9:80/TCP" }, CLUSTER);
  };
  const listen = (): void => {
    sockets.sockets.push({ protocol: "TCP", address: IpAddress.parse("0.0.0.0"), port: 80, isOneFamily: true });
  };
  return { guard, judge, judgeOther, listen, sockets, state, late, lines };
}

test("AddressGuard: a listener that is older than the Service wins, and the Service gets the address when it ends", async () => {
  const { judge, listen, sockets, late } = setUp();
  listen();
  assert.equal(await judge(), "this node, where a socket listens on 80/TCP");
  sockets.sockets.length = 0;
  assert.equal(await judge(), undefined);
  assert.deepEqual(late, []);
});

test("AddressGuard: a listener that begins later is reported once, and the Service keeps the address, also over a restart of the proxy", async () => {
  const { judge, listen, guard, late } = setUp();
  assert.equal(await judge(), undefined);
  listen();
  for (let times = 0; times < 3; times += 1) assert.equal(await judge(), undefined);
  assert.deepEqual(late, [{ service: "shop/web", frontEnd: "198.51.100.1:80/TCP" }]);
  guard.forget("shop/web");
  assert.match((await judge()) ?? "", /a socket listens/, "made again the Service is the younger one");
  const again = setUp({ given: true });
  again.listen();
  assert.equal(await again.judge(), undefined);
  assert.equal(again.late.length, 1);
});

test("AddressGuard: of another node's address no Service gets a port that a socket of this node listens on, and keeps what it has", async () => {
  const { guard, judgeOther, listen, sockets, late, state } = setUp();
  guard.setOtherNodes({ nodes: new Map([[String(OTHER), "node-b"]]), podCIDRs: [] });
  listen();
  assert.match((await judgeOther()) ?? "", /^another node, and on this one a socket listens on 80\/TCP/);
  sockets.sockets.splice(0, 1, { protocol: "TCP", address: NODE, port: 80, isOneFamily: true });
  assert.match((await judgeOther()) ?? "", /^another node/);
  const loopback = IpAddress.parse("127.0.0.1");
  sockets.sockets.splice(0, 1, { protocol: "TCP", address: loopback, port: 80, isOneFamily: true });
  assert.equal(await judgeOther(), undefined);
  listen();
  assert.equal(await judgeOther(), undefined);
  assert.deepEqual(late, [], "of another node nothing is known");
  guard.forget("shop/web");
  state.isFailing = true;
  assert.equal(await judgeOther(), undefined, "the kernel does not tell");
});

test("AddressGuard: for two minutes after a boot a socket that begins to listen goes before the Service", async () => {
  const { judge, listen, state, guard } = setUp({ given: true });
  state.uptimeMs = 30_000;
  assert.equal(await judge(), undefined);
  assert.equal(guard.isBooting, true);
  listen();
  assert.match((await judge()) ?? "", /a socket listens/);
  state.uptimeMs = BOOT_MS;
  state.given = false;
  assert.match((await judge()) ?? "", /a socket listens/, "it was there before");
});

test("AddressGuard: where the kernel does not tell its sockets no Service gets an address of this node, and one line says so", async () => {
  const { judge, state, lines } = setUp();
  state.isFailing = true;
  assert.match((await judge()) ?? "", /whose sockets the kernel does not tell/);
  await judge();
  assert.equal(lines.length, 1);
});

test("AddressGuard: changed facts have claims judged again, the same facts do not", () => {
  const { guard, state } = setUp();
  const { changes } = state;
  guard.setHostAddresses(4, [NODE]);
  guard.setNode([], []);
  assert.equal(state.changes, changes);
  guard.setOtherNodes({ nodes: new Map([["198.51.100.9", "node-b"]]), podCIDRs: [] });
  guard.setApiServer(["203.0.113.1"], 6443);
  assert.equal(state.changes, changes + 2);
  const other = { ...CLAIM, address: IpAddress.parse("203.0.113.1"), port: 6443 };
  assert.match(guard.judge(4, other, CLUSTER) ?? "", /^the API server/);
});
