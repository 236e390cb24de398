import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { areAdopted } from "./adopted.ts";

test("areAdopted: needs a complete table of each family; a kernel that does not tell is logged and counts as none", () => {
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  const plane = (has: () => boolean) => ({ hasCompleteTable: has });
  const busy = (): boolean => {
    throw new KernelError("interrupted", "cannot list the chains");
  };
  assert.equal(areAdopted([plane(() => true), plane(() => true)], log), true);
  assert.equal(areAdopted([plane(() => true), plane(() => false)], log), false);
  assert.equal(lines.length, 0);
  assert.equal(areAdopted([plane(() => true), plane(busy)], log), false);
  assert.equal(lines.length, 1);
  const bug = (): boolean => {
    throw new TypeError("a bug");
  };
  assert.throws(() => areAdopted([plane(bug)], log), TypeError);
});
