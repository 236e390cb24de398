import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeObject } from "#kube/client";
import { AppliedStates, wishOf } from "./applied.ts";
import { inheritFields } from "./inherit.ts";

const object = (more: object = {}, meta: object = {}): KubeObject & { status?: unknown } =>
  ({
    metadata: { name: "nat", uid: "u", resourceVersion: "1", ...meta },
    spec: { a: 1, b: [{ c: 2, d: 3 }] },
    ...more,
  }) as KubeObject;

test("AppliedStates: what was applied is settled until it, or the object, is another", () => {
  const states = new AppliedStates();
  assert.equal(states.isSettled("k", { x: 1 }, object()), false);
  states.note("k", { x: 1 }, object());
  assert.equal(states.isSettled("k", { x: 1 }, object()), true);
  assert.equal(states.isSettled("other", { x: 1 }, object()), false);
  assert.equal(states.isSettled("k", { x: 2 }, object()), false);
  for (const changed of [
    object({ spec: { a: 2, b: [{ c: 2, d: 3 }] } }),
    object({ spec: { a: 1, b: [] } }),
    object({}, { labels: { a: "b" } }),
    object({}, { annotations: { a: "b" } }),
    object({}, { ownerReferences: [{ uid: "x" }] }),
  ]) {
    assert.equal(states.isSettled("k", { x: 1 }, changed), false);
  }
  states.forget("k");
  assert.equal(states.isSettled("k", { x: 1 }, object()), false);
});

test("wishOf: neither the status, nor what the server counts, nor the order of members is a difference", () => {
  const same = object(
    { status: { replicas: 3 }, spec: { b: [{ d: 3, c: 2 }], a: 1 } },
    { resourceVersion: "9", generation: 4, managedFields: [] },
  );
  assert.equal(wishOf(same), wishOf(object()));
});

test("inheritFields: what Coil's controllers have written becomes ours; others' entries, and those of the status, stay", () => {
  const entry = (manager: string, operation: string, fieldsV1: object, more: object = {}) => ({
    manager,
    operation,
    fieldsV1,
    ...more,
  });
  const own = entry("me", "Apply", { "f:spec": { "f:a": {} } });
  const kubectl = entry("kubectl", "Update", { "f:metadata": {} });
  const status = entry("coil-egress-controller", "Update", { "f:status": {} }, { subresource: "status" });
  assert.equal(inheritFields(undefined, "me"), undefined);
  assert.equal(inheritFields([own, kubectl, status], "me"), undefined);
  const coils = [
    entry("coil-egress-controller", "Update", { "f:spec": { "f:b": { ".": {}, "f:c": {} }, "f:a": {} } }),
    entry("coil-controller", "Update", { "f:spec": { "f:b": { "f:d": {} } } }),
  ];
  assert.equal(inheritFields(coils, "me"), undefined, "there is no entry to add them to");
  assert.deepEqual(inheritFields([own, ...coils, kubectl, status], "me"), [
    { ...own, fieldsV1: { "f:spec": { "f:a": {}, "f:b": { ".": {}, "f:c": {}, "f:d": {} } } } },
    kubectl,
    status,
  ]);
});
