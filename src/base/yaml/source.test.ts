import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { applyEdits, parseYamlSources, parseYamlStream, YamlError } from "./index.ts";

test("parseYamlSources: the texts of all documents are the stream, and lines are those of the whole text", () => {
  const text =
    "# head\n%YAML 1.2\n---\na: 1 # one\n---\n\nb: |\n  --- no end\n  ...\n...\nc: 3\n--- {d: 4}\n---\n# nothing\n";
  const sources = parseYamlSources(text);
  assert.equal(sources.map((one) => one.text).join(""), text);
  const values = sources.map(({ document }) => (document instanceof YamlError ? undefined : document.value));
  assert.deepEqual(values, [{ a: 1 }, { b: "--- no end\n...\n" }, { c: 3 }, { d: 4 }, null]);
  const lines = sources.map(({ document }) => (document instanceof YamlError ? 0 : document.lineOf(["a"])));
  assert.deepEqual(lines.slice(0, 4), [4, 7, 11, 12]);
  assert.deepEqual(parseYamlSources(""), []);
  const [, broken] = parseYamlSources("a: 1\n---\nb: [1\n");
  assert.ok(broken?.document instanceof YamlError && (broken.document.faults[0]?.line ?? 0) >= 3);
});

test("parseYamlSources: edits keep comments and order, in flow and in block style", () => {
  const [source] = parseYamlSources("---\n# head\nb: 1 # one\na:\n- x: 1 # x\n  y: {z: 2}\n");
  const edits = [
    { path: ["b"], remove: true },
    { path: ["a", 0, "y", "w"], value: [3] },
    { path: ["c", "d"], value: 'it has "quotes"' },
  ] as const;
  assert.equal(
    source?.edited(edits),
    '---\n# head\na:\n  - x: 1 # x\n    y: { z: 2, w: [ 3 ] }\nc:\n  d: it has "quotes"\n',
  );
  assert.equal(parseYamlSources("a:\nb: 1\n")[0]?.edited([{ path: ["a", "c"], value: 2 }]), "a:\n  c: 2\nb: 1\n");
  const before = { b: 1, a: [{ x: 1, y: { z: 2 } }] };
  assert.deepEqual(applyEdits(before, edits), { a: [{ x: 1, y: { z: 2, w: [3] } }], c: { d: 'it has "quotes"' } });
  assert.deepEqual(before, { b: 1, a: [{ x: 1, y: { z: 2 } }] });
});

test("parseYamlSources: an edit of a document with aliases changes one place", () => {
  const [source] = parseYamlSources("a: &x {b: 1}\nc: *x\n", { aliases: true });
  const [edited] = parseYamlStream(source?.edited([{ path: ["c", "b"], value: 2 }]) ?? "");
  assert.ok(edited !== undefined && "value" in edited);
  assert.deepEqual(edited.value, { a: { b: 1 }, c: { b: 2 } });
  const laughs = Array.from({ length: 12 }, (_, at) => `a${at + 1}: &a${at + 1} [${`*a${at},`.repeat(9)}]\n`);
  const [bomb] = parseYamlSources(`a0: &a0 x\n${laughs.join("")}`, { aliases: true });
  assert.ok(bomb?.document instanceof YamlError && /repeat too much/.test(bomb.document.message));
});

test("parseYamlSources: tabs at the beginning of lines are two spaces where the text does not parse otherwise", () => {
  const text = "a:\n\t- b: 1\n\t  c: 2\n---\nd: |\n  x\n\n \ty\n";
  const [first, second] = parseYamlSources(text, { tabs: true });
  assert.ok(first !== undefined && !(first.document instanceof YamlError));
  assert.deepEqual(first.document.value, { a: [{ b: 1, c: 2 }] });
  assert.equal(`${first.text}${second?.text}`, text);
  assert.ok(parseYamlSources(text)[0]?.document instanceof YamlError);
});

test("parseYamlSources: of any text the parts are the text, and each is a document or a YamlError (fuzz)", () => {
  const piece = fc.constantFrom(
    "a",
    ": ",
    "\n",
    "- ",
    "{",
    "}",
    '"',
    "|\n",
    "---",
    "--- ",
    "...",
    "#",
    "%YAML 1.2\n",
    "\t",
    " ",
    "\r\n",
  );
  const text = fc.oneof(
    fc.string(),
    fc.array(piece, { maxLength: 40 }).map((all) => all.join("")),
  );
  fc.assert(
    fc.property(text, (one) => {
      assert.equal(
        parseYamlSources(one, { tabs: true })
          .map((part) => part.text)
          .join(""),
        one,
      );
    }),
    { numRuns: 2000 },
  );
});
