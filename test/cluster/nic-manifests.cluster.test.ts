/** deploy/nics' DaemonSet as it stands: applied with its own command, its containers started as a kubelet would, with its rights and probes. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parse } from "yaml";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { listenTcp } from "#kernel/socket";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import { type NicClaim, nicResources } from "#kube/nic";
import { startApiServer } from "#lab/api-server";
import { runWorkloads } from "#lab/workloads";
import { start, until } from "#test/lab";
import { ManifestNode } from "#test/manifest-node";

const root = join(import.meta.dirname, "../..");
const NODE = "manifest-node";
const KUBERNETES = "10.96.0.1";
const UID = "0a64ecb8-6f54-4d0f-9e42-7c8d7f8c3a10";

/** A node of an empty cluster, to which the commands of the DaemonSet's file are applied. */
async function open(t: TestContext) {
  const kernel = openKernel();
  const folder = mkdtempSync(join(tmpdir(), "isthmus-nic-manifests-"));
  const stop = new AbortController();
  const closers: (() => unknown)[] = [];
  t.after(async () => {
    stop.abort();
    for (const close of closers.toReversed()) await close();
    rmSync(folder, { recursive: true, force: true });
  });
  const netns = `isthmus-nicmanifests-${process.pid}`;
  kernel.createNetNs(netns)[Symbol.dispose]();
  closers.push(() => kernel.deleteNetNs(netns));
  for (const args of [
    ["link", "set", "lo", "up"],
    ["address", "add", "198.51.100.2/32", "dev", "lo"],
    ["address", "add", `${KUBERNETES}/32`, "dev", "lo"],
  ]) {
    execFileSync("ip", ["-n", netns, ...args]);
  }
  using inside = kernel.openNetNs({ name: netns });
  const fd = listenTcp(IpAddress.parse(KUBERNETES), 443, { netns: inside });
  const account = "kube-system/nic-agent";
  const server = await startApiServer({
    listen: [
      { host: "127.0.0.1", port: 0 },
      { fd, host: KUBERNETES },
    ],
    tls: "self-signed",
    tlsHosts: [KUBERNETES],
    tokens: {
      admin: { name: "admin", groups: ["system:masters"] },
      // As kubelet's tokens are.
      [account]: {
        name: "system:serviceaccount:kube-system:nic-agent",
        groups: ["system:serviceaccounts", "system:authenticated"],
        extra: { "authentication.kubernetes.io/node-name": [NODE] },
      },
    },
    log: nullLogger,
    clock: systemClock,
  });
  closers.push(() => server[Symbol.asyncDispose]());
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, server.kubeconfig({ server: server.urls[0] ?? "", token: "admin" }));
  const config = parse(readFileSync(kubeconfig, "utf8")) as {
    readonly clusters: readonly { readonly cluster: { readonly "certificate-authority-data": string } }[];
  };
  const ca = Buffer.from(config.clusters[0]?.cluster["certificate-authority-data"] ?? "", "base64").toString();
  const api = new KubeClient(await loadKubeConfig({ path: kubeconfig, clock: systemClock }), { clock: systemClock });
  closers.push(() => api.close());
  cpSync(join(root, "deploy"), join(folder, "deploy"), { recursive: true });
  const head = readFileSync(join(root, "deploy/nics/agent-daemonset.yaml"), "utf8");
  const commands = [...head.matchAll(/^# {5}(kubectl .*)$/gm)].map(([, command = ""]) => command);
  assert.equal(commands.length, 1);
  for (const command of commands) {
    const { code, stderr } = await start(["sh", "-ec", `cd ${folder}; ${command}`], { env: { KUBECONFIG: kubeconfig } })
      .ended;
    assert.equal(code, 0, `${command}: ${stderr}`);
    assert.doesNotMatch(stderr, /warning/i);
  }
  const made = await api.create(resources.nodes, { metadata: { name: NODE } });
  const addresses = [{ type: "InternalIP" as const, address: "198.51.100.2" }];
  await api.replaceStatus(resources.nodes, {
    ...made,
    status: { addresses, conditions: [{ type: "Ready", status: "True" }] },
  } as never);
  const workloads = runWorkloads({ api, log: nullLogger, clock: systemClock }, { signal: stop.signal });
  closers.push(() => workloads.catch(() => undefined));
  const pods = new ManifestNode(api, {
    name: NODE,
    netns,
    addresses: ["198.51.100.2"],
    folder,
    image: { containerfile: join(root, "deploy/coil/Containerfile"), context: root },
    apiServer: { host: KUBERNETES, port: 443, ca },
    tokenOf: (namespace, name) => `${namespace}/${name}`,
  });
  closers.push(() => pods[Symbol.asyncDispose]());
  return { api, pods, netns, host: join(folder, "host") };
}

test("deploy/nics/agent-daemonset.yaml: the executables and their network are installed, the agent is ready and serves them, and no request is forbidden", async (t) => {
  const { api, pods, netns, host } = await open(t);
  await until("the agent is ready", () => pods.ready().some((name) => name.startsWith("nic-agent")), {
    deadlineMs: 60_000,
    seen: () => `${pods.unready().join()}\n${pods.said()}`,
  });
  const bin = join(host, "opt/cni/bin");
  assert.deepEqual(readdirSync(bin).sort(), ["vpc-alcor", "vpc-neutron"]);
  for (const name of readdirSync(bin)) assert.equal(statSync(join(bin, name)).mode & 0o777, 0o755);
  const conflist = JSON.parse(readFileSync(join(host, "etc/cni/net.d/05-vpc.conflist"), "utf8")) as {
    readonly cniVersion: string;
    readonly name: string;
    readonly plugins: readonly [{ readonly socket: string }];
  };
  const socket = join(host, "run/isthmus/vpc.sock");
  assert.equal(join(host, conflist.plugins[0].socket), socket);
  assert.ok(existsSync(socket));
  assert.equal(statSync(socket).mode & 0o077, 0, "only root may call it");
  const network = {
    cniVersion: conflist.cniVersion,
    name: conflist.name,
    ...conflist.plugins[0],
    socket,
    plumbTimeoutMs: 500,
  };
  const call = async (command: string): Promise<{ readonly code?: number; readonly msg?: string }> => {
    const env = {
      CNI_COMMAND: command,
      CNI_CONTAINERID: "c1",
      CNI_NETNS: "/proc/1/ns/net",
      CNI_IFNAME: "eth0",
      CNI_PATH: bin,
      CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p;K8S_POD_UID=${UID}`,
    };
    const argv = ["nsenter", `--net=/run/netns/${netns}`, join(bin, "vpc-neutron")];
    const { stdout } = await start(argv, { env, input: new TextEncoder().encode(JSON.stringify(network)) }).ended;
    return stdout === "" ? {} : (JSON.parse(stdout) as object);
  };
  await api.create(nicResources.nicClaims, {
    metadata: { name: UID, namespace: "default", labels: { "isthmus.dev/node": NODE } },
    spec: { podName: "p", podUID: UID, vpc: "vpc-1", provider: "neutron", nics: [{ name: "eth0" }] },
  });
  // The agent knows the claim, whose port is not there.
  await until("ADD tells what it waits for", async () => (await call("ADD")).msg === "waiting for ports: eth0=Unknown");
  // A report of its own: of a NIC that the pod has given up it tells that it does not have it.
  const claim = { apiVersion: "isthmus.dev/v1alpha1", kind: "NicClaim", metadata: { name: UID } };
  const status: NicClaim["status"] = { nodeName: NODE, nics: [{ name: "eth1", state: "InProgress" }] };
  await api.patch(
    nicResources.nicClaims,
    { name: UID, namespace: "default" },
    { type: "apply", fieldManager: "nic-controller", force: true, body: { ...claim, status } },
    { subresource: "status" },
  );
  await until("the agent has told", async () => {
    const found = await api.get(nicResources.nicClaims, { name: UID, namespace: "default" });
    return found.status?.plugged?.generation === 1;
  });
  assert.doesNotMatch(pods.said(), /forbidden|because of a bug/);
});
