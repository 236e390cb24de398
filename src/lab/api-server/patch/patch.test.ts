import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ApiError } from "../errors.ts";
import { clone, equal, type Json, type JsonObject } from "../object/json.ts";
import { loadBuiltinDefinitions, REF_PREFIX } from "../schema/index.ts";
import { applyJsonPatch } from "./json-patch.ts";
import { applyMergePatch } from "./merge-patch.ts";
import { applyStrategicPatch } from "./strategic.ts";

test("JSON patch: applies the operations of RFC 6902", () => {
  const document = { a: 1, list: [1, 2, 3], deep: { x: { y: 1 } }, "b/c~d": 1 };
  const cases: [Json, Json][] = [
    [[{ op: "add", path: "/n", value: 1 }], { ...document, n: 1 }],
    [[{ op: "add", path: "/list/1", value: 9 }], { ...document, list: [1, 9, 2, 3] }],
    [[{ op: "add", path: "/list/-", value: 9 }], { ...document, list: [1, 2, 3, 9] }],
    [[{ op: "remove", path: "/list/0" }], { ...document, list: [2, 3] }],
    [[{ op: "replace", path: "/deep/x/y", value: null }], { ...document, deep: { x: { y: null } } }],
    [[{ op: "move", from: "/a", path: "/z" }], { z: 1, list: [1, 2, 3], deep: { x: { y: 1 } }, "b/c~d": 1 }],
    [[{ op: "copy", from: "/deep/x", path: "/copy" }], { ...document, copy: { y: 1 } }],
    [[{ op: "test", path: "/b~1c~0d", value: 1 }], document],
  ];
  for (const [patch, want] of cases) assert.deepEqual(applyJsonPatch(document, patch), want);
});

test("JSON patch: an unfitting or malformed patch is refused, and the document is not changed", () => {
  const document = { a: 1, list: [1] };
  const before = clone(document);
  const bad: Json[] = [
    {},
    [{ op: "add", path: "/x/y", value: 1 }],
    [{ op: "remove", path: "/nope" }],
    [{ op: "add", path: "/list/7", value: 1 }],
    [{ op: "add", path: "/list/01", value: 1 }],
    [{ op: "test", path: "/a", value: 2 }],
    [{ op: "move", from: "/list", path: "/list/0" }],
    [{ op: "fly", path: "/a" }],
    [{ op: "add", path: "a", value: 1 }],
    [{ op: "add", path: "/b" }],
  ];
  for (const patch of bad) assert.throws(() => applyJsonPatch(document, patch), ApiError, JSON.stringify(patch));
  assert.deepEqual(document, before);
});

test("JSON patch: __proto__ is a key like any other", () => {
  const patched = applyJsonPatch({}, [{ op: "add", path: "/__proto__", value: { polluted: true } }]);
  assert.equal(({} as JsonObject)["polluted"], undefined);
  assert.deepEqual(Object.keys(patched as JsonObject), ["__proto__"]);
});

test("JSON patch: nothing but ApiError escapes", () => {
  const op = fc.record(
    {
      op: fc.constantFrom("add", "remove", "replace", "move", "copy", "test"),
      path: fc.constantFrom("", "/a", "/a/0", "/a/-", "/b/c", "x"),
      from: fc.constantFrom("", "/a", "/b"),
      value: fc.jsonValue(),
    },
    { requiredKeys: ["op", "path"] },
  );
  fc.assert(
    fc.property(fc.jsonValue(), fc.oneof(fc.array(op), fc.jsonValue()), (document, patch) => {
      try {
        applyJsonPatch(document as Json, patch as Json);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
    }),
  );
});

test("merge patch: null removes, objects merge, anything else replaces (RFC 7386 appendix A)", () => {
  const cases: [Json, Json, Json][] = [
    [{ a: "b" }, { a: "c" }, { a: "c" }],
    [{ a: "b" }, { b: "c" }, { a: "b", b: "c" }],
    [{ a: "b", b: "c" }, { a: null }, { b: "c" }],
    [{ a: ["b"] }, { a: "c" }, { a: "c" }],
    [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }],
    [{ a: [{ b: "c" }] }, { a: [1] }, { a: [1] }],
    [
      ["a", "b"],
      ["c", "d"],
      ["c", "d"],
    ],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [[1, 2], { a: "b", c: null }, { a: "b" }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ];
  for (const [target, patch, want] of cases) assert.deepEqual(applyMergePatch(target, patch), want);
});

test("merge patch: a second application changes nothing, and inputs are not changed", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (target, patch) => {
      const [before, wanted] = [clone(target as Json), clone(patch as Json)];
      const once = applyMergePatch(target as Json, patch as Json);
      assert.ok(equal(applyMergePatch(once, patch as Json), once));
      assert.ok(equal(target as Json, before) && equal(patch as Json, wanted));
    }),
  );
});

const definitions = loadBuiltinDefinitions();
const POD = { $ref: `${REF_PREFIX}io.k8s.api.core.v1.Pod` };
const strategic = (target: JsonObject, patch: JsonObject): JsonObject =>
  applyStrategicPatch(target, patch, POD, definitions);

test("strategic merge: lists with a merge key are merged by it, nested ones too", () => {
  const pod = {
    spec: {
      containers: [
        { name: "a", image: "1", env: [{ name: "X", value: "1" }] },
        { name: "b", image: "1" },
      ],
    },
  };
  const patch = {
    spec: {
      containers: [
        { name: "a", image: "2", env: [{ name: "Y", value: "2" }] },
        { name: "c", image: "3" },
      ],
    },
  };
  assert.deepEqual(strategic(pod, patch), {
    spec: {
      containers: [
        {
          name: "a",
          image: "2",
          env: [
            { name: "X", value: "1" },
            { name: "Y", value: "2" },
          ],
        },
        { name: "b", image: "1" },
        { name: "c", image: "3" },
      ],
    },
  });
});

test("strategic merge: $patch delete and replace act on items, lists and maps", () => {
  const pod = { metadata: { labels: { a: "1" } }, spec: { containers: [{ name: "a" }, { name: "b" }] } };
  assert.deepEqual(strategic(pod, { spec: { containers: [{ name: "a", $patch: "delete" }] } }).spec, {
    containers: [{ name: "b" }],
  });
  assert.deepEqual(strategic(pod, { spec: { containers: [{ name: "z" }, { $patch: "replace" }] } }).spec, {
    containers: [{ name: "z" }],
  });
  assert.deepEqual(strategic(pod, { metadata: { labels: { $patch: "replace", b: "2" } } }).metadata, {
    labels: { b: "2" },
  });
  assert.throws(() => strategic(pod, { spec: { $patch: "explode" } }), ApiError);
  assert.throws(
    () => strategic(pod, { spec: { containers: [{ image: "no name" }] } }),
    /does not contain declared merge key: name/,
  );
});

test("strategic merge: a list without a merge key is replaced, a set of scalars is united and can lose members", () => {
  const pod = {
    metadata: { finalizers: ["a", "b"] },
    spec: { tolerations: [{ key: "a" }], containers: [{ name: "c", command: ["x"] }] },
  };
  assert.deepEqual(strategic(pod, { spec: { tolerations: [{ key: "b" }] } }).spec, {
    ...pod.spec,
    tolerations: [{ key: "b" }],
  });
  assert.deepEqual(strategic(pod, { metadata: { finalizers: ["c"] } }).metadata, { finalizers: ["a", "b", "c"] });
  assert.deepEqual(strategic(pod, { metadata: { "$deleteFromPrimitiveList/finalizers": ["a"] } }).metadata, {
    finalizers: ["b"],
  });
});

test("strategic merge: $setElementOrder orders the named items and leaves the others near their neighbours", () => {
  const pod = { spec: { containers: [{ name: "a" }, { name: "b" }, { name: "c" }] } };
  const patch = {
    spec: { "$setElementOrder/containers": [{ name: "c" }, { name: "a" }], containers: [{ name: "a", image: "2" }] },
  };
  assert.deepEqual(strategic(pod, patch).spec, {
    containers: [{ name: "c" }, { name: "a", image: "2" }, { name: "b" }],
  });
});

test("strategic merge: $retainKeys clears all other keys", () => {
  const pod = { spec: { volumes: [{ name: "v", emptyDir: {} }] } };
  const patch = { spec: { volumes: [{ name: "v", $retainKeys: ["name", "hostPath"], hostPath: { path: "/x" } }] } };
  assert.deepEqual(strategic(pod, patch).spec, { volumes: [{ name: "v", hostPath: { path: "/x" } }] });
});

test("strategic merge: nothing but ApiError escapes, and the target stays as it was", () => {
  const item = fc.record(
    {
      name: fc.constantFrom("a", "b"),
      image: fc.string(),
      $patch: fc.constantFrom("delete", "merge", "replace", "odd"),
    },
    { requiredKeys: ["name"] },
  );
  const patch = fc.oneof(
    fc.record({
      spec: fc.record(
        { containers: fc.array(item), "$setElementOrder/containers": fc.jsonValue(), $retainKeys: fc.jsonValue() },
        { requiredKeys: [] },
      ),
    }),
    fc.dictionary(fc.constantFrom("spec", "metadata", "$patch", "$deleteFromPrimitiveList/x"), fc.jsonValue()),
  );
  fc.assert(
    fc.property(patch, (input) => {
      const pod = { spec: { containers: [{ name: "a", image: "1" }] }, x: [1] };
      const before = clone(pod);
      try {
        strategic(pod, input as JsonObject);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
      }
      assert.deepEqual(pod, before);
    }),
  );
});
