import assert from "node:assert/strict";
import { test } from "node:test";
import { asArray, at, type JsonObject } from "../object/json.ts";
import { type Answer, configMap, MAPS, PODS, pod, TestServer } from "../test-client.ts";

async function withOwner(api: TestServer, name: string, owner: Answer): Promise<void> {
  const uid = String(at(owner.body, "metadata", "uid"));
  const ownerName = String(at(owner.body, "metadata", "name"));
  const ownerReferences = [{ apiVersion: "v1", kind: "ConfigMap", name: ownerName, uid, blockOwnerDeletion: true }];
  assert.equal((await api.ask("POST", MAPS, configMap(name, {}, { ownerReferences }))).status, 201);
}

async function names(api: TestServer, path: string): Promise<unknown[]> {
  return asArray((await api.ask("GET", path)).body["items"]).map((item) => at(item, "metadata", "name"));
}

test("garbage: dependents of a deleted owner go, and theirs too", async () => {
  await using api = await TestServer.start();
  const owner = await api.ask("POST", MAPS, configMap("a"));
  await withOwner(api, "b", owner);
  await withOwner(api, "c", await api.ask("GET", `${MAPS}/b`));
  await api.ask("DELETE", `${MAPS}/a`);
  await api.server.settled();
  assert.deepEqual(await names(api, MAPS), []);
});

test("garbage: a dependent with a living owner stays and forgets the dead one", async () => {
  await using api = await TestServer.start();
  const one = await api.ask("POST", MAPS, configMap("one"));
  const two = await api.ask("POST", MAPS, configMap("two"));
  const refer = (owner: Answer): JsonObject => ({
    apiVersion: "v1",
    kind: "ConfigMap",
    name: String(at(owner.body, "metadata", "name")),
    uid: String(at(owner.body, "metadata", "uid")),
  });
  await api.ask("POST", MAPS, configMap("child", {}, { ownerReferences: [refer(one), refer(two)] }));
  await api.ask("DELETE", `${MAPS}/one`);
  await api.server.settled();
  const child = await api.ask("GET", `${MAPS}/child`);
  assert.deepEqual(at(child.body, "metadata", "ownerReferences"), [refer(two)]);
});

test("garbage: an object whose owner never existed is removed", async () => {
  await using api = await TestServer.start();
  await api.ask(
    "POST",
    MAPS,
    configMap("child", {}, { ownerReferences: [{ apiVersion: "v1", kind: "ConfigMap", name: "x", uid: "no-such" }] }),
  );
  await api.server.settled();
  assert.deepEqual(await names(api, MAPS), []);
});

test("garbage: foreground keeps the owner until its dependents are gone", async () => {
  await using api = await TestServer.start();
  await withOwner(api, "child", await api.ask("POST", MAPS, configMap("owner")));
  await api.patch(`${MAPS}/child`, "merge-patch+json", { metadata: { finalizers: ["isthmus.dev/hold"] } });
  await api.ask("DELETE", `${MAPS}/owner?propagationPolicy=Foreground`);
  await api.server.settled();
  assert.deepEqual(await names(api, MAPS), ["child", "owner"]);
  await api.patch(`${MAPS}/child`, "merge-patch+json", { metadata: { finalizers: null } });
  await api.server.settled();
  assert.deepEqual(await names(api, MAPS), []);
});

test("garbage: orphaning leaves the dependents without an owner", async () => {
  await using api = await TestServer.start();
  await withOwner(api, "child", await api.ask("POST", MAPS, configMap("owner")));
  await api.ask("DELETE", `${MAPS}/owner?propagationPolicy=Orphan`);
  await api.server.settled();
  assert.deepEqual(await names(api, MAPS), ["child"]);
  assert.equal(at((await api.ask("GET", `${MAPS}/child`)).body, "metadata", "ownerReferences"), undefined);
});

test("finalizers: keep a terminating object, and none can be added to it", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", MAPS, configMap("a", {}, { finalizers: ["isthmus.dev/hold"] }));
  const deleted = await api.ask("DELETE", `${MAPS}/a`);
  assert.notEqual(at(deleted.body, "metadata", "deletionTimestamp"), undefined);
  const more = await api.patch(`${MAPS}/a`, "merge-patch+json", {
    metadata: { finalizers: ["isthmus.dev/hold", "isthmus.dev/more"] },
  });
  assert.equal(more.status, 422);
  assert.equal((await api.patch(`${MAPS}/a`, "merge-patch+json", { metadata: { finalizers: [] } })).status, 200);
  assert.equal((await api.ask("GET", `${MAPS}/a`)).status, 404);
});

test("namespaces: deletion empties them, waits for running pods, and new objects are refused", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", "/api/v1/namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name: "n" } });
  await api.ask("POST", "/api/v1/namespaces/n/configmaps", configMap("a"));
  await api.ask("POST", "/api/v1/namespaces/n/pods", pod("p", "node"));
  const deleted = await api.ask("DELETE", "/api/v1/namespaces/n");
  assert.equal(at(deleted.body, "status", "phase"), "Terminating");
  await api.server.settled();
  assert.deepEqual(await names(api, "/api/v1/namespaces/n/configmaps"), []);
  assert.equal((await api.ask("POST", "/api/v1/namespaces/n/configmaps", configMap("late"))).status, 403);
  await api.ask("DELETE", "/api/v1/namespaces/n/pods/p?gracePeriodSeconds=0");
  await api.server.settled();
  assert.equal((await api.ask("GET", "/api/v1/namespaces/n")).status, 404);
});

test("namespaces: nothing can be made in one that is not there", async () => {
  await using api = await TestServer.start();
  const answer = await api.ask("POST", "/api/v1/namespaces/nowhere/configmaps", configMap("a"));
  assert.deepEqual([answer.status, answer.body["message"]], [404, 'namespaces "nowhere" not found']);
});

function widgets(schema: JsonObject, extra: JsonObject = {}): JsonObject {
  const version = { name: "v1", served: true, storage: true, schema: { openAPIV3Schema: schema }, ...extra };
  const names = { plural: "widgets", kind: "Widget" };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: "widgets.example.com" },
    spec: { group: "example.com", scope: "Namespaced", names, versions: [version] },
  };
}

const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS = "/apis/example.com/v1/namespaces/default/widgets";

test("CRDs: their resources are served, defaulted, pruned and validated", async () => {
  await using api = await TestServer.start();
  const spec = {
    type: "object",
    required: ["size"],
    properties: { size: { type: "integer" }, color: { type: "string", default: "red" } },
  };
  assert.equal((await api.ask("POST", CRDS, widgets({ type: "object", properties: { spec } }))).status, 201);
  const widget = (inner: JsonObject): JsonObject => ({
    apiVersion: "example.com/v1",
    kind: "Widget",
    metadata: { name: "w" },
    spec: inner,
  });
  assert.equal((await api.ask("POST", WIDGETS, widget({ size: "big" }))).status, 422);
  const made = await api.ask("POST", WIDGETS, widget({ size: 1, extra: 1 }));
  assert.deepEqual(made.body["spec"], { size: 1, color: "red" });
  await api.server.settled();
  const crd = await api.ask("GET", `${CRDS}/widgets.example.com`);
  assert.deepEqual(
    asArray(at(crd.body, "status", "conditions")).map((item) => `${at(item, "type")}=${at(item, "status")}`),
    ["NamesAccepted=True", "Established=True"],
  );
  assert.equal((await api.patch(`${WIDGETS}/w`, "strategic-merge-patch+json", {})).status, 415);
  await api.ask("DELETE", `${CRDS}/widgets.example.com`);
  await api.server.settled();
  assert.equal((await api.ask("GET", WIDGETS)).status, 404);
  assert.equal((await api.ask("GET", `${CRDS}/widgets.example.com`)).status, 404);
});

test("CRDs: another version shows the same objects under its name", async () => {
  await using api = await TestServer.start();
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  const crd = widgets({ type: "object", "x-kubernetes-preserve-unknown-fields": true });
  asArray(at(crd, "spec", "versions")).push({ name: "v2", served: true, storage: false, schema });
  await api.ask("POST", CRDS, crd);
  await api.ask("POST", WIDGETS, { apiVersion: "example.com/v1", kind: "Widget", metadata: { name: "w" }, data: 1 });
  const other = await api.ask("GET", "/apis/example.com/v2/namespaces/default/widgets/w");
  assert.deepEqual([other.body["apiVersion"], other.body["data"]], ["example.com/v2", 1]);
});

test("CRDs: a definition with a rule that does not compile is refused, other rules are run", async () => {
  await using api = await TestServer.start();
  const data = { type: "integer" };
  const ruled = (rule: string): JsonObject =>
    widgets({ type: "object", properties: { data }, "x-kubernetes-validations": [{ rule, message: "too few" }] });
  const refused = await api.ask("POST", CRDS, ruled("self.date > 2"));
  assert.equal(refused.status, 422);
  assert.match(
    String(refused.body["message"]),
    /openAPIV3Schema\.x-kubernetes-validations\[0\]\.rule: Invalid value: .*: compilation failed: ERROR: <input>:1:5: undefined field 'date'/,
  );
  assert.equal((await api.ask("POST", CRDS, ruled("self.data > 2"))).status, 201);
  const widget = { apiVersion: "example.com/v1", kind: "Widget", metadata: { name: "w" } };
  const few = await api.ask("POST", WIDGETS, { ...widget, data: 2 });
  assert.deepEqual(
    [few.status, few.body["message"]],
    [422, 'Widget.example.com "w" is invalid: <nil>: Invalid value: too few'],
  );
  assert.equal((await api.ask("POST", WIDGETS, { ...widget, data: 3 })).status, 201);
});

test("CRDs: faulty definitions are refused with every fault named", async () => {
  await using api = await TestServer.start();
  const crd = widgets({ type: "object", properties: { a: {}, b: { type: "array" } } });
  const answer = await api.ask("POST", CRDS, crd);
  assert.equal(answer.status, 422);
  assert.deepEqual(
    asArray(at(answer.body, "details", "causes")).map((cause) => at(cause, "field")),
    [
      "spec.versions[0].schema.openAPIV3Schema.properties[a].type",
      "spec.versions[0].schema.openAPIV3Schema.properties[b].items",
    ],
  );
});

test("pods: a pod without a node is deleted at once", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", PODS, pod("p"));
  await api.ask("DELETE", `${PODS}/p`);
  assert.equal((await api.ask("GET", `${PODS}/p`)).status, 404);
});
