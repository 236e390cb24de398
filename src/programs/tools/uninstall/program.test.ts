import assert from "node:assert/strict";
import { test } from "node:test";
import { endText } from "./program.ts";

test("endText: nothing is left only where nothing is kept, and what pods have is named as left", () => {
  assert.equal(endText({ kept: [], unfinished: [] }), "nothing of the suite is left");
  assert.match(endText({ kept: ["AddressPool default: --keep-pools"], unfinished: [] }), /nothing else .* kept/);
  for (const kept of [[], ["x"]])
    assert.match(endText({ kept, unfinished: ["2 pods have addresses of coild"] }), /what is named above is left/);
});
