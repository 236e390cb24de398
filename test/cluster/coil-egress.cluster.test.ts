/** The shipped router of an Egress, between a client pod and a host outside, on the real kernel and the embedded API server. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import type { Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import {
  auditEgress,
  type EgressFinding,
  observeSpace,
  openFilters,
  ROUTER_TABLE,
  vxlanDriver,
} from "#features/egress";
import { openConntrack } from "#kernel/conntrack";
import { openNft } from "#kernel/nft";
import { type Draft, type KubeClient, type Pod, resources } from "#kube/client";
import { type AddressBlock, type AddressPool, coilResources, type Egress, egressLabels, NODE_LABEL } from "#kube/coil";
import type { SeedObject } from "#lab/api-server";
import { ISTHMUS, start, until } from "#test/lab";
import { changeEgress, EGRESS, get, isReady, makePod, openRouterBed, SERVED, waysBack } from "#test/router-bed";
import { AT, type EgressBed, SILENCE_MS, TUNNEL_PORT } from "../../src/features/egress/testing/bed.ts";
import { Strangers } from "../../src/features/egress/testing/guard-claims.ts";
import { readNode } from "../../src/programs/tools/doctor/node.ts";

const ROUTER_FLAGS = ["--tunnel-driver=vxlan", "--backend=nftables"];

/** Returns the findings of the audit about the router, with the clients that the API server has. */
async function auditRouter(bed: EgressBed, api: KubeClient): Promise<readonly EgressFinding[]> {
  const netns = bed.netns("router");
  const addresses = Object.values(AT.router);
  const place = { path: netns.path ?? "", ifname: "eth0", addresses };
  const space = await observeSpace(bed.stack("router"), place, {
    port: TUNNEL_PORT,
    openMarks: () => assert.fail("a router has no marks"),
    openFilters: () => openFilters(netns),
    openConntrack: () => openConntrack(netns),
  });
  const { items } = await api.listAll(resources.pods);
  const router = {
    metadata: { name: "nat-1", namespace: EGRESS.namespace, uid: "r", labels: egressLabels(EGRESS.name) },
    spec: { nodeName: "n" },
    status: { phase: "Running", podIPs: addresses.map((ip) => ({ ip: String(ip) })) },
  } as unknown as Pod;
  const egress = { metadata: EGRESS, spec: { destinations: ["0.0.0.0/0", "::/0"] } } as unknown as Egress;
  const clients = { driver: "vxlan", fault: "", port: TUNNEL_PORT, inCluster: [], originatingOnly: false } as const;
  const unread = {
    namespaces: undefined,
    services: undefined,
    deployments: undefined,
    slices: undefined,
    bindings: undefined,
  };
  const nodes = [{ node: "n", clients, spaces: space === undefined ? [] : [space], clean: [], failed: [] }];
  const { findings } = auditEgress({ egresses: [egress], pods: [...items, router], ...unread, nodes });
  return findings.filter(({ kind }) => kind.startsWith("router-"));
}

async function echo(socket: Socket, text: string): Promise<void> {
  let back = "";
  const whole = new Promise<void>((resolve) => {
    socket.on("data", (bytes) => {
      back += bytes;
      if (back.length >= text.length) resolve();
    });
  });
  socket.write(text);
  await whole;
  socket.removeAllListeners("data");
  assert.equal(back, text);
}

test("coil-egress: a router whose pod has IPv6 switched off serves clients of IPv4, and the log says so", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  for (const name of ["default", "all"]) bed.stack("router").sysctl.set(`net.ipv6.conf.${name}.disable_ipv6`, 1);
  await makePod(api, "client", [String(AT.client[4]), String(AT.client[6])]);
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  assert.equal(await bed.sourceSeen(4, SERVED), String(AT.router[4]));
  assert.deepEqual(waysBack(bed), [String(AT.client[4])]);
  assert.match(router.said(), /IPv6 is switched off on eth0","msg":"clients of IPv6 are not served"/);
  assert.deepEqual(await auditRouter(bed, api), []);
});

test("coil-egress: ready when the clients that were there have a way; later ones get theirs, and one that goes leaves nothing", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", [String(AT.client[4]), String(AT.client[6])]);
  await makePod(api, "of-the-host", ["10.64.9.1"], { hostNetwork: true });
  await makePod(api, "of-another", ["10.64.9.2"], { names: "other, another" });
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  assert.deepEqual(waysBack(bed), [String(AT.client[4]), String(AT.client[6])]);
  for (const family of [4, 6] as const) assert.equal(await bed.sourceSeen(family, SERVED), String(AT.router[family]));
  await makePod(api, "later", ["10.64.9.3", "fd02::93"], { names: `other,${EGRESS.name}` });
  await until("the later one has its ways", () => waysBack(bed).length === 4, { deadlineMs: 1000, everyMs: 10 });
  // Another pod has the address before its first holder is gone.
  await makePod(api, "heir", ["10.64.9.3"]);
  await api.delete(resources.pods, { name: "later", namespace: "default" });
  await until("what was its own alone is gone", () => !waysBack(bed).includes("fd02::93"), {
    deadlineMs: 1000,
    everyMs: 10,
  });
  assert.ok(waysBack(bed).includes("10.64.9.3"));
  await api.delete(resources.pods, { name: "heir", namespace: "default" });
  await until("nothing of it is left", () => waysBack(bed).length === 2, { deadlineMs: 1000, everyMs: 10 });
  const { body } = await get(bed, 8080, "/metrics");
  assert.match(body, /^coil_egress_client_pod_count\{namespace="internet",egress="nat"\} 1$/m);
  assert.match(
    body,
    /^coil_egress_client_pod_info\{namespace="default",pod="client",pod_ip="10\.64\.0\.7",interface="coil_vxlan",egress="nat",egress_namespace="internet"\} 1$/m,
  );
  assert.match(body, /^coil_egress_nf_conntrack_entries_limit\{namespace="internet",pod="nat-1",egress="nat"\} [1-9]/m);
  assert.match(body, /^coil_egress_tunnel_driver_info\{driver="vxlan"\} 1$/m);
  assert.deepEqual(await auditRouter(bed, api), []);
});

test("coil-egress: a destination without common source ports is in the metrics, in /readyz?verbose and in what doctor finds on the node, with the busiest client", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", [String(AT.client[4]), String(AT.client[6])]);
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  const stream = await bed.connect(4, SERVED);
  const destination = `tcp . ${AT.outside[4]} . ${SERVED}`;
  const nft = ["nft", "add", "element", "inet", "coil-egress", "crowded4", "{", destination, "}"];
  execFileSync("nsenter", [`--net=${bed.netns("router").path}`, ...nft]);
  const metric =
    /^coil_egress_crowded_destinations\{namespace="internet",pod="nat-1",egress="nat",protocol="tcp"\} 1$/m;
  await until("the metric has it", async () => metric.test((await get(bed, 8080, "/metrics")).body), {
    seen: router.said,
  });
  const text = `tcp ${AT.outside[4]}:${SERVED}`;
  const { status, body } = await get(bed, 8081, "/readyz?verbose");
  assert.equal(status, 200);
  assert.ok(body.includes(`source-ports degraded no common source port is left to ${text}`), body);
  const places = { cniConfDir: "/nonexistent", cniBinDir: "/nonexistent", kubeconfig: undefined };
  const { sourcePorts } = await readNode(places, {
    lacking: [],
    listed: new Map(),
    clock: systemClock,
    signal: t.signal,
  });
  const crowded = "value" in sourcePorts.crowded ? sourcePorts.crowded.value : assert.fail(sourcePorts.crowded.fault);
  // Other tests of this machine may have routers too.
  assert.deepEqual(
    crowded.find((one) => one.destination === text),
    { egress: "internet/nat", destination: text, clients: [`${AT.client[4]} (1)`] },
  );
  stream.destroy();
});

test("coil-egress: a stream survives kill -9 and the next start, which removes what was left of clients that went meanwhile", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", [String(AT.client[4]), String(AT.client[6])]);
  await makePod(api, "short", ["10.64.9.4"]);
  const first = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: first.said });
  const stream = await bed.connect(4, SERVED);
  first.child.kill("SIGKILL");
  await first.ended;
  await api.delete(resources.pods, { name: "short", namespace: "default" });
  assert.deepEqual(
    (await auditRouter(bed, api)).map(({ kind }) => kind),
    ["router-stray-way"],
    "it went while there was no process",
  );
  await echo(stream, "while there is no router process");
  const index = bed.stack("router").links.get({ name: "coil_vxlan" })?.index;
  const second = run(...ROUTER_FLAGS);
  await until("it is ready again", () => isReady(bed), { seen: second.said });
  assert.deepEqual(waysBack(bed), [String(AT.client[4]), String(AT.client[6])]);
  assert.equal(bed.stack("router").links.get({ name: "coil_vxlan" })?.index, index);
  await echo(stream, "after its start");
  stream.destroy();
  const listing = execFileSync("nsenter", [`--net=${bed.netns("router").path}`, "nft", "list", "ruleset"], {
    encoding: "utf8",
  });
  assert.equal(listing.match(/masquerade comment "coil-egress /g)?.length, 2, listing);
  assert.deepEqual(await auditRouter(bed, api), []);
});

test("coil-egress: an address of a finished pod belongs to the pod that has it now, whatever becomes of the finished one", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "done", ["10.64.9.7"]);
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  const phase = async (name: string, to: string): Promise<void> => {
    const pod = await api.get(resources.pods, { name, namespace: "default" });
    await api.replaceStatus(resources.pods, { ...pod, status: { ...pod.status, phase: to } });
  };
  const soon = { deadlineMs: 1000, everyMs: 10 };
  const has = (): boolean => waysBack(bed).includes("10.64.9.7");
  // The heir is there before its predecessor has ended, and is the client from then on.
  await makePod(api, "heir", ["10.64.9.7"]);
  await phase("done", "Succeeded");
  await makePod(api, "mark", ["10.64.9.8"]);
  await until("the router knows the later pod too", () => waysBack(bed).includes("10.64.9.8"), soon);
  assert.ok(has());
  await api.delete(resources.pods, { name: "done", namespace: "default" });
  await api.delete(resources.pods, { name: "mark", namespace: "default" });
  await until("the router knows of the deletions", () => !waysBack(bed).includes("10.64.9.8"), soon);
  assert.ok(has());
  await phase("heir", "Failed");
  await until("nobody has it", () => !has(), soon);
});

test("coil-egress: a thousand clients cost one device, and the router is ready when all have their way", async (t) => {
  const { bed, run, server } = await openRouterBed(t, vxlanDriver);
  const pods = Array.from({ length: 1000 }, (_, at): SeedObject => {
    const podIPs = [{ ip: `10.65.${at >> 8}.${at & 255}` }, { ip: `fd05::${at.toString(16)}` }];
    const annotations = { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: EGRESS.name };
    return {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: `p${at}`, namespace: "default", annotations },
      spec: { nodeName: "n", containers: [{ name: "c", image: "none" }] },
      status: { phase: "Running", podIPs },
    };
  });
  server.seed(pods);
  const before = bed.stack("router").links.list().length;
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said, everyMs: 10 });
  assert.equal(waysBack(bed).length, 2000);
  assert.equal(bed.stack("router").links.list().length, before + 1);
});

test("coil-egress: a client that goes leaves no entry of connection tracking, also one that went while there was no router process", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  using conntrack = openConntrack(bed.netns("router"));
  const left = (): number =>
    ([4, 6] as const).flatMap((family) => conntrack.list({ family, original: { src: AT.client[family] } })).length;
  const addresses = [String(AT.client[4]), String(AT.client[6])];
  /** A pod that has gone sends nothing; the kernel of the bed's client would go on to look for neighbours through its tunnels. */
  const client = (rule: string): unknown => execFileSync("nsenter", [`--net=${bed.netns("client").path}`, "nft", rule]);
  for (const isRunning of [true, false]) {
    await makePod(api, "client", addresses);
    await makePod(api, "stays", ["10.64.9.6"]);
    const router = run(...ROUTER_FLAGS);
    await until("it is ready", () => isReady(bed), { seen: router.said });
    const streams = [await bed.connect(4, SERVED), await bed.connect(6, SERVED)];
    // The streams; the packets that carry them are not tracked.
    assert.equal(left(), 2);
    for (const stream of streams) stream.resetAndDestroy();
    client("add table inet gone { chain output { type filter hook output priority 0; policy drop; }; }");
    if (!isRunning) {
      router.child.kill("SIGKILL");
      await router.ended;
    }
    await api.delete(resources.pods, { name: "client", namespace: "default" });
    const now = isRunning ? router : run(...ROUTER_FLAGS);
    await until("nothing is left of it", () => left() === 0 && waysBack(bed).length === 1, { seen: now.said });
    assert.deepEqual(await auditRouter(bed, api), []);
    now.child.kill("SIGKILL");
    await now.ended;
    client("delete table inet gone");
    await api.delete(resources.pods, { name: "stays", namespace: "default" });
  }
});

test("coil-egress: SIGTERM turns /readyz to failing for --drain-delay; new clients are served until it ends", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", [String(AT.client[4]), String(AT.client[6])]);
  const router = run(...ROUTER_FLAGS, "--drain-delay=2s");
  await until("it is ready", () => isReady(bed), { seen: router.said });
  const stream = await bed.connect(6, SERVED);
  const before = performance.now();
  router.child.kill("SIGTERM");
  await until("it is not ready", async () => (await get(bed, 8081, "/readyz")).status === 503, { everyMs: 10 });
  assert.equal((await get(bed, 8081, "/healthz")).status, 200);
  await makePod(api, "late", ["10.64.9.5"]);
  await until("the late one has its way", () => waysBack(bed).includes("10.64.9.5"), { deadlineMs: 1000, everyMs: 10 });
  const { code, stderr } = await router.ended;
  assert.equal(code, 0, stderr);
  assert.ok(performance.now() - before >= 2000);
  assert.doesNotMatch(stderr, /"msg":"degraded"/, "an end in order is no warning");
  await echo(stream, "after its end");
  assert.equal(await bed.sourceSeen(4, SERVED), String(AT.router[4]));
  stream.destroy();
});

test("coil-egress: with raw sockets a pod and a host outside send nothing through it, nor to pods, in any form", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", [String(AT.client[4]), String(AT.client[6])]);
  const router = run("--tunnel-driver=vxlan", "--backend=iptables");
  await until("it is ready", () => isReady(bed), { seen: router.said });
  using nft = openNft(bed.netns("router"));
  using strangers = new Strangers(bed, vxlanDriver);
  const chains = ["input", "outer", "local", "forward", "from-client", "to-client"];
  await strangers.attack((reason) =>
    chains
      .flatMap((chain) => nft.listCounters(ROUTER_TABLE, chain))
      .filter(({ comment }) => comment?.startsWith(`${reason} `) === true)
      .reduce((sum, { packets }) => sum + packets, 0),
  );
});

/** The deadline of a change of an object: a second. */
const SOON = { deadlineMs: 1000, everyMs: 10 };
const CLIENT = [String(AT.client[4]), String(AT.client[6])];

test("coil-egress: who may use the Egress, its destinations and its deletion count for running clients within a second", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", CLIENT);
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  const stream = await bed.connect(4, SERVED);
  const isServed = (is: boolean) => () => waysBack(bed).length === (is ? 2 : 0);
  await changeEgress(api, { allowedNamespaces: { names: ["other"] } });
  await until("the namespace may not use it", isServed(false), SOON);
  assert.equal(await bed.sourceSeen(4, SERVED, SILENCE_MS), "no answer");
  const { body } = await get(bed, 8080, "/metrics");
  assert.match(body, /^coil_egress_refused_pod_count\{namespace="internet",egress="nat",reason="access"\} 1$/m);
  await changeEgress(api, { allowedNamespaces: { selector: { matchLabels: { tier: "gold" } } } });
  const namespace = { name: "default" };
  await api.patch(resources.namespaces, namespace, { type: "merge", body: { metadata: { labels: { tier: "gold" } } } });
  await until("its labels allow it", isServed(true), SOON);
  assert.equal(await bed.sourceSeen(4, SERVED), String(AT.router[4]));
  await changeEgress(api, { destinations: ["198.51.100.0/24", "::/0"] });
  await until("the other destination is not open", async () => (await bed.sourceSeen(4, SERVED, 100)) === "no answer");
  assert.equal(await bed.sourceSeen(6, SERVED), String(AT.router[6]));
  await api.delete(coilResources.egresses, EGRESS);
  await until("nobody is a client", isServed(false), SOON);
  assert.equal(await bed.sourceSeen(6, SERVED, SILENCE_MS), "no answer");
  stream.destroy();
});

test("coil-egress: an Egress that chooses pods by their labels has them as clients, those of other namespaces only if these consent", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  const labelled = async (name: string, address: string): Promise<void> => {
    await makePod(api, name, [address], { names: "" });
    const body = { metadata: { labels: { app: "a" } } };
    await api.patch(resources.pods, { name, namespace: "default" }, { type: "merge", body });
  };
  await labelled("chosen", "10.64.9.3");
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  assert.deepEqual(waysBack(bed), []);
  await changeEgress(api, { clients: [{ namespaceSelector: {}, podSelector: { matchLabels: { app: "a" } } }] });
  await labelled("later", "10.64.9.4");
  const refused = /^coil_egress_refused_pod_count\{namespace="internet",egress="nat",reason="access"\} 2$/m;
  await until("both are refused", async () => refused.test((await get(bed, 8080, "/metrics")).body), SOON);
  assert.deepEqual(waysBack(bed), []);
  const annotations = { "isthmus.dev/egress-clients-of": "internet/nat" };
  await api.patch(resources.namespaces, { name: "default" }, { type: "merge", body: { metadata: { annotations } } });
  await until("the namespace consents", () => waysBack(bed).length === 2, SOON);
});

test("coil-egress: an address of a pool that is another node's is taken from nobody", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", CLIENT);
  await makePod(api, "thief", ["10.64.9.40"]);
  await api.create(coilResources.addressPools, {
    metadata: { name: "default" },
    spec: { blockSizeBits: 5, subnets: [{ ipv4: "10.64.9.0/24" }] },
  } as Draft<AddressPool>);
  const block = {
    metadata: { name: "default-1", labels: { [NODE_LABEL]: "victim" } },
    index: 1,
    ipv4: "10.64.9.32/27",
  };
  await api.create(coilResources.addressBlocks, block as Draft<AddressBlock>);
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  assert.deepEqual(waysBack(bed), CLIENT);
  const labels = { [NODE_LABEL]: "n" };
  await api.patch(
    coilResources.addressBlocks,
    { name: "default-1" },
    { type: "merge", body: { metadata: { labels } } },
  );
  await until("the block is the pod's node's", () => waysBack(bed).includes("10.64.9.40"), SOON);
});

test("coil-egress: with Coil's role pods and their annotation are checked, and log, metric and /readyz?verbose tell what is not", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver, "coil");
  await makePod(api, "client", CLIENT);
  await makePod(api, "of-another", ["10.64.9.2"], { names: "another" });
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  assert.deepEqual(waysBack(bed), CLIENT);
  assert.equal(await bed.sourceSeen(4, SERVED), String(AT.router[4]));
  const { body } = await get(bed, 8080, "/metrics");
  for (const check of ["egress", "namespaces", "blocks"])
    assert.match(
      body,
      new RegExp(`^coil_egress_unchecked\\{namespace="internet",egress="nat",check="${check}"\\} 1$`, "m"),
    );
  assert.match((await get(bed, 8081, "/readyz?verbose")).body, /watch-egresses.*not checked/);
  assert.match(router.said(), /"unchecked":"egress,namespaces,blocks"/);
});

test("coil-egress: while the API server is away a new router lets nobody through, and one that starts again serves its clients", async (t) => {
  const { bed, api, run, server } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", CLIENT);
  const away = { action: { cut: "drop-connection" } } as const;
  server.faults.add({ ...away, match: { userAgent: "coil-egress" } });
  const first = run(...ROUTER_FLAGS);
  await until("it runs", async () => (await get(bed, 8081, "/readyz").catch(() => undefined))?.status === 503);
  const listed = (): string =>
    execFileSync("nsenter", [`--net=${bed.netns("router").path}`, "nft", "list", "table", "inet", "coil-egress"], {
      encoding: "utf8",
    });
  assert.match(listed(), /chain from-client/);
  assert.doesNotMatch(listed(), /elements/);
  server.faults.clear();
  await until("it is ready", () => isReady(bed), { seen: first.said });
  first.child.kill("SIGKILL");
  await first.ended;
  server.faults.add({ ...away, match: { userAgent: "coil-egress" } });
  const second = run(...ROUTER_FLAGS);
  await until("it runs", async () => (await get(bed, 8081, "/readyz").catch(() => undefined))?.status === 503);
  for (const family of [4, 6] as const) assert.equal(await bed.sourceSeen(family, SERVED), String(AT.router[family]));
  assert.equal(await isReady(bed), false, second.said());
});

test("coil-egress: a packet filter that another program flushes is back within seconds, and the metric of what is dropped has each reason", async (t) => {
  const { bed, api, run } = await openRouterBed(t, vxlanDriver);
  await makePod(api, "client", CLIENT);
  const router = run(...ROUTER_FLAGS);
  await until("it is ready", () => isReady(bed), { seen: router.said });
  const nft = (...words: string[]): string =>
    execFileSync("nsenter", [`--net=${bed.netns("router").path}`, "nft", ...words], { encoding: "utf8" });
  nft("flush", "ruleset");
  await until("it is back", () => /elements/.test(nft("list", "ruleset")), { seen: router.said });
  assert.equal(await bed.sourceSeen(4, SERVED), String(AT.router[4]));
  nft("flush", "chain", "inet", "coil-egress", "from-client");
  await until("its rules are back", () => /destinations4 accept/.test(nft("list", "table", "inet", "coil-egress")));
  nft("flush", "set", "inet", "coil-egress", "wrapped4");
  await until("its elements are back", () => /elements/.test(nft("list", "set", "inet", "coil-egress", "wrapped4")));
  const { body } = await get(bed, 8080, "/metrics");
  assert.match(
    body,
    /^coil_egress_dropped_packets_total\{namespace="internet",pod="nat-1",egress="nat",reason="outer-source"\} 0$/m,
  );
});

test("coil-egress: a driver that the kernel lacks, and a wrong environment, are one clear line each", async (t) => {
  const { bed, run } = await openRouterBed(t, vxlanDriver);
  const lacksFou = !bed.stack("router").fou.available();
  const router = run("--backend=nftables");
  if (lacksFou) {
    const { code, stderr } = await router.ended;
    assert.equal(code, 1);
    assert.match(stderr, /--tunnel-driver=fou: this kernel has no fou.*choose --tunnel-driver=vxlan or auto/);
  }
  const env = {
    COIL_POD_ADDRESSES: "10.0.0.1,nonsense,10.0.0.2",
    COIL_POD_NAMESPACE: undefined,
    COIL_EGRESS_NAME: "nat",
  };
  const wrong = await start([ISTHMUS, "coil-egress"], { env }).ended;
  assert.notEqual(wrong.code, 0);
  for (const fault of [/COIL_POD_NAMESPACE is missing/, /"nonsense" is not an IP address/, /two addresses of IPv4/])
    assert.match(wrong.stderr, fault);
});
