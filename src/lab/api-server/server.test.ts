import assert from "node:assert/strict";
import { test } from "node:test";
import { at, type JsonObject } from "./object/json.ts";
import { configMap, MAPS, PODS, pod, TestServer } from "./test-client.ts";

const DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments";

function deployment(name: string): JsonObject {
  const labels = { app: name };
  const template = { metadata: { labels }, spec: { containers: [{ name: "c", image: "registry.invalid/c:1" }] } };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name },
    spec: { selector: { matchLabels: labels }, template },
  };
}

test("server: an object is created, read, replaced, patched and deleted", async () => {
  await using api = await TestServer.start();
  const made = await api.ask("POST", MAPS, configMap("a", { x: "1" }));
  assert.equal(made.status, 201);
  const again = await api.ask("POST", MAPS, configMap("a"));
  assert.deepEqual([again.status, again.body["reason"]], [409, "AlreadyExists"]);
  const replaced = await api.ask("PUT", `${MAPS}/a`, { ...made.body, data: { x: "2" } });
  assert.equal(at(replaced.body, "data", "x"), "2");
  assert.ok(
    Number(at(replaced.body, "metadata", "resourceVersion")) > Number(at(made.body, "metadata", "resourceVersion")),
  );
  const patched = await api.patch(`${MAPS}/a`, "merge-patch+json", { data: { y: "3" } });
  assert.deepEqual(patched.body["data"], { x: "2", y: "3" });
  assert.equal((await api.ask("DELETE", `${MAPS}/a`)).body["status"], "Success");
  assert.equal((await api.ask("GET", `${MAPS}/a`)).body["reason"], "NotFound");
});

test("server: a workload begins with an empty status, in which the counts that its schema requires are zero", async () => {
  await using api = await TestServer.start();
  const made = async (kind: string): Promise<unknown> => {
    const { spec, ...rest } = deployment("a");
    const own = kind === "StatefulSet" ? { serviceName: "a" } : {};
    const body = { ...rest, kind, spec: { ...(spec as JsonObject), ...own }, status: { replicas: 5 } };
    const answer = await api.ask("POST", `/apis/apps/v1/namespaces/default/${kind.toLowerCase()}s`, body);
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
    return answer.body["status"];
  };
  assert.deepEqual(await made("Deployment"), {});
  assert.deepEqual(await made("ReplicaSet"), { replicas: 0 });
  assert.deepEqual(await made("StatefulSet"), { replicas: 0 });
  assert.deepEqual(await made("DaemonSet"), {
    currentNumberScheduled: 0,
    desiredNumberScheduled: 0,
    numberMisscheduled: 0,
    numberReady: 0,
  });
});

test("server: a write from an old version is a conflict, a patch without a version is not", async () => {
  await using api = await TestServer.start();
  const { body: old } = await api.ask("POST", MAPS, configMap("a"));
  await api.patch(`${MAPS}/a`, "merge-patch+json", { data: { x: "1" } });
  const stale = await api.ask("PUT", `${MAPS}/a`, old);
  assert.deepEqual([stale.status, stale.body["reason"]], [409, "Conflict"]);
  const pinned = { metadata: { resourceVersion: at(old, "metadata", "resourceVersion") } };
  assert.equal((await api.patch(`${MAPS}/a`, "merge-patch+json", pinned)).status, 409);
});

test("server: a write that changes nothing makes no new version and no event", async () => {
  await using api = await TestServer.start();
  const { body } = await api.ask("POST", MAPS, configMap("a", { x: "1" }));
  const same = await api.ask("PUT", `${MAPS}/a`, body);
  assert.equal(at(same.body, "metadata", "resourceVersion"), at(body, "metadata", "resourceVersion"));
});

test("server: preconditions of a delete hold or refuse it", async () => {
  await using api = await TestServer.start();
  const { body } = await api.ask("POST", MAPS, configMap("a"));
  const preconditions = (uid: unknown): JsonObject => ({
    kind: "DeleteOptions",
    apiVersion: "v1",
    preconditions: { uid: uid as string },
  });
  assert.equal((await api.ask("DELETE", `${MAPS}/a`, preconditions("other"))).status, 409);
  assert.equal((await api.ask("DELETE", `${MAPS}/a`, preconditions(at(body, "metadata", "uid")))).status, 200);
});

test("server: the status subresource writes status only, the main one everything else", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", DEPLOYMENTS, deployment("d"));
  const status = await api.patch(`${DEPLOYMENTS}/d/status`, "merge-patch+json", {
    spec: { replicas: 9 },
    status: { replicas: 3 },
  });
  assert.deepEqual([at(status.body, "spec", "replicas"), at(status.body, "status", "replicas")], [1, 3]);
  const main = await api.patch(`${DEPLOYMENTS}/d`, "merge-patch+json", {
    spec: { replicas: 2 },
    status: { replicas: 7 },
  });
  assert.deepEqual(
    [at(main.body, "spec", "replicas"), at(main.body, "status", "replicas"), at(main.body, "metadata", "generation")],
    [2, 3, 2],
  );
  const scale = await api.ask("GET", `${DEPLOYMENTS}/d/scale`);
  assert.deepEqual([at(scale.body, "spec", "replicas"), at(scale.body, "status", "selector")], [2, "app=d"]);
  const scaled = await api.ask("PUT", `${DEPLOYMENTS}/d/scale`, { ...scale.body, spec: { replicas: 5 } });
  assert.equal(at(scaled.body, "spec", "replicas"), 5);
});

test("server: server-side apply keeps owners apart and answers 409 with causes", async () => {
  await using api = await TestServer.start();
  const apply = (manager: string, data: Record<string, string>, force = false) =>
    api.patch(`${MAPS}/a?fieldManager=${manager}&force=${force}`, "apply-patch+yaml", configMap("a", data));
  assert.equal((await apply("one", { x: "1", y: "1" })).status, 201);
  const refused = await apply("two", { x: "2" });
  assert.equal(refused.status, 409);
  assert.deepEqual(at(refused.body, "details", "causes"), [
    { reason: "FieldManagerConflict", message: 'conflict with "one"', field: ".data.x" },
  ]);
  assert.deepEqual((await apply("two", { x: "2" }, true)).body["data"], { x: "2", y: "1" });
  const before = (await api.ask("GET", `${MAPS}/a`)).body;
  assert.deepEqual((await apply("two", { x: "2" })).body, before, "applying the same again changes nothing");
});

test("server: a dry run answers as if and stores nothing", async () => {
  await using api = await TestServer.start();
  assert.equal((await api.ask("POST", `${MAPS}?dryRun=All`, configMap("a"))).status, 201);
  assert.equal((await api.ask("GET", `${MAPS}/a`)).status, 404);
});

test("server: unknown fields are dropped with a warning, or refused when validation is strict", async () => {
  await using api = await TestServer.start();
  const lax = await api.ask("POST", MAPS, { ...configMap("a"), nonsense: 1 });
  assert.match(lax.headers.get("warning") ?? "", /unknown field \\"nonsense\\"/);
  assert.equal(lax.body["nonsense"], undefined);
  const strict = await api.ask("POST", `${MAPS}?fieldValidation=Strict`, { ...configMap("b"), nonsense: 1 });
  assert.deepEqual([strict.status, strict.body["reason"]], [400, "BadRequest"]);
});

test("server: only known tokens are accepted", async () => {
  const tokens = { good: { name: "admin", groups: ["system:masters"] } };
  await using api = await TestServer.start({ tokens });
  assert.equal((await api.ask("GET", MAPS)).status, 401);
  assert.equal((await api.ask("GET", MAPS, undefined, { authorization: "Bearer bad" })).status, 401);
  assert.equal((await api.ask("GET", MAPS, undefined, { authorization: "Bearer good" })).status, 200);
  assert.equal((await api.ask("GET", "/healthz")).status, 200);
});

test("server: TokenReviews know the tokens they were given, for the audiences that these have", async () => {
  const user = { name: "system:serviceaccount:kube-system:agent", groups: ["system:serviceaccounts"] };
  await using api = await TestServer.start({ reviewedTokens: new Map([["t", { user, audiences: ["a", "b"] }]]) });
  const review = async (token: string, audiences?: readonly string[]) => {
    const body = { kind: "TokenReview", apiVersion: "authentication.k8s.io/v1", spec: { token, audiences } };
    const answer = await api.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body);
    assert.equal(answer.status, 201);
    return answer.body["status"];
  };
  const known = { authenticated: true, user: { username: user.name, groups: user.groups } };
  assert.deepEqual(await review("t", ["b", "c"]), { ...known, audiences: ["b"] });
  assert.deepEqual(await review("t"), { ...known, audiences: ["a", "b"] });
  assert.deepEqual(await review("x", ["a"]), { user: {}, error: "[invalid bearer token]" });
  const other = '[token audiences ["a","b"] is invalid for the target audiences ["c"]]';
  assert.deepEqual(await review("t", ["c"]), { user: {}, error: other });
});

test("server: a body above the bound is refused with 413", async () => {
  await using api = await TestServer.start();
  const big = await api.ask("POST", MAPS, configMap("a", { x: "y".repeat(3 * 1024 * 1024) }));
  assert.deepEqual([big.status, big.body["reason"]], [413, "RequestEntityTooLarge"]);
});

test("server: events are one thing in two API groups", async () => {
  await using api = await TestServer.start();
  const event = {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name: "e" },
    regarding: { kind: "Pod", name: "p", namespace: "default" },
    note: "hello",
    reason: "Because",
    type: "Normal",
    action: "Test",
    reportingController: "c",
    reportingInstance: "i",
    eventTime: "2026-01-01T00:00:00.000000Z",
  };
  assert.equal((await api.ask("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event)).status, 201);
  const core = await api.ask("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=p");
  assert.equal(at((core.body["items"] as JsonObject[])[0], "message"), "hello");
  const modern = await api.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e");
  assert.deepEqual([modern.body["note"], modern.body["apiVersion"]], ["hello", "events.k8s.io/v1"]);
});

test("server: a bound pod is deleted with grace, its end comes with a delete of grace 0", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", PODS, pod("p"));
  const bound = await api.ask("POST", `${PODS}/p/binding`, {
    apiVersion: "v1",
    kind: "Binding",
    metadata: { name: "p" },
    target: { kind: "Node", name: "n1" },
  });
  assert.equal(bound.status, 201);
  const onNode = await api.ask("GET", `${PODS}?fieldSelector=spec.nodeName=n1`);
  assert.equal((onNode.body["items"] as JsonObject[]).length, 1);
  const deleted = await api.ask("DELETE", `${PODS}/p`);
  assert.equal(at(deleted.body, "metadata", "deletionGracePeriodSeconds"), 30);
  assert.equal((await api.ask("GET", `${PODS}/p`)).status, 200);
  await api.ask("DELETE", `${PODS}/p?gracePeriodSeconds=0`);
  assert.equal((await api.ask("GET", `${PODS}/p`)).status, 404);
});

test("server: pods are selected by node as they come, are bound and go, with other terms and in pages too", async () => {
  await using api = await TestServer.start();
  const names = async (query: string): Promise<string[]> => {
    const { body } = await api.ask("GET", `${PODS}?${query}`);
    return (body["items"] as JsonObject[]).map((one) => String(at(one, "metadata", "name")));
  };
  await api.ask("POST", PODS, pod("c", "n1"));
  assert.deepEqual(await names("fieldSelector=spec.nodeName=n1"), ["c"], "from its first use on the index is kept");
  for (const name of ["b", "a", "d"]) await api.ask("POST", PODS, pod(name, "n1"));
  await api.ask("POST", PODS, pod("other", "n2"));
  await api.ask("POST", PODS, pod("free"));
  assert.deepEqual(await names("fieldSelector=spec.nodeName=n1"), ["a", "b", "c", "d"]);
  assert.deepEqual(await names("fieldSelector=spec.nodeName%3Dn1,metadata.name!%3Db"), ["a", "c", "d"]);
  assert.deepEqual(await names("fieldSelector=spec.nodeName=n1&limit=2"), ["a", "b"]);
  assert.deepEqual(await names("fieldSelector=spec.nodeName="), ["free"]);
  await api.ask("POST", `${PODS}/free/binding`, {
    apiVersion: "v1",
    kind: "Binding",
    metadata: { name: "free" },
    target: { kind: "Node", name: "n1" },
  });
  await api.ask("DELETE", `${PODS}/a?gracePeriodSeconds=0`);
  assert.deepEqual(await names("fieldSelector=spec.nodeName=n1"), ["b", "c", "d", "free"]);
  assert.deepEqual(await names("fieldSelector=spec.nodeName="), []);
});

test("server: an eviction waits for the disruption budget", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", PODS, { ...pod("p", "n1"), metadata: { name: "p", labels: { a: "b" } } });
  await api.patch(`${PODS}/p/status`, "merge-patch+json", { status: { phase: "Running" } });
  const budget = {
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata: { name: "b" },
    spec: { minAvailable: 1, selector: { matchLabels: { a: "b" } } },
  };
  assert.equal((await api.ask("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)).status, 201);
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "p" } };
  const refused = await api.ask("POST", `${PODS}/p/eviction`, eviction);
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get("retry-after"), "10");
});

test("server: pods/log answers that it is not served", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", PODS, pod("p"));
  const log = await api.ask("GET", `${PODS}/p/log`);
  assert.deepEqual([log.status, log.body["reason"]], [501, "NotImplemented"]);
});

test("server: it answers on several listeners, some of them plain", async () => {
  const listen = [
    { host: "127.0.0.1", port: 0 },
    { host: "127.0.0.1", port: 0, plain: true },
  ];
  await using api = await TestServer.start({ listen, tls: "self-signed" });
  assert.match(api.server.urls[0] ?? "", /^https:/);
  assert.match(api.server.kubeconfig(), /certificate-authority-data: \S{100}/);
  const answer = await fetch(`${api.server.urls[1]}/version`);
  assert.equal(((await answer.json()) as JsonObject)["major"], "1");
});

test("server: seeded objects are stored unchanged", async () => {
  await using api = await TestServer.start();
  const pods = Array.from({ length: 1000 }, (_, index) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `p-${index}`, namespace: "default" },
    status: { phase: "Running" },
  }));
  assert.equal(api.server.seed(pods), 1000);
  const { body } = await api.ask("GET", `${PODS}?limit=10`);
  assert.deepEqual([(body["items"] as unknown[]).length, at(body, "metadata", "remainingItemCount")], [10, 990]);
  assert.throws(() => api.server.seed(pods), /already exists/);
});
