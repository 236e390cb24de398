import assert from "node:assert/strict";
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import type { UplinkStatus } from "#base/uplink-model";
import { followStatus, publishStatus, type StatusReport } from "./status-report.ts";

const OK: UplinkStatus = { lastError: "", lastWarning: "" };
const failed = (lastError: string): UplinkStatus => ({ lastFailed: 5, lastError, lastWarning: "" });

test("status report: what one process learns of uplinks the other is reported, each change once; a dead one's tells nothing", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-status-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "uplink-proxy", "reach.json");
  const clock = new FakeClock(Date.now());
  const changed = new Dirty(clock);
  const controller = new AbortController();
  const { signal } = controller;
  let report: StatusReport = { lan: OK, lte: OK };
  const reported: string[] = [];
  const tell = (text: string): boolean => reported.push(text) > 0;
  const deps = { clock, log: nullLogger };
  const running = [
    publishStatus({ ...deps, changed, report: () => report }, { path, signal }),
    followStatus(
      {
        ...deps,
        reportStatus: (name, { lastError, isPortal }) =>
          tell(`${name} ${lastError}${isPortal === true ? " portal" : ""}`),
        withdrawStatus: () => true,
      },
      { path, signal },
    ),
  ];
  const set = async (next: StatusReport): Promise<void> => {
    report = next;
    changed.mark("test");
    await clock.advance(1000);
  };
  await clock.advance(6000);
  assert.deepEqual(reported, []);
  await set({ lan: failed("probe: a: timeout"), lte: OK });
  await set({ lan: failed("probe: a: timeout"), lte: failed("dial: b") });
  await clock.advance(6000);
  await set({ lan: { ...OK, lastSucceeded: 9, lastFailed: 5 }, lte: failed("dial: b") });
  await set({ lan: { ...failed("captive portal: a"), isPortal: true }, lte: failed("dial: b") });
  assert.deepEqual(reported, ["lan probe: a: timeout", "lte dial: b", "lan ", "lan captive portal: a portal"]);
  controller.abort();
  await Promise.allSettled(running);
  // Left by a process that is gone.
  writeFileSync(path, JSON.stringify({ lan: failed("long ago") }));
  utimesSync(path, 1000, 1000);
  const late = new AbortController();
  const following = followStatus({ ...deps, reportStatus: tell, withdrawStatus: tell }, { path, signal: late.signal });
  for (const text of ["", "{", '{"lan":7}']) {
    await clock.advance(1000);
    writeFileSync(path, text);
  }
  await clock.advance(1000);
  assert.equal(reported.length, 4);
  late.abort();
  await Promise.allSettled([following]);
});

test("status report: a failure is withdrawn when its process has written nothing for 20 s, whatever the wall clock does, and told again by the next", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-status-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "reach.json");
  const clock = new FakeClock(Date.now());
  const controller = new AbortController();
  const { signal } = controller;
  const seen: string[] = [];
  const following = followStatus(
    {
      clock,
      log: nullLogger,
      reportStatus: (name, { lastError }) => seen.push(`${name} ${lastError}`) > 0,
      // Of an external uplink the report stays.
      withdrawStatus: (name) => seen.push(`${name} withdrawn`) > 0 && name !== "ext",
    },
    { path, signal },
  );
  const write = (report: StatusReport): void => {
    writeFileSync(path, JSON.stringify(report));
    utimesSync(path, clock.now() / 1000, clock.now() / 1000);
  };
  const told = (): string[] => seen.splice(0);
  const failing = { lan: failed("probe: a"), ext: failed("agent"), lte: OK };
  for (let beat = 0; beat < 12; beat += 1) {
    if (beat === 6) clock.jumpWall(3_600_000);
    write(failing);
    await clock.advance(5000);
  }
  assert.deepEqual(told(), ["lan probe: a", "ext agent"]);
  await clock.advance(14_000);
  clock.jumpWall(-3_600_000);
  assert.deepEqual(told(), []);
  await clock.advance(2000);
  assert.deepEqual(told(), ["lan withdrawn", "ext withdrawn"]);
  await clock.advance(60_000);
  assert.deepEqual(told(), [], "once");
  write(failing);
  await clock.advance(1000);
  assert.deepEqual(told(), ["lan probe: a"]);
  write({ lan: OK, ext: OK, lte: OK });
  await clock.advance(1000);
  assert.deepEqual(told(), ["lan ", "ext "]);
  write(failing);
  await clock.advance(1000);
  // A process that has just been started again knows no uplink yet.
  write({});
  await clock.advance(1000);
  write({ lan: OK, ext: OK });
  await clock.advance(1000);
  assert.deepEqual(told(), ["lan probe: a", "ext agent", "ext withdrawn", "lan withdrawn", "ext "]);
  write(failing);
  await clock.advance(1000);
  rmSync(path);
  await clock.advance(18_000);
  assert.deepEqual(told(), ["lan probe: a", "ext agent"]);
  await clock.advance(2000);
  assert.deepEqual(
    told(),
    ["ext withdrawn", "lan withdrawn"],
    "a file that is gone is as old as when it was seen last",
  );
  controller.abort();
  await Promise.allSettled([following]);
});
