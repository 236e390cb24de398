// alone: it counts requests that fail, and two kubelets with their pods keep the processor busy
/**
 * The suite's image and manifests on a cluster of real programs: kubelets, containerd, the control plane. What a user applies is applied as the
 * pages say. The tests share one cluster and are in the order of its life.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import { commandsOf, follow, TOP } from "#test/guide";
import { complaints } from "#test/kubelet-logs";
import { NODES, urlHost } from "#test/kubelet-node";
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
import { HOST_PORT, LATER, NODE_PORT, PODS, workloads } from "#test/kubelet-workloads";
import { Kubelets, type KubeletsOptions, kubeletsMissing, peerRuntime, runtimeMissing } from "#test/kubelets";
import { ISTHMUS, start, until } from "#test/lab";

const root = join(import.meta.dirname, "../..");
const POOLS = { 4: "10.100.0.0/16", 6: "fd00:100::/112" } as const;
interface ClusterKind extends Required<Pick<KubeletsOptions, "families">> {
  /** A runtime of ISTHMUS_PEERS. Default: Debian's containerd. */
  readonly runtime?: Parameters<typeof peerRuntime>[0];
}

/** In a cluster of IPv6 alone the machines have no other addresses. */
const CLUSTERS: Readonly<Record<string, ClusterKind>> = {
  IPv4: { families: [4] },
  "IPv4 and IPv6": { families: [4, 6] },
  IPv6: { families: [6] },
  "another containerd": { families: [4, 6], runtime: "containerd" },
  "CRI-O": { families: [4, 6], runtime: "crio" },
};
/** Requests from outside during anything that lasts for a short time. */
const ENOUGH = 20;

let bed: Kubelets | undefined;
const cluster = (): Kubelets => {
  assert.ok(bed !== undefined, "the cluster has started");
  return bed;
};

/** The part of a pod that must not change while a node's programs do not run. */
const facts = ({ metadata, spec, status }: SeenPod): unknown => [
  metadata.name,
  spec.nodeName,
  status.podIP,
  status.containerStatuses?.map(({ containerID, restartCount }) => [containerID, restartCount]),
];

/** The name of the pod that answers outside of the pod network, or undefined. */
async function fromOutside(address: string, port: number): Promise<string | undefined> {
  const url = `http://${urlHost(address)}:${port}/`;
  const { code, stdout } = await start([...cluster().outside, "curl", "-sSf", "--max-time", "3", url]).ended;
  return code === 0 ? stdout.trim() : undefined;
}

const isName = (line: string): boolean => line.startsWith("web-");

interface Load {
  readonly answered: number;
  /** The clients that had no answer, and the address. */
  readonly lost: readonly string[];
  readonly names: ReadonlySet<string>;
}

/** The requests of the clients on both nodes, and of one outside, to the Service while something is done. */
async function underRequests(work: () => Promise<unknown>): Promise<Load> {
  const clients = await pods(cluster(), "--selector=app=client");
  assert.equal(clients.length, NODES.length);
  const before = await Promise.all(clients.map(({ metadata }) => cluster().kubectl("logs", metadata.name)));
  const outside: string[] = [];
  let isDone = false;
  const ask = (async () => {
    while (!isDone || outside.length < ENOUGH)
      for (const address of cluster().node("n1").addresses)
        outside.push((await fromOutside(address, NODE_PORT)) ?? `outside: ${address}`);
  })();
  try {
    await work();
  } finally {
    isDone = true;
    await ask;
  }
  const said = await Promise.all(clients.map(({ metadata }) => cluster().kubectl("logs", metadata.name)));
  const inside = said.map((text, at) => text.slice(before[at]?.length).trimEnd().split("\n"));
  for (const [at, lines] of inside.entries()) assert.notEqual(lines[0], "", `client ${at} has made requests`);
  const ofNode = (at: number): string => `${clients[at]?.spec.nodeName}: `;
  const all = [
    ...inside.flatMap((lines, at) => lines.map((line) => (isName(line) ? line : ofNode(at) + line))),
    ...outside,
  ];
  const names = all.filter(isName);
  return { answered: names.length, lost: all.filter((line) => !isName(line)), names: new Set(names) };
}

function assertLossless({ answered, lost }: Load): void {
  assert.deepEqual(lost, [], `${lost.length} of ${answered + lost.length} requests were lost`);
  assert.ok(answered > ENOUGH, `${answered} requests`);
}

for (const [title, { families, runtime }] of Object.entries(CLUSTERS))
  describe(`kubelet, ${title}`, {
    skip: runtime === undefined ? kubeletsMissing() : runtimeMissing(runtime),
  }, () => {
    before(async () => {
      bed = await Kubelets.start({ families, ...(runtime === undefined ? {} : { runtime: peerRuntime(runtime) }) });
      await importSuite(bed);
    });
    after(() => bed?.[Symbol.asyncDispose]());

    test("kubelet: Nodes become Ready with the pages' commands, and Pods with readiness probes", async () => {
      const proxy = readFileSync(join(root, "deploy/service-proxy.yaml"), "utf8");
      const pool = families.map((family) => POOLS[family]).join();
      await cluster().apply(
        proxy.replaceAll("control-plane.example", cluster().address).replaceAll("10.244.0.0/16", pool),
      );
      await rolledOut(cluster(), "daemonset/service-proxy");
      const { kubeconfig, outside: wrap } = cluster();
      const subnet = families.map((family) => `ipv${family}: "${POOLS[family]}"`).join(", ");
      const words = { "registry.example/isthmus": "isthmus", "- ipv4: 10.100.0.0/16": `- { ${subnet} }` };
      const commands = commandsOf("pods.md", TOP);
      const installs = commands.filter((one) => one.includes("deploy/pods-router.yaml"));
      const pools = commands.filter((one) => one.includes("kind: AddressPool"));
      assert.deepEqual([installs.length, pools.length], [1, 1]);
      await follow(installs, { kubeconfig, wrap, words });
      await rolledOut(cluster(), "deployment/coil-ipam-controller");
      await rolledOut(cluster(), "daemonset/coild");
      await follow(pools, { kubeconfig, wrap, words });
      await cluster().kubectl("wait", "--for=condition=Ready", "node", "--all", TIMEOUT);
      await cluster().apply(
        workloads(families)
          .map((one) => stringify(one))
          .join("---\n"),
      );
      await allReady(cluster());
      const web = await pods(cluster(), "--selector=app=web");
      assert.equal(web.length, PODS);
      for (const { status } of web)
        assert.deepEqual(
          status.podIPs?.map(({ ip }) => (ip.includes(":") ? 6 : 4)),
          families,
        );
      assert.deepEqual(new Set(web.map(({ spec }) => spec.nodeName)), new Set(NODES));
    });

    test("kubelet: a Service reaches pods of both nodes from pods and by a NodePort; a hostPort reaches its pod", async () => {
      const web = await pods(cluster(), "--selector=app=web");
      const names = new Set<string>();
      await until("each pod has answered", async () => {
        const load = await underRequests(async () => {
          for (const address of cluster().node("n2").addresses) await fromOutside(address, NODE_PORT);
        });
        for (const name of load.names) names.add(name);
        return web.every(({ metadata }) => names.has(metadata.name));
      });
      for (const { metadata, spec } of await pods(cluster(), "--selector=app=host-port")) {
        const node = NODES.find((name) => name === spec.nodeName);
        assert.ok(node !== undefined);
        for (const address of cluster().node(node).addresses)
          assert.equal(await fromOutside(address, HOST_PORT), metadata.name, address);
      }
    });

    test("logs: on a healthy cluster no program warns, and no request is forbidden", async () => {
      assert.deepEqual(await complaints(cluster()), []);
    });

    test("kubelet: a rollout loses no request", async () => {
      const load = await underRequests(async () => {
        await cluster().kubectl("rollout", "restart", "deployment/web");
        await cluster().kubectl("rollout", "status", "deployment/web", TIMEOUT);
      });
      assertLossless(load);
      await until(
        "the former pods have ended",
        async () => (await pods(cluster(), "--selector=app=web")).length === PODS,
      );
    });

    test("kubelet: killed with containerd and started again, it finds everything unchanged", async () => {
      const known = (await pods(cluster(), "--all-namespaces")).map(facts);
      const load = await underRequests(async () => {
        for (const name of NODES) await cluster().node(name).restartPrograms();
        // They work again when they have started something.
        await cluster().apply(stringify(LATER));
        await cluster().kubectl("rollout", "status", "daemonset/later", TIMEOUT);
        await allReady(cluster());
      });
      assertLossless(load);
      assert.deepEqual((await pods(cluster(), "--all-namespaces", "--selector=app!=later")).map(facts), known);
    });

    test("kubelet: after a loss of power all pods of the node run again, and no address is given twice", async () => {
      await loseAndRestorePower(cluster(), "n1");
      const addresses = (await pods(cluster(), "--all-namespaces"))
        .filter(({ spec }) => spec.hostNetwork !== true)
        .flatMap(({ status }) => (status.podIPs ?? []).map(({ ip }) => ip));
      assert.equal(new Set(addresses).size, addresses.length, addresses.join(" "));
      assertLossless(await underRequests(() => allReady(cluster())));
    });

    test("audit: in coild's pods it has no findings", async () => {
      const coilds = await pods(cluster(), "--namespace=kube-system", "--selector=app.kubernetes.io/component=coild");
      assert.equal(coilds.length, NODES.length);
      for (const { metadata } of coilds)
        await cluster().kubectl("exec", "--namespace=kube-system", metadata.name, "--", "isthmus", "audit");
    });

    test("kubelet: coild is replaced on all nodes without a lost request", async () => {
      const load = await underRequests(async () => {
        await cluster().kubectl("-n", "kube-system", "rollout", "restart", "daemonset/coild");
        await rolledOut(cluster(), "daemonset/coild");
        await allReady(cluster());
      });
      assertLossless(load);
    });

    test("uninstall: nothing of the suite is left in the cluster and on the nodes", async () => {
      await cluster().kubectl("delete", "deployment,daemonset", "--all", "--wait", TIMEOUT);
      await until("the pods have ended", async () => (await pods(cluster())).length === 0, {
        deadlineMs: SETTLE_MS,
        everyMs: 500,
      });
      await cluster().run([ISTHMUS, "uninstall", "--cluster"]);
      let left: readonly string[] = [];
      const areGone = async (): Promise<boolean> => {
        left = (await pods(cluster(), "--all-namespaces")).map(({ metadata }) => metadata.name);
        return left.length === 0;
      };
      await until("all pods have ended", areGone, { deadlineMs: SETTLE_MS, everyMs: 500, seen: () => left.join(" ") });
      for (const name of NODES) {
        const node = cluster().node(name);
        await node.run(ISTHMUS, "uninstall");
        assert.equal(await node.run("ls", "/etc/cni/net.d"), "");
        assert.doesNotMatch(await node.run("ip", "-o", "link"), /veth/);
        assert.doesNotMatch(await node.run("nft", "list", "tables"), /kube-proxy/);
      }
      const types = await cluster().kubectl("get", "crd", "-o", "name");
      assert.equal(types, "");
    });
  });
