// own process: undici must not have made a connection before
import assert from "node:assert/strict";
import { test } from "node:test";
import { cachedDataVersionTag } from "node:v8";
import { withParserBudget } from "./parser-budget.ts";

test("withParserBudget: afterwards V8's flags are as Node sets them, so that compiled code of before is taken", () => {
  const before = cachedDataVersionTag();
  const seen: number[] = [];
  withParserBudget(() => seen.push(cachedDataVersionTag()));
  withParserBudget(() => seen.push(cachedDataVersionTag()));
  assert.notEqual(seen[0], before);
  assert.deepEqual([seen[1], cachedDataVersionTag()], [before, before]);
});
