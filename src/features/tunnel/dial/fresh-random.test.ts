import assert from "node:assert/strict";
import { test } from "node:test";
import { freshRandom } from "./fresh-random.ts";

test("freshRandom: ids are lawful and never the same, also beyond one filling of the pool", () => {
  const seen = new Set(Array.from({ length: 10_000 }, () => BigInt(freshRandom())));
  assert.equal(seen.size, 10_000);
  for (const id of seen) assert.ok(id >= 0n && id < 2n ** 63n, `${id}`);
  assert.ok([...seen].some((id) => id >= 2n ** 62n));
});
