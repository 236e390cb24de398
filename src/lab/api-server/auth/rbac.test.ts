import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import type { JsonObject } from "../object/json.ts";
import { at } from "../object/json.ts";
import type { ApiServerOptions } from "../options.ts";
import { type Answer, TestServer } from "../test-client.ts";
import type { PolicyRule } from "./auth.ts";
import { ruleAllows } from "./rbac-rules.ts";

const RBAC = "/apis/rbac.authorization.k8s.io/v1";
const TOKENS = {
  root: { name: "admin", groups: ["system:masters"] },
  alice: { name: "alice", groups: ["readers"] },
  bob: { name: "bob", groups: [] },
  robot: {
    name: "system:serviceaccount:apps:robot",
    groups: ["system:serviceaccounts", "system:serviceaccounts:apps"],
  },
};

type Who = keyof typeof TOKENS;

async function start(t: TestContext, options: Partial<ApiServerOptions> = {}) {
  const api = await TestServer.start({ tokens: TOKENS, faultsOverHttp: true, ...options });
  t.after(() => api[Symbol.asyncDispose]());
  const ask = (
    who: Who,
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> => api.ask(method, path, body, { authorization: `Bearer ${who}`, ...headers });
  const make = async (path: string, body: JsonObject): Promise<void> => {
    const { status, body: answer } = await ask("root", "POST", path, body);
    assert.equal(status, 201, JSON.stringify(answer));
  };
  await make("/api/v1/namespaces", { metadata: { name: "apps" } });
  return { api, ask, make };
}

const rule = (verbs: string, resources: string, more: JsonObject = {}): JsonObject => ({
  apiGroups: ["", "apps"],
  resources: resources.split(","),
  verbs: verbs.split(","),
  ...more,
});
const role = (name: string, ...rules: JsonObject[]): JsonObject => ({ metadata: { name }, rules });
const binding = (name: string, kind: string, roleName: string, subject: JsonObject): JsonObject => ({
  metadata: { name },
  roleRef: { apiGroup: "rbac.authorization.k8s.io", kind, name: roleName },
  subjects: [subject.kind === "ServiceAccount" ? subject : { apiGroup: "rbac.authorization.k8s.io", ...subject }],
});
const pod = (name: string): JsonObject => ({
  metadata: { name },
  spec: { containers: [{ name: "c", image: "registry.invalid/c:1" }] },
});

test("rbac: a user without a role is refused with the text of a real API server, and discovery is allowed to all", async (t) => {
  const { ask } = await start(t);
  const cases = [
    [
      "GET",
      "/api/v1/namespaces/apps/pods",
      'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "apps"',
      { kind: "pods" },
    ],
    [
      "GET",
      "/api/v1/namespaces/apps/pods/a",
      'pods "a" is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "apps"',
      { name: "a", kind: "pods" },
    ],
    [
      "GET",
      "/api/v1/pods?watch=1",
      'pods is forbidden: User "bob" cannot watch resource "pods" in API group "" at the cluster scope',
      { kind: "pods" },
    ],
    [
      "DELETE",
      "/api/v1/nodes",
      'nodes is forbidden: User "bob" cannot deletecollection resource "nodes" in API group "" at the cluster scope',
      { kind: "nodes" },
    ],
    [
      "POST",
      "/apis/apps/v1/namespaces/apps/deployments",
      'deployments.apps is forbidden: User "bob" cannot create resource "deployments" in API group "apps" in the namespace "apps"',
      { group: "apps", kind: "deployments" },
    ],
    [
      "POST",
      "/api/v1/namespaces/apps/pods/a/exec",
      'pods "a" is forbidden: User "bob" cannot create resource "pods/exec" in API group "" in the namespace "apps"',
      { name: "a", kind: "pods" },
    ],
    ["GET", "/metrics", 'forbidden: User "bob" cannot get path "/metrics"', {}],
    ["GET", "/lab/faults", 'forbidden: User "bob" cannot get path "/lab/faults"', {}],
  ] as const;
  for (const [method, path, message, details] of cases) {
    const { status, body } = await ask("bob", method, path, method === "POST" ? {} : undefined);
    const wanted = {
      kind: "Status",
      apiVersion: "v1",
      metadata: {},
      status: "Failure",
      message,
      reason: "Forbidden",
      details,
      code: 403,
    };
    assert.deepEqual([status, body], [403, wanted], path);
  }
  for (const path of ["/api", "/apis/apps/v1", "/version", "/openapi/v3", "/healthz"]) {
    assert.equal((await ask("bob", "GET", path)).status, 200, path);
  }
  assert.equal((await ask("root", "GET", "/api/v1/pods")).status, 200);
});

test("rbac: roles apply in their namespace and cluster roles where they are bound, for users, groups and service accounts", async (t) => {
  const { ask, make } = await start(t);
  await make(`${RBAC}/namespaces/apps/roles`, role("pods", rule("get,list,create", "pods")));
  await make(`${RBAC}/clusterroles`, role("reader", rule("get,list,watch", "*")));
  await make(
    `${RBAC}/namespaces/apps/rolebindings`,
    binding("pods", "Role", "pods", { kind: "ServiceAccount", name: "robot", namespace: "apps" }),
  );
  await make(
    `${RBAC}/namespaces/apps/rolebindings`,
    binding("bob", "ClusterRole", "reader", { kind: "User", name: "bob" }),
  );
  await make(
    `${RBAC}/clusterrolebindings`,
    binding("readers", "ClusterRole", "reader", { kind: "Group", name: "readers" }),
  );
  const pods = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;
  const statuses = async (who: Who): Promise<number[]> =>
    Promise.all(
      [
        ask(who, "GET", pods("apps")),
        ask(who, "GET", pods("default")),
        ask(who, "GET", "/api/v1/nodes"),
        ask(who, "POST", `${pods("apps")}?dryRun=All`, pod("a")),
        ask(who, "DELETE", `${pods("apps")}/a`),
      ].map(async (answer) => (await answer).status),
    );
  assert.deepEqual(await statuses("robot"), [200, 403, 403, 201, 403]);
  assert.deepEqual(await statuses("bob"), [200, 403, 403, 403, 403]);
  assert.deepEqual(await statuses("alice"), [200, 200, 200, 403, 403]);
  assert.deepEqual(await statuses("root"), [200, 200, 200, 201, 404]);
  // A removed right is missing at the next request.
  assert.equal((await ask("root", "DELETE", `${RBAC}/clusterrolebindings/readers`)).status, 200);
  assert.deepEqual(await statuses("alice"), [403, 403, 403, 403, 403]);
});

test("rbac: subresources are rights of their own, and names narrow a right, also of lists of one name", async (t) => {
  const { ask, make } = await start(t);
  await make("/api/v1/namespaces/apps/pods", pod("mine"));
  await make("/api/v1/namespaces/apps/pods", pod("other"));
  await make(
    `${RBAC}/namespaces/apps/roles`,
    role("mine", rule("get,list,watch", "pods", { resourceNames: ["mine"] }), rule("get,patch", "*/status")),
  );
  await make(`${RBAC}/namespaces/apps/rolebindings`, binding("bob", "Role", "mine", { kind: "User", name: "bob" }));
  const pods = "/api/v1/namespaces/apps/pods";
  const cases = [
    [`${pods}/mine`, 200],
    [`${pods}/other`, 403],
    [pods, 403],
    [`${pods}?fieldSelector=metadata.name%3Dmine`, 200],
    [`${pods}?fieldSelector=metadata.name%3Dother`, 403],
    [`${pods}/other/status`, 200],
    [`${pods}/mine/log`, 403],
  ] as const;
  for (const [path, wanted] of cases) assert.equal((await ask("bob", "GET", path)).status, wanted, path);
});

test("rbac: the refusal names a binding to a missing role", async (t) => {
  const { ask, make } = await start(t);
  await make(`${RBAC}/clusterrolebindings`, binding("gone", "ClusterRole", "gone", { kind: "User", name: "bob" }));
  const { body } = await ask("bob", "GET", "/api/v1/nodes");
  assert.equal(
    body["message"],
    'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found',
  );
});

test("rbac: reviews answer from the same rules, about oneself and about others", async (t) => {
  const { ask, make } = await start(t);
  await make(`${RBAC}/clusterroles`, role("reader", rule("get", "pods")));
  await make(`${RBAC}/clusterrolebindings`, binding("bob", "ClusterRole", "reader", { kind: "User", name: "bob" }));
  const review = async (who: Who, kind: string, spec: JsonObject) => {
    const path = `/apis/authorization.k8s.io/v1/${kind.toLowerCase()}s`;
    const { status, body } = await ask(who, "POST", path, { apiVersion: "authorization.k8s.io/v1", kind, spec });
    return [status, body["message"] ?? body["status"]];
  };
  const get = { resourceAttributes: { verb: "get", resource: "pods", namespace: "apps" } };
  const remove = { resourceAttributes: { verb: "delete", resource: "pods", namespace: "apps" } };
  const reason = 'RBAC: allowed by ClusterRoleBinding "bob" of ClusterRole "reader" to User "bob"';
  assert.deepEqual(await review("bob", "SelfSubjectAccessReview", get), [201, { allowed: true, reason }]);
  assert.deepEqual(await review("bob", "SelfSubjectAccessReview", remove), [201, { allowed: false }]);
  assert.deepEqual(await review("root", "SubjectAccessReview", { ...get, user: "bob" }), [
    201,
    { allowed: true, reason },
  ]);
  assert.deepEqual(await review("root", "SubjectAccessReview", { ...get, user: "alice" }), [201, { allowed: false }]);
  const path = { nonResourceAttributes: { path: "/api/v1", verb: "get" }, groups: ["system:authenticated"] };
  assert.equal(at((await review("root", "SubjectAccessReview", path))[1] as JsonObject, "allowed"), true);
  const [status, message] = await review("bob", "SubjectAccessReview", { ...get, user: "alice" });
  assert.deepEqual(
    [status, /^subjectaccessreviews.authorization.k8s.io is forbidden: User "bob"/.test(String(message))],
    [403, true],
  );
  const [, rules] = await review("bob", "SelfSubjectRulesReview", { namespace: "apps" });
  assert.equal(at(rules as JsonObject, "incomplete"), false);
  assert.ok(JSON.stringify(rules).includes('{"verbs":["get"],"apiGroups":["","apps"],"resources":["pods"]}'));
});

test("rbac: with the right to impersonate a request is authorized as the other user, without it refused", async (t) => {
  const { ask } = await start(t);
  const as = (name: string, ...groups: string[]): Record<string, string> => ({
    "impersonate-user": name,
    ...(groups.length === 0 ? {} : { "impersonate-group": groups.join(", ") }),
  });
  assert.match(
    String((await ask("root", "GET", "/api/v1/nodes", undefined, as("carol"))).body["message"]),
    /User "carol" cannot list/,
  );
  assert.equal((await ask("root", "GET", "/api/v1/nodes", undefined, as("carol", "system:masters"))).status, 200);
  const { status, body } = await ask("bob", "GET", "/api/v1/nodes", undefined, as("system:serviceaccount:apps:robot"));
  assert.deepEqual(
    [status, body["message"]],
    [
      403,
      'serviceaccounts "robot" is forbidden: User "bob" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "apps"',
    ],
  );
});

test("rbac: kubectl auth can-i answers as the rules decide", async (t) => {
  // kubectl sends no token without TLS.
  const host = "127.0.0.1";
  const listen = [
    { host, port: 0, plain: true },
    { host, port: 0 },
  ];
  const { api, make } = await start(t, { tls: "self-signed", listen });
  const [, server = ""] = api.server.urls;
  await make(`${RBAC}/clusterroles`, role("reader", rule("get,list", "pods")));
  await make(`${RBAC}/clusterrolebindings`, binding("bob", "ClusterRole", "reader", { kind: "User", name: "bob" }));
  const folder = mkdtempSync(join(tmpdir(), "isthmus-rbac-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const kubectl = (who: Who, ...args: string[]): Promise<string> => {
    const kubeconfig = join(folder, who);
    writeFileSync(kubeconfig, api.server.kubeconfig({ server, token: who }));
    return new Promise((resolve) =>
      execFile("kubectl", [`--kubeconfig=${kubeconfig}`, ...args], { timeout: 20_000 }, (_error, stdout) =>
        resolve(stdout.trim()),
      ),
    );
  };
  assert.equal(await kubectl("bob", "auth", "can-i", "list", "pods"), "yes");
  assert.equal(await kubectl("bob", "auth", "can-i", "delete", "pods"), "no");
  assert.equal(await kubectl("root", "auth", "can-i", "*", "*"), "yes");
  assert.equal(await kubectl("root", "auth", "can-i", "list", "pods", "--as=bob"), "yes");
  assert.equal(await kubectl("root", "auth", "can-i", "list", "nodes", "--as=bob"), "no");
  assert.match(await kubectl("bob", "auth", "can-i", "--list"), /^pods +\[\] +\[\] +\[get list\]$/m);
});

test("ruleAllows: a rule with less allows nothing more", () => {
  const word = fc.constantFrom("*", "get", "pods", "pods/exec", "*/exec", "apps", "", "a", "/healthz", "/api/*");
  const words = fc.array(word, { maxLength: 3 });
  const rules = fc.record({
    verbs: words,
    apiGroups: words,
    resources: words,
    resourceNames: fc.constant([]),
    nonResourceURLs: words,
  });
  const request = fc.record({
    verb: fc.constantFrom("get", "list"),
    group: fc.constantFrom("", "apps"),
    version: fc.constant("v1"),
    resource: fc.constantFrom("pods", "nodes"),
    subresource: fc.constantFrom("", "exec"),
    namespace: fc.constant("apps"),
    name: fc.constantFrom("", "a"),
  });
  fc.assert(
    fc.property(rules, request, (whole: PolicyRule, asked) => {
      for (const field of ["verbs", "apiGroups", "resources"] as const) {
        const less = { ...whole, [field]: whole[field].slice(1) };
        assert.ok(!ruleAllows(less, asked) || ruleAllows(whole, asked));
      }
      assert.ok(!ruleAllows({ ...whole, resourceNames: ["a"] }, asked) || asked.name === "a");
    }),
  );
});
