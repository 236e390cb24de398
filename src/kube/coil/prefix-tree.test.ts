import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import { PrefixTree } from "./prefix-tree.ts";

/** Prefixes that are near each other, so that many overlap. */
const prefix = (family: 4 | 6) =>
  fc
    .tuple(
      fc.array(fc.nat(3), { minLength: family === 4 ? 4 : 16, maxLength: family === 4 ? 4 : 16 }),
      fc.nat(family === 4 ? 32 : 128),
    )
    .map(([bytes, length]) => Cidr.of(IpAddress.fromBytes(Uint8Array.from(bytes, (byte) => byte << 6)), length));

test("PrefixTree: finds the smallest place of an overlapping prefix, as a comparison with each does", () => {
  for (const family of [4, 6] as const) {
    fc.assert(
      fc.property(fc.array(prefix(family), { maxLength: 30 }), prefix(family), (added, asked) => {
        const tree = new PrefixTree();
        for (const [place, one] of added.entries()) tree.add(one, place);
        const expected = added.findIndex((one) => one.overlaps(asked));
        assert.equal(tree.overlapping(asked), expected < 0 ? undefined : expected);
      }),
    );
  }
});
