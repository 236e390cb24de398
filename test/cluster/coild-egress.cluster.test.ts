/** NAT clients as shipped: `coil` and `coild` on a node, the router `coil-egress` in a pod of it, and a host outside that knows the router alone. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect, createServer, Socket } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { openKernel } from "#kernel/net";
import { listenTcp, openTcp } from "#kernel/socket";
import {
  type Draft,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type Pod,
  type ResourceType,
  resources,
  type Service,
} from "#kube/client";
import { coilResources, egressLabels } from "#kube/coil";
import { CniNode, NODE, NODE_IPV4, NODE_IPV6, OUTSIDE_IPV4, OUTSIDE_IPV6 } from "#test/cni-node";
import { ISTHMUS, type Running, start, until } from "#test/lab";

const EGRESS = { namespace: "internet", name: "nat" };
const VXLAN = "--tunnel-driver=vxlan";
const PORT = 8000;
/** A second host outside, of each family; the first is that of the node's link. */
const FAR = { 4: "203.0.113.50", 6: "2001:db8:9::50" } as const;
const NEAR = { 4: OUTSIDE_IPV4, 6: OUTSIDE_IPV6 } as const;
const FAMILIES: readonly IpFamily[] = [4, 6];
const ANSWER_MS = 500;
const PLUGINS = "/usr/lib/cni";

type Addresses = Readonly<Record<IpFamily, string>>;

/** A node with a router. `isChained`: pods get their interfaces by `ptp`. */
async function open(t: TestContext, { isChained = false, more = [] as readonly string[] } = {}) {
  const kernel = openKernel();
  const chained = ["--enable-ipam=false", "--pod-table-id=0", "--protocol-id=2"];
  const coildFlags = [VXLAN, ...(isChained ? chained : []), ...more];
  const rights = join(import.meta.dirname, "../../deploy/pods", isChained ? "rbac-chained.yaml" : "rbac.yaml");
  const node = await CniNode.open(`clients${isChained ? "-ptp" : ""}`, coildFlags, rights);
  const spaces = new Map<string, string>();
  const sockets = new Set<Socket>();
  const running: Running[] = [];
  const closers: (() => void)[] = [];
  t.after(async () => {
    for (const one of running) one.child.kill("SIGKILL");
    await Promise.all(running.map((one) => one.ended));
    for (const socket of sockets) socket.destroy();
    for (const close of closers) close();
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

  /** Runs a plugin as a runtime does. */
  const plugin = async (executable: string, command: string, pod: string, config: object) => {
    const env = {
      CNI_COMMAND: command,
      CNI_CONTAINERID: `c-${pod}`,
      CNI_NETNS: `/run/netns/${spaces.get(pod)}`,
      CNI_IFNAME: "eth0",
      CNI_PATH: PLUGINS,
      CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=${pod}`,
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
  const del = (pod: string) => plugin(node.plugin, "DEL", pod, { type: "coil", socket: node.socket });
  const makePod = (name: string, names?: string): Promise<Pod> =>
    node.api.create(resources.pods, {
      metadata: {
        name,
        namespace: "default",
        annotations: names === undefined ? {} : { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: names },
      },
      spec: { nodeName: NODE, terminationGracePeriodSeconds: 0, containers: [{ name: "c", image: "none" }] },
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
  /** Whether a host outside gets an answer from a pod. */
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
  const seen = async (pod: string, host: string): Promise<string> => {
    const socket = dial(pod, host);
    try {
      const [line] = (await once(socket, "data", { signal: AbortSignal.timeout(ANSWER_MS) })) as [Buffer];
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
    until(`${host} sees ${source} of ${pod}`, async () => (await seen(pod, host)) === source, {
      deadlineMs,
      everyMs: 20,
      seen: () => `${ip(spaces.get(pod) ?? "", "route", "show", "table", "all")}\n${node.said()}`,
    });

  await node.api.create(resources.namespaces, { metadata: { name: EGRESS.namespace } });
  const router = await run("router");
  for (const family of FAMILIES)
    ip(node.outside, "route", "add", router[family], "via", family === 4 ? NODE_IPV4 : NODE_IPV6);
  // The router's way to the API server.
  const [here = ""] = node.server.urls;
  using routerNetns = kernel.openNetNs({ name: spaces.get("router") ?? assert.fail() });
  const relay = createServer((socket) => {
    const to = connect({ host: "127.0.0.1", port: Number(new URL(here).port) });
    for (const [one, other] of [
      [socket, to],
      [to, socket],
    ] as const) {
      sockets.add(one);
      one.on("error", () => other.destroy());
      one.pipe(other);
    }
  });
  relay.listen({ fd: listenTcp(IpAddress.parse("127.0.0.1"), 6443, { netns: routerNetns }) });
  await once(relay, "listening");
  closers.push(() => relay.close());
  const env = {
    COIL_POD_ADDRESSES: `${router[4]},${router[6]}`,
    COIL_POD_NAMESPACE: EGRESS.namespace,
    COIL_EGRESS_NAME: EGRESS.name,
    HOSTNAME: "nat-1",
  };
  const argv = [`--kubeconfig=${join(node.folder, "kubeconfig")}`, VXLAN, "--backend=nftables"];
  const egress = start(["nsenter", `--net=/run/netns/${spaces.get("router")}`, ISTHMUS, "coil-egress", ...argv], {
    env,
    timeoutMs: 300_000,
  });
  running.push(egress);
  await until("the router has started", () => egress.said().includes('"started"'), { seen: egress.said });

  const makeEgress = (destinations: readonly string[]) =>
    node.api.create(coilResources.egresses, {
      metadata: EGRESS,
      spec: { destinations, template: { spec: { containers: [{ name: "egress" }] } } },
    } as never);
  const destinations = (all: readonly string[]) =>
    node.api.patch(coilResources.egresses, EGRESS, { type: "merge", body: { spec: { destinations: all } } });
  /** The Service, and on the node what kube-proxy does for it. */
  const makeService = async (): Promise<readonly string[]> => {
    const { spec } = await node.api.create(resources.services, {
      metadata: { ...EGRESS, labels: egressLabels(EGRESS.name) },
      spec: {
        selector: egressLabels(EGRESS.name),
        ipFamilyPolicy: "RequireDualStack",
        ports: [{ port: 5555, protocol: "UDP" }],
      },
    } as unknown as Draft<Service>);
    const addresses = spec?.clusterIPs ?? [];
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
  /** What a pod has of a NAT client. */
  const leftIn = (pod: string): string => {
    const space = spaces.get(pod) ?? assert.fail(pod);
    const links = ip(space, "-o", "link").match(/(nat|fou[46])_[0-9a-f]{8}|coil_ipip[46]/g) ?? [];
    const parts = ["-4", "-6"].flatMap((family) => [
      ...(ip(space, family, "rule").match(/^(18|19|20|21)\d\d:.*$/gm) ?? []),
      ip(space, family, "route", "show", "table", "all").match(/^.*table 11[78].*$/gm) ?? [],
    ]);
    return [...links, ...parts.flat()].join("\n");
  };
  /** Whether coild's account may list objects of a kind. */
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
  const space = (pod: string): string => spaces.get(pod) ?? assert.fail(pod);
  return {
    node,
    kernel,
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
    mayList,
    space,
  };
}

for (const isChained of [false, true]) {
  const how = isChained ? "behind ptp" : "with our addresses";
  test(`coild, ${how}: a pod that names an Egress reaches the outside as the router in both families, and follows each change while a stream runs`, async (t) => {
    const bed = await open(t, { isChained });
    const { router } = bed;
    await bed.makePod("early", EGRESS.name);
    const refused = await bed.add("early");
    assert.deepEqual([refused.code, refused.json?.["code"]], [1, 11], JSON.stringify(refused.json));
    assert.match(String(refused.json?.["msg"]), /^Egress "internet\/nat" does not exist/);
    if (!isChained) assert.equal(bed.node.attachments().length, 1, "only the router has a link");
    await bed.makeEgress([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
    const [first = ""] = await bed.makeService();
    await bed.run("client", EGRESS.name);
    await bed.run("plain");
    for (const family of FAMILIES) await bed.sees("client", NEAR[family], router[family]);
    assert.equal(await bed.seen("client", FAR[4]), "none");
    assert.equal(await bed.seen("plain", NEAR[4]), "none");
    const check = await bed.stream("client", NEAR[4]);
    // A destination more, within a second.
    await bed.destinations([`${NEAR[4]}/32`, `${NEAR[6]}/128`, `${FAR[4]}/32`, `${FAR[6]}/128`]);
    for (const family of FAMILIES) await bed.sees("client", FAR[family], router[family], 1000);
    await check();
    await bed.destinations([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
    await until("the destination is gone", () => !bed.leftIn("client").includes(FAR[4]), { deadlineMs: 1000 });
    await check();
    // Another address of the Service.
    await bed.node.api.delete(resources.services, EGRESS);
    const [second = ""] = await bed.makeService();
    assert.notEqual(second, first);
    await until("the tunnel is a new one", () => bed.leftIn("client").includes(`throw ${second}`), {
      deadlineMs: 2000,
    });
    assert.doesNotMatch(bed.leftIn("client"), new RegExp(`throw ${first} `));
    await bed.sees("client", NEAR[4], router[4]);
    // Annotations of running pods.
    await bed.annotate("plain", EGRESS.name);
    await bed.sees("plain", NEAR[6], router[6]);
    await bed.annotate("client", null);
    await until("nothing is left in the client", () => bed.leftIn("client") === "", { deadlineMs: 2000 });
    assert.equal(await bed.seen("client", NEAR[4]), "none");
    await bed.node.api.delete(coilResources.egresses, EGRESS);
    await until("nothing is left in the other", () => bed.leftIn("plain") === "", { deadlineMs: 2000 });
    // It has the rights of deploy/pods alone: behind another plugin none on blocks, for which it has not asked.
    assert.doesNotMatch(bed.node.said(), /forbidden/i);
    const { addressBlocks, blockRequests, egresses } = coilResources;
    const may = await Promise.all([addressBlocks, blockRequests, egresses].map((type) => bed.mayList(type)));
    assert.deepEqual(may, [!isChained, !isChained, true]);
    // The event tells what the runtime was told.
    const { items } = await bed.node.api.listAll(resources.events);
    assert.ok(
      items.some(
        ({ reason, note }) => reason === "EgressNotReady" && /"internet\/nat" does not exist/.test(note ?? ""),
      ),
    );
  });
}

for (const isChained of [false, true]) {
  const how = isChained ? "behind ptp" : "with our addresses";
  test(`coild, ${how}: killed and started again it changes nothing that is right, and makes what changed meanwhile; a pod without its namespace stops no other`, async (t) => {
    const bed = await open(t, { isChained });
    const { node, router } = bed;
    await bed.makeEgress([`${NEAR[4]}/32`]);
    await bed.makeService();
    await bed.run("broken", EGRESS.name);
    await bed.run("client", EGRESS.name);
    await bed.run("later");
    await bed.sees("client", NEAR[4], router[4]);
    const check = await bed.stream("client", NEAR[4]);
    const before = bed.leftIn("client");
    const links = bed.ip(bed.space("client"), "-o", "link");
    await node.killCoild();
    await check();
    bed.kernel.deleteNetNs(bed.space("broken"));
    await bed.annotate("later", EGRESS.name);
    await node.startCoild(...bed.coildFlags);
    await bed.sees("later", NEAR[4], router[4]);
    assert.equal(bed.leftIn("client"), before);
    assert.equal(bed.ip(bed.space("client"), "-o", "link"), links);
    await check();
    // Edits and kills at random moments; the last state holds.
    for (let turn = 0; turn < 4; turn += 1) {
      await bed.destinations([`${NEAR[4]}/32`, ...Array.from({ length: 50 }, (_, at) => `192.0.${turn + 3}.${at}/32`)]);
      if (turn % 2 === 1) {
        await node.killCoild();
        await node.startCoild(...bed.coildFlags);
      }
    }
    await bed.destinations([`${NEAR[4]}/32`, `${FAR[4]}/32`]);
    await bed.sees("client", FAR[4], router[4]);
    await bed.sees("later", FAR[4], router[4]);
    await until("no edit is left", () => !bed.leftIn("client").includes("192.0."), { deadlineMs: 2000 });
    await check();
    assert.doesNotMatch(node.said(), /because of a bug/);
  });
}

for (const backend of ["iptables", "nftables"] as const) {
  test(`coild --enable-originating-only --backend=${backend}: a client is reached from outside, goes out as the router, and an edit of the Egress reverses it`, async (t) => {
    const bed = await open(t, { more: ["--enable-originating-only", `--backend=${backend}`] });
    await bed.makeEgress(["0.0.0.0/0", "::/0"]);
    await bed.makeService();
    const client = await bed.run("client", EGRESS.name);
    await bed.serveIn("client", client);
    const peer = await bed.run("peer");
    await bed.serveIn("peer", peer);
    for (const family of FAMILIES) {
      await bed.sees("client", NEAR[family], bed.router[family]);
      assert.equal(await bed.isReached(client[family]), true);
      // Though the destinations are everything: traffic inside the cluster does not pass the router.
      assert.equal(await bed.seen("client", peer[family]), client[family]);
      assert.equal(await bed.seen("peer", client[family]), peer[family]);
    }
    const say = (originatingOnly: boolean | null) =>
      bed.node.api.patch(coilResources.egresses, EGRESS, { type: "merge", body: { spec: { originatingOnly } } });
    await say(false);
    const hasRule = (): boolean => /^1000:/m.test(bed.ip(bed.space("client"), "rule"));
    await until("the rule is gone", () => !hasRule(), { deadlineMs: 2000 });
    assert.equal(await bed.isReached(client[4]), false);
    assert.equal(await bed.seen("client", NEAR[4]), bed.router[4]);
    await say(null);
    await until("it is reached again", () => bed.isReached(client[6]), { deadlineMs: 5000 });
    // In the middle of it: a kill, and a start without the flag.
    await bed.node.killCoild();
    assert.equal(await bed.isReached(client[4]), true);
    await bed.node.startCoild(VXLAN, `--backend=${backend}`);
    await until("the rule is gone", () => !hasRule(), { deadlineMs: 2000 });
    const rules = execFileSync("nsenter", [`--net=/run/netns/${bed.space("client")}`, "nft", "list", "ruleset"]);
    assert.doesNotMatch(String(rules), /coil-/);
  });
}

test("coild killed at any moment of an ADD: the runtime's next ADD gives the pod its address and its way, and DEL leaves nothing", async (t) => {
  const bed = await open(t);
  const { node, router } = bed;
  await bed.makeEgress([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
  await bed.makeService();
  const links = node.attachments().length;
  for (let turn = 0; turn < 5; turn += 1) {
    const name = `killed${turn}`;
    const pod = await bed.makePod(name, EGRESS.name);
    const first = bed.add(name);
    await sleep(Math.random() * 60);
    await node.killCoild();
    const { code, json } = await first;
    assert.ok(
      code === 0 || json?.["code"] === 11 || json?.["code"] === 5 || json?.["code"] === 999,
      JSON.stringify(json),
    );
    await node.startCoild(...bed.coildFlags);
    const added = await bed.add(name);
    assert.equal(added.code, 0, JSON.stringify(added.json));
    const ips = (added.json?.["ips"] ?? []) as readonly { readonly address: string }[];
    const podIPs = ips.map(({ address }) => ({ ip: address.split("/")[0] ?? "" }));
    await node.api.replaceStatus(resources.pods, { ...pod, status: { phase: "Running", podIPs } });
    for (const family of FAMILIES) await bed.sees(name, NEAR[family], router[family]);
    assert.equal(node.attachments().length, links + 1);
    assert.equal((await bed.del(name)).code, 0);
    await until("the link is gone", () => node.attachments().length === links, { deadlineMs: 2000 });
  }
  assert.doesNotMatch(node.said(), /because of a bug/);
});
