import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { isEqual } from "./index.ts";

test("isEqual: agrees with Node for any two values of JSON, and a value equals its copy whatever the order of keys", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (a, b) => {
      assert.equal(isEqual(a, b), isDeepStrictEqual(a, b));
      assert.ok(isEqual(a, structuredClone(a)));
      if (typeof a !== "object" || a === null || Array.isArray(a)) return;
      assert.ok(isEqual(a, Object.fromEntries(Object.entries(structuredClone(a)).reverse())));
    }),
    { numRuns: 300 },
  );
});

test("isEqual: a change of one member anywhere is a difference", () => {
  const made = (): object => ({
    a: [1, { b: "x", c: null }],
    d: new Map([["k", { e: 1 }]]),
    f: new Set([1, 2]),
    g: {},
  });
  const changed: readonly [string, object][] = [
    ["an element", { ...made(), a: [2, { b: "x", c: null }] }],
    ["a longer list", { ...made(), a: [1, { b: "x", c: null }, 1] }],
    ["a nested member", { ...made(), a: [1, { b: "y", c: null }] }],
    ["null and nothing", { ...made(), a: [1, { b: "x" }] }],
    ["a value of a map", { ...made(), d: new Map([["k", { e: 2 }]]) }],
    ["a key of a map", { ...made(), d: new Map([["l", { e: 1 }]]) }],
    ["a member of a set", { ...made(), f: new Set([1, 3]) }],
    ["one key more", { ...made(), h: 0 }],
    ["a list and an object", { ...made(), g: [] }],
  ];
  assert.ok(isEqual(made(), made()));
  for (const [name, other] of changed) {
    assert.equal(isEqual(made(), other), false, name);
    assert.equal(isEqual(other, made()), false, name);
  }
});

test("isEqual: a key without a value is no key, and a key of the prototype is none", () => {
  assert.ok(isEqual({ a: 1, b: undefined }, { a: 1 }));
  assert.ok(isEqual({ a: 1 }, { a: 1, b: undefined }));
  assert.equal(isEqual({ toString: undefined, a: 1 }, { a: 2 }), false);
  assert.equal(isEqual({ toString: Object.prototype.toString }, {}), false);
  assert.ok(isEqual(Object.assign(Object.create(null), { a: 1 }), { a: 1 }));
});

test("isEqual: addresses are compared by their text, bytes by content, and other objects with private fields by identity", () => {
  const [one, other] = [IpAddress.parse("192.0.2.1"), IpAddress.parse("192.0.2.2")];
  assert.ok(isEqual({ address: one }, { address: IpAddress.parse("192.0.2.1") }));
  assert.equal(isEqual({ address: one }, { address: other }), false);
  assert.ok(isEqual(Buffer.from("ab"), Buffer.from("ab")));
  assert.ok(isEqual(new Uint8Array([1, 2]), new Uint8Array([1, 2])));
  assert.equal(isEqual(new Uint8Array([1, 2]), new Uint8Array([1, 3])), false);
  assert.equal(isEqual(Buffer.from("ab"), Buffer.from("ac")), false);
  class Closed {
    readonly #value: number;
    constructor(value: number) {
      this.#value = value;
    }
    get value(): number {
      return this.#value;
    }
  }
  const closed = new Closed(1);
  assert.ok(isEqual([closed], [closed]));
  assert.equal(isEqual([closed], [new Closed(1)]), false);
});
