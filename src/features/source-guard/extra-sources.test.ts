import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import { allowedSources } from "./extra-sources.ts";
import { mergeRanges } from "./ranges.ts";

const texts = (asked: string | undefined, allowed: string | undefined) => {
  const { granted, refused } = allowedSources(asked, allowed);
  return { granted: granted.map(String), refused };
};

test("allowedSources: without the Namespace's annotation nothing is allowed, and without the pod's nothing is asked for", () => {
  assert.deepEqual(texts(undefined, "any"), { granted: [], refused: [] });
  assert.deepEqual(texts("", "any"), { granted: [], refused: [] });
  assert.deepEqual(texts("10.0.0.1", undefined).granted, []);
  assert.match(texts("10.0.0.1", undefined).refused.join(), /^10.0.0.1\/32: .*allows nothing of it$/);
  assert.match(texts("any", undefined).refused.join(), /^any: .*allows nothing$/);
});

test("allowedSources: a pod gets the part that its Namespace allows, and is told of the rest", () => {
  const allowed = "10.0.0.0/24, fd00::/64";
  assert.deepEqual(texts("10.0.0.7 fd00::1,10.0.0.0/25", allowed), {
    granted: ["10.0.0.7/32", "fd00::1/128", "10.0.0.0/25"],
    refused: [],
  });
  assert.deepEqual(texts("10.0.0.0/16", allowed).granted, ["10.0.0.0/24"]);
  assert.match(texts("10.0.0.0/16", allowed).refused.join(), /only a part/);
  assert.deepEqual(texts("any", allowed), { granted: ["10.0.0.0/24", "fd00::/64"], refused: [] });
  assert.deepEqual(texts("any", "any").granted, ["0.0.0.0/0", "::/0"]);
  assert.deepEqual(texts("10.1.0.0/24", allowed).granted, []);
});

test("allowedSources: what cannot be read counts for nothing and is named, on either side", () => {
  const { granted, refused } = texts("10.0.0.1, 10.0.0.300, alles", "10.0.0.0/8, 300::/8/8");
  assert.deepEqual(granted, ["10.0.0.1/32"]);
  assert.equal(refused.length, 3);
  const many = Array.from({ length: 33 }, (_, at) => `10.0.0.${at}`).join();
  assert.deepEqual(texts(many, "any").granted, []);
  assert.match(texts(many, "any").refused.join(), /33 entries/);
  assert.deepEqual(texts("10.0.0.1", many).granted, []);
});

test("allowedSources: nothing is granted that is not both asked for and allowed", () => {
  const network = fc
    .record({ value: fc.bigInt({ min: 0n, max: 255n }), length: fc.integer({ min: 24, max: 32 }) })
    .map(({ value, length }) => Cidr.of(IpAddress.fromValue(4, (10n << 24n) + value), length));
  fc.assert(
    fc.property(fc.array(network, { maxLength: 5 }), fc.array(network, { maxLength: 5 }), (asked, allowed) => {
      const { granted, refused } = allowedSources(asked.join(), allowed.join());
      const has = (networks: readonly Cidr[], address: IpAddress): boolean =>
        networks.some((one) => one.contains(address));
      let isWhole = true;
      for (let at = 0n; at < 256n; at += 1n) {
        const address = IpAddress.fromValue(4, (10n << 24n) + at);
        assert.equal(has(granted, address), has(asked, address) && has(allowed, address));
        if (has(asked, address) && !has(allowed, address)) isWhole = false;
      }
      if (!isWhole) assert.ok(refused.length > 0);
    }),
  );
});

test("mergeRanges: the same addresses in ranges that neither overlap nor touch", () => {
  const ranges = mergeRanges(
    ["10.0.0.0/25", "10.0.0.128/25", "10.0.0.7/32", "10.0.2.0/24", "fd00::/64"].map((text) => Cidr.parse(text)),
    4,
  );
  assert.deepEqual(
    ranges.map(({ from, to }) => `${from}-${to}`),
    ["10.0.0.0-10.0.0.255", "10.0.2.0-10.0.2.255"],
  );
  assert.deepEqual(
    mergeRanges([Cidr.parse("::/0")], 6).map(({ from, to }) => `${from}-${to}`),
    ["::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
  );
});
