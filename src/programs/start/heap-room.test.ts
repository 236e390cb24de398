import assert from "node:assert/strict";
import { test } from "node:test";
import { growthPercent } from "./heap-room.ts";

const MIB = 1024 * 1024;

test("growthPercent: a small heap may grow by 24 MiB, a large one by V8's own rule", () => {
  assert.equal(growthPercent(8 * MIB), 300);
  assert.equal(growthPercent(9 * MIB), 267);
  assert.equal(growthPercent(24 * MIB), 100);
  assert.equal(growthPercent(24 * MIB + 1024 * 1024), 0);
  assert.equal(growthPercent(1000 * MIB), 0);
  assert.ok(Number.isFinite(growthPercent(0)));
});
