import assert from "node:assert/strict";
import { test } from "node:test";
import { NICS_ANNOTATION, VPC_ANNOTATION } from "#kube/nic";
import { boundedWork } from "#test/bounded-work";
import { hasVpcData } from "./vpc-data.ts";

test("hasVpcData: a VPC is named, or a list that has NICs; an empty list in any form is none", () => {
  for (const text of ["", " ", "[]", " [ \n] ", "null", " ~ "])
    assert.equal(hasVpcData({ [NICS_ANNOTATION]: text }), false, text);
  for (const text of ["[{}]", "[", "]", "[ x ]", "nul", "[]]", "x"])
    assert.equal(hasVpcData({ [NICS_ANNOTATION]: text }), true, text);
  assert.equal(hasVpcData({ [VPC_ANNOTATION]: "" }), true);
  assert.equal(hasVpcData({}), false);
});

test("hasVpcData: an annotation of 256 KiB of blanks is read in one pass", () => {
  const blanks = " ".repeat(262_144);
  for (const [text, has] of [
    [`${blanks}x`, true],
    [`[${blanks}x`, true],
    [`[${blanks}]${blanks}x`, true],
    [blanks, false],
  ] as const)
    assert.equal(
      boundedWork(() => hasVpcData({ [NICS_ANNOTATION]: text })),
      has,
    );
});
