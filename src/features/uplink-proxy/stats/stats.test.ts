import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { createLogger, nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { character } from "#test/characters";
import type { AttemptFailure } from "../select/index.ts";
import { hostListener, snapshotOf, uplink } from "../testing/proxy-fixtures.ts";
import {
  Counters,
  type HealthInput,
  healthReport,
  LogLines,
  MetricsFile,
  MetricsMap,
  printable,
  statsText,
  Traffic,
  uplinkProxyMetrics,
} from "./index.ts";

const AT = Date.UTC(2026, 5, 1, 10, 0, 0, 500);
const T = "registry.example:443";

function failure(ifName: string): AttemptFailure {
  return { uplink: ifName, ifName, cost: 0, source: "192.0.2.10", failure: "refused", text: "connection refused" };
}

/** Counters after one fallback, one complete failure and one not ready. */
function someCounters(clock: FakeClock): Counters {
  const counters = new Counters(clock);
  for (let at = 0; at < 3; at += 1) counters.record({ kind: "request", count: 1 });
  counters.record({ kind: "connected", target: T, ifName: "eth1", cost: 0, failures: [failure("eth0")], count: 1 });
  counters.record({ kind: "bytes", ifName: "eth1", up: 900, down: 123_456 });
  counters.record({
    kind: "closed",
    target: T,
    ifName: "eth1",
    up: 900,
    down: 123_456,
    durationMs: 830.4,
    reason: "idle",
    isBlackholed: false,
    count: 1,
  });
  counters.record({
    kind: "failed",
    target: "b:443",
    isNotReady: false,
    summary: "all attempts",
    failures: [failure("eth0"), failure("eth1")],
  });
  counters.record({ kind: "failed", target: "c:443", isNotReady: true, summary: "not known yet", failures: [] });
  return counters;
}

const healthInput = (clock: FakeClock, counters: Counters, fields: Partial<HealthInput> = {}): HealthInput => ({
  clock,
  counters,
  snapshot: snapshotOf([]),
  penalties: [],
  listeners: [hostListener(5443), hostListener(5443, { name: "pods", role: "pod" })],
  bound: new Set(["host"]),
  version: "1.2",
  startedAt: 0,
  staleDnsAnswers: 0,
  more: {},
  ...fields,
});

test("Counters: successes, failures of each attempt, fallbacks, and the last of each", () => {
  const counters = someCounters(new FakeClock(AT));
  assert.deepEqual(Object.fromEntries(counters.successByPort), { eth1: 1 });
  assert.deepEqual(Object.fromEntries(counters.failureByPort), { eth0: 2, eth1: 1 });
  assert.deepEqual(Object.fromEntries(counters.fallbackByPort), { eth1: 1 });
  assert.deepEqual(
    [counters.requests, counters.dialFailures, counters.notReady, counters.tunnelIdleClosed],
    [3, 2, 1, 1],
  );
  assert.deepEqual([counters.activeTunnels, counters.tunnelsByPort.size], [0, 0]);
});

test("Counters: a tunnel that goes on over another uplink counts where it is", () => {
  const counters = new Counters(new FakeClock());
  counters.record({ kind: "connected", target: T, ifName: "eth0", cost: 0, failures: [], count: 1 });
  counters.record({ kind: "blackhole", target: T, ifName: "eth0" });
  counters.record({ kind: "replayed", target: T, from: "eth0", to: "eth1" });
  assert.deepEqual(Object.fromEntries(counters.tunnelsByPort), { eth1: 1 });
  assert.deepEqual(Object.fromEntries(counters.fallbackByPort), { eth1: 1 });
  assert.deepEqual(Object.fromEntries(counters.failureByPort), { eth0: 1 });
  counters.record({
    kind: "closed",
    target: T,
    ifName: "eth1",
    up: 1,
    down: 1,
    durationMs: 1,
    reason: "eof",
    isBlackholed: false,
    count: 1,
  });
  assert.equal(counters.tunnelsByPort.size, 0);
});

test("Counters: a tunnel that was blackholed is a failure, and no success, however it ended", () => {
  for (const reason of ["blackhole", "idle", "reset"] as const) {
    const counters = new Counters(new FakeClock());
    counters.record({ kind: "connected", target: T, ifName: "eth0", cost: 0, failures: [], count: 1 });
    counters.record({ kind: "blackhole", target: T, ifName: "eth0" });
    const tunnel = { target: T, ifName: "eth0", up: 517, down: 0, durationMs: 5500, reason, count: 1 };
    counters.record({ kind: "closed", ...tunnel, isBlackholed: true });
    const { SuccessCount, LastSuccess, FailureCount, URLCounters } = counters.map.document().eth0 ?? assert.fail();
    assert.deepEqual([SuccessCount, LastSuccess, FailureCount], [0, "0001-01-01T00:00:00Z", 1]);
    const { TryMsgCount, SentMsgCount, RecvMsgCount } = URLCounters[T] ?? assert.fail();
    assert.deepEqual([TryMsgCount, SentMsgCount, RecvMsgCount], [1, 0, 0]);
    assert.deepEqual([counters.activeTunnels, counters.tunnelsByPort.size], [0, 0]);
  }
});

test("Counters: tunnels that are reported together count as often as they are", () => {
  const counters = new Counters(new FakeClock());
  counters.record({ kind: "connected", target: T, ifName: "eth0", cost: 0, failures: [], count: 5 });
  counters.record({
    kind: "closed",
    target: T,
    ifName: "eth0",
    up: 9,
    down: 8,
    durationMs: 7,
    reason: "idle",
    isBlackholed: false,
    count: 3,
  });
  assert.deepEqual([counters.activeTunnels, counters.tunnelIdleClosed], [2, 3]);
  assert.deepEqual(Object.fromEntries(counters.tunnelsByPort), { eth0: 2 });
  assert.deepEqual(Object.fromEntries(counters.successByPort), { eth0: 5 });
  const { SuccessCount, URLCounters } = counters.map.document().eth0 ?? assert.fail();
  const { SentMsgCount, SentByteCount, RecvMsgCount, RecvByteCount, TotalTimeSpent } = URLCounters[T] ?? assert.fail();
  assert.deepEqual(
    [SuccessCount, SentMsgCount, SentByteCount, RecvMsgCount, RecvByteCount, TotalTimeSpent],
    [3, 3, 9, 3, 8, 7],
  );
});

test("healthReport: before anything has happened all of EVE's keys are there, and maps and lists are empty", () => {
  const clock = new FakeClock(AT);
  const report = healthReport(healthInput(clock, new Counters(clock)));
  assert.deepEqual(
    [report.listening, report.cni0Listening, report.ready, report.maxPortCost, report.ports, report.requests],
    ["127.0.0.1:5443", false, true, 255, [], 0],
  );
  for (const key of ["dialFailures", "notReady", "tunnelIdleClosed", "bytesUp", "bytesDown"])
    assert.equal(report[key], 0, key);
  assert.deepEqual([report.successByPort, report.failureByPort, report.fallbackByPort], [{}, {}, {}]);
  for (const key of ["lastSuccessTime", "lastErrorTime", "lastError", "lastSuccessCost"])
    assert.ok(!(key in report), key);
});

test("healthReport: the last success has its cost also when that is 0; times are RFC 3339 in UTC", async () => {
  const clock = new FakeClock(AT);
  const counters = someCounters(clock);
  await clock.advance(65_000);
  const bound = new Set(["host", "pods"]);
  const penalties = [{ destination: T, uplink: "eth0", until: 95_000 }];
  const report = healthReport(healthInput(clock, counters, { bound, penalties, more: { configError: "x" } }));
  assert.deepEqual(
    [report.lastSuccessTime, report.lastSuccessTarget, report.lastSuccessPort, report.lastSuccessCost],
    ["2026-06-01T10:00:00Z", T, "eth1", 0],
  );
  assert.deepEqual([report.lastErrorTime, report.lastError], ["2026-06-01T10:00:00Z", "c:443: not known yet"]);
  assert.deepEqual([report.cni0Listening, report.uptimeSeconds, report.configError], [true, 65, "x"]);
  assert.deepEqual(report.penalties, [{ destination: T, uplink: "eth0", untilSeconds: 30 }]);
  assert.deepEqual([report.bytesUp, report.bytesDown], [900, 123_456]);
});

test("healthReport: ports are those for management, with link-local addresses counted but not usable", () => {
  const clock = new FakeClock();
  const snapshot = snapshotOf(
    [
      uplink("eth0", { sources: ["169.254.7.7", "192.0.2.10"] }),
      uplink("eth1", {
        cost: 9,
        sources: ["fe80::1"],
        status: { lastFailed: 2, lastSucceeded: 1, lastError: "link down", lastWarning: "" },
      }),
      uplink("eth2", { isManagement: false }),
    ],
    { maxCost: 1 },
  );
  const report = healthReport(healthInput(clock, new Counters(clock), { snapshot }));
  assert.deepEqual(report.ports, [
    { ifname: "eth0", cost: 0, isMgmt: true, numAddrs: 2, usableAddr: "192.0.2.10" },
    { ifname: "eth1", cost: 9, isMgmt: true, hasError: true, lastError: "link down", numAddrs: 1 },
  ]);
  assert.deepEqual(report.costExcluded, ["eth1"]);
});

test("MetricsMap: EVE's keys and zero times; at most 1,000 targets, the rest in one", () => {
  const map = new MetricsMap();
  map.attemptFailed("eth0", T, AT);
  map.tunnelsClosed("eth0", T, { up: 900, down: 123_456, durationMs: 829.6, count: 1 }, AT);
  map.attemptFailed("eth1", T, AT);
  assert.deepEqual(map.document(), {
    eth0: {
      FailureCount: 1,
      SuccessCount: 1,
      LastFailure: "2026-06-01T10:00:00Z",
      LastSuccess: "2026-06-01T10:00:00Z",
      AuthFailCount: 0,
      URLCounters: {
        [T]: {
          TryMsgCount: 1,
          TryByteCount: 0,
          SentMsgCount: 1,
          SentByteCount: 900,
          RecvMsgCount: 1,
          RecvByteCount: 123_456,
          TotalTimeSpent: 830,
          SessionResume: 0,
        },
      },
    },
    eth1: {
      FailureCount: 1,
      SuccessCount: 0,
      LastFailure: "2026-06-01T10:00:00Z",
      LastSuccess: "0001-01-01T00:00:00Z",
      AuthFailCount: 0,
      URLCounters: {
        [T]: {
          TryMsgCount: 1,
          TryByteCount: 0,
          SentMsgCount: 0,
          SentByteCount: 0,
          RecvMsgCount: 0,
          RecvByteCount: 0,
          TotalTimeSpent: 0,
          SessionResume: 0,
        },
      },
    },
  });
  for (let at = 0; at < 2500; at += 1) map.attemptFailed("eth0", `t${at}:443`, AT);
  map.attemptFailed("eth0", "t2400:443", AT);
  const targets = map.document()["eth0"]?.URLCounters ?? {};
  assert.equal(Object.keys(targets).length, 1001);
  const tries = Object.values(targets).reduce((sum, { TryMsgCount }) => sum + TryMsgCount, 0);
  assert.equal(tries, 2502);
  assert.ok("t2499:443" in targets && targets["_other"]?.TryMsgCount === 1501);
  // Who was last is so though it is asked for again and again; the one before it is the next to go when all others are newer.
  for (let at = 0; at < 3; at += 1) map.attemptFailed("eth0", "t2499:443", AT);
  for (let at = 0; at < 999; at += 1) map.attemptFailed("eth0", `u${at}:443`, AT);
  const later = map.document()["eth0"]?.URLCounters ?? {};
  assert.deepEqual(
    [later["t2499:443"]?.TryMsgCount, later["t2400:443"], later["t2498:443"]],
    [4, undefined, undefined],
  );
});

test("MetricsFile: written whole after 3 to 10 s when something has changed, once, and a full disk is no end", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "uplink-metrics-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const path = join(dir, "mgmtproxy/MetricsMap/global.json");
  const clock = new FakeClock();
  const map = new MetricsMap();
  const stop = new AbortController();
  const file = new MetricsFile({ clock, log: nullLogger, map, random: () => 0.5 }, { path });
  const done = file.run({ signal: stop.signal });
  await clock.advance(6499);
  assert.deepEqual(readdirSync(dir), []);
  await clock.advance(1);
  while (clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(JSON.parse(readFileSync(path, "utf8")), {});
  rmSync(path);
  await clock.advance(6500);
  while (clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(readdirSync(join(dir, "mgmtproxy/MetricsMap")), []);
  map.attemptFailed("eth0", T, AT);
  await file.flush();
  assert.ok(readFileSync(path, "utf8").includes('"eth0"'));
  stop.abort();
  await done;
  writeFileSync(join(dir, "file"), "");
  const lines: string[] = [];
  const log = createLogger({ name: "p", write: (line) => lines.push(line) });
  const broken = new MetricsFile({ clock, log, map }, { path: join(dir, "file/global.json") });
  await broken.flush();
  await broken.flush();
  assert.equal(lines.length, 1);
});

test("statsText: each interface with its targets, then the totals", () => {
  const counters = someCounters(new FakeClock(AT));
  assert.equal(
    statsText(counters.map.document()),
    [
      " - mgmtproxy stats",
      "",
      " interface: eth0",
      " Success: 0  Last Success: 0001-01-01T00:00:00Z",
      " Failure: 2  Last Failure: 2026-06-01T10:00:00Z",
      `  ${T}`,
      "   Recv (KBytes): 0, Sent 0, SentMsg: 0, TLS resume: 0, Total Time(sec): 0",
      "  b:443",
      "   Recv (KBytes): 0, Sent 0, SentMsg: 0, TLS resume: 0, Total Time(sec): 0",
      "",
      " interface: eth1",
      " Success: 1  Last Success: 2026-06-01T10:00:00Z",
      " Failure: 1  Last Failure: 2026-06-01T10:00:00Z",
      `  ${T}`,
      "   Recv (KBytes): 123.456, Sent 900, SentMsg: 1, TLS resume: 0, Total Time(sec): 0.83",
      "  b:443",
      "   Recv (KBytes): 0, Sent 0, SentMsg: 0, TLS resume: 0, Total Time(sec): 0",
      "",
      " Total Recv (KBytes): 123.456, Sent 900, SentMsg: 1",
      " Total Time(sec): 0.83",
      "",
    ].join("\n"),
  );
});

test("LogLines: word for word, without control bytes, and not more than ten failures of a target a second", async () => {
  const clock = new FakeClock();
  const said: string[] = [];
  const log = createLogger({
    name: "p",
    level: "debug",
    write: (line) => {
      const { level, msg } = JSON.parse(line) as { level: string; msg: string };
      said.push(`${level} ${msg}`);
    },
  });
  const lines = new LogLines(log, clock);
  lines.connected(() => ({
    target: T,
    client: "127.0.0.1:9",
    ifName: "eth0",
    source: "192.0.2.10",
    cost: 0,
    dialMs: 11.6,
    fallbacks: 1,
  }));
  lines.idle(30_000);
  lines.closed(T, "eth0", { up: 1, down: 2, durationMs: 3.2, reason: "idle" });
  lines.failed("a\u001b[2J\r\n:443", "127.0.0.1:9", 7.7, "x\ny");
  assert.deepEqual(said.splice(0), [
    `info mgmtproxy: CONNECT ${T} from 127.0.0.1:9 via eth0 src 192.0.2.10 cost 0 (dial 12ms, 1 fallback(s))`,
    "warn mgmtproxy: tunnel idle for 30s, closing",
    `debug mgmtproxy: tunnel ${T} via eth0 closed: up=1 down=2 duration=3ms idle=true reason=idle`,
    "warn mgmtproxy: CONNECT a?[2J??:443 from 127.0.0.1:9 FAILED after 8ms: x?y",
  ]);
  for (let at = 0; at < 25; at += 1) lines.failed(T, "c", 1, "x");
  lines.failed("other:443", "c", 1, "x");
  assert.equal(said.splice(0).length, 11);
  await clock.advance(100);
  lines.failed(T, "c", 1, "x");
  assert.match(said.join(), /: x \(15 more like this\)$/);
});

test("printable: whatever is logged stays one line that does nothing to a terminal (property)", () => {
  fc.assert(
    fc.property(fc.string({ unit: character }), (text) => {
      assert.doesNotMatch(printable(text), /[\p{Cc}\u2028\u2029]/u);
      assert.equal(printable(text).length, text.length);
    }),
  );
});

test("Traffic: bytes since the last flush are reported once", () => {
  const traffic = new Traffic();
  const reported: unknown[] = [];
  traffic.of("eth0").down += 5;
  traffic.of("eth1");
  traffic.flush((event) => reported.push(event));
  traffic.of("eth0").up += 1;
  traffic.flush((event) => reported.push(event));
  traffic.flush((event) => reported.push(event));
  assert.deepEqual(reported, [
    { kind: "bytes", ifName: "eth0", up: 0, down: 5 },
    { kind: "bytes", ifName: "eth0", up: 1, down: 0 },
  ]);
});

test("uplinkProxyMetrics: counters as they are when they are scraped", async () => {
  const clock = new FakeClock();
  const registry = createRegistry();
  const counters = someCounters(clock);
  const penalties = () => [{ destination: T, uplink: "eth0", until: 1 }];
  uplinkProxyMetrics(registry).observe({ counters, snapshot: () => snapshotOf([uplink("eth0")]), penalties });
  const text = await registry.metrics();
  for (const line of [
    "uplink_proxy_requests_total 3",
    'uplink_proxy_attempt_failures_total{interface="eth0"} 2',
    'uplink_proxy_received_bytes_total{interface="eth1"} 123456',
    'uplink_proxy_uplink_failed{uplink="eth0"} 0',
    'uplink_proxy_penalties{uplink="eth0"} 1',
  ]) {
    assert.ok(text.split("\n").includes(line), line);
  }
  counters.record({ kind: "request", count: 1 });
  assert.match(await registry.metrics(), /^uplink_proxy_requests_total 4$/m);
});
