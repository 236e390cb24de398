import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { clone, type JsonObject } from "../object/json.ts";
import { hasFormat } from "./formats.ts";
import { applyDefaults, loadBuiltinDefinitions, prune, REF_PREFIX, type Schema, validate } from "./index.ts";

const SCHEMA: Schema = {
  type: "object",
  required: ["spec"],
  properties: {
    spec: {
      type: "object",
      required: ["size"],
      properties: {
        size: { type: "integer", minimum: 1, maximum: 9 },
        color: { type: "string", enum: ["red", "blue"], default: "red" },
        name: { type: "string", pattern: "^[a-z]+$", maxLength: 5 },
        port: { "x-kubernetes-int-or-string": true },
        free: {
          type: "object",
          "x-kubernetes-preserve-unknown-fields": true,
          properties: { known: { type: "object", properties: { a: { type: "string" } } } },
        },
        open: { type: "object", additionalProperties: { type: "integer" } },
        list: { type: "array", "x-kubernetes-list-type": "set", maxItems: 2, items: { type: "string" } },
        maybe: { type: "string", nullable: true },
        inner: { type: "object", default: {}, properties: { deep: { type: "integer", default: 3 } } },
        ip: { type: "string", format: "ipv4" },
        either: { "x-kubernetes-preserve-unknown-fields": true, oneOf: [{ required: ["x"] }, { required: ["y"] }] },
      },
    },
  },
};
const NONE = new Map<string, Schema>();

function faults(spec: JsonObject): string[] {
  return validate({ spec }, SCHEMA, NONE).map((cause) => `${cause.field}: ${cause.reason}`);
}

test("validate: a valid object has no fault", () => {
  const spec = {
    size: 1,
    color: "blue",
    name: "abc",
    port: "http",
    free: { z: [1] },
    open: { a: 1 },
    list: ["a"],
    maybe: null,
    ip: "192.0.2.1",
    either: { x: 1 },
  };
  assert.deepEqual(faults(spec), []);
});

test("validate: each rule names its field", () => {
  // Reasons are those of kube-apiserver 1.36.
  const cases: [JsonObject, ...string[]][] = [
    [{}, "spec.size: FieldValueRequired"],
    [{ size: 0 }, "spec.size: FieldValueInvalid"],
    [{ size: 10 }, "spec.size: FieldValueInvalid"],
    [{ size: 1.5 }, "spec.size: FieldValueTypeInvalid", "<nil>: FieldValueInvalid"],
    [{ size: 1, color: "green" }, "spec.color: FieldValueNotSupported"],
    [{ size: 1, name: "UP" }, "spec.name: FieldValueInvalid"],
    [{ size: 1, name: "toolong" }, "spec.name: FieldValueTooLong"],
    [{ size: 1, port: 1.5 }, "spec.port: FieldValueTypeInvalid"],
    [{ size: 1, open: { a: "x" } }, "spec.open.a: FieldValueTypeInvalid"],
    [{ size: 1, list: ["a", "a"] }, "spec.list[1]: FieldValueDuplicate"],
    [{ size: 1, list: ["a", "b", "c"] }, "spec.list: FieldValueTooMany"],
    [{ size: 1, name: null }, "spec.name: FieldValueTypeInvalid"],
    [{ size: 1, ip: "::1" }, "spec.ip: FieldValueTypeInvalid"],
    [{ size: 1, either: { x: 1, y: 1 } }, "spec.either: FieldValueInvalid"],
  ];
  for (const [spec, ...want] of cases) assert.deepEqual(faults(spec), want, JSON.stringify(spec));
});

test("defaults: absent members are filled in, nested ones too, present ones stay", () => {
  const object = { spec: { size: 1 } } as JsonObject;
  applyDefaults(object, SCHEMA, NONE);
  assert.deepEqual(object, { spec: { size: 1, color: "red", inner: { deep: 3 } } });
  const chosen = { spec: { size: 1, color: "blue", inner: { deep: 0 } } };
  applyDefaults(chosen, SCHEMA, NONE);
  assert.deepEqual(chosen, { spec: { size: 1, color: "blue", inner: { deep: 0 } } });
});

test("prune: unknown members go and are named, open places keep theirs", () => {
  const object = { spec: { size: 1, extra: 1, free: { any: 1, known: { a: "x", b: 1 } }, open: { any: 1 } } };
  assert.deepEqual(prune(object, SCHEMA, { definitions: NONE, dropNulls: false }), ["spec.extra", "spec.free.known.b"]);
  assert.deepEqual(object, { spec: { size: 1, free: { any: 1, known: { a: "x" } }, open: { any: 1 } } } as unknown);
});

test("prune, default and validate accept any JSON, and a second prune changes nothing", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom("spec", "size", "x"), fc.jsonValue()), (input) => {
      const object = clone(input as JsonObject);
      prune(object, SCHEMA, { definitions: NONE, dropNulls: true });
      assert.deepEqual(prune(object, SCHEMA, { definitions: NONE, dropNulls: true }), []);
      applyDefaults(object, SCHEMA, NONE);
      assert.ok(Array.isArray(validate(object, SCHEMA, NONE)));
    }),
  );
});

test("built-in schemas: every reference leads somewhere, and pods get their defaults", () => {
  const definitions = loadBuiltinDefinitions();
  for (const [name, schema] of definitions) {
    for (const [, target = ""] of JSON.stringify(schema).matchAll(/"#\/definitions\/([^"]+)"/g))
      assert.ok(definitions.has(target), `${name} refers to ${target}`);
  }
  const pod: JsonObject = { spec: { containers: [{ name: "a", ports: [{ containerPort: 1 }] }] } };
  applyDefaults(pod, { $ref: `${REF_PREFIX}io.k8s.api.core.v1.Pod` }, definitions);
  const spec = pod["spec"] as JsonObject;
  assert.equal(spec["restartPolicy"], "Always");
  assert.equal(spec["terminationGracePeriodSeconds"], 30);
  assert.deepEqual((spec["containers"] as JsonObject[])[0]?.["ports"], [{ containerPort: 1, protocol: "TCP" }]);
});

test("validate: unchanged values are not checked, changed ones are", () => {
  const schema: Schema = {
    type: "object",
    properties: {
      a: { type: "string", format: "cidr" },
      b: { type: "integer", maximum: 3 },
      rows: {
        type: "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        items: { type: "object", properties: { k: { type: "string" }, v: { type: "integer", maximum: 3 } } },
      },
      plain: { type: "array", items: { type: "integer", maximum: 3 } },
    },
  };
  const old = { a: "x", b: 9, rows: [{ k: "r", v: 9 }], plain: [9] };
  const fields = (object: JsonObject): string[] =>
    validate(object, schema, NONE, { custom: true, old }).map(({ field }) => field);
  assert.deepEqual(fields(old), []);
  assert.deepEqual(fields({ ...old, b: 8 }), ["b"]);
  assert.deepEqual(fields({ ...old, a: "y", b: 1 }), ["a"]);
  assert.deepEqual(
    fields({
      ...old,
      rows: [
        { k: "new", v: 1 },
        { k: "r", v: 9 },
      ],
    }),
    [],
  );
  assert.deepEqual(fields({ ...old, rows: [{ k: "r", v: 8 }] }), ["rows[0].v"]);
  assert.deepEqual(fields({ ...old, plain: [9, 1] }), ["plain[0]"], "nobody can say which item it was");
});

test("formats: the same strings are valid as in kube-apiserver", () => {
  // [format, texts that have it, texts that have not], as answered by kube-apiserver 1.36.
  const cases: [string, string[], string[]][] = [
    ["ipv4", ["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], ["1.2.3", "::1"]],
    ["ipv6", ["::1", "::ffff:1.2.3.4"], ["1.2.3.4", "fe80::1%eth0", "1::2::3"]],
    [
      "cidr",
      ["10.0.0.0/8", "10.0.0.1/8", "fd00::/64", "010.0.0.0/8", "10.0.0.0/08", "::ffff:10.0.0.0/104"],
      ["10.0.0.0/99", "10.0.0.0", "fd00::/129", "10.0.0.0/-1", "/8", "10.0.0.0/8/8"],
    ],
    [
      "mac",
      ["00:11:22:33:44:55", "0011.2233.4455", "00-11-22-33-44-55", "00:11:22:33:44:55:66:77"],
      ["00:11:22:33:44", "x"],
    ],
    ["uuid", ["123e4567-e89b-12d3-a456-426614174000", "123E4567e89b12d3a456426614174000"], ["x"]],
    [
      "date-time",
      ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123456789+01:00", "2024-01-01t00:00:00z"],
      ["2024-13-01T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00"],
    ],
    ["date", ["2024-01-01"], ["2024-1-1", "2024-02-30"]],
    ["duration", ["1h", "1h30m", "22 ns", "1.5s", "3 days"], ["5", "x"]],
    ["byte", ["YWJj"], ["YWJ", "a-_=", "x y"]],
    ["uri", ["http://a/b", "/a"], ["a", "http://a b/"]],
    ["hostname", ["a", "A", "a.example"], ["a_b", "-a", "a..b", "a.b"]],
    ["email", ["a@b", "A <a@b>"], ["a"]],
    ["isbn", ["no format that is enforced here"], []],
    ["k8s-short-name", ["a-b"], ["a.b", "A"]],
    ["k8s-long-name", ["a.b"], ["A"]],
    ["quantity", ["no format of custom resources"], []],
    ["unheard-of", ["anything"], []],
  ];
  for (const [format, good, bad] of cases) {
    for (const text of good) assert.ok(hasFormat(format, text, true), `${text} is a ${format}`);
    for (const text of bad) assert.ok(!hasFormat(format, text, true), `${text} is not a ${format}`);
  }
  assert.ok(!hasFormat("quantity", "5x", false));
});
