// alone: two kubelets with their pods, and Neutron, keep the processor busy
/**
 * NICs of a VPC on a cluster of real programs: kubelets, containerd, the control plane, and a live Neutron with an agent on each node. The pod
 * network and the NICs are installed together, as Helm does it. The tests share one cluster and are in the order of its life.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { stringify } from "yaml";
import { KubeletNeutron } from "#test/kubelet-neutron";
import { CONTROL_PLANE, NODES, type NodeName } from "#test/kubelet-node";
import {
  allReady,
  importSuite,
  isReady,
  loseAndRestorePower,
  pods,
  rolledOut,
  SETTLE_MS,
  type SeenPod,
} from "#test/kubelet-pods";
import { BOX } from "#test/kubelet-runtime";
import { Kubelets, kubeletsMissing } from "#test/kubelets";
import { ISTHMUS, until } from "#test/lab";
import { skipWithoutNeutron } from "#test/live-neutron";
import { readChart, renderChart } from "../../tools/manifests/index.ts";

const root = join(import.meta.dirname, "../..");
const skip = kubeletsMissing() || skipWithoutNeutron;
const POOL = "10.100.0.0/16";
/** The address that the pod of the StatefulSet requests and keeps. */
const FIXED = "192.168.0.10";
const PORT = 8080;
/** Pods of the Deployment. */
const PODS = 4;
/** Requests of each client during anything that lasts for a short time. */
const ENOUGH = 10;
const OWNER = encodeURIComponent("compute:isthmus");

let bed: { readonly cluster: Kubelets; readonly neutron: KubeletNeutron } | undefined;
const cluster = (): Kubelets => bed?.cluster ?? assert.fail("the cluster has not started");
const neutron = (): KubeletNeutron => bed?.neutron ?? assert.fail("Neutron has not started");
const closers = new AsyncDisposableStack();

before(async () => {
  if (skip !== false) return;
  const started = closers.use(await Kubelets.start());
  await importSuite(started);
  bed = { cluster: started, neutron: closers.use(await KubeletNeutron.open(started)) };
});
after(() => closers.disposeAsync());

/** Serves its name. */
const SERVE = `trap 'exit 0' TERM
busybox hostname >/www/index.html
busybox httpd -p ${PORT} -h /www
while :; do busybox sleep 0.2; done`;
/** Writes a line for each request to the pod with the fixed address: who answered, or that nobody did. */
const CLIENT = `trap 'exit 0' TERM
while :; do
  name=$(printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | busybox timeout 3 busybox nc ${FIXED} ${PORT} | busybox tail -n 1)
  echo "\${name:-lost}"
  busybox sleep 0.2
done`;

function workload(
  kind: "Deployment" | "DaemonSet" | "StatefulSet",
  app: string,
  script: string,
  { annotations = {}, ...spec }: { readonly annotations?: object; readonly replicas?: number },
): object {
  const container = { name: app, image: BOX, command: ["/bin/busybox", "sh", "-c", script] };
  const template = {
    metadata: { labels: { app }, annotations },
    spec: { terminationGracePeriodSeconds: 5, containers: [container] },
  };
  return {
    apiVersion: "apps/v1",
    kind,
    metadata: { name: app },
    spec: { selector: { matchLabels: { app } }, template, ...spec },
  };
}

const VPC = { "isthmus.dev/vpc": "vpc-1" };
const NICS = JSON.stringify([{ name: "eth0", subnet: "subnet-1", ip: FIXED }]);
const WORKLOADS = [
  workload("StatefulSet", "fixed", SERVE, { replicas: 1, annotations: { ...VPC, "isthmus.dev/nics": NICS } }),
  workload("Deployment", "many", SERVE, { replicas: PODS, annotations: VPC }),
  workload("DaemonSet", "client", CLIENT, { annotations: VPC }),
  workload("DaemonSet", "plain", SERVE, {}),
];

const ofApp = (app: string): Promise<readonly SeenPod[]> => pods(cluster(), `--selector=app=${app}`);

interface Port {
  readonly id: string;
  readonly status: string;
  readonly device_id: string;
  readonly "binding:host_id": string;
  readonly fixed_ips: readonly { readonly ip_address: string }[];
}

/** The ports that nic-controller has made, as Neutron has them. */
async function ports(): Promise<readonly Port[]> {
  return (await neutron().api.list(`ports?device_owner=${OWNER}`)) as unknown as readonly Port[];
}

/** Each pod of the VPC has one port, which is active, with its address and on its node; there is no other port. */
async function portsAreExact(): Promise<void> {
  let seen = "";
  const look = async (): Promise<boolean> => {
    const wanted = [...(await ofApp("fixed")), ...(await ofApp("many")), ...(await ofApp("client"))].map(
      ({ spec, status }) => `${status.podIP} on ${spec.nodeName}, ACTIVE`,
    );
    const there = (await ports()).map(
      (port) => `${port.fixed_ips[0]?.ip_address} on ${port["binding:host_id"]}, ${port.status}`,
    );
    seen = `ports ${there.join("; ")}\nwanted ${wanted.join("; ")}`;
    return JSON.stringify(there.toSorted()) === JSON.stringify(wanted.toSorted());
  };
  await until("ports and pods agree", look, { deadlineMs: SETTLE_MS, everyMs: 1000, seen: () => seen });
}

/** Returns the lines that each client has printed since it had printed `before` lines. */
async function said(before: ReadonlyMap<string, number> = new Map()): Promise<ReadonlyMap<string, readonly string[]>> {
  const lines = new Map<string, readonly string[]>();
  for (const { metadata } of await ofApp("client")) {
    const { code, stdout } = await cluster().tryKubectl("logs", metadata.name);
    const all = code === 0 && stdout !== "" ? stdout.trimEnd().split("\n") : [];
    lines.set(metadata.name, all.slice(before.get(metadata.name) ?? 0));
  }
  return lines;
}

const lengths = (lines: ReadonlyMap<string, readonly string[]>): ReadonlyMap<string, number> =>
  new Map([...lines].map(([name, some]) => [name, some.length]));

/** Resolves when the next requests of the clients on all nodes are answered by the pod with the fixed address. */
async function reaches(): Promise<void> {
  let seen = "";
  const look = async (): Promise<boolean> => {
    const before = lengths(await said());
    await new Promise((resolve) => setTimeout(resolve, 2000));
    const lines = await said(before);
    seen = JSON.stringify([...lines]);
    return lines.size === NODES.length && [...lines.values()].every((one) => one.length > 1 && !one.includes("lost"));
  };
  await until("the clients reach the fixed address", look, {
    deadlineMs: SETTLE_MS,
    everyMs: 500,
    seen: () => `${seen}\n${NODES.map((name) => cluster().node(name).said()).join("\n")}`,
  });
}

/** No request of the clients is lost while something is done, nor a few later ones. */
async function losesNothing(work: () => Promise<unknown>): Promise<void> {
  const before = lengths(await said());
  await work();
  const hasMore = async (): Promise<boolean> =>
    [...(await said(before)).values()].every(({ length }) => length > ENOUGH);
  await until("each client has asked again", hasMore, { deadlineMs: SETTLE_MS, everyMs: 1000 });
  const lost = [...(await said(before)).values()].flat().filter((line) => line === "lost");
  assert.deepEqual(lost, []);
}

async function theFixed(): Promise<SeenPod> {
  return (await ofApp("fixed"))[0] ?? assert.fail("no pod of the StatefulSet");
}

/** Resolves when the StatefulSet has another pod than `before`, which is ready and has the fixed address. */
async function isAnew({ metadata }: SeenPod): Promise<SeenPod> {
  let pod: SeenPod | undefined;
  const look = async (): Promise<boolean> => {
    [pod] = await ofApp("fixed");
    return pod !== undefined && pod.metadata.uid !== metadata.uid && isReady(pod);
  };
  await until("another pod of the StatefulSet is ready", look, {
    deadlineMs: SETTLE_MS,
    everyMs: 500,
    seen: () => JSON.stringify(pod?.status),
  });
  assert.equal(pod?.status.podIP, FIXED);
  return pod;
}

test("kubelet: pods of a VPC on both nodes have ports' addresses and reach each other, beside pods of the pod network", {
  skip,
}, async () => {
  const { projectId: projectID } = await neutron().api.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"]);
  const values = {
    apiServer: { host: CONTROL_PLANE },
    pods: { enabled: true },
    router: { enabled: true },
    nics: { enabled: true, clusterId: "kubelets", credentials: neutron().credentials },
  };
  const chart = readChart(join(root, "deploy/chart"));
  for (const file of globSync(join(root, "deploy/crds/*.yaml"))) await cluster().apply(readFileSync(file, "utf8"));
  await cluster().apply([...renderChart(chart, values).values()].filter((text) => text.trim() !== "").join("---\n"));
  for (const one of ["coild", "coil-router", "nic-agent"]) await rolledOut(cluster(), `daemonset/${one}`);
  for (const one of ["coil-ipam-controller", "nic-controller"]) await rolledOut(cluster(), `deployment/${one}`);
  const spec = { blockSizeBits: 5, subnets: [{ ipv4: POOL }] };
  const pool = { apiVersion: "coil.cybozu.com/v2", kind: "AddressPool", metadata: { name: "default" }, spec };
  const policy = { apiVersion: "isthmus.dev/v1alpha1", kind: "NicPolicy", metadata: { name: "default" } };
  await cluster().apply(
    stringify({ ...policy, spec: { vpcBindings: [{ vpc: "vpc-1", projectID, namespaces: ["default"] }] } }),
  );
  await cluster().apply(stringify(pool));
  await cluster().apply(WORKLOADS.map((one) => stringify(one)).join("---\n"));
  for (const one of ["daemonset/client", "daemonset/plain", "statefulset/fixed", "deployment/many"])
    await rolledOut(cluster(), one, "default");
  await allReady(cluster());
  for (const { status } of await ofApp("plain")) assert.match(String(status.podIP), /^10\.100\./);
  assert.equal((await theFixed()).status.podIP, FIXED);
  assert.deepEqual(new Set((await ofApp("many")).map(({ spec }) => spec.nodeName)), new Set(NODES));
  await portsAreExact();
  await reaches();
});

test("kubelet: nic-agent and nic-controller are replaced without a lost request", { skip }, async () => {
  await losesNothing(async () => {
    for (const one of ["daemonset/nic-agent", "deployment/nic-controller"]) {
      await cluster().kubectl("-n", "kube-system", "rollout", "restart", one);
      await rolledOut(cluster(), one);
    }
  });
  await portsAreExact();
});

test("kubelet: a rollout of pods of a VPC leaves a port for each pod, and no other", { skip }, async () => {
  await cluster().kubectl("rollout", "restart", "deployment/many");
  await rolledOut(cluster(), "deployment/many", "default");
  await portsAreExact();
});

test("kubelet: a pod with a fixed address that is deleted, also by force, has it again in its next life", {
  skip,
}, async () => {
  for (const flags of [[], ["--force", "--grace-period=0"]]) {
    const before = await theFixed();
    await cluster().kubectl("delete", "pod", before.metadata.name, "--wait=false", ...flags);
    await isAnew(before);
    await reaches();
  }
  await portsAreExact();
});

test("kubelet: killed with containerd and started again, it finds the pods of a VPC unchanged", { skip }, async () => {
  const facts = async (): Promise<unknown> =>
    (await pods(cluster())).map(({ metadata, spec, status }) => [
      metadata.uid,
      spec.nodeName,
      status.podIP,
      status.containerStatuses?.map(({ containerID, restartCount }) => [containerID, restartCount]),
    ]);
  const known = await facts();
  await losesNothing(async () => {
    for (const name of NODES) await cluster().node(name).restartPrograms();
    await allReady(cluster());
  });
  assert.deepEqual(await facts(), known);
  await portsAreExact();
});

test("kubelet: a sandbox that dies is made anew with the same port and address", { skip }, async () => {
  for (const name of NODES) {
    const [pod] = (await ofApp("many")).filter(({ spec }) => spec.nodeName === name);
    assert.ok(pod !== undefined);
    const before = (await ports()).find(({ device_id }) => device_id === pod.metadata.uid);
    const node = cluster().node(name);
    const sandboxes = await node.run("ctr", "--namespace=k8s.io", "containers", "list", "-q", SANDBOX_OF(pod));
    await node.run("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", sandboxes.trim());
    const look = async (): Promise<boolean> =>
      (await ofApp("many")).some(
        (one) =>
          one.metadata.uid === pod.metadata.uid &&
          isReady(one) &&
          one.status.containerStatuses?.every(({ restartCount }) => restartCount > 0) === true,
      );
    await until("its container has started again", look, { deadlineMs: SETTLE_MS, everyMs: 500 });
    const now = (await ports()).find(({ device_id }) => device_id === pod.metadata.uid);
    assert.deepEqual([now?.id, now?.fixed_ips], [before?.id, before?.fixed_ips]);
  }
  await portsAreExact();
});

/** A filter of ctr for the sandbox of a pod. */
const SANDBOX_OF = ({ metadata }: SeenPod): string =>
  `labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.uid"==${metadata.uid}`;

test("kubelet: after a loss of power each pod of a VPC has its port and address again", { skip }, async () => {
  for (const name of NODES) {
    const known = (await ports()).map(({ id, fixed_ips }) => [id, fixed_ips[0]?.ip_address]).toSorted();
    await loseAndRestorePower(cluster(), name, () => neutron().reboot(name));
    await portsAreExact();
    assert.deepEqual((await ports()).map(({ id, fixed_ips }) => [id, fixed_ips[0]?.ip_address]).toSorted(), known);
    await reaches();
  }
});

test("kubelet: a drained node's pods of a VPC run on the other one, with a fixed address too", { skip }, async () => {
  const before = await theFixed();
  const from = before.spec.nodeName;
  await cluster().kubectl("drain", from, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s");
  const now = await isAnew(before);
  assert.notEqual(now.spec.nodeName, from);
  await cluster().kubectl("uncordon", from);
  await portsAreExact();
  await reaches();
});

test("kubelet: a node that an operator has marked as out of service gives its pods' ports to their next lives at once", {
  skip,
}, async () => {
  const before = await theFixed();
  const name = NODES.find((one): one is NodeName => one === before.spec.nodeName) ?? assert.fail();
  await neutron().lose(name);
  await cluster().kubectl("wait", "--for=condition=Ready=Unknown", `node/${name}`, "--timeout=150s");
  const began = performance.now();
  await cluster().kubectl("taint", "node", name, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute");
  const now = await isAnew(before);
  assert.notEqual(now.spec.nodeName, name);
  // The garbage collector of pods looks each 20 s.
  assert.ok(performance.now() - began < 120_000, "long before the five minutes of a node that is only silent");
  await neutron().restore(name);
  await cluster().kubectl("taint", "node", name, "node.kubernetes.io/out-of-service-");
  await allReady(cluster());
  await portsAreExact();
  await reaches();
});

test("audit and doctor: in pods of coild and nic-agent they find nothing wrong", { skip }, async () => {
  const checks = { "app.kubernetes.io/component=coild": "audit", "app.kubernetes.io/name=nic-agent": "doctor" };
  for (const [selector, command] of Object.entries(checks))
    for (const { metadata } of await pods(cluster(), "--namespace=kube-system", `--selector=${selector}`))
      await cluster().kubectl("exec", "--namespace=kube-system", metadata.name, "--", "isthmus", command);
});

test("uninstall: no port is left at Neutron, and nothing of NICs on the nodes", { skip }, async () => {
  await cluster().kubectl("delete", "deployment,daemonset,statefulset", "--all", "--wait");
  await until("the pods have ended", async () => (await pods(cluster())).length === 0, {
    deadlineMs: SETTLE_MS,
    everyMs: 500,
  });
  await until("no port is left", async () => (await ports()).length === 0, { deadlineMs: SETTLE_MS, everyMs: 500 });
  await cluster().run([ISTHMUS, "uninstall", "--cluster"]);
  for (const name of NODES) {
    const node = cluster().node(name);
    await node.run(ISTHMUS, "uninstall");
    assert.equal(await node.run("ls", "/etc/cni/net.d"), "");
    assert.doesNotMatch(await node.run("ip", "-o", "link"), / (veth|qvb|qvo|qbr|tap)/);
    assert.deepEqual(
      neutron()
        .plugged(name)
        .filter((port) => /^(qvo|tap)/.test(port)),
      [],
    );
  }
  assert.equal(await cluster().kubectl("get", "crd", "-o", "name"), "");
});
