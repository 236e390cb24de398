import { type AbortOptions, Backoff, Dirty, KeyedMutex, sleep, TaskGroup } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { Health } from "#base/health";
import type { Cidr, IpFamily } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import type { ConntrackPort } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { type Kernel, type NetNs, type NetStack, OF_OTHERS } from "#kernel/net";
import { type KubeApi, type Namespace, resources } from "#kube/client";
import { routerEgress } from "#kube/coil";
import { type EventRecorder, regarding } from "#kube/events";
import { allSynced, createInformer, type Informer, type InformerHealth } from "#kube/informer";
import { Controller, type ControllerOptions } from "#kube/reconciler";
import type { EgressNode } from "../audit/index.ts";
import {
  type ClientSync,
  type ClientWish,
  type ClosedDestinations,
  faultText,
  type Gateway,
  gatewaysOf,
  type HeldEgresses,
  isBeingRepaired,
  isMissing,
  keepClosed,
  lackOfClient,
  NOTHING_HELD,
  observeClosed,
  skipText,
  syncClient,
  withLackingFamilies,
} from "../client/index.ts";
import type { TUNNEL_DRIVERS, TunnelDriver } from "../tunnel/index.ts";
import { ClientDriver } from "./client-driver.ts";
import { EgressClientError } from "./client-error.ts";
import { type ClientPlace, ClientPlaces, type KernelPlace } from "./client-places.ts";
import { CLIENT_POD_INDEXES, type ClientPod, clientPod, differs, namesEgress } from "./client-pods.ts";
import { ClientRouters } from "./client-routers.ts";
import { ClientSources } from "./client-sources.ts";
import { inspectPods } from "./inspect-pods.ts";
import { nodeRouters } from "./node-routers.ts";
import type { FilterOpeners } from "./open-filter.ts";
import { openProbeSocket } from "./probe-socket.ts";
import { RefusedFlows } from "./refused-flows.ts";
import { TranslationLook } from "./translation-look.ts";
import type { ClientAdd, ClientNamespace, ClientRecording } from "./types.ts";

const FAMILIES: readonly IpFamily[] = [4, 6];
/** Pods that are compared at once: the work of one is a millisecond, but the kernel takes 20 ms to delete links. */
const WORKERS = 8;
/** The pauses while the namespace of a running pod cannot be found, milliseconds. */
const ABSENT = { initialMs: 200, maxMs: 30_000 };
/** The time for which the place of an ADD is kept for a pod that the watch does not tell, milliseconds. */
const UNSEEN_MS = 60_000;
/** Two comparisons of one pod begin this far apart at least, milliseconds: who may edit an Egress can do it hundreds of times a second. */
const PAUSE_MS = 200;
/** At most this many ADDs wait for the permission to use an Egress; further ones fail at once. */
const MAX_WAITING = 256;
/** A log line and an event name at most this many faults. */
const MAX_NAMED = 5;
/** The reasons of the events that tell what a running pod lacks. */
const REPORTS = ["EgressIncomplete", "EgressRefused"] as const;
/** A key of the log's repeats that is no UID. */
const LEFT_MARKS = "left marks";
/** The number of times that CHECK looks before it names a fault. */
const CHECK_TRIES = 4;

/** Settings of {@link EgressClients}. */
export interface EgressClientOptions {
  readonly nodeName: string;
  readonly asked: (typeof TUNNEL_DRIVERS)[number];
  /** UDP port of the tunnels. */
  readonly port: number;
  /** Ranges that a wider destination does not capture. */
  readonly inCluster: readonly Cidr[];
  /** What an Egress that does not say gets. */
  readonly originatingOnly: boolean;
  /** The time for which an ADD waits for the permission to use an Egress, milliseconds. A kubelet tries a failed ADD again after 10 to 15 s only. */
  readonly permissionMs: number;
  /** Each client is compared again within this time, milliseconds: other programs change a pod's rules and links too. */
  readonly resyncMs: number;
  /** For how long a router must answer after a death before its clients may have it again, milliseconds. Default 10,000. */
  readonly routerHoldMs?: number;
}

/**
 * The NAT clients of this node's pods (docs/spec/pod-network.md#7): made by ADD, and kept equal to Egresses, Services and annotations
 * as long as {@link EgressClients.run} runs. Each pod is planned as a whole and compared with its namespace.
 */
export class EgressClients {
  readonly #options: EgressClientOptions;
  readonly #parts: ConstructorParameters<typeof EgressClients>[0];
  readonly #driver: ClientDriver;
  readonly #sources: ClientSources;
  readonly #pods: Informer<Parameters<typeof clientPod>[0], ClientPod>;
  readonly #places: ClientPlaces;
  readonly #controller: Controller;
  /** One change of a namespace at a time; by the UID of the pod. */
  readonly #turns = new KeyedMutex();
  /** UIDs of pods that have a client; at most the pods of the node. */
  readonly #clients = new Set<string>();
  /** By UID: the pauses of running pods whose namespace is not found. */
  readonly #absent = new Map<string, Backoff>();
  /** By UID: when an ADD has ended whose pod the watch does not tell. */
  readonly #unseen = new Map<string, number>();
  /** By UID: when the last comparison of the pod began. */
  readonly #comparedAt = new Map<string, number>();
  /** UIDs of pods in whose other packet filter nothing of ours is: only an earlier process can have left something. */
  readonly #otherClean = new Set<string>();
  /** By UID: what the pod had of its Egresses at its last comparison. */
  readonly #held = new Map<string, HeldEgresses>();
  /** ADDs that wait for a permission; each is told of every change. */
  readonly #waiting = new Set<Dirty>();
  readonly #namespaces: Informer<Namespace, ClientNamespace>;
  readonly #translation: TranslationLook;
  readonly #refused: RefusedFlows;
  readonly #routers: ClientRouters;
  readonly #repeats = new Repeats();
  #isSynced = false;
  #hasNamespaces = false;

  constructor(
    parts: {
      readonly kernel: Kernel;
      readonly api: KubeApi;
      /** Run by the caller. */
      readonly namespaces: Informer<Namespace, ClientNamespace>;
      /** The pods that the kernel tells, with their namespaces. */
      readonly places: () => readonly KernelPlace[];
      readonly events: Pick<EventRecorder, "record">;
      readonly health: Health;
      /** Loads the kernel modules of the tunnel driver, as far as the system has them; the caller has done so once. */
      readonly loadModules: (options: AbortOptions) => Promise<void>;
      /** For `originatingOnly`. */
      readonly filters: FilterOpeners;
      /** Opens a socket in the namespace of a client. Default: one of the kernel. */
      readonly openProbeSocket?: ConstructorParameters<typeof ClientRouters>[0]["openSocket"] | undefined;
      readonly onDriver: (driver: TunnelDriver["name"] | "none") => void;
      readonly recording?: ClientRecording | undefined;
      readonly log: Logger;
      readonly clock: Clock;
    },
    options: EgressClientOptions,
  ) {
    this.#parts = parts;
    this.#options = options;
    const { kernel, api, clock, log, health } = parts;
    const { asked, nodeName } = options;
    this.#driver = new ClientDriver({
      kernel,
      asked,
      loadModules: parts.loadModules,
      // Pods without an Egress do not need it.
      health: neverNeeded(health, "tunnel-driver"),
      onChosen: parts.onDriver,
      log,
      clock,
    });
    const onHealth = (plural: string): ((state: InformerHealth) => void) => {
      const part = neverNeeded(health, `watch-${plural}`);
      return (state) => (state.state === "ready" ? part.ok() : part.degraded(state.error));
    };
    this.#namespaces = parts.namespaces;
    const markPodsOf = (egress: string, { isAccess }: { readonly isAccess: boolean }): void => {
      for (const { metadata } of this.#pods.store.byIndex("egress", egress)) this.#controller.enqueue(metadata.uid);
      if (isAccess) this.#markUsers(this.#pods.store.values());
      for (const one of this.#waiting) one.mark();
    };
    const markPodsIn = (namespace: string): void => {
      this.#markUsers(this.#pods.store.byIndex("namespace", namespace));
      for (const one of this.#waiting) one.mark();
    };
    this.#sources = new ClientSources({
      api,
      namespaces: parts.namespaces,
      onHealth,
      onChange: markPodsOf,
      onNamespace: markPodsIn,
      onRouter: () => this.#routers.routersChanged(),
      recording: parts.recording,
      clock,
    });
    this.#pods = createInformer(api, resources.pods, {
      fieldSelector: `spec.nodeName=${nodeName}`,
      transform: clientPod,
      indexers: CLIENT_POD_INDEXES,
      onHealth: onHealth("pods"),
      steps: parts.recording?.stepsFor(resources.pods),
      clock,
    });
    const podsAt = (address: string): readonly ClientPod[] => this.#pods.store.byIndex("address", address);
    this.#places = new ClientPlaces({ kernel, list: parts.places, podsAt, clock });
    this.#controller = new Controller({
      name: "nat-clients",
      reconcile: (uid, at) => this.#turns.run(uid, () => this.#reconcile(uid), at),
      workers: WORKERS,
      // Longer than the pause, which would count as a success and begin the back-off anew.
      retry: { initialMs: 2 * PAUSE_MS, maxMs: 30_000 },
      waitFor: [this.#sources.egresses, this.#sources.services, this.#sources.routers, this.#pods],
      ...this.#asideOptions(),
      log,
      clock,
    });
    const { events, filters } = parts;
    const openConntrack = (): ConntrackPort => {
      using own = kernel.openNetNs("own");
      return filters.openConntrack(own);
    };
    this.#routers = new ClientRouters(
      {
        routersOf: (egress) => this.#sources.routers.store.byIndex("egress", egress),
        openSocket:
          parts.openProbeSocket ??
          ((place, address, onDatagram) => {
            using netns = this.#places.open(place);
            if (netns === undefined) throw new KernelError("not-found", "the pod's network namespace is gone");
            return openProbeSocket(netns, address, onDatagram, log);
          }),
        openConntrack,
        onChange: (egress) => markPodsOf(egress, { isAccess: this.#sources.hasSelectors(egress) }),
        health: neverNeeded(health, "egress-routers"),
        log,
        clock,
      },
      { port: options.port, holdMs: options.routerHoldMs },
    );
    this.#translation = new TranslationLook({ openConntrack, events, log, clock }, { port: options.port });
    const { openElements } = filters;
    const pods = () => this.#pods.store.values();
    this.#refused = new RefusedFlows({
      ...nodeRouters({ api, sources: this.#sources, places: this.#places, pods, podsAt, openElements }),
      health: neverNeeded(health, "refused-flows"),
      ...{ events, log, clock },
    });
    const mark = (pod: ClientPod): void => this.#controller.enqueue(pod.metadata.uid);
    this.#pods.addHandler({
      // At the start every pod is compared: its annotation may have been removed while there was no coild.
      onAdd: (pod, { initial }) => (initial || this.#isUser(pod) || pod.isRefused) && mark(pod),
      onUpdate: (before, after) => {
        if (before.metadata.uid !== after.metadata.uid) mark(before);
        if (differs(before, after) && [before, after].some((pod) => this.#isUser(pod) || pod.isRefused)) mark(after);
      },
      onDelete: mark,
    });
  }

  /** A pod whose comparison ends coild keeps what it has, until it or an Egress that it names has changed. */
  #asideOptions(): Pick<ControllerOptions, "passes" | "versionOf" | "onAside"> {
    const { recording, log } = this.#parts;
    if (recording === undefined) return {};
    const podOf = (uid: string): ClientPod | undefined => this.#pods.store.byIndex("uid", uid)[0];
    return {
      passes: recording.passes,
      versionOf: (uid) => {
        const pod = podOf(uid);
        return pod === undefined ? undefined : [pod, ...this.#sources.namedBy(pod)].map(versionOf).join("/");
      },
      onAside: (uid, aside) => {
        const pod = podOf(uid);
        const about = pod === undefined ? undefined : regarding(resources.pods, pod);
        recording.report({ key: pod === undefined ? uid : keyOf(pod.metadata), about }, aside, log);
      },
    };
  }

  /** Returns true if a pod names an Egress, is selected by one, or has something of one. */
  #isUser(pod: ClientPod): boolean {
    if (namesEgress(pod)) return true;
    const held = this.#held.get(pod.metadata.uid);
    if (held !== undefined && held !== NOTHING_HELD) return true;
    return this.#sources.isSelected(pod);
  }

  #markUsers(pods: Iterable<ClientPod>): void {
    for (const pod of pods) if (this.#isUser(pod)) this.#controller.enqueue(pod.metadata.uid);
  }

  /** Compares all clients again: objects of pods have been restored, which may have been missing when a client was compared. */
  recheck(): void {
    this.#places.refresh();
    this.#markUsers(this.#pods.store.values());
  }

  /** The number of pods that have a NAT client. */
  get count(): number {
    return this.#clients.size;
  }

  /** The number of pods whose packets to their Egress the node translates. */
  get translatedCount(): number {
    return this.#translation.count;
  }

  /** Which router serves a client past the Service, and what is known of the routers in use. */
  get routers(): Pick<ClientRouters, "redirects" | "verdicts"> {
    return this.#routers;
  }

  /** What the pods of this node have, and how clients are made, for `isthmus audit`. Rejects with `KernelError`. */
  inspect(options: AbortOptions): Promise<EgressNode> {
    const { nodeName: node, port, inCluster, originatingOnly } = this.#options;
    const pods = [...this.#pods.store.values()].filter((pod) => this.#isUser(pod));
    const families = FAMILIES.filter((family) =>
      pods.some((pod) => pod.addresses.some((one) => one.family === family)),
    );
    const { driver, fault = "" } = this.#driver.of(families);
    const redirects = this.#routers.redirects.map(({ uid, egress, router }) => ({ uid, egress, router: router.uid }));
    const clients = { fault, port, inCluster, originatingOnly, redirects };
    return inspectPods(
      this.#parts,
      { node, clients: driver === undefined ? clients : { ...clients, driver: driver.name } },
      options,
    );
  }

  /** ADD: gives a new pod what it uses. Idempotent; does nothing for a pod that uses no Egress. Rejects with {@link EgressClientError}. */
  async setUp(request: ClientAdd, options: AbortOptions): Promise<void> {
    const { pod } = request;
    // The watch tells it, and its event.
    if (routerEgress(pod.labels) !== undefined) return;
    let isUser = true;
    try {
      isUser = await this.#add(request, options);
    } catch (error) {
      // The service logs it and the runtime is told; who made the pod sees its events. A refusal was told before the wait.
      if (error instanceof EgressClientError && error.code !== "refused")
        this.#event(pod, "EgressNotReady", error.message);
      throw error;
    } finally {
      if (isUser) {
        this.#unseen.set(pod.uid, this.#parts.clock.monotonic());
        // An Egress may have changed while this pod was not known as its client. This pass also tells what the pod lacks.
        this.#controller.enqueue(pod.uid);
      }
    }
  }

  /** Returns false if the pod uses no Egress. */
  async #add(request: ClientAdd, options: AbortOptions): Promise<boolean> {
    const { pod } = request;
    const families = FAMILIES.filter((family) => request[`ipv${family}`] !== undefined);
    const wanted = await this.#wantedOf(pod, families, options);
    const { uses, faults } = wanted;
    if (uses.length + faults.length === 0) return false;
    const { driver, fault } = this.#driver.of(families);
    if (driver === undefined) throw new EgressClientError("try-again", `the pod uses an Egress, and ${fault}`);
    const missing = faults.find(isMissing);
    if (missing !== undefined) throw new EgressClientError("try-again", faultText(missing));
    await this.#turns.run(pod.uid, () => this.#setUp(request, keepClosed(uses, NOTHING_HELD), driver), options);
    return true;
  }

  /** What a new pod uses. While an Egress refuses it, waits for the permission, and rejects at the end of that time. */
  async #wantedOf(
    pod: ClientAdd["pod"],
    families: readonly IpFamily[],
    options: AbortOptions,
  ): Promise<ReturnType<typeof gatewaysOf>> {
    const { clock } = this.#parts;
    const endMs = clock.monotonic() + this.#options.permissionMs;
    const changed = new Dirty(clock);
    const mayWait = this.#waiting.size < MAX_WAITING;
    let told = "";
    this.#waiting.add(changed);
    try {
      for (;;) {
        const source = await this.#sources.forAdd(pod, { ...options, isSynced: this.#isSynced });
        const wanted = gatewaysOf(pod, source, families, this.#options);
        const refused = wanted.faults.find(({ why }) => why === "refused");
        if (refused === undefined) return wanted;
        const text = faultText(refused);
        if (text !== told) this.#event(pod, "EgressRefused", text);
        told = text;
        const leftMs = endMs - clock.monotonic();
        if (leftMs <= 0 || !mayWait) throw new EgressClientError("refused", text);
        await changed.wait({ atMostMs: leftMs, ...options });
        // A round may ask the API server, and every edit of any Egress or Namespace begins one.
        const pauseMs = Math.min(PAUSE_MS, endMs - clock.monotonic());
        if (pauseMs > 0) await sleep(pauseMs, { clock, signal: options.signal });
        options.signal?.throwIfAborted();
      }
    } finally {
      this.#waiting.delete(changed);
    }
  }

  async #setUp(
    { pod, netns: path, ifname, ipv4, ipv6 }: ClientAdd,
    wish: ClientWish,
    driver: TunnelDriver,
  ): Promise<void> {
    const addresses = { ...(ipv4 === undefined ? {} : { 4: ipv4 }), ...(ipv6 === undefined ? {} : { 6: ipv6 }) };
    try {
      const place = this.#places.tell(pod.uid, { path, ifname, addresses });
      const done = await this.#sync(pod, place, () => wish, driver);
      if (done === undefined) throw new EgressClientError("try-again", `the pod has no interface ${ifname} any more`);
      const collision = done.skipped.find(({ why }) => why === "same-vni");
      if (collision !== undefined) throw new EgressClientError("try-again", skipText(collision));
    } catch (error) {
      this.#forget(pod.uid);
      if (!(error instanceof ExpectedError) || error instanceof EgressClientError) throw error;
      throw new EgressClientError("try-again", wayText(error), { cause: error });
    }
  }

  /**
   * CHECK: rejects with {@link EgressClientError} `incomplete`, which names the first thing that the pod lacks. Asks no API server: it resolves where this pod or its Egresses
   * are not known. The UID is empty if the runtime does not give it.
   */
  async check(
    { namespace, name, uid }: Pick<ClientAdd["pod"], "namespace" | "name" | "uid">,
    { signal }: AbortOptions,
  ): Promise<void> {
    const lack = (): string | undefined => {
      const pod = this.#pods.store.getByKey(`${namespace}/${name}`);
      if (pod === undefined || !this.#isUser(pod)) return undefined;
      if (uid !== "" && pod.metadata.uid !== uid && pod.staticUid !== uid) return undefined;
      if (!this.#isSynced || (!this.#hasNamespaces && this.#sources.lacksNamespace(pod))) return undefined;
      return this.#lackOf(pod);
    };
    // An edit may be under way to the pod: it has some time to arrive.
    let missing = lack();
    for (let tries = 1; missing !== undefined && tries < CHECK_TRIES; tries += 1) {
      await sleep(2 * PAUSE_MS, { clock: this.#parts.clock, signal });
      missing = lack();
    }
    if (missing !== undefined)
      throw new EgressClientError("incomplete", `the pod's way to its Egress lacks: ${missing}`);
  }

  #lackOf(pod: ClientPod): string | undefined {
    const { port, inCluster } = this.#options;
    const place = this.#places.of(pod);
    if (place === undefined) return "its network namespace";
    const families = FAMILIES.filter((family) => place.addresses[family] !== undefined);
    const { driver } = this.#driver.of(families);
    if (driver === undefined) return undefined;
    const { uses, faults } = gatewaysOf(pod, this.#sources.known, families, this.#options);
    // Until then it keeps what it has.
    if (faults.some(isBeingRepaired)) return undefined;
    using netns = this.#places.open(place);
    if (netns === undefined) return "its network namespace";
    using stack = this.#parts.kernel.openStack(netns, OF_OTHERS);
    const link = stack.links.get({ name: place.ifname });
    if (link === undefined) return `interface ${place.ifname}`;
    const { gateways, closed } = keepClosed(uses, this.#heldOf(pod.metadata.uid, stack));
    const { addresses, ifname } = place;
    const all = withLackingFamilies(closed, addresses, () => observeClosed(stack, { port }));
    const served = this.#routers.redirect(pod.metadata.uid, gateways);
    return lackOfClient(stack, { addresses, ifname, mtuBytes: link.mtu, closed: all }, served, {
      driver,
      port,
      inCluster,
    });
  }

  /** Watches and keeps clients up to date until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const group = new TaskGroup(signal);
    const informers = [this.#sources.egresses, this.#sources.services, this.#sources.routers, this.#pods];
    for (const informer of informers) group.spawn((at) => informer.run({ signal: at }));
    group.spawn(async (at) => {
      await allSynced(informers, { signal: at });
      this.#isSynced = true;
      await this.#refused.run({ signal: at });
    });
    group.spawn(async (at) => {
      await allSynced([this.#namespaces], { signal: at });
      this.#hasNamespaces = true;
      this.#markUsers(this.#pods.store.values());
    });
    group.spawn((at) => this.#controller.run({ signal: at }));
    group.spawn((at) => this.#translation.run({ signal: at }));
    group.spawn((at) => this.#routers.run({ signal: at }));
    group.spawn(async (at) => {
      const onChange = (): void => this.#markUsers(this.#pods.store.values());
      await this.#driver.run({ signal: at, onChange });
    });
    await group.wait();
    this.#openGuards();
  }

  /**
   * At an orderly end, clients take packets of tunnels from everybody until the next coild has compared them: a release before the guard, to which a cluster may
   * go back, tells no client of new routers. A coild that was killed leaves the guards as they are.
   */
  #openGuards(): void {
    for (const uid of this.#clients) {
      const [pod] = this.#pods.store.byIndex("uid", uid);
      try {
        const place = pod === undefined ? undefined : this.#places.of(pod);
        using netns = place === undefined ? undefined : this.#places.open(place);
        if (netns === undefined) continue;
        using guard = this.#parts.filters.openGuard(netns);
        guard.remove();
      } catch (error) {
        if (!(error instanceof ExpectedError)) throw error;
        const { namespace, name } = pod?.metadata ?? {};
        const fix =
          "a release before 0.2.0 tells it of no new router: nft delete table inet coil-client in the pod's network namespace";
        this.#parts.log.warn("a client takes packets of tunnels from the routers of now alone", {
          ...{ namespace, pod: name, error: error.message, fix },
        });
      }
    }
  }

  /** Brings the namespace of one pod to what its annotations name now. */
  async #reconcile(uid: string): Promise<{ readonly requeueAfterMs: number } | undefined> {
    const pod = this.#pods.store.byIndex("uid", uid)[0];
    const unseenAt = this.#unseen.get(uid);
    if (pod === undefined && unseenAt !== undefined) {
      const leftMs = unseenAt + UNSEEN_MS - this.#parts.clock.monotonic();
      if (leftMs > 0) return { requeueAfterMs: leftMs };
    }
    if (pod === undefined || !pod.hasNetwork) {
      this.#forget(uid);
      return undefined;
    }
    this.#unseen.delete(uid);
    const now = this.#parts.clock.monotonic();
    const waitMs = (this.#comparedAt.get(uid) ?? Number.NEGATIVE_INFINITY) + PAUSE_MS - now;
    if (waitMs > 0) return { requeueAfterMs: waitMs };
    this.#comparedAt.set(uid, now);
    const place = this.#places.of(pod);
    if (place === undefined) return this.#whenAbsent(pod);
    const families = FAMILIES.filter((family) => place.addresses[family] !== undefined);
    const { driver } = this.#driver.of(families);
    // The health and the log tell it. When there is a driver, all clients are compared.
    if (driver === undefined) return undefined;
    // A verdict without the Namespaces would close what is allowed. A coild without the right to them serves the pods that need none.
    if (!this.#hasNamespaces && this.#sources.lacksNamespace(pod)) return undefined;
    const { uses, faults } = gatewaysOf(pod, this.#sources.known, families, this.#options);
    const isRefusal = ({ why }: (typeof faults)[number]): boolean => why === "refused";
    this.#report(pod.metadata, "EgressRefused", faults.filter(isRefusal).map(faultText));
    const others = faults.filter((fault) => !isRefusal(fault)).map(faultText);
    const texts = [...(pod.isRefused ? [ROUTER_TEXT] : []), ...others];
    let done: ClientSync | undefined;
    let wish: ClientWish | undefined;
    try {
      done = await this.#sync(
        pod.metadata,
        place,
        (held) => {
          wish = keepClosed(uses, held);
          return wish;
        },
        driver,
      );
    } catch (error) {
      // The controller logs it and tries again.
      if (error instanceof ExpectedError) this.#event(pod.metadata, "EgressNotReady", wayText(error));
      throw error;
    }
    if (done === undefined) return this.#whenAbsent(pod);
    this.#absent.delete(uid);
    if (done.hasTunnel) this.#lookAt(pod, place);
    const left = wish === undefined ? [] : closedTexts(wish);
    this.#report(pod.metadata, "EgressIncomplete", [...texts, ...left, ...done.skipped.map(skipText)]);
    const { changes } = done;
    if (changes > 0) {
      const { namespace, name } = pod.metadata;
      this.#parts.log.info("the NAT client of a pod changed", {
        namespace,
        pod: name,
        changes,
        gateways: wish?.gateways.length ?? 0,
        closed: wish === undefined ? 0 : wish.closed.annotation.length + wish.closed.selector.length,
      });
    }
    // At different times, though all were compared at once at the start.
    return this.#held.get(uid) !== NOTHING_HELD
      ? { requeueAfterMs: this.#options.resyncMs * (1 - Math.random() / 2) }
      : undefined;
  }

  #lookAt({ metadata: { uid, name, namespace } }: ClientPod, { addresses }: ClientPlace): void {
    this.#translation.add({ uid, name, namespace, addresses: FAMILIES.flatMap((family) => addresses[family] ?? []) });
  }

  /** What the pod had of its Egresses; of one that this process has not compared yet, what its own routes say. */
  #heldOf(uid: string, stack: NetStack): HeldEgresses {
    const held = this.#held.get(uid);
    if (held !== undefined) return held;
    const found = observeClosed(stack, { port: this.#options.port });
    return found.annotation.length + found.selector.length === 0 ? NOTHING_HELD : { ...NOTHING_HELD, found };
  }

  /** Returns `undefined` if the namespace or the pod's interface is gone. */
  async #sync(
    { uid, namespace = "default" }: Pick<ClientPod["metadata"], "uid" | "namespace">,
    place: ClientPlace,
    wishOf: (held: HeldEgresses) => ClientWish,
    driver: TunnelDriver,
  ): Promise<ClientSync | undefined> {
    const { port, inCluster } = this.#options;
    using netns = this.#places.open(place);
    if (netns === undefined) return undefined;
    using stack = this.#parts.kernel.openStack(netns, OF_OTHERS);
    const link = stack.links.get({ name: place.ifname });
    if (link === undefined) return undefined;
    const before = this.#heldOf(uid, stack);
    const { gateways, closed, held, isFrozen } = wishOf(before);
    // Without its Service an Egress has no gateway. The pod keeps what it has: packets must not leave without NAT.
    if (isFrozen)
      return { changes: 0, hasTunnel: this.#clients.has(uid), skipped: [], isOtherClean: false, faults: [] };
    const pod = {
      addresses: place.addresses,
      ifname: place.ifname,
      mtuBytes: link.mtu,
      closed: withLackingFamilies(closed, place.addresses, () => observeClosed(stack, { port })),
    };
    const { openFilter, openOther, openConntrack } = this.#parts.filters;
    const guarded =
      gateways.length === 0 && before === NOTHING_HELD ? 0 : await this.#syncGuard(netns, gateways, driver);
    this.#routers.use(uid, { namespace, place, driver, gateways });
    const done = await syncClient(stack, pod, this.#routers.redirect(uid, gateways), {
      driver,
      port,
      inCluster,
      openFilter: () => openFilter(netns),
      openOther: this.#otherClean.has(uid) ? undefined : () => openOther(netns),
      openConntrack: () => openConntrack(netns),
    });
    this.#held.set(uid, held.egresses.size + closedCount(held.found) === 0 ? NOTHING_HELD : held);
    if (done.isOtherClean) this.#otherClean.add(uid);
    for (const fault of done.faults) this.#tellLeft(fault);
    if (done.hasTunnel) this.#clients.add(uid);
    else this.#clients.delete(uid);
    return { ...done, changes: done.changes + guarded };
  }

  /** Before the tunnels are there, and before they go: without traces of a client nobody looks for the table. Returns the number of changes. */
  async #syncGuard(netns: NetNs, gateways: readonly Gateway[], driver: TunnelDriver): Promise<number> {
    using guard = this.#parts.filters.openGuard(netns);
    if (gateways.length === 0) return guard.remove();
    const found = await this.#sources.routersOf(gateways.map(({ egress }) => egress));
    // A router's packets come from its Service where the node's connection tracking takes them for answers: both ports are the same then.
    const routers = [...gateways.map(({ address }) => address), ...found];
    return await guard.sync({ driver, port: this.#options.port, routers });
  }

  /** A pod may run while its sandbox is being replaced. A pod that names no Egress needs nothing. */
  #whenAbsent(pod: ClientPod): { readonly requeueAfterMs: number } | undefined {
    const { uid, namespace, name } = pod.metadata;
    this.#clients.delete(uid);
    this.#routers.forget(uid);
    if (!this.#isUser(pod) || !pod.isRunning || pod.isLeaving) {
      this.#absent.delete(uid);
      return undefined;
    }
    let backoff = this.#absent.get(uid);
    if (backoff === undefined) {
      backoff = new Backoff(ABSENT);
      this.#absent.set(uid, backoff);
      this.#parts.log.info("the network namespace of a pod that names an Egress is not found; trying again", {
        namespace,
        pod: name,
      });
    }
    return { requeueAfterMs: backoff.next() };
  }

  /** Logs the faults of a pod and writes an event, when they are new. */
  #report(metadata: ClientPod["metadata"], reason: (typeof REPORTS)[number], texts: readonly string[]): void {
    const { uid, namespace, name } = metadata;
    if (texts.length === 0) {
      this.#repeats.forget(`${reason} ${uid}`);
      return;
    }
    const more = texts.length > MAX_NAMED ? [`and ${texts.length - MAX_NAMED} more`] : [];
    const note = [...texts.slice(0, MAX_NAMED), ...more].join("; ");
    if (!this.#repeats.isNew(`${reason} ${uid}`, note)) return;
    const what =
      reason === "EgressRefused"
        ? "a pod may not use an Egress that it names"
        : "a pod has not all that its annotations name";
    this.#parts.log.warn(what, { namespace, pod: name, faults: note });
    this.#event(metadata, reason, note);
  }

  /** An event of the pod. Equal ones are counted. */
  #event({ name, namespace, uid }: EventPod, reason: string, note: string): void {
    const regarding = { apiVersion: "v1", kind: "Pod", name, uid, ...(namespace === undefined ? {} : { namespace }) };
    this.#parts.events.record({ regarding, type: "Warning", reason, note });
  }

  /** Once for each reason, not for each pod. */
  #tellLeft(fault: ExpectedError): void {
    if (!this.#repeats.isNew(LEFT_MARKS, fault.message)) return;
    const { message: error } = fault;
    this.#parts.log.warn("marks of connections may be left in pods; they have no effect any more", { error });
  }

  #forget(uid: string): void {
    this.#places.forget(uid);
    this.#translation.forget(uid);
    this.#routers.forget(uid);
    this.#clients.delete(uid);
    this.#absent.delete(uid);
    this.#unseen.delete(uid);
    this.#comparedAt.delete(uid);
    this.#otherClean.delete(uid);
    this.#held.delete(uid);
    for (const reason of REPORTS) this.#repeats.forget(`${reason} ${uid}`);
  }
}

const versionOf = ({ metadata }: { readonly metadata: { readonly resourceVersion: string } }): string =>
  metadata.resourceVersion;
const keyOf = ({ namespace = "", name }: { readonly namespace?: string; readonly name: string }): string =>
  `${namespace}/${name}`;

const closedCount = ({ annotation, selector }: ClosedDestinations): number => annotation.length + selector.length;

/** Which destinations are closed for a pod without a fault of an Egress that there is. */
function closedTexts({ held }: ClientWish): string[] {
  const gone = [...held.egresses].filter(([, { by, gateways }]) => by === "selector" && gateways.length === 0);
  const lost = gone.flatMap(([, { destinations }]) => destinations).length + held.found.selector.length;
  if (lost === 0) return [];
  const whose = gone.length === 0 ? "an Egress" : `Egress ${gone.map(([key]) => key).join(", ")}`;
  return [
    `${whose} does not select the pod any more, or may not: ${lost} destinations stay unreachable until the pod is made anew or selected again`,
  ];
}

/** A router's namespace has the same tables and rules as a client's, each of which would remove those of the other. */
const ROUTER_TEXT =
  "the pod is a router of an Egress by its labels, and routers cannot use an Egress: its annotations egress.coil.cybozu.com/<namespace> have no effect; remove them";

type EventPod = Pick<ClientPod["metadata"], "name" | "namespace" | "uid">;

/** Returns why the state of a pod's namespace cannot be what it should be, as a sentence. */
function wayText(error: Error): string {
  return `the pod's way to its Egress: ${error.message}`;
}

/** A part without which the program is ready. */
function neverNeeded(health: Health, name: string): ReturnType<Health["part"]> {
  const part = health.part(name);
  part.ok();
  return part;
}
