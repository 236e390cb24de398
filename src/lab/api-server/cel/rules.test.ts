import assert from "node:assert/strict";
import { test } from "node:test";
import type { JsonObject } from "../object/json.ts";
import type { Schema } from "../schema/schema.ts";
import { checkRules, compileRules } from "./index.ts";

interface Said {
  readonly faults: string[];
  readonly warnings: string[];
}

/** Faults of an object by the rules of `spec`, as `field: message`. */
function judge(spec: Schema, object: JsonObject, old?: JsonObject): Said {
  const { rules, causes } = compileRules({ type: "object", properties: { spec } }, "schema");
  assert.deepEqual(causes, []);
  assert.ok(rules !== undefined);
  const warnings: string[] = [];
  const wrap = (value: JsonObject): JsonObject => ({ metadata: { name: "x" }, spec: value });
  const found = checkRules(rules, wrap(object), old === undefined ? undefined : wrap(old), (text) =>
    warnings.push(text),
  );
  return { faults: found.map(({ field, message }) => `${field}: ${message}`), warnings };
}

/** Faults of rules, as `field: message`. */
function faultsOf(spec: Schema): string[] {
  const { causes } = compileRules({ type: "object", properties: { spec } }, "schema");
  return causes.map(({ field, message }) => `${field.replace("schema.properties[spec]", "")}: ${message}`);
}

const NUMBER: Schema = { type: "integer" };

test("rules: a rule with oldSelf does not run on create or without an old value; with optionalOldSelf it does", () => {
  const plain: Schema = {
    type: "object",
    properties: { n: { ...NUMBER, "x-kubernetes-validations": [{ rule: "self >= oldSelf", message: "grows" }] } },
  };
  assert.deepEqual(judge(plain, { n: 1 }).faults, []);
  assert.deepEqual(judge(plain, { n: 1 }, {}).faults, []);
  assert.deepEqual(judge(plain, { n: 1 }, { n: 2 }).faults, ["spec.n: Invalid value: 1: grows"]);
  const rule = "oldSelf.hasValue() ? self > oldSelf.value() : self == 0";
  const optional: Schema = {
    type: "object",
    properties: {
      n: { ...NUMBER, "x-kubernetes-validations": [{ rule, message: "from 0 upwards", optionalOldSelf: true }] },
    },
  };
  assert.deepEqual(judge(optional, { n: 1 }).faults, ["spec.n: Invalid value: 1: from 0 upwards"]);
  assert.deepEqual(judge(optional, { n: 0 }).faults, []);
  assert.deepEqual(judge(optional, { n: 1 }, { n: 0 }).faults, []);
  assert.deepEqual(judge(optional, { n: 0 }, { n: 0 }).faults, ["spec.n: Invalid value: 0: from 0 upwards"]);
});

test("rules: message, messageExpression, reason and fieldPath make the error", () => {
  const said = (rule: JsonObject): string[] =>
    judge(
      {
        type: "object",
        properties: { n: NUMBER, m: { type: "object", properties: { k: NUMBER } } },
        "x-kubernetes-validations": [{ rule: "self.n > 5", ...rule }],
      },
      { n: 1 },
    ).faults;
  assert.deepEqual(said({}), ["spec: Invalid value: failed rule: self.n > 5"]);
  assert.deepEqual(said({ message: " too small " }), ["spec: Invalid value: too small"]);
  const messageExpression = "string(self.n) + ' is too small'";
  assert.deepEqual(said({ message: "m", messageExpression }), ["spec: Invalid value: 1 is too small"]);
  for (const useless of ["self.m.k == 1 ? 'a' : 'b'", "' '", "'a\\nb'"]) {
    assert.deepEqual(said({ message: "m", messageExpression: useless }), ["spec: Invalid value: m"], useless);
  }
  assert.deepEqual(said({ message: "m", reason: "FieldValueForbidden" }), ["spec: Forbidden: m"]);
  assert.deepEqual(said({ message: "m", reason: "FieldValueRequired" }), ["spec: Required value: m"]);
  assert.deepEqual(said({ message: "m", reason: "FieldValueDuplicate" }), ["spec: Duplicate value"]);
  assert.deepEqual(said({ message: "m", fieldPath: ".m.k" }), ["spec.m.k: Invalid value: m"]);
});

test("rules: a fault of an unchanged part is a warning, a failed evaluation is not", () => {
  const spec: Schema = {
    type: "object",
    properties: {
      n: { ...NUMBER, "x-kubernetes-validations": [{ rule: "self < 5", message: "small" }] },
      m: NUMBER,
      list: {
        type: "array",
        items: {
          type: "object",
          properties: { k: NUMBER },
          "x-kubernetes-validations": [{ rule: "has(self.k)", message: "k" }],
        },
      },
      rows: {
        type: "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        items: {
          type: "object",
          properties: { k: NUMBER, v: NUMBER },
          "x-kubernetes-validations": [{ rule: "self.v < 5", message: "small v" }],
        },
      },
    },
  };
  const old = { n: 9, list: [{}], rows: [{ k: 1, v: 9 }] };
  const small = "spec.n: Invalid value: 9: small";
  assert.deepEqual(judge(spec, { ...old, m: 1 }, old), {
    faults: [],
    warnings: [small, "spec.list[0]: Invalid value: k", "spec.rows[0]: Invalid value: small v"],
  });
  assert.deepEqual(judge(spec, { ...old, list: [{}, { k: 1 }] }, old).faults, ["spec.list[0]: Invalid value: k"]);
  const moved = [{ k: 2, v: 1 }, ...old.rows];
  assert.deepEqual(judge(spec, { ...old, rows: moved }, old).faults, []);
  assert.deepEqual(judge(spec, { ...old, rows: [{ k: 1, v: 8 }] }, old).faults, [
    "spec.rows[0]: Invalid value: small v",
  ]);
  const failing: Schema = {
    type: "object",
    properties: { n: NUMBER },
    "x-kubernetes-validations": [{ rule: "self.n > 1", message: "m" }],
  };
  const fault = 'spec: Invalid value: "object": no such key: n evaluating rule: m';
  assert.deepEqual(judge(failing, {}, {}).faults, [fault]);
});

test("rules: the work of all rules for an object is bounded", () => {
  const digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
  const rule = ["a", "b", "c", "d", "e", "f"].reduce((inner, name) => `${digits}.all(${name}, ${inner})`, "true");
  const spec: Schema = {
    type: "object",
    "x-kubernetes-validations": [
      { rule, message: "much" },
      { rule: "false", message: "never run" },
    ],
  };
  const why =
    "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: much";
  assert.deepEqual(judge(spec, {}).faults, [`spec: Invalid value: "object": ${why}`]);
});

test("rules: each fault of a rule has its path in the CRD", () => {
  const at = ".x-kubernetes-validations[0]";
  const of = (rule: JsonObject): string[] =>
    faultsOf({ type: "object", properties: { n: NUMBER }, "x-kubernetes-validations": [rule] });
  assert.deepEqual(of({}), [`${at}.rule: Required value: rule is not specified`]);
  assert.match(
    of({ rule: "self.n" })[0] ?? "",
    /\.rule: Invalid value: \{"Rule":"self\.n".*\}: cel expression must evaluate to a bool$/,
  );
  assert.match(of({ rule: "self.m > 1" })[0] ?? "", /: compilation failed: ERROR: <input>:1:5: undefined field 'm'\n/);
  assert.match(of({ rule: "true", messageExpression: "1" })[0] ?? "", /messageExpression must evaluate to a string$/);
  assert.match(of({ rule: "true", messageExpression: "x" })[0] ?? "", /messageExpression compilation failed: ERROR/);
  assert.deepEqual(of({ rule: "true", message: " " }), [
    `${at}.message: Invalid value: " ": must be non-empty if specified`,
  ]);
  assert.deepEqual(of({ rule: "true &&\ntrue" }), [
    `${at}.message: Required value: message must be specified if rule contains line breaks`,
  ]);
  assert.match(of({ rule: "true", reason: "Bad" })[0] ?? "", /\.reason: Unsupported value: "Bad": supported values: /);
  assert.deepEqual(of({ rule: "true", fieldPath: ".m" }), [
    `${at}.fieldPath: Invalid value: ".m": must be a valid path`,
  ]);
  assert.deepEqual(of({ rule: "true", optionalOldSelf: true }), [
    `${at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule`,
  ]);
  const items: Schema = { ...NUMBER, "x-kubernetes-validations": [{ rule: "self == oldSelf" }] };
  assert.deepEqual(faultsOf({ type: "array", items }), [
    `.items${at}.rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within schema.properties[spec]`,
  ]);
});
