import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { type Logger, nullLogger } from "#base/log";
import { RateLimitedLog } from "./rate-limited-log.ts";

test("RateLimitedLog: ten thousand refusals are five lines, and the next line has the number of suppressed ones", async () => {
  const clock = new FakeClock();
  const lines: unknown[] = [];
  const write = (message: string, fields?: object): void => void lines.push([message, fields]);
  const log: Logger = { ...nullLogger, warn: write, info: write };
  const refusals = new RateLimitedLog({ clock, log });
  for (let at = 0; at < 10_000; at += 1) refusals.warn("no", { at });
  assert.deepEqual(
    lines,
    Array.from({ length: 5 }, (_, at) => ["no", { at }]),
  );
  await clock.advance(1000);
  refusals.warn("no", { at: "later" });
  assert.deepEqual(lines[5], ["no", { at: "later", suppressed: 9995 }]);
  await clock.advance(1000);
  refusals.warn("no", { at: "last" });
  assert.deepEqual(lines[6], ["no", { at: "last" }]);
  refusals.info("changed", {});
  assert.equal(lines.length, 7, "one limit for both levels");
  await clock.advance(1000);
  refusals.info("changed", {});
  assert.deepEqual(lines[7], ["changed", { suppressed: 1 }]);
});
