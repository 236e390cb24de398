import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ApiError } from "../errors.ts";
import { equal, type Json, type JsonObject } from "../object/json.ts";
import type { ManagedFieldsEntry } from "../object/meta.ts";
import { loadBuiltinDefinitions, REF_PREFIX, type Schema } from "../schema/index.ts";
import { FieldSet } from "./field-set.ts";
import { type Applied, applyConfiguration, type TypeInfo, trackUpdate } from "./index.ts";
import { decodeManaged } from "./managed-fields.ts";

const SCHEMA: Schema = {
  type: "object",
  properties: {
    metadata: {
      type: "object",
      properties: { name: { type: "string" }, labels: { type: "object", additionalProperties: { type: "string" } } },
    },
    spec: {
      type: "object",
      properties: {
        a: { type: "integer" },
        b: { type: "integer" },
        list: {
          type: "array",
          "x-kubernetes-list-type": "map",
          "x-kubernetes-list-map-keys": ["name"],
          items: { type: "object", properties: { name: { type: "string" }, v: { type: "integer" } } },
        },
        set: { type: "array", "x-kubernetes-list-type": "set", items: { type: "string" } },
        plain: { type: "array", items: { type: "integer" } },
        whole: { type: "object", "x-kubernetes-map-type": "atomic", additionalProperties: { type: "integer" } },
      },
    },
  },
};
const TYPE: TypeInfo = { schema: SCHEMA, definitions: new Map(), subject: { group: "", plural: "things" }, reset: [] };

interface State {
  readonly object: JsonObject;
  readonly managedFields: ManagedFieldsEntry[];
}

const EMPTY: State = { object: { metadata: { name: "x" } }, managedFields: [] };

function apply(state: State, manager: string, spec: JsonObject, force = false): Applied {
  const config = { metadata: { name: "x" }, spec };
  const options = {
    manager: { manager, operation: "Apply" as const, apiVersion: "v1", subresource: "" },
    time: "T",
    force,
    name: "x",
  };
  return applyConfiguration(TYPE, state.object, config, state.managedFields, options);
}

function update(state: State, manager: string, object: JsonObject): State {
  const who = { manager, operation: "Update" as const, apiVersion: "v1", subresource: "" };
  return { object, managedFields: trackUpdate(TYPE, state.object, object, state.managedFields, who, "T") };
}

function fieldsOf(state: State, manager: string): Json | undefined {
  return state.managedFields.find((entry) => entry.manager === manager)?.fieldsV1;
}

test("apply: a manager owns the fields that it applies; fields that it drops are removed", () => {
  const one = apply(EMPTY, "m", { a: 1, b: 2 });
  assert.deepEqual(fieldsOf(one, "m"), { "f:spec": { "f:a": {}, "f:b": {} } });
  assert.deepEqual(apply(one, "m", { a: 1 }).object["spec"], { a: 1 });
});

test("apply: another manager's value is a conflict with a cause for each field, the same value is shared", () => {
  const one = apply(EMPTY, "m", { a: 1, b: 2 });
  assert.throws(
    () => apply(one, "n", { a: 5, b: 6 }),
    (error) =>
      error instanceof ApiError &&
      error.code === "Conflict" &&
      error.details?.causes?.map((cause) => cause.field).join() === ".spec.a,.spec.b",
  );
  const shared = apply(one, "n", { a: 1 });
  assert.deepEqual(apply(shared, "m", { b: 2 }).object["spec"], { a: 1, b: 2 }, "the other owner still wants it");
});

test("apply: force sets the field and takes over its ownership", () => {
  const taken = apply(apply(EMPTY, "m", { a: 1, b: 2 }), "n", { a: 5 }, true);
  assert.deepEqual(taken.object["spec"], { a: 5, b: 2 });
  assert.deepEqual(fieldsOf(taken, "m"), { "f:spec": { "f:b": {} } });
});

test("apply: keyed lists are merged item by item, in the applied order", () => {
  const one = apply(EMPTY, "m", { list: [{ name: "a", v: 1 }] });
  const two = apply(one, "n", { list: [{ name: "b", v: 2 }] });
  assert.deepEqual(two.object["spec"], {
    list: [
      { name: "a", v: 1 },
      { name: "b", v: 2 },
    ],
  });
  assert.deepEqual(fieldsOf(two, "n"), {
    "f:spec": { "f:list": { 'k:{"name":"b"}': { ".": {}, "f:name": {}, "f:v": {} } } },
  });
  assert.deepEqual(apply(two, "m", { list: [] }).object["spec"], { list: [{ name: "b", v: 2 }] });
});

test("apply: sets are united, plain lists and atomic maps are one value", () => {
  const one = apply(EMPTY, "m", { set: ["x"], plain: [1], whole: { p: 1 } });
  const two = apply(one, "n", { set: ["y"] });
  assert.deepEqual((two.object["spec"] as JsonObject)["set"], ["x", "y"]);
  assert.throws(() => apply(two, "n", { plain: [1, 2] }), /conflict with "m": \.spec\.plain/);
  assert.throws(() => apply(two, "n", { whole: { q: 1 } }), /\.spec\.whole/);
});

test("apply: fields written by an update conflict until they are given up", () => {
  const updated = update(EMPTY, "editor", { metadata: { name: "x" }, spec: { a: 7 } });
  assert.throws(() => apply(updated, "m", { a: 1 }), /conflict with "editor" using v1 at T: \.spec\.a/);
  const removed = update(updated, "other", { metadata: { name: "x" } });
  assert.equal(fieldsOf(removed, "editor"), undefined);
  assert.deepEqual(apply(removed, "m", { a: 1 }).object["spec"], { a: 1 });
});

test("apply: the fields of an object without managers belong to before-first-apply", () => {
  const live: State = { object: { metadata: { name: "x" }, spec: { a: 1 } }, managedFields: [] };
  assert.throws(() => apply(live, "m", { a: 2 }), /before-first-apply/);
});

test("apply: ports without a protocol are the same port as with its default", () => {
  const definitions = loadBuiltinDefinitions();
  const type: TypeInfo = { ...TYPE, schema: { $ref: `${REF_PREFIX}io.k8s.api.core.v1.Service` }, definitions };
  const live = { metadata: { name: "x" }, spec: { ports: [{ port: 80, protocol: "TCP", targetPort: 80 }] } };
  const config = { metadata: { name: "x" }, spec: { ports: [{ port: 80, name: "http" }] } };
  const options = {
    manager: { manager: "m", operation: "Apply" as const, apiVersion: "v1", subresource: "" },
    time: "T",
    force: true,
    name: "x",
  };
  const { object } = applyConfiguration(type, live, config, [], options);
  assert.deepEqual(object["spec"], { ports: [{ port: 80, protocol: "TCP", targetPort: 80, name: "http" }] });
});

const spec = fc.record(
  {
    a: fc.integer({ min: 0, max: 2 }),
    b: fc.integer({ min: 0, max: 2 }),
    list: fc.uniqueArray(
      fc.record(
        { name: fc.constantFrom("p", "q", "r"), v: fc.integer({ min: 0, max: 2 }) },
        { requiredKeys: ["name"] },
      ),
      { selector: (item) => item.name },
    ),
    set: fc.uniqueArray(fc.constantFrom("x", "y", "z")),
    plain: fc.array(fc.integer({ min: 0, max: 2 })),
    whole: fc.dictionary(fc.constantFrom("k", "l"), fc.integer({ min: 0, max: 2 })),
  },
  { requiredKeys: [] },
);
const steps = fc.array(fc.record({ manager: fc.constantFrom("m", "n", "o"), spec, byUpdate: fc.boolean() }), {
  maxLength: 6,
});

function play(history: readonly { manager: string; spec: object; byUpdate: boolean }[]): State {
  return history.reduce<State>((state, step) => {
    const wanted = step.spec as JsonObject;
    return step.byUpdate
      ? update(state, step.manager, { metadata: { name: "x" }, spec: wanted })
      : apply(state, step.manager, wanted, true);
  }, EMPTY);
}

test("apply: applying the same again changes neither the object nor the owners", () => {
  fc.assert(
    fc.property(steps, spec, (history, wanted) => {
      const once = apply(play(history), "m", wanted as JsonObject, true);
      const twice = apply(once, "m", wanted as JsonObject);
      assert.ok(equal(twice.object, once.object));
      assert.deepEqual(twice.managedFields, once.managedFields);
    }),
  );
});

test("apply: after a forced apply the object has all applied values, and the applier owns them", () => {
  fc.assert(
    fc.property(steps, spec, (history, wanted) => {
      const state = apply(play(history), "m", wanted as JsonObject, true);
      const found = (state.object["spec"] ?? {}) as JsonObject;
      for (const key of ["a", "b", "plain", "whole"] as const)
        if (wanted[key] !== undefined) assert.ok(equal(found[key], wanted[key] as Json));
      const mine = decodeManaged(state.managedFields).find(
        (item) => item.manager === "m" && item.operation === "Apply",
      );
      for (const key of ["a", "b", "plain"] as const) {
        if (wanted[key] !== undefined) assert.equal(mine?.fields.child("f:spec")?.hasMember(`f:${key}`), true);
      }
    }),
  );
});

test("field sets: decode undoes encode, and the algebra holds", () => {
  const paths = fc.array(
    fc.array(fc.constantFrom("f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'), { minLength: 1, maxLength: 3 }),
  );
  const build = (list: readonly (readonly string[])[]): FieldSet =>
    list.reduce((set, path) => {
      const leaf = path.slice(0, -1).reduceRight(
        (child, element) => {
          const parent = new FieldSet();
          parent.insertChild(element, child);
          return parent;
        },
        member(path.at(-1) ?? ""),
      );
      return set.union(leaf);
    }, new FieldSet());
  fc.assert(
    fc.property(paths, paths, (left, right) => {
      const [a, b] = [build(left), build(right)];
      assert.ok(FieldSet.decode(a.encode())?.equals(a));
      assert.ok(a.difference(b).union(a.intersection(b)).equals(a));
      assert.ok(a.difference(b).intersection(b).isEmpty());
    }),
  );
});

function member(element: string): FieldSet {
  const set = new FieldSet();
  set.insert(element);
  return set;
}

test("managed fields: nothing but ApiError escapes the decoder", () => {
  const entry = fc.record(
    { manager: fc.string(), operation: fc.constantFrom("Apply", "Update", "x"), fieldsV1: fc.jsonValue() },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.array(entry), (entries) => {
      try {
        decodeManaged(entries as ManagedFieldsEntry[]);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
    }),
  );
});

test("applyConfiguration: two items of one key are refused as kube-apiserver refuses them; an update with them is not", () => {
  const twice = { list: [{ name: "a", v: 1 }, { name: "b" }, { name: "a", v: 2 }] };
  const isRefusal = (error: unknown): boolean =>
    error instanceof ApiError &&
    error.httpStatus === 500 &&
    error.message === "failed to create typed patch object: .spec.list: duplicate entries for key";
  assert.throws(() => apply(EMPTY, "one", twice), isRefusal);
  assert.throws(() => apply(EMPTY, "one", { set: ["x", "x"] }), /\.spec\.set: duplicate/);
  const stored = update(EMPTY, "one", { metadata: { name: "x" }, spec: twice });
  assert.deepEqual(apply(stored, "two", { a: 1 }).object["spec"], { ...twice, a: 1 });
});
