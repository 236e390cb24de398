import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { Registry } from "prom-client";
import { FakeClock } from "#base/clock";
import { readMetrics, sumMetrics } from "./index.ts";
import { LoopDelay, loopDelayMetrics } from "./loop-delay.ts";

test("LoopDelay: an idle minute has sixty samples, and a delay is kept until it is read", async () => {
  const clock = new FakeClock();
  let looks = 0;
  const counting = {
    now: () => clock.now(),
    monotonic: () => clock.monotonic(),
    after: (delayMs: number, callback: () => void): (() => void) => {
      looks += 1;
      return clock.after(looks === 10 ? delayMs + 300 : delayMs, callback);
    },
  };
  const delay = new LoopDelay(counting);
  await clock.advance(60_299);
  assert.equal(looks, 60);
  const { max, p50, min } = delay.take();
  assert.ok(Math.abs(max - 0.3) < 0.001 && p50 < 0.001 && min < 0.001, `${max} ${p50} ${min}`);
  assert.deepEqual(new Set(Object.values(delay.take())), new Set([0]));
});

test("loopDelayMetrics: the library's metrics are exported without its watch of the loop", async () => {
  const registry = new Registry();
  const clock = new FakeClock();
  loopDelayMetrics(registry, new LoopDelay(clock));
  await clock.advance(1000);
  const text = await registry.metrics();
  for (const part of ["min", "max", "mean", "stddev", "p50", "p90", "p99"]) {
    assert.match(text, new RegExp(`^nodejs_eventloop_lag_${part}_seconds [0-9.e-]+$`, "m"));
  }
});

test("loopDelayMetrics: of several processes the worst one is told, not the sum", async () => {
  const parts = await Promise.all(
    [100, 300].map(async (lateMs) => {
      const clock = new FakeClock();
      const late = {
        now: () => clock.now(),
        monotonic: () => clock.monotonic(),
        after: (delayMs: number, callback: () => void) => clock.after(delayMs + lateMs, callback),
      };
      const registry = new Registry();
      loopDelayMetrics(registry, new LoopDelay(late));
      await clock.advance(1000 + lateMs);
      return readMetrics(registry);
    }),
  );
  const text = await sumMetrics(parts);
  assert.match(text, /^nodejs_eventloop_lag_max_seconds 0\.3/m);
  assert.match(text, /^nodejs_eventloop_lag_min_seconds 0\.(1|09)/m);
  assert.match(text, /^nodejs_eventloop_lag_p99_seconds 0\.3/m);
});

test("createRegistry: a process that does nothing but have its metrics wakes up at most three times a second", () => {
  const index = new URL("./index.ts", import.meta.url).href;
  const script = `
    const { createRegistry } = await import(${JSON.stringify(index)});
    const registry = createRegistry();
    await registry.metrics();
    const { setTimeout: pause } = await import("node:timers/promises");
    await pause(500);
    const turns = () => performance.nodeTiming.uvMetricsInfo.loopCount;
    const before = turns();
    await pause(3000);
    console.log(turns() - before);
  `;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" });
  assert.ok(Number(stdout) >= 1 && Number(stdout) <= 9, `${stdout}${stderr}`);
});
