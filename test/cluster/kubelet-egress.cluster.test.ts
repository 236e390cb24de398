// alone: it counts requests that fail, and two kubelets with their pods keep the processor busy
/**
 * Egresses on a cluster of real programs: kubelets, containerd, the control plane. An operator follows the guide; clients on both nodes ask a
 * server outside, which tells the source address that it sees. The tests share one cluster and are in the order of its life.
 */
import assert from "node:assert/strict";
import { openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { stringify } from "yaml";
import { BOX, CONTROL_PLANE, kill, NODES, spawnLogged } from "#test/kubelet-node";
import {
  allReady,
  importSuite,
  loseAndRestorePower,
  pods,
  rolledOut,
  SETTLE_MS,
  type SeenPod,
  TIMEOUT,
} from "#test/kubelet-pods";
import { Kubelets, kubeletsMissing } from "#test/kubelets";
import { ISTHMUS, until } from "#test/lab";

const root = join(import.meta.dirname, "../..");
const skip = kubeletsMissing();
const POOL = "10.100.0.0/16";
/** The addresses of the routers, a block each. */
const SOURCES = ["203.0.113.8", "203.0.113.9", "203.0.113.10", "203.0.113.11"] as const;
const ROUTERS = 2;
const OUTSIDE = "198.51.100.7";
const CLIENTS = 4;
/** Requests of each client during anything that lasts for a short time. */
const ENOUGH = 10;

let bed: Kubelets | undefined;
const cluster = (): Kubelets => {
  assert.ok(bed !== undefined, "the cluster has started");
  return bed;
};
const closers = new AsyncDisposableStack();

before(async () => {
  if (skip !== false) return;
  bed = closers.use(await Kubelets.start());
  await importSuite(bed);
  await bed.run(["ip", "address", "add", `${OUTSIDE}/32`, "dev", "lo"]);
  const log = openSync(join(bed.folder, "outside.log"), "a");
  const server = spawnLogged([...bed.outside, process.execPath, "--eval", SERVER], log);
  closers.defer(() => kill(server));
});
after(() => closers.disposeAsync());

/** Tells each client its address, then ends the connection. */
const SERVER = `require("node:net").createServer((socket) => {
  socket.on("error", () => undefined);
  socket.once("data", () => socket.end(socket.remoteAddress + "\\n"));
}).listen(80, "${OUTSIDE}")`;

/** Writes a line for each request: the source address that the server has seen, or that there was no answer. */
const CLIENT = `trap 'exit 0' TERM
while :; do
  source=$(echo | busybox timeout 3 busybox nc ${OUTSIDE} 80)
  echo "\${source:-lost}"
  busybox sleep 0.2
done`;

const EGRESS = {
  apiVersion: "coil.cybozu.com/v2",
  kind: "Egress",
  metadata: { name: "nat", namespace: "internet" },
  spec: {
    destinations: [`${OUTSIDE}/32`],
    replicas: ROUTERS,
    strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } },
    podDisruptionBudget: { maxUnavailable: 1 },
  },
};

const NETWORK = [
  {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: "internet", annotations: { "coil.cybozu.com/pool": "internet" } },
  },
  {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressPool",
    metadata: { name: "default" },
    spec: { blockSizeBits: 5, subnets: [{ ipv4: POOL }] },
  },
  {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressPool",
    metadata: { name: "internet" },
    spec: { blockSizeBits: 0, subnets: [{ ipv4: `${SOURCES[0]}/30` }] },
  },
  EGRESS,
];

/** Serves its name. */
const SERVE = `trap 'exit 0' TERM
busybox hostname >/www/index.html
busybox httpd -p 8080 -h /www
while :; do busybox sleep 0.2; done`;

const deployment = (app: string, replicas: number, egress: string, script: string) => ({
  apiVersion: "apps/v1",
  kind: "Deployment",
  metadata: { name: app },
  spec: {
    replicas,
    selector: { matchLabels: { app } },
    template: {
      metadata: { labels: { app }, annotations: { "egress.coil.cybozu.com/internet": egress } },
      spec: {
        terminationGracePeriodSeconds: 5,
        containers: [{ name: app, image: BOX, command: ["/bin/busybox", "sh", "-c", script] }],
      },
    },
  },
});

const isSource = (line: string): boolean => SOURCES.some((source) => source === line);
const routers = (): Promise<readonly SeenPod[]> =>
  pods(cluster(), "--namespace=internet", "--selector=app.kubernetes.io/component=egress");
const clients = (): Promise<readonly SeenPod[]> => pods(cluster(), "--selector=app=client");

/** Does what a network of routers does: leads the routers' addresses to their nodes. */
async function lead(): Promise<void> {
  for (const { spec, status } of await routers()) {
    const node = NODES.find((name) => name === spec.nodeName);
    if (status.podIP !== undefined && node !== undefined)
      await cluster().run(["ip", "route", "replace", status.podIP, "via", cluster().node(node).address]);
  }
}

/** The lines that each client has written since it had written `before`. */
async function said(before: ReadonlyMap<string, number> = new Map()): Promise<ReadonlyMap<string, readonly string[]>> {
  const lines = new Map<string, readonly string[]>();
  for (const { metadata } of await clients()) {
    let text = "";
    let refusal = "";
    // A kubelet that has just started does not know its pods yet.
    const read = async (): Promise<boolean> => {
      const { code, stdout, stderr } = await cluster().tryKubectl("logs", metadata.name);
      [text, refusal] = [stdout, stderr];
      return code === 0;
    };
    await until(`${metadata.name} has logs`, read, { everyMs: 500, seen: () => refusal });
    const all = text === "" ? [] : text.trimEnd().split("\n");
    lines.set(metadata.name, all.slice(before.get(metadata.name) ?? 0));
  }
  return lines;
}

/** No request of any client is lost while something is done, nor a few later ones, and each is answered to an address of the routers. */
async function losesNothing(work: () => Promise<unknown>): Promise<void> {
  const before = new Map([...(await said())].map(([name, lines]) => [name, lines.length]));
  let isDone = false;
  const network = (async () => {
    while (!isDone) await lead();
  })();
  try {
    await work();
    const hasMore = async (): Promise<boolean> =>
      [...(await said(before)).values()].every(({ length }) => length > ENOUGH);
    await until("each client has asked again", hasMore, { deadlineMs: SETTLE_MS, everyMs: 1000 });
  } finally {
    isDone = true;
    await network;
  }
  const others = [...(await said(before)).values()].flat().filter((line) => !isSource(line));
  assert.deepEqual(others, []);
}

/** Resolves when the next requests of each client are answered, all with an address of the routers. */
async function natWorks(): Promise<void> {
  let seen = "";
  const look = async (): Promise<boolean> => {
    await lead();
    const before = new Map([...(await said())].map(([name, lines]) => [name, lines.length]));
    await new Promise((resolve) => setTimeout(resolve, 2000));
    const lines = await said(before);
    seen = JSON.stringify([...lines]);
    return lines.size === CLIENTS && [...lines.values()].every((some) => some.length > 0 && some.every(isSource));
  };
  await until("the clients' requests have the routers' addresses", look, {
    deadlineMs: SETTLE_MS,
    everyMs: 500,
    seen: () => seen,
  });
}

test("kubelet: an Egress of the guide gives clients on both nodes the routers' addresses", { skip }, async () => {
  const proxy = readFileSync(join(root, "deploy/service-proxy.yaml"), "utf8");
  await cluster().apply(proxy.replaceAll("control-plane.example", CONTROL_PLANE).replaceAll("10.244.0.0/16", POOL));
  const suite = readFileSync(join(root, "deploy/pods-egress.yaml"), "utf8");
  await cluster().apply(suite.replaceAll("--tunnel-driver=fou", "--tunnel-driver=vxlan"));
  for (const one of ["service-proxy", "coild", "coil-router"]) await rolledOut(cluster(), `daemonset/${one}`);
  for (const one of ["coil-ipam-controller", "coil-egress-controller"]) await rolledOut(cluster(), `deployment/${one}`);
  await cluster().apply(NETWORK.map((one) => stringify(one)).join("---\n"));
  await until("the Egress has made its Deployment", async () => (await routers()).length === ROUTERS, {
    deadlineMs: SETTLE_MS,
    everyMs: 500,
  });
  await rolledOut(cluster(), "deployment/nat", "internet");
  await cluster().apply(stringify(deployment("client", CLIENTS, "nat", CLIENT)));
  await rolledOut(cluster(), "deployment/client", "default");
  await natWorks();
  assert.deepEqual(new Set((await clients()).map(({ spec }) => spec.nodeName)), new Set(NODES));
});

test("kubelet: a rollout of the routers, one at a time", { skip }, async () => {
  await losesNothing(async () => {
    await cluster().kubectl("--namespace=internet", "rollout", "restart", "deployment", "nat");
    await rolledOut(cluster(), "deployment/nat", "internet");
  });
  await natWorks();
});

test("kubelet: killed with containerd and started again, routers and clients go on", { skip }, async () => {
  await losesNothing(async () => {
    for (const name of NODES) await cluster().node(name).restartPrograms();
    await allReady(cluster());
  });
});

test("kubelet: a router's program that ends is started again in its sandbox, and goes on", { skip }, async () => {
  const [router] = await routers();
  assert.ok(router !== undefined);
  await losesNothing(async () => {
    const [container] = router.status.containerStatuses ?? [];
    const id = container?.containerID?.replace("containerd://", "") ?? "";
    const node = NODES.find((name) => name === router.spec.nodeName) ?? "n1";
    await cluster().node(node).run("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", id);
    await until(
      "it has restarted",
      async () =>
        (await routers()).some(({ status }) => status.containerStatuses?.some(({ restartCount }) => restartCount > 0)),
      { deadlineMs: SETTLE_MS, everyMs: 500 },
    );
    await allReady(cluster());
  });
  await natWorks();
});

test("kubelet: the Egress is scaled down and up as its scale says", { skip }, async () => {
  for (const replicas of [1, 2]) {
    await losesNothing(async () => {
      await cluster().kubectl("--namespace=internet", "scale", "egress", "nat", `--replicas=${replicas}`);
      await until("so many routers", async () => (await routers()).length === replicas, {
        deadlineMs: SETTLE_MS,
        everyMs: 500,
      });
      await allReady(cluster());
    });
  }
});

test("kubelet: a running pod stops and starts to be a client when its annotation goes and comes", {
  skip,
}, async () => {
  const [client] = await clients();
  assert.ok(client !== undefined);
  const name = client.metadata.name;
  const last = async (): Promise<string> => (await cluster().kubectl("logs", "--tail=1", name)).trim();
  await cluster().kubectl("annotate", "pod", name, "egress.coil.cybozu.com/internet-");
  await until(
    "its packets have its own address, to which the network outside has no way",
    async () => (await last()) === "lost",
    { deadlineMs: SETTLE_MS, everyMs: 500 },
  );
  await cluster().kubectl("annotate", "pod", name, "egress.coil.cybozu.com/internet=nat");
  await natWorks();
});

test("kubelet: a client of an Egress with originatingOnly is reached from outside, and asks as a router", {
  skip,
}, async () => {
  const only = {
    ...EGRESS,
    metadata: { name: "only", namespace: "internet" },
    spec: { ...EGRESS.spec, destinations: ["0.0.0.0/0"], originatingOnly: true, replicas: 1 },
  };
  await cluster().apply(stringify(only));
  await until(
    "the Egress has made its Deployment",
    async () => (await cluster().tryKubectl("--namespace=internet", "get", "deployment", "only")).code === 0,
    { everyMs: 500 },
  );
  await rolledOut(cluster(), "deployment/only", "internet");
  await cluster().apply(stringify(deployment("only", 2, "only", SERVE)));
  await rolledOut(cluster(), "deployment/only", "default");
  await lead();
  for (const { metadata, spec, status } of await pods(cluster(), "--selector=app=only")) {
    const node = NODES.find((name) => name === spec.nodeName) ?? "n1";
    await cluster().run(["ip", "route", "replace", String(status.podIP), "via", cluster().node(node).address]);
    assert.equal(
      (await cluster().run(["curl", "-sS", "--max-time", "10", `http://${status.podIP}:8080/`])).trim(),
      metadata.name,
    );
    const source = await cluster().kubectl(
      "exec",
      metadata.name,
      "--",
      "/bin/busybox",
      "sh",
      "-c",
      `echo | busybox timeout 5 busybox nc ${OUTSIDE} 80`,
    );
    assert.ok(isSource(source.trim()), source);
  }
  await cluster().kubectl("delete", "deployment", "only", "--wait");
  await cluster().kubectl("--namespace=internet", "delete", "egress", "only", "--wait");
});

test("kubelet: a drained node's router moves within the budget, and no request is lost", { skip }, async () => {
  await losesNothing(async () => {
    await cluster().kubectl(
      "drain",
      "n1",
      "--ignore-daemonsets",
      "--delete-emptydir-data",
      "--pod-selector=app.kubernetes.io/component=egress",
      "--timeout=120s",
    );
    await cluster().kubectl("uncordon", "n1");
    await until("two routers again", async () => (await routers()).length === 2, {
      deadlineMs: SETTLE_MS,
      everyMs: 500,
    });
    await allReady(cluster());
  });
});

test("kubelet: after a loss of power of a node all clients have the routers' addresses again", { skip }, async () => {
  await loseAndRestorePower(cluster(), "n1");
  await natWorks();
});

test("audit: in coild's pods it has no findings of clients and routers", { skip }, async () => {
  for (const { metadata } of await pods(
    cluster(),
    "--namespace=kube-system",
    "--selector=app.kubernetes.io/component=coild",
  ))
    await cluster().kubectl("exec", "--namespace=kube-system", metadata.name, "--", "isthmus", "audit");
});

test("uninstall: nothing of Egresses is left in the cluster and on the nodes", { skip }, async () => {
  await cluster().kubectl("delete", "deployment", "client", "--wait", TIMEOUT);
  await until("the clients have ended", async () => (await clients()).length === 0, {
    deadlineMs: SETTLE_MS,
    everyMs: 500,
  });
  await cluster().run([ISTHMUS, "uninstall", "--cluster"]);
  for (const name of NODES) {
    const node = cluster().node(name);
    await node.run(ISTHMUS, "uninstall");
    assert.equal(await node.run("ls", "/etc/cni/net.d"), "");
    assert.doesNotMatch(await node.run("ip", "-o", "link"), /veth/);
  }
  assert.equal(await cluster().kubectl("get", "crd", "-o", "name"), "");
});
