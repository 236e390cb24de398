/** deploy/coil as it stands: applied with its own commands, each container started as a kubelet would, with the rights of deploy/pods alone. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parse } from "yaml";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { listenTcp, openTcp } from "#kernel/socket";
import { type Draft, findObject, isKubeError, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { type AddressPool, coilResources, type Egress } from "#kube/coil";
import { startApiServer } from "#lab/api-server";
import { connectInside } from "#lab/inside";
import { runWorkloads } from "#lab/workloads";
import { start, until } from "#test/lab";
import { ManifestNode } from "#test/manifest-node";

const root = join(import.meta.dirname, "../..");
const NODE = "manifest-node";
const KUBERNETES = "10.96.0.1";
const AT = {
  node: { 4: "198.51.100.2", 6: "2001:db8:1::2" },
  outside: { 4: "198.51.100.1", 6: "2001:db8:1::1" },
} as const;
const FAMILIES: readonly IpFamily[] = [4, 6];
const PORT = 8000;
const NAT = { namespace: "internet", name: "nat" };
const WEBHOOKS: Readonly<Record<string, number>> = {
  "coilv2-ipam-webhook-service": 9443,
  "coilv2-egress-webhook-service": 9444,
};
const ACCOUNTS = [
  "kube-system/coild",
  "kube-system/coil-router",
  "kube-system/coil-ipam-controller",
  "kube-system/coil-egress-controller",
  "internet/coil-egress",
  "internet/default",
  "default/default",
];

/** The commands of a file's head. */
function commandsOf(file: string): string[] {
  const lines = readFileSync(join(root, "deploy/coil", file), "utf8").split("\n");
  return lines.flatMap((line) => /^# {5}(kubectl .*)$/.exec(line)?.[1] ?? []);
}

/** A node of an empty cluster, to which files of deploy/coil are applied; `edit` changes their text before. */
async function open(t: TestContext, name: string, files: readonly string[], edit = (text: string) => text) {
  const kernel = openKernel();
  const folder = mkdtempSync(join(tmpdir(), `isthmus-manifests-${name}-`));
  const stop = new AbortController();
  const closers: (() => unknown)[] = [];
  t.after(async () => {
    stop.abort();
    for (const close of closers.toReversed()) await close();
    rmSync(folder, { recursive: true, force: true });
  });
  const [node, outside] = ["node", "outside"].map((one) => `isthmus-manifests-${process.pid}-${name}-${one}`) as [
    string,
    string,
  ];
  const ip = (space: string, ...args: readonly string[]): string =>
    execFileSync("ip", ["-n", space, ...args], { encoding: "utf8" });
  for (const space of [node, outside]) {
    kernel.createNetNs(space)[Symbol.dispose]();
    closers.push(() => kernel.deleteNetNs(space));
    ip(space, "link", "set", "lo", "up");
  }
  ip(node, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", outside);
  for (const [space, { 4: v4, 6: v6 }] of [
    [node, AT.node],
    [outside, AT.outside],
  ] as const) {
    ip(space, "link", "set", "eth0", "up");
    ip(space, "address", "add", `${v4}/24`, "dev", "eth0");
    ip(space, "address", "add", `${v6}/64`, "dev", "eth0", "nodad");
  }
  ip(node, "address", "add", `${KUBERNETES}/32`, "dev", "lo");
  using inside = kernel.openNetNs({ name: node });
  const fd = listenTcp(IpAddress.parse(KUBERNETES), 443, { netns: inside });

  // What kube-proxy does for the Services of webhooks.
  const ports = new Map<string, number>();
  for (const [service, port] of Object.entries(WEBHOOKS)) {
    const relay = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      connectInside({ name: node }, { address: IpAddress.parse(AT.node[4]), port }, { timeoutMs: 2000 }).then(
        (to) => {
          to.on("error", () => socket.destroy());
          socket.on("close", () => to.destroy());
          socket.pipe(to).pipe(socket);
        },
        () => socket.destroy(),
      );
    }).listen(0, "127.0.0.1");
    await once(relay, "listening");
    closers.push(() => relay.close());
    ports.set(service, (relay.address() as { readonly port: number }).port);
  }
  const users = ACCOUNTS.map((account) => {
    const [namespace = "", one = ""] = account.split("/");
    const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"];
    return [account, { name: `system:serviceaccount:${namespace}:${one}`, groups }] as const;
  });
  const server = await startApiServer({
    listen: [
      { host: "127.0.0.1", port: 0 },
      { fd, host: KUBERNETES },
    ],
    tls: "self-signed",
    tlsHosts: [KUBERNETES],
    tokens: { admin: { name: "admin", groups: ["system:masters"] }, ...Object.fromEntries(users) },
    webhooks: ({ name: service }) => {
      const port = ports.get(service);
      return port === undefined ? undefined : { host: "127.0.0.1", port };
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

  // The operator's part.
  cpSync(join(root, "deploy"), join(folder, "deploy"), { recursive: true });
  for (const file of readdirSync(join(folder, "deploy/coil"))) {
    const path = join(folder, "deploy/coil", file);
    writeFileSync(path, edit(readFileSync(path, "utf8")));
  }
  for (const command of files.flatMap(commandsOf)) {
    const { code, stderr } = await start(["sh", "-ec", `cd ${folder}; ${command}`], { env: { KUBECONFIG: kubeconfig } })
      .ended;
    assert.equal(code, 0, `${command}: ${stderr}`);
    assert.doesNotMatch(stderr, /warning/i);
  }
  const made = await api.create(resources.nodes, { metadata: { name: NODE } });
  const addresses = FAMILIES.map((family) => ({ type: "InternalIP" as const, address: AT.node[family] }));
  const conditions = [{ type: "Ready", status: "True" }];
  await api.replaceStatus(resources.nodes, { ...made, status: { addresses, conditions } } as never);
  const workloads = runWorkloads({ api, log: nullLogger, clock: systemClock }, { signal: stop.signal });
  closers.push(() => workloads.catch(() => undefined));
  const pods = new ManifestNode(api, {
    name: NODE,
    netns: node,
    addresses: Object.values(AT.node),
    folder,
    image: { containerfile: join(root, "deploy/coil/Containerfile"), context: root },
    apiServer: { host: KUBERNETES, port: 443, ca },
    tokenOf: (namespace, account) => `${namespace}/${account}`,
  });
  closers.push(() => pods[Symbol.asyncDispose]());
  const all = () => `${pods.unready().join(", ")}\n${pods.said()}`;
  /** Waits until one pod of each name's beginning is ready. */
  const ready = async (...names: readonly string[]): Promise<void> => {
    const isThere = (one: string): boolean => pods.ready().some((pod) => pod.startsWith(one));
    await until(`${names.join(", ")}: ready`, () => names.every(isThere), { seen: all });
  };
  const run = async (pod: string, annotations: Readonly<Record<string, string>> = {}) => {
    await api.create(resources.pods, {
      metadata: { namespace: "default", name: pod, annotations },
      spec: { nodeName: NODE, containers: [{ name: "c", image: "none", command: ["sleep", "300"] }] },
    } as unknown as Draft<Pod>);
    await ready(pod);
    return pods.find(pod) ?? assert.fail(pod);
  };
  const ofFamily = (ips: readonly string[], family: IpFamily): string =>
    ips.find((one) => one.includes(":") === (family === 6)) ?? assert.fail(ips.join());
  /** A host outside that tells whom it sees. */
  const serve = async (): Promise<void> => {
    using netns = kernel.openNetNs({ name: outside });
    for (const family of FAMILIES) {
      const one = createServer((socket) => {
        socket.on("error", () => socket.destroy());
        socket.end(`${socket.remoteAddress}`);
      });
      one.listen({ fd: listenTcp(IpAddress.parse(AT.outside[family]), PORT, { netns }) });
      await once(one, "listening");
      closers.push(() => one.close());
    }
  };
  const seen = async (space: string, family: IpFamily): Promise<string> => {
    using netns = kernel.openNetNs({ name: space });
    const socket = new Socket({ fd: openTcp(family, { netns }) });
    socket.on("error", () => socket.destroy());
    socket.connect({ host: AT.outside[family], port: PORT });
    try {
      const [bytes] = (await once(socket, "data", { signal: AbortSignal.timeout(500) })) as [Buffer];
      return String(bytes);
    } catch {
      return "none";
    } finally {
      socket.destroy();
    }
  };
  /** Creates an object as soon as its webhooks answer. */
  const create = (what: string, make: () => Promise<unknown>): Promise<void> =>
    until(
      `${what} is accepted`,
      async () => {
        try {
          await make();
          return true;
        } catch (error) {
          if (isKubeError(error, "server") || isKubeError(error, "not-found")) return false;
          throw error;
        }
      },
      { seen: all },
    );
  const makePool = (): Promise<void> =>
    create("the pool", () => {
      const subnets = [{ ipv4: "10.210.0.0/26", ipv6: "fd00:210::/122" }];
      const pool = { metadata: { name: "default" }, spec: { blockSizeBits: 2, subnets } };
      return api.create(coilResources.addressPools, pool as Draft<AddressPool>);
    });
  const makeEgress = async (): Promise<void> => {
    await api.create(resources.namespaces, { metadata: { name: NAT.namespace } });
    await create("the Egress", () =>
      api.create(coilResources.egresses, {
        metadata: NAT,
        spec: { destinations: FAMILIES.map((family) => `${AT.outside[family]}/${family === 4 ? 32 : 128}`) },
      } as Draft<Egress>),
    );
  };
  /** What kube-proxy does for the Service of the Egress. */
  const forward = async (ips: readonly string[]): Promise<void> => {
    const { spec } = await api.get(resources.services, NAT);
    const clusterIPs = spec?.clusterIPs ?? [];
    assert.equal(clusterIPs.length, 2);
    const rules = clusterIPs.map((one) =>
      one.includes(":")
        ? `ip6 daddr ${one} udp dport 5555 dnat ip6 to [${ofFamily(ips, 6)}]:5555`
        : `ip daddr ${one} udp dport 5555 dnat ip to ${ofFamily(ips, 4)}:5555`,
    );
    const text = [
      "table inet service {",
      "chain pre {",
      "type nat hook prerouting priority dstnat;",
      ...rules,
      "}",
      "}",
    ];
    writeFileSync(join(folder, "service.nft"), `${text.join("\n")}\n`);
    execFileSync("nsenter", [`--net=/run/netns/${node}`, "nft", "-f", join(folder, "service.nft")]);
    for (const family of FAMILIES) ip(outside, "route", "add", ofFamily(ips, family), "via", AT.node[family]);
  };
  return { api, pods, ready, run, ofFamily, serve, seen, makePool, makeEgress, forward, all, node, ip };
}

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

/** The one flag that kernels without FoU need, at the end of the arguments of coild and of the controller of Egresses. */
const withVxlan = (text: string): string =>
  text.replaceAll(/(command: \[(?:coild|coil-egress-controller)\]\n +args:\n)( +)/g, "$1$2- --tunnel-driver=vxlan\n$2");

const SETS = {
  "pods and Egresses": { files: ["pods.yaml", "router.yaml", "egress.yaml"], isChained: false },
  "Egresses behind another plugin": { files: ["chained.yaml", "egress.yaml"], isChained: true },
} as const;

/** Applies a set, and follows a packet of a client. */
async function follow(t: TestContext, { files, isChained }: (typeof SETS)[keyof typeof SETS]): Promise<void> {
  const bed = await open(t, isChained ? "ptp" : "coil", files, lacksFou() ? withVxlan : undefined);
  const { api, pods, ofFamily } = bed;
  const own = isChained ? ["coild"] : ["coild", "coil-router", "coil-ipam-controller"];
  await bed.ready(...own, "coil-egress-controller");
  if (!isChained) await bed.makePool();
  await bed.makeEgress();
  await bed.ready("nat-");
  const router = pods.find("nat-") ?? assert.fail();
  await bed.forward(router.ips);
  await bed.serve();
  const plain = await bed.run("plain");
  const client = await bed.run("client", { [`egress.coil.cybozu.com/${NAT.namespace}`]: NAT.name });
  for (const family of FAMILIES) {
    await until(
      "the outside sees the router",
      async () => (await bed.seen(client.netns, family)) === ofFamily(router.ips, family),
      { deadlineMs: 5000, seen: bed.all },
    );
    assert.equal(await bed.seen(plain.netns, family), "none");
  }
  await until(
    "the Egress counts its router",
    async () => (await findObject(api, coilResources.egresses, NAT))?.status?.replicas === 1,
  );
  assert.equal(await pods.alive(), true);
  assert.doesNotMatch(pods.said(), /forbidden|because of a bug/i);
}

/** Without FoU in the kernel all but the routers work, and these say why they do not. */
async function unchanged(t: TestContext): Promise<void> {
  const bed = await open(t, "as-is", SETS["pods and Egresses"].files);
  await bed.ready("coild", "coil-router", "coil-ipam-controller", "coil-egress-controller");
  await bed.makePool();
  const plain = await bed.run("plain");
  assert.match(bed.ofFamily(plain.ips, 4), /^10\.210\.0\./);
  await bed.makeEgress();
  if (!lacksFou()) return bed.ready("nat-");
  await until(
    "the router names what is lacking",
    () => bed.pods.said().includes("choose --tunnel-driver=vxlan or auto"),
    { seen: bed.all },
  );
  assert.doesNotMatch(bed.pods.said(), /forbidden|because of a bug/i);
}

const CLAIM =
  "deploy/coil: each container starts as it is described and becomes ready, a pod gets its address, an Egress its router, and a client leaves as that";
// Most of the time is the installer's wait for runtimes.
test(CLAIM, { concurrency: true }, async (t) => {
  const sets = Object.entries(SETS).map(([what, set]) => t.test(what, (inner) => follow(inner, set)));
  await Promise.all([...sets, t.test("not a letter changed, on any kernel", unchanged)]);
});
