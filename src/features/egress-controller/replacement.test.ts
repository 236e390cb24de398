import assert from "node:assert/strict";
import { test } from "node:test";
import type { Deployment, Draft, Service } from "#kube/client";
import { replacementOf } from "./replacement.ts";

const stored = (spec: object, metadata: object = {}) => ({
  metadata: { name: "nat", namespace: "n", uid: "u", resourceVersion: "7", managedFields: [{}], ...metadata },
  spec,
});

test("replacementOf: the spec is ours alone; others' metadata, the version and the restart annotation stay", () => {
  const wanted = {
    metadata: { name: "nat", namespace: "n", labels: { a: "ours" }, ownerReferences: [] },
    spec: { replicas: 2, selector: {}, template: { metadata: { labels: { l: "1" }, annotations: { a: "ours" } } } },
  } as unknown as Draft<Deployment>;
  const before = stored(
    {
      replicas: 9,
      paused: true,
      template: { metadata: { annotations: { a: "theirs", restartedAt: "now" }, labels: { x: "y" } } },
    },
    { labels: { a: "theirs", b: "theirs" }, annotations: { c: "theirs" } },
  ) as unknown as Deployment;
  assert.deepEqual(replacementOf(wanted, before), {
    metadata: {
      name: "nat",
      namespace: "n",
      uid: "u",
      resourceVersion: "7",
      labels: { a: "ours", b: "theirs" },
      annotations: { c: "theirs" },
      ownerReferences: [],
    },
    spec: {
      replicas: 2,
      selector: {},
      template: { metadata: { labels: { l: "1" }, annotations: { a: "ours", restartedAt: "now" } } },
    },
  });
});

test("replacementOf: a Service keeps the addresses that its server gave it", () => {
  const wanted = { metadata: { name: "nat" }, spec: { type: "ClusterIP" } } as Draft<Service>;
  const given = { clusterIP: "10.0.0.1", clusterIPs: ["10.0.0.1"], ipFamilies: ["IPv4"] };
  const before = stored({ ...given, type: "NodePort", ports: [{ port: 1 }] }) as unknown as Service;
  assert.deepEqual(replacementOf(wanted, before).spec, { ...given, type: "ClusterIP" });
});
