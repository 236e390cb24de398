import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError } from "#base/config";
import { parseProgram } from "../../shared/program/index.ts";
import { status } from "./program.ts";

test("status --watch: alone, with a number of seconds, and nothing else", () => {
  const of = (...argv: readonly string[]): unknown =>
    new Map(Object.entries(parseProgram(status, argv).values)).get("watch");
  assert.deepEqual(
    [of(), of("--watch"), of("--watch=2"), of("--watch=3600"), of("--watch=false")],
    [undefined, 5, 2, 3600, undefined],
  );
  for (const text of ["0", "3601", "-1", "1.5", "x", ""])
    assert.throws(
      () => of(`--watch=${text}`),
      (error) => error instanceof ConfigError && /is not a number of seconds from 1 to 3600/.test(error.faults.join()),
      text,
    );
});
