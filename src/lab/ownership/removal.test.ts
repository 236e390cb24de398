import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { COIL_FINALIZER } from "#kube/coil";
import { type Found, type FoundObject, type FoundType, nextRemoval, type RemovalPhase } from "./removal.ts";

const TYPES = [
  "deployments",
  "replicaSets",
  "services",
  "pods",
  "blockRequests",
  "addressBlocks",
  "addressPools",
  "leases",
  "nodes",
  "namespaces",
  "customResourceDefinitions",
] as const satisfies readonly (keyof Found)[];

type Cluster = Map<FoundType | "strayPods", Map<string, FoundObject>>;

const NONE: Found = {
  ...(Object.fromEntries(TYPES.map((type) => [type, []])) as unknown as Record<(typeof TYPES)[number], []>),
  strayPods: [],
  foreignInstances: new Map(),
};

const object = (name: string, more: Partial<FoundObject> = {}): FoundObject => ({
  name,
  uid: `uid-${name}`,
  resourceVersion: "1",
  isDeleting: false,
  finalizers: [],
  ...more,
});

const foundIn = (cluster: Cluster, foreignInstances: ReadonlyMap<string, string>): Found => ({
  ...(Object.fromEntries(TYPES.map((type) => [type, [...(cluster.get(type)?.values() ?? [])]])) as unknown as Record<
    (typeof TYPES)[number],
    FoundObject[]
  >),
  strayPods: [...(cluster.get("strayPods")?.values() ?? [])],
  foreignInstances,
});

/** Like an API server: an object with finalizers stays until they are removed; a namespace is deleted when the cluster has emptied it. */
function apply(cluster: Cluster, phase: RemovalPhase): void {
  for (const step of phase.steps) {
    if (step.op === "hand-over") {
      cluster.get("customResourceDefinitions")?.delete(step.object.name);
      continue;
    }
    for (const type of step.type === "pods" ? (["pods", "strayPods"] as const) : [step.type]) {
      const now = cluster.get(type)?.get(step.object.name);
      if (now === undefined) continue;
      const isDeleting = now.isDeleting || step.op === "delete";
      const finalizers =
        step.op === "release" ? now.finalizers.filter((one) => one !== COIL_FINALIZER) : now.finalizers;
      if (isDeleting && finalizers.length === 0) cluster.get(type)?.delete(now.name);
      else cluster.get(type)?.set(now.name, { ...now, isDeleting, finalizers });
    }
  }
}

test("nextRemoval: from any state all own objects are removed in order, and objects of others stay", () => {
  const objects = fc.uniqueArray(
    fc.record({
      type: fc.constantFrom(...TYPES, "strayPods" as const),
      name: fc.integer({ min: 0, max: 5 }).map(String),
      isDeleting: fc.boolean(),
      isHeld: fc.boolean(),
    }),
    { selector: ({ type, name }) => `${type} ${name}` },
  );
  fc.assert(
    fc.property(objects, fc.boolean(), (all, isInUse) => {
      const cluster: Cluster = new Map();
      for (const { type, name, isDeleting, isHeld } of all) {
        const finalizers = isHeld && ["addressBlocks", "addressPools"].includes(type) ? [COIL_FINALIZER] : [];
        const rows = cluster.get(type) ?? new Map<string, FoundObject>();
        // A terminating object without finalizers is gone.
        if (!isDeleting || finalizers.length > 0) rows.set(name, object(name, { isDeleting, finalizers }));
        cluster.set(type, rows);
      }
      const foreign = new Map(isInUse ? [["0", "AddressPool theirs"]] : []);
      const phases: string[] = [];
      for (let pass = 0; ; pass += 1) {
        assert.ok(pass < 100, "it does not end");
        const next = nextRemoval(foundIn(cluster, foreign));
        if (next === undefined) break;
        assert.ok(next.waitingFor.length > 0);
        for (const step of next.steps)
          if (step.op === "delete" && step.type === "customResourceDefinitions")
            assert.ok(!foreign.has(step.object.name), "a type that others use is deleted");
        if (phases.at(-1) !== next.phase) phases.push(next.phase);
        apply(cluster, next);
      }
      assert.equal(new Set(phases).size, phases.length, `a phase comes twice: ${phases.join(", ")}`);
      for (const rows of cluster.values()) assert.equal(rows.size, 0);
    }),
  );
});

test("nextRemoval: a terminating pod is deleted again, because no kubelet confirms its end; a namespace is waited for", () => {
  const pod = object("web", { isDeleting: true });
  assert.deepEqual(nextRemoval({ ...NONE, pods: [pod] })?.steps, [
    { op: "delete", type: "pods", object: pod, force: true },
  ]);
  const namespace = object("dual", { isDeleting: true });
  assert.deepEqual(nextRemoval({ ...NONE, namespaces: [namespace] })?.steps, []);
});

test("nextRemoval: our finalizer is removed, others' are not, and a pod with a finalizer of others is not waited for", () => {
  const block = object("b-0", { isDeleting: true, finalizers: ["theirs", COIL_FINALIZER] });
  assert.deepEqual(nextRemoval({ ...NONE, addressBlocks: [block] })?.steps, [
    { op: "release", type: "addressBlocks", object: block },
  ]);
  const stray = object("ds", { isDeleting: true, finalizers: ["theirs"] });
  assert.equal(nextRemoval({ ...NONE, strayPods: [stray] }), undefined);
});

test("nextRemoval: others' pods on the lab's nodes are deleted only after the nodes", () => {
  const stray = object("ds");
  const both = nextRemoval({ ...NONE, strayPods: [stray], nodes: [object("n1")] });
  assert.deepEqual(
    both?.steps.map((step) => step.op === "delete" && step.type),
    ["nodes"],
  );
  assert.equal(nextRemoval({ ...NONE, strayPods: [stray] })?.steps.length, 1);
});

test("nextRemoval: a type with an object of others is handed over, not deleted", () => {
  const crd = object("addresspools.coil.cybozu.com");
  const foreignInstances = new Map([[crd.name, "AddressPool blue"]]);
  assert.deepEqual(nextRemoval({ ...NONE, customResourceDefinitions: [crd], foreignInstances })?.steps, [
    { op: "hand-over", object: crd, inUseBy: "AddressPool blue" },
  ]);
});
