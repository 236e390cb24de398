// alone: two kubelets with their pods keep the processor busy
/**
 * The tunnel as the only way between a control plane and its nodes, all of them real programs: kube-apiserver behind a firewall that lets the
 * agents' port through and nothing else, kubelets that know the bind address alone, static pods of proxy-agent as the guide has them. The tests
 * share one cluster and are in the order of its life.
 */
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import type { IpFamily } from "#base/ip";
import { makeCertificates } from "#test/certificates";
import { ADDRESSES, type KubeletNode, kill, NODES, type NodeName, spawnLogged, urlHost } from "#test/kubelet-node";
import { allReady, loseAndRestorePower, makeSuite, pods, rolledOut, SETTLE_MS, TIMEOUT } from "#test/kubelet-pods";
import { LATER, workloads } from "#test/kubelet-workloads";
import { Kubelets, kubeletsMissing } from "#test/kubelets";
import { ISTHMUS, until } from "#test/lab";

const root = join(import.meta.dirname, "../..");
const skip = kubeletsMissing();
const POOLS = { 4: "10.100.0.0/16", 6: "fd00:100::/112" } as const;
/** The bind addresses, as the manifests have that of IPv4. */
const BINDS = { 4: "10.255.255.1", 6: "fd10:255:255::1" } as const;
const AGENT_PORT = 8091;
/** A megabyte goes through `kubectl exec` and back. */
const BYTES = 2 ** 20;
/** An exec may wait for an agent that is about to be there. */
const SOON = { deadlineMs: SETTLE_MS, everyMs: 1000 };

type Mode = "grpc" | "http-connect";

/** The one of the cluster. */
let family: IpFamily = 4;
let bed: Kubelets | undefined;
const cluster = (): Kubelets => {
  assert.ok(bed !== undefined, "the cluster has started");
  return bed;
};
const { ca, pairs } = makeCertificates("tunnel", { server: [ADDRESSES[4].cp, ADDRESSES[6].cp], n1: [], n2: [] });

let server: ChildProcess | undefined;

const frontend = ({ folder }: Kubelets): string => join(folder, "frontend/frontend.sock");
const selector = ({ folder }: Kubelets, mode: Mode): string => join(folder, `egress-selector-${mode}.yaml`);
/** The flags of kube-apiserver by the guide. */
const apiFlags = (on: Kubelets, mode: Mode): readonly string[] => [
  `--egress-selector-config-file=${selector(on, mode)}`,
  `--advertise-address=${BINDS[family]}`,
  "--endpoint-reconciler-type=none",
];

/** The guide's server, with the arguments of its static pod. */
function startServer(on: Kubelets, mode: Mode): void {
  const file = (name: string): string => join(on.folder, name);
  const words = {
    "/etc/isthmus/tunnel/server.crt": file("server.crt"),
    "/etc/isthmus/tunnel/server.key": file("server.key"),
    "/etc/isthmus/tunnel/agents-ca.crt": file("tunnel-ca.crt"),
    "/run/isthmus-tunnel/frontend.sock": frontend(on),
    "--mode=grpc": `--mode=${mode}`,
  };
  let pod = readFileSync(join(root, "deploy/tunnel/proxy-server.static-pod.yaml"), "utf8");
  for (const [there, here] of Object.entries(words)) pod = pod.replaceAll(there, here);
  const flags = [...pod.matchAll(/^ +- (--\S+)/gm)].map(([, flag = ""]) => flag);
  assert.ok(flags.length > 10);
  server = spawnLogged([...on.outside, ISTHMUS, "proxy-server", ...flags], openSync(file("proxy-server.log"), "a"));
}

async function prepare(on: Kubelets): Promise<void> {
  mkdirSync(join(on.folder, "frontend"));
  const files = { "server.crt": pairs.server.cert, "server.key": pairs.server.key, "tunnel-ca.crt": ca };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(on.folder, name), text);
  const config = readFileSync(join(root, "deploy/tunnel/egress-selector.yaml"), "utf8");
  const here = config.replace("/run/isthmus-tunnel/frontend.sock", frontend(on));
  writeFileSync(selector(on, "grpc"), here);
  writeFileSync(selector(on, "http-connect"), here.replace("proxyProtocol: GRPC", "proxyProtocol: HTTPConnect"));
  await on.run(["nft", "-f", "-"], FIREWALL);
  startServer(on, "grpc");
}

const FIREWALL = `table inet firewall {
  chain input { type filter hook input priority 0; iifname "br0" tcp dport != ${AGENT_PORT} drop; iifname "br0" meta l4proto != { tcp, icmpv6 } drop; }
  chain output { type filter hook output priority 0; oifname "br0" tcp sport != ${AGENT_PORT} drop; oifname "br0" meta l4proto != { tcp, icmpv6 } drop; }
}
`;

function prepareNode(node: KubeletNode): void {
  const files = { "agent.crt": pairs[node.name].cert, "agent.key": pairs[node.name].key, "servers-ca.crt": ca };
  for (const [name, text] of Object.entries(files)) node.put(`etc/isthmus/tunnel/${name}`, text);
  const pod = readFileSync(join(root, "deploy/tunnel/proxy-agent.static-pod.yaml"), "utf8");
  node.put("manifests/proxy-agent.yaml", here(pod));
  const unit = readFileSync(join(root, "deploy/tunnel/isthmus-bind-route.service"), "utf8");
  const own = [...unit.matchAll(/^ExecStart=(.*)$/gm)].map(([, line = ""]) => line);
  node.put("boot", own.filter((line) => line.startsWith(`ip -${family} `)).join("\n"));
}

/** Manifests with the addresses of this cluster. */
const here = (text: string): string =>
  text
    .replaceAll("10.255.255.1/32", `${BINDS[family]}/${family === 4 ? 32 : 128}`)
    .replaceAll(BINDS[4], BINDS[family])
    .replaceAll("addressType: IPv4", `addressType: IPv${family}`)
    // An address of IPv6 is no plain scalar there.
    .replaceAll(`addresses: [${BINDS[family]}]`, `addresses: ["${BINDS[family]}"]`)
    .replaceAll("control-plane.example", ADDRESSES[family].cp)
    .replaceAll("10.244.0.0/16", POOLS[family]);

async function startCluster(own: IpFamily): Promise<Kubelets> {
  family = own;
  let suite = "";
  return await Kubelets.start({
    families: [family],
    server: BINDS[family],
    prepare: async (on) => {
      suite = await makeSuite(on);
      await prepare(on);
      return apiFlags(on, "grpc");
    },
    prepareNode: (node) => {
      prepareNode(node);
      return [suite];
    },
  });
}

/** Bytes go to a pod of the node and come back, by kube-apiserver, the tunnel and the kubelet. */
async function echoes(name: NodeName): Promise<boolean> {
  const selection = ["--selector=app=client", `--field-selector=spec.nodeName=${name}`];
  const [client] = await pods(cluster(), ...selection);
  if (client === undefined) return false;
  const text = "0123456789abcde\n".repeat(BYTES / 16);
  const argv = [...cluster().argvOfKubectl, "exec", "--stdin", client.metadata.name, "--", "/bin/busybox", "cat"];
  const back = await cluster()
    .run(argv, text)
    .catch((error: unknown) => String(error));
  const digest = (one: string): string => createHash("sha256").update(one).digest("hex");
  return digest(back) === digest(text);
}

async function works(): Promise<void> {
  for (const name of NODES) await until(`kubectl exec on ${name} echoes`, () => echoes(name), SOON);
  await allReady(cluster());
}

async function dialsOf(protocol: string): Promise<number> {
  const metrics = await cluster().kubectl("get", "--raw", "/metrics");
  const lines = metrics.split("\n").filter((line) => line.startsWith("apiserver_egress_dialer_dial_start_total{"));
  return lines.filter((line) => line.includes(protocol)).reduce((sum, line) => sum + Number(line.split(" ")[1]), 0);
}

for (const own of [4, 6] as const)
  describe(`kubelet, the tunnel in a cluster of IPv${own}`, { skip }, () => {
    const closers = new AsyncDisposableStack();
    before(async () => {
      closers.defer(async () => {
        if (server !== undefined) await kill(server);
      });
      bed = closers.use(await startCluster(own));
    });
    after(() => closers.disposeAsync());

    test("kubelet: nodes join, and pods of the whole suite get ready, through the tunnel alone", async () => {
      for (const name of NODES)
        await assert.rejects(
          cluster()
            .node(name)
            .run("curl", "-sk", "--max-time", "2", `https://${urlHost(cluster().address)}:6443/version`),
          /ended with 28/,
        );
      await cluster().apply(here(readFileSync(join(root, "deploy/tunnel/kubernetes-endpointslice.yaml"), "utf8")));
      const proxy = readFileSync(join(root, "deploy/service-proxy.yaml"), "utf8");
      await cluster().apply(here(proxy.replaceAll("control-plane.example", BINDS[family])));
      await cluster().apply(readFileSync(join(root, "deploy/pods-router.yaml"), "utf8"));
      for (const one of ["service-proxy", "coild", "coil-router"]) await rolledOut(cluster(), `daemonset/${one}`);
      await rolledOut(cluster(), "deployment/coil-ipam-controller");
      const spec = { blockSizeBits: 5, subnets: [{ [`ipv${family}`]: POOLS[family] }] };
      const pool = { apiVersion: "coil.cybozu.com/v2", kind: "AddressPool", metadata: { name: "default" }, spec };
      await cluster().apply(stringify(pool));
      await cluster().apply(
        workloads([family])
          .map((one) => stringify(one))
          .join("---\n"),
      );
      await works();
      assert.ok((await dialsOf("grpc")) > 0);
    });

    test("webhook: what it refuses is refused through the tunnel", async () => {
      const spec = {
        blockSizeBits: 5,
        subnets: [{ [`ipv${family}`]: POOLS[family].replace("/16", "/20").replace("/112", "/116") }],
      };
      const other = { apiVersion: "coil.cybozu.com/v2", kind: "AddressPool", metadata: { name: "other" }, spec };
      await assert.rejects(cluster().apply(stringify(other)), /overlaps with a subnet of AddressPool default/);
    });

    test("kubelet: agents that are killed are started again by their kubelets", async () => {
      for (const name of NODES) {
        const ofNode = ["--namespace=kube-system", `--field-selector=metadata.name=proxy-agent-${name}`];
        const [agent] = await pods(cluster(), ...ofNode);
        const id = agent?.status.containerStatuses?.[0]?.containerID?.replace("containerd://", "") ?? "";
        await cluster().node(name).run("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", id);
      }
      await works();
    });

    test("kubelet: agents find a server again that was killed", async () => {
      assert.ok(server !== undefined);
      await kill(server);
      startServer(cluster(), "grpc");
      await works();
    });

    test("kubelet: killed with containerd and started again, it starts pods", async () => {
      for (const name of NODES) await cluster().node(name).restartPrograms();
      await cluster().apply(stringify(LATER));
      await cluster().kubectl("rollout", "status", "daemonset/later", TIMEOUT);
      await works();
    });

    test("kubelet: a node that had no power joins again, by an agent that it starts itself", async () => {
      await loseAndRestorePower(cluster(), "n1");
      await works();
    });

    test("kubelet: the same by CONNECT", async () => {
      assert.ok(server !== undefined);
      await kill(server);
      startServer(cluster(), "http-connect");
      await cluster().restartApi(apiFlags(cluster(), "http-connect"));
      await works();
      assert.ok((await dialsOf("http_connect")) > 0);
    });
  });
