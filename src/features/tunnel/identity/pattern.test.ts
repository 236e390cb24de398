import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fillTemplate, matchPattern, type PatternMatch, parsePattern, parseTemplate } from "./pattern.ts";

function match(pattern: string, text: string): PatternMatch {
  const parsed = parsePattern(pattern);
  assert.ok(!("fault" in parsed), pattern);
  return matchPattern(parsed, text);
}

test("matchPattern: {name} stands for one name, * for any text that is not empty, everything else for itself", () => {
  const cases: readonly (readonly [string, string, string | true | undefined])[] = [
    ["system:node:{name}", "system:node:n1", "n1"],
    ["system:node:{name}", "system:node:", undefined],
    ["system:node:{name}", "system:node:n1 ", undefined],
    ["system:node:{name}", "system:node:*", undefined],
    ["system:node:{name}", "system:node:{name}", undefined],
    ["system:node:{name}", "system:node:-a", undefined],
    ["system:node:{name}", "xsystem:node:n1", undefined],
    ["spiffe://a/node/{name}/agent", "spiffe://a/node/n.1_x-y/agent", "n.1_x-y"],
    ["spiffe://a/node/{name}/agent", "spiffe://a/node/n1/x/agent", undefined],
    ["spiffe://a/node/{name}/agent", "spiffe://a/node/agent", undefined],
    ["{name}", "a".repeat(253), "a".repeat(253)],
    ["{name}", "a".repeat(254), undefined],
    ["agent-*", "agent-x/y z", true],
    ["agent-*", "agent-", undefined],
    ["a*a", "a", undefined],
    ["a*a", "aa", undefined],
    ["agents", "agents", true],
    ["agents", "Agents", undefined],
    ["a.b", "axb", undefined],
  ];
  for (const [pattern, text, expected] of cases) {
    const found = match(pattern, text);
    const outcome = found.kind === "no" ? undefined : (found.name ?? true);
    assert.equal(outcome, expected, `${pattern} ~ ${text}`);
  }
});

test("parsePattern, parseTemplate: two open parts, other braces, an empty text and {name} from nowhere are faults", () => {
  for (const text of ["", "{name}{name}", "{name}*", "**", "{node}", "a{", "a}", "x".repeat(513)]) {
    assert.ok("fault" in parsePattern(text), text);
  }
  for (const text of ["", "*{name}*", "{x}"]) assert.notEqual(typeof parseTemplate(text, { hasName: true }), "string");
  assert.equal(parseTemplate("{name}-{name}-*", { hasName: true }), "{name}-{name}-*");
  assert.notEqual(typeof parseTemplate("{name}", { hasName: false }), "string");
});

test("matchPattern: what a pattern captures gives the text again, for any texts", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (pattern, text) => {
      const parsed = parsePattern(pattern);
      if ("fault" in parsed) return;
      const found = matchPattern(parsed, text);
      if (found.kind === "no" || parsed.open !== "name") return;
      assert.equal(`${parsed.prefix}${found.name}${parsed.suffix}`, text);
      const again = fillTemplate(pattern, found.name);
      assert.deepEqual([again.prefix, again.open], [text, undefined]);
    }),
  );
  const piece = fc.constantFrom("a", "b", "*", "{name}", ".", "ab");
  const texts = fc.array(piece, { maxLength: 5 }).map((pieces) => pieces.join(""));
  fc.assert(
    fc.property(texts, texts, (pattern, text) => {
      const parsed = parsePattern(pattern);
      if ("fault" in parsed) return;
      const naive = pattern.replaceAll(".", "\\.").replace("*", ".+").replace("{name}", "[a-z0-9][-a-z0-9._]*");
      assert.equal(
        matchPattern(parsed, text).kind === "yes",
        new RegExp(`^(?:${naive})$`).test(text),
        `${pattern} ~ ${text}`,
      );
    }),
  );
});
