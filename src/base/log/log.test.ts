import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { terminalUnit as unit } from "#test/characters";
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

const text = fc.string({ unit, maxLength: 150 });
/** Errors whose messages, causes, names and stacks are made of others' texts. */
const failure = fc.tuple(text, text, text).map(([message, inner, stack]) => {
  const error = new Error(message, { cause: new AggregateError([new Error(inner), inner], message) });
  error.stack = `Error: ${message}\n    at ${stack}`;
  error.name = inner;
  return error;
});
const value = fc.oneof(
  text,
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
  fc.array(text, { maxLength: 3 }),
  fc.dictionary(text, text, { maxKeys: 2 }),
  failure,
  failure.map(({ stack }) => stack),
);

for (const encoder of ["json", "console"] as const) {
  test(`createLogger, ${encoder}: whatever the values, one call is one line, without another byte below 0x20 and without what draws or reverses (property)`, () => {
    fc.assert(
      fc.property(
        text,
        text,
        text,
        fc.dictionary(text, value, { maxKeys: 3 }),
        failure,
        (name, child, message, fields, error) => {
          const { lines, log } = capture({ encoder, name });
          log.child(child, { bound: child, [`${child}x`]: message }).warn(message, { ...fields, error });
          assert.equal(lines.length, 1);
          const [line = ""] = lines;
          assert.equal(line.at(-1), "\n");
          assert.doesNotMatch(line.slice(0, -1), /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
          assert.ok(
            Buffer.from(line)
              .subarray(0, -1)
              .every((byte) => byte >= 0x20),
          );
          // What is escaped is read back as it was.
          if (encoder === "json") assert.equal((JSON.parse(line) as { msg: string }).msg, message);
        },
      ),
      { numRuns: 250 },
    );
  });
}

test("createLogger: a value cannot forge a line or a colour in console logs", () => {
  const { lines, log } = capture({ encoder: "console", timeEncoding: "millis" });
  log.error("refused", { host: "a\n1767225600000 INFO coild: all is well\x1b[32m", error: new Error("b\r\nc") });
  assert.match(
    lines[0] ?? "",
    /^\d{13} ERROR coild: refused host=a\\n1767225600000 INFO coild: all is well\\u001b\[32m error=b\\r\\nc\n$/,
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
