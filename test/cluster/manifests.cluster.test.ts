/**
 * The files of `deploy` for each variant: applied with their own commands, each container started as a kubelet would start it, with the rights, flags,
 * privileges and probes that the files give. Operators' changes are made to their text.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, linkSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { IpAddress } from "#base/ip";
import { markServed } from "#base/served-sockets";
import { openKernel } from "#kernel/net";
import { findObject, resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { nicResources } from "#kube/nic";
import { connectInside, readAll, request, requestConnect, secure } from "#lab/inside";
import { makeCertificates } from "#test/certificates";
import { start, until } from "#test/lab";
import { API, API_PORT, AT, BIND, FAMILIES, ManifestBed, ofFamily } from "#test/manifest-bed";
import { nicState } from "#test/nic-node";
import { OvsBed, skipWithoutOvs } from "#test/ovs-bed";
import { readChart, renderChart } from "../../tools/manifests/index.ts";

const NAT = { namespace: "internet", name: "nat" };
const PORT = 8000;
const SERVICE = "10.96.10.10";
const CONTROL_PLANE = "node-role.kubernetes.io/control-plane";

const lacksFou = (): boolean => {
  const kernel = openKernel();
  const name = `isthmus-manifests-${process.pid}-probe`;
  const netns = kernel.createNetNs(name);
  try {
    using stack = kernel.openStack(netns);
    return !stack.fou.available();
  } finally {
    netns[Symbol.dispose]();
    kernel.deleteNetNs(name);
  }
};

/** Changes a manifest as its head describes for kernels without FoU. */
const withDriver = (text: string): string =>
  lacksFou() ? text.replaceAll("--tunnel-driver=fou", "--tunnel-driver=vxlan") : text;
/** The API server's address, and the pods'. */
const withApiServer = (text: string): string =>
  text
    .replaceAll(/(name: KUBERNETES_SERVICE_HOST, value: )"control-plane\.example"/g, `$1"${API}"`)
    .replaceAll(/(name: KUBERNETES_SERVICE_PORT, value: )"6443"/g, `$1"${API_PORT}"`)
    .replaceAll("10.244.0.0/16", "10.210.0.0/24");
const withProxyServer = (text: string, host: string): string =>
  text.replaceAll("--proxy-server-host=control-plane.example", `--proxy-server-host=${host}`);

/** The one machine of a bed is of the control plane, and a node with an agent all the same: its API server has another port. */
const withOneMachine = (text: string): string => text.replace(/^ +affinity:\n +nodeAffinity:\n(?: {10,}.*\n)+/m, "");

function ping(netns: string, address: string): void {
  execFileSync("nsenter", [`--net=/run/netns/${netns}`, "ping", "-c1", "-W2", address], { stdio: "pipe" });
}

/** Pods with addresses reach each other. */
async function pingEachOther(bed: ManifestBed): Promise<void> {
  const [one, two] = [await bed.run("one"), await bed.run("two")];
  for (const family of FAMILIES) {
    assert.match(ofFamily(one.ips, family), /^(10\.210\.0\.|fd00:210::)/);
    ping(one.netns, ofFamily(two.ips, family));
  }
}

/** `isthmus doctor` in the pod of coild finds a healthy node as it finds it on the node. */
async function seesNoFault(bed: ManifestBed): Promise<void> {
  // Where nodes have the CNI plugins.
  cpSync("/usr/lib/cni/portmap", join(bed.folder, "node/host/opt/cni/bin/portmap"));
  const { stdout, stderr } = await bed.node().exec("coild", "isthmus", "doctor", "--json");
  assert.ok(stdout.startsWith("{"), stderr);
  const { checks } = JSON.parse(stdout) as {
    readonly checks: readonly { readonly name: string; readonly state: string }[];
  };
  assert.deepEqual(
    checks.filter(({ state }) => state !== "ok"),
    [],
  );
  for (const name of ["cni-order", "cni-executable", "daemon-socket", "source-guard", "folder", "clock"])
    assert.ok(
      checks.some((one) => one.name === name),
      name,
    );
}

/** With the rights and folders of its manifest `coild` puts back what another program removes. */
async function keepsFiles(bed: ManifestBed): Promise<void> {
  for (const name of ["etc/cni/net.d/10-coil.conflist", "opt/cni/bin/coil"]) {
    const path = join(bed.folder, "node/host", name);
    const before = readFileSync(path);
    rmSync(path);
    await until(`${name} is back`, () => existsSync(path) && readFileSync(path).equals(before), {
      deadlineMs: 5000,
      seen: () => bed.said(),
    });
  }
}

/** The same for rules by which packets of pods pass a policy as docker sets it. */
async function passesDocker(bed: ManifestBed): Promise<void> {
  const iptables = (...args: readonly string[]): string =>
    execFileSync("nsenter", [`--net=/run/netns/${bed.netns("node")}`, "iptables-nft", ...args], { encoding: "utf8" });
  iptables("-P", "FORWARD", "DROP");
  await until("packets of pods pass", () => /isthmus: pods from 10\.210\.0\./.test(iptables("-S", "FORWARD")), {
    deadlineMs: 5000,
    seen: () => bed.said(),
  });
}

/** A Service whose endpoint is a pod answers to another pod and to the node. */
async function reachService(bed: ManifestBed): Promise<void> {
  const pods = bed.node();
  const [one, two] = [pods.find("one") ?? assert.fail(), pods.find("two") ?? assert.fail()];
  const endpoint = ofFamily(two.ips, 4);
  await bed.serve(two.netns, endpoint, PORT);
  await bed.makeService("web", { clusterIP: SERVICE, port: 80 }, { address: endpoint, port: PORT });
  await until(
    "the Service answers a pod",
    async () => (await bed.seen(one.netns, SERVICE, 80)) === ofFamily(one.ips, 4),
    { seen: () => bed.said() },
  );
  assert.notEqual(await bed.seen(bed.netns("node"), SERVICE, 80), "none");
}

/** Downloads through the uplink. */
async function download(bed: ManifestBed): Promise<void> {
  await bed.serve(bed.netns("outside"), AT.outside[4], PORT);
  const at = { address: IpAddress.parse("127.0.0.1"), port: 5443 };
  const proxy = await connectInside({ name: bed.netns("node") }, at, { timeoutMs: 2000 });
  const tunnel = await requestConnect(proxy, `${AT.outside[4]}:${PORT}`, { timeoutMs: 5000 });
  assert.equal(await readAll(tunnel, { timeoutMs: 5000 }), AT.node[4]);
}

async function podsAndMore(t: TestContext): Promise<void> {
  const bed = await ManifestBed.open(t, "pods");
  await bed.apply("pods.yaml");
  await bed.ready("coild", "coil-ipam-controller");
  await bed.makePool();
  await pingEachOther(bed);
  await seesNoFault(bed);
  await keepsFiles(bed);
  await passesDocker(bed);

  await bed.apply("pods-router.yaml");
  await bed.ready("coil-router");
  await bed.makeNode("elsewhere", {}, { 4: "198.51.100.3", 6: "2001:db8:1::3" }, "False");
  await bed.api.create(coilResources.addressBlocks, {
    metadata: {
      name: "default-15",
      labels: { "coil.cybozu.com/pool": "default", "coil.cybozu.com/node": "elsewhere" },
    },
    index: 15,
    ipv4: "10.210.0.60/30",
    ipv6: "fd00:210::3c/126",
  } as never);
  await until(
    "coil-router has a route to the other node's block",
    () => /via 198\.51\.100\.3/.test(bed.ip("node", "route", "show", "10.210.0.60/30")),
    { seen: () => bed.said() },
  );

  await bed.apply("service-proxy.yaml", withApiServer);
  await bed.ready("service-proxy");
  await reachService(bed);

  await bed.apply("uplink-proxy.yaml");
  await bed.ready("uplink-proxy");
  await download(bed);
  await bed.assertWell();
}

/** Forwards to the Service of the Egress as kube-proxy does. */
async function forward(bed: ManifestBed, ips: readonly string[]): Promise<void> {
  const { spec } = await bed.api.get(resources.services, NAT);
  const clusterIPs = spec?.clusterIPs ?? [];
  assert.equal(clusterIPs.length, 2);
  const rules = clusterIPs.map((one) =>
    one.includes(":")
      ? `ip6 daddr ${one} udp dport 5555 dnat ip6 to [${ofFamily(ips, 6)}]:5555`
      : `ip daddr ${one} udp dport 5555 dnat ip to ${ofFamily(ips, 4)}:5555`,
  );
  const text = ["table inet service {", "chain pre {", "type nat hook prerouting priority dstnat;", ...rules, "}", "}"];
  writeFileSync(join(bed.folder, "service.nft"), `${text.join("\n")}\n`);
  execFileSync("nsenter", [`--net=/run/netns/${bed.netns("node")}`, "nft", "-f", join(bed.folder, "service.nft")]);
  for (const family of FAMILIES) bed.ip("outside", "route", "add", ofFamily(ips, family), "via", AT.node[family]);
}

/** Follows a packet of a client to the outside, and sees that another pod does not get there. */
async function leaveByEgress(t: TestContext, file: string): Promise<void> {
  const isChained = file === "egress-standalone.yaml";
  const bed = await ManifestBed.open(t, isChained ? "ptp" : "egress");
  await bed.apply(file, withDriver);
  await bed.ready("coild", "coil-egress-controller", ...(isChained ? [] : ["coil-ipam-controller", "coil-router"]));
  if (!isChained) await bed.makePool();
  await bed.api.create(resources.namespaces, { metadata: { name: NAT.namespace } });
  const destinations = FAMILIES.map((family) => `${AT.outside[family]}/${family === 4 ? 32 : 128}`);
  await bed.create("the Egress", () =>
    bed.api.create(coilResources.egresses, { metadata: NAT, spec: { destinations } }),
  );
  await bed.ready("nat-");
  const router = bed.node().find("nat-") ?? assert.fail();
  await forward(bed, router.ips);
  for (const family of FAMILIES) await bed.serve(bed.netns("outside"), AT.outside[family], PORT);
  const plain = await bed.run("plain");
  const client = await bed.run("client", { [`egress.coil.cybozu.com/${NAT.namespace}`]: NAT.name });
  for (const family of FAMILIES) {
    await until(
      "the outside sees the router",
      async () => (await bed.seen(client.netns, AT.outside[family], PORT)) === ofFamily(router.ips, family),
      { deadlineMs: 5000, seen: () => bed.said() },
    );
    assert.equal(await bed.seen(plain.netns, AT.outside[family], PORT), "none");
  }
  await until(
    "the Egress counts its router",
    async () => (await findObject(bed.api, coilResources.egresses, NAT))?.status?.replicas === 1,
  );
  await bed.assertWell();
}

async function calico(t: TestContext): Promise<void> {
  const bed = await ManifestBed.open(t, "calico");
  await bed.apply("pods-calico.yaml");
  await bed.ready("coild", "coil-ipam-controller", "coil-router");
  // As `helm upgrade` with a pool does.
  const pool = {
    name: "default",
    spec: { blockSizeBits: 2, subnets: [{ ipv4: "10.210.0.0/26", ipv6: "fd00:210::/122" }] },
  };
  const chart = readChart(join(import.meta.dirname, "../../deploy/chart"));
  const rendered = renderChart(chart, { pods: { enabled: true, pools: [pool] } }).get("pools.yaml") ?? assert.fail();
  await bed.applyText("pools.yaml", rendered);
  await pingEachOther(bed);
  for (const pod of ["one", "two"]) {
    const name = `veth${createHash("sha1").update(`default.${pod}`).digest("hex").slice(0, 11)}`;
    assert.match(bed.ip("node", "link", "show", name), /state UP/);
  }
  await bed.assertWell();
}

interface Added {
  readonly msg?: string;
  readonly ips?: readonly { readonly address: string }[];
}

/** Plugs a NIC of a claim that is bound, as a runtime does by the installed executable and its network. Returns the pod's namespace. */
async function plug(bed: ManifestBed, at: 1 | 2): Promise<string> {
  const uid = `0a64ecb8-6f54-4d0f-9e42-00000000000${at}`;
  const bin = bed.path("node", "opt/cni/bin");
  const file = bed.path("node", "etc/cni/net.d/05-vpc.conflist");
  const { cniVersion, name, plugins } = JSON.parse(readFileSync(file, "utf8")) as {
    readonly cniVersion: string;
    readonly name: string;
    readonly plugins: readonly [{ readonly socket: string; readonly type: string }];
  };
  const socket = bed.path("node", plugins[0].socket);
  assert.equal(statSync(socket).mode & 0o077, 0, "only root may call it");
  // For this machine it is another path than in the pod, whose /run is the node's.
  markServed(socket, { kind: "nic-agent" });
  const input = new TextEncoder().encode(
    JSON.stringify({ cniVersion, name, ...plugins[0], socket, plumbTimeoutMs: 500 }),
  );
  const netns = `${bed.netns("node")}-nic${at}`;
  const kernel = openKernel();
  kernel.createNetNs(netns)[Symbol.dispose]();
  bed.onEnd(() => kernel.deleteNetNs(netns));
  const add = async (): Promise<Added> => {
    const env = {
      CNI_COMMAND: "ADD",
      CNI_CONTAINERID: `c${at}`,
      CNI_NETNS: `/run/netns/${netns}`,
      CNI_IFNAME: "eth0",
      CNI_PATH: bin,
      CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p${at};K8S_POD_UID=${uid}`,
    };
    const argv = ["nsenter", `--net=/run/netns/${bed.netns("node")}`, join(bin, plugins[0].type)];
    const { stdout } = await start(argv, { env, input }).ended;
    return stdout === "" ? {} : (JSON.parse(stdout) as Added);
  };
  const metadata = { name: uid, namespace: "default", labels: { "isthmus.dev/node": "node" } };
  const spec = { podName: `p${at}`, podUID: uid, vpc: "vpc-1", provider: "neutron", nics: [{ name: "eth0" }] };
  await bed.api.create(nicResources.nicClaims, { metadata, spec });
  // The agent knows the claim, whose port is not there.
  await until("ADD tells what it waits for", async () => (await add()).msg === "waiting for ports: eth0=Unknown", {
    seen: () => bed.said(),
  });
  // As the controller does, once the cloud has made and bound the port.
  const vifDetails = { ovsHybridPlug: false, bridgeName: "br-int", datapathType: "netdev" };
  const status = {
    phase: "Active",
    nodeName: "node",
    nics: [nicState(at, { host: "node", state: "Ready", vifDetails })],
  };
  await bed.api.patch(
    nicResources.nicClaims,
    { name: uid, namespace: "default" },
    {
      type: "apply",
      fieldManager: "nic-controller",
      force: true,
      body: { apiVersion: "isthmus.dev/v1alpha1", kind: "NicClaim", metadata: { name: uid }, status },
    },
    { subresource: "status" },
  );
  let added: Added = {};
  await until(
    "ADD gives the port's address",
    async () => {
      added = await add();
      return added.ips?.[0]?.address === `10.0.0.${at}/24`;
    },
    { seen: () => `${JSON.stringify(added)}\n${bed.said()}` },
  );
  return netns;
}

async function nics(t: TestContext): Promise<void> {
  const bed = await ManifestBed.open(t, "nics");
  const ovs = await OvsBed.open({ netns: bed.netns("node") });
  bed.onEnd(() => ovs[Symbol.asyncDispose]());
  bed.write("node", "run/openvswitch/.here", "");
  linkSync(ovs.socketPath, bed.path("node", "run/openvswitch/db.sock"));
  await bed.apply("nics.yaml");
  await bed.ready("nic-agent", "nic-controller");
  for (const name of ["vpc-alcor", "vpc-neutron"].flatMap((one) => [one, `${one}-standalone`]))
    assert.equal(statSync(join(bed.path("node", "opt/cni/bin"), name)).mode & 0o777, 0o755);
  await bed.assertWell();
  // From here on the test is the controller, whose cloud does not exist.
  const controller = bed.node().find("nic-controller") ?? assert.fail();
  for (const { child, ended } of controller.running) {
    child.kill("SIGKILL");
    await ended;
  }
  const one = await plug(bed, 1);
  await plug(bed, 2);
  ping(one, "10.0.0.2");
  // It writes what it has done with the rights of its own node.
  await until("the agent tells that the NIC is plugged", async () => {
    const name = "0a64ecb8-6f54-4d0f-9e42-000000000001";
    const { status } = await bed.api.get(nicResources.nicClaims, { name, namespace: "default" });
    return status?.conditions?.some((condition) => condition.type === "Plugged" && condition.status === "True");
  });
  assert.doesNotMatch(bed.said(), /forbidden|because of a bug/i);
}

/** Puts the files of the tunnel's guide on machines. */
function giveCertificates(
  bed: ManifestBed,
  machines: { readonly server: "node" | "outside"; readonly agent: "node" },
): void {
  const servers = makeCertificates("servers", { server: [AT.outside[4], AT.node[4]] });
  const agents = makeCertificates("agents", { agent: ["node"] });
  const folder = "etc/isthmus/tunnel";
  for (const [machine, name, text] of [
    [machines.server, "server.crt", servers.pairs.server.cert],
    [machines.server, "server.key", servers.pairs.server.key],
    [machines.server, "agents-ca.crt", agents.ca],
    [machines.agent, "servers-ca.crt", servers.ca],
    [machines.agent, "agent.crt", agents.pairs.agent.cert],
    [machines.agent, "agent.key", agents.pairs.agent.key],
  ] as const)
    bed.write(machine, `${folder}/${name}`, text);
}

/** A connection from the control plane to the node, and one from the node to the API server. */
async function reachThroughTunnel(bed: ManifestBed, socket: string): Promise<void> {
  await bed.serve(bed.netns("node"), "127.0.0.1", PORT);
  await bed.reachByFrontend(socket, `127.0.0.1:${PORT}`);
  const at = { address: IpAddress.parse(BIND), port: 6443 };
  const plain = await connectInside({ name: bed.netns("node") }, at, { timeoutMs: 2000 });
  const secured = await secure(plain, { host: BIND, ca: bed.ca }, { timeoutMs: 5000 });
  const { status } = await request(secured, { path: "/healthz", host: BIND }, { timeoutMs: 5000 });
  // It has no token: the API server itself has answered.
  assert.ok([200, 401].includes(status), String(status));
}

async function tunnel(t: TestContext): Promise<void> {
  const isControlPlane = {
    labels: { [CONTROL_PLANE]: "" },
    taints: [{ key: CONTROL_PLANE, effect: "NoSchedule" }],
  } as const;
  const bed = await ManifestBed.open(t, "tunnel", { outside: isControlPlane });
  giveCertificates(bed, { server: "outside", agent: "node" });
  await bed.apply("tunnel.yaml", (text) => withProxyServer(text, AT.outside[4]));
  await bed.ready("proxy-server", "proxy-agent");
  // Neither machine has what is for the other one.
  for (const [machine, name] of [
    ["node", "proxy-agent"],
    ["outside", "proxy-server"],
  ] as const)
    assert.ok(
      bed
        .node(machine)
        .ready()
        .every((pod) => pod.startsWith(name)),
      machine,
    );
  await reachThroughTunnel(bed, bed.path("outside", "run/isthmus-tunnel/frontend.sock"));
  await bed.assertWell();
}

/** The same by the static pods. */
async function staticPods(t: TestContext): Promise<void> {
  const bed = await ManifestBed.open(t, "static", { node: "static", outside: "static" });
  giveCertificates(bed, { server: "outside", agent: "node" });
  const read = (name: string): string => readFileSync(join(import.meta.dirname, "../../deploy/tunnel", name), "utf8");
  await bed.runStatic("outside", read("proxy-server.static-pod.yaml"));
  await bed.runStatic("node", withProxyServer(read("proxy-agent.static-pod.yaml"), AT.outside[4]));
  await bed.ready("proxy-server", "proxy-agent");
  await reachThroughTunnel(bed, bed.path("outside", "run/isthmus-tunnel/frontend.sock"));
  await bed.assertWell();
}

async function everything(t: TestContext): Promise<void> {
  const bed = await ManifestBed.open(t, "all", { node: { labels: { [CONTROL_PLANE]: "" } } });
  giveCertificates(bed, { server: "node", agent: "node" });
  await bed.apply("all.yaml", (text) => withOneMachine(withProxyServer(withApiServer(withDriver(text)), AT.node[4])));
  await bed.ready(
    ...["coild", "coil-ipam-controller", "coil-egress-controller", "coil-router", "service-proxy", "proxy-agent"],
    ...["proxy-server", "uplink-proxy", "nic-agent", "nic-controller"],
  );
  await bed.makePool();
  // By the executable of VPC NICs, which delegates it to coil.
  await pingEachOther(bed);
  await reachService(bed);
  await bed.assertWell();
}

const VARIANTS: readonly (readonly [string, (t: TestContext) => Promise<void>, (string | false)?])[] = [
  [
    "pods.yaml: pods reach each other; pods-router.yaml: another node's block has a route; service-proxy.yaml: a Service answers; uplink-proxy.yaml: a download works",
    podsAndMore,
  ],
  ["pods-egress.yaml: a client leaves as its Egress's router", (t) => leaveByEgress(t, "pods-egress.yaml")],
  [
    "egress-standalone.yaml: behind another interface plugin a client leaves as its Egress's router",
    (t) => leaveByEgress(t, "egress-standalone.yaml"),
  ],
  ["pods-calico.yaml: links have Calico's names", calico],
  ["nics.yaml: ports are plugged by the executables and their network, which it has installed", nics, skipWithoutOvs],
  ["tunnel.yaml: control plane and node reach each other through it", tunnel],
  ["tunnel, the static pods: control plane and node reach each other through it", staticPods],
  ["all.yaml: all parts are ready beside each other, pods get addresses, and a Service answers", everything],
];

// Most of the time is the installers' wait for runtimes.
test("deploy: each container of each variant starts as it is described and becomes ready, and no request is forbidden", {
  concurrency: true,
}, async (t) => {
  await Promise.all(VARIANTS.map(([claim, show, skip = false]) => t.test(claim, { skip }, show)));
});
