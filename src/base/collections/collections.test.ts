import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DrainedMap, type Entry, keepNewest, LinkedSet } from "./index.ts";

test("LinkedSet: as a Set of fresh members under any adds and removals (model)", () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.constantFrom("add", "shift"), fc.nat(20))), (steps) => {
      const set = new LinkedSet<number>();
      const model = new Set<number>();
      const entries: Entry[] = [];
      for (const step of steps) {
        if (step === "add") {
          model.add(entries.length);
          entries.push(set.add(entries.length));
        } else if (step === "shift") {
          const [first] = model;
          if (first !== undefined) model.delete(first);
          assert.equal(set.shift(), first);
        } else {
          model.delete(step);
          entries[step]?.remove();
        }
        assert.deepEqual([...set], [...model]);
        assert.equal(set.size, model.size);
      }
    }),
  );
});

test("LinkedSet: an iteration visits the members of its start, also those that are removed meanwhile, and no later ones", () => {
  const set = new LinkedSet<string>();
  const entries = ["a", "b", "c"].map((name) => set.add(name));
  const met: string[] = [];
  for (const name of set) {
    met.push(name);
    for (const entry of entries) entry.remove();
    set.add(`${name}'`);
  }
  assert.deepEqual(met, ["a", "b", "c"]);
  assert.deepEqual([...set], ["a'", "b'", "c'"]);
});

test("LinkedSet: a member that is added twice has two entries, and each is removed once", () => {
  const set = new LinkedSet<string>();
  const [one, two] = [set.add("a"), set.add("a")];
  one.remove();
  one.remove();
  assert.equal(set.size, 1);
  two.remove();
  assert.equal(set.size, 0);
});

test("DrainedMap: as a Map under any changes (model)", () => {
  const step = fc.tuple(fc.constantFrom("set", "delete", "clear"), fc.nat(5), fc.nat());
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const map = new DrainedMap<number, number>();
      const model = new Map<number, number>();
      for (const [what, key, value] of steps) {
        if (what === "clear" && value % 4 === 0) {
          map.clear();
          model.clear();
        } else if (what === "delete") assert.equal(map.delete(key), model.delete(key));
        else {
          map.set(key, value);
          model.set(key, value);
        }
        assert.deepEqual(map.values(), [...model.values()]);
        assert.deepEqual([map.size, map.get(key), map.has(key)], [model.size, model.get(key), model.has(key)]);
      }
    }),
  );
});

test("keepNewest: what was added first goes, of a Map and of a Set; a member that is added again is new", () => {
  const map = new Map([1, 2, 3, 4].map((one) => [one, one]));
  map.delete(1);
  map.set(1, 1);
  keepNewest(map, 2);
  assert.deepEqual([...map.keys()], [4, 1]);
  const set = new Set([1, 2, 3]);
  keepNewest(set, 3);
  assert.equal(set.size, 3);
  keepNewest(set, 0);
  assert.equal(set.size, 0);
});
