import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

/** The rows of the plan of tests that are there (docs/design/nics.md), and X: what is beyond it. */
const SECTIONS =
  "T1 T2 T3 T4 T5 T6 T7 T8 T9 T11 T12 T13 T14 T15 T16 T17 T18 T19 T20 T21 T22 T23 T24 T25 T26 T27 T28 T29 T30 T31 T32 T33 T34 T35 T36 T37 T38 T39 T40 T41 T42 T43 T44 T45 T46 T48 T49 T50 T51 T52 T53 X";

test("docs/design/nics.md: every claim names a file that is there and a test that is in it, and no row that is built lacks one", () => {
  const { sections, missing } = claimsOf("docs/design/nics.md");
  assert.deepEqual(missing, []);
  // A row without the name of its section would not be checked.
  const page = readFileSync(join(import.meta.dirname, "../../../docs/design/nics.md"), "utf8");
  assert.deepEqual(page.match(/^\| [^|]+ \| `[^`|]+` \| [^|]+ \|$/gm) ?? [], []);
  assert.deepEqual(sections, new Set(SECTIONS.split(" ")));
});
