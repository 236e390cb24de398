/** The programs of the pod network with the rights and the policy of deploy/pods and no others: they work, and no request is refused. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { callGrpc } from "#features/cni";
import { openKernel } from "#kernel/net";
import { listenTcp } from "#kernel/socket";
import {
  type Draft,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type ResourceType,
  resources,
} from "#kube/client";
import { COIL_FINALIZER, coilCrds, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, start, until } from "#test/lab";
import { ownerReferencesPermission } from "#test/owner-references";
import { CNI_SERVICE, EMPTY_CNI_ARGS, encodeCniArgs } from "#wire/cnirpc";

const PROGRAMS = ["coil-ipam-controller", "coild", "coil-router"] as const;
const NODE = "rights-node";
/** A Node that nobody has heard of, and its block, which is there before the controller is: so the grace passes during the other steps. */
const GONE = "gone";
/** The shortest that is allowed. */
const GRACE = "30s";
const root = join(import.meta.dirname, "../..");

/** A namespace with loopback, a name of its own, and an address; removed at the end of the test. */
function namespace(t: TestContext, name: string): string {
  const kernel = openKernel();
  const full = `isthmus-rights-${process.pid}-${name}`;
  kernel.createNetNs(full)[Symbol.dispose]();
  t.after(() => kernel.deleteNetNs(full));
  for (const args of [
    ["link", "set", "lo", "up"],
    ["address", "add", "192.0.2.1/32", "dev", "lo"],
  ]) {
    execFileSync("ip", ["-n", full, ...args]);
  }
  return full;
}

/** A node with its programs, each with its account; `edit` changes the rights. */
async function open(t: TestContext, edit: (rights: SeedObject[]) => void = () => undefined) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-rights-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const [node, pod] = [namespace(t, "node"), namespace(t, "pod")];
  const kernel = openKernel();
  const netns = kernel.openNetNs({ name: node });
  const fd = listenTcp(IpAddress.parse("127.0.0.1"), 6443, { netns });
  netns[Symbol.dispose]();
  const user = (program: string) => ({
    name: `system:serviceaccount:kube-system:${program}`,
    groups: ["system:serviceaccounts", "system:authenticated"],
    // As kubelet's tokens have it.
    extra: { "authentication.kubernetes.io/node-name": [NODE] },
  });
  const accounts = Object.fromEntries(PROGRAMS.map((program) => [`${program}-token`, user(program)]));
  const server = await startApiServer({
    listen: [
      { host: "127.0.0.1", port: 0 },
      { fd, host: "127.0.0.1" },
    ],
    tokens: { admin: { name: "admin", groups: ["system:masters"] }, ...accounts },
    // Its admin is there before anybody writes a reference.
    admission: [ownerReferencesPermission(() => admin)],
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const [here = "", inNode = ""] = server.urls;
  writeFileSync(join(dir, "admin"), server.kubeconfig({ server: here, token: "admin" }));
  const admin = new KubeClient(await loadKubeConfig({ path: join(dir, "admin"), clock: systemClock }), {
    clock: systemClock,
  });
  t.after(() => admin.close());
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  const granted = ["rbac.yaml", "coild-policy.yaml", "webhooks.yaml"].flatMap((file) =>
    parseAllDocuments(readFileSync(join(root, "deploy/pods", file), "utf8")).map((one) => one.toJS() as SeedObject),
  );
  edit(granted);
  server.seed(granted);
  const create = <T extends KubeObject>(type: ResourceType<T>, draft: object): Promise<T> =>
    admin.create(type, draft as Draft<T>);
  const made = await create(resources.nodes, { metadata: { name: NODE } });
  const addresses = [{ type: "InternalIP" as const, address: "192.0.2.1" }];
  await admin.replaceStatus(resources.nodes, { ...made, status: { addresses } });
  await create(resources.pods, {
    metadata: { namespace: "default", name: "p" },
    spec: { nodeName: NODE, containers: [{ name: "c", image: "none" }] },
  });
  await until("the pool is there", async () => {
    try {
      const subnets = [{ ipv4: "10.200.0.0/24" }];
      await create(coilResources.addressPools, { metadata: { name: "default" }, spec: { blockSizeBits: 0, subnets } });
      return true;
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      throw error;
    }
  });

  await create(coilResources.addressBlocks, {
    metadata: {
      name: "default-200",
      labels: { [POOL_LABEL]: "default", [NODE_LABEL]: GONE },
      finalizers: [COIL_FINALIZER],
    },
    index: 200,
    ipv4: "10.200.0.200/32",
  });

  const socket = join(dir, "coild.sock");
  const running = PROGRAMS.map((program) => {
    const kubeconfig = join(dir, program);
    writeFileSync(kubeconfig, server.kubeconfig({ server: inNode, token: `${program}-token` }));
    const flags =
      program === "coild"
        ? [`--socket=${socket}`]
        : program === "coil-ipam-controller"
          ? ["--enable-cert-rotation", `--cert-dir=${dir}`, `--node-gone-grace=${GRACE}`]
          : [];
    const argv = ["nsenter", `--net=/run/netns/${node}`, ISTHMUS, program, `--kubeconfig=${kubeconfig}`, ...flags];
    const one = start(argv, { env: { COIL_NODE_NAME: NODE } });
    t.after(() => one.child.kill("SIGKILL"));
    return one;
  });
  const said = (): string => running.map((one) => one.said()).join("");
  await until("coild serves", () => said().includes('"serving"'), { seen: said });
  const call = (method: "Add" | "Del"): Promise<Uint8Array> =>
    callGrpc(
      socket,
      `/${CNI_SERVICE}/${method}`,
      encodeCniArgs({
        ...EMPTY_CNI_ARGS,
        containerId: "c1",
        netns: `/run/netns/${pod}`,
        ifname: "eth0",
        args: { K8S_POD_NAMESPACE: "default", K8S_POD_NAME: "p" },
      }),
      { timeoutMs: 30_000 },
    );
  /** All end well. */
  const end = async (): Promise<void> => {
    for (const one of running) one.child.kill("SIGTERM");
    for (const one of running) assert.equal((await one.ended).code, 0, one.said());
  };
  return { admin, said, call, end };
}

test("deploy/pods: with these rights pods get addresses, blocks go back, webhooks get a certificate, and no request is forbidden", async (t) => {
  const { admin, said, call, end } = await open(t);
  await until(
    "both webhook configurations trust the authority",
    () => said().match(/CA bundle written to a webhook configuration/g)?.length === 2,
    {
      seen: said,
    },
  );
  await until("the certificate is served", () => said().includes('"webhook certificate loaded"'), { seen: said });
  const { data } = await admin.get(resources.secrets, {
    namespace: "kube-system",
    name: "coilv2-ipam-webhook-server-cert",
  });
  assert.deepEqual(Object.keys(data ?? {}).sort(), ["ca.crt", "tls.crt", "tls.key"]);
  await call("Add");
  // This node's block is given to another node, so that coild writes an event on a pod.
  const blocksOf = async (node: string) =>
    (await admin.listAll(coilResources.addressBlocks, { labelSelector: `${NODE_LABEL}=${node}` })).items;
  const [block] = await blocksOf(NODE);
  assert.ok(block !== undefined);
  const give = (to: string): Promise<unknown> =>
    admin.patch(coilResources.addressBlocks, block.metadata, {
      type: "merge",
      body: { metadata: { labels: { [NODE_LABEL]: to } } },
    });
  // It writes events on pods that have the addresses, and the second event of a kind is a change of the first one.
  const ip = block.ipv4?.split("/")[0] ?? "";
  const pod = await admin.get(resources.pods, { namespace: "default", name: "p" });
  await admin.replaceStatus(resources.pods, { ...pod, status: { phase: "Running", podIPs: [{ ip }] } });
  const times = async (reason: string): Promise<number | undefined> => {
    const found = (await admin.listAll(resources.events)).items.find((one) => one.reason === reason);
    return found === undefined ? undefined : (found.series?.count ?? 1);
  };
  for (const count of [1, 2]) {
    const isSaid = (what: string) => () => said().split(what).length === count + 1;
    await give("other");
    await until("the pod is cut off", isSaid("attachments were cut off"), { seen: said });
    await until("an event tells it", async () => (await times("AddressLost")) === count, { seen: said });
    await give(NODE);
    await until("and joined again", isSaid("attachments were connected again"), { seen: said });
    await until("an event tells that too", async () => (await times("AddressRestored")) === count, { seen: said });
  }
  await admin.delete(resources.nodes, { name: NODE });
  await until("coild knows that its Node is gone", () => said().includes("this Node was deleted"), { seen: said });
  const isKept = (line: string): boolean =>
    line.includes("kept for --node-gone-grace") && line.includes(`"node":"${NODE}"`);
  await until("the controller keeps its block", () => said().split("\n").some(isKept), { seen: said });
  await call("Del");
  await until("the block goes back", async () => (await blocksOf(NODE)).length === 0);
  // The controller gives back the block of a Node that nobody has heard of, and the pool, which has no block then.
  await until("the controller gives it back", async () => (await blocksOf(GONE)).length === 0, {
    deadlineMs: 60_000,
    seen: said,
  });
  await admin.delete(coilResources.addressPools, { name: "default" });
  const pools = async () => (await admin.listAll(coilResources.addressPools)).items;
  await until("the pool is gone", async () => (await pools()).length === 0, { seen: said });
  await end();
  assert.doesNotMatch(said(), /forbidden|cannot (get|list|watch|create|update|patch|delete) resource/);
});

test("coild without the right to watch Nodes, as Coil's role has it, logs the missing right once, and polls", async (t) => {
  const { admin, said, call, end } = await open(t, (rights) => {
    const role = rights.find(({ kind, metadata }) => kind === "ClusterRole" && metadata.name === "coild");
    const rules = role?.["rules"] as { readonly resources: string[]; verbs: string[] }[];
    for (const rule of rules) if (rule.resources.includes("nodes")) rule.verbs = ["get"];
  });
  await call("Add");
  await admin.delete(resources.nodes, { name: NODE });
  await until("coild knows that its Node is gone", () => said().includes("this Node was deleted"), {
    deadlineMs: 45_000,
    seen: said,
  });
  await call("Del");
  await end();
  assert.equal(said().match(/"missingRight":"nodes: list, watch"/g)?.length, 1, said());
});

test("deploy/pods: who has Coil's viewer roles reads Egresses of a namespace and blocks of the cluster, and writes nothing", async (t) => {
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: {
      admin: { name: "admin", groups: ["system:masters"] },
      user: { name: "user", groups: ["system:authenticated"] },
    },
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const dir = mkdtempSync(join(tmpdir(), "isthmus-viewer-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const client = async (token: string): Promise<KubeClient> => {
    writeFileSync(join(dir, token), server.kubeconfig({ token }));
    const made = new KubeClient(await loadKubeConfig({ path: join(dir, token), clock: systemClock }), {
      clock: systemClock,
    });
    t.after(() => made.close());
    return made;
  };
  const [admin, user] = [await client("admin"), await client("user")];
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  for (const file of ["rbac.yaml", "egress.yaml"])
    server.seed(
      parseAllDocuments(readFileSync(join(root, "deploy/pods", file), "utf8")).map((one) => one.toJS() as SeedObject),
    );
  await admin.create(resources.namespaces, { metadata: { name: "team" } });
  const [apiGroup, subjects] = ["rbac.authorization.k8s.io", [{ kind: "User", name: "user" }]];
  const roleRef = (name: string) => ({ apiGroup, kind: "ClusterRole", name: `coilv2-${name}-viewer-role` });
  // As the aggregated roles do: these servers do not combine them.
  await admin.create(resources.roleBindings, {
    metadata: { name: "view", namespace: "team" },
    ...{ roleRef: roleRef("egress"), subjects },
  });
  for (const name of ["addresspool", "addressblock", "blockrequest"])
    await admin.create(resources.clusterRoleBindings, { metadata: { name }, roleRef: roleRef(name), subjects });
  const { egresses, addressPools, addressBlocks, blockRequests } = coilResources;
  const egress = { metadata: { name: "nat", namespace: "team" }, spec: { destinations: ["192.0.2.0/24"] } };
  await until("the types are served", async () => {
    try {
      await admin.create(egresses, egress);
      return true;
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      throw error;
    }
  });
  assert.equal((await user.get(egresses, egress.metadata)).metadata.name, "nat");
  assert.equal((await user.listAll(egresses, { namespace: "team" })).items.length, 1);
  await Promise.all([user.listAll(addressPools), user.listAll(addressBlocks), user.listAll(blockRequests)]);
  const forbidden = { code: "forbidden" };
  await assert.rejects(user.listAll(egresses), forbidden);
  await assert.rejects(user.delete(egresses, egress.metadata), forbidden);
  await assert.rejects(user.create(egresses, { ...egress, metadata: { name: "b", namespace: "team" } }), forbidden);
  await assert.rejects(user.delete(addressBlocks, { name: "default-0" }), forbidden);
});
