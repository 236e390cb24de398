import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { type Draft, KubeClient, type KubeObject, type ResourceType, resources, staticConnection } from "#kube/client";
import type { NicPolicySpec } from "#kube/nic";
import { WebhookServer } from "#kube/webhook";
import { startApiServer } from "#lab/api-server";
import { NIC_WEBHOOK_PATHS, nicAdmissionHandlers } from "./handlers.ts";
import type { NamespaceView } from "./policy.ts";

const SERVICE = { namespace: "kube-system", name: "nic-webhooks" };

/** An API server whose pods pass our webhooks; no provider of VPCs exists. */
async function open(t: TestContext, policy: NicPolicySpec = {}) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-nic-webhook-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const life = { organization: "t", notBefore: Date.now() - 1e6, notAfter: Date.now() + 1e8 };
  const authority = createAuthority({ commonName: "ca", ...life });
  const namespaces = new Map<string, NamespaceView>();
  const hooks = await WebhookServer.listen({
    host: "127.0.0.1",
    port: 0,
    certDir: dir,
    handlers: nicAdmissionHandlers({
      world: async () => ({
        policy: { allowUnboundVPCs: true, ...policy },
        namespaces,
        claims: { get: () => undefined, values: () => [] },
      }),
      controllerUser: "controller",
    }),
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => hooks[Symbol.asyncDispose]());
  hooks.use(issueServerCertificate(authority, { hosts: ["nic-webhooks.kube-system.svc"], ...life }));
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    webhooks: ({ name }) => (name === SERVICE.name ? { host: "127.0.0.1", port: hooks.port } : undefined),
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const api = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  t.after(() => api.close());
  for (const [type, path] of [
    [resources.mutatingWebhookConfigurations, NIC_WEBHOOK_PATHS.mutate],
    [resources.validatingWebhookConfigurations, NIC_WEBHOOK_PATHS.validate],
  ] as const) {
    const hook = {
      name: "nics.isthmus.dev",
      admissionReviewVersions: ["v1"],
      sideEffects: "NoneOnDryRun",
      failurePolicy: "Fail",
      timeoutSeconds: 5,
      clientConfig: {
        caBundle: Buffer.from(authority.cert).toString("base64"),
        service: { ...SERVICE, path },
      },
      rules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["pods"] }],
    };
    await api.create(
      type as ResourceType<KubeObject>,
      { metadata: { name: "nics" }, webhooks: [hook] } as Draft<KubeObject>,
    );
  }
  const create = (name: string, annotations: Record<string, string>, namespace = "default", options = {}) =>
    api.create(
      resources.pods,
      { metadata: { namespace, name, annotations }, spec: { containers: [{ name: "c", image: "i" }] } },
      options,
    );
  const addNamespace = async (name: string, labels: Record<string, string>) => {
    await api.create(resources.namespaces, { metadata: { name, labels } });
    namespaces.set(name, { labels });
  };
  return { api, create, addNamespace };
}

test("T-53: an API server stores pods in normal form, and refuses with our texts, while there is no VPC API at all", async (t) => {
  const { api, create } = await open(t);
  const pod = await create("a", { VPC: "v", NICs: "- subnetName: s\n", "isthmus.dev/claim": "spoofed" });
  assert.deepEqual(pod.metadata.annotations, {
    "isthmus.dev/vpc": "v",
    "isthmus.dev/nics": '[{"name":"eth0","subnet":"s"}]',
  });
  assert.deepEqual((await create("plain", { x: "y" })).metadata.annotations, { x: "y" });
  await assert.rejects(create("b", { "isthmus.dev/vpc": "v", "isthmus.dev/nics": '[{"name":"lo"}]' }), {
    code: "invalid",
    message:
      /Pod "b" is invalid: \[nics\[0\].name: Invalid value: "lo": must be a valid interface name of at most 15 bytes, nics: Required/,
  });
  const annotate = (annotations: Record<string, string | null>) =>
    api.patch(
      resources.pods,
      { namespace: "default", name: "a" },
      { type: "merge", body: { metadata: { annotations } } },
    );
  await assert.rejects(annotate({ "isthmus.dev/vpc": "w" }), { message: /vpc: Forbidden: may not change/ });
  await assert.rejects(annotate({ "isthmus.dev/nic-status": "[]" }), {
    message: /only the network controller writes it/,
  });
  await annotate({ other: "1", "isthmus.dev/nics": "[{name: eth0, subnet: s, tag: t}]" });
  const after = await api.get(resources.pods, { namespace: "default", name: "a" });
  assert.equal(after.metadata.annotations?.["isthmus.dev/nics"], '[{"name":"eth0","subnet":"s","tag":"t"}]');
});

test("T-51, T-52: a labelled namespace admits only pods with a VPC, and a written status does not arrive", async (t) => {
  const { create, addNamespace } = await open(t);
  await addNamespace("strict", { "isthmus.dev/require-vpc": "true" });
  await assert.rejects(create("a", {}, "strict"), {
    message: /metadata.annotations\[isthmus.dev\/vpc\]: Required value: this namespace only admits VPC pods/,
  });
  const pod = await create("b", { "isthmus.dev/vpc": "v", "isthmus.dev/nic-status": "[]" }, "strict");
  assert.deepEqual(Object.keys(pod.metadata.annotations ?? {}).sort(), ["isthmus.dev/nics", "isthmus.dev/vpc"]);
});

test("T-50: a pod above the quota of its tenant is refused; a pod whose claim is not made yet costs nothing", async (t) => {
  const { create } = await open(t, { tenants: [{ name: "t", selector: { names: ["default"] }, maxPorts: 5 }] });
  const vpc = { "isthmus.dev/vpc": "v" };
  for (let at = 0; at < 10; at += 1) await create("dry", vpc, "default", { dryRun: true });
  // The controller, whose check decides, makes ports for those that fit.
  await Promise.all(Array.from({ length: 15 }, (_, at) => create(`p${at}`, vpc)));
  const six = JSON.stringify(Array.from({ length: 6 }, () => ({})));
  await assert.rejects(
    create("six", { ...vpc, "isthmus.dev/nics": six }),
    /more ports than this namespace's tenant has left; its administrator knows how many/,
  );
});

test("a pod with the scheduling gate cannot be bound to a node, says why, and its gate is only removed", async (t) => {
  const { api, create } = await open(t, { schedulingGate: true });
  const pod = await create("gated", { "isthmus.dev/vpc": "v" });
  assert.deepEqual(pod.spec?.schedulingGates, [{ name: "isthmus.dev/nics" }]);
  const [condition] = pod.status?.conditions ?? [];
  assert.deepEqual(
    [condition?.type, condition?.status, condition?.reason],
    ["PodScheduled", "False", "SchedulingGated"],
  );
  const target = { apiVersion: "v1", kind: "Node", name: "n" };
  const bind = () =>
    api.request({
      method: "POST",
      path: "/api/v1/namespaces/default/pods/gated/binding",
      body: { apiVersion: "v1", kind: "Binding", metadata: { name: "gated" }, target },
    });
  await assert.rejects(bind(), { message: /has non-empty .spec.schedulingGates/ });
  const change = (schedulingGates: readonly object[]) =>
    api.patch(
      resources.pods,
      { namespace: "default", name: "gated" },
      { type: "strategic", body: { spec: { schedulingGates } } },
    );
  const remove = { $patch: "delete", name: "isthmus.dev/nics" };
  assert.equal((await change([remove])).spec?.schedulingGates?.length ?? 0, 0);
  assert.equal((await change([remove])).spec?.schedulingGates?.length ?? 0, 0, "twice");
  await assert.rejects(change([{ name: "isthmus.dev/nics" }]), { message: /only deletion is allowed/ });
  await bind();
  assert.equal((await create("plain", {})).spec?.schedulingGates, undefined);
});
