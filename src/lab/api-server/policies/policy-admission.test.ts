import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeClient, type KubeObject, loadKubeConfig, resources } from "#kube/client";
import { type SeedObject, startApiServer } from "../index.ts";

const POLICY = {
  apiVersion: "admissionregistration.k8s.io/v1",
  kind: "ValidatingAdmissionPolicy",
  metadata: { name: "p" },
};
const BINDING = {
  apiVersion: "admissionregistration.k8s.io/v1",
  kind: "ValidatingAdmissionPolicyBinding",
  metadata: { name: "b" },
  spec: { policyName: "p", validationActions: ["Deny"] },
};
const RULES = [{ apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["configmaps"] }];

async function open(t: TestContext, spec: object, binding: object = BINDING) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-policies-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: { t: { name: "alice", groups: ["system:masters"], extra: { "example.com/node": ["n1", "n2"] } } },
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  server.seed([{ ...POLICY, spec: { matchConstraints: { resourceRules: RULES }, ...spec } }, binding] as SeedObject[]);
  const path = join(folder, "config");
  writeFileSync(path, server.kubeconfig({ token: "t" }));
  const api = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
  t.after(() => api.close());
  const map = (name: string, data: Record<string, string> = {}) =>
    api.create(resources.configMaps, { metadata: { namespace: "default", name }, data });
  return { api, map };
}

test("policies: what does not hold is refused with its message and reason; other resources are not asked about", async (t) => {
  const { api, map } = await open(t, {
    variables: [{ name: "size", expression: "has(object.data) ? object.data.size() : 0" }],
    validations: [
      {
        expression: "variables.size < 2",
        messageExpression: "'it has ' + string(variables.size)",
        reason: "Forbidden",
      },
      { expression: "!('bad' in object.data) || object.data.bad != 'yes'" },
    ],
  });
  await map("good", { a: "1" });
  await assert.rejects(map("two", { a: "1", b: "2" }), {
    code: "forbidden",
    message: /configmaps "two" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: it has 2/,
  });
  await assert.rejects(map("bad", { bad: "yes" }), { code: "invalid", message: /failed expression: !\('bad' in/ });
  const body = { data: { bad: "yes" } };
  await assert.rejects(
    api.patch(resources.configMaps, { namespace: "default", name: "good" }, { type: "merge", body }),
    { message: /it has 2/ },
  );
  await api.create(resources.secrets, { metadata: { namespace: "default", name: "s" } } as KubeObject);
});

test("policies: the user, old objects, conditions, failures of expressions, and bindings", async (t) => {
  const said = (text: string) => ({ validations: [{ expression: text, message: "no" }] });
  const userIs = "request.userInfo.username == 'alice' && request.userInfo.extra['example.com/node'][0] == 'n1'";
  await (await open(t, said(`${userIs} && oldObject == null && request.operation == 'CREATE'`))).map("one");
  const skipped = { matchConditions: [{ name: "c", expression: "request.name == 'other'" }], ...said("false") };
  await (await open(t, skipped)).map("one");
  await assert.rejects((await open(t, skipped)).map("other"), { message: /denied request: no/ });
  await assert.rejects((await open(t, said("object.nothing == 'x'"))).map("one"), {
    message: /expression 'object.nothing == 'x'' resulted in error: no such key/,
  });
  await assert.rejects((await open(t, said("object +"))).map("one"), { message: /resulted in error: ERROR/ });
  await (await open(t, { failurePolicy: "Ignore", ...said("object.nothing == 'x'") })).map("one");
  const audits = { ...BINDING, spec: { policyName: "p", validationActions: ["Audit"] } };
  await (await open(t, said("false"), audits)).map("one");
});

test("policies: objects have the version of the request, and those of a deleted collection come one by one, without their names", async (t) => {
  const rules = [
    { apiGroups: [""], apiVersions: ["v1"], operations: ["DELETE"], resources: ["configmaps"] },
    { apiGroups: ["events.k8s.io"], apiVersions: ["v1"], operations: ["*"], resources: ["events"] },
  ];
  const { api, map } = await open(t, {
    matchConstraints: { resourceRules: rules },
    validations: [
      {
        expression: "request.resource.resource == 'events' || oldObject.metadata.name != 'kept'",
        messageExpression: "'the name is ' + (request.name == '' ? 'empty' : request.name)",
        reason: "Forbidden",
      },
      { expression: "object == null || object.reportingController == 'me'", message: "not mine", reason: "Forbidden" },
    ],
  });
  await map("gone");
  await map("kept");
  const at = "/api/v1/namespaces/default/configmaps";
  await assert.rejects(api.request({ method: "DELETE", path: at }), { message: /the name is empty/ });
  await assert.rejects(api.request({ method: "DELETE", path: `${at}/kept` }), { message: /the name is kept/ });
  assert.deepEqual(
    (await api.listAll(resources.configMaps, { namespace: "default" })).items.map(({ metadata }) => metadata.name),
    ["kept"],
  );
  const event = (name: string, reportingController: string) =>
    api.create(resources.events, {
      metadata: { namespace: "default", name },
      regarding: { kind: "Pod", namespace: "default", name: "p" },
      ...{ type: "Normal", reason: "R", action: "R", note: "n", eventTime: "2026-01-01T00:00:00.000000Z" },
      ...{ reportingController, reportingInstance: "i" },
    } as never);
  assert.equal((await event("mine", "me")).reportingController, "me");
  await assert.rejects(event("other", "you"), { code: "forbidden", message: /not mine/ });
});
