import assert from "node:assert/strict";
import { test } from "node:test";
import { FRESH_MS } from "#features/ipam";
import { ipamFlags } from "./control.ts";

test("--node-gone-grace: what is shorter than the time for which coild trusts its blocks is refused, and the minimum is named", () => {
  const { parse, initial } = ipamFlags.nodeGoneGrace;
  for (const text of ["29s", "29999ms", "1s", "0s"])
    assert.throws(() => parse(text, initial), { message: new RegExp(`"${text}" is too short: the minimum is 30s`) });
  assert.equal(parse("30s", initial), FRESH_MS);
});
