/** The shipped controller of Egresses on the embedded API server, as an operator sees it: objects, edits, rights, faults. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import {
  type Deployment,
  type Draft,
  findObject,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type PodDisruptionBudget,
  type ResourceType,
  resources,
} from "#kube/client";
import { coilCrds, coilResources, type Egress, type EgressSpec, egressLabels, egressSelector } from "#kube/coil";
import { type AdmissionPlugin, ApiError, type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { ownerReferencesPermission } from "#test/owner-references";

const { egresses } = coilResources;
const IMAGE = "registry.example/coil:1";
const NAT = { name: "nat", namespace: "internet" };
const execute = promisify(execFile);

/** The account of routers in a namespace, as an API server names it. */
const accountIn = (namespace: string) => ({
  name: `system:serviceaccount:${namespace}:coil-egress`,
  groups: ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"],
});

/** The refusal of fields that exclude each other, as Kubernetes' own API server has it. */
const EITHER_OR: AdmissionPlugin = {
  name: "either-or",
  admit: ({ resource, object }) => {
    const spec = (object as { readonly spec?: Partial<PodDisruptionBudget["spec"] & Deployment["spec"]> } | undefined)
      ?.spec;
    const containers = resource === "deployments" ? (spec?.template?.spec?.containers ?? []) : [];
    const refused =
      (resource === "poddisruptionbudgets" && spec?.minAvailable !== undefined && spec.maxUnavailable !== undefined) ||
      (spec?.strategy?.type === "Recreate" && spec.strategy.rollingUpdate !== undefined) ||
      containers.some(({ env }) => env?.some(({ value, valueFrom }) => value !== undefined && valueFrom !== undefined));
    if (refused) throw new ApiError("Invalid", `${resource}: fields exclude each other`);
    return undefined;
  },
};

/** An API server with the CRDs, two namespaces and the rights of the manifests, and a function that starts a controller with these rights. */
async function open(t: TestContext, { program = "coil-egress-controller", isGuarded = true } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-egress-controller-"));
  const account = {
    name: `system:serviceaccount:kube-system:${program}`,
    groups: ["system:serviceaccounts", "system:authenticated"],
  };
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    // kubectl sends its token nowhere else.
    tls: "self-signed",
    tokens: {
      admin: { name: "admin", groups: ["system:masters"] },
      controller: account,
      router: accountIn("internet"),
    },
    admission: [EITHER_OR, ...(isGuarded ? [ownerReferencesPermission(() => api)] : [])],
    log: nullLogger,
    clock: systemClock,
  });
  const clients: KubeClient[] = [];
  /** Writes a kubeconfig of a user; returns its path. */
  const configOf = (token: string): string => {
    const path = join(folder, token);
    writeFileSync(path, server.kubeconfig({ token }));
    return path;
  };
  const client = async (token: string): Promise<KubeClient> => {
    const made = new KubeClient(await loadKubeConfig({ path: configOf(token), clock: systemClock }), {
      clock: systemClock,
    });
    clients.push(made);
    return made;
  };
  const api = await client("admin");
  const kubeconfig = configOf("controller");
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  for (const name of ["internet", "other"]) await api.create(resources.namespaces, { metadata: { name } });
  for (const file of ["rbac.yaml", "egress.yaml"]) {
    const text = readFileSync(join(import.meta.dirname, "../../deploy/pods", file), "utf8");
    server.seed(parseAllDocuments(text).map((one) => one.toJS() as SeedObject));
  }
  const running: Running[] = [];
  /** Starts a program in a pod's place: with the environment of that pod, if there is one. */
  const runIn = (pod: string | undefined, ...more: readonly string[]): Running => {
    const flags = ["--webhook-addr=none", "--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"];
    const env = { COIL_POD_NAMESPACE: pod === undefined ? undefined : "kube-system", COIL_POD_NAME: pod };
    const one = start([ISTHMUS, program, `--kubeconfig=${kubeconfig}`, ...flags, ...more], { env, timeoutMs: 180_000 });
    running.push(one);
    return one;
  };
  const run = (...more: readonly string[]): Running => runIn(undefined, `--image=${IMAGE}`, ...more);
  t.after(async () => {
    for (const one of running) one.child.kill("SIGKILL");
    await Promise.all(running.map((one) => one.ended));
    for (const one of clients) await one.close();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
    for (const one of running) assert.doesNotMatch(one.said(), /forbidden|because of a bug/);
  });
  /** Kills a controller. Its Lease goes as if it had expired. */
  const kill = async (one: Running): Promise<void> => {
    one.child.kill("SIGKILL");
    await one.ended;
    await api.delete(resources.leases, { namespace: "kube-system", name: "coil-egress-leader" });
  };
  const find = <T extends KubeObject>(type: ResourceType<T>, ref = NAT): Promise<T | undefined> =>
    findObject(api, type, ref);
  const make = async (spec: Partial<EgressSpec> = {}, ref = NAT): Promise<void> => {
    await api.create(egresses, { metadata: ref, spec: { destinations: ["0.0.0.0/0"], ...spec } } as Draft<Egress>);
  };
  const edit = (spec: object, ref = NAT) => api.patch(egresses, ref, { type: "merge", body: { spec } });
  const kubectl = async (...args: readonly string[]): Promise<string> => {
    const { stdout } = await execute("kubectl", [`--kubeconfig=${configOf("admin")}`, "--namespace=internet", ...args]);
    return stdout;
  };
  return { server, api, client, run, runIn, kill, find, make, edit, kubectl };
}

type World = Awaited<ReturnType<typeof open>>;

async function eventually(what: string, check: () => Promise<boolean>): Promise<void> {
  await until(what, check, { deadlineMs: 40_000, everyMs: 50 });
}

const subjects = async ({ api }: Pick<World, "api">): Promise<string[]> => {
  const binding = await api.get(resources.clusterRoleBindings, { name: "coil-egress" });
  return (binding.subjects ?? []).map(({ kind, name, namespace }) => `${kind} ${namespace}/${name}`);
};

async function routerOf({ find }: Pick<World, "find">) {
  const deployment = await find(resources.deployments);
  return deployment?.spec?.template.spec?.containers.find(({ name }) => name === "egress");
}

const CHILDREN = [
  resources.deployments,
  resources.services,
  resources.podDisruptionBudgets,
] as readonly ResourceType<KubeObject>[];

/** The versions of the objects of the Egress. */
const versionsOf = ({ find }: Pick<World, "find">): Promise<(string | undefined)[]> =>
  Promise.all(CHILDREN.map(async (type) => (await find(type))?.metadata.resourceVersion));

/** Waits until the pass that a touch of the Egress causes is over, which a later change of its budget shows. */
async function settle({ api, edit, find }: World): Promise<void> {
  await api.patch(egresses, NAT, { type: "merge", body: { metadata: { annotations: { touched: "yes" } } } });
  const had = (await find(resources.podDisruptionBudgets))?.spec?.minAvailable;
  const wanted = had === 1 ? 2 : 1;
  await edit({ podDisruptionBudget: { minAvailable: wanted } });
  await eventually(
    "the edit has arrived",
    async () => (await find(resources.podDisruptionBudgets))?.spec?.minAvailable === wanted,
  );
}

test("coil-egress-controller: an Egress has account, Deployment, Service, rights and status; nothing is written when all is so", async (t) => {
  const world = await open(t);
  const { find, make, run } = world;
  await make({ replicas: 2, sessionAffinityConfig: { clientIP: { timeoutSeconds: 600 } } });
  const first = run("--backend=nftables", "--tunnel-driver=vxlan");
  // They are written side by side, and the subjects by a part of their own.
  await eventually("everything is there", async () => {
    const there = await Promise.all([find(resources.deployments), find(resources.services), find(egresses)]);
    return there.every((one) => one !== undefined) && there[2]?.status?.selector !== undefined;
  });
  await eventually("there are subjects", async () => (await subjects(world)).length > 0);
  await eventually("its clients are counted", async () => (await find(egresses))?.status?.clients !== undefined);
  const { status } = (await find(egresses)) ?? assert.fail();
  assert.deepEqual(status, { replicas: 0, selector: egressSelector("nat"), clients: 0, refusedClients: 0 });
  assert.notEqual(await find(resources.serviceAccounts, { namespace: "internet", name: "coil-egress" }), undefined);
  assert.deepEqual(await subjects(world), ["ServiceAccount internet/coil-egress"]);
  const deployment = (await find(resources.deployments)) ?? assert.fail();
  assert.equal(deployment.spec?.replicas, 2);
  assert.deepEqual(
    deployment.metadata.ownerReferences?.map(({ kind, controller }) => [kind, controller]),
    [["Egress", true]],
  );
  const router = (await routerOf(world)) ?? assert.fail();
  assert.deepEqual(
    [router.image, router.command, router.args],
    [IMAGE, ["coil-egress"], ["--zap-stacktrace-level=panic", "--backend=nftables", "--tunnel-driver=vxlan"]],
  );
  assert.deepEqual(
    router.env?.map(({ name }) => name),
    ["COIL_POD_ADDRESSES", "COIL_POD_NAMESPACE", "COIL_EGRESS_NAME"],
  );
  assert.deepEqual(router.resources?.requests, { cpu: "100m", memory: "200Mi" });
  assert.equal(router.securityContext?.privileged, true);
  const service = (await find(resources.services)) ?? assert.fail();
  assert.deepEqual(
    [
      service.spec?.ports?.map(({ port, targetPort, protocol }) => [port, targetPort, protocol]),
      service.spec?.sessionAffinity,
    ],
    [[[5555, 5555, "UDP"]], "ClientIP"],
  );
  assert.equal(service.spec?.sessionAffinityConfig?.clientIP?.timeoutSeconds, 600);
  const [deploymentAt, serviceAt] = await versionsOf(world);
  await settle(world);
  assert.deepEqual((await versionsOf(world)).slice(0, 2), [deploymentAt, serviceAt]);
  // A new process applies everything once, and nothing changes by that.
  const settled = await versionsOf(world);
  await world.kill(first);
  const second = run("--backend=nftables", "--tunnel-driver=vxlan");
  await until("it leads", () => second.said().includes("leader seen"), { deadlineMs: 40_000, seen: second.said });
  await settle(world);
  assert.deepEqual((await versionsOf(world)).slice(0, 2), settled.slice(0, 2));
});

test("coil-egress-controller: edits of the Egress arrive, what others removed or changed returns, and what they added stays", async (t) => {
  const world = await open(t);
  const { api, find, make, edit, run, kubectl } = world;
  const template = {
    metadata: { labels: { team: "red" } },
    spec: { containers: [{ name: "sidecar", image: "example/sidecar" }] },
  };
  await make({ template, sessionAffinityConfig: { clientIP: { timeoutSeconds: 600 } } } as Partial<EgressSpec>);
  run();
  await eventually("the router is there", async () => (await routerOf(world)) !== undefined);
  const podSpec = (await find(resources.deployments))?.spec?.template.spec;
  assert.deepEqual(podSpec?.containers.map(({ name }) => name).sort(), ["egress", "sidecar"]);
  await kubectl("rollout", "restart", "deployment/nat");
  const restartedAt = (await find(resources.deployments))?.spec?.template.metadata?.annotations;
  assert.deepEqual(Object.keys(restartedAt ?? {}), ["kubectl.kubernetes.io/restartedAt"]);
  await edit({ fouSourcePortAuto: true, replicas: 3, strategy: { type: "Recreate" }, sessionAffinityConfig: null });
  await eventually(
    "the flag has arrived",
    async () => (await routerOf(world))?.args?.includes("--enable-sport-auto=true") === true,
  );
  await eventually("the Service has no configuration of its own", async () => {
    const seconds = (await find(resources.services))?.spec?.sessionAffinityConfig?.clientIP?.timeoutSeconds;
    return seconds === undefined || seconds === 10_800;
  });
  const edited = (await find(resources.deployments)) ?? assert.fail();
  assert.deepEqual([edited.spec?.replicas, edited.spec?.strategy?.type], [3, "Recreate"]);
  assert.deepEqual(edited.spec?.template.metadata?.annotations, restartedAt);
  assert.equal(edited.spec?.template.metadata?.labels?.["team"], "red");
  await api.patch(resources.deployments, NAT, { type: "merge", body: { spec: { replicas: 7 } } });
  await eventually(
    "replicas are as the Egress says",
    async () => (await find(resources.deployments))?.spec?.replicas === 3,
  );
  for (const type of CHILDREN.slice(0, 2)) {
    const { uid } = (await find(type))?.metadata ?? assert.fail();
    await api.delete(type, NAT);
    await eventually(`the ${type.kind} is made anew`, async () => {
      const made = (await find(type))?.metadata.uid;
      return made !== undefined && made !== uid;
    });
  }
  await api.delete(resources.serviceAccounts, { namespace: "internet", name: "coil-egress" });
  await eventually("the account is made anew", async () => {
    return (await find(resources.serviceAccounts, { namespace: "internet", name: "coil-egress" })) !== undefined;
  });
  // kubectl and an autoscaler write the scale subresource, the one by a patch, the other one by an update.
  await kubectl("scale", "egress/nat", "--replicas=5");
  await eventually("the Deployment is scaled", async () => (await find(resources.deployments))?.spec?.replicas === 5);
  const scale = "/apis/coil.cybozu.com/v2/namespaces/internet/egresses/nat/scale";
  const read = (await api.request({ method: "GET", path: scale })) as {
    spec: { replicas: number };
    status: { selector: string };
  };
  assert.equal(read.status.selector, egressSelector("nat"));
  await api.request({ method: "PUT", path: scale, body: { ...read, spec: { replicas: 6 } } });
  await eventually("the Deployment is scaled", async () => (await find(resources.deployments))?.spec?.replicas === 6);
  const deployment = (await find(resources.deployments)) ?? assert.fail();
  const status = { replicas: 6, readyReplicas: 4, availableReplicas: 4, updatedReplicas: 6 };
  await api.replaceStatus(resources.deployments, { ...deployment, status });
  await eventually("the status tells the available ones", async () => (await find(egresses))?.status?.replicas === 4);
});

test("coil-egress-controller: the disruption budget switches between min and max, and goes when it is not wanted", async (t) => {
  const { find, make, edit, run } = await open(t);
  await make({ podDisruptionBudget: { minAvailable: 1 } });
  run();
  const budget = async () => (await find(resources.podDisruptionBudgets))?.spec;
  await eventually("at least one", async () => (await budget())?.minAvailable === 1);
  await edit({ podDisruptionBudget: { minAvailable: null, maxUnavailable: "50%" } });
  await eventually("at most a half", async () => (await budget())?.maxUnavailable === "50%");
  assert.equal((await budget())?.minAvailable, undefined);
  await edit({ podDisruptionBudget: null });
  await eventually("none", async () => (await budget()) === undefined);
});

test("coil-egress-controller: the subjects are the namespaces with an Egress, also after deletions and somebody's edit; children go with their Egress", async (t) => {
  const world = await open(t);
  const { api, find, make, run } = world;
  const other = { name: "nat", namespace: "other" };
  await make();
  await make({}, other);
  const controller = run();
  const both = ["ServiceAccount internet/coil-egress", "ServiceAccount other/coil-egress"];
  await eventually("both namespaces", async () => (await subjects(world)).join() === both.join());
  const binding = await api.get(resources.clusterRoleBindings, { name: "coil-egress" });
  await api.replace(resources.clusterRoleBindings, {
    ...binding,
    subjects: [{ kind: "ServiceAccount", name: "default", namespace: "kube-system" }],
  });
  await eventually("the edit is undone", async () => (await subjects(world)).join() === both.join());
  await api.delete(egresses, other);
  await eventually("one namespace", async () => (await subjects(world)).join() === both[0]);
  await eventually("its children are gone", async () => (await find(resources.deployments, other)) === undefined);
  assert.notEqual(await find(resources.deployments), undefined);
  controller.child.kill("SIGTERM");
  assert.equal((await controller.ended).code, 0);
});

test("coil-egress-controller: somebody's edits of the objects are undone, and what they added stays", async (t) => {
  // Where references are guarded, only who may delete any Deployment and Service could write one anew.
  const world = await open(t, { isGuarded: false });
  const { api, find, make, run } = world;
  await make({ podDisruptionBudget: { maxUnavailable: 1 } });
  run();
  await eventually("all is there", async () => (await versionsOf(world)).every((version) => version !== undefined));
  const container = (await routerOf(world)) ?? assert.fail();
  const env = container.env?.map((one) => (one.valueFrom === undefined ? one : { name: one.name, value: "x" }));
  const otherVariable = { spec: { template: { spec: { containers: [{ ...container, env }] } } } };
  const edits: readonly (readonly [string, ResourceType<KubeObject>, object])[] = [
    ["replicas", resources.deployments, { spec: { replicas: 7 } }],
    ["variable", resources.deployments, otherVariable],
    ["labels", resources.deployments, { metadata: { labels: null, annotations: { mine: "yes" } } }],
    ["owner", resources.deployments, { metadata: { ownerReferences: null } }],
    [
      "account",
      resources.deployments,
      { spec: { template: { spec: { serviceAccountName: "default", priorityClassName: "mine" } } } },
    ],
    ["selector", resources.services, { spec: { selector: { app: "shop" } } }],
    ["type", resources.services, { spec: { type: "NodePort", sessionAffinity: "None" } }],
    ["budget", resources.podDisruptionBudgets, { spec: { maxUnavailable: null, minAvailable: 3 } }],
  ];
  const wishes = async (): Promise<object> => {
    const [deployment, service, budget] = await Promise.all(CHILDREN.map((type) => find(type)));
    const wishOf = (object: (KubeObject & { readonly spec?: unknown }) | undefined) => [
      object?.metadata.labels,
      object?.metadata.ownerReferences,
      object?.spec,
    ];
    return [deployment, service, budget].map(wishOf);
  };
  const before = JSON.stringify(await wishes());
  for (const [what, type, body] of edits) {
    await api.patch(type, NAT, { type: "merge", body });
    let now = "";
    const isUndone = async (): Promise<boolean> => {
      now = JSON.stringify(await wishes()).replace(',"priorityClassName":"mine"', "");
      return now === before;
    };
    await until(`${what}: the edit is undone`, isUndone, { seen: () => `${now}\ninstead of ${before}` });
  }
  const { metadata, spec } = (await find(resources.deployments)) ?? assert.fail();
  assert.equal(metadata.annotations?.["mine"], "yes");
  assert.equal(spec?.template.spec?.priorityClassName, "mine");
});

test("coil-egress-controller: what Coil's controller has written becomes ours, and goes when the Egress does not want it", async (t) => {
  const world = await open(t);
  const { api, find, make, edit, run } = world;
  const sidecar = { name: "sidecar", image: "example/sidecar" };
  await make({ template: { spec: { containers: [{ name: "egress" }] } } } as Partial<EgressSpec>);
  const { uid } = (await find(egresses))?.metadata ?? assert.fail();
  const labels = egressLabels("nat");
  const owner = {
    apiVersion: "coil.cybozu.com/v2",
    kind: "Egress",
    name: "nat",
    uid,
    controller: true,
    blockOwnerDeletion: true,
  };
  await api.create(
    resources.deployments,
    {
      metadata: { ...NAT, labels, ownerReferences: [owner] },
      spec: {
        replicas: 9,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: { containers: [{ name: "egress", image: "coil:2.15", tty: true }, sidecar] },
        },
      },
    },
    { fieldManager: "coil-egress-controller" },
  );
  run();
  const names = async () =>
    (await find(resources.deployments))?.spec?.template.spec?.containers.map(({ name }) => name);
  await eventually("Coil's container is gone", async () => (await names())?.join() === "egress");
  const router = (await routerOf(world)) ?? assert.fail();
  assert.deepEqual([router.image, router.tty], [IMAGE, undefined]);
  assert.equal((await find(resources.deployments))?.metadata.uid !== undefined, true);
  await edit({ template: { spec: { containers: [{ name: "egress" }, sidecar] } } });
  await eventually("it is there again", async () => (await names())?.join() === "egress,sidecar");
});

test("coil-egress-controller: a Service of somebody else keeps its name, and the log says what is in the way", async (t) => {
  const world = await open(t);
  const { api, find, make, run } = world;
  // Without our labels, so that no cache of the controller has it.
  await api.create(resources.services, {
    metadata: NAT,
    spec: { selector: { app: "shop" }, ports: [{ port: 80 }] },
  } as never);
  await make();
  const controller = run();
  await eventually("the log names it", async () =>
    /cannot have its Service: one of that name exists/.test(controller.said()),
  );
  assert.deepEqual((await find(resources.services))?.spec?.selector, { app: "shop" });
  await api.delete(resources.services, NAT);
  await eventually(
    "it is the Egress's then",
    async () => (await find(resources.services))?.spec?.ports?.[0]?.port === 5555,
  );
});

for (const action of [
  { status: 409 },
  { status: 500 },
  { cut: "drop-connection" },
  { cut: "lost-response" },
] as const) {
  const says = "status" in action ? `a ${action.status}` : action.cut;
  test(`coil-egress-controller: ${says} at any write, and kill -9 and a second process, end in the same objects`, async (t) => {
    const world = await open(t);
    const { server, find, make, edit, run } = world;
    const match = {
      verb: ["create", "update", "patch", "delete"],
      probability: 0.4,
      userAgent: "coil-egress-controller",
    };
    const rule = server.faults.add({ match, action });
    await make({ podDisruptionBudget: { minAvailable: 1 } });
    const first = run();
    const hits = () => server.faults.list().find(({ id }) => id === rule)?.hits ?? 0;
    await until("some writes are hit", () => hits() >= 2, { seen: first.said, deadlineMs: 60_000 });
    await world.kill(first);
    await edit({ replicas: 4, podDisruptionBudget: null });
    run();
    await until(
      "all is as the Egress says",
      async () => {
        const replicas = (await find(resources.deployments))?.spec?.replicas;
        const budget = await find(resources.podDisruptionBudgets);
        const service = await find(resources.services);
        const own = (await subjects(world)).join() === "ServiceAccount internet/coil-egress";
        return replicas === 4 && budget === undefined && service !== undefined && own;
      },
      { deadlineMs: 90_000 },
    );
  });
}

test("coil-egress-controller: with the API server away nothing is lost, and the edits of that time arrive within seconds of its return", async (t) => {
  const { server, find, make, edit, run } = await open(t);
  await make();
  const controller = run();
  await eventually("the router is there", async () => (await find(resources.deployments)) !== undefined);
  const userAgent = "coil-egress-controller";
  // Shorter than the lease: a longer absence ends the process, which starts again.
  const rule = server.faults.add({ match: { userAgent }, action: { cut: "drop-connection" } });
  server.faults.dropWatches({ userAgent });
  await edit({ replicas: 3 });
  await sleep(4000);
  assert.equal((await find(resources.deployments))?.spec?.replicas, 1);
  server.faults.remove(rule);
  const back = performance.now();
  await eventually("the edit has arrived", async () => (await find(resources.deployments))?.spec?.replicas === 3);
  assert.ok(performance.now() - back < 8000, `${performance.now() - back} ms`);
  assert.equal(controller.child.exitCode, null);
});

test("coil-egress-controller: a hundred edits within a second end in the last one, and cost no more writes than edits", async (t) => {
  const { find, make, edit, run } = await open(t);
  await make();
  run();
  await eventually("the router is there", async () => (await find(resources.deployments)) !== undefined);
  const generation = async () => (await find(resources.deployments))?.metadata.generation ?? assert.fail();
  const before = await generation();
  for (let replicas = 2; replicas <= 101; replicas += 1) {
    await edit({ replicas, destinations: [`10.0.${replicas}.0/24`] });
    await sleep(5);
  }
  const end = performance.now();
  await eventually("the last one has arrived", async () => (await find(resources.deployments))?.spec?.replicas === 101);
  assert.ok(performance.now() - end < 5000);
  assert.ok((await generation()) - before <= 100);
});

test("coil-egress-controller: a second replica takes over after SIGTERM and after SIGKILL of the first one, without a change of what is so", async (t) => {
  const world = await open(t);
  const { find, make, edit, run } = world;
  await make({ podDisruptionBudget: { minAvailable: 1 } });
  let leader = run();
  await eventually("all is there", async () => (await versionsOf(world)).every((version) => version !== undefined));
  for (const [at, signal] of (["SIGTERM", "SIGKILL"] as const).entries()) {
    const next = run();
    await until("it waits", () => next.said().includes("leader seen"), { deadlineMs: 40_000, seen: next.said });
    const before = await versionsOf(world);
    leader.child.kill(signal);
    await leader.ended;
    const replicas = 5 + at;
    await edit({ replicas });
    await eventually(
      "the second one leads",
      async () => (await find(resources.deployments))?.spec?.replicas === replicas,
    );
    assert.deepEqual((await versionsOf(world)).slice(1), before.slice(1));
    leader = next;
  }
});

test("coil-egress-controller: routers may read what decides about their clients where an Egress is, and nothing else", async (t) => {
  const world = await open(t);
  const { api, client, make, run } = world;
  const router = await client("router");
  const mayList = async (type: ResourceType<KubeObject>): Promise<boolean> => {
    try {
      await router.list(type);
      return true;
    } catch (error) {
      if (isKubeError(error, "forbidden")) return false;
      throw error;
    }
  };
  assert.equal(await mayList(resources.pods), false);
  await make();
  run();
  await eventually("the router may list pods", () => mayList(resources.pods));
  for (const type of [egresses, coilResources.addressPools, coilResources.addressBlocks, resources.namespaces])
    assert.equal(await mayList(type as ResourceType<KubeObject>), true, type.kind);
  // Of EndpointSlices those that name the API servers alone.
  const servers = { namespace: "default", fieldSelector: "metadata.name=kubernetes" };
  await router.list(resources.endpointSlices, servers);
  const others = [
    resources.endpointSlices,
    resources.services,
    resources.secrets,
    resources.nodes,
    resources.deployments,
  ];
  for (const type of others) assert.equal(await mayList(type as ResourceType<KubeObject>), false, type.kind);
  await assert.rejects(router.delete(resources.pods, { namespace: "internet", name: "x" }), { code: "forbidden" });
  const { rules } = await api.get(resources.clusterRoles, { name: "coil-egress" });
  // It changes nothing anywhere.
  const verbs = new Set(rules?.flatMap((rule) => rule.verbs));
  assert.deepEqual([...verbs].sort(), ["get", "list", "watch"]);
  assert.deepEqual(rules?.flatMap((rule) => rule.resources ?? []).sort(), [
    "addressblocks",
    "addresspools",
    "egresses",
    "endpointslices",
    "namespaces",
    "pods",
  ]);
  await api.delete(egresses, NAT);
  await eventually("the right is gone", async () => !(await mayList(resources.pods)));
});

test("coil-egress-controller: without the ClusterRoleBinding, and with a pod spec that no API server takes, the log says so once and the rest is made", async (t) => {
  const { api, find, make, run } = await open(t);
  await api.delete(resources.clusterRoleBindings, { name: "coil-egress" });
  await make({
    template: { spec: { containers: [{ name: "egress" }, { name: "BAD NAME", image: "x" }] } },
  } as Partial<EgressSpec>);
  const controller = run();
  await eventually("the Service is there", async () => (await find(resources.services)) !== undefined);
  assert.equal(await find(resources.deployments), undefined);
  await until(
    "both are logged",
    () => /clusterrolebindings.*not found/.test(controller.said()) && /BAD NAME/.test(controller.said()),
    {
      seen: controller.said,
    },
  );
  await api.patch(egresses, NAT, { type: "merge", body: { spec: { template: null } } });
  await eventually("the Deployment is there", async () => (await find(resources.deployments)) !== undefined);
});

test("coil-egress-controller: a template that is none, stored without a webhook, costs its own Egress only, and is named", async (t) => {
  const { find, make, edit, run } = await open(t);
  const other = { namespace: "internet", name: "sound" };
  await make({ template: { spec: { containers: 5 } } } as unknown as Partial<EgressSpec>);
  await make({}, other);
  const controller = run();
  await eventually("the other one is there", async () => (await find(resources.deployments, other)) !== undefined);
  await until(
    "the fault is named",
    () => /nat cannot be had: spec.template.spec.containers: /.test(controller.said()),
    {
      seen: controller.said,
    },
  );
  await edit({ template: null });
  await eventually("it is there", async () => (await find(resources.deployments)) !== undefined);
});

test("coil-egress-controller: an Egress that is deleted and made anew at once has objects of its own", async (t) => {
  const { server, api, find, make, run } = await open(t);
  await make({ podDisruptionBudget: { minAvailable: 1 } });
  run();
  await eventually("all is there", async () => (await find(egresses))?.status !== undefined);
  for (let round = 0; round < 5; round += 1) {
    await api.delete(egresses, NAT);
    await make({ podDisruptionBudget: { minAvailable: 1 } });
    const { uid } = (await find(egresses))?.metadata ?? assert.fail();
    await eventually("all belongs to the new one", async () => {
      const owners = await Promise.all(
        CHILDREN.map(async (type) => (await find(type))?.metadata.ownerReferences?.[0]?.uid),
      );
      return owners.every((owner) => owner === uid);
    });
    await server.settled();
  }
});

test("coil-egress-controller: routers have the image of the controller's own pod and pull it as that, read when the API server answers; without its name the start is refused", async (t) => {
  const world = await open(t);
  const { server, api, make, runIn } = world;
  await make();
  const refused = await runIn(undefined, "--image=").ended;
  assert.equal(refused.code, 2);
  assert.match(refused.stderr, /COIL_POD_NAMESPACE is missing.*--image\n.*COIL_POD_NAME is missing/);
  await api.create(resources.pods, {
    metadata: { namespace: "kube-system", name: "own" },
    spec: {
      containers: [
        { name: "controller", image: "registry.example/own:2", imagePullPolicy: "Always" },
        { name: "other", image: "x" },
      ],
      imagePullSecrets: [{ name: "registry" }],
    },
  });
  const fault = server.faults.add({ match: { verb: "get", resource: "pods" }, action: { status: 500 } });
  const controller = runIn("own");
  await until("the failure is logged", () => /pods kube-system\/own: .*reconcile failed/.test(controller.said()), {
    seen: controller.said,
  });
  server.faults.remove(fault);
  await eventually("the router has the image", async () => (await routerOf(world))?.image === "registry.example/own:2");
  const pulled = async (): Promise<string> => {
    const deployment = await world.find(resources.deployments);
    const { imagePullSecrets = [], containers = [] } = deployment?.spec?.template.spec ?? {};
    return [containers[0]?.imagePullPolicy, ...imagePullSecrets.map(({ name }) => name)].join();
  };
  assert.equal(await pulled(), "Always,registry");
  const account = { name: "coil-egress", namespace: "internet" };
  const secretsOf = (...names: readonly string[]) =>
    ({ type: "merge", body: { imagePullSecrets: names.map((name) => ({ name })) } }) as const;
  await api.patch(resources.serviceAccounts, account, secretsOf("mine"));
  await eventually("the account's Secrets go before", async () => (await pulled()) === "Always");
  await api.patch(resources.serviceAccounts, account, secretsOf());
  await eventually("and ours are there again", async () => (await pulled()) === "Always,registry");
});
