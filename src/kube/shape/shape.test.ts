import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fitShape, type Shape } from "./index.ts";

const SHAPE: Shape = {
  fields: {
    name: "name",
    labels: { map: "string" },
    ports: { list: { fields: { port: "number", isOpen: "boolean" } } },
  },
  required: ["name"],
};

test("fitShape: names the value that does not fit, and its path", () => {
  const rows: [unknown, string | undefined][] = [
    [{ name: "a", ports: [{ port: 1 }], other: null }, undefined],
    [{ name: "a", ports: [], labels: {} }, undefined],
    [null, "the object: null is not an object"],
    [[], "the object: [] is not an object"],
    [{}, "name is missing"],
    [{ name: null }, "name is missing"],
    [{ name: "a b" }, 'name: "a b" is not a name'],
    [{ name: "a", ports: {} }, "ports: {} is not a list"],
    [{ name: "a", ports: [{ port: 1 }, null] }, "ports[1]: null is not an object"],
    [{ name: "a", ports: [{ port: "1" }] }, 'ports[0].port: "1" is not a number'],
    [{ name: "a", ports: [{ isOpen: 0 }] }, "ports[0].isOpen: 0 is neither true nor false"],
    [{ name: "a", labels: { "k/v": 5 } }, 'labels["k/v"]: 5 is not a text'],
  ];
  for (const [value, fault] of rows) assert.equal(fitShape(value, SHAPE), fault, JSON.stringify(value));
});

test("fitShape: null is absent, and is taken away", () => {
  const value = { name: "a", labels: { x: null, y: "z" }, ports: [{ port: null }] };
  assert.equal(fitShape(value, SHAPE), undefined);
  assert.deepEqual(value, { name: "a", labels: { y: "z" }, ports: [{}] });
  const whole = { name: "a", ports: null };
  assert.equal(fitShape(whole, SHAPE), undefined);
  assert.deepEqual(whole, { name: "a" });
});

test("fitShape: whatever the input, it throws nothing and returns at most a line", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
      const fault = fitShape(value, SHAPE);
      assert.ok(fault === undefined || fault.length < 200);
    }),
    { numRuns: 500 },
  );
});
