// The objects of deploy/nics.yaml on the embedded API server: what the accounts of controller and agents may do, and what a tenant may not.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { type Draft, KubeClient, loadKubeConfig, resources } from "#kube/client";
import { type NicClaim, type NicClaimStatus, nicCrds, nicResources } from "#kube/nic";
import { type SeedObject, startApiServer } from "#lab/api-server";

const MANIFEST = join(import.meta.dirname, "../../deploy/nics.yaml");
const { nicClaims, nicPolicies } = nicResources;
const NODE_NAME = "authentication.kubernetes.io/node-name";
const agent = (node?: string) => ({
  name: "system:serviceaccount:kube-system:nic-agent",
  groups: ["system:serviceaccounts", "system:authenticated"],
  ...(node === undefined ? {} : { extra: { [NODE_NAME]: [node] } }),
});
const USERS = {
  admin: { name: "admin", groups: ["system:masters"] },
  controller: { name: "system:serviceaccount:kube-system:nic-controller", groups: ["system:serviceaccounts"] },
  one: agent("node-1"),
  two: agent("node-2"),
  // A token that was made by hand, or by an API server that puts no node into it.
  none: agent(),
  tenant: { name: "tenant", groups: [] },
} as const;

/** An API server with all manifests, and a client for each user. */
async function open(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-nic-rights-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: USERS,
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  server.seed(nicCrds as unknown as readonly SeedObject[]);
  await server.settled();
  const objects = parseAllDocuments(readFileSync(MANIFEST, "utf8")).map((one) => one.toJS() as SeedObject);
  server.seed(objects.filter(({ kind }) => kind !== "CustomResourceDefinition"));
  // What Kubernetes gives to who may edit a namespace: its own kinds, and none of ours.
  server.seed([
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "edit" },
      rules: [{ apiGroups: [""], resources: ["pods", "secrets", "configmaps", "pods/exec"], verbs: ["*"] }],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata: { name: "tenant", namespace: "default" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "edit" },
      subjects: [{ kind: "User", name: "tenant" }],
    },
  ] as unknown as readonly SeedObject[]);
  const clients = new Map<string, KubeClient>();
  for (const user of Object.keys(USERS)) {
    const path = join(folder, user);
    writeFileSync(path, server.kubeconfig({ token: user }));
    const api = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
    t.after(() => api.close());
    clients.set(user, api);
  }
  const as = (user: keyof typeof USERS): KubeClient => clients.get(user) ?? assert.fail(user);
  return { as };
}

const UID = "0a64ecb8-6f54-4d0f-9e42-7c8d7f8c3a10";
const REF = { namespace: "default", name: UID };
const CLAIM: Draft<NicClaim> = {
  metadata: { name: UID, namespace: "default", labels: { "isthmus.dev/node": "node-1" } },
  spec: { podName: "p", podUID: UID, vpc: "vpc-1", provider: "neutron", nics: [{ name: "eth0" }] },
};
const SHOWN: NicClaimStatus = {
  phase: "Plumbable",
  nodeName: "node-1",
  nics: [{ name: "eth0", state: "InProgress", portID: "p0" }],
};

/** Applies a part of a claim's status, as controllers and agents do. */
function apply(api: KubeClient, fieldManager: string, status: NicClaimStatus, ref = REF): Promise<NicClaim> {
  const body = { apiVersion: "isthmus.dev/v1alpha1", kind: "NicClaim", metadata: { name: ref.name }, status };
  return api.patch(nicClaims, ref, { type: "apply", fieldManager, force: true, body }, { subresource: "status" });
}

const REPORT: NicClaimStatus = {
  conditions: [{ type: "Plugged", status: "True" }],
  plugged: { generation: 1, nics: [{ name: "eth0" }] },
};

test("deploy/nics.yaml: an agent writes what it has plugged into claims of its node, and nothing else", async (t) => {
  const { as } = await open(t);
  await as("controller").create(nicClaims, CLAIM);
  // Before the controller has written anything too.
  await apply(as("one"), "nic-agent", { plugged: { generation: 1, nics: [] } });
  await apply(as("controller"), "nic-controller", SHOWN);
  const both = await apply(as("one"), "nic-agent", REPORT);
  assert.deepEqual([both.status?.nics, both.status?.plugged?.nics], [SHOWN.nics, [{ name: "eth0" }]]);
  const forbidden = (message: RegExp) => ({ code: "forbidden", message });
  for (const user of ["two", "none"] as const) {
    await assert.rejects(apply(as(user), "nic-agent", REPORT), forbidden(/of a pod on another node/));
  }
  const lies: [NicClaimStatus, RegExp][] = [
    [{ ...REPORT, nics: [{ name: "eth0", state: "Ready", portID: "stolen" }] }, /does not write status.nics/],
    [{ ...REPORT, nics: [{ name: "eth9", state: "Ready" }] }, /does not write status.nics/],
    [{ ...REPORT, phase: "Active" }, /does not write status.phase/],
    [{ ...REPORT, nodeName: "node-2" }, /does not write status.phase and status.nodeName/],
  ];
  for (const [status, says] of lies) {
    await assert.rejects(apply(as("one"), "nic-agent", status), forbidden(says));
  }
  // To take over the controller's fields by the name of its manager does not help.
  await assert.rejects(apply(as("one"), "nic-controller", {}), forbidden(/does not write status.nics/));
  for (const user of ["one", "two"] as const) {
    const api = as(user);
    const body = { metadata: { labels: { "isthmus.dev/node": "node-2" } } };
    await assert.rejects(api.patch(nicClaims, REF, { type: "merge", body }), forbidden(/cannot patch|alone/));
    await assert.rejects(api.delete(nicClaims, REF), forbidden(/cannot delete/));
    await assert.rejects(
      api.create(nicClaims, { ...CLAIM, metadata: { ...CLAIM.metadata, name: "x" } }),
      forbidden(/cannot create/),
    );
    await assert.rejects(
      api.get(resources.secrets, { namespace: "kube-system", name: "nic-controller-credentials" }),
      forbidden(/cannot get/),
    );
    await assert.rejects(api.listAll(resources.secrets), forbidden(/cannot list/));
    await assert.rejects(api.listAll(resources.pods), forbidden(/cannot list/));
    assert.equal((await api.listAll(nicClaims)).items.length, 1);
  }
  assert.deepEqual((await as("admin").get(nicClaims, REF)).status?.nics, SHOWN.nics);
});

test("deploy/nics.yaml: a tenant who may edit a namespace has no rights on claims, policies and credentials", async (t) => {
  const { as } = await open(t);
  await as("controller").create(nicClaims, CLAIM);
  const tenant = as("tenant");
  const pod = { metadata: { namespace: "default", name: "p" }, spec: { containers: [{ name: "c", image: "i" }] } };
  await tenant.create(resources.pods, pod);
  const forbidden = { code: "forbidden" };
  await assert.rejects(tenant.get(nicClaims, REF), forbidden);
  await assert.rejects(
    tenant.create(nicClaims, { ...CLAIM, metadata: { ...CLAIM.metadata, name: "mine" } }),
    forbidden,
  );
  await assert.rejects(tenant.delete(nicClaims, REF), forbidden);
  await assert.rejects(apply(tenant, "nic-controller", SHOWN), forbidden);
  await assert.rejects(
    tenant.create(nicPolicies, { metadata: { name: "default" }, spec: { hotplug: true } }),
    forbidden,
  );
  const secret = { namespace: "kube-system", name: "nic-controller-credentials" };
  await assert.rejects(tenant.get(resources.secrets, secret), forbidden);
  // Its pods' conditions are the kubelet's and the controller's.
  const status = { conditions: [{ type: "isthmus.dev/NicsReady", status: "True" }] };
  await assert.rejects(
    tenant.patch(
      resources.pods,
      { namespace: "default", name: "p" },
      { type: "merge", body: { status } },
      { subresource: "status" },
    ),
    forbidden,
  );
});
