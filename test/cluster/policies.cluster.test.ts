/**
 * The ValidatingAdmissionPolicies of deploy/ for Egresses and for nic-controller, on the embedded API server and, with its programs in ISTHMUS_PEERS, on
 * Kubernetes' own. The one for nic-agent is in nic-rights.cluster.test.ts.
 */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import {
  type Draft,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type Patch,
  type Pod,
  resources,
} from "#kube/client";
import { coilCrds, coilResources, type Egress } from "#kube/coil";
import { startApiServer } from "#lab/api-server";
import { until } from "#test/lab";
import { peersMissing, RealApiServer } from "#test/real-api-server";

const { egresses } = coilResources;
const deploy = join(import.meta.dirname, "../../deploy");
const CONTROLLER = "system:serviceaccount:kube-system:nic-controller";
const SERVERS = ["embedded", "kube-apiserver"] as const;
const skipOf = (server: (typeof SERVERS)[number]) =>
  server === "embedded" ? false : peersMissing("etcd", "kube-apiserver");

/** An API server, with an administrator and a user `guest` who may do all too. */
async function open(t: TestContext, kind: (typeof SERVERS)[number]) {
  if (kind === "kube-apiserver") {
    const server = await RealApiServer.start();
    t.after(() => server[Symbol.asyncDispose]());
    const path = server.kubeconfigOf("guest");
    const guest = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
    t.after(() => guest.close());
    const subjects = [{ kind: "User", apiGroup: "rbac.authorization.k8s.io", name: "guest" }];
    const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" };
    await server.client.create(resources.clusterRoleBindings, { metadata: { name: "guest" }, roleRef, subjects });
    return { admin: server.client, guest };
  }
  const folder = mkdtempSync(join(tmpdir(), "isthmus-policies-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const groups = ["system:masters"];
  const tokens = { admin: { name: "admin", groups }, guest: { name: "guest", groups } };
  const listen = { host: "127.0.0.1", port: 0 };
  const server = await startApiServer({ listen, tokens, log: nullLogger, clock: systemClock });
  t.after(() => server[Symbol.asyncDispose]());
  const clientOf = async (token: string): Promise<KubeClient> => {
    const path = join(folder, token);
    writeFileSync(path, server.kubeconfig({ token }));
    const client = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
    t.after(() => client.close());
    return client;
  };
  return { admin: await clientOf("admin"), guest: await clientOf("guest") };
}

/** As `kubectl create -f`; a server gets to know a new kind after a while. */
async function create(api: KubeClient, object: KubeObject & { readonly kind?: string }): Promise<void> {
  const { apiVersion = "", kind = "", metadata } = object as { apiVersion?: string } & typeof object;
  const group = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const namespace = metadata.namespace === undefined ? "" : `/namespaces/${metadata.namespace}`;
  const lower = kind.toLowerCase();
  const plural = lower.endsWith("y") ? `${lower.slice(0, -1)}ies` : lower.endsWith("s") ? `${lower}es` : `${lower}s`;
  await until(`${kind} ${metadata.name} is made`, async () => {
    try {
      await api.request({ method: "POST", path: `${group}${namespace}/${plural}`, body: object });
      return true;
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      if (isKubeError(error, "already-exists")) return true;
      throw error;
    }
  });
}

async function apply(api: KubeClient, file: string, edit: (text: string) => string = (text) => text): Promise<void> {
  for (const one of parseAllDocuments(edit(readFileSync(join(deploy, file), "utf8")))) await create(api, one.toJS());
}

const OWN = { containers: [{ name: "egress" }] };
/** Templates that place and size routers. */
const GOOD: Readonly<Record<string, object | undefined>> = {
  none: undefined,
  labels: { metadata: { labels: { a: "b" }, annotations: { "example.com/scrape": "true" } } },
  container: { spec: OWN },
  placed: {
    spec: {
      containers: [{ name: "egress", resources: { limits: { memory: "1Gi" } }, imagePullPolicy: "Always" }],
      tolerations: [
        { key: "gateway", operator: "Exists" },
        { key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 },
      ],
      affinity: { podAntiAffinity: {} },
      nodeSelector: { gateway: "yes" },
      topologySpreadConstraints: [],
      priorityClassName: "gateways",
      terminationGracePeriodSeconds: 60,
      imagePullSecrets: [{ name: "registry" }],
    },
  },
};
/** Templates with which a router is more than one, and a part of the refusal. */
const BAD: Readonly<Record<string, readonly [object, RegExp]>> = {
  pid: [{ ...OWN, hostPID: true }, /may not have hostPID/],
  network: [{ ...OWN, hostNetwork: true, hostIPC: true }, /may not have (hostIPC, hostNetwork|hostNetwork, hostIPC)/],
  volume: [{ ...OWN, volumes: [{ name: "root", hostPath: { path: "/" } }] }, /may not have volumes/],
  first: [{ ...OWN, initContainers: [{ name: "mine", image: "mine" }] }, /may not have initContainers/],
  beside: [{ containers: [{ name: "egress" }, { name: "mine", image: "mine" }] }, /no container beside egress/],
  unnamed: [{ containers: [{ image: "mine" }] }, /no container beside egress/],
  image: [{ containers: [{ name: "egress", image: "mine" }] }, /may have imagePullPolicy, resizePolicy and resources/],
  command: [{ containers: [{ name: "egress", command: ["sh"] }] }, /resources alone/],
  args: [{ containers: [{ name: "egress", args: ["--kubeconfig=x"] }] }, /resources alone/],
  variable: [{ containers: [{ name: "egress", env: [{ name: "NODE_OPTIONS", value: "x" }] }] }, /resources alone/],
  from: [{ containers: [{ name: "egress", envFrom: [{ configMapRef: { name: "x" } }] }] }, /resources alone/],
  mount: [{ containers: [{ name: "egress", volumeMounts: [{ name: "x", mountPath: "/usr" }] }] }, /resources alone/],
  hook: [
    { containers: [{ name: "egress", lifecycle: { preStop: { exec: { command: ["sh"] } } } }] },
    /resources alone/,
  ],
  probe: [{ containers: [{ name: "egress", startupProbe: { exec: { command: ["sh"] } } }] }, /resources alone/],
  list: [{ containers: "egress" }, /expression/],
  critical: [{ ...OWN, priorityClassName: "system-node-critical" }, /class of the system's own pods/],
  everywhere: [{ ...OWN, tolerations: [{ operator: "Exists" }] }, /a toleration of .* needs a key/],
  keyless: [{ ...OWN, tolerations: [{ key: "", operator: "Exists" }] }, /a toleration of .* needs a key/],
  masters: [
    { ...OWN, tolerations: [{ key: "node-role.kubernetes.io/control-plane", operator: "Exists" }] },
    /taints of control planes/,
  ],
  closed: [{ ...OWN, tolerations: [{ key: "node.kubernetes.io/unschedulable", operator: "Exists" }] }, /300 at most/],
  away: [
    { ...OWN, tolerations: [{ key: "node.kubernetes.io/not-ready", operator: "Exists", tolerationSeconds: 301 }] },
    /300 at most/,
  ],
};

for (const server of SERVERS)
  test(`deploy/pods/egress-policy.yaml on ${server}: a template places and sizes routers, and runs nothing else`, {
    skip: skipOf(server),
  }, async (t) => {
    const { admin } = await open(t, server);
    for (const crd of coilCrds) await create(admin, crd as unknown as KubeObject);
    const draft = (name: string, template: object | undefined): Draft<Egress> =>
      ({
        metadata: { namespace: "default", name },
        spec: { destinations: ["0.0.0.0/0"], ...(template === undefined ? {} : { template }) },
      }) as Draft<Egress>;
    await until("Egresses are served", () =>
      admin.listAll(egresses).then(
        () => true,
        () => false,
      ),
    );
    const old = { namespace: "default", name: "old" };
    const many = (name: string, replicas: number): Promise<Egress> => {
      const made = draft(name, undefined);
      return admin.create(egresses, { ...made, spec: { ...made.spec, replicas } } as Draft<Egress>);
    };
    await admin.create(egresses, draft("old", { spec: { ...OWN, hostPID: true } }));
    await many("many", 40);
    await apply(admin, "pods/egress-policy.yaml");
    await until("the policy is in force", () =>
      admin.create(egresses, draft(`probe-${randomUUID()}`, { spec: { ...OWN, hostPID: true } })).then(
        () => false,
        (error: unknown) => isKubeError(error, "forbidden"),
      ),
    );
    for (const [name, template] of Object.entries(GOOD)) await admin.create(egresses, draft(name, template));
    for (const [name, [spec, says]] of Object.entries(BAD)) {
      await assert.rejects(admin.create(egresses, draft(name, { spec })), { message: says }, name);
      const body = { spec: { template: { spec } } };
      await assert.rejects(
        admin.patch(egresses, { namespace: "default", name: "container" }, { type: "merge", body }),
        { message: says },
        `${name}, later`,
      );
    }
    // One that is older than the policy goes on, and can be deleted; its template cannot be made worse.
    const patch = (body: object): Promise<Egress> => admin.patch(egresses, old, { type: "merge", body });
    await patch({ metadata: { labels: { a: "b" } }, spec: { replicas: 2 } });
    await assert.rejects(patch({ spec: { template: { spec: { hostNetwork: true } } } }), { code: "forbidden" });
    await patch({ spec: { template: { spec: { hostPID: null } } } });
    await admin.delete(egresses, old);
    // The number of routers, by the object and by its Scale; one that had more already can be scaled down.
    await many("most", 32);
    const tooMany = { code: "forbidden", message: /32 replicas at most/ };
    await assert.rejects(many("more", 33), tooMany);
    const scale = (name: string, replicas: number): Promise<Egress> => {
      const to: Patch = { type: "merge", body: { spec: { replicas } } };
      return admin.patch(egresses, { namespace: "default", name }, to, { subresource: "scale" });
    };
    await assert.rejects(scale("most", 33), tooMany);
    await assert.rejects(scale("many", 41), tooMany);
    await scale("many", 39);
    await scale("most", 2);
    await assert.rejects(
      admin.patch(
        egresses,
        { namespace: "default", name: "most" },
        { type: "merge", body: { spec: { replicas: 33 } } },
      ),
      tooMany,
    );
  });

const REF = { namespace: "default", name: "p" };
const POD = {
  metadata: { ...REF, labels: { app: "a" }, annotations: { mine: "1", "isthmus.dev/vm": "{}" } },
  spec: { schedulingGates: [{ name: "isthmus.dev/nics" }, { name: "mine" }], containers: [{ name: "c", image: "i" }] },
};
const strategic = (body: object): Patch => ({ type: "strategic", body }) as Patch;
const conditions = (...types: readonly string[]) => ({
  status: { conditions: types.map((type) => ({ type, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" })) },
});
const OWNER = { apiVersion: "apps/v1", kind: "ReplicaSet", name: "r", uid: "0d6a5c0e-7d3c-4b8e-9c7e-3f6c0f3f1a11" };
/** The fields that mutating webhooks of others add to each patch. The policy cannot distinguish them from the controller's own. */
const ADDED = { labels: { "example.com/team": "x" }, annotations: { "example.com/seen": "1" } };
/** The patches of the controller: of the pod, or of its status. */
const OWN_PATCHES: readonly (readonly [Patch, boolean])[] = [
  [strategic({ metadata: { annotations: { "isthmus.dev/claim": "x", "isthmus.dev/nic-status": "[]" } } }), false],
  [strategic({ metadata: { annotations: { "k8s.v1.cni.cncf.io/network-status": "[]" } } }), false],
  [strategic({ metadata: { annotations: { "isthmus.dev/nic-status": '[{"name":"eth0"}]' } } }), false],
  [strategic(conditions("isthmus.dev/NicsReady")), true],
  [strategic({ metadata: ADDED, ...conditions("isthmus.dev/NicsReady") }), true],
  [strategic({ metadata: { annotations: { "example.com/seen": "2", mine: null } } }), true],
  [
    strategic({
      metadata: { labels: { "example.com/more": "x" }, annotations: { "example.com/seen": "3" } },
      spec: { schedulingGates: [{ $patch: "delete", name: "isthmus.dev/nics" }] },
    }),
    false,
  ],
];
const OTHER_PATCHES: readonly (readonly [Patch, boolean, RegExp])[] = [
  [strategic({ spec: { containers: [{ name: "c", image: "mine" }] } }), false, /nothing of the spec/],
  [strategic({ spec: { activeDeadlineSeconds: 1 } }), false, /nothing of the spec/],
  [strategic({ spec: { schedulingGates: [{ $patch: "delete", name: "mine" }] } }), false, /nothing of the spec/],
  [strategic({ metadata: { labels: { app: "b" } } }), false, /no labels/],
  [strategic({ metadata: { labels: { app: "b" } } }), true, /no labels/],
  [strategic({ metadata: { labels: null } }), false, /no labels/],
  [strategic({ metadata: { labels: { "isthmus.dev/tenant": "x" } } }), false, /no labels/],
  [strategic({ metadata: { finalizers: ["a/b"] } }), false, /no metadata/],
  [strategic({ metadata: { ownerReferences: [OWNER] } }), false, /no metadata/],
  ...["isthmus.dev/vpc", "isthmus.dev/nics", "VPC", "NICs", "egress.coil.cybozu.com/internet"].flatMap((key) =>
    [false, true].map((ofStatus): readonly [Patch, boolean, RegExp] => [
      strategic({ metadata: { annotations: { [key]: "x" } } }),
      ofStatus,
      /of the suite's annotations/,
    ]),
  ),
  [strategic({ metadata: { annotations: { "isthmus.dev/vm": null } } }), false, /of the suite's annotations/],
  [strategic({ status: { phase: "Failed" } }), true, /nothing of the status/],
  [strategic({ status: { podIP: "10.0.0.9", podIPs: [{ ip: "10.0.0.9" }] } }), true, /nothing of the status/],
  [strategic(conditions("Ready")), true, /nothing of the status/],
  [strategic({ status: { conditions: [{ $patch: "delete", type: "Initialized" }] } }), true, /nothing of the status/],
];

for (const server of SERVERS)
  test(`deploy/nics/policy.yaml on ${server}: nic-controller changes what it shows of NICs in pods, and nothing else`, {
    skip: skipOf(server),
  }, async (t) => {
    const { admin, guest } = await open(t, server);
    const account = { apiVersion: "v1", kind: "ServiceAccount", metadata: { namespace: "default", name: "default" } };
    await create(admin, account as unknown as KubeObject);
    await admin.create(resources.pods, POD as unknown as Draft<Pod>);
    const write = (api: KubeClient, [patch, ofStatus]: readonly [Patch, boolean, ...unknown[]]): Promise<Pod> =>
      api.patch(resources.pods, REF, patch, ofStatus ? { subresource: "status" } : {});
    await write(admin, [strategic(conditions("Initialized")), true]);
    // The user `guest` stands for the controller's account.
    await apply(admin, "nics/policy.yaml", (text) => text.replaceAll(CONTROLLER, "guest"));
    await until("the policy is in force", () =>
      write(guest, [strategic({ metadata: { annotations: { "isthmus.dev/probe": randomUUID() } } }), false]).then(
        () => false,
        (error: unknown) => isKubeError(error, "forbidden"),
      ),
    );
    for (const other of OTHER_PATCHES)
      await assert.rejects(write(guest, other), { code: "forbidden", message: other[2] }, JSON.stringify(other[0]));
    for (const own of OWN_PATCHES) await write(guest, own);
    for (const other of OTHER_PATCHES)
      await assert.rejects(write(guest, other), { code: "forbidden", message: other[2] }, JSON.stringify(other[0]));
    const { metadata, spec, status } = await admin.get(resources.pods, REF);
    assert.deepEqual(spec?.schedulingGates, [{ name: "mine" }]);
    assert.equal(metadata.annotations?.["isthmus.dev/nic-status"], '[{"name":"eth0"}]');
    assert.ok(status?.conditions?.some(({ type }) => type === "isthmus.dev/NicsReady") === true);
    // Others are not asked.
    await write(admin, [strategic({ metadata: { labels: { app: "c" } } }), false]);
  });
