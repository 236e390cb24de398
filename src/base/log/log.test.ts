import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import { createLogger, type LoggerOptions, nullLogger } from "./index.ts";

function capture(options: Partial<LoggerOptions> = {}) {
  const lines: string[] = [];
  return { lines, log: createLogger({ name: "coild", write: (line) => lines.push(line), ...options }) };
}

test("createLogger: one JSON object a line with level, ts, logger and msg", () => {
  const { lines, log } = capture();
  log.child("ipam", { pool: "default" }).info("block acquired", { block: "default-3" });
  assert.equal(lines.length, 1);
  const { ts, ...rest } = JSON.parse(lines[0] ?? "") as Record<string, unknown>;
  assert.deepEqual(rest, {
    level: "info",
    logger: "coild.ipam",
    pool: "default",
    block: "default-3",
    msg: "block acquired",
  });
  assert.match(String(ts), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
});

test("createLogger: any event is one line of JSON", () => {
  fc.assert(
    fc.property(
      fc.string({ unit: character }),
      fc.dictionary(
        fc.stringMatching(/^f[a-z]{0,8}$/),
        fc.oneof(fc.string({ unit: character }), fc.integer(), fc.boolean()),
      ),
      (message, fields) => {
        const { lines, log } = capture();
        log.warn(message, fields);
        assert.equal(lines.length, 1);
        assert.equal(lines[0]?.indexOf("\n"), (lines[0]?.length ?? 0) - 1);
        JSON.parse(lines[0] ?? "");
      },
    ),
  );
});

test("createLogger: below the level nothing is written", () => {
  const { lines, log } = capture({ level: "warn" });
  log.debug("no");
  log.info("no");
  log.warn("yes");
  log.error("yes");
  assert.equal(lines.length, 2);
});

test("createLogger: errors are logged with their causes", () => {
  const { lines, log } = capture();
  log.error("failed", { error: new Error("outer", { cause: new Error("inner") }) });
  assert.equal((JSON.parse(lines[0] ?? "") as { error: string }).error, "outer: inner");
});

test("createLogger: the console encoder writes readable lines, times come in three encodings", () => {
  const { lines, log } = capture({ encoder: "console", timeEncoding: "millis" });
  log.info("serving", { socket: "/run/x", n: 3 });
  assert.match(lines[0] ?? "", /^\d{13} INFO coild: serving socket=\/run\/x n=3\n$/);
  const epoch = capture({ timeEncoding: "epoch" });
  epoch.log.info("x");
  assert.match(epoch.lines[0] ?? "", /"ts":\d{10}\.\d{3},/);
});

test("nullLogger: accepts everything, also from children", () => {
  assert.equal(nullLogger.child("x").info("nothing"), undefined);
});
