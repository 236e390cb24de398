import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { createLogger, nullLogger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import { hasTransparent, planTransparent, runTransparentWatchdog, TransparentKeeper } from "./index.ts";

class FakeWatchdog {
  isAlive = true;
  isReady = true;
  heartbeats = 0;
  saidGoodbye = false;
  heartbeat(): void {
    this.heartbeats += 1;
  }
  disarm(): void {
    this.saidGoodbye = true;
  }
}

const settingsOf = (transparent: Readonly<Record<string, unknown>>): Settings =>
  parseSettings(JSON.stringify({ version: 1, transparent: { enabled: true, ...transparent } }), "test").settings;

function setUp(t: TestContext) {
  const kernel = new FakeKernel();
  const stack = kernel.openStack(kernel.createNetNs("node"));
  stack.links.set(1, { up: true });
  const nft = new FakeNft();
  const clock = new FakeClock();
  const watchdogs: FakeWatchdog[] = [];
  const world = { settings: settingsOf({}), isHealthy: true, newWatchdog: {} as Partial<FakeWatchdog> };
  const lines: string[] = [];
  const folder = mkdtempSync(join(tmpdir(), "isthmus-keeper-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const offSwitch = join(folder, "off");
  const health = new Health();
  const keeper = new TransparentKeeper(
    {
      stack,
      nft,
      settings: () => world.settings,
      healthy: () => world.isHealthy,
      startWatchdog: () => {
        const watchdog = new FakeWatchdog();
        Object.assign(watchdog, world.newWatchdog);
        watchdogs.push(watchdog);
        return watchdog;
      },
      health: health.part("transparent"),
      log: createLogger({ name: "t", write: (line) => void lines.push(JSON.parse(line).msg) }),
      clock,
    },
    { offSwitch },
  );
  const isThere = (): boolean => hasTransparent(stack, nft, world.settings);
  const controller = new AbortController();
  const running = keeper.run({ signal: controller.signal });
  const stop = async (): Promise<void> => {
    controller.abort();
    await running;
  };
  return { kernel, nft, clock, watchdogs, world, keeper, isThere, stop, offSwitch, health, lines };
}

test("TransparentKeeper: redirects connections while the proxy is healthy, and none when it is not, ends, or is switched off", async (t) => {
  const { clock, world, isThere, keeper, stop, offSwitch, watchdogs, lines } = setUp(t);
  await clock.advance(500);
  assert.ok(isThere() && keeper.isInstalled);
  world.isHealthy = false;
  await clock.advance(500);
  assert.ok(!isThere() && !keeper.isInstalled);
  world.isHealthy = true;
  await clock.advance(500);
  assert.ok(isThere());
  writeFileSync(offSwitch, "");
  await clock.advance(500);
  assert.ok(!isThere());
  rmSync(offSwitch);
  await clock.advance(500);
  assert.ok(isThere());
  world.settings = settingsOf({ enabled: false });
  await clock.advance(500);
  assert.ok(!isThere());
  world.settings = settingsOf({});
  await clock.advance(500);
  assert.ok(isThere());
  await stop();
  assert.ok(!isThere());
  assert.equal(watchdogs.length, 1);
  assert.ok(watchdogs[0]?.saidGoodbye);
  assert.equal(lines.length, 8);
});

test("TransparentKeeper: nothing is redirected without a live watchdog; one for other numbers replaces it", async (t) => {
  const { clock, world, isThere, stop, watchdogs, kernel, nft } = setUp(t);
  await clock.advance(500);
  assert.equal(watchdogs.length, 1);
  const [first] = watchdogs;
  assert.ok(first !== undefined && first.heartbeats >= 1);
  first.isAlive = false;
  await clock.advance(500);
  assert.equal(watchdogs.length, 2);
  assert.ok(isThere());
  world.settings = settingsOf({ mark: 0x66, table: 498 });
  await clock.advance(500);
  assert.equal(watchdogs.length, 3);
  assert.ok(watchdogs[1]?.saidGoodbye);
  assert.ok(isThere());
  const dump = kernel.dump({ name: "node" });
  assert.ok(dump.includes("lookup 498") && !dump.includes("lookup 499"), dump);
  assert.match(nft.print({ family: "inet", name: "uplink_proxy" }) ?? "", /meta mark set 102/);
  await stop();
  assert.ok(!kernel.dump({ name: "node" }).includes("498"));
});

test("TransparentKeeper: what another program removed is restored; a failure is reported and tried again", async (t) => {
  const { clock, isThere, stop, nft, health, kernel } = setUp(t);
  await clock.advance(500);
  nft.run([{ op: "delete", kind: "table", table: { family: "inet", name: "uplink_proxy" } }]);
  assert.ok(!isThere());
  nft.fail("failed");
  await clock.advance(400);
  assert.equal(health.parts[0]?.status, "degraded");
  await clock.advance(400);
  assert.ok(isThere());
  assert.equal(health.parts[0]?.status, "ok");
  kernel.fail("rules.list", "failed");
  await clock.advance(400);
  assert.equal(health.parts[0]?.status, "degraded");
  await stop();
  assert.ok(!isThere());
});

test("TransparentKeeper: the redirection ends by itself when its lease is not renewed", async (t) => {
  const { clock, stop, nft } = setUp(t);
  await clock.advance(500);
  const text = nft.print({ family: "inet", name: "uplink_proxy" }) ?? "";
  assert.match(text, /element inet uplink_proxy alive \{ tcp timeout 2s/);
  assert.match(text, /meta l4proto @alive tcp flags .* tcp dport @ports ct mark set/);
  await stop();
});

test("planTransparent: ports of the node's own machinery are never taken, prefixes inside others are left out, the rest is skipped", () => {
  const { settings } = parseSettings(
    JSON.stringify({
      version: 1,
      cluster: { nodeIP: "10.42.1.5", prefixLength: 24 },
      transparent: { enabled: true, ports: [443, 6443, 53, 10250], skipUids: [1000, 1000, 7], mark: 3 },
    }),
    "test",
  );
  const { nft, rules, routes } = planTransparent(settings, { cgroups: ["/system.slice/backup.service"], ownUid: 99 });
  const text = nft.toString();
  assert.match(text, /ports \{ 443 \}/);
  assert.match(text, /bypass4 \{ 224\.0\.0\.0\/4, 10\.42\.0\.0\/16, 10\.43\.0\.0\/16, 169\.254\.0\.0\/16 \}/);
  assert.match(text, /meta skuid \{ 1000, 7, 99 \} accept/);
  assert.match(text, /meta mark 259 accept/);
  assert.match(text, /socket cgroupv2 level 2 "system\.slice\/backup\.service" accept/);
  assert.deepEqual(
    [...rules.map(({ fwmark, priority, table }) => [fwmark, priority, table]), ...routes.map(({ type }) => type)],
    [[3, 11_500, 499], [3, 11_500, 499], "local", "local"],
  );
});

test("runTransparentWatchdog: without heartbeats it removes the redirection, again and again, until one comes", async () => {
  const clock = new FakeClock();
  const input = new PassThrough();
  let removed = 0;
  const remove = (): void => {
    removed += 1;
  };
  const done = runTransparentWatchdog({ input, clock, remove, log: nullLogger });
  for (let at = 0; at < 10; at += 1) {
    input.write("b");
    await clock.advance(1000);
  }
  assert.equal(removed, 0);
  // The last heartbeat is a second old.
  await clock.advance(2500);
  assert.equal(removed, 2);
  input.end();
  await done;
  assert.equal(removed, 3);
  assert.equal(clock.pending, 0);
});

test("TransparentKeeper: redirects nothing before its watchdog is ready, and does not start one that cannot at each heartbeat", async (t) => {
  const { clock, world, isThere, stop, watchdogs, health } = setUp(t);
  world.newWatchdog = { isReady: false };
  world.settings = settingsOf({ mark: 0x66 });
  await clock.advance(2000);
  assert.ok(!isThere());
  const last = (): FakeWatchdog => watchdogs.at(-1) ?? assert.fail();
  last().isReady = true;
  await clock.advance(500);
  assert.ok(isThere());
  world.newWatchdog = { isReady: false, isAlive: false };
  last().isAlive = false;
  await clock.advance(500);
  assert.ok(!isThere());
  const before = watchdogs.length;
  await clock.advance(11_000);
  assert.ok(!isThere());
  assert.equal(watchdogs.length, before + 2);
  assert.match(health.parts[0]?.reason ?? "", /could not be started/);
  await stop();
});
