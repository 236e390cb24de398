import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { FakeSockDiag } from "#kernel/sock-diag";
import { type AddressClaim, type ClusterFacts, type Owner, UNDECIDED } from "../plan/index.ts";
import { AddressGuard, BOOT_MS, type LateListener, PATIENCE_MS } from "./address-guard.ts";

const NODE = IpAddress.parse("198.51.100.1");
const OTHER = IpAddress.parse("198.51.100.9");
const CLUSTER: ClusterFacts = {
  ...{
    isClusterIP: () => false,
    otherEndpoint: () => undefined,
    nodePortOf: () => undefined,
    apiServerPorts: () => new Set(),
  },
};
const CLAIM: AddressClaim = {
  ...{ service: "shop/web", namespace: "shop", address: NODE, protocol: "TCP", port: 80 },
  ...{ key: "key", frontEnd: "198.51.100.1:80/TCP", isLoadBalancer: false },
};

/** `isKnown`: the other nodes have been read, and the API server's address. */
function setUp({ given = false, isKnown = true } = {}) {
  const clock = new FakeClock();
  const sockets = new FakeSockDiag();
  const late: LateListener[] = [];
  const lines: string[] = [];
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
      log: createLogger({ name: "t", write: (line) => lines.push(line) }),
    },
    { mode: "guarded", hostPorts: [], clusterCIDRs: [Cidr.parse("10.244.0.0/16")] },
  );
  guard.setHostAddresses(4, [NODE]);
  if (isKnown) {
    guard.setOtherNodes({ nodes: new Map(), podCIDRs: [] });
    guard.setApiServer([], 6443);
  }
  const judge = async (): Promise<Owner> => {
    // The kernel's answer serves for a moment.
    await clock.advance(1000);
    return guard.judge(4, CLAIM, CLUSTER);
  };
  const judgeOther = async (): Promise<Owner> => {
    await clock.advance(1000);
    return guard.judge(4, { ...CLAIM, key: "other", address: OTHER, frontEnd: "198.51.100.9:80/TCP" }, CLUSTER);
  };
  const listen = (): void => {
    sockets.sockets.push({ protocol: "TCP", address: IpAddress.parse("0.0.0.0"), port: 80, isOneFamily: true });
  };
  const run = (): AsyncDisposable => {
    const ended = new AbortController();
    const done = guard.run({ signal: ended.signal });
    return {
      [Symbol.asyncDispose]: () => {
        ended.abort();
        return done;
      },
    };
  };
  return { guard, run, judge, judgeOther, listen, clock, sockets, state, late, lines };
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
  assert.match(String(await judge()), /a socket listens/, "made again the Service is the younger one");
  const again = setUp({ given: true });
  again.listen();
  assert.equal(await again.judge(), undefined);
  assert.equal(again.late.length, 1);
});

test("AddressGuard: of another node's address no Service gets a port that a socket of this node listens on, and keeps what it has", async () => {
  const { guard, judgeOther, listen, sockets, late, state } = setUp();
  guard.setOtherNodes({ nodes: new Map([[String(OTHER), "node-b"]]), podCIDRs: [] });
  listen();
  assert.match(String(await judgeOther()), /^another node, and on this one a socket listens on 80\/TCP/);
  sockets.sockets.splice(0, 1, { protocol: "TCP", address: NODE, port: 80, isOneFamily: true });
  assert.match(String(await judgeOther()), /^another node/);
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
  assert.match(String(await judge()), /a socket listens/);
  state.uptimeMs = BOOT_MS;
  state.given = false;
  assert.match(String(await judge()), /a socket listens/, "it was there before");
});

test("AddressGuard: where the kernel does not tell its sockets no Service gets an address of this node, and one line says so", async () => {
  const { judge, state, lines } = setUp();
  state.isFailing = true;
  assert.match(String(await judge()), /whose sockets the kernel does not tell/);
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
  assert.match(String(guard.judge(4, other, CLUSTER)), /^the API server/);
});

test("AddressGuard: until the other nodes and the API server are known a Service has what an earlier run gave it, and nothing else is decided", async () => {
  const { guard, judge, state, listen } = setUp({ isKnown: false });
  assert.equal(await judge(), UNDECIDED);
  state.given = true;
  listen();
  assert.equal(await judge(), undefined);
  state.given = false;
  const { changes } = state;
  guard.setApiServer([], 6443);
  assert.equal(await judge(), UNDECIDED);
  guard.setOtherNodes({ nodes: new Map(), podCIDRs: [] });
  assert.equal(state.changes, changes + 2, "a cluster of one node has no other addresses, and claims are judged again");
  assert.match(String(await judge()), /a socket listens/);
});

test("AddressGuard: what is not known after 30 s is not waited for, and one line says so", async () => {
  const { guard, run, judge, state, clock, lines } = setUp({ isKnown: false });
  guard.setApiServer([], 6443);
  await using _running = run();
  await clock.advance(10 * PATIENCE_MS);
  assert.equal(await judge(), UNDECIDED, "nothing waited before");
  const { changes } = state;
  await clock.advance(PATIENCE_MS + 10_000);
  assert.equal(state.changes, changes + 1);
  assert.equal(await judge(), undefined);
  assert.match(lines.join(), /"unknown":\["Nodes"\]/);
});

test("AddressGuard: a Service gets the address within ten seconds after the socket has gone, and nothing is judged again before", async () => {
  const { run, judge, state, clock, sockets, listen } = setUp();
  listen();
  assert.match(String(await judge()), /a socket listens/);
  await using _running = run();
  const { changes } = state;
  await clock.advance(60_000);
  assert.equal(state.changes, changes);
  sockets.sockets.length = 0;
  await clock.advance(10_000);
  assert.equal(state.changes, changes + 1);
  await clock.advance(60_000);
  assert.equal(state.changes, changes + 1, "once");
  assert.equal(await judge(), undefined);
});

test("AddressGuard: claims are judged again each five seconds while programs of the host start, and once more afterwards", async () => {
  const { run, state, clock } = setUp();
  state.uptimeMs = 0;
  await using _running = run();
  const { changes } = state;
  await clock.advance(10_000);
  assert.equal(state.changes, changes + 2);
  state.uptimeMs = BOOT_MS;
  await clock.advance(60_000);
  assert.equal(state.changes, changes + 3);
});

test("AddressGuard: where no range of pods is known a line says so, once for each family", async () => {
  const { guard, judge, lines } = setUp();
  await judge();
  assert.deepEqual(lines, []);
  for (let times = 0; times < 2; times += 1)
    guard.judge(6, { ...CLAIM, address: IpAddress.parse("2001:db8::9") }, CLUSTER);
  assert.equal(lines.length, 1);
  assert.match(lines.join(), /--cluster-cidr/);
});
