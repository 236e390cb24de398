/** The shipped controller of Egresses on Kubernetes' own API server: its rules of server-side apply, of fields that exclude each other, of granting. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import { type Draft, findObject, isKubeError, type KubeObject, type ResourceType, resources } from "#kube/client";
import { coilCrds, coilResources, type Egress, egressSelector } from "#kube/coil";
import { ISTHMUS, start, until } from "#test/lab";
import { peersMissing, RealApiServer } from "#test/real-api-server";

const { egresses } = coilResources;
const execute = promisify(execFile);
const NAT = { name: "nat", namespace: "internet" };

/** The CRDs, the rights of deploy/pods with the user `guest` for the controller's account, a namespace, and a function that starts the controller. */
async function open(t: TestContext, server: RealApiServer) {
  const api = server.client;
  /** As `kubectl create -f`; the server gets to know a new kind after a while. */
  const create = async (object: KubeObject): Promise<void> => {
    const { apiVersion = "", kind = "", metadata } = object;
    const group = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const namespace = metadata.namespace === undefined ? "" : `/namespaces/${metadata.namespace}`;
    const path = `${group}${namespace}/${kind.toLowerCase()}${kind.endsWith("s") ? "es" : "s"}`;
    await until(`${kind} ${metadata.name} is made`, async () => {
      try {
        await api.request({ method: "POST", path, body: object });
        return true;
      } catch (error) {
        if (isKubeError(error, "not-found")) return false;
        if (isKubeError(error, "already-exists")) return true;
        throw error;
      }
    });
  };
  for (const crd of coilCrds) await create(crd as unknown as KubeObject);
  for (const file of ["rbac.yaml", "egress.yaml"]) {
    const text = readFileSync(join(import.meta.dirname, "../../deploy/pods", file), "utf8");
    // The server knows this user by a token; it stands for the controller's account.
    const guest = (one: object): object =>
      JSON.parse(
        JSON.stringify(one).replaceAll(
          '{"kind":"ServiceAccount","name":"coil-egress-controller","namespace":"kube-system"}',
          '{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"guest"}',
        ),
      );
    for (const one of parseAllDocuments(text)) await create(guest(one.toJS()) as KubeObject);
  }
  await api.create(resources.namespaces, { metadata: { name: "internet" } });
  const run = () => {
    const flags = [
      "--webhook-addr=none",
      "--metrics-addr=127.0.0.1:0",
      "--health-addr=127.0.0.1:0",
      "--image=example/coil:1",
    ];
    const argv = [ISTHMUS, "coil-egress-controller", `--kubeconfig=${server.kubeconfigOf("guest")}`, ...flags];
    const one = start(argv, { timeoutMs: 180_000 });
    t.after(() => one.child.kill("SIGKILL"));
    return one;
  };
  const make = (spec: object): Promise<void> =>
    until("Egresses are served", async () => {
      try {
        await api.create(egresses, {
          metadata: NAT,
          spec: { destinations: ["0.0.0.0/0"], ...spec },
        } as unknown as Draft<Egress>);
        return true;
      } catch (error) {
        if (isKubeError(error, "not-found")) return false;
        throw error;
      }
    });
  const find = <T extends KubeObject>(type: ResourceType<T>): Promise<T | undefined> => findObject(api, type, NAT);
  return { api, run, make, find };
}

test("coil-egress-controller on Kubernetes' own API server, with the rights of deploy/pods: edits, repairs, scale, rights, and no write without a difference", {
  skip: peersMissing("etcd", "kube-apiserver"),
}, async (t) => {
  await using server = await RealApiServer.start();
  const { api, run, make, find } = await open(t, server);
  await make({
    podDisruptionBudget: { maxUnavailable: 1 },
    template: { spec: { containers: [{ name: "egress", resources: { limits: { cpu: 0.5 } }, env: [] }] } },
  });
  const edit = (spec: object) => api.patch(egresses, NAT, { type: "merge", body: { spec } });
  const first = run();
  const eventually = (what: string, check: () => Promise<boolean>) => until(what, check, { seen: first.said });
  await eventually("the status has the selector", async () => (await find(egresses))?.status?.selector !== undefined);
  await eventually("the router may read pods", async () => {
    const { subjects } = await api.get(resources.clusterRoleBindings, { name: "coil-egress" });
    return subjects?.map(({ namespace }) => namespace).join() === "internet";
  });
  /** The JSON of an object's spec; empty if it does not exist. */
  const specOf = async (type: ResourceType<KubeObject>): Promise<string> =>
    JSON.stringify(((await find(type)) as { readonly spec?: object } | undefined)?.spec ?? "");
  const halves = /^(?!.*maxUnavailable).*"minAvailable":"50%"/;
  const recreate = /^(?!.*rollingUpdate).*"type":"Recreate"/;
  const edits: readonly (readonly [object, ResourceType<KubeObject>, RegExp])[] = [
    // The server has given the Deployment a rollingUpdate, which nobody owns and Recreate excludes.
    [{ strategy: { type: "Recreate" } }, resources.deployments, recreate],
    [{ sessionAffinity: "None" }, resources.services, /^(?!.*sessionAffinityConfig).*"sessionAffinity":"None"/],
    [{ podDisruptionBudget: { maxUnavailable: null, minAvailable: "50%" } }, resources.podDisruptionBudgets, halves],
  ];
  for (const [spec, type, wanted] of edits) {
    await edit(spec);
    await eventually(`${JSON.stringify(spec)} has arrived`, async () => wanted.test(await specOf(type)));
  }
  const volumes = [
    { name: "run", hostPath: { path: "/run" } },
    { name: "modules", hostPath: { path: "/lib/modules" } },
  ];
  const repairs: readonly (readonly [ResourceType<KubeObject>, object, RegExp])[] = [
    [resources.podDisruptionBudgets, { minAvailable: null, maxUnavailable: 3 }, halves],
    [resources.services, { type: "NodePort" }, /^(?!.*nodePort).*"type":"ClusterIP"/],
    [resources.deployments, { strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 2 } } }, recreate],
    [resources.deployments, { template: { spec: { volumes } } }, /^(?!.*"path":"\/run").*"emptyDir".*"\/lib\/modules"/],
  ];
  for (const [type, spec, wanted] of repairs) {
    await api.patch(type, NAT, { type: "merge", body: { spec } });
    await eventually(`${JSON.stringify(spec)} is undone`, async () => wanted.test(await specOf(type)));
  }
  await api.request({
    method: "PATCH",
    path: "/apis/coil.cybozu.com/v2/namespaces/internet/egresses/nat/scale",
    body: { spec: { replicas: 4 } },
    contentType: "application/merge-patch+json",
  });
  await eventually("the Deployment is scaled", async () => (await find(resources.deployments))?.spec?.replicas === 4);
  await sleep(1000);
  const versions = async () => {
    const all = [
      resources.deployments,
      resources.services,
      resources.podDisruptionBudgets,
      egresses,
    ] as ResourceType<KubeObject>[];
    return Promise.all(all.map(async (type) => (await find(type))?.metadata.resourceVersion));
  };
  const before = await versions();
  first.child.kill("SIGTERM");
  assert.equal((await first.ended).code, 0);
  const second = run();
  await until("it leads and has had time", () => second.said().includes("leader seen"), { seen: second.said });
  await sleep(2000);
  assert.deepEqual(await versions(), before);
  await edit({ podDisruptionBudget: null });
  await until("the budget is gone", async () => (await find(resources.podDisruptionBudgets)) === undefined);
  assert.doesNotMatch(first.said() + second.said(), /forbidden|because of a bug/);
});

test("coil-egress-controller with Kubernetes' own controllers: kubectl scale, autoscale and rollout restart, and the end of an Egress", {
  skip: peersMissing("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
}, async (t) => {
  await using server = await RealApiServer.start({ controllers: true });
  const { api, run, make, find } = await open(t, server);
  const kubectl = async (...args: readonly string[]): Promise<void> => {
    await execute("kubectl", [`--kubeconfig=${server.kubeconfigOf("admin")}`, "--namespace=internet", ...args]);
  };
  await make({ podDisruptionBudget: { maxUnavailable: 1 } });
  const controller = run();
  const eventually = (what: string, check: () => Promise<boolean>) =>
    until(what, check, { seen: controller.said, deadlineMs: 60_000 });
  const replicas = async () => (await find(resources.deployments))?.spec?.replicas;
  const routers = async () =>
    (await api.listAll(resources.pods, { namespace: "internet", labelSelector: egressSelector("nat") })).items;
  await eventually("a router is made", async () => (await routers()).length === 1);
  await kubectl("scale", "egress/nat", "--replicas=2");
  await eventually("there are two", async () => (await routers()).length === 2);
  // An autoscaler brings a target up to its minimum without a metric.
  await kubectl("autoscale", "egress/nat", "--min=4", "--max=5");
  await eventually("there are four", async () => (await replicas()) === 4 && (await routers()).length >= 4);
  await kubectl("rollout", "restart", "deployment/nat");
  const restarted = "kubectl.kubernetes.io/restartedAt";
  const isNew = (pod: KubeObject): boolean => pod.metadata.annotations?.[restarted] !== undefined;
  await eventually("new routers come", async () => (await routers()).some(isNew));
  await api.patch(egresses, NAT, { type: "merge", body: { spec: { fouSourcePortAuto: true } } });
  await eventually("the edit has arrived", async () => {
    const pod = (await find(resources.deployments))?.spec?.template;
    return (
      pod?.spec?.containers[0]?.args?.includes("--enable-sport-auto=true") === true &&
      pod.metadata?.annotations?.[restarted] !== undefined
    );
  });
  await api.delete(egresses, NAT);
  await eventually("its objects are gone", async () => {
    const left = [
      resources.deployments,
      resources.services,
      resources.podDisruptionBudgets,
    ] as readonly ResourceType<KubeObject>[];
    return (await Promise.all(left.map((type) => find(type)))).every((one) => one === undefined);
  });
  const { subjects = [] } = await api.get(resources.clusterRoleBindings, { name: "coil-egress" });
  assert.deepEqual(subjects, []);
  assert.doesNotMatch(controller.said(), /forbidden|because of a bug/);
});
