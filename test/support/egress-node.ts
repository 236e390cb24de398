/**
 * A node with NAT clients as shipped: `coil` and `coild` on a node, the router `coil-egress` in a pod of it, and a host outside that knows the router alone.
 *
 * Owns: all of these, removed after the test. Does not know: what tests claim.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, Socket } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { openKernel } from "#kernel/net";
import { listenTcp, openTcp } from "#kernel/socket";
import {
  type ClusterRoleBinding,
  type Deployment,
  type Draft,
  type EndpointSlice,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type Pod,
  type ResourceType,
  resources,
  type Service,
} from "#kube/client";
import { coilResources, egressLabels, egressSelector } from "#kube/coil";
import { CniNode, NODE, NODE_IPV4, NODE_IPV6, OUTSIDE_IPV4, OUTSIDE_IPV6 } from "#test/cni-node";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { TcpGate } from "#test/tcp-gate";

export const EGRESS = { namespace: "internet", name: "nat" };
export const VXLAN = "--tunnel-driver=vxlan";
const PORT = 8000;
/** A second host outside, of each family; the first is that of the node's link. */
export const FAR = { 4: "203.0.113.50", 6: "2001:db8:9::50" } as const;
export const NEAR = { 4: OUTSIDE_IPV4, 6: OUTSIDE_IPV6 } as const;
export const FAMILIES: readonly IpFamily[] = [4, 6];
const ANSWER_MS = 500;
/** A try that is too early gets no answer; the next one should not be late. */
const TRY_MS = 150;
const PLUGINS = "/usr/lib/cni";

type Addresses = Readonly<Record<IpFamily, string>>;

/** The output of `isthmus audit --json`. */
export interface AuditAnswer {
  readonly ok: boolean;
  readonly findings: readonly { readonly kind: string; readonly node?: string; readonly text: string }[];
  readonly checked: { readonly egress?: Readonly<Record<string, number>> };
  readonly notes: readonly string[];
}

/** A node with a router. `isChained`: pods get their interfaces by `ptp`. */
export async function openEgressNode(t: TestContext, { isChained = false, more = [] as readonly string[] } = {}) {
  const kernel = openKernel();
  const chained = ["--enable-ipam=false", "--pod-table-id=0", "--protocol-id=2"];
  const coildFlags = [VXLAN, ...(isChained ? chained : []), ...more];
  const rights = join(import.meta.dirname, "../../deploy/pods", isChained ? "rbac-chained.yaml" : "rbac.yaml");
  const node = await CniNode.open(`clients${isChained ? "-ptp" : ""}`, coildFlags, rights);
  const spaces = new Map<string, string>();
  const sockets = new Set<Socket>();
  const running: Running[] = [];
  const closers: (() => unknown)[] = [];
  t.after(async () => {
    for (const one of running) one.child.kill("SIGKILL");
    await Promise.all(running.map((one) => one.ended));
    for (const socket of sockets) socket.destroy();
    for (const close of closers) await close();
    await node[Symbol.asyncDispose]();
    for (const name of spaces.values()) if (kernel.listNetNs().includes(name)) kernel.deleteNetNs(name);
  });
  const ip = (space: string, ...args: readonly string[]): string =>
    execFileSync("ip", ["-n", space, ...args], { encoding: "utf8" });
  for (const address of Object.values(FAR)) {
    ip(node.outside, "address", "add", address, "dev", "lo", ...(address.includes(":") ? ["nodad"] : []));
    ip(node.netns, "route", "add", address, "via", address.includes(":") ? OUTSIDE_IPV6 : OUTSIDE_IPV4);
  }
  for (const key of ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"])
    execFileSync("nsenter", [`--net=/run/netns/${node.netns}`, "sysctl", "-qw", `${key}=1`]);

  /** The router is a pod of the Egress's namespace. */
  const namespaceOf = (pod: string): string => (pod === "router" ? EGRESS.namespace : "default");
  /** Runs a plugin as a runtime does. */
  const plugin = async (executable: string, command: string, pod: string, config: object) => {
    const env = {
      CNI_COMMAND: command,
      CNI_CONTAINERID: `c-${pod}`,
      CNI_NETNS: `/run/netns/${spaces.get(pod)}`,
      CNI_IFNAME: "eth0",
      CNI_PATH: PLUGINS,
      CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespaceOf(pod)};K8S_POD_NAME=${pod}`,
    };
    const input = Buffer.from(JSON.stringify({ cniVersion: "1.0.0", name: "net", ...config }));
    const { code, stdout } = await start(node.inside(executable), { env, input }).ended;
    return { code, json: stdout.trim() === "" ? undefined : (JSON.parse(stdout) as Record<string, unknown>) };
  };
  const ranges = [[{ subnet: "10.77.0.0/24" }], [{ subnet: "fd77::/64" }]];
  const routes = [{ dst: "0.0.0.0/0" }, { dst: "::/0" }];
  const ptp = { type: "ptp", ipam: { type: "host-local", ranges, routes, dataDir: join(node.folder, "ipam") } };
  /** ADD of an existing Pod. */
  const add = async (pod: string) => {
    if (!spaces.has(pod)) {
      const name = `isthmus-clients-${process.pid}-${pod}`;
      kernel.createNetNs(name)[Symbol.dispose]();
      ip(name, "link", "set", "lo", "up");
      spaces.set(pod, name);
    }
    const coil = { type: "coil", socket: node.socket };
    if (!isChained) return plugin(node.plugin, "ADD", pod, coil);
    const made = await plugin(join(PLUGINS, "ptp"), "ADD", pod, ptp);
    assert.equal(made.code, 0, JSON.stringify(made.json));
    return plugin(node.plugin, "ADD", pod, { ...coil, prevResult: made.json });
  };
  const del = async (pod: string) => {
    const done = await plugin(node.plugin, "DEL", pod, { type: "coil", socket: node.socket });
    if (isChained) await plugin(join(PLUGINS, "ptp"), "DEL", pod, ptp);
    return done;
  };
  const makePod = (name: string, names?: string, nodeName = NODE): Promise<Pod> =>
    node.api.create(resources.pods, {
      metadata: {
        name,
        namespace: namespaceOf(name),
        ...(name === "router" ? { labels: egressLabels(EGRESS.name) } : {}),
        annotations: names === undefined ? {} : { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: names },
      },
      spec: { nodeName, terminationGracePeriodSeconds: 0, containers: [{ name: "c", image: "none" }] },
    } as Draft<Pod>);
  /** A pod that runs. */
  const run = async (name: string, names?: string): Promise<Addresses> => {
    const made = await makePod(name, names);
    const added = await add(name);
    assert.equal(added.code, 0, JSON.stringify(added.json));
    const ips = ((added.json?.["ips"] ?? []) as readonly { readonly address: string }[]).map(
      ({ address }) => address.split("/")[0] ?? "",
    );
    const status = { phase: "Running", podIPs: ips.map((one) => ({ ip: one })) };
    await node.api.replaceStatus(resources.pods, { ...made, status });
    const ofFamily = (family: IpFamily): string =>
      ips.find((one) => one.includes(":") === (family === 6)) ?? assert.fail();
    return { 4: ofFamily(4), 6: ofFamily(6) };
  };

  for (const family of FAMILIES) {
    for (const address of [NEAR[family], FAR[family]]) {
      const server = createServer((socket) => {
        sockets.add(socket);
        socket.on("error", () => socket.destroy());
        socket.write(`${socket.remoteAddress}\n`);
        socket.pipe(socket);
      });
      using outside = kernel.openNetNs({ name: node.outside });
      server.listen({ fd: listenTcp(IpAddress.parse(address), PORT, { netns: outside }) });
      await once(server, "listening");
      closers.push(() => server.close());
    }
  }
  /** A server in a pod, which answers as those outside, and the way to it from outside. */
  const serveIn = async (pod: string, addresses: Addresses): Promise<void> => {
    using netns = kernel.openNetNs({ name: spaces.get(pod) ?? assert.fail(pod) });
    for (const family of FAMILIES) {
      const server = createServer((socket) => {
        sockets.add(socket);
        socket.on("error", () => socket.destroy());
        socket.write(`${socket.remoteAddress}\n`);
      });
      server.listen({ fd: listenTcp(IpAddress.parse(addresses[family]), PORT, { netns }) });
      await once(server, "listening");
      closers.push(() => server.close());
      ip(node.outside, "route", "add", addresses[family], "via", family === 4 ? NODE_IPV4 : NODE_IPV6);
    }
  };
  /** Resolves with true if a host outside gets an answer from a pod. */
  const isReached = async (host: string): Promise<boolean> => {
    using netns = kernel.openNetNs({ name: node.outside });
    const socket = new Socket({ fd: openTcp(host.includes(":") ? 6 : 4, { netns }) });
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.connect({ host, port: PORT });
    try {
      await once(socket, "data", { signal: AbortSignal.timeout(ANSWER_MS) });
      return true;
    } catch {
      return false;
    } finally {
      socket.destroy();
    }
  };
  const dial = (pod: string, host: string): Socket => {
    using netns = kernel.openNetNs({ name: spaces.get(pod) ?? assert.fail(pod) });
    const socket = new Socket({ fd: openTcp(host.includes(":") ? 6 : 4, { netns }) });
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.connect({ host, port: PORT });
    return socket;
  };
  /** The address that a host outside sees of a pod; `none`: no answer, as for every source but the router. */
  const seen = async (pod: string, host: string, answerMs = ANSWER_MS): Promise<string> => {
    const socket = dial(pod, host);
    try {
      const [line] = (await once(socket, "data", { signal: AbortSignal.timeout(answerMs) })) as [Buffer];
      return String(line).trim();
    } catch {
      return "none";
    } finally {
      socket.destroy();
    }
  };
  /** A stream, and a check that it echoes. */
  const stream = async (pod: string, host: string): Promise<() => Promise<void>> => {
    const socket = dial(pod, host);
    await once(socket, "data", { signal: AbortSignal.timeout(5000) });
    return async () => {
      socket.write("again");
      const [back] = (await once(socket, "data", { signal: AbortSignal.timeout(5000) })) as [Buffer];
      assert.equal(String(back), "again");
    };
  };
  const sees = (pod: string, host: string, source: string, deadlineMs = 5000): Promise<void> =>
    until(`${host} sees ${source} of ${pod}`, async () => (await seen(pod, host, TRY_MS)) === source, {
      deadlineMs,
      everyMs: 20,
      seen: () => `${ip(spaces.get(pod) ?? "", "route", "show", "table", "all")}\n${node.said()}`,
    });

  await node.api.create(resources.namespaces, { metadata: { name: EGRESS.namespace } });
  const router = await run("router");
  for (const family of FAMILIES)
    ip(node.outside, "route", "add", router[family], "via", family === 4 ? NODE_IPV4 : NODE_IPV6);
  const [here = ""] = node.server.urls;
  /** A way from a namespace to the API server, at a port of its loopback, which can be shut. */
  const gateIn = async (space: string, port: number): Promise<TcpGate> => {
    const behind = { host: "127.0.0.1", port: Number(new URL(here).port) };
    const gate = await TcpGate.open(behind, () => {
      using netns = kernel.openNetNs({ name: space });
      return listenTcp(IpAddress.parse("127.0.0.1"), port, { netns });
    });
    closers.push(() => gate[Symbol.asyncDispose]());
    return gate;
  };
  const routerGate = await gateIn(spaces.get("router") ?? assert.fail(), 6443);
  const env = {
    COIL_POD_ADDRESSES: `${router[4]},${router[6]}`,
    COIL_POD_NAMESPACE: EGRESS.namespace,
    COIL_EGRESS_NAME: EGRESS.name,
    HOSTNAME: "nat-1",
  };
  const argv = [`--kubeconfig=${join(node.folder, "kubeconfig")}`, VXLAN, "--backend=nftables"];
  /** Starts the router's process; the namespace may have what an earlier one made. */
  const startRouter = async (): Promise<Running> => {
    const inside = ["nsenter", `--net=/run/netns/${spaces.get("router")}`, ISTHMUS, "coil-egress", ...argv];
    const egress = start(inside, { env, timeoutMs: 300_000 });
    running.push(egress);
    await until("the router has started", () => egress.said().includes('"started"'), { seen: egress.said });
    return egress;
  };
  const egress = await startRouter();

  const makeEgress = (destinations: readonly string[]) =>
    node.api.create(coilResources.egresses, {
      metadata: EGRESS,
      spec: { destinations, template: { spec: { containers: [{ name: "egress" }] } } },
    } as never);
  const destinations = (all: readonly string[]) =>
    node.api.patch(coilResources.egresses, EGRESS, { type: "merge", body: { spec: { destinations: all } } });
  /** The Service, and on the node what kube-proxy does for it. `annotations`: those of a Service that a `service-proxy` serves: then the node gets no rules. */
  const makeService = async (annotations?: Readonly<Record<string, string>>): Promise<readonly string[]> => {
    const { spec } = await node.api.create(resources.services, {
      metadata: { ...EGRESS, labels: egressLabels(EGRESS.name), annotations: annotations ?? {} },
      spec: {
        selector: egressLabels(EGRESS.name),
        ipFamilyPolicy: "RequireDualStack",
        ports: [{ port: 5555, protocol: "UDP" }],
      },
    } as unknown as Draft<Service>);
    const addresses = spec?.clusterIPs ?? [];
    if (annotations !== undefined) return addresses;
    const rules = addresses.map((address) =>
      address.includes(":")
        ? `ip6 daddr ${address} udp dport 5555 dnat ip6 to [${router[6]}]:5555`
        : `ip daddr ${address} udp dport 5555 dnat ip to ${router[4]}:5555`,
    );
    const file = join(node.folder, "service.nft");
    const chain = "type nat hook prerouting priority dstnat;";
    const text = [
      "table inet service",
      "delete table inet service",
      "table inet service {",
      "chain pre {",
      chain,
      ...rules,
      "}",
      "}",
    ];
    writeFileSync(file, `${text.join("\n")}\n`);
    execFileSync("nsenter", [`--net=/run/netns/${node.netns}`, "nft", "-f", file]);
    return addresses;
  };
  const annotate = (pod: string, names: string | null) =>
    node.api.patch(
      resources.pods,
      { namespace: "default", name: pod },
      { type: "merge", body: { metadata: { annotations: { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: names } } } },
    );
  /** Returns the kernel objects of a NAT client in a pod. */
  const leftIn = (pod: string): string => {
    const space = spaces.get(pod) ?? assert.fail(pod);
    const links = ip(space, "-o", "link").match(/(nat|fou[46])_[0-9a-f]{8}|coil_ipip[46]/g) ?? [];
    const parts = ["-4", "-6"].flatMap((family) => [
      ...(ip(space, family, "rule").match(/^(18|19|20|21)\d\d:.*$/gm) ?? []),
      ip(space, family, "route", "show", "table", "all").match(/^.*table 11[78].*$/gm) ?? [],
    ]);
    return [...links, ...parts.flat()].join("\n");
  };
  /** Resolves with true if coild's account may list objects of a kind. */
  const mayList = async (type: ResourceType<KubeObject>): Promise<boolean> => {
    const file = join(node.folder, "as-coild");
    writeFileSync(file, node.server.kubeconfig({ server: node.server.urls[0] ?? "", token: "coild" }));
    await using api = new KubeClient(await loadKubeConfig({ path: file, clock: systemClock }), { clock: systemClock });
    try {
      await api.listAll(type);
      return true;
    } catch (error) {
      if (isKubeError(error, "forbidden")) return false;
      throw error;
    }
  };
  /** Makes the objects that the controllers of a cluster make for the Egress, and its status. */
  const completeEgress = async (): Promise<void> => {
    const metadata = { ...EGRESS, labels: egressLabels(EGRESS.name) };
    const containers = [{ name: "egress", image: "none" }];
    const made = await node.api.create(resources.deployments, {
      metadata,
      spec: {
        replicas: 1,
        selector: { matchLabels: egressLabels(EGRESS.name) },
        template: { metadata: { labels: egressLabels(EGRESS.name) }, spec: { containers } },
      },
    } as unknown as Draft<Deployment>);
    await node.api.replaceStatus(resources.deployments, { ...made, status: { replicas: 1, availableReplicas: 1 } });
    const egress = await node.api.get(coilResources.egresses, EGRESS);
    const selector = egressSelector(EGRESS.name);
    await node.api.replaceStatus(coilResources.egresses, { ...egress, status: { replicas: 1, selector } });
    await node.api.create(resources.endpointSlices, {
      metadata: {
        name: "nat-routers",
        namespace: EGRESS.namespace,
        labels: { "kubernetes.io/service-name": EGRESS.name },
      },
      addressType: "IPv4",
      ports: [{ name: "", port: 5555, protocol: "UDP" }],
      endpoints: [{ addresses: [router[4]], conditions: { ready: true }, nodeName: NODE }],
    } as unknown as Draft<EndpointSlice>);
    const name = "coil-egress";
    await node.api.create(resources.clusterRoleBindings, {
      metadata: { name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
      subjects: [{ kind: "ServiceAccount", name, namespace: EGRESS.namespace }],
    } as unknown as Draft<ClusterRoleBinding>);
  };
  /** `isthmus audit` on the node, as root. `kubeconfig`: a file of the node's folder. */
  const audit = async (kubeconfig = "kubeconfig"): Promise<AuditAnswer> => {
    const argv = [
      ISTHMUS,
      "audit",
      "--json",
      `--kubeconfig=${join(node.folder, kubeconfig)}`,
      `--socket=${node.socket}`,
    ];
    const { code, stdout, stderr } = await start(node.inside(...argv)).ended;
    assert.match(stdout, /^\{/, stderr);
    const answer = JSON.parse(stdout) as AuditAnswer;
    assert.equal(code, answer.ok ? 0 : 1, stderr);
    return answer;
  };
  /** Waits until the audit finds nothing, as it does when no change is under way. */
  const isClean = async (): Promise<AuditAnswer> => {
    let last = await audit();
    const look = async (): Promise<boolean> => {
      last = await audit();
      return last.ok;
    };
    if (!last.ok)
      await until("the audit finds nothing", look, {
        deadlineMs: 10_000,
        seen: () => JSON.stringify(last.findings, null, 1),
      });
    assert.deepEqual(last.notes, []);
    return last;
  };
  const space = (pod: string): string => spaces.get(pod) ?? assert.fail(pod);
  /** Removes the network namespace of a pod; its next ADD makes another one. */
  const dropSpace = (pod: string): void => {
    kernel.deleteNetNs(space(pod));
    spaces.delete(pod);
  };
  return {
    node,
    kernel,
    dropSpace,
    router,
    coildFlags,
    ip,
    add,
    del,
    makePod,
    run,
    seen,
    sees,
    stream,
    makeEgress,
    destinations,
    makeService,
    annotate,
    leftIn,
    serveIn,
    isReached,
    gateIn,
    routerGate,
    /** The process of the router. */
    routerProcess: egress,
    startRouter,
    mayList,
    space,
    completeEgress,
    audit,
    isClean,
  };
}
