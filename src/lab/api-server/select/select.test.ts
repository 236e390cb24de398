import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ApiError } from "../errors.ts";
import { checkFieldSelector, matchesFields, parseFieldSelector } from "./field.ts";
import { matchesLabels, parseLabelSelector } from "./label.ts";
import { selectorMatches } from "./selector-object.ts";

const labels = { app: "web", tier: "front", weight: "12" };

test("label selectors: every operator of the syntax is understood", () => {
  const yes = [
    "",
    "app",
    "app=web",
    "app==web",
    "app!=db",
    "app in (db, web)",
    "app notin (db)",
    "!missing",
    "missing!=x",
    "weight>10",
    "weight<13",
    "app,tier in (front),!x",
  ];
  const no = [
    "app=db",
    "missing",
    "!app",
    "app notin (web,db)",
    "missing in (x)",
    "weight>12",
    "missing<3",
    "app,missing",
  ];
  for (const text of yes) assert.equal(matchesLabels(parseLabelSelector(text), labels), true, text);
  for (const text of no) assert.equal(matchesLabels(parseLabelSelector(text), labels), false, text);
});

test("label selectors: an object without labels matches only requirements of absence", () => {
  assert.equal(matchesLabels(parseLabelSelector("!app"), undefined), true);
  assert.equal(matchesLabels(parseLabelSelector("app"), undefined), false);
  assert.equal(matchesLabels(parseLabelSelector("constructor"), {}), false);
});

test("label selectors: malformed text is a BadRequest", () => {
  for (const text of ["a b", "=x", "a in x", "a=b c", "a>x", "-a", `a=${"x".repeat(64)}`, "a in (", ",", "a,,b"]) {
    assert.throws(
      () => parseLabelSelector(text),
      (error) => error instanceof ApiError && error.code === "BadRequest",
      text,
    );
  }
});

test("label selectors: nothing but ApiError escapes the parser", () => {
  const text = fc.oneof(
    fc.string(),
    fc.stringMatching(/^[a-z!=<>, ()/.-]{0,40}$/),
    fc.constantFrom("a in (b", "a notin ()", "!!a"),
  );
  fc.assert(fc.property(text, (input) => onlyApiError(() => matchesLabels(parseLabelSelector(input), labels))));
});

test("field selectors: equality and inequality on nested fields, absent fields are empty", () => {
  const pod = { metadata: { name: "a" }, spec: { nodeName: "n1", hostNetwork: true } };
  for (const text of [
    "metadata.name=a",
    "spec.nodeName==n1,metadata.name!=b",
    "status.phase=",
    "spec.hostNetwork=true",
  ]) {
    assert.equal(matchesFields(parseFieldSelector(text), pod), true, text);
  }
  assert.equal(matchesFields(parseFieldSelector("spec.nodeName="), pod), false);
});

test("field selectors: a backslash escapes a comma and an equals sign", () => {
  assert.deepEqual(parseFieldSelector("a=x\\,y\\=z"), [{ field: "a", equal: true, value: "x,y=z" }]);
  assert.throws(() => parseFieldSelector("a=x=y"), ApiError);
});

test("field selectors: a field that is not selectable is refused", () => {
  const plain = { selectableFields: new Set<string>(), custom: false };
  const own = { selectableFields: new Set(["status.phase"]), custom: false };
  const selector = parseFieldSelector("spec.x=1");
  assert.throws(() => checkFieldSelector(selector, own), /field label not supported: spec\.x/);
  assert.throws(() => checkFieldSelector(selector, { ...plain, custom: true }), /field label not supported: spec\.x/);
  assert.throws(() => checkFieldSelector(selector, plain), {
    message: '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
  });
  checkFieldSelector(parseFieldSelector("metadata.namespace=x,status.phase=y"), own);
});

test("field selectors: nothing but ApiError escapes the parser", () => {
  fc.assert(
    fc.property(fc.string(), (input) => onlyApiError(() => matchesFields(parseFieldSelector(input), { a: 1 }))),
  );
});

test("selector objects: absent selects nothing, empty everything, expressions as named", () => {
  assert.equal(selectorMatches(undefined, labels), false);
  assert.equal(selectorMatches({}, labels), true);
  assert.equal(
    selectorMatches(
      { matchLabels: { app: "web" }, matchExpressions: [{ key: "tier", operator: "In", values: ["front"] }] },
      labels,
    ),
    true,
  );
  assert.equal(selectorMatches({ matchExpressions: [{ key: "tier", operator: "DoesNotExist" }] }, labels), false);
});

function onlyApiError(work: () => unknown): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}
