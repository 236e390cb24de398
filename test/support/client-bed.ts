/** The NAT clients of a node on the fake kernel and the embedded API server. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { FakeConntrack } from "#kernel/conntrack";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { type Draft, KubeClient, loadKubeConfig, type Pod, resources, type Service } from "#kube/client";
import { coilCrds, coilResources, egressLabels } from "#kube/coil";
import type { EventInput } from "#kube/events";
import { createInformer } from "#kube/informer";
import { describeAside, PassRecord } from "#kube/suspects";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { accessNamespace } from "../../src/features/egress/access/index.ts";
import { PRIVATE_RANGES } from "../../src/features/egress/client/index.ts";
import { nftFilter } from "../../src/features/egress/filter/index.ts";
import { EgressClientError, type EgressClientErrorCode } from "../../src/features/egress/node/client-error.ts";
import type { KernelPlace } from "../../src/features/egress/node/client-places.ts";
import { EgressClients } from "../../src/features/egress/node/egress-clients.ts";
import type { ClientNamespace, ClientRecording } from "../../src/features/egress/node/types.ts";
import { encodeProbe } from "../../src/features/egress/probe/index.ts";
import type { TUNNEL_DRIVERS } from "../../src/features/egress/tunnel/index.ts";

/** The node whose clients they are. */
export const NODE = "n";
/** The namespace of the Egresses. */
export const INTERNET = "internet";
/** A state must be there within this time, milliseconds. */
export const DEADLINE_MS = 5000;

/** Settings of {@link openClients}. */
export interface BedOptions {
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
export async function openClients(t: TestContext, options: BedOptions = {}) {
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
  const places: KernelPlace[] = [];
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
    const passes = isRecorded ? new PassRecord({ folder: record, boot: "boot", log, clock: systemClock }) : undefined;
    const recording = passes === undefined ? undefined : recordingOf(passes, (event) => void events.push(event));
    const namespaces = namespaceInformer(api);
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
      passes?.close({ isFault: true });
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

/** The Namespaces of the cluster. The caller runs them. */
function namespaceInformer(api: KubeClient) {
  return createInformer(api, resources.namespaces, {
    transform: (namespace): ClientNamespace => {
      const { name, uid, resourceVersion } = namespace.metadata;
      return { ...accessNamespace(namespace), metadata: { name, uid, resourceVersion } };
    },
    clock: systemClock,
  });
}

/** The record of a program: informers take no steps, and who is set aside is an event. */
function recordingOf(passes: PassRecord, record: (event: EventInput) => void): ClientRecording {
  return {
    passes,
    stepsFor: () => ({ step: (_object, work) => ({ value: work() }) }),
    report: ({ about }, aside) => {
      if (about !== undefined)
        record({ regarding: about, type: "Warning", reason: "SetAside", note: describeAside(aside) });
    },
  };
}

/** True if an error is that of a client, with this code and a text that matches. */
export const failure = (code: EgressClientErrorCode, text: RegExp) => (error: unknown) =>
  error instanceof EgressClientError && error.code === code && text.test(error.message);

/** An Egress that allows pods with the label app=web of all namespaces. */
export const ALL_TENANTS = [{ namespaceSelector: {}, podSelector: { matchLabels: { app: "web" } } }];

/** The state of a pod without what a client leaves (settings) and without the order in which links were made. */
export const stateOf = (dump: string): string[] =>
  dump
    .split("\n")
    .filter((line) => !/^ {2}address fe80|rp_filter|forwarding|ip_forward/.test(line))
    .map((line) => line.replace(/ peer \S+/, ""))
    .sort();
