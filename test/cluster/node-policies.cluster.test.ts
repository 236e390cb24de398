/**
 * The ValidatingAdmissionPolicies of deploy/ for the programs of a node, on the embedded API server and, with its programs in ISTHMUS_PEERS, on Kubernetes'
 * own, which signs the tokens itself: a node's token writes the objects of its own node. The one for claims is in nic-rights.cluster.test.ts.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import {
  type Draft,
  type Event,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type Patch,
  resources,
} from "#kube/client";
import {
  type AddressBlock,
  type BlockRequest,
  COIL_FINALIZER,
  coilCrds,
  coilResources,
  NODE_LABEL,
  POOL_LABEL,
} from "#kube/coil";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { until } from "#test/lab";
import { peersMissing, RealApiServer } from "#test/real-api-server";

const { addressBlocks, blockRequests } = coilResources;
const deploy = join(import.meta.dirname, "../../deploy");
const NODE_NAME = "authentication.kubernetes.io/node-name";
const SERVERS = ["embedded", "kube-apiserver"] as const;
const NODES = ["node-1", "node-2"] as const;
const BLOCKS = "/apis/coil.cybozu.com/v2/addressblocks";
const REQUESTS = "/apis/coil.cybozu.com/v2/blockrequests";

/** Rights that are more than those of the manifests, so that the policies alone refuse. */
const WIDE = [
  {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    metadata: { name: "wide" },
    rules: [
      { apiGroups: ["coil.cybozu.com"], resources: ["*"], verbs: ["*"] },
      { apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: ["*"] },
    ],
  },
  ...["coild", "nic-agent", "isthmus-service-proxy", "coil-ipam-controller"].map((name) => ({
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRoleBinding",
    metadata: { name: `wide-${name}` },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "wide" },
    subjects: [{ kind: "ServiceAccount", name, namespace: "kube-system" }],
  })),
];
const FILES = ["pods/coild-policy.yaml", "service-proxy/policy.yaml", "nics/agent-policy.yaml"];

interface Bed {
  readonly admin: KubeClient;
  /** A client with the token of an account's pod on a node; without a node, with one that was made by hand. */
  as(account: string, node?: string): Promise<KubeClient>;
}

/** An API server with Coil's types, the policies, and wide rights. */
async function open(t: TestContext, kind: (typeof SERVERS)[number]): Promise<Bed> {
  const objects = [
    ...WIDE,
    ...FILES.flatMap((file) => parseAllDocuments(readFileSync(join(deploy, file), "utf8")).map((one) => one.toJS())),
  ] as unknown as readonly SeedObject[];
  const bed = kind === "embedded" ? await openEmbedded(t, objects) : await openReal(t, objects);
  await until("AddressBlocks are served, and the policies are in force", async () => {
    try {
      const client = await bed.as("coild");
      await client.create(addressBlocks, blockOf("probe", "node-1"));
      return false;
    } catch (error) {
      return isKubeError(error, "forbidden") && /has no name of a node/.test(error.message);
    }
  });
  await bed.admin.delete(addressBlocks, { name: "probe" }).catch(() => undefined);
  return bed;
}

async function openEmbedded(t: TestContext, objects: readonly SeedObject[]): Promise<Bed> {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-node-policies-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const user = (account: string, node?: string) => ({
    name: `system:serviceaccount:kube-system:${account}`,
    groups: ["system:serviceaccounts", "system:authenticated"],
    ...(node === undefined ? {} : { extra: { [NODE_NAME]: [node] } }),
  });
  const accounts = ["coild", "nic-agent", "isthmus-service-proxy", "coil-ipam-controller"];
  const tokens = Object.fromEntries(
    accounts.flatMap((one) => [undefined, ...NODES].map((node) => [`${one}/${node}`, user(one, node)])),
  );
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: { admin: { name: "admin", groups: ["system:masters"] }, ...tokens },
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  await server.settled();
  server.seed(objects);
  const client = async (token: string): Promise<KubeClient> => {
    const path = join(folder, "kubeconfig");
    writeFileSync(path, server.kubeconfig({ token }));
    const made = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
    t.after(() => made.close());
    return made;
  };
  return { admin: await client("admin"), as: (account, node) => client(`${account}/${node}`) };
}

async function openReal(t: TestContext, objects: readonly SeedObject[]): Promise<Bed> {
  const server = await RealApiServer.start();
  t.after(() => server[Symbol.asyncDispose]());
  const admin = server.client;
  const make = async (object: KubeObject & { readonly kind?: string; readonly apiVersion?: string }): Promise<void> => {
    const { apiVersion = "", kind = "", metadata } = object;
    const lower = kind.toLowerCase();
    const plural = lower.endsWith("y") ? `${lower.slice(0, -1)}ies` : `${lower}s`;
    const within = metadata.namespace === undefined ? "" : `/namespaces/${metadata.namespace}`;
    const path = `${apiVersion.includes("/") ? "/apis" : "/api"}/${apiVersion}${within}/${plural}`;
    await admin.request({ method: "POST", path, body: object });
  };
  for (const one of [...(coilCrds as unknown as readonly SeedObject[]), ...objects])
    await make(one as unknown as KubeObject);
  for (const name of NODES) await admin.create(resources.nodes, { metadata: { name } });
  const at = (account: string): string => `/api/v1/namespaces/kube-system/serviceaccounts/${account}/token`;
  const accounts = new Set<string>();
  return {
    admin,
    as: async (account, node) => {
      const namespace = "kube-system";
      if (!accounts.has(account))
        await admin.create(resources.serviceAccounts, { metadata: { namespace, name: account } });
      accounts.add(account);
      const name = `${account}-${node}`;
      if (node !== undefined && !accounts.has(name)) {
        const spec = { nodeName: node, serviceAccountName: account, containers: [{ name: "c", image: "i" }] };
        await make({ apiVersion: "v1", kind: "Pod", metadata: { namespace, name }, spec } as unknown as KubeObject);
        accounts.add(name);
      }
      const boundObjectRef = node === undefined ? {} : { boundObjectRef: { apiVersion: "v1", kind: "Pod", name } };
      const answer = (await admin.request({
        method: "POST",
        path: at(account),
        body: {
          apiVersion: "authentication.k8s.io/v1",
          kind: "TokenRequest",
          spec: { audiences: [], ...boundObjectRef },
        },
      })) as { readonly status: { readonly token: string } };
      const path = server.kubeconfigWith(answer.status.token);
      const made = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
      t.after(() => made.close());
      return made;
    },
  };
}

function blockOf(name: string, node: string, index = 0): Draft<AddressBlock> {
  const labels = { [NODE_LABEL]: node, [POOL_LABEL]: "default" };
  return {
    metadata: { name, labels, finalizers: [COIL_FINALIZER] },
    index,
    ipv4: `10.1.${index}.0/28`,
  } as Draft<AddressBlock>;
}

function requestOf(name: string, node: string, poolName = "default"): Draft<BlockRequest> {
  return { metadata: { name }, spec: { nodeName: node, poolName } } as Draft<BlockRequest>;
}

const OWNER = { apiVersion: "v1", kind: "Node", name: "node-1", uid: "0d6a5c0e-7d3c-4b8e-9c7e-3f6c0f3f1a11" };
const merge = (body: object): Patch => ({ type: "merge", body }) as Patch;
const applied = (kind: string, name: string, more: object): Patch =>
  ({
    type: "apply",
    fieldManager: "coild",
    force: true,
    body: {
      apiVersion: "coil.cybozu.com/v2",
      kind,
      ...more,
      metadata: { ...(more as { readonly metadata?: object }).metadata, name },
    },
  }) as unknown as Patch;

for (const server of SERVERS) {
  const skip = server === "embedded" ? false : peersMissing("etcd", "kube-apiserver");

  test(`deploy/pods/coild-policy.yaml on ${server}: with a node's token coild releases the blocks of its node, and changes none of another one, by no verb`, {
    skip,
  }, async (t) => {
    const { admin, as } = await open(t, server);
    const [one, none, controller] = [await as("coild", "node-1"), await as("coild"), await as("coil-ipam-controller")];
    await controller.create(addressBlocks, blockOf("own", "node-1", 1));
    await controller.create(addressBlocks, blockOf("other", "node-2", 2));
    await controller.create(addressBlocks, blockOf("second", "node-1", 3));
    const before = await admin.get(addressBlocks, { name: "other" });
    const [own, other] = [{ name: "own" }, { name: "other" }];
    const take = { metadata: { labels: { [NODE_LABEL]: "node-1" } } };
    const replaced = async (
      ref: { readonly name: string },
      change: (block: AddressBlock) => object,
    ): Promise<unknown> => {
      const block = await admin.get(addressBlocks, ref);
      return one.replace(addressBlocks, { ...block, ...change(block) } as Draft<AddressBlock>);
    };
    const without = ({ metadata }: AddressBlock): object => ({ metadata: { ...metadata, finalizers: [] } });
    const tries: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
      ["delete", () => one.delete(addressBlocks, other), /another node than that of the token, which is node-1/],
      ["finalizer by replace", () => replaced(other, without), /another node/],
      [
        "finalizer by patch",
        () => one.patch(addressBlocks, other, merge({ metadata: { finalizers: null } })),
        /another node/,
      ],
      ["label to itself", () => one.patch(addressBlocks, other, merge(take)), /another node/],
      [
        "label to itself and finalizer at once",
        () => replaced(other, ({ metadata }) => ({ metadata: { ...metadata, ...take.metadata, finalizers: [] } })),
        /another node/,
      ],
      ["apply", () => one.patch(addressBlocks, other, applied("AddressBlock", "other", take)), /another node/],
      [
        "apply of a new one",
        () => one.patch(addressBlocks, { name: "new" }, applied("AddressBlock", "new", blockOf("new", "node-1"))),
        /makes none/,
      ],
      ["create", () => one.create(addressBlocks, blockOf("new", "node-1")), /makes none/],
      [
        "create with generateName",
        () => one.request({ method: "POST", path: BLOCKS, body: generated(blockOf("", "node-1")) }),
        /makes none/,
      ],
      [
        "all at once",
        () => one.request({ method: "DELETE", path: `${BLOCKS}?labelSelector=${NODE_LABEL}%3Dnode-2` }),
        /another node/,
      ],
      ["dry run", () => one.request({ method: "DELETE", path: `${BLOCKS}/other?dryRun=All` }), /another node/],
      // Of its own: what would draw the packets of others, or make it another's.
      [
        "own label",
        () => one.patch(addressBlocks, own, merge({ metadata: { labels: { [NODE_LABEL]: "node-2" } } })),
        /another node/,
      ],
      [
        "own label away",
        () => one.patch(addressBlocks, own, merge({ metadata: { labels: { [NODE_LABEL]: null } } })),
        /another node/,
      ],
      [
        "own owner",
        () => one.patch(addressBlocks, own, merge({ metadata: { ownerReferences: [OWNER] } })),
        /changes nothing else/,
      ],
      [
        "own pool",
        () => one.patch(addressBlocks, own, merge({ metadata: { labels: { [POOL_LABEL]: "x" } } })),
        /changes nothing else/,
      ],
      [
        "own reservation",
        () => one.patch(addressBlocks, own, merge({ metadata: { labels: { "coil.cybozu.com/reserved": "true" } } })),
        /changes nothing else/,
      ],
      [
        "own new finalizer",
        () => one.patch(addressBlocks, own, merge({ metadata: { finalizers: [COIL_FINALIZER, "a.b/c"] } })),
        /changes nothing else/,
      ],
    ];
    for (const [what, write, says] of tries) await assert.rejects(write(), { code: "forbidden", message: says }, what);
    // The type has the same rule, which is judged first.
    const range = one.patch(addressBlocks, own, merge({ ipv4: "10.1.2.0/28" }));
    await assert.rejects(range, { message: /unchangeable|changes nothing else/ });
    for (const write of [
      () => none.delete(addressBlocks, own),
      () => none.patch(addressBlocks, own, merge({ metadata: { finalizers: null } })),
      () => none.create(addressBlocks, blockOf("new", "node-1")),
      () => none.request({ method: "DELETE", path: BLOCKS }),
    ])
      await assert.rejects(write(), { code: "forbidden", message: /the token of coild has no name of a node/ });
    assert.deepEqual(await admin.get(addressBlocks, other), before);
    // What coild does: it deletes a block, and takes the finalizer away.
    await one.delete(addressBlocks, own);
    await replaced(own, without);
    await one.request({ method: "DELETE", path: `${BLOCKS}?labelSelector=${NODE_LABEL}%3Dnode-1` });
    await one.patch(addressBlocks, { name: "second" }, merge({ metadata: { finalizers: null } }));
    assert.deepEqual(
      (await admin.listAll(addressBlocks)).items.map(({ metadata }) => metadata.name),
      ["other"],
    );
    // The controller collects those of nodes that are gone.
    await controller.delete(addressBlocks, other);
    await controller.patch(addressBlocks, other, merge({ metadata: { finalizers: null } }));
    assert.equal((await admin.listAll(addressBlocks)).items.length, 0);
  });

  test(`deploy/pods/coild-policy.yaml on ${server}: with a node's token coild asks for blocks of its node, under names that are its own`, {
    skip,
  }, async (t) => {
    const { admin, as } = await open(t, server);
    const [one, two, none] = [await as("coild", "node-1"), await as("coild", "node-2"), await as("coild")];
    await two.create(blockRequests, requestOf("req-default-node-2", "node-2"));
    const other = { name: "req-default-node-2" };
    const before = await admin.get(blockRequests, other);
    const done: Patch = merge({ status: { addressBlockName: "x", conditions: [] } });
    const own = { name: "req-default-node-1" };
    await one.create(blockRequests, requestOf(own.name, "node-1"));
    const tries: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
      ["create", () => one.create(blockRequests, requestOf("req-gpu-node-2", "node-2", "gpu")), /another node/],
      ["delete", () => one.delete(blockRequests, other), /another node/],
      [
        "all at once",
        () => one.request({ method: "DELETE", path: `${REQUESTS}?fieldSelector=metadata.name%3Dreq-default-node-2` }),
        /another node/,
      ],
      ["status", () => one.patch(blockRequests, other, done, { subresource: "status" }), /does not change them/],
      ["own status", () => one.patch(blockRequests, own, done, { subresource: "status" }), /does not change them/],
      [
        "update",
        () => one.patch(blockRequests, other, merge({ metadata: { labels: { a: "b" } } })),
        /does not change them/,
      ],
      [
        "own update",
        () => one.patch(blockRequests, own, merge({ metadata: { labels: { a: "b" } } })),
        /does not change them/,
      ],
      [
        "a name of another node",
        () => one.create(blockRequests, requestOf("req-gpu-node-2", "node-1", "gpu")),
        /made of its pool and its node/,
      ],
      [
        "generateName",
        () => one.request({ method: "POST", path: REQUESTS, body: generated(requestOf("", "node-1")) }),
        /made of its pool and its node/,
      ],
    ];
    for (const [what, write, says] of tries) await assert.rejects(write(), { code: "forbidden", message: says }, what);
    for (const write of [
      () => none.create(blockRequests, requestOf("req-gpu-node-1", "node-1", "gpu")),
      () => none.delete(blockRequests, own),
    ])
      await assert.rejects(write(), { code: "forbidden", message: /has no name of a node/ });
    assert.deepEqual(await admin.get(blockRequests, other), before);
    // The name where the first one is taken has a hash.
    await one.create(blockRequests, requestOf("req-default-node-1-0123abcd", "node-1"));
    await one.delete(blockRequests, own);
    await one.delete(blockRequests, { name: "req-default-node-1-0123abcd" });
  });

  test(`deploy on ${server}: events of coild, nic-agent and service-proxy name the node of the token, and those of others stay as they are`, {
    skip,
  }, async (t) => {
    const { admin, as } = await open(t, server);
    const eventOf = (name: string, controller: string, node: string): Draft<Event> =>
      ({
        metadata: { namespace: "default", name },
        regarding: { apiVersion: "v1", kind: "Pod", namespace: "default", name: "p" },
        ...{ type: "Warning", reason: "R", action: "R", note: "n", eventTime: "2026-01-01T00:00:00.000000Z" },
        ...{ reportingController: controller, reportingInstance: node },
      }) as unknown as Draft<Event>;
    for (const [account, controller] of [
      ["coild", "coild"],
      ["nic-agent", "nic-agent"],
      ["isthmus-service-proxy", "service-proxy"],
    ] as const) {
      const [one, none] = [await as(account, "node-1"), await as(account)];
      const [own, other] = [`own-${account}`, `other-${account}`];
      const at = (name: string) => ({ namespace: "default", name });
      const again = merge({ series: { count: 2, lastObservedTime: "2026-01-01T00:00:01.000000Z" } });
      await one.create(resources.events, eventOf(own, controller, "node-1"));
      await one.patch(resources.events, at(own), again);
      await admin.create(resources.events, eventOf(other, controller, "node-2"));
      const refused = (what: string) => ({ code: "forbidden", message: new RegExp(what) });
      const wrong = refused("of another program or node");
      await assert.rejects(one.create(resources.events, eventOf("x", controller, "node-2")), wrong);
      await assert.rejects(one.create(resources.events, eventOf("x", "kubelet", "node-1")), wrong);
      await assert.rejects(one.patch(resources.events, at(other), again), wrong);
      await assert.rejects(one.patch(resources.events, at(own), merge({ reportingInstance: "node-2" })), {
        code: /forbidden|invalid/,
      });
      await assert.rejects(one.delete(resources.events, at(own)), refused("deletes none"));
      await assert.rejects(
        none.create(resources.events, eventOf("x", controller, "node-1")),
        refused("no name of a node"),
      );
    }
  });
}

function generated(draft: { readonly metadata?: object }): object {
  return {
    apiVersion: "coil.cybozu.com/v2",
    kind: "spec" in draft ? "BlockRequest" : "AddressBlock",
    ...draft,
    metadata: { ...draft.metadata, name: undefined, generateName: "req-default-node-1-" },
  };
}
