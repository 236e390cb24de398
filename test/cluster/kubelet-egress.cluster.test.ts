// alone: it counts requests that fail, and two kubelets with their pods keep the processor busy
/**
 * Egresses on a cluster of real programs: kubelets, containerd, the control plane. An operator follows the guide; clients on both nodes ask a
 * server outside, which tells the source address that it sees. The tests share one cluster and are in the order of its life.
 */
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { ADDRESSES, kill, NODES, spawnLogged, urlHost } from "#test/kubelet-node";
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
import { BOX } from "#test/kubelet-runtime";
import { Kubelets, kubeletsMissing } from "#test/kubelets";
import { ISTHMUS, until } from "#test/lab";

const root = join(import.meta.dirname, "../..");
const skip = kubeletsMissing();
const POOLS = { 4: "10.100.0.0/16", 6: "fd00:100::/112" } as const;
/** The addresses of the routers, a block of one for each. */
const SOURCES = { 4: "203.0.113.8/30", 6: "2001:db8:203::8/126" } as const;
const ROUTERS = 2;
const OUTSIDE = { 4: "198.51.100.7", 6: "2001:db8:51::7" } as const;
/** The families of a cluster. In one of IPv6 alone the machines have no other addresses. */
const CLUSTERS = { IPv4: [4], "IPv4 and IPv6": [4, 6], IPv6: [6] } as const;
const CLIENTS = 4;
/** Requests of each client during anything that lasts for a short time. */
const ENOUGH = 10;

let bed: Kubelets | undefined;
const cluster = (): Kubelets => {
  assert.ok(bed !== undefined, "the cluster has started");
  return bed;
};
async function startOutside(on: Kubelets, families: readonly IpFamily[]): Promise<ChildProcess> {
  for (const family of families)
    await on.run(["ip", `-${family}`, "address", "add", OUTSIDE[family], "dev", "lo", "nodad"]);
  const log = openSync(join(on.folder, "outside.log"), "a");
  return spawnLogged([...on.outside, process.execPath, "--eval", SERVER], log);
}

/** Tells each client its address, then ends the connection. */
const SERVER = `require("node:net").createServer((socket) => {
  socket.on("error", () => undefined);
  socket.once("data", () => socket.end(socket.remoteAddress.replace("::ffff:", "") + "\\n"));
}).listen(80, "::")`;

/** Writes a line for each request, of each family in turn: the source address that the server has seen, or `lost: ADDRESS`. */
const client = (families: readonly IpFamily[]): string => `trap 'exit 0' TERM
while :; do
  for address in ${families.map((family) => OUTSIDE[family]).join(" ")}; do
    source=$(echo | busybox timeout 3 busybox nc $address 80)
    echo "\${source:-lost: $address}"
    busybox sleep 0.2
  done
done`;

const egress = (families: readonly IpFamily[]) => ({
  apiVersion: "coil.cybozu.com/v2",
  kind: "Egress",
  metadata: { name: "nat", namespace: "internet" },
  spec: {
    destinations: families.map((family) => `${OUTSIDE[family]}/${family === 4 ? 32 : 128}`),
    replicas: ROUTERS,
    strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } },
    podDisruptionBudget: { maxUnavailable: 1 },
  },
});

const subnet = (families: readonly IpFamily[], ranges: Readonly<Record<IpFamily, string>>): object =>
  Object.fromEntries(families.map((family) => [`ipv${family}`, ranges[family]]));

const network = (families: readonly IpFamily[]): readonly object[] => [
  {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: "internet", annotations: { "coil.cybozu.com/pool": "internet" } },
  },
  {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressPool",
    metadata: { name: "default" },
    spec: { blockSizeBits: 5, subnets: [subnet(families, POOLS)] },
  },
  {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressPool",
    metadata: { name: "internet" },
    spec: { blockSizeBits: 0, subnets: [subnet(families, SOURCES)] },
  },
  egress(families),
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

const RANGES = Object.values(SOURCES).map((range) => Cidr.parse(range));
const isSource = (line: string): boolean => {
  const address = IpAddress.tryParse(line);
  return address !== undefined && RANGES.some((range) => range.contains(address));
};
/** As outside of the cluster, where each address of a router is led to its node. */
async function leadTo({ spec, status }: SeenPod): Promise<void> {
  const node = NODES.find((name) => name === spec.nodeName);
  if (node === undefined) return;
  for (const { ip } of status.podIPs ?? []) {
    const family = ip.includes(":") ? 6 : 4;
    await cluster().run(["ip", `-${family}`, "route", "replace", ip, "via", ADDRESSES[family][node]]);
  }
}
const routers = (): Promise<readonly SeenPod[]> =>
  pods(cluster(), "--namespace=internet", "--selector=app.kubernetes.io/component=egress");
const clients = (): Promise<readonly SeenPod[]> => pods(cluster(), "--selector=app=client");

/** Does what a network of routers does: leads the routers' addresses to their nodes. */
async function lead(): Promise<void> {
  for (const router of await routers()) await leadTo(router);
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

for (const [title, families] of Object.entries(CLUSTERS))
  describe(`kubelet, Egresses of ${title}`, { skip }, () => {
    const closers = new AsyncDisposableStack();
    before(async () => {
      bed = closers.use(await Kubelets.start({ families }));
      await importSuite(bed);
      const server = await startOutside(bed, families);
      closers.defer(() => kill(server));
    });
    after(() => closers.disposeAsync());

    test("kubelet: an Egress of the guide gives clients on both nodes the routers' addresses", async () => {
      const proxy = readFileSync(join(root, "deploy/service-proxy.yaml"), "utf8");
      const ranges = families.map((family) => POOLS[family]).join();
      await cluster().apply(
        proxy.replaceAll("control-plane.example", cluster().address).replaceAll("10.244.0.0/16", ranges),
      );
      const suite = readFileSync(join(root, "deploy/pods-egress.yaml"), "utf8");
      await cluster().apply(suite.replaceAll("--tunnel-driver=fou", "--tunnel-driver=vxlan"));
      for (const one of ["service-proxy", "coild", "coil-router"]) await rolledOut(cluster(), `daemonset/${one}`);
      for (const one of ["coil-ipam-controller", "coil-egress-controller"])
        await rolledOut(cluster(), `deployment/${one}`);
      await cluster().apply(
        network(families)
          .map((one) => stringify(one))
          .join("---\n"),
      );
      await until("the Egress has made its Deployment", async () => (await routers()).length === ROUTERS, {
        deadlineMs: SETTLE_MS,
        everyMs: 500,
      });
      await rolledOut(cluster(), "deployment/nat", "internet");
      await cluster().apply(stringify(deployment("client", CLIENTS, "nat", client(families))));
      await rolledOut(cluster(), "deployment/client", "default");
      await natWorks();
      assert.deepEqual(new Set((await clients()).map(({ spec }) => spec.nodeName)), new Set(NODES));
    });

    test("kubelet: a rollout of the routers, one at a time", async () => {
      await losesNothing(async () => {
        await cluster().kubectl("--namespace=internet", "rollout", "restart", "deployment", "nat");
        await rolledOut(cluster(), "deployment/nat", "internet");
      });
      await natWorks();
    });

    test("kubelet: killed with containerd and started again, routers and clients go on", async () => {
      await losesNothing(async () => {
        for (const name of NODES) await cluster().node(name).restartPrograms();
        await allReady(cluster());
      });
    });

    test("kubelet: a router's program that ends is started again in its sandbox, and goes on", async () => {
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
            (await routers()).some(({ status }) =>
              status.containerStatuses?.some(({ restartCount }) => restartCount > 0),
            ),
          { deadlineMs: SETTLE_MS, everyMs: 500 },
        );
        await allReady(cluster());
      });
      await natWorks();
    });

    test("kubelet: the Egress is scaled down and up as its scale says", async () => {
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

    test("kubelet: a running pod stops and starts to be a client when its annotation goes and comes", async () => {
      const [client] = await clients();
      assert.ok(client !== undefined);
      const name = client.metadata.name;
      const last = async (): Promise<string> => (await cluster().kubectl("logs", "--tail=1", name)).trim();
      await cluster().kubectl("annotate", "pod", name, "egress.coil.cybozu.com/internet-");
      await until(
        "its packets have its own address, to which the network outside has no way",
        async () => (await last()).startsWith("lost"),
        { deadlineMs: SETTLE_MS, everyMs: 500 },
      );
      await cluster().kubectl("annotate", "pod", name, "egress.coil.cybozu.com/internet=nat");
      await natWorks();
    });

    test("kubelet: a client of an Egress with originatingOnly is reached from outside, and asks as a router", async () => {
      const own = egress(families);
      const everywhere = families.map((family) => (family === 4 ? "0.0.0.0/0" : "::/0"));
      const only = {
        ...own,
        metadata: { name: "only", namespace: "internet" },
        spec: { ...own.spec, destinations: everywhere, originatingOnly: true, replicas: 1 },
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
      for (const pod of await pods(cluster(), "--selector=app=only")) {
        const { metadata, status } = pod;
        await leadTo(pod);
        for (const { ip } of status.podIPs ?? [])
          assert.equal(
            (await cluster().run(["curl", "-sS", "--max-time", "10", `http://${urlHost(ip)}:8080/`])).trim(),
            metadata.name,
          );
        for (const family of families) {
          const ask = `echo | busybox timeout 5 busybox nc ${OUTSIDE[family]} 80`;
          const source = await cluster().kubectl("exec", metadata.name, "--", "/bin/busybox", "sh", "-c", ask);
          assert.ok(isSource(source.trim()), source);
        }
      }
      await cluster().kubectl("delete", "deployment", "only", "--wait");
      await cluster().kubectl("--namespace=internet", "delete", "egress", "only", "--wait");
    });

    test("kubelet: a drained node's router moves within the budget, and no request is lost", async () => {
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

    test("kubelet: after a loss of power of a node all clients have the routers' addresses again", async () => {
      await loseAndRestorePower(cluster(), "n1");
      await natWorks();
    });

    test("audit: in coild's pods it has no findings of clients and routers", async () => {
      for (const { metadata } of await pods(
        cluster(),
        "--namespace=kube-system",
        "--selector=app.kubernetes.io/component=coild",
      ))
        await cluster().kubectl("exec", "--namespace=kube-system", metadata.name, "--", "isthmus", "audit");
    });

    test("uninstall: nothing of Egresses is left in the cluster and on the nodes", async () => {
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
  });
