import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { faultAt, faultsText, parseYaml, parseYamlStream, YamlError } from "./index.ts";

/** The faults of a text, a line each. */
function faultsOf(text: string, options?: Parameters<typeof parseYaml>[1]): readonly string[] {
  try {
    parseYaml(text, options);
  } catch (error) {
    assert.ok(error instanceof YamlError);
    return error.faults.map(({ line, message }) => `${line}: ${message}`);
  }
  return [];
}

test("parseYaml: values of YAML and JSON, with the line of each value or of the nearest one above", () => {
  const document = parseYaml("a:\n  - x: 1\n    y: two\n\nb: {c: true}\n");
  assert.deepEqual(document.value, { a: [{ x: 1, y: "two" }], b: { c: true } });
  assert.deepEqual(
    [["a", 0, "y"], ["b", "c"], ["b", "absent", "deep"], ["absent"], []].map((path) => document.lineOf(path)),
    [3, 5, 5, 1, 1],
  );
  assert.deepEqual(parseYaml('{"a": [1, null]}').value, { a: [1, null] });
  assert.equal(parseYaml("").value, null);
});

test("parseYaml: every fault of the syntax has its line", () => {
  assert.match(faultsOf("a: 1\nb: [1, 2\n").join(), /^\d: /);
  assert.match(faultsOf("a: 1\na: 2\n").join(), /^2: Map keys must be unique/);
  assert.deepEqual(faultsOf("a: 1\na: 2\n", { uniqueKeys: false }), []);
});

test("parseYaml: aliases are refused unless they are allowed, and each needs its anchor", () => {
  const text = "a: &x [1]\nb: *x\n";
  assert.deepEqual(faultsOf(text), ["2: anchors and aliases are not supported: write the value in each place"]);
  assert.deepEqual(parseYaml(text, { aliases: true }).value, { a: [1], b: [1] });
  assert.match(
    faultsOf("a: *y\n", { aliases: true }).join(),
    /^1: there is no anchor for \*y; a name with a \* needs quotes$/,
  );
});

test("parseYaml: a plain text has no anchors, tags and directives, and no value of YAML 1.1", () => {
  const faults = (text: string) => faultsOf(text, { plain: true });
  assert.deepEqual(faults("a: &x 1\n"), ["1: anchors are not supported: remove &x"]);
  assert.deepEqual(faults("a: 1\nb: !!str 5\n"), ["2: tags are not supported: remove tag:yaml.org,2002:str"]);
  assert.deepEqual(faults("- ! 5\n- !own {a: 1}\n"), [
    "1: tags are not supported: remove !",
    "2: tags are not supported: remove !own",
  ]);
  assert.deepEqual(faults("%YAML 1.1\n---\na: yes\n"), ["1: directives are not supported"]);
  assert.deepEqual(faults("%TAG ! tag:x,2000:\n---\na: 1\n"), ["1: directives are not supported"]);
  assert.deepEqual(faults("a: 1\n---\nb: 2\n"), ["2: there are several documents, and only one is expected"]);
  for (const deep of ["[", "{a: ", "- ", "? "]) {
    assert.deepEqual(faults(`#\n${deep.repeat(50_000)}`), [
      "2: there are more than 32 lists and mappings in each other",
    ]);
  }
  const flat = `[${"{a: [], b: '[[[[', c: ----, d: [[]]}, ".repeat(100)}]`;
  assert.deepEqual([faults(flat), faults("- a: x - - - ? - [ {\n".repeat(40))], [[], []]);
  assert.deepEqual(parseYaml("", { plain: true }).value, null);
  const { value } = parseYaml("a: yes\nb: 1:20:30\nc: {<<: {d: 1}}\n", { plain: true });
  assert.deepEqual(value, { a: "yes", b: "1:20:30", c: { "<<": { d: 1 } } });
});

test("parseYamlStream: each document has its value and the lines of the whole text; one with faults spoils no other", () => {
  const documents = parseYamlStream("a: 1\n---\nb: [1\n---\n# nothing\n---\nc: {d: 2}\n");
  const [first, second, third, fourth] = documents;
  assert.equal(documents.length, 4);
  assert.ok(first !== undefined && "value" in first && third !== undefined && "value" in third);
  assert.deepEqual([first.value, third.value], [{ a: 1 }, null]);
  assert.ok(second instanceof YamlError && (second.faults[0]?.line ?? 0) >= 3, String(second));
  assert.ok(fourth !== undefined && "value" in fourth);
  assert.deepEqual([fourth.value, fourth.lineOf(["c", "d"])], [{ c: { d: 2 } }, 7]);
  assert.deepEqual(parseYamlStream(""), []);
});

test("parseYaml: any text is a document or a YamlError (fuzz)", () => {
  const piece = fc.constantFrom(
    "a",
    ":",
    " ",
    "\n",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "&x ",
    "*x",
    '"',
    "'",
    "|",
    ">",
    "!",
    "%",
    "---",
    "\t",
    ",",
    "?",
    "<<",
    "!!binary ",
    "!!set ",
    "!!omap ",
    "!!timestamp ",
    "2026-01-01",
    "1:30",
    "yes",
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(piece, { maxLength: 30 }).map((all) => all.join("")),
      ),
      fc.boolean(),
      fc.constantFrom("1.1", "1.2"),
      (text, aliases, version) => {
        faultsOf(text, { aliases, plain: !aliases, version });
        parseYamlStream(text, { aliases });
      },
    ),
    { numRuns: 2000 },
  );
});

test("faultAt, faultsText: faults are in the order of lines, with the path of the value; those beyond five are counted", () => {
  const document = parseYaml("a:\n  - b: 1\n  - b: 2\n");
  const faults = [faultAt(["a", 1, "b"], "is no name", document), faultAt(["a", 0], "is no list", document)];
  assert.equal(faultsText(faults, "f"), "f:2: a[0] is no list; f:3: a[1].b is no name");
  assert.match(faultsText([faultAt([], "is empty", document)], "f"), /^f:1: the file is empty$/);
  const many = Array.from({ length: 7 }, (_, line) => ({ line, message: "x" }));
  assert.match(faultsText(many, "f"), /f:4: x; and 2 other faults$/);
});

test("parseYaml: with version 1.1 words of yes and no are booleans, unless they are quoted, and times and << are texts", () => {
  const text = 'a: [yes, "yes", NO, off, n, 2026-01-01, 1:30, 010]\n<<: b\n';
  assert.deepEqual(parseYaml(text, { version: "1.1" }).value, {
    a: [true, "yes", false, false, false, "2026-01-01", "1:30", 8],
    "<<": "b",
  });
  assert.deepEqual(parseYaml("a: [yes, n]").value, { a: ["yes", "n"] });
});
