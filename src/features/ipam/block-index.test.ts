import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import { BlockIndex, type IndexedBlock } from "./block-index.ts";

const block = (name: string, ...cidrs: string[]): IndexedBlock => ({
  name,
  pool: name.split("-")[0] ?? "",
  cidrs: cidrs.map((text) => Cidr.parse(text)),
  index: Number(name.split("-")[1]),
  request: `request of ${name}`,
  uid: `uid of ${name}`,
});

test("BlockIndex: an overlap is found whichever prefix is larger, in each family, and by name", () => {
  const index = new BlockIndex();
  index.replace([block("a-0", "10.0.0.0/27", "fd00::/123"), block("b-7", "10.0.1.6/31")], { since: index.epoch });
  const found = (...cidrs: string[]): string | undefined =>
    index.overlapping(cidrs.map((text) => Cidr.parse(text)))?.name;
  assert.equal(found("10.0.0.0/27"), "a-0");
  assert.equal(found("10.0.0.31/32"), "a-0");
  assert.equal(found("10.0.1.0/24"), "b-7");
  assert.equal(found("10.0.0.32/27"), undefined);
  assert.equal(found("10.9.0.0/27", "fd00::10/124"), "a-0");
  assert.equal(index.overlapping([Cidr.parse("10.0.0.0/31")], "a-0"), undefined, "a block does not overlap itself");
});

test("BlockIndex: a block that is being made stays whatever lists show; afterwards a later list decides", () => {
  const index = new BlockIndex();
  const overlaps = (): boolean => index.overlapping([Cidr.parse("10.0.0.0/32")]) !== undefined;
  index.reserve(block("a-0", "10.0.0.0/31"));
  const since = index.epoch;
  index.replace([], { since });
  assert.ok(overlaps(), "a list from before the answer does not know it");
  index.settle("a-0");
  index.replace([], { since });
  assert.ok(overlaps(), "nor does one that began before");
  index.replace([], { since: index.epoch, pool: "b" });
  assert.ok(overlaps(), "nor one of another pool");
  index.replace([], { since: index.epoch, pool: "a" });
  assert.ok(!overlaps());
  assert.equal(index.size, 0);
});

test("BlockIndex: a block that is gone is removed by its UID; one of its name that is newer, or may be, stays", () => {
  const index = new BlockIndex();
  index.replace([block("a-0", "10.0.0.0/31"), block("a-1", "10.0.0.2/31")], { since: index.epoch });
  assert.deepEqual(index.indexesOf("a"), [0, 1]);
  assert.equal(index.remove("a-0", "another uid"), false);
  assert.equal(index.madeFor("request of a-0"), "a-0");
  assert.equal(index.remove("a-0", "uid of a-0"), true);
  assert.equal(index.remove("a-0", "uid of a-0"), true, "its name is free already");
  assert.deepEqual([index.indexesOf("a"), index.madeFor("request of a-0")], [[1], undefined]);
  index.reserve({ ...block("a-0", "10.0.0.0/31"), request: "next", uid: undefined });
  assert.equal(index.remove("a-0", "uid of a-0"), false, "another is being made");
  assert.equal(index.madeFor("next"), undefined, "it is not known to exist");
  index.settle("a-0", "next uid");
  assert.equal(index.madeFor("next"), "a-0");
  assert.equal(index.remove("a-0", "uid of a-0"), false);
  assert.equal(index.remove("a-0", "next uid"), true);
});

test("BlockIndex: a list that began before a block was made does not bring back the earlier block of its name", () => {
  const index = new BlockIndex();
  index.replace([block("a-0", "10.0.0.0/31")], { since: index.epoch });
  const since = index.epoch;
  assert.equal(index.remove("a-0", "uid of a-0"), true);
  index.reserve({ ...block("a-0", "10.0.0.0/31"), request: "next", uid: undefined });
  index.settle("a-0", "next uid");
  index.replace([block("a-0", "10.0.0.0/31")], { since });
  assert.equal(index.madeFor("next"), "a-0");
  assert.equal(index.remove("a-0", "uid of a-0"), false, "the late deletion of the earlier block");
  assert.equal(index.overlapping([Cidr.parse("10.0.0.1/32")])?.name, "a-0");
});

test("BlockIndex: agrees with looking through all blocks", () => {
  const prefix = fc
    .record({ base: fc.nat(255), length: fc.integer({ min: 24, max: 32 }), six: fc.boolean() })
    .map(({ base, length, six }) =>
      six
        ? Cidr.of(IpAddress.parse(`fd00::${base.toString(16)}`), length + 96)
        : Cidr.of(IpAddress.parse(`10.0.0.${base}`), length),
    );
  const step = fc.record({
    op: fc.constantFrom("reserve", "settle", "list", "list-pool", "remove"),
    id: fc.nat(15),
    cidrs: fc.array(prefix, { minLength: 1, maxLength: 2 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), prefix, (steps, asked) => {
      const index = new BlockIndex();
      const all = new Map<string, IndexedBlock>();
      for (const { op, id, cidrs } of steps) {
        const name = `${id % 2 === 0 ? "a" : "b"}-${id}`;
        if (op === "reserve") {
          const made = { ...block(name), cidrs };
          index.reserve({ ...made, uid: undefined });
          all.set(name, made);
        }
        if (op === "settle") index.settle(name, all.get(name)?.uid);
        if (op === "remove" && index.remove(name, `uid of ${name}`)) all.delete(name);
        if (op === "list") index.replace([...all.values()], { since: index.epoch });
        if (op === "list-pool") {
          const own = [...all.values()].filter(({ pool }) => pool === "a");
          index.replace(own, { since: index.epoch, pool: "a" });
        }
        const naive = [...all.values()].some((one) => one.cidrs.some((cidr) => cidr.overlaps(asked)));
        assert.equal(index.overlapping([asked]) !== undefined, naive);
        const ofPool = [...all.values()].filter(({ pool }) => pool === "a");
        assert.deepEqual(index.indexesOf("a").sort(), ofPool.map((one) => one.index).sort());
      }
      assert.equal(index.size, all.size);
    }),
  );
});
