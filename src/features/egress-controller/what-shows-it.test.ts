import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

/** The rows of the specification's tests that concern egress (docs/design/egress.md), and X: what is beyond them. */
const SECTIONS = "U3 U13 U16 U17 U18 U19 U20 U21 E11 E12 E13 E14 E15 D11 D12 X";

test("docs/design/egress.md: every claim names a file that is there and a test that is in it, and no row of egress lacks one", () => {
  const { sections, missing } = claimsOf("docs/design/egress.md");
  assert.deepEqual(missing, []);
  // A row without the name of its section would not be checked.
  const page = readFileSync(join(import.meta.dirname, "../../../docs/design/egress.md"), "utf8");
  assert.deepEqual(page.match(/^\| [^|]+ \| `[^`|]+` \| [^|]+ \|$/gm) ?? [], []);
  assert.deepEqual(sections, new Set(SECTIONS.split(" ")));
});
