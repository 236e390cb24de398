import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { clone, type JsonObject } from "../object/json.ts";
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
  const cases: [JsonObject, string][] = [
    [{}, "spec.size: FieldValueRequired"],
    [{ size: 0 }, "spec.size: FieldValueInvalid"],
    [{ size: 10 }, "spec.size: FieldValueInvalid"],
    [{ size: 1.5 }, "spec.size: FieldValueTypeInvalid"],
    [{ size: 1, color: "green" }, "spec.color: FieldValueNotSupported"],
    [{ size: 1, name: "UP" }, "spec.name: FieldValueInvalid"],
    [{ size: 1, name: "toolong" }, "spec.name: FieldValueInvalid"],
    [{ size: 1, port: 1.5 }, "spec.port: FieldValueTypeInvalid"],
    [{ size: 1, open: { a: "x" } }, "spec.open.a: FieldValueTypeInvalid"],
    [{ size: 1, list: ["a", "a"] }, "spec.list[1]: FieldValueDuplicate"],
    [{ size: 1, list: ["a", "b", "c"] }, "spec.list: FieldValueInvalid"],
    [{ size: 1, name: null }, "spec.name: FieldValueTypeInvalid"],
    [{ size: 1, ip: "::1" }, "spec.ip: FieldValueInvalid"],
    [{ size: 1, either: { x: 1, y: 1 } }, "spec.either: FieldValueInvalid"],
  ];
  for (const [spec, want] of cases) assert.deepEqual(faults(spec), [want], JSON.stringify(spec));
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

test("prune, default and validate take any JSON, and what was pruned stays pruned", () => {
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
