import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import { ChartError, parseTemplate, renderParts, type Value } from "./index.ts";
import { RENDERED, RENDERED_WITH } from "./testing/rendered.ts";

const DOT: Value = { Values: RENDERED_WITH };

/** The text of a template `t`, which may define others. */
function render(text: string, dot: Value = DOT): string {
  const { parts, defined } = parseTemplate("t", text);
  return renderParts(parts, defined, dot);
}

test("templates: what is rendered is what Helm renders", () => {
  for (const [text, expected] of RENDERED) assert.equal(render(text), expected, text);
});

const REFUSED: readonly (readonly [string, RegExp])[] = [
  ["a\nb {{ .Values.name", /^t:2: \{\{ without \}\}/],
  ["{{ if .Values.on }}", /^t:1: the block has no \{\{ end \}\}/],
  ["{{ end }}", /^t:1: \{\{ end \}\} without a block/],
  ["{{ else }}", /^t:1: \{\{ else \}\} without a block/],
  ["{{ if .a }}{{ else with .b }}{{ end }}", /^t:1: \{\{ else with \}\} is not known here/],
  ['{{ template "x" }}', /^t:1: \{\{ template \}\} is not known here/],
  ["{{ $x = 3 }}", /^t:1: "= 3" is not known here/],
  ["{{ .Values.name.x }}", /^t:1: \.x is asked of what is no map/],
  ["\n\n{{ .Values.nmae }}", /^t:3: there is no \.nmae/],
  ["{{ .constructor }}", /^t:1: there is no \.constructor/],
  ["{{ $nobody }}", /^t:1: there is no variable \$nobody/],
  ["{{ sha1sum .Values.name }}", /^t:1: the function sha1sum is not known here/],
  ["{{ hasOwnProperty 1 }}", /^t:1: the function hasOwnProperty is not known here/],
  ["{{ .Values.list }}", /^t:1: a list, a map or nothing is printed/],
  ["{{ 1000000 }}", /^t:1: 1000000 is printed otherwise by Helm/],
  ["{{ .Values.name | quote 1 }}", /^t:1: the function needs one argument/],
  ["{{ eq .Values.name 1 }}", /^t:1: only two texts, or two of true and false, can be compared/],
  ["{{ eq .Values.count 3 }}", /^t:1: only two texts/],
  ['{{ include "nobody" . }}', /^t:1: nothing is defined as "nobody"/],
  ['{{ define "f" }}{{ include "f" . }}{{ end }}{{ include "f" . }}', /^t:1: more than 32 includes in each other/],
  ['{{ define "f" }}{{ end }}{{ define "f" }}{{ end }}', /^t:1: "f" is defined twice/],
  ['{{ if true }}{{ define "f" }}{{ end }}{{ end }}', /^t:1: \{\{ define \}\} within a block/],
  ['{{ fail "not so" }}', /^t:1: not so$/],
  [`{{ ${"(".repeat(100)}1${")".repeat(100)} }}`, /^t:1: more than 64 parentheses in each other/],
  [`${"{{ if true }}".repeat(100)}${"{{ end }}".repeat(100)}`, /^t:1: more than 64 blocks in each other/],
  ['{{ "a"| quote"b" }}', /^t:1: ".b"" is not known here/],
];

test("templates: what is not of the subset, or asks for what is not there, is refused with file and line", () => {
  for (const [text, message] of REFUSED)
    assert.throws(
      () => render(text),
      (error) => error instanceof ChartError && message.test(error.message),
      text,
    );
});

test("templates: a rendering that never ends is ended", () => {
  const doubled = Array.from(
    { length: 30 },
    (_, at) => `{{ define "f${at}" }}{{ include "f${at + 1}" . }}{{ include "f${at + 1}" . }}{{ end }}`,
  );
  const text = `${doubled.join("")}{{ define "f30" }}{{ end }}{{ include "f0" . }}`;
  assert.throws(() => render(text), /takes more than 1000000 steps/);
});

test("templates: of any text only a ChartError escapes", () => {
  const word = fc.constantFrom(
    ...'{{ {{- }} -}} if else end with range define include toYaml nindent quote default dict eq and or not . $ $x := , | ( ) "f" 3 true .Values .Values.map .Values.list /* */ \n x'.split(
      " ",
    ),
    " ",
  );
  const text = fc.oneof(
    fc.string({ unit: character }),
    fc.array(word, { maxLength: 40 }).map((words) => words.join(" ")),
    fc.array(word).map((words) => `{{ ${words.join(" ")} }}`),
  );
  fc.assert(
    fc.property(text, (one) => {
      try {
        assert.equal(typeof render(one), "string");
      } catch (error) {
        assert.ok(error instanceof ChartError, String(error));
      }
    }),
    { numRuns: 3000 },
  );
});
