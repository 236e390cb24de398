import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Health, readiness } from "#base/health";
import { createRegistry, Gauge } from "#base/metrics";
import { character } from "#test/characters";
import { parseExposition, sumOf } from "./exposition.ts";
import { isOurReadiness, parseReadiness } from "./readiness.ts";

test("parseExposition: reads values, labels and escapes of the wanted metrics, and nothing else", () => {
  const text = [
    "# HELP a Help.",
    "# TYPE a gauge",
    'a{pool="de\\"f\\\\ault\\n",state="used",} 5 1395066363000',
    "a 2.5e3",
    "ab 1",
    "a +Inf",
    "a{pool=} 1",
    'a{pool="x" 1',
    "a",
    "a one",
    'b{__proto__="x"} 1',
  ].join("\n");
  assert.deepEqual(
    parseExposition(text, new Set(["a", "b"])).map(({ name, labels, value }) => [name, Object.entries(labels), value]),
    [
      [
        "a",
        [
          ["pool", 'de"f\\ault\n'],
          ["state", "used"],
        ],
        5,
      ],
      ["a", [], 2500],
      ["a", [], Infinity],
      ["b", [["__proto__", "x"]], 1],
    ],
  );
});

test("parseExposition: reads what the library of all programs writes, with any labels and values", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.string(), fc.double({ noNaN: true })), { maxLength: 5 }), async (rows) => {
      const registry = createRegistry();
      const gauge = new Gauge({ name: "a", help: "x", labelNames: ["l"], registers: [registry] });
      const expected = new Map(rows.map(([l, value]) => [l, value + 0]));
      for (const [l, value] of expected) gauge.set({ l }, value);
      const found = parseExposition(await registry.metrics(), new Set(["a"]));
      assert.deepEqual(new Map(found.map(({ labels, value }) => [labels["l"], value])), expected);
    }),
    { numRuns: 50 },
  );
});

test("parseExposition, parseReadiness: no bytes make them throw, and their results are bounded", () => {
  const alphabet = fc.constantFrom(...'a{}",=\\ \n[]+-1.e#', "NaN", "\u{1f600}");
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ unit: character }),
        fc.array(alphabet).map((parts) => parts.join("")),
      ),
      (text) => {
        for (const sample of parseExposition(text, new Set(["a"]))) assert.equal(sample.name, "a");
        assert.ok(parseReadiness(text).length <= 100);
        isOurReadiness(text);
      },
    ),
  );
  assert.equal(parseExposition("a 1\n".repeat(20_000), new Set(["a"])).length, 10_000);
});

test("sumOf: adds the samples with the labels; none is undefined", () => {
  const samples = parseExposition('a{s="x",p="1"} 2\na{s="x",p="2"} 3\na{s="y"} 4', new Set(["a"]));
  assert.deepEqual([sumOf(samples, "a", { s: "x" }), sumOf(samples, "a"), sumOf(samples, "b")], [5, 9, undefined]);
});

test("parseReadiness: reads the parts that base/health writes", () => {
  const health = new Health();
  health.part("ipam").ok("3 blocks");
  health.part("socket").degraded(new Error("no API server"));
  const { text } = readiness(health, { isVerbose: true });
  assert.deepEqual(parseReadiness(text), [
    { name: "ipam", ok: true, text: "ok: 3 blocks" },
    { name: "socket", ok: false, text: "degraded: no API server" },
  ]);
  for (const [body, isOurs] of [
    [text, true],
    ["ok\n", true],
    ["ok", true],
    ["[+]agents ok\nreadyz check passed\n", true],
    ["[-]agents failed: no agents\n", true],
    ["<html>ok</html>", false],
    ["hello", false],
    ["", false],
  ] as const)
    assert.equal(isOurReadiness(body), isOurs, body);
});
