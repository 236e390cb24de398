import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { poll } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { CniFailure } from "#features/cni";
import {
  encodeProbe,
  holderOf,
  nftFilter,
  PRIVATE_RANGES,
  planRouter,
  routerScope,
  syncClient,
  syncNet,
  type TUNNEL_DRIVERS,
  vxlanDriver,
} from "#features/egress";
import type { PodPlace } from "#features/pod-network";
import { FakeConntrack } from "#kernel/conntrack";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { type Draft, KubeClient, loadKubeConfig, type Pod, resources, type Service } from "#kube/client";
import { coilCrds, coilResources, egressLabels } from "#kube/coil";
import type { EventInput } from "#kube/events";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { recordPasses } from "../../shared/pass-record/index.ts";
import { ClientPlaces } from "./egress/client-places.ts";
import type { ClientPod } from "./egress/client-pods.ts";
import { namespaceInformer } from "./egress/namespaces.ts";
import { EgressClients } from "./egress-clients.ts";

const NODE = "n";
const INTERNET = "internet";
const DEADLINE_MS = 5000;

interface BedOptions {
  readonly kernel?: FakeKernel;
  readonly asked?: (typeof TUNNEL_DRIVERS)[number];
  /** True if the kernel tells the UID of pods, as behind another plugin. */
  readonly tellsUid?: boolean;
  readonly originatingOnly?: boolean;
  readonly permissionMs?: number;
  readonly resyncMs?: number;
  /** Returns true if a router answers probes; absent: none does. */
  readonly answers?: (router: string) => boolean;
}

/** A node on the fake kernel, the embedded API server, and its NAT clients. */
async function open(t: TestContext, options: BedOptions = {}) {
  const {
    kernel = new FakeKernel(),
    asked = "vxlan",
    tellsUid = false,
    originatingOnly = false,
    permissionMs = 0,
    resyncMs = 60_000,
    answers = () => false,
  } = options;
  const folder = mkdtempSync(join(tmpdir(), "isthmus-clients-"));
  const server = await startApiServer({
    listen: [{ host: "127.0.0.1", port: 0 }],
    log: nullLogger,
    clock: systemClock,
  });
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  writeFileSync(join(folder, "kubeconfig"), server.kubeconfig({ server: server.urls[0] ?? "" }));
  const api = new KubeClient(await loadKubeConfig({ path: join(folder, "kubeconfig"), clock: systemClock }), {
    clock: systemClock,
  });
  await api.create(resources.namespaces, { metadata: { name: INTERNET } });
  const places: PodPlace[] = [];
  const events: EventInput[] = [];
  const lines: string[] = [];
  const drivers: string[] = [];
  const stops: (() => Promise<void>)[] = [];
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (!isOpen) return;
    isOpen = false;
    for (const stop of stops) await stop();
    await api.close();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  };
  t.after(close);
  /** Another process of coild on this node; without `runs` only ADD is served. */
  const [nft, other] = [new FakeNft(), new FakeNft()];
  /** The number of times that the packet filter was opened that is not in use. */
  const looks = { other: 0 };
  const filterOf = (one: FakeNft) => () => ({ ...nftFilter(one), [Symbol.dispose]: () => undefined });
  const counted = (one: FakeNft) => () => {
    looks.other += 1;
    return filterOf(one)();
  };
  /** The routers from whom each namespace takes packets; absent: from anybody. */
  const guards = new Map<string, string>();
  /** Paths of namespaces whose guard gets no answer: the pass of such a pod does not end. */
  const stuck = new Set<string>();
  const reached: string[] = [];
  const record = join(folder, "record");
  const guardOf = (path: string) => ({
    sync: async ({ routers }: { readonly routers: readonly IpAddress[] }) => {
      if (stuck.has(path)) {
        reached.push(path);
        await new Promise(() => undefined);
      }
      const before = guards.get(path);
      guards.set(path, routers.join());
      return before === routers.join() ? 0 : 1;
    },
    remove: () => Number(guards.delete(path)),
    [Symbol.dispose]: () => undefined,
  });
  /** `isOther`: with the other packet filter. */
  const begin = ({ runs = true, isOther = false, isRecorded = false } = {}) => {
    const health = new Health({ log: nullLogger });
    const log = createLogger({ name: "egress", write: (line) => lines.push(line) });
    const recording = recordPasses(
      { folder: isRecorded ? record : "", signal: new AbortController().signal },
      { events: { record: (event) => void events.push(event) }, log, clock: systemClock },
    );
    const namespaces = namespaceInformer(api, { health, clock: systemClock });
    const clients = new EgressClients(
      {
        loadModules: async () => undefined,
        kernel,
        api,
        namespaces,
        places: () => places,
        events: { record: (event) => void events.push(event) },
        health,
        filters: {
          openFilter: filterOf(isOther ? other : nft),
          openOther: counted(isOther ? nft : other),
          openConntrack: () => new FakeConntrack(),
          openGuard: ({ path }) => guardOf(path ?? ""),
          openElements: () => new FakeNftElements(),
        },
        openProbeSocket: (_place, _address, onDatagram) => ({
          port: 40_000,
          isOpen: true,
          send: (bytes, { address }) => {
            const token = bytes.subarray(-16).toString("hex");
            const from = { address: String(address), port: 5556 };
            if (answers(String(address))) setImmediate(onDatagram, encodeProbe({ kind: "answer", token }), from);
          },
          [Symbol.dispose]: () => undefined,
        }),
        onDriver: (name) => void drivers.push(name),
        recording,
        log,
        clock: systemClock,
      },
      {
        nodeName: NODE,
        asked,
        port: 5555,
        inCluster: PRIVATE_RANGES,
        originatingOnly,
        permissionMs,
        resyncMs,
        routerHoldMs: 500,
      },
    );
    const controller = new AbortController();
    const { signal } = controller;
    const running = runs ? Promise.all([clients.run({ signal }), namespaces.run({ signal })]) : Promise.resolve();
    const stop = async (): Promise<void> => {
      controller.abort();
      await running;
    };
    stops.push(stop);
    /** The process ends without a word, and what it was about stays recorded. */
    const kill = (): void => {
      recording?.passes.close({ isFault: true });
      stops.splice(stops.indexOf(stop), 1);
      controller.abort();
    };
    return { clients, health, stop, kill };
  };
  /** A namespace with `eth0`, as it is after the pod's link was made. */
  const makeNetns = (name: string, addresses: readonly string[], podUid?: string): void => {
    using netns = kernel.createNetNs(name);
    using own = kernel.openNetNs("own");
    using host = kernel.openStack(own);
    host.links.create({ kind: "veth", name: `v-${name}`, up: true, peer: { name: "eth0", netns, up: true } });
    using stack = kernel.openStack(netns);
    const linkIndex = stack.links.get({ name: "eth0" })?.index ?? assert.fail();
    for (const text of addresses) {
      const address = IpAddress.parse(text);
      stack.addresses.add({ linkIndex, address, ...(address.family === 6 ? { noDad: true } : {}) });
    }
    places.push({
      path: `/run/netns/${name}`,
      inode: netns.inode,
      ifname: "eth0",
      podUid: tellsUid ? podUid : undefined,
      addresses: tellsUid ? [] : addresses.map((text) => IpAddress.parse(text)),
    });
  };
  const addDefaultRoute = (name: string): readonly [number] => {
    using netns = kernel.openNetNs({ name });
    using stack = kernel.openStack(netns);
    const linkIndex = stack.links.get({ name: "eth0" })?.index ?? assert.fail();
    stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), linkIndex, scope: "link" });
    return [linkIndex];
  };
  const makePod = async (
    name: string,
    addresses: readonly string[],
    names: string | undefined,
    labels: Record<string, string> = {},
  ): Promise<Pod> => {
    const annotations = names === undefined ? {} : { [`egress.coil.cybozu.com/${INTERNET}`]: names };
    const made = await api.create(resources.pods, {
      metadata: { name, namespace: "default", annotations, labels },
      spec: { nodeName: NODE, terminationGracePeriodSeconds: 30, containers: [{ name: "c", image: "none" }] },
    } as Draft<Pod>);
    const status = { phase: "Running", podIPs: addresses.map((ip) => ({ ip })) };
    return api.replaceStatus(resources.pods, { ...made, status });
  };
  const makeEgress = (name: string, destinations: readonly string[], spec: object = {}) =>
    api.create(coilResources.egresses, {
      metadata: { name, namespace: INTERNET },
      spec: { destinations, template: { spec: { containers: [{ name: "egress" }] } }, ...spec },
    } as never);
  const editEgress = (name: string, spec: object) =>
    api.patch(coilResources.egresses, { namespace: INTERNET, name }, { type: "merge", body: { spec } });
  const editNamespace = (metadata: object) =>
    api.patch(resources.namespaces, { name: "default" }, { type: "merge", body: { metadata } });
  const relabel = (pod: string, labels: Record<string, string | null>) =>
    api.patch(resources.pods, { namespace: "default", name: pod }, { type: "merge", body: { metadata: { labels } } });
  const makeService = async (name: string): Promise<IpAddress> => {
    const { spec } = await api.create(resources.services, {
      metadata: { name, namespace: INTERNET, labels: egressLabels(name) },
      spec: { selector: egressLabels(name), ports: [{ port: 5555, protocol: "UDP" }] },
    } as unknown as Draft<Service>);
    return IpAddress.parse(spec?.clusterIP ?? "");
  };
  const annotate = (pod: string, names: string | null) =>
    api.patch(
      resources.pods,
      { namespace: "default", name: pod },
      {
        type: "merge",
        body: { metadata: { annotations: { [`egress.coil.cybozu.com/${INTERNET}`]: names } } },
      },
    );
  const add = (clients: EgressClients, { metadata }: Pod, netns: string, ipv4 = "10.64.0.7"): Promise<void> => {
    const { name, namespace = "", uid, annotations, labels } = metadata;
    const pod = { name, namespace, uid, annotations, labels };
    const request = { pod, netns: `/run/netns/${netns}`, ifname: "eth0", ipv4: IpAddress.parse(ipv4), ipv6: undefined };
    return clients.setUp(request, { signal: new AbortController().signal });
  };
  /** The comments of the rules that mark connections. */
  const marks = (of = nft): string[] =>
    of
      .listTables()
      .flatMap((table) => of.listChains(table).flatMap(({ name }) => of.listRules(table, name)))
      .map(({ comment = "" }) => comment);
  const dump = (name: string): string => kernel.dump({ name });
  /** Waits until the state of a namespace has all of these, or with `!` not. */
  const until = async (name: string, ...patterns: readonly string[]): Promise<void> => {
    const holds = (state: string): boolean =>
      patterns.every((text) => (text.startsWith("!") ? !state.includes(text.slice(1)) : state.includes(text)));
    const seen = await poll(() => dump(name), {
      until: holds,
      everyMs: 5,
      deadlineMs: DEADLINE_MS,
      clock: systemClock,
    });
    assert.ok(holds(seen), `${patterns.join()}\n${seen}\n${lines.join("")}`);
  };
  return {
    kernel,
    server,
    api,
    begin,
    close,
    makeNetns,
    addDefaultRoute,
    makePod,
    makeEgress,
    editEgress,
    editNamespace,
    relabel,
    makeService,
    annotate,
    add,
    dump,
    guards,
    stuck,
    reached,
    marks,
    otherMarks: () => marks(other),
    looks,
    until,
    places,
    events,
    lines,
    drivers,
  };
}

const failure = (code: number, text: RegExp) => (error: unknown) =>
  error instanceof CniFailure && error.detail.code === code && text.test(error.message);

test("ADD: a pod gets its tunnel and routes; one that no Egress concerns costs no request and no step in the kernel", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  // Once one that the watch tells has its tunnel, all watches are there.
  bed.makeNetns("first", ["10.64.0.9"]);
  await bed.makePod("first", ["10.64.0.9"], "nat");
  await bed.until("first", "203.0.113.0/24");
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(clients, await bed.makePod("a", [], " nat ,nat"), "a");
  await bed.until("a", "203.0.113.0/24", "vxlan mtu 1450");
  assert.equal(clients.count, 2);
  const plain = await bed.makePod("plain", [], undefined);
  await poll(() => bed.lines.join(""), {
    until: (text) => text.includes("the NAT client of a pod changed"),
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  bed.kernel.fail("*", "busy", { times: Number.POSITIVE_INFINITY });
  bed.server.faults.add({ action: { status: 500 } });
  await bed.add(clients, plain, "nowhere");
});

test("ADD: a missing Egress or Service, a refused step and an API server that fails are code 11, and each names its cause", async (t) => {
  const bed = await open(t);
  const { clients } = bed.begin({ runs: false });
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", [], "nat");
  await assert.rejects(bed.add(clients, pod, "a"), failure(11, /^Egress "internet\/nat" does not exist/));
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await assert.rejects(bed.add(clients, pod, "a"), failure(11, /^Egress "internet\/nat" has no Service/));
  await bed.makeService("nat");
  bed.kernel.fail("links.create", "not-permitted", { about: "nat_" });
  await assert.rejects(bed.add(clients, pod, "a"), failure(11, /way to its Egress: make link nat_/));
  const fault = bed.server.faults.add({ match: { resource: "services" }, action: { status: 500 } });
  await assert.rejects(bed.add(clients, pod, "a"), failure(11, /cannot read Service internet\/nat/));
  bed.server.faults.remove(fault);
  const rubbish = await bed.makePod("rubbish", [], "../../../api/v1/secrets,nat");
  await assert.rejects(bed.add(clients, rubbish, "a"), failure(11, /secrets" is not a name that an Egress can have/));
  assert.equal(clients.count, 0);
  // Each is in an event of its pod too.
  assert.deepEqual(
    bed.events.map(({ reason, regarding: { kind, name }, note = "" }) => [
      reason,
      kind,
      name,
      /Egress|Service/.test(note),
    ]),
    [...Array.from({ length: 4 }, () => "a"), "rubbish"].map((name) => ["EgressNotReady", "Pod", name, true]),
  );
  await bed.add(clients, pod, "a");
  await bed.until("a", "203.0.113.0/24");
});

test("a kernel without the driver: pods that name an Egress get code 11 with the fix, others start, and coild is ready", async (t) => {
  const bed = await open(t, { kernel: new FakeKernel({ lacks: ["fou", "ipip"] }), asked: "fou" });
  const { clients, health } = bed.begin();
  assert.deepEqual(bed.drivers, ["none"]);
  assert.equal(
    bed.lines.filter((line) => line.includes("--tunnel-driver=fou: this kernel has no fou, no ipip")).length,
    1,
  );
  assert.equal(health.parts.find(({ name }) => name === "tunnel-driver")?.status, "degraded");
  assert.deepEqual(health.unready, []);
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", [], "nat");
  await assert.rejects(bed.add(clients, pod, "a"), failure(11, /choose --tunnel-driver=vxlan or auto/));
  await bed.add(clients, await bed.makePod("plain", [], undefined), "a");
});

test("a kernel with fou and without fou6, on which 0.1.0 worked: pods of IPv4 alone are clients, and the audit has their driver", async (t) => {
  const bed = await open(t, { kernel: new FakeKernel({ lacks: ["fou6"] }), asked: "fou" });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(clients, pod, "a");
  await bed.until("a", "fou4_", "203.0.113.0/24");
  const signal = new AbortController().signal;
  // Its families are those of the pods that the watch has told.
  const found = await poll(async () => (await clients.inspect({ signal })).clients, {
    until: (one) => one?.driver !== undefined,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.deepEqual([found?.driver, found?.fault], ["fou", ""]);
  const v6 = { ipv4: IpAddress.parse("10.64.0.8"), ipv6: IpAddress.parse("fd02::8") };
  const { name, namespace = "", uid, annotations, labels } = (await bed.makePod("b", [], "nat")).metadata;
  const request = { pod: { name, namespace, uid, annotations, labels }, netns: "/run/netns/a", ifname: "eth0", ...v6 };
  await assert.rejects(clients.setUp(request, { signal }), failure(11, /this kernel has no fou6: /));
});

test("live: destinations, annotations, the Service's address and the Egress change; each pod follows, and others are not touched", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  const first = await bed.makeService("nat");
  const { clients } = bed.begin();
  for (const [name, address] of [
    ["a", "10.64.0.7"],
    ["b", "10.64.0.8"],
    ["plain", "10.64.0.9"],
  ] as const)
    bed.makeNetns(name, [address]);
  const plain = bed.dump("plain");
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(clients, pod, "a");
  await bed.makePod("b", ["10.64.0.8"], undefined);
  await bed.makePod("plain", ["10.64.0.9"], undefined);
  const egress = { namespace: INTERNET, name: "nat" };
  const destinations = (...all: readonly string[]) =>
    bed.api.patch(coilResources.egresses, egress, { type: "merge", body: { spec: { destinations: all } } });
  await destinations("203.0.113.0/24", "198.51.100.0/24");
  await bed.until("a", "203.0.113.0/24", "198.51.100.0/24");
  await destinations("198.51.100.0/24");
  await bed.until("a", "!203.0.113.0/24", "198.51.100.0/24");
  // A running pod is named late, and found by its address.
  await bed.annotate("b", "nat");
  await bed.until("b", "198.51.100.0/24");
  assert.equal(clients.count, 2);
  // Without its Service the pod keeps its tunnel: packets must not leave without NAT.
  const kept = bed.dump("a");
  await bed.api.delete(resources.services, egress);
  await bed.annotate("b", null);
  await bed.until("b", "!198.51.100.0/24");
  assert.equal(bed.dump("a"), kept);
  const second = await bed.makeService("nat");
  assert.notEqual(String(second), String(first));
  await bed.until("a", `throw ${second}`, "198.51.100.0/24");
  await bed.api.delete(coilResources.egresses, egress);
  await bed.until("a", "unreachable 198.51.100.0/24", "!vxlan");
  assert.equal(clients.count, 0);
  await bed.annotate("a", null);
  await bed.until("a", "!198.51.100.0/24");
  assert.equal(bed.dump("plain"), plain);
});

test("originatingOnly: the flag holds for an Egress that does not say, and an edit of the Egress reaches its pods", async (t) => {
  const bed = await open(t, { originatingOnly: true });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const [index] = bed.addDefaultRoute("a");
  await bed.add(clients, await bed.makePod("a", ["10.64.0.7"], "nat"), "a");
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
  assert.deepEqual(bed.marks(), [`coil-input-eth0 mark ${index} original`, `coil-output-eth0 mark ${index}`]);
  const say = (originatingOnly: boolean | null) =>
    bed.api.patch(
      coilResources.egresses,
      { namespace: INTERNET, name: "nat" },
      { type: "merge", body: { spec: { originatingOnly } } },
    );
  await say(false);
  await bed.until("a", "!fwmark", "203.0.113.0/24");
  assert.deepEqual(bed.marks(), []);
  await say(null);
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
});

test("originatingOnly: a start with the other packet filter moves the marks there, and removes them there; only pods with a trace are looked at, once", async (t) => {
  const bed = await open(t, { resyncMs: 50 });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const say = (originatingOnly: boolean) =>
    bed.api.patch(
      coilResources.egresses,
      { namespace: INTERNET, name: "nat" },
      { type: "merge", body: { spec: { originatingOnly } } },
    );
  await say(true);
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.makeNetns("plain", ["10.64.0.8"]);
  const [index] = bed.addDefaultRoute("a");
  await bed.makePod("plain", ["10.64.0.8"], undefined);
  await bed.add(first.clients, await bed.makePod("a", ["10.64.0.7"], "nat"), "a");
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
  const both = [`coil-input-eth0 mark ${index} original`, `coil-output-eth0 mark ${index}`];
  assert.deepEqual([bed.marks(), bed.otherMarks(), bed.looks.other], [both, [], 0]);
  await first.stop();
  const passes = (): number => bed.lines.filter((line) => line.includes('"pod":"a","changes"')).length;
  const before = passes();
  const second = bed.begin({ isOther: true });
  const moved = (): boolean => isDeepStrictEqual([bed.marks(), bed.otherMarks()], [[], both]);
  await poll(moved, { until: (so) => so, everyMs: 5, deadlineMs: DEADLINE_MS, clock: systemClock });
  assert.deepEqual([bed.marks(), bed.otherMarks()], [[], both]);
  const compared = {
    until: (count: number) => count > before,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  };
  await poll(passes, compared);
  await say(false);
  await bed.until("a", "!fwmark", "203.0.113.0/24");
  assert.deepEqual([bed.marks(), bed.otherMarks(), bed.looks.other], [[], [], 1]);
  // The annotation goes while no process runs, and the next one uses the first packet filter again.
  await say(true);
  await bed.until("a", `rule inet4 1000 fwmark ${index}`);
  await second.stop();
  await bed.annotate("a", null);
  bed.begin();
  await bed.until("a", "!fwmark", "!203.0.113.0/24");
  assert.deepEqual([bed.marks(), bed.otherMarks(), bed.looks.other], [[], [], 2]);
});

test("a router of an Egress whose annotations name one is no client, at its ADD, later and after a restart, and an event says so", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const first = bed.begin();
  bed.makeNetns("router", ["10.64.0.9"]);
  const made = await bed.makePod("router", ["10.64.0.9"], undefined);
  const ref = { namespace: "default", name: "router" };
  const labelled = await bed.api.patch(resources.pods, ref, {
    type: "merge",
    body: {
      metadata: { labels: egressLabels("nat"), annotations: { [`egress.coil.cybozu.com/${INTERNET}`]: "nat" } },
    },
  });
  assert.equal(labelled.metadata.uid, made.metadata.uid);
  await bed.add(first.clients, labelled, "router", "10.64.0.9");
  assert.doesNotMatch(bed.dump("router"), /nat_|rule 1900/);
  using netns = bed.kernel.openNetNs({ name: "router" });
  using stack = bed.kernel.openStack(netns);
  const own = {
    egress: { namespace: "default", name: "nat" },
    addresses: { 4: IpAddress.parse("10.64.0.9") },
    ifname: "eth0",
    mtuBytes: 1500,
  };
  const options = { driver: vxlanDriver, port: 5555, sourcePortAuto: false };
  await syncNet(stack, planRouter(own, [IpAddress.parse("10.64.0.7")], options), routerScope(5555));
  const before = bed.dump("router");
  assert.match(before, /2000.*iif eth0/);
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.until("a", "203.0.113.0/24");
  await bed.annotate("router", "nat, other");
  await first.stop();
  const { clients } = bed.begin();
  await bed.makeEgress("other", ["198.51.100.0/24"]);
  await bed.makeService("other");
  await bed.annotate("a", "nat,other");
  await bed.until("a", "198.51.100.0/24");
  assert.equal(clients.count, 1);
  assert.equal(bed.dump("router"), before);
  // A client that gets a router's labels is none any more.
  await bed.api.patch(
    resources.pods,
    { namespace: "default", name: "a" },
    { type: "merge", body: { metadata: { labels: egressLabels("nat") } } },
  );
  await bed.until("a", "!nat_", "!203.0.113.0", "!1900");
  const told = bed.events.filter(({ regarding }) => regarding.name === "router");
  assert.ok(told.length > 0);
  for (const { reason, note } of told) {
    assert.equal(reason, "EgressIncomplete");
    assert.match(note ?? "", /routers cannot use an Egress/);
  }
});

test("live: a pod whose namespace is gone and one whose kernel refuses stop no other; the refused one is tried again", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  for (const [at, name] of ["gone", "refused", "well"].entries()) {
    bed.makeNetns(name, [`10.64.0.1${at}`]);
    await bed.add(clients, await bed.makePod(name, [`10.64.0.1${at}`], "nat"), name, `10.64.0.1${at}`);
  }
  bed.kernel.deleteNetNs("gone");
  bed.kernel.fail("routes.replace", "failed", { times: 3 });
  const egress = { namespace: INTERNET, name: "nat" };
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, egress, { type: "merge", body });
  await bed.until("well", "198.51.100.0/24", "!203.0.113.0/24");
  await bed.until("refused", "198.51.100.0/24", "!203.0.113.0/24");
  assert.match(bed.lines.join(""), /namespace of a pod that names an Egress is not found/);
});

test("CHECK: it names what a pod lacks of its client, waits for an edit under way, and says nothing of pods that it does not know", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  const check = (uid = pod.metadata.uid): Promise<void> =>
    clients.check({ namespace: "default", name: "a", uid }, { signal: new AbortController().signal });
  await check();
  await bed.add(clients, pod, "a");
  const metadata = { annotations: { "kubernetes.io/config.hash": "hash" } };
  await bed.api.patch(resources.pods, { namespace: "default", name: "a" }, { type: "merge", body: { metadata } });
  // A name that no Egress can have does not keep others from their updates.
  await bed.annotate("a", "nat,../x");
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, { namespace: INTERNET, name: "nat" }, { type: "merge", body });
  await check();
  await bed.until("a", "198.51.100.0/24");
  using netns = bed.kernel.openNetNs({ name: "a" });
  using stack = bed.kernel.openStack(netns);
  const link = stack.links.list().find(({ name }) => name.startsWith("nat_")) ?? assert.fail();
  stack.links.delete(link.index);
  await assert.rejects(check(), failure(999, /^the pod's way to its Egress lacks: make link nat_/));
  await assert.rejects(check("hash"), failure(999, /^the pod's way to its Egress lacks: make link nat_/));
  await check("another");
});

test("restart behind another plugin: a pod whose addresses the kubelet has not told yet keeps its tunnels", async (t) => {
  const bed = await open(t, { tellsUid: true });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const first = bed.begin();
  const pod = await bed.makePod("a", [], "nat");
  bed.makeNetns("a", ["10.64.0.7"], pod.metadata.uid);
  await bed.add(first.clients, pod, "a");
  await first.stop();
  const before = bed.dump("a");
  assert.match(before, /203\.0\.113\.0\/24/);
  const { clients } = bed.begin();
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, { namespace: INTERNET, name: "nat" }, { type: "merge", body });
  // Another pod shows that the change has arrived.
  const other = await bed.makePod("b", ["10.64.0.8"], "nat");
  bed.makeNetns("b", ["10.64.0.8"], other.metadata.uid);
  await bed.until("b", "198.51.100.0/24");
  assert.equal(bed.dump("a"), before);
  const status = { phase: "Running", podIPs: [{ ip: "10.64.0.7" }] };
  const ref = { namespace: "default", name: "a" };
  await bed.api.patch(resources.pods, ref, { type: "merge", body: { status } }, { subresource: "status" });
  await bed.until("a", "198.51.100.0/24", "!203.0.113.0/24");
  assert.equal(clients.count, 2);
});

test("an API server that fails: a restart changes nothing in pods, an ADD is code 11, and what was edited meanwhile arrives afterwards", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(first.clients, pod, "a");
  await first.stop();
  const before = bed.dump("a");
  const body = { spec: { destinations: ["198.51.100.0/24"] } };
  await bed.api.patch(coilResources.egresses, { namespace: INTERNET, name: "nat" }, { type: "merge", body });
  const faults = ["egresses", "services"].map((resource) =>
    bed.server.faults.add({ match: { resource }, action: { status: 500 } }),
  );
  const { clients, health } = bed.begin();
  await assert.rejects(bed.add(clients, pod, "a"), failure(11, /cannot (list Egresses|read Egress internet\/nat)/));
  await poll(() => health.parts.find(({ name }) => name === "watch-egresses")?.status, {
    until: (status) => status === "degraded",
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.equal(bed.dump("a"), before);
  for (const fault of faults) bed.server.faults.remove(fault);
  await bed.until("a", "198.51.100.0/24", "!203.0.113.0/24");
});

test("live: what another program removes in a pod is made again, without any event", async (t) => {
  const bed = await open(t, { resyncMs: 500 });
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(clients, await bed.makePod("a", ["10.64.0.7"], "nat"), "a");
  using netns = bed.kernel.openNetNs({ name: "a" });
  using stack = bed.kernel.openStack(netns);
  for (let turn = 0; turn < 2; turn += 1) {
    for (const rule of stack.rules.list(4).filter(({ priority }) => priority >= 1800 && priority <= 2100))
      stack.rules.delete(rule);
    await bed.until("a", "rule inet4 2100 protocol 30 lookup 118", "rule inet4 1900");
  }
});

test("live: a pod that fails again and again is tried less and less often, and an event of it tells why", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.kernel.fail("links.create", "busy", { times: Number.POSITIVE_INFINITY });
  const begunMs = systemClock.monotonic();
  await bed.makePod("a", ["10.64.0.7"], "nat");
  await poll(() => bed.events.length, {
    until: (n) => n >= 3,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.ok(systemClock.monotonic() - begunMs > 1000, "0.4 s and 0.8 s, less the tenth that is random");
  const [{ reason = "", note = "" } = {}] = bed.events;
  assert.equal(reason, "EgressNotReady");
  assert.match(note, /^the pod's way to its Egress: make link nat_/);
});

for (const tellsUid of [false, true]) {
  const how = tellsUid ? "by its mark" : "by its address";
  test(`restart, pods found ${how}: nothing changes when nothing differs, and what changed meanwhile is made so`, async (t) => {
    const bed = await open(t, { tellsUid });
    await bed.makeEgress("nat", ["203.0.113.0/24"]);
    await bed.makeService("nat");
    const first = bed.begin();
    for (const [at, name] of ["same", "named", "unnamed"].entries()) {
      const address = `10.64.0.1${at}`;
      const pod = await bed.makePod(name, [address], name === "named" ? undefined : "nat");
      bed.makeNetns(name, [address], pod.metadata.uid);
      await bed.add(first.clients, pod, name, address);
    }
    await first.stop();
    const before = bed.dump("same");
    assert.match(before, /203\.0\.113\.0\/24/);
    await bed.annotate("named", "nat");
    await bed.annotate("unnamed", null);
    const second = bed.begin();
    await bed.until("named", "203.0.113.0/24");
    await bed.until("unnamed", "!203.0.113.0/24", "!vxlan");
    // "same" is known as a client once it has been compared.
    await poll(() => second.clients.count, {
      until: (count) => count === 2,
      everyMs: 5,
      deadlineMs: DEADLINE_MS,
      clock: systemClock,
    });
    assert.equal(bed.dump("same"), before);
  });
}

test("two Egresses with one destination: ADD succeeds, and the log and an event of the pod name both", async (t) => {
  const bed = await open(t);
  for (const name of ["one", "two"]) {
    await bed.makeEgress(name, ["203.0.113.0/24"]);
    await bed.makeService(name);
  }
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(clients, await bed.makePod("a", ["10.64.0.7"], "two,one"), "a");
  const seen = await poll(() => bed.events[0]?.note ?? "", {
    until: (note) => note !== "",
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.match(seen, /^Egress internet\/two: destination 203\.0\.113\.0\/24 is left out, because Egress internet\/one/);
});

const ALL_TENANTS = [{ namespaceSelector: {}, podSelector: { matchLabels: { app: "web" } } }];

test("a named Egress that does not allow the namespace: ADD is code 11 with one event, waits for the permission, and goes on as soon as it is there", async (t) => {
  const bed = await open(t, { permissionMs: 60_000 });
  await bed.makeEgress("nat", ["203.0.113.0/24"], { allowedNamespaces: { names: ["other"] } });
  await bed.makeService("nat");
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", [], "nat");
  const added = bed.add(clients, pod, "a");
  const seen = await poll(() => bed.events.filter(({ reason }) => reason === "EgressRefused"), {
    until: (events) => events.length > 0,
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.match(
    seen[0]?.note ?? "",
    /^Egress "internet\/nat" does not allow pods of namespace "default": ask those who manage this Egress to add the namespace to its spec\.allowedNamespaces/,
  );
  assert.doesNotMatch(bed.dump("a"), /203\.0\.113/);
  await bed.editEgress("nat", { allowedNamespaces: { names: ["default"] } });
  await added;
  await bed.until("a", "route 203.0.113.0/24 via");
  assert.equal(new Set(bed.events.filter(({ reason }) => reason === "EgressRefused").map(({ note }) => note)).size, 1);
  const other = await open(t);
  await other.makeEgress("nat", ["203.0.113.0/24"], { allowedNamespaces: {} });
  const refusing = other.begin({ runs: false });
  const refused = await other.makePod("b", [], "nat");
  await assert.rejects(other.add(refusing.clients, refused, "b"), failure(11, /does not allow pods of namespace/));
});

test("ADD: one that waits for a permission looks five times a second at most, however often Egresses are edited", async (t) => {
  const bed = await open(t, { permissionMs: 60_000 });
  const refusing = { allowedNamespaces: { names: ["other"] } };
  const allowing = { allowedNamespaces: { names: ["default"] } };
  for (const name of ["one", "two"]) {
    await bed.makeEgress(name, [name === "one" ? "203.0.113.0/24" : "198.51.100.0/24"], refusing);
    await bed.makeService(name);
  }
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const added = bed.add(clients, await bed.makePod("a", [], "one,two"), "a");
  const begunMs = systemClock.monotonic();
  // Each look that finds another first refusal records an event.
  for (let nth = 0; nth < 100; nth += 1) await bed.editEgress("one", nth % 2 === 0 ? allowing : refusing);
  for (const name of ["one", "two"]) await bed.editEgress(name, allowing);
  await added;
  const looks = bed.events.filter(({ reason }) => reason === "EgressRefused").length;
  const seconds = (systemClock.monotonic() - begunMs) / 1000;
  assert.ok(looks >= 1 && looks <= 5 * seconds + 2, `${looks} in ${seconds} s`);
});

test("live: a permission that is withdrawn closes the Egress for running pods, in memory and after a restart, and one that is given opens it", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"], {
    allowedNamespaces: { selector: { matchLabels: { tier: "gold" } } },
  });
  await bed.makeService("nat");
  await bed.editNamespace({ labels: { tier: "gold" } });
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.add(first.clients, pod, "a");
  await bed.until("a", "route 203.0.113.0/24 via", "vxlan");
  await bed.editNamespace({ labels: { tier: null } });
  await bed.until("a", "!route 203.0.113.0/24 via", "unreachable 203.0.113.0/24", "!vxlan");
  await first.stop();
  const closed = bed.dump("a");
  const second = bed.begin();
  // Another pod shows that this one was compared, as all are at the start.
  bed.makeNetns("b", ["10.64.0.8"]);
  await bed.makeEgress("open", ["198.51.100.0/24"]);
  await bed.makeService("open");
  await bed.makePod("b", ["10.64.0.8"], "open");
  await bed.until("b", "route 198.51.100.0/24 via");
  assert.equal(bed.dump("a"), closed);
  await bed.editNamespace({ labels: { tier: "gold" } });
  await bed.until("a", "route 203.0.113.0/24 via", "vxlan");
  await bed.editEgress("nat", { allowedNamespaces: { selector: null } });
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  assert.deepEqual(stateOf(bed.dump("a")), stateOf(closed));
  await bed.annotate("a", null);
  await bed.until("a", "!203.0.113.0/24");
  assert.equal(second.clients.count, 1);
});

test("live: an Egress selects pods of a namespace that consents; without consent, label or Egress their destinations are closed, also after a restart, and other pods are not touched", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"], { clients: ALL_TENANTS });
  await bed.makeService("nat");
  let coild = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.makeNetns("plain", ["10.64.0.8"]);
  const plain = bed.dump("plain");
  await bed.makePod("plain", ["10.64.0.8"], undefined, { app: "db" });
  await bed.makePod("a", ["10.64.0.7"], undefined, { app: "web" });
  await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": "internet/*" } });
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.relabel("a", { app: "old" });
  await bed.until("a", "unreachable 203.0.113.0/24", "!route 203.0.113.0/24 via");
  await bed.relabel("a", { app: "web" });
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": null } });
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  await coild.stop();
  coild = bed.begin();
  // A pod that is made after the start shows that those that were there have been compared.
  bed.makeNetns("b", ["10.64.0.9"]);
  await bed.makePod("b", ["10.64.0.9"], "nat", { app: "web" });
  await bed.until("b", "route 203.0.113.0/24 via");
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": "internet/nat" } });
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.api.delete(coilResources.egresses, { namespace: INTERNET, name: "nat" });
  await bed.until("a", "unreachable 203.0.113.0/24", "!vxlan");
  // Who may edit the pod can open it.
  await bed.annotate("a", "nat");
  await bed.until("a", "unreachable 203.0.113.0/24 table 118 proto 30 metric 1000000");
  await bed.annotate("a", null);
  await bed.until("a", "!203.0.113.0/24");
  assert.equal(bed.dump("plain"), plain);
});

test("a coild that may not read Namespaces: Egresses with rules freeze only the pods whose verdict needs one, and others start and follow", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeEgress("gold", ["198.51.100.0/24"], {
    allowedNamespaces: { selector: { matchLabels: { tier: "gold" } } },
    clients: ALL_TENANTS,
  });
  for (const name of ["nat", "gold"]) await bed.makeService(name);
  bed.server.faults.add({ match: { resource: "namespaces" }, action: { status: 500 } });
  const { clients } = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  bed.makeNetns("b", ["10.64.0.8"]);
  const unknown = bed.dump("b");
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  await bed.makePod("b", ["10.64.0.8"], "nat,gold");
  await bed.until("a", "route 203.0.113.0/24 via");
  await bed.add(clients, pod, "a");
  await bed.editEgress("nat", { destinations: ["192.0.2.0/24"] });
  await bed.until("a", "route 192.0.2.0/24 via", "!203.0.113.0/24");
  assert.equal(bed.dump("b"), unknown);
});

test("ADD: a pod that an Egress selects gets its tunnel; one of a namespace that does not consent starts without, and is told nothing", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"], { clients: ALL_TENANTS });
  await bed.makeService("nat");
  for (const runs of [false, true]) {
    const { clients, stop } = bed.begin({ runs });
    bed.makeNetns(`a${runs}`, ["10.64.0.7"]);
    // The watch may not have told of the second edit yet.
    if (!runs) await bed.add(clients, await bed.makePod("refused", [], undefined, { app: "web" }), "nowhere");
    await bed.editNamespace({ annotations: { "isthmus.dev/egress-clients-of": "internet/nat" } });
    await bed.add(clients, await bed.makePod(`a${runs}`, [], undefined, { app: "web" }), `a${runs}`);
    assert.match(bed.dump(`a${runs}`), /route 203\.0\.113\.0\/24 via/);
    await stop();
  }
  assert.deepEqual(bed.events, []);
});

test("an Egress that was deleted while coild was down, or is deleted now, stays closed for pods that name it until the annotation goes", async (t) => {
  const bed = await open(t);
  for (const [name, destination] of [
    ["one", "203.0.113.0/24"],
    ["two", "198.51.100.0/24"],
  ] as const) {
    await bed.makeEgress(name, [destination]);
    await bed.makeService(name);
  }
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.add(first.clients, await bed.makePod("a", ["10.64.0.7"], "one,two"), "a");
  await bed.until("a", "route 203.0.113.0/24 via", "route 198.51.100.0/24 via");
  await first.stop();
  await bed.api.delete(coilResources.egresses, { namespace: INTERNET, name: "one" });
  bed.begin();
  await bed.until("a", "!route 203.0.113.0/24 via", "unreachable 203.0.113.0/24", "route 198.51.100.0/24 via");
  await bed.api.delete(coilResources.egresses, { namespace: INTERNET, name: "two" });
  await bed.until("a", "!vxlan", "unreachable 203.0.113.0/24", "unreachable 198.51.100.0/24");
  await bed.makeEgress("one", ["203.0.113.0/24"]);
  await bed.until("a", "route 203.0.113.0/24 via", "unreachable 198.51.100.0/24");
  await bed.annotate("a", "one");
  await bed.until("a", "route 203.0.113.0/24 via", "!198.51.100.0/24");
  await bed.annotate("a", null);
  await bed.until("a", "!203.0.113.0/24");
});

test("restart after the node's routes of one family were flushed: the pod keeps its tunnels, and where no address is known its destinations stay closed", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24", "2001:db8:1::/48"]);
  const service = await bed.makeService("nat");
  assert.equal(service.family, 4);
  const first = bed.begin();
  bed.makeNetns("a", ["10.64.0.7", "fd02::7"]);
  const pod = await bed.makePod("a", ["10.64.0.7", "fd02::7"], "nat");
  // The Service lacks IPv6.
  await bed.until("a", "route 203.0.113.0/24 via", "unreachable 2001:db8:1::/48");
  await first.stop();
  const before = stateOf(bed.dump("a"));
  const [place = assert.fail()] = bed.places;
  // What `places` tells after a flush of IPv4.
  bed.places[0] = { ...place, addresses: [IpAddress.parse("fd02::7")] };
  const second = bed.begin();
  bed.makeNetns("b", ["10.64.0.9"]);
  await bed.makePod("b", ["10.64.0.9"], "nat");
  await bed.until("b", "route 203.0.113.0/24 via");
  assert.deepEqual(stateOf(bed.dump("a")), before);
  await second.stop();
  // Nor does the kubelet tell it.
  await bed.api.patch(
    resources.pods,
    { namespace: "default", name: "a" },
    { type: "merge", body: { status: { podIPs: [{ ip: "fd02::7" }] } } },
    { subresource: "status" },
  );
  const { clients } = bed.begin();
  await bed.until("a", "!route 203.0.113.0/24 via", "unreachable 203.0.113.0/24");
  // Also those of an Egress that the pod does not name any more; CHECK knows it.
  await bed.makeEgress("other", ["198.51.100.0/24"]);
  await bed.makeService("other");
  await bed.annotate("a", "other");
  await bed.until("a", "unreachable 198.51.100.0/24", "unreachable 203.0.113.0/24");
  await clients.check(
    { namespace: "default", name: "a", uid: pod.metadata.uid },
    { signal: new AbortController().signal },
  );
  await bed.annotate("a", "nat");
  bed.places[0] = place;
  clients.recheck();
  await bed.until("a", "route 203.0.113.0/24 via");
});

const podAt = (uid: string, changes: Partial<ClientPod> = {}): ClientPod => ({
  metadata: { name: uid, uid, resourceVersion: "1", creationTimestamp: "2026-01-01T00:00:00Z" },
  namespace: "default",
  labels: {},
  annotations: {},
  hasNetwork: true,
  isRefused: false,
  isRunning: true,
  isLeaving: false,
  addresses: [IpAddress.parse("10.64.0.7")],
  ...changes,
});

test("of two pods with one address the one that is not being deleted has it, and of two such the later one", () => {
  const later = { metadata: { ...podAt("b").metadata, uid: "b", creationTimestamp: "2026-01-02T00:00:00Z" } };
  assert.equal(holderOf([podAt("a"), podAt("b", { isLeaving: true })])?.metadata.uid, "a");
  assert.equal(holderOf([podAt("a"), podAt("b", later)])?.metadata.uid, "b");
  assert.equal(holderOf([podAt("a"), podAt("b", { ...later, isLeaving: true })])?.metadata.uid, "a");
  const kernel = new FakeKernel();
  using netns = kernel.createNetNs("x");
  const all = [podAt("a", { isLeaving: true }), podAt("b")];
  const place = {
    path: "/run/netns/x",
    inode: netns.inode,
    ifname: "eth0",
    podUid: undefined,
    addresses: all[0]?.addresses ?? [],
  };
  const clock = new FakeClock();
  const places = new ClientPlaces({ kernel, list: () => [place], podsAt: () => all, clock });
  assert.deepEqual(
    all.map((pod) => places.of(pod)?.path),
    [undefined, "/run/netns/x"],
  );
});

test("a path that leads to another namespace now is not the pod's", async () => {
  const kernel = new FakeKernel();
  kernel.createNetNs("x")[Symbol.dispose]();
  const places = new ClientPlaces({ kernel, list: () => [], podsAt: () => [], clock: new FakeClock() });
  places.tell("a", { path: "/run/netns/x", ifname: "eth0", addresses: {} });
  assert.equal(places.of(podAt("a"))?.path, "/run/netns/x");
  // A second interface of the pod: the tunnels stay with the first.
  assert.equal(places.tell("a", { path: "/run/netns/x", ifname: "net1", addresses: {} }).ifname, "eth0");
  kernel.deleteNetNs("x");
  kernel.createNetNs("x")[Symbol.dispose]();
  assert.equal(places.of(podAt("a")), undefined);
  assert.equal(places.tell("a", { path: "/run/netns/x", ifname: "net1", addresses: {} }).ifname, "net1");
});

/** What may happen to the objects that clients are made of. */
type Op =
  | { readonly op: "make" | "delete"; readonly what: "egress" | "service"; readonly at: number }
  | {
      readonly op: "edit";
      readonly at: number;
      readonly destinations: readonly string[];
      readonly only: boolean | null;
    }
  | { readonly op: "annotate"; readonly pod: number; readonly names: readonly number[] }
  | { readonly op: "restart" };

const at = fc.nat(2);
const ANY_OP: fc.Arbitrary<Op> = fc.oneof(
  fc.record({
    op: fc.constantFrom("make" as const, "delete" as const),
    what: fc.constantFrom("egress" as const, "service" as const),
    at,
  }),
  fc.record({
    op: fc.constant("edit" as const),
    at,
    destinations: fc.uniqueArray(fc.constantFrom("0.0.0.0/0", "8.8.8.0/24", "172.20.0.0/16", "203.0.113.0/24"), {
      minLength: 1,
    }),
    only: fc.constantFrom(true, false, null),
  }),
  fc.record({ op: fc.constant("annotate" as const), pod: fc.nat(1), names: fc.uniqueArray(at) }),
  fc.record({ op: fc.constant("restart" as const) }),
);

/** The state of a pod without what a client leaves (settings) and without the order in which links were made. */
const stateOf = (dump: string): string[] =>
  dump
    .split("\n")
    .filter((line) => !/^ {2}address fe80|rp_filter|forwarding|ip_forward/.test(line))
    .map((line) => line.replace(/ peer \S+/, ""))
    .sort();

test("live: after any events in any order and any restarts, each pod has what a fresh start makes of the last state", async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(ANY_OP, { minLength: 4, maxLength: 16 }), async (ops) => {
      const bed = await open(t);
      const addresses = ["10.64.0.10", "10.64.0.11"];
      let coild = bed.begin();
      for (const [nth, address] of addresses.entries()) {
        bed.makeNetns(`p${nth}`, [address]);
        bed.addDefaultRoute(`p${nth}`);
        await bed.makePod(`p${nth}`, [address], "e0,e1");
      }
      const ref = (nth: number) => ({ namespace: INTERNET, name: `e${nth}` });
      const egresses = new Map<number, { destinations: readonly string[]; only: boolean | null }>();
      const services = new Map<number, IpAddress>();
      const named = addresses.map((): readonly number[] => [0, 1]);
      const makeService = async (nth: number): Promise<void> => {
        if (!services.has(nth)) services.set(nth, await bed.makeService(`e${nth}`));
      };
      for (const one of ops) {
        if (one.op === "restart") {
          await coild.stop();
          coild = bed.begin();
        } else if (one.op === "annotate") {
          named[one.pod] = one.names;
          await bed.annotate(`p${one.pod}`, one.names.length === 0 ? null : one.names.map((nth) => `e${nth}`).join());
        } else if (one.op === "edit") {
          const { destinations, only } = one;
          if (!egresses.has(one.at)) continue;
          egresses.set(one.at, { destinations, only });
          const body = { spec: { destinations, originatingOnly: only } };
          await bed.api.patch(coilResources.egresses, ref(one.at), { type: "merge", body });
        } else if (one.what === "service") {
          if (one.op === "make") await makeService(one.at);
          else if (services.delete(one.at)) await bed.api.delete(resources.services, ref(one.at));
        } else if (one.op === "make") {
          if (egresses.has(one.at)) continue;
          egresses.set(one.at, { destinations: ["203.0.113.0/24"], only: null });
          await bed.makeEgress(`e${one.at}`, ["203.0.113.0/24"]);
        } else if (egresses.delete(one.at)) await bed.api.delete(coilResources.egresses, ref(one.at));
      }
      // While an Egress is gone or has no Service its clients keep what they had, which is not a function of the last state.
      for (const nth of named.flat()) {
        if (egresses.has(nth)) continue;
        egresses.set(nth, { destinations: ["203.0.113.0/24"], only: null });
        await bed.makeEgress(`e${nth}`, ["203.0.113.0/24"]);
      }
      for (const nth of egresses.keys()) await makeService(nth);
      for (const [nth, address] of addresses.entries()) {
        const gateways = (named[nth] ?? []).flatMap((which) => {
          const [egress, service] = [egresses.get(which), services.get(which)];
          if (egress === undefined || service === undefined) return [];
          const destinations = egress.destinations.map((text) => Cidr.parse(text));
          const originatingOnly = egress.only ?? false;
          return [{ egress: ref(which), address: service, destinations, sourcePortAuto: false, originatingOnly }];
        });
        const fresh = new FakeKernel();
        using netns = fresh.createNetNs("fresh");
        using host = fresh.openStack(fresh.openNetNs("own"));
        host.links.create({ kind: "veth", name: "v", up: true, peer: { name: "eth0", netns, up: true } });
        using stack = fresh.openStack(netns);
        const linkIndex = stack.links.get({ name: "eth0" })?.index ?? assert.fail();
        stack.addresses.add({ linkIndex, address: IpAddress.parse(address) });
        stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), linkIndex, scope: "link" });
        const openFilter = () => ({ ...nftFilter(new FakeNft()), [Symbol.dispose]: () => undefined });
        const openConntrack = () => new FakeConntrack();
        const pod = { addresses: { 4: IpAddress.parse(address) }, ifname: "eth0", mtuBytes: 1500 };
        const options = { driver: vxlanDriver, port: 5555, inCluster: PRIVATE_RANGES, openFilter, openConntrack };
        await syncClient(stack, pod, gateways, options);
        const wanted = stateOf(fresh.dump({ name: "fresh" }));
        const seen = await poll(() => stateOf(bed.dump(`p${nth}`)), {
          until: (state) => isDeepStrictEqual(state, wanted),
          everyMs: 5,
          deadlineMs: DEADLINE_MS,
          clock: systemClock,
        });
        assert.deepEqual(seen, wanted, bed.lines.join(""));
      }
      await bed.close();
    }),
    { numRuns: 15 },
  );
});

test("live: 100 edits a second of an Egress of 50 pods, and 10,000 rubbish names, cost each pod five comparisons a second at most, and end in the last state", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  const pods = Array.from({ length: 50 }, (_, nth) => ({ name: `p${nth}`, address: `10.64.1.${nth}` }));
  for (const { name, address } of pods) {
    bed.makeNetns(name, [address]);
    await bed.add(clients, await bed.makePod(name, [address], "nat"), name, address);
  }
  const names = Array.from({ length: 10_000 }, (_, nth) => `rubbish-${nth}`).join();
  bed.makeNetns("bomb", ["10.64.2.1"]);
  const bomb = await bed.makePod("bomb", ["10.64.2.1"], names);
  await assert.rejects(
    bed.add(clients, bomb, "bomb", "10.64.2.1"),
    failure(11, /"internet\/rubbish-0" does not exist/),
  );
  const body = (nth: number) => ({ spec: { destinations: [`198.51.${nth}.0/24`] } });
  const egress = { namespace: INTERNET, name: "nat" };
  const begunMs = systemClock.monotonic();
  for (let nth = 0; nth < 100; nth += 1)
    await bed.api.patch(coilResources.egresses, egress, { type: "merge", body: body(nth) });
  for (const { name } of pods) await bed.until(name, "198.51.99.0/24", "!198.51.98.0/24", "!203.0.113.0/24");
  const seconds = (systemClock.monotonic() - begunMs) / 1000;
  for (const { name } of pods) {
    const passes = bed.lines.filter((line) => line.includes(`"pod":"${name}","changes"`)).length;
    assert.ok(passes >= 1 && passes <= 5 * seconds + 2, `${name}: ${passes} in ${seconds} s`);
  }
  const lines = bed.lines.filter((line) => line.includes('"rubbish-') || line.includes("rubbish-0"));
  assert.equal(lines.length, 1, lines.join(""));
  assert.ok((lines[0] ?? "").length < 2000 && /and \d+ more/.test(lines[0] ?? ""));
});

test("coild: a client takes packets of tunnels from the routers of its Egress, also of one that ends, and from nobody else; off means gone", async (t) => {
  const bed = await open(t);
  const guard = async (expected: string | undefined): Promise<void> => {
    const read = (): string | undefined => [...bed.guards.values()][0];
    const is = (text: string | undefined): boolean => text === expected;
    const found = await poll(read, { until: is, everyMs: 5, deadlineMs: DEADLINE_MS, clock: systemClock });
    assert.equal(found, expected);
  };
  const router = async (name: string, address: string, of: string): Promise<void> => {
    const metadata = { name, namespace: INTERNET, labels: egressLabels(of) };
    const spec = {
      nodeName: "elsewhere",
      terminationGracePeriodSeconds: 0,
      containers: [{ name: "c", image: "none" }],
    };
    const made = await bed.api.create(resources.pods, { metadata, spec } as Draft<Pod>);
    await bed.api.replaceStatus(resources.pods, { ...made, status: { phase: "Pending", podIPs: [{ ip: address }] } });
  };
  await bed.makeEgress("nat", ["0.0.0.0/0"]);
  const service = await bed.makeService("nat");
  await router("nat-1", "10.64.8.1", "nat");
  await router("other-1", "10.64.8.9", "other");
  bed.makeNetns("a", ["10.64.0.7"]);
  const pod = await bed.makePod("a", ["10.64.0.7"], "nat");
  const { clients, stop } = bed.begin();
  await bed.add(clients, pod, "a");
  await guard(`${service},10.64.8.1`);
  await stop();
  // A release before the guard would tell it of no new router.
  await guard(undefined);
  bed.begin();
  await guard(`${service},10.64.8.1`);
  await router("nat-2", "10.64.8.2", "nat");
  await guard(`${service},10.64.8.1,10.64.8.2`);
  await bed.api.delete(resources.pods, { namespace: INTERNET, name: "nat-1" });
  await guard(`${service},10.64.8.2`);
  await bed.annotate("a", null);
  await guard(undefined);
});

test("a router that answers no probes any more loses the clients of its Egress to one that does, and gets them back; others keep their tunnels", async (t) => {
  const dead = new Set<string>();
  const bed = await open(t, { answers: (router) => !dead.has(router) });
  const service = await bed.makeService("nat");
  await bed.makeEgress("nat", ["192.0.2.0/24"]);
  const other = await bed.makeService("other");
  await bed.makeEgress("other", ["198.51.100.0/24"]);
  const routers = [
    ["r1", "10.64.9.1"],
    ["r2", "10.64.9.2"],
  ] as const;
  for (const [name, ip] of routers) {
    const made = await bed.api.create(resources.pods, {
      metadata: { name, namespace: INTERNET, labels: egressLabels("nat") },
      spec: { nodeName: "elsewhere", containers: [{ name: "egress", image: "none" }] },
    } as Draft<Pod>);
    const conditions = [{ type: "Ready", status: "True" }];
    await bed.api.replaceStatus(resources.pods, {
      ...made,
      status: { phase: "Running", podIPs: [{ ip }], conditions },
    });
  }
  bed.makeNetns("a", ["10.64.0.7"]);
  await bed.makePod("a", ["10.64.0.7"], "nat,other");
  const { clients } = bed.begin();
  await bed.until("a", `throw ${service}`, `throw ${other}`);
  const alive = (): number => clients.routers.verdicts.filter(({ verdict }) => verdict === "alive").length;
  const settled = await poll(alive, {
    until: (count) => count === 2,
    everyMs: 10,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.equal(settled, 2);
  dead.add("10.64.9.1");
  await bed.until("a", "throw 10.64.9.2", `!throw ${service}`, `throw ${other}`);
  assert.deepEqual(
    clients.routers.redirects.map(({ egress, router }) => `${egress} ${router.name}`),
    ["internet/nat r2"],
  );
  // The Service's address stays, for answers of flows that began before.
  assert.match(bed.guards.get("/run/netns/a") ?? "", new RegExp(`${service}.*10\\.64\\.9\\.1,10\\.64\\.9\\.2`));
  const { clients: told } = await clients.inspect({});
  assert.equal(told?.redirects?.length, 1);
  dead.clear();
  await bed.until("a", `throw ${service}`, "!throw 10.64.9.2");
  assert.deepEqual(clients.routers.redirects, []);
});

test("a pod during whose comparison coild was killed three times keeps what it has, with an event; others are compared, and a change of its Egress frees it", async (t) => {
  const bed = await open(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  bed.makeNetns("poison", ["10.64.0.7"]);
  await bed.makePod("poison", ["10.64.0.7"], "nat");
  bed.stuck.add("/run/netns/poison");
  for (let at = 0; at < 3; at += 1) {
    const before = bed.reached.length;
    const one = bed.begin({ isRecorded: true });
    await poll(() => bed.reached.length, {
      until: (n) => n > before,
      everyMs: 5,
      deadlineMs: DEADLINE_MS,
      clock: systemClock,
    });
    one.kill();
  }
  bed.begin({ isRecorded: true });
  bed.makeNetns("good", ["10.64.0.8"]);
  await bed.makePod("good", ["10.64.0.8"], "nat");
  await bed.until("good", "203.0.113.0/24");
  await poll(() => bed.events, {
    until: (events) => events.some(({ reason }) => reason === "SetAside"),
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });
  assert.equal(bed.reached.length, 3);
  assert.ok(!bed.dump("poison").includes("203.0.113.0/24"));
  const about = bed.events.filter(({ reason }) => reason === "SetAside").map(({ regarding }) => regarding.name);
  assert.deepEqual(about, ["poison"]);
  bed.stuck.clear();
  await bed.editEgress("nat", { destinations: ["198.51.100.0/24"] });
  await bed.until("poison", "198.51.100.0/24");
});
