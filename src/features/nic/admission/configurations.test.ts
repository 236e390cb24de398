/** The webhook configurations of deploy/: whom they send to their servers, and for how long they hold up whoever they send. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { globSync, readFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { type Draft, KubeClient, type KubeObject, type ResourceType, resources, staticConnection } from "#kube/client";
import { ENABLED_LABEL, NICS_GATE, REQUIRE_VPC_LABEL } from "#kube/nic";
import { startApiServer } from "#lab/api-server";
import { STATUS_ANNOTATIONS, WISH_ANNOTATIONS } from "./reviewed-pod.ts";

interface Configuration {
  readonly kind: string;
  readonly metadata: object;
  readonly webhooks: readonly {
    readonly name: string;
    readonly timeoutSeconds?: number;
    readonly clientConfig: object;
    readonly rules: readonly { readonly apiGroups: readonly string[]; readonly resources: readonly string[] }[];
  }[];
}

const deploy = join(import.meta.dirname, "../../../../deploy");

/** The configurations of a file of `deploy/`. */
function configurationsOf(file: string): readonly Configuration[] {
  const documents = parseAllDocuments(readFileSync(join(deploy, file), "utf8")).map((one) => one.toJS());
  return documents.filter((one) => /WebhookConfiguration$/.test(String(one?.kind)));
}

/** An API server with the configurations of NICs, and the paths by which their server was asked for each pod. */
async function open(t: TestContext) {
  const life = { organization: "t", notBefore: Date.now() - 1e6, notAfter: Date.now() + 1e8 };
  const authority = createAuthority({ commonName: "ca", ...life });
  let asked: string[] = [];
  const pair = issueServerCertificate(authority, { hosts: ["nic-webhook-service.kube-system.svc"], ...life });
  const hooks = createServer(pair, (request, response) => {
    void (async () => {
      let text = "";
      for await (const chunk of request) text += chunk;
      asked.push((request.url ?? "").split("-")[0] ?? "");
      const { apiVersion, request: review } = JSON.parse(text);
      response.end(
        JSON.stringify({ apiVersion, kind: "AdmissionReview", response: { uid: review.uid, allowed: true } }),
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
    webhooks: () => ({ host: "127.0.0.1", port }),
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const api = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  t.after(() => api.close());
  const caBundle = Buffer.from(authority.cert).toString("base64");
  for (const { kind, metadata, webhooks } of configurationsOf("nics/webhooks.yaml")) {
    const type = kind.startsWith("Mutating")
      ? resources.mutatingWebhookConfigurations
      : resources.validatingWebhookConfigurations;
    const own = webhooks.map((one) => ({ ...one, clientConfig: { ...one.clientConfig, caBundle } }));
    await api.create(type as ResourceType<KubeObject>, { metadata, webhooks: own } as unknown as Draft<KubeObject>);
  }
  let pods = 0;
  return {
    addNamespace: (name: string, labels: Record<string, string>) =>
      api.create(resources.namespaces, { metadata: { name, labels } }),
    /** The calls for a pod that is created, and then those for a change of it. */
    async askedFor(namespace: string, pod: { annotations?: Record<string, string>; spec?: object }, change?: object) {
      asked = [];
      pods += 1;
      const name = `p${pods}`;
      const { annotations = {}, spec = {} } = pod;
      const containers = [{ name: "c", image: "i" }];
      await api.create(resources.pods, { metadata: { namespace, name, annotations }, spec: { containers, ...spec } });
      if (change !== undefined) {
        asked = [];
        await api.patch(resources.pods, { namespace, name }, { type: "merge", body: change });
      }
      return asked.sort().join(" ");
    },
  };
}

test("webhooks of NICs: a pod that says nothing of NICs waits for nobody, unless its namespace is enabled or requires a VPC", async (t) => {
  const { addNamespace, askedFor } = await open(t);
  await addNamespace("enabled", { [ENABLED_LABEL]: "" });
  await addNamespace("strict", { [REQUIRE_VPC_LABEL]: "true" });
  await addNamespace("lax", { [REQUIRE_VPC_LABEL]: "false" });
  for (const namespace of ["default", "lax"]) {
    assert.equal(await askedFor(namespace, {}), "", namespace);
    const plain = { annotations: { x: "y" }, spec: { schedulingGates: [{ name: "of/others" }] } };
    assert.equal(await askedFor(namespace, plain), "", namespace);
    assert.equal(await askedFor(namespace, {}, { metadata: { labels: { a: "b" } } }), "", namespace);
  }
  const both = "/mutate /validate";
  assert.equal(await askedFor("enabled", {}), both);
  assert.equal(await askedFor("strict", {}), "/validate");
  for (const key of [...WISH_ANNOTATIONS, ...STATUS_ANNOTATIONS])
    for (const namespace of ["default", "strict", "enabled"]) {
      const annotations = { [key]: "" };
      assert.equal(await askedFor(namespace, { annotations }), both, `${key} in ${namespace}`);
      if (namespace !== "default") continue;
      assert.equal(await askedFor(namespace, {}, { metadata: { annotations } }), both, `${key} is added`);
      const removed = { metadata: { annotations: { [key]: null } } };
      assert.equal(await askedFor(namespace, { annotations }, removed), both, `${key} is removed`);
    }
  assert.equal(await askedFor("default", { spec: { schedulingGates: [{ name: NICS_GATE }] } }), both);
});

test("webhooks of deploy: a server whose node is silently gone holds up a write by 2 s at most, and only writes of the suite's own types and of pods", () => {
  const held = new Set<string>();
  for (const file of globSync("**/*.yaml", { cwd: deploy, exclude: (name) => /(^|\/)chart/.test(String(name)) }))
    for (const { webhooks } of configurationsOf(file))
      for (const { name, timeoutSeconds, rules } of webhooks) {
        assert.equal(timeoutSeconds, 2, `${name} of ${file}`);
        for (const { apiGroups, resources: types } of rules)
          for (const type of types) held.add([type, ...apiGroups.filter((group) => group !== "")].join("."));
      }
  assert.deepEqual([...held].sort(), ["addresspools.coil.cybozu.com", "egresses.coil.cybozu.com", "pods"]);
});
