import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import type { Json } from "../object/json.ts";
import type { Schema } from "../schema/schema.ts";
import { compile } from "./compile.ts";
import { CelError } from "./errors.ts";
import { schemaType } from "./schema-type.ts";
import { T } from "./types.ts";
import { toValue, type Value } from "./value.ts";

/** Every expression here was evaluated by kube-apiserver 1.36 with this schema and object; its results are the wanted ones. */
const SCHEMA: Schema = {
  type: "object",
  properties: {
    s: { type: "string" },
    opt: { type: "string" },
    i: { type: "integer" },
    d: { type: "number" },
    b: { type: "boolean" },
    ios: { "x-kubernetes-int-or-string": true },
    list: { type: "array", items: { type: "string" } },
    ints: { type: "array", items: { type: "integer" } },
    objs: {
      type: "array",
      items: { type: "object", properties: { a: { type: "string" }, b: { type: "integer" } } },
    },
    map: { type: "object", additionalProperties: { type: "string" } },
    obj: {
      type: "object",
      properties: { a: { type: "string" }, "x-y": { type: "string" }, namespace: { type: "string" } },
    },
    at: { type: "string", format: "date-time" },
    dur: { type: "string", format: "duration" },
    bytes: { type: "string", format: "byte" },
    nul: { type: "string", nullable: true },
    free: {
      type: "object",
      "x-kubernetes-preserve-unknown-fields": true,
      properties: { k: { type: "string" } },
    },
  },
};

const OBJECT: Json = {
  s: "abc",
  i: 5,
  d: 1.5,
  b: true,
  ios: "25%",
  list: ["x", "y"],
  ints: [1, 2, 3],
  objs: [{ a: "q", b: 1 }, { b: 3 }],
  map: { k: "v" },
  obj: { a: "A", "x-y": "B", namespace: "C" },
  at: "2024-01-01T00:00:00Z",
  dur: "1h30m",
  bytes: "YWJj",
  nul: null,
  free: { k: "z", other: "o" },
};

const TYPE = schemaType(SCHEMA, "selfType", false) ?? T.dyn;
const SCOPE = new Map([["self", TYPE]]);

function resultOf(source: string): Value {
  return compile(source, SCOPE).run(new Map([["self", toValue(OBJECT, TYPE)]]), { left: 1_000_000 });
}

function errorOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof CelError, String(error));
    return error.message;
  }
  return "";
}

const TRUE = String.raw`
self.i == 5
self.i < 5.5
self.i + 1 == 6
-self.i == -5 && - 5 == -self.i
-9223372036854775808 < 0 && 0x10 == 16 && 1e3 == 1000.0 && .5 == 0.5
self.d == 1.5 && self.d > 1
has(self.s) && !has(self.opt)
has(self.objs[0].a) && !has(self.objs[1].a)
self.s == r'abc' && self.s == """abc""" && "\x61\u0062\143" == self.s
self.s.size() == 3 && size(self.s) == 3
self.s.contains("b") && self.s.startsWith("a") && self.s.endsWith("c")
self.s.matches("^[a-c]+$")
self.s.split("b") == ["a", "c"] && self.s.split("") == ["a", "b", "c"] && self.s.split("b", 1) == ["abc"]
self.s.split("b", 0) == []
self.s.substring(1) == "bc" && self.s.substring(1, 2) == "b"
self.s.indexOf("c") == 2 && self.s.lastIndexOf("a") == 0 && self.s.indexOf("z") == -1
self.s.indexOf("") == 0 && self.s.lastIndexOf("") == 3
self.s.replace("b", "x") == "axc" && self.s.replace("", "-") == "-a-b-c-" && self.s.replace("b", "x", 0) == "abc"
self.s.upperAscii() == "ABC" && " a ".trim() == "a" && self.s.charAt(1) == "b" && self.s.charAt(3) == ""
self.s.find("b.") == "bc" && self.s.find("z") == "" && self.s.findAll("[ac]") == ["a", "c"]
self.list.join(",") == "x,y"
self.ints.sum() == 6 && self.ints.min() == 1 && self.ints.max() == 3 && self.ints.isSorted() && self.ints.indexOf(2) == 1
[1].min() == 1 && [1.5].sum() == 1.5
{"a": 1}.size() == 1 && {"a": 1}["a"] == 1 && {"a": 1}.a == 1
"x" in self.list && !("z" in self.list) && "k" in self.map
self.map.k == "v" && self.map["k"] == "v" && has(self.map.k) && !has(self.map.z)
self.map.all(k, self.map[k] == "v")
self.list.exists(x, x == "y") && self.list.exists_one(x, x == "y")
self.list.map(x, x + "1") == ["x1", "y1"] && self.list.filter(x, x == "y") == ["y"] && self.list.map(x, x == "y", x + x) == ["yy"]
self.list.exists(x, x == "x" || self.list[7] == x)
self.objs.all(o, has(o.a) || has(o.b))
self.objs[0] == self.objs[0] && self.objs[0] != self.objs[1]
self == self
self.obj.a == "A" && self.obj.x__dash__y == "B" && self.obj.__namespace__ == "C" && self.obj.namespace == "C"
null == null
type(self.ios) == string && self.ios == "25%"
type(self.ios) == int ? self.ios > 0 : self.ios.endsWith("%")
type(self.i) == int && type(self.list) == list && type(null) == null_type && type(int) == type
true || self.list[9] == "x"
self.list[9] == "x" || true
!(self.list[9] == "x" && false)
self.at < timestamp("2025-01-01T00:00:00.5Z") && self.at - self.at == duration("0s") && self.at + duration("1h") > self.at
self.dur == duration("90m") && self.dur > duration("1h")
self.bytes == b"abc" && self.bytes.size() == 3
int("5") == 5 && int(5.9) == 5 && double("1.5") == 1.5 && string(5) == "5" && bool("true") && string(1.5) == "1.5"
dyn(self.i) == 5.0 && dyn(self.i) != "x"
"b" > "a" && true > false && 1 < 2 && 2.0 >= 2.0 && 1 < 1.5
self.free.k == "z"
self.?s.orValue("") == "abc" && self.?opt.orValue("d") == "d" && !self.?opt.hasValue() && self.?s.value() == "abc"
self.list[?0].orValue("") == "x" && !self.list[?9].hasValue()
self.?obj.a.orValue("") == "A"
self.?opt.or(self.?s).value() == "abc"
1 - 2 - 3 == -4
2 + 3 * 4 == 14 && (2 + 3) * 4 == 20 && 7 / 2 == 3 && -7 / 2 == -3 && 7 % 3 == 1 && -7 % 3 == -1
[[1]] == [[1]] && [[]] == [[]] && [] == [] && [1] + [2] == [1,2] && [] + [1] == [1]
"é".size() == 1 && "😀b".indexOf("b") == 1 && "😀b".substring(1) == "b"
[1,2,3,].size() == 3 && {"a":1,}.size() == 1
self.list.all(self, self == "x" || self == "y")
b"a" + b"b" == b"ab" && string(b"ab") == "ab"
true ? true : false // and a comment
`;

for (const source of TRUE.trim().split("\n")) test(`cel: ${source}`, () => assert.equal(resultOf(source), true));

const NOT_COMPILED: readonly [string, string][] = [
  ["self.nope == 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"],
  ["has(self.nope)", "undefined field 'nope'"],
  ["self.free.other == 'z'", "undefined field 'other'"],
  ["nope == 1", "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')"],
  ["foo(self.s)", "undeclared reference to 'foo' (in container '')"],
  ['self.i == "x"', "found no matching overload for '_==_' applied to '(int, string)'"],
  ["self.i == 5.0", "found no matching overload for '_==_' applied to '(int, double)'"],
  ["self.objs[0] == self.obj", "found no matching overload for '_==_' applied to '(selfType.objs.@idx, selfType.obj)'"],
  ["self.s == null", "found no matching overload for '_==_' applied to '(string, null)'"],
  ["self.s.contains(1)", "found no matching overload for 'contains' applied to 'string.(int)'"],
  ["self.i.size() == 1", "found no matching overload for 'size' applied to 'int.()'"],
  ["1 in self.list", "found no matching overload for '@in' applied to '(int, list(string))'"],
  ["!self.i", "found no matching overload for '!_' applied to '(int)'"],
  ["self.list.all(x, 1)", "ERROR: <input>:1:18: expected type 'bool' but found 'int'"],
  ["self.b || self.i", "expected type 'bool' but found 'int'"],
  ["[1, 'a'].size() == 2", "expected type 'int' but found 'string'"],
  ["self.s.matches('[')", "ERROR: <input>:1:16: invalid matches argument"],
  ["timestamp('x') == self.at", "invalid timestamp argument"],
  ["int('x') == 5", "type conversion error from 'string' to 'int'"],
  ["has(self)", "invalid argument to has() macro"],
  ["1 +", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>'"],
  ["1 == 1)", "ERROR: <input>:1:7: Syntax error:"],
  ["self.s.contains('a',)", "Syntax error:"],
  ["self..s == 1", "ERROR: <input>:1:6: Syntax error:"],
  ["self.s = 'a'", "ERROR: <input>:1:8: Syntax error: token recognition error"],
  ["'\\q' == 'q'", "Syntax error: token recognition error"],
  ["9223372036854775808 > 0", "invalid int literal"],
];

for (const [source, why] of NOT_COMPILED) {
  test(`cel: ${source} does not compile`, () => {
    const message = errorOf(() => compile(source, SCOPE));
    assert.ok(message.includes(why), `${message} does not contain: ${why}`);
  });
}

const NO_VALUE: readonly [string, string][] = [
  ["self.i / 0 == 1", "division by zero"],
  ["self.i % 0 == 1", "modulus by zero"],
  ["self.i * 9223372036854775807 == 1", "integer overflow"],
  ['self.opt == ""', "no such key: opt"],
  ['self.map["z"] == "v"', "no such key: z"],
  ['self.list[5] == "y"', "index out of bounds: 5"],
  ['self.list[-1] == "y"', "index out of bounds: -1"],
  ["has(self.objs[9].a)", "index out of bounds: 9"],
  ["self.ios > 0", "no such overload"],
  ['self.b && self.nul == "x"', "no such key: nul"],
  ["self.s.substring(7) == ''", "index out of range: 7"],
  ["optional.none().value() == 1", "optional.none() dereference"],
];

for (const [source, why] of NO_VALUE) {
  test(`cel: ${source} has no value`, () =>
    assert.equal(
      errorOf(() => resultOf(source)),
      why,
    ));
}

test("cel: work is bounded, however it is nested", () => {
  const digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
  const nested = ["a", "b", "c", "d", "e", "f", "g"].reduce(
    (inner, name) => `${digits}.all(${name}, ${inner})`,
    "true",
  );
  assert.match(
    errorOf(() => resultOf(nested)),
    /actual cost limit exceeded/,
  );
  assert.match(
    errorOf(() => compile(`${"(".repeat(5000)}1${")".repeat(5000)}`, SCOPE)),
    /recursion limit/,
  );
  assert.match(
    errorOf(() => compile(`${"!".repeat(5000)}true`, SCOPE)),
    /recursion limit/,
  );
});

/** Words and signs that expressions are made of, in any order. */
const WORDS =
  "self oldSelf . .? s i list map objs ios [ [? ] ( ) { } , : ? ! - + * / % == != < <= && || in 1 0 9223372036854775807 1.5 'a' \"\" r'\\' b'x' true null has all exists map filter size x a optional of none matches split int type //".split(
    " ",
  );

test("cel: only CelError is thrown, and an expression of type bool is a bool or has no value", () => {
  const soup = fc.array(fc.constantFrom(...WORDS), { maxLength: 25 }).map((words) => words.join(" "));
  fc.assert(
    fc.property(fc.oneof(soup, fc.string(), fc.string({ unit: character })), (source) => {
      try {
        const program = compile(source, SCOPE);
        const value = program.run(new Map([["self", toValue(OBJECT, TYPE)]]), { left: 100_000 });
        if (program.type.kind === "bool") assert.equal(typeof value, "boolean");
      } catch (error) {
        if (!(error instanceof CelError)) throw error;
      }
    }),
    { numRuns: 2000 },
  );
});

/** An arithmetic or logical expression, and its value by JavaScript's own operators; undefined if there is none. */
interface Sum {
  readonly text: string;
  readonly value: bigint | undefined;
}
interface Claim {
  readonly text: string;
  readonly value: boolean | undefined;
}

const LIMIT = 2n ** 63n;

const { sum } = fc.letrec<{ sum: Sum }>((tie) => ({
  sum: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.bigInt({ min: -LIMIT, max: LIMIT - 1n }).map((value) => ({ text: `(${value})`, value })),
    fc.integer({ min: -9, max: 9 }).map((value) => ({ text: `(${value})`, value: BigInt(value) })),
    fc.tuple(tie("sum"), fc.constantFrom("+", "-", "*", "/", "%"), tie("sum")).map(([a, sign, b]) => ({
      text: `(${a.text} ${sign} ${b.text})`,
      value: compute(a.value, sign, b.value),
    })),
  ),
}));

function compute(a: bigint | undefined, sign: string, b: bigint | undefined): bigint | undefined {
  if (a === undefined || b === undefined || ((sign === "/" || sign === "%") && b === 0n)) return undefined;
  const results: Readonly<Record<string, () => bigint>> = {
    "+": () => a + b,
    "-": () => a - b,
    "*": () => a * b,
    "/": () => a / b,
    "%": () => a % b,
  };
  const value = results[sign]?.();
  return value === undefined || value < -LIMIT || value >= LIMIT ? undefined : value;
}

const { claim } = fc.letrec<{ claim: Claim }>((tie) => ({
  claim: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.tuple(sum, sum).map(
      ([a, b]): Claim => ({
        text: `${a.text} < ${b.text}`,
        value: a.value === undefined || b.value === undefined ? undefined : a.value < b.value,
      }),
    ),
    fc.tuple(tie("claim"), tie("claim"), fc.boolean()).map(([a, b, isOr]): Claim => {
      const decided = a.value === isOr || b.value === isOr;
      const unknown = a.value === undefined || b.value === undefined;
      return {
        text: `(${a.text} ${isOr ? "||" : "&&"} ${b.text})`,
        value: decided ? isOr : unknown ? undefined : !isOr,
      };
    }),
    tie("claim").map(
      ({ text, value }): Claim => ({ text: `!(${text})`, value: value === undefined ? undefined : !value }),
    ),
  ),
}));

test("cel: numbers, comparisons and logic agree with a model, errors included", () => {
  fc.assert(
    fc.property(claim, ({ text, value }) => {
      const run = (): Value => compile(text, SCOPE).run(new Map(), { left: 1_000_000 });
      if (value === undefined) assert.throws(run, { code: "evaluation" });
      else assert.equal(run(), value);
    }),
    { numRuns: 500 },
  );
});
