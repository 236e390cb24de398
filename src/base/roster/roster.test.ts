import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Register, Roster, type Seat } from "./index.ts";

test("Roster: as a Set of fresh members under any adds and leaves (model)", () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.constantFrom("add", "shift"), fc.nat(20))), (steps) => {
      const roster = new Roster<number>();
      const model = new Set<number>();
      const seats: Seat[] = [];
      for (const step of steps) {
        if (step === "add") {
          model.add(seats.length);
          seats.push(roster.add(seats.length));
        } else if (step === "shift") {
          const [first] = model;
          if (first !== undefined) model.delete(first);
          assert.equal(roster.shift(), first);
        } else {
          model.delete(step);
          seats[step]?.leave();
        }
        assert.deepEqual([...roster], [...model]);
        assert.equal(roster.size, model.size);
      }
    }),
  );
});

test("Roster: whoever leaves while it is gone through is still met, and whoever comes is not", () => {
  const roster = new Roster<string>();
  const seats = ["a", "b", "c"].map((name) => roster.add(name));
  const met: string[] = [];
  for (const name of roster) {
    met.push(name);
    for (const seat of seats) seat.leave();
    roster.add(`${name}'`);
  }
  assert.deepEqual(met, ["a", "b", "c"]);
  assert.deepEqual([...roster], ["a'", "b'", "c'"]);
});

test("Roster: the same member twice has two seats, each left once", () => {
  const roster = new Roster<string>();
  const [one, two] = [roster.add("a"), roster.add("a")];
  one.leave();
  one.leave();
  assert.equal(roster.size, 1);
  two.leave();
  assert.equal(roster.size, 0);
});

test("Register: as a Map under any changes (model)", () => {
  const step = fc.tuple(fc.constantFrom("set", "delete", "clear"), fc.nat(5), fc.nat());
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const register = new Register<number, number>();
      const model = new Map<number, number>();
      for (const [what, key, value] of steps) {
        if (what === "clear" && value % 4 === 0) {
          register.clear();
          model.clear();
        } else if (what === "delete") assert.equal(register.delete(key), model.delete(key));
        else {
          register.set(key, value);
          model.set(key, value);
        }
        assert.deepEqual(register.values(), [...model.values()]);
        assert.deepEqual(
          [register.size, register.get(key), register.has(key)],
          [model.size, model.get(key), model.has(key)],
        );
      }
    }),
  );
});
