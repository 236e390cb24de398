import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger, nullLogger } from "#base/log";
import { Health, readiness } from "./index.ts";

test("Health: not ready until every part was ok; a part that degrades later does not unready", async () => {
  const clock = new FakeClock();
  const health = new Health({ clock });
  const [a, b] = [health.part("a"), health.part("b")];
  a.ok();
  assert.deepEqual(
    health.unready.map((part) => part.name),
    ["b"],
  );
  b.degraded(new Error("no API server"));
  assert.deepEqual(
    health.unready.map(({ status, reason }) => [status, reason]),
    [["degraded", "no API server"]],
  );
  b.ok();
  a.degraded(new Error("gone"));
  assert.deepEqual(health.unready, []);
});

test("Health: a part that is always needed unreadies whenever it degrades", () => {
  const health = new Health({ clock: new FakeClock() });
  const part = health.part("lease", { needed: "always" });
  part.ok();
  part.degraded("lost");
  assert.deepEqual(
    health.unready.map((one) => one.name),
    ["lease"],
  );
});

test("Health: a part that drains unreadies the program, and is no news for the log", () => {
  const said: string[] = [];
  const log = {
    ...nullLogger,
    warn: (message: string) => said.push(message),
    info: (message: string) => said.push(message),
  };
  const health = new Health({ clock: new FakeClock(), log });
  const part = health.part("serving", { needed: "always" });
  part.ok();
  health.drain("serving");
  assert.deepEqual(
    health.unready.map(({ name, reason }) => [name, reason]),
    [["serving", "draining"]],
  );
  assert.deepEqual(said, []);
});

test("Health: since is the time of the last change of the status, not of the last report", async () => {
  const clock = new FakeClock(0);
  const health = new Health({ clock });
  const part = health.part("a");
  await clock.advance(10);
  part.ok("first");
  await clock.advance(10);
  part.ok("again");
  assert.deepEqual(health.parts, [{ name: "a", status: "ok", reason: "again", since: 10 }]);
});

test("Health: the last progress of a part is shown beside it on request, while it is well, and is no news", () => {
  const lines: string[] = [];
  const health = new Health({ log: createLogger({ name: "p", write: (line) => lines.push(line) }) });
  const part = health.part("routes");
  part.ok("2 changes", "sync 1 done, wanted state of revision 4");
  part.ok("0 changes", "sync 2 done, wanted state of revision 9");
  assert.deepEqual(
    [readiness(health, { isVerbose: true }).text, lines],
    ["[+]routes ok 0 changes (sync 2 done, wanted state of revision 9)\nok\n", []],
  );
  part.degraded(new Error("refused"));
  assert.equal(readiness(health, { isVerbose: true }).text, "[-]routes degraded refused\nok\n");
});
