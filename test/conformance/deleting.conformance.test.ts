import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import { Cluster, configMap, whyNotRunnable, widget, widgetDefinition } from "./cluster.ts";

const skip = await whyNotRunnable();

suite("kubectl deletes and waits", { skip, concurrency: false }, () => {
  let cluster: Cluster;
  const crd = widgetDefinition("deleting");

  before(async () => {
    cluster = await Cluster.open("deleting");
    await cluster.apply(crd);
    await cluster.run(["wait", "--for=condition=established", `crd/${crd.metadata.name}`, "--timeout=20s"]);
  });

  after(() => cluster[Symbol.asyncDispose]());

  /** An owner and a dependent of it; returns their names. */
  async function family(name: string): Promise<{ owner: string; child: string }> {
    const owner = `${name}-owner`;
    const child = `${name}-child`;
    await cluster.apply(configMap(owner, {}));
    const uid = await cluster.value(["cm", owner], "{.metadata.uid}");
    const ownerReferences = [{ apiVersion: "v1", kind: "ConfigMap", name: owner, uid, blockOwnerDeletion: true }];
    await cluster.apply({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: child, ownerReferences } });
    return { owner, child };
  }

  test("delete in the background takes the dependents later", async () => {
    const { owner, child } = await family("background");
    await cluster.run(["delete", "cm", owner, "--cascade=background"]);
    await cluster.gone(`cm/${child}`);
  });

  test("delete in the foreground takes the dependents first", async () => {
    const { owner, child } = await family("foreground");
    await cluster.run(["patch", "cm", child, "-p", '{"metadata":{"finalizers":["isthmus.dev/hold"]}}']);
    await cluster.run(["delete", "cm", owner, "--cascade=foreground", "--wait=false"]);
    await waitFor(async () => (await cluster.value(["cm", child], "{.metadata.deletionTimestamp}")) !== "");
    assert.match(await cluster.value(["cm", owner], "{.metadata.finalizers}"), /foregroundDeletion/);
    await cluster.run(["patch", "cm", child, "--type=merge", "-p", '{"metadata":{"finalizers":null}}']);
    await cluster.gone(`cm/${owner}`);
    assert.match((await cluster.try(["get", "cm", child])).stderr, /NotFound/);
  });

  test("delete with orphans leaves the dependents without an owner", async () => {
    const { owner, child } = await family("orphan");
    await cluster.run(["delete", "cm", owner, "--cascade=orphan"]);
    await waitFor(async () => (await cluster.value(["cm", child], "{.metadata.ownerReferences}")) === "");
  });

  test("a finalizer holds an object until it is taken away", async () => {
    await cluster.apply({
      ...widget("deleting", "held", { size: 1 }),
      metadata: { name: "held", finalizers: ["isthmus.dev/hold"] },
    });
    await cluster.run(["delete", "wdg", "held", "--wait=false"]);
    assert.notEqual(await cluster.value(["wdg", "held"], "{.metadata.deletionTimestamp}"), "");
    await cluster.run(["patch", "wdg", "held", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]']);
    await cluster.gone("wdg/held");
  });

  test("delete by label and delete --all delete the selected objects", async () => {
    await cluster.apply(configMap("sel-a", {}, { group: "one" }));
    await cluster.apply(configMap("sel-b", {}, { group: "two" }));
    await cluster.run(["delete", "cm", "-l", "group=one"]);
    assert.equal(await cluster.run(["get", "cm", "-l", "group", "-o", "name"]), "configmap/sel-b\n");
    await cluster.apply(widget("deleting", "all", { size: 1 }));
    await cluster.run(["delete", "wdg", "--all"]);
    assert.equal(await cluster.run(["get", "wdg", "-o", "name"]), "");
  });

  test("delete of an absent object fails without --ignore-not-found", async () => {
    assert.match((await cluster.try(["delete", "cm", "absent"])).stderr, /NotFound/);
    assert.equal((await cluster.try(["delete", "cm", "absent", "--ignore-not-found"])).code, 0);
  });

  test("a pod that no node has is deleted at once", async () => {
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "idle" },
      spec: { schedulerName: "nobody", containers: [{ name: "c", image: "registry.invalid/c:1" }] },
    };
    await cluster.apply(pod);
    assert.match(await cluster.run(["get", "pod", "idle"]), /idle\s+0\/1\s+Pending\s+0/);
    await cluster.run(["delete", "pod", "idle"]);
    await cluster.gone("pod/idle");
  });

  test("wait sees a condition and gives up in time", async () => {
    await cluster.run(["wait", "--for=condition=established", `crd/${crd.metadata.name}`, "--timeout=5s"]);
    const late = await cluster.try(["wait", "--for=condition=never", `crd/${crd.metadata.name}`, "--timeout=1s"]);
    assert.notEqual(late.code, 0);
    assert.match(late.stderr, /timed out/);
  });

  test("a namespace is deleted with all its objects", async () => {
    const name = `${cluster.namespace}-more`;
    await cluster.run(["create", "namespace", name]);
    await cluster.run(["create", "configmap", "inside", "--namespace", name]);
    await cluster.run(["delete", "namespace", name, "--timeout=30s"]);
    assert.match((await cluster.try(["get", "namespace", name])).stderr, /NotFound/);
    assert.equal(await cluster.run(["get", "cm", "--namespace", name, "-o", "name"]), "");
  });

  test("a deleted CRD takes its objects and its API along", async () => {
    await cluster.apply(widget("deleting", "last", { size: 1 }));
    await cluster.run(["delete", "crd", crd.metadata.name, "--timeout=30s"]);
    assert.notEqual((await cluster.try(["get", `widgets.${crd.metadata.name.slice("widgets.".length)}`])).code, 0);
  });
});

/** Polls a condition that a controller brings about; each check is a kubectl call, so no pause is needed. */
async function waitFor(condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!(await condition()))
    if (performance.now() > deadline) throw new Error("the condition did not come about within 20 s");
}
