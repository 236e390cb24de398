import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { Health } from "#base/health";
import { createLogger } from "#base/log";
import { supervise } from "./supervise.ts";

class PartError extends ExpectedError<"failed"> {
  override readonly name = "PartError";
}

/** A part whose runs do what the test says, in turn; the last thing again and again. */
function rig(...runs: readonly (Error | number | "runs")[]) {
  const clock = new FakeClock();
  const health = new Health({ clock });
  const lines: Record<string, unknown>[] = [];
  const stop = new AbortController();
  const startedAt: number[] = [];
  let restarts = 0;
  const done = supervise(
    {
      name: "p",
      run: async (signal) => {
        startedAt.push(clock.monotonic());
        const what = runs[Math.min(startedAt.length, runs.length) - 1];
        if (what instanceof Error) throw what;
        if (typeof what === "number") return what;
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
        return 0;
      },
    },
    {
      health: health.part("p"),
      log: createLogger({ name: "t", write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>) }),
      clock,
      onRestart: () => {
        restarts += 1;
      },
    },
    { signal: stop.signal },
  );
  return { clock, health, lines, stop, startedAt, done, restarts: () => restarts };
}

test("supervise: a part that fails runs again after a growing pause, and is logged with its reason", async () => {
  const { clock, health, lines, stop, startedAt, done, restarts } = rig(new PartError("failed", "no luck"), 1, "runs");
  await clock.advance(0);
  assert.deepEqual(
    health.parts.map(({ status, reason }) => [status, reason]),
    [["degraded", "no luck"]],
  );
  await clock.advance(2000);
  assert.equal(startedAt.length, 3);
  assert.equal(restarts(), 2);
  assert.deepEqual(
    health.parts.map(({ status }) => status),
    ["ok"],
  );
  assert.deepEqual(
    lines.map(({ msg, why }) => [msg, why]),
    [
      ["a part of this process ended", "no luck"],
      ["a part of this process ended", "ended with exit code 1"],
    ],
  );
  stop.abort();
  assert.equal(await done, 0);
});

test("supervise: a bug is logged with its stack, and costs the part a run", async () => {
  const { clock, lines, stop, startedAt, done } = rig(new TypeError("a bug"), "runs");
  await clock.advance(600);
  assert.equal(startedAt.length, 2);
  assert.equal(lines[0]?.["level"], "error");
  assert.match(String(lines[0]?.["error"]), /TypeError: a bug\n +at /);
  stop.abort();
  await done;
});

test("supervise: an abort during the pause ends it at once", async () => {
  const { clock, stop, startedAt, done } = rig(3);
  await clock.advance(0);
  stop.abort();
  assert.equal(await done, 3);
  assert.equal(startedAt.length, 1);
  assert.equal(clock.pending, 0);
});
