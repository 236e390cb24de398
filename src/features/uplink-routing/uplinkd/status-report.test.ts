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
    followStatus({ ...deps, reportStatus: (name, { lastError }) => tell(`${name} ${lastError}`) }, { path, signal }),
  ];
  const set = async (next: StatusReport): Promise<void> => {
    report = next;
    changed.mark();
    await clock.advance(1000);
  };
  await clock.advance(6000);
  assert.deepEqual(reported, []);
  await set({ lan: failed("probe: a: timeout"), lte: OK });
  await set({ lan: failed("probe: a: timeout"), lte: failed("dial: b") });
  await clock.advance(6000);
  await set({ lan: { ...OK, lastSucceeded: 9, lastFailed: 5 }, lte: failed("dial: b") });
  assert.deepEqual(reported, ["lan probe: a: timeout", "lte dial: b", "lan "]);
  controller.abort();
  await Promise.allSettled(running);
  // Left by a process that is gone.
  writeFileSync(path, JSON.stringify({ lan: failed("long ago") }));
  utimesSync(path, 1000, 1000);
  const late = new AbortController();
  const following = followStatus({ ...deps, reportStatus: tell }, { path, signal: late.signal });
  for (const text of ["", "{", '{"lan":7}']) {
    await clock.advance(1000);
    writeFileSync(path, text);
  }
  await clock.advance(1000);
  assert.equal(reported.length, 3);
  late.abort();
  await Promise.allSettled([following]);
});
