import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { type Draft, KubeClient, type KubeObject, type ResourceType, resources, staticConnection } from "#kube/client";
import { startApiServer } from "../index.ts";

interface Asked {
  readonly path: string;
  readonly apiVersion: string;
  readonly request: Readonly<Record<string, unknown>>;
}
type Respond = (asked: Asked) => object | number;

const patchOf = (operations: object[]): object => ({
  allowed: true,
  patchType: "JSONPatch",
  patch: Buffer.from(JSON.stringify(operations)).toString("base64"),
});

/** An API server, and a webhook server whose answers the test gives. */
async function open(t: TestContext, respond: Respond) {
  const life = { organization: "t", notBefore: Date.now() - 1e6, notAfter: Date.now() + 1e8 };
  const authority = createAuthority({ commonName: "ca", ...life });
  const pair = issueServerCertificate(authority, { hosts: ["hooks.kube-system.svc"], ...life });
  const asked: Asked[] = [];
  const hooks = createServer(pair, (request, response) => {
    void (async () => {
      let text = "";
      for await (const chunk of request) text += chunk;
      const one: Asked = { path: request.url ?? "", ...JSON.parse(text) };
      asked.push(one);
      const answer = respond(one);
      if (typeof answer === "number") {
        if (answer > 0) response.writeHead(answer).end("broken");
        return;
      }
      const { apiVersion } = one;
      response.end(
        JSON.stringify({ apiVersion, kind: "AdmissionReview", response: { uid: one.request["uid"], ...answer } }),
      );
    })();
  });
  hooks.listen(0, "127.0.0.1");
  await once(hooks, "listening");
  t.after(() => {
    hooks.close();
    hooks.closeAllConnections();
  });
  const { port } = hooks.address() as AddressInfo;
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    webhooks: ({ namespace, name }) =>
      namespace === "kube-system" && name === "hooks" ? { host: "127.0.0.1", port } : undefined,
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const api = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  t.after(() => api.close());
  const create = <T extends KubeObject>(type: ResourceType<T>, object: object, options = {}): Promise<T> =>
    api.create(type, object as Draft<T>, options);
  const configure = (type: "mutating" | "validating", init: object = {}, name = "h.example.com"): Promise<unknown> => {
    const hook = {
      name,
      admissionReviewVersions: ["v1", "v1beta1"],
      sideEffects: "None",
      clientConfig: {
        caBundle: Buffer.from(authority.cert).toString("base64"),
        service: { namespace: "kube-system", name: "hooks", path: `/${type}` },
      },
      rules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["configmaps"] }],
      ...init,
    };
    const types =
      type === "mutating" ? resources.mutatingWebhookConfigurations : resources.validatingWebhookConfigurations;
    return create(types as ResourceType<KubeObject>, {
      metadata: { name: name.replaceAll(".", "-") },
      webhooks: [hook],
    });
  };
  const map = (name: string, options = {}) =>
    create(resources.configMaps, { metadata: { namespace: "default", name }, data: { a: "1" } }, options);
  return { api, asked, create, configure, map };
}

test("webhooks: a mutation is stored, validating ones see it, and their denial is the client's error", async (t) => {
  const { api, asked, configure, map } = await open(t, ({ path, request }) => {
    if (path.startsWith("/mutating")) return patchOf([{ op: "add", path: "/data/b", value: "2" }]);
    return request["name"] === "bad"
      ? { allowed: false, status: { message: "bad name", reason: "Invalid", code: 422, details: { causes: [] } } }
      : { allowed: true };
  });
  await configure("mutating");
  await configure("validating", { admissionReviewVersions: ["v1beta1"] });
  assert.deepEqual((await map("good")).data, { a: "1", b: "2" });
  assert.deepEqual(
    asked.map(({ path, apiVersion }) => [path, apiVersion]),
    [
      ["/mutating?timeout=10s", "admission.k8s.io/v1"],
      ["/validating?timeout=10s", "admission.k8s.io/v1beta1"],
    ],
  );
  assert.deepEqual((asked[1]?.request["object"] as { data: object } | undefined)?.data, { a: "1", b: "2" });
  await assert.rejects(map("bad"), {
    code: "invalid",
    message: /admission webhook "h.example.com" denied the request: bad name/,
  });
  const before = asked.length;
  await api.delete(resources.configMaps, { namespace: "default", name: "good" });
  assert.equal(asked.length, before, "DELETE is in no rule");
});

test("webhooks: a failing, slow or unknown one refuses with its name, or is ignored, by its failurePolicy", async (t) => {
  for (const [what, init, says, answer] of [
    ["broken", {}, /failed calling webhook "h.example.com": .*answered 500: broken/, 500],
    ["slow", { timeoutSeconds: 1 }, /context deadline exceeded/, 0],
    [
      "nowhere",
      { clientConfig: { service: { namespace: "x", name: "y" }, caBundle: "" } },
      /service "y" not found/,
      200,
    ],
    ["not trusted", { clientConfig: { service: { namespace: "kube-system", name: "hooks" } } }, /certificate/, 200],
  ] as const) {
    await t.test(what, async (inner) => {
      const failing = await open(inner, () => answer);
      await failing.configure("validating", init);
      await assert.rejects(failing.map("one"), says);
    });
    await t.test(`${what}, ignored`, async (inner) => {
      const ignored = await open(inner, () => answer);
      await ignored.configure("validating", { ...init, failurePolicy: "Ignore" });
      await ignored.map("one");
    });
  }
});

test("webhooks: selectors, operations and dry run decide who is asked, and a patch that breaks an object is refused", async (t) => {
  const { api, asked, configure, create, map } = await open(t, ({ path }) =>
    path.startsWith("/mutating") ? patchOf([{ op: "replace", path: "/data/a", value: 5 }]) : { allowed: true },
  );
  await configure("validating", { objectSelector: { matchLabels: { on: "yes" } } }, "a.example.com");
  await configure("validating", { namespaceSelector: { matchLabels: { on: "yes" } } }, "b.example.com");
  await configure(
    "validating",
    { sideEffects: "Some", objectSelector: { matchLabels: { some: "yes" } } },
    "c.example.com",
  );
  await map("unselected");
  assert.equal(asked.length, 0);
  const labelled = (labels: object) => ({ metadata: { namespace: "default", name: "x", labels } });
  await create(resources.configMaps, labelled({ on: "yes" }), { dryRun: true });
  assert.deepEqual(
    asked.map(({ request }) => request["dryRun"]),
    [true],
  );
  await assert.rejects(create(resources.configMaps, labelled({ some: "yes" }), { dryRun: true }), {
    message: /admission webhook "c.example.com" does not support dry run/,
  });
  await configure("mutating", {}, "m.example.com");
  await assert.rejects(map("broken"), { code: "invalid", message: /data.a/ });
  assert.deepEqual((await api.listAll(resources.configMaps, { namespace: "default" })).items.length, 1);
});

test("webhooks: matchConditions send what meets all of them; one without a value is a failure, unless another one is false", async (t) => {
  const { asked, configure, map } = await open(t, () => ({ allowed: true }));
  const named = { name: "named", expression: "object.metadata.name.startsWith('a') && request.operation == 'CREATE'" };
  const broken = { name: "broken", expression: "object.data.nothing == 'x'" };
  await configure("validating", { matchConditions: [named] }, "a.example.com");
  await map("b1");
  assert.equal(asked.length, 0);
  await map("a1");
  assert.equal(asked.length, 1);
  await configure("validating", { matchConditions: [broken, named], failurePolicy: "Fail" }, "b.example.com");
  await map("b2");
  await assert.rejects(map("a2"), /failed calling webhook "b\.example\.com"/);
});
