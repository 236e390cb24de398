import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { hasError, type Uplink } from "#base/uplink-model";
import { SettingsFile } from "#features/uplink-config";
import { Monitors } from "#kernel/monitor";
import { openNft } from "#kernel/nft";
import { reloadAsNetworkd } from "#test/networkd";
import { SOURCE_NODE } from "#test/node";
import { Bed } from "#test/uplink-wan-bed";
import { Uplinkd } from "./index.ts";

const ip = IpAddress.parse;
/** The longest reaction that the specification allows, in milliseconds. */
const REACTION_MS = 1000;

const DAEMON = new URL("../../../../test/support/uplinkd-process.ts", import.meta.url).pathname;

async function setUp(t: TestContext, rest: Readonly<Record<string, unknown>> = {}, mode = "static") {
  const bed = await Bed.create({ pod: true });
  const folder = mkdtempSync(join(tmpdir(), "isthmus-uplinkd-"));
  const path = join(folder, "uplinks.json");
  const write = (more: Readonly<Record<string, unknown>>): void => {
    const uplinks = bed.uplinkEntries.map((entry) =>
      mode === "static" ? entry : { name: entry["name"], interface: entry["interface"], cost: entry["cost"], mode },
    );
    writeFileSync(`${path}.new`, JSON.stringify({ version: 1, maxCost: 1, uplinks, ...more }));
    renameSync(`${path}.new`, path);
  };
  write(rest);
  const lines: Record<string, unknown>[] = [];
  const log = createLogger({ name: "uplinkd", write: (line) => void lines.push(JSON.parse(line)) });
  const monitors = new Monitors({ onFailure: (error) => assert.fail(error.message) });
  const nft = openNft(bed.netns);
  const health = new Health();
  const config = new SettingsFile({ log, clock: systemClock }, { path });
  const controlSocket = join(folder, "run", "control.sock");
  const topics = { links: true, addresses: true, routes: true, rules: true };
  const uplinkd = new Uplinkd(
    {
      config,
      stack: bed.stack,
      nft,
      follow: (changed) => monitors.watch(bed.netns, topics, changed),
      health: health.part("uplinkd"),
      log,
      clock: systemClock,
    },
    { controlSocket },
  );
  const controller = new AbortController();
  const running = uplinkd.run({ signal: controller.signal });
  const stop = async (): Promise<void> => {
    controller.abort();
    await running;
  };
  t.after(async () => {
    await stop();
    await monitors[Symbol.asyncDispose]();
    nft[Symbol.dispose]();
    await bed[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });
  /** Waits until something is so; fails when it takes longer than a reaction may. */
  const soon = async (what: () => boolean, atMostMs = REACTION_MS): Promise<void> => {
    const isSo = await poll(what, { until: (seen) => seen, everyMs: 5, deadlineMs: atMostMs, clock: systemClock });
    assert.ok(isSo, `not so within ${atMostMs} ms: ${what} in\n${state()}`);
  };
  const uplink = (name: string): Uplink => {
    const found = uplinkd.uplinks.find((one) => one.name === name);
    assert.ok(found !== undefined, `${name} is not among the uplinks`);
    return found;
  };
  const rules = (): string => bed.run("ip", "rule") + bed.run("ip", "-6", "rule");
  const routes = (table: number): string => bed.run("sh", "-c", `ip route show table ${table} 2>/dev/null || true`);
  const state = (): string => `${rules()}\n${JSON.stringify(uplinkd.snapshots.current.uplinks)}`;
  await soon(() => uplinkd.uplinks.length === 2, 5000);
  return { bed, uplinkd, uplink, rules, routes, soon, lines, write, path, stop, controlSocket, health, config };
}

const eth = (bed: Bed, name: string): number => bed.stack.links.get({ name })?.index ?? 0;

test("Uplinkd: the first pass programs the kernel, shows the uplinks with their tables, and the next finds nothing to do", async (t) => {
  const { bed, uplinkd, uplink, health, lines } = await setUp(t);
  const { current } = uplinkd.snapshots;
  assert.ok(current.ready);
  assert.equal(current.maxCost, 1);
  assert.deepEqual(
    current.uplinks.map(({ name, table, isUp, status }) => [name, table, isUp, status.lastError]),
    [
      ["eth0", 500 + eth(bed, "eth0"), true, ""],
      ["eth1", 500 + eth(bed, "eth1"), true, ""],
    ],
  );
  assert.deepEqual(
    uplink("eth0").addresses.map(({ address, isUsable }) => [String(address), isUsable]),
    [
      ["192.0.2.10", true],
      ["2001:db8:1::10", true],
    ],
  );
  assert.ok(current.localAddresses.some((address) => String(address) === "10.42.0.1"));
  await poll(() => health.parts[0]?.reason, {
    until: (reason) => reason === "0 changes",
    everyMs: 5,
    deadlineMs: 2000,
    clock: systemClock,
  });
  assert.equal(health.parts[0]?.reason, "0 changes");
  assert.deepEqual(
    lines.filter(({ level }) => level === "warn" || level === "error"),
    [],
  );
});

test("Uplinkd: a link that goes down fails at once and its packets go nowhere; up again, all is back within a second", async (t) => {
  const { bed, uplink, soon, routes, lines } = await setUp(t);
  const eth0 = eth(bed, "eth0");
  const whole = routes(500 + eth0);
  bed.stack.links.set(eth0, { up: false });
  await soon(() => uplink("eth0").status.lastError === "link down");
  assert.ok(hasError(uplink("eth0").status) && !uplink("eth0").isUp);
  assert.throws(() => bed.run("sh", "-c", "ip route get 203.0.113.80 from 192.0.2.10 2>&1"));
  bed.stack.links.set(eth0, { up: true });
  await soon(() => routes(500 + eth0) === whole && !hasError(uplink("eth0").status));
  const told = lines
    .filter(({ uplink: name }) => name === "eth0")
    .map(({ from, to, evidence }) => [from, to, evidence]);
  // Down takes the IPv6 addresses along; the IPv4 one is enough.
  assert.deepEqual(told[0], ["ok", "failed", "link down"]);
  assert.deepEqual(told.at(-1), ["failed", "ok", "local conditions"]);
});

test("Uplinkd: an address that goes, comes, and moves to the other uplink is followed within a second", async (t) => {
  const { bed, uplink, soon, rules } = await setUp(t, {}, "observe");
  const [eth0, eth1] = [eth(bed, "eth0"), eth(bed, "eth1")];
  const has = (name: string, address: string): boolean =>
    uplink(name).addresses.some((own) => own.isUsable && String(own.address) === address);
  bed.stack.addresses.add({ linkIndex: eth0, address: ip("192.0.2.77"), prefixLength: 24 });
  await soon(() => has("eth0", "192.0.2.77") && rules().includes(`from 192.0.2.77 lookup ${500 + eth0}`));
  bed.stack.addresses.delete({ linkIndex: eth0, address: ip("192.0.2.77"), prefixLength: 24 });
  await soon(() => !has("eth0", "192.0.2.77") && !rules().includes("192.0.2.77"));
  bed.stack.addresses.add({ linkIndex: eth1, address: ip("192.0.2.77"), prefixLength: 24 });
  await soon(() => has("eth1", "192.0.2.77") && rules().includes(`from 192.0.2.77 lookup ${500 + eth1}`));
  for (const { address, prefixLength } of bed.stack.addresses.list({ linkIndex: eth0 })) {
    bed.stack.addresses.delete({ linkIndex: eth0, address, prefixLength });
  }
  await soon(() => uplink("eth0").status.lastError === "no usable address");
});

test("Uplinkd: a removed default route of the main table is noticed; deleted rules and routes come back", async (t) => {
  const { bed, uplink, soon, rules, routes } = await setUp(t, {}, "observe");
  const eth0 = eth(bed, "eth0");
  bed.run("ip", "rule", "del", "from", "192.0.2.10");
  await soon(() => rules().includes(`from 192.0.2.10 lookup ${500 + eth0}`));
  bed.run("ip", "-6", "rule", "del", "from", "2001:db8:1::10");
  await soon(() => rules().includes(`from 2001:db8:1::10 lookup ${500 + eth0}`));
  bed.run("ip", "route", "flush", "table", String(500 + eth0));
  await soon(() => routes(500 + eth0).includes("default via 192.0.2.1"));
  bed.run("ip", "route", "del", "default", "via", "192.0.2.1");
  bed.run("ip", "-6", "route", "del", "default", "via", "2001:db8:1::1");
  await soon(() => uplink("eth0").status.lastError === "no default route");
  assert.equal(uplink("eth0").gateway4, undefined);
});

test("Uplinkd: what systemd-networkd removes when it reloads is back within a second", async (t) => {
  const { bed, soon, rules } = await setUp(t);
  const all = (): string =>
    rules() + bed.run("ip", "route", "show", "table", "all") + bed.run("ip", "-6", "route", "show", "table", "all");
  const before = all();
  const removed = reloadAsNetworkd(bed.stack, ({ table }) => table === 254);
  assert.ok(removed.rules > 0 && removed.routes > 0, JSON.stringify(removed));
  assert.notEqual(all(), before);
  await soon(() => all() === before);
});

test("Uplinkd: an interface that is unplugged and plugged in again gets a table of its new index", async (t) => {
  const { bed, uplink, soon, rules } = await setUp(t);
  const old = eth(bed, "eth1");
  bed.stack.links.delete(old);
  await soon(() => uplink("eth1").table === undefined && !rules().includes("198.51.100.10"));
  assert.equal(uplink("eth1").status.lastError, "link down");
  const link = bed.stack.links.create({ kind: "bridge", name: "eth1", up: true });
  bed.stack.addresses.add({ linkIndex: link.index, address: ip("198.51.100.10"), prefixLength: 24 });
  await soon(() => rules().includes(`from 198.51.100.10 lookup ${500 + link.index}`));
  assert.equal(uplink("eth1").table, 500 + link.index);
});

test("Uplinkd: ports are closed on uplinks; the pods' address comes with its bridge and goes with its listener", async (t) => {
  const { bed, uplinkd, soon, write } = await setUp(t, {
    listeners: [{ role: "host" }, { role: "pod", interface: "cni7" }],
  });
  assert.match(
    bed.run("nft", "list", "table", "inet", "uplink_guard"),
    /iifname "eth1" tcp dport 5443 drop comment "Block mgmtproxy port on eth1"/,
  );
  bed.stack.links.create({ kind: "bridge", name: "cni7", up: true });
  await soon(() => bed.run("ip", "address", "show", "dev", "cni7").includes("169.254.100.1/32"));
  bed.stack.links.delete(eth(bed, "cni7"));
  bed.stack.links.create({ kind: "bridge", name: "cni7", up: true });
  await soon(() => bed.run("ip", "address", "show", "dev", "cni7").includes("169.254.100.1/32"));
  write({ listeners: [{ role: "host" }] });
  await soon(() => !bed.run("ip", "address", "show", "dev", "cni7").includes("169.254.100.1"));
  // An address that somebody else has put there is theirs.
  bed.run("ip", "address", "add", "169.254.100.1/32", "dev", "cni7");
  write({ listeners: [{ role: "host" }, { role: "pod", interface: "cni7" }], maxCost: 3 });
  await soon(() => uplinkd.snapshots.current.maxCost === 3);
  write({ listeners: [{ role: "host" }], maxCost: 4 });
  await soon(() => uplinkd.snapshots.current.maxCost === 4);
  assert.match(bed.run("ip", "address", "show", "dev", "cni7"), /169\.254\.100\.1\/32/);
});

test("Uplinkd: a changed file is applied, a wrong one is reported and changes nothing, and new numbers leave nothing of the old", async (t) => {
  const { bed, uplinkd, soon, rules, write, path } = await setUp(t);
  write({ maxCost: 7, routing: { tableBase: 3000 } });
  await soon(
    () => uplinkd.snapshots.current.maxCost === 7 && rules().includes(`lookup ${3000 + eth(bed, "eth0")}`),
    3000,
  );
  await soon(() => !rules().includes(`lookup ${500 + eth(bed, "eth0")}`));
  writeFileSync(path, "{ maxCost: 9, uplinks: [");
  await soon(() => uplinkd.configError !== undefined, 3000);
  assert.equal(uplinkd.snapshots.current.maxCost, 7);
  assert.equal(uplinkd.uplinks.length, 2);
  write({ maxCost: 8 });
  await soon(() => uplinkd.configError === undefined && uplinkd.snapshots.current.maxCost === 8, 3000);
});

test("Uplinkd: nothing is removed when it ends, unless the settings say so, and a flush removes everything", async (t) => {
  const { bed, uplinkd, stop, rules, write, path, soon } = await setUp(t);
  const before = rules();
  await stop();
  assert.equal(rules(), before);
  assert.ok(uplinkd.flush() > 0);
  assert.equal(uplinkd.flush(), 0);
  assert.ok(!/15000:|13000:/.test(rules()));
  assert.deepEqual(bed.run("nft", "list", "tables"), "");
  write({ routing: { cleanupOnExit: true } });
  using nft = openNft(bed.netns);
  const again = new Uplinkd({
    config: new SettingsFile({ clock: systemClock, log: nullLogger }, { path }),
    stack: bed.stack,
    nft,
    follow: () => ({ [Symbol.asyncDispose]: async () => undefined }),
    health: new Health().part("uplinkd"),
    clock: systemClock,
    log: nullLogger,
  });
  const controller = new AbortController();
  const running = again.run({ signal: controller.signal });
  await soon(() => rules().includes("15000:"));
  controller.abort();
  await running;
  assert.ok(!rules().includes("15000:"));
});

test("Uplinkd: the control socket lists uplinks and takes the reports of agents", async (t) => {
  const { uplink, controlSocket, soon } = await setUp(t);
  const ask = async (method: string, path: string, body?: string): Promise<{ status: number; body: string }> => {
    // A connection of its own: the one that the agent keeps ends when the socket is made again.
    const sent = request({ socketPath: controlSocket, method, path, agent: false });
    sent.end(body);
    const [response] = await once(sent, "response");
    return { status: response.statusCode, body: await text(response) };
  };
  const list = JSON.parse((await ask("GET", "/v1/uplinks")).body);
  assert.deepEqual(
    list.uplinks.map((one: { name: string; cost: number }) => [one.name, one.cost]),
    [
      ["eth0", 0],
      ["eth1", 1],
    ],
  );
  const failed = { lastFailed: "2026-06-01T10:00:00Z", lastSucceeded: null, lastError: "the agent says so" };
  assert.equal((await ask("PUT", "/v1/uplinks/eth0/status", JSON.stringify(failed))).status, 204);
  await soon(() => uplink("eth0").status.lastError === "the agent says so");
  assert.ok(hasError(uplink("eth0").status));
  assert.equal((await ask("PUT", "/v1/uplinks/eth9/status", JSON.stringify(failed))).status, 404);
  rmSync(controlSocket);
  await soon(() => existsSync(controlSocket));
  assert.equal((await ask("GET", "/v1/uplinks")).status, 200);
});

test("Uplinkd: killed at any moment and started again, the kernel is as before and foreign objects are untouched", async (t) => {
  const { bed, stop, path, soon, uplinkd } = await setUp(t, {}, "observe");
  bed.run("ip", "rule", "add", "to", "10.42.0.0/16", "lookup", "700", "priority", "13000");
  bed.run("ip", "route", "add", "10.78.0.0/16", "via", "192.0.2.7", "proto", "186", "table", "1001");
  const listing = (...args: readonly string[]): string =>
    bed
      .run("ip", ...args)
      .split("\n")
      .filter((line) => !line.includes(" table local "))
      .sort()
      .join("\n");
  const everything = (): string =>
    [
      listing("rule"),
      listing("-6", "rule"),
      listing("route", "show", "table", "all"),
      listing("-6", "route", "show", "table", "all"),
    ].join("\n");
  await soon(() => everything().includes("10.78.0.0/16"));
  const whole = everything();
  const guard = bed.run("nft", "list", "ruleset");
  await stop();
  const [file, args] = bed.inside(...SOURCE_NODE, DAEMON, path);
  for (let round = 0; round < 8; round += 1) {
    // Half of the rounds start from nothing.
    if (round % 2 === 0) uplinkd.flush();
    const start = everything();
    const child = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    const isLast = round === 7;
    // At the first sign of its work, or some time after its start; the last one finishes its first pass.
    const deadlineMs = round % 2 === 0 ? 10_000 : 150 * round;
    if (isLast) await once(child.stdout, "data");
    else
      await poll(() => everything() !== start, {
        until: (changed) => changed,
        everyMs: 1,
        deadlineMs,
        clock: systemClock,
      });
    child.kill("SIGKILL");
    await once(child, "exit");
  }
  assert.equal(everything(), whole);
  assert.equal(bed.run("nft", "list", "ruleset"), guard);
});

test("Uplinkd: a storm of route events is coalesced, and a relevant one in it is not missed", async (t) => {
  const { bed, soon, routes, health } = await setUp(t, {}, "observe");
  const eth0 = eth(bed, "eth0");
  const count = 2000;
  const dst = (at: number): Cidr => Cidr.of(IpAddress.parse("10.96.0.0").plus(at * 256), 24);
  for (let at = 0; at < count; at += 1) bed.stack.routes.add({ dst: dst(at), gateway: ip("192.0.2.7") });
  await soon(() => routes(500 + eth0).split("\n").length > count, 5000);
  for (let at = 0; at < count; at += 1) bed.stack.routes.delete({ dst: dst(at) });
  await soon(() => routes(500 + eth0).split("\n").length < 6, 5000);
  assert.equal(health.parts[0]?.status, "ok");
});

test("Uplinkd: one that only reads shows the same uplinks and changes nothing", async (t) => {
  const { bed, uplinkd, path } = await setUp(t);
  const before = bed.run("ip", "rule") + bed.run("nft", "list", "ruleset");
  using nft = openNft(bed.netns);
  const reader = new Uplinkd(
    {
      config: new SettingsFile({ clock: systemClock, log: nullLogger }, { path }),
      stack: bed.stack,
      nft,
      follow: () => ({ [Symbol.asyncDispose]: async () => undefined }),
      health: new Health().part("uplinkd"),
      clock: systemClock,
      log: nullLogger,
    },
    { readOnly: true },
  );
  const controller = new AbortController();
  const running = reader.run({ signal: controller.signal });
  await poll(() => reader.uplinks.length, {
    until: (length) => length === 2,
    everyMs: 5,
    deadlineMs: 2000,
    clock: systemClock,
  });
  controller.abort();
  await running;
  const shape = ({ uplinks }: Uplinkd) =>
    uplinks.map(({ name, table, isUp, addresses }) => [name, table, isUp, addresses.length]);
  assert.deepEqual(shape(reader), shape(uplinkd));
  assert.equal(bed.run("ip", "rule") + bed.run("nft", "list", "ruleset"), before);
});

test("Uplinkd: probes go out over the uplink they are for; one above the maximum cost carries no packet, whatever fails", async (t) => {
  const probe = {
    intervalMs: 1000,
    timeoutMs: 200,
    targets: [
      { type: "tcp", host: "203.0.113.80", port: 80 },
      { type: "dns", name: "registry.example" },
      { type: "http", url: "http://v6.example/" },
    ],
  };
  const { bed, path, stop } = await setUp(t, { maxCost: 0, probe: { targets: [] } });
  await stop();
  const uplinks = bed.uplinkEntries;
  writeFileSync(path, JSON.stringify({ version: 1, maxCost: 0, uplinks, probe }));
  bed.wan0.serveWeb();
  const [file, args] = bed.inside(...SOURCE_NODE, DAEMON, path);
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const hears = async (what: RegExp): Promise<void> => {
    await poll(() => said, { until: (all) => what.test(all), everyMs: 20, deadlineMs: 15_000, clock: systemClock });
    assert.match(said, what);
  };
  await poll(() => bed.wan0.packets, {
    until: (packets) => packets > 5,
    everyMs: 20,
    deadlineMs: 10_000,
    clock: systemClock,
  });
  assert.ok(bed.wan0.packets > 5, "the free one is probed");
  bed.wan0.break("silent");
  await hears(/\["eth0","probe: [^"]*: timeout"\],\["eth1",""\]/);
  said = "";
  bed.wan0.heal();
  await hears(/\["eth0",""\],\["eth1",""\]/);
  bed.stack.links.set(eth(bed, "eth0"), { up: false });
  await hears(/\["eth0","link down"\],\["eth1",""\]/);
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.equal(bed.wan1.packets, 0);
});

test("Uplinkd: a deprecated address is no source and keeps its rule; one that is tentative becomes one when it may be used", async (t) => {
  const { bed, uplink, soon, rules } = await setUp(t, {}, "observe");
  const isUsable = (address: string): boolean | undefined =>
    uplink("eth0").addresses.find((own) => String(own.address) === address)?.isUsable;
  bed.run("ip", "-6", "address", "add", "2001:db8:1::dead/64", "dev", "eth0", "preferred_lft", "0", "nodad");
  await soon(() => isUsable("2001:db8:1::dead") === false && rules().includes("from 2001:db8:1::dead lookup"));
  for (const name of ["all", "eth0"]) bed.stack.sysctl.set(`net.ipv6.conf.${name}.accept_dad`, 1);
  bed.run("ip", "-6", "address", "add", "2001:db8:1::7e/64", "dev", "eth0");
  await soon(() => isUsable("2001:db8:1::7e") === false);
  await soon(() => isUsable("2001:db8:1::7e") === true, 5000);
});

test("Uplinkd: one that starts with a wrong file, or whose control socket is in use, leaves the kernel alone and waits", async (t) => {
  const { bed, stop, path, rules, write, controlSocket } = await setUp(t);
  await stop();
  const before = rules();
  writeFileSync(path, "version: 1\nuplink: []\n");
  const taken = createServer().listen(controlSocket);
  await once(taken, "listening");
  t.after(() => taken.close());
  using nft = openNft(bed.netns);
  const again = new Uplinkd(
    {
      config: new SettingsFile({ clock: systemClock, log: nullLogger }, { path }),
      stack: bed.stack,
      nft,
      follow: () => ({ [Symbol.asyncDispose]: async () => undefined }),
      health: new Health().part("uplinkd"),
      clock: systemClock,
      log: nullLogger,
    },
    { controlSocket },
  );
  const controller = new AbortController();
  const running = again.run({ signal: controller.signal });
  const sees = async (what: () => boolean): Promise<void> => {
    assert.ok(
      await poll(what, { until: (seen) => seen, everyMs: 5, deadlineMs: 3000, clock: systemClock }),
      String(what),
    );
  };
  await sees(() => again.snapshots.current.localAddresses.length > 0);
  assert.ok(!again.snapshots.current.ready);
  assert.match(again.configError ?? "", /uplink: is not a known key/);
  assert.equal(rules(), before);
  write({ maxCost: 3 });
  await sees(() => again.snapshots.current.ready && again.snapshots.current.maxCost === 3);
  assert.equal(rules(), before);
  controller.abort();
  await running;
});
