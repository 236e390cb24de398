/** The webhooks of pods in `nic-controller`, behind an API server and with the rights of deploy/nics, while no cloud answers. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { isKubeError, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { nicCrds, nicResources } from "#kube/nic";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, start, until } from "#test/lab";
import { webhookPort } from "#test/webhook-review";

const root = join(import.meta.dirname, "../..");

async function open(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-nic-webhooks-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  let port: number | undefined;
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: {
      admin: { name: "admin", groups: ["system:masters"] },
      controller: { name: "system:serviceaccount:kube-system:nic-controller", groups: ["system:authenticated"] },
    },
    webhooks: ({ name, namespace }) =>
      port !== undefined && `${namespace}/${name}` === "kube-system/nic-webhook-service"
        ? { host: "127.0.0.1", port }
        : undefined,
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const configOf = (token: string): string => {
    const path = join(dir, token);
    writeFileSync(path, server.kubeconfig({ token }));
    return path;
  };
  server.seed(nicCrds as unknown as readonly SeedObject[]);
  for (const file of ["rbac.yaml", "webhooks.yaml"]) {
    const text = readFileSync(join(root, "deploy/nics", file), "utf8");
    server.seed(parseAllDocuments(text).map((one) => one.toJS() as SeedObject));
  }
  const api = new KubeClient(await loadKubeConfig({ path: configOf("admin"), clock: systemClock }), {
    clock: systemClock,
  });
  t.after(() => api.close());
  const credentials = join(dir, "clouds.yaml");
  // A port on which nobody listens.
  writeFileSync(credentials, "clouds: {away: {auth_type: none, auth: {endpoint: 'http://127.0.0.1:9'}}}\n");
  const flags = [
    `--kubeconfig=${configOf("controller")}`,
    `--credentials=${credentials}`,
    "--webhook-addr=127.0.0.1:0",
    `--cert-dir=${dir}`,
    "--enable-cert-rotation",
    "--metrics-addr=127.0.0.1:0",
    "--health-addr=127.0.0.1:0",
  ];
  const program = start([ISTHMUS, "nic-controller", ...flags], { timeoutMs: 120_000 });
  t.after(async () => {
    program.child.kill("SIGKILL");
    await program.ended;
    assert.doesNotMatch(program.said(), /forbidden|because of a bug/);
  });
  port = await webhookPort(program);
  for (const [name, labels] of [
    ["shop", { "isthmus.dev/enabled": "true", "isthmus.dev/require-vpc": "true" }],
    ["plain", {}],
  ] as const) {
    await api.create(resources.namespaces, { metadata: { name, labels } });
  }
  await until("both configurations have the authority", async () => {
    const name = "isthmus-validating-nic-webhook-configuration";
    const { webhooks = [] } = await api.get(resources.validatingWebhookConfigurations, { name });
    const mutating = await api.get(resources.mutatingWebhookConfigurations, {
      name: "isthmus-mutating-nic-webhook-configuration",
    });
    return [...webhooks, ...(mutating.webhooks ?? [])].every(({ clientConfig }) => clientConfig.caBundle !== undefined);
  });
  const pod = (namespace: string, name: string, annotations: Record<string, string>): Promise<Pod> =>
    api.create(resources.pods, {
      metadata: { namespace, name, annotations },
      spec: { containers: [{ name: "c", image: "i" }] },
    });
  return { api, pod, program };
}

const refusal = (text: RegExp) => (error: unknown) => {
  assert.ok(isKubeError(error), String(error));
  assert.match(error.message, text);
  return true;
};

test("nic-controller: its webhooks bring pods into normal form, refuse what a policy forbids, and ask no cloud (T-51 to T-53)", async (t) => {
  const { api, pod, program } = await open(t);
  // Nothing is open before somebody opens it.
  await assert.rejects(pod("shop", "a", { VPC: "vpc-1" }), refusal(/VPC "vpc-1" is not available in namespace "shop"/));
  const policy = await api.create(nicResources.nicPolicies, {
    metadata: { name: "default" },
    spec: { allowUnboundVPCs: true },
  });
  let tries = 0;
  await until("the policy has opened the VPCs", async () => {
    tries += 1;
    try {
      await pod("plain", `o${tries}`, { "isthmus.dev/vpc": "vpc-1" });
      return true;
    } catch (error) {
      return !refusal(/is not available in namespace "plain"/)(error);
    }
  });
  const made = await pod("shop", "a", { VPC: "vpc-1", NICs: "- subnetName: s\n", "isthmus.dev/claim": "spoofed" });
  assert.deepEqual(made.metadata.annotations, {
    "isthmus.dev/vpc": "vpc-1",
    "isthmus.dev/nics": '[{"name":"eth0","subnet":"s"}]',
  });
  await assert.rejects(pod("shop", "b", {}), refusal(/this namespace only admits VPC pods/));
  await pod("plain", "b", {});
  await api.replace(nicResources.nicPolicies, {
    ...policy,
    spec: { containers: { maxNics: 1 }, vpcBindings: [{ vpc: "vpc-1", projectID: "p", namespaces: ["shop"] }] },
  });
  const two = JSON.stringify([{}, { name: "eth1" }]);
  let count = 0;
  await until("the policy is known", async () => {
    count += 1;
    try {
      await pod("plain", `c${count}`, { "isthmus.dev/vpc": "vpc-1" });
      return false;
    } catch (error) {
      return refusal(/VPC "vpc-1" is not available in namespace "plain"/)(error);
    }
  });
  await assert.rejects(
    pod("shop", "d", { "isthmus.dev/vpc": "vpc-1", "isthmus.dev/nics": two }),
    refusal(/Too many: 2: more than the NIC policy allows here; its administrator knows how many/),
  );
  // The controller itself writes what a pod shows; nobody else may.
  await until("the pod shows that its NIC waits for the cloud", async () => {
    const { metadata, status } = await api.get(resources.pods, { namespace: "shop", name: "a" });
    const condition = status?.conditions?.find(({ type }) => type === "isthmus.dev/NicsReady");
    return metadata.annotations?.["isthmus.dev/claim"] === metadata.uid && condition?.status === "False";
  });
  const body = { metadata: { annotations: { "isthmus.dev/claim": "mine" } } };
  await assert.rejects(
    api.patch(resources.pods, { namespace: "shop", name: "a" }, { type: "merge", body }),
    refusal(/only the network controller writes it/),
  );
  assert.match(program.said(), /claim made/);
  // No flag says an id of the cluster.
  const claim = await api.get(nicResources.nicClaims, { namespace: "shop", name: made.metadata.uid });
  const { uid } = (await api.get(resources.namespaces, { name: "kube-system" })).metadata;
  assert.equal(claim.metadata.labels?.["isthmus.dev/cluster"], uid);
});
