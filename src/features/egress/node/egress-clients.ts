import { type AbortOptions, KeyedMutex, TaskGroup } from "#base/async";
import type { Cidr, IpFamily } from "#base/ip";
import type { ConntrackPort } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import type { EventRecorder } from "#kube/events";
import { allSynced } from "#kube/informer";
import { Controller } from "#kube/reconciler";
import type { EgressNode } from "../audit/index.ts";
import type { TUNNEL_DRIVERS } from "../tunnel/index.ts";
import { asideOptions, ClientPasses, PAUSE_MS } from "./client-passes.ts";
import { type ClientPod, differs } from "./client-pods.ts";
import { ClientReports } from "./client-reports.ts";
import { ClientRouters } from "./client-routers.ts";
import { ClientSpaces } from "./client-spaces.ts";
import { ClientView, type ClientViewParts, neverNeeded } from "./client-view.ts";
import { inspectPods } from "./inspect-pods.ts";
import { nodeRouters } from "./node-routers.ts";
import type { FilterOpeners } from "./open-filter.ts";
import { openProbeSocket } from "./probe-socket.ts";
import { RefusedFlows } from "./refused-flows.ts";
import { RuntimeCalls } from "./runtime-calls.ts";
import { TranslationLook } from "./translation-look.ts";
import type { ClientAdd } from "./types.ts";

const FAMILIES: readonly IpFamily[] = [4, 6];
/** Pods that are compared at once: the work of one is a millisecond, but the kernel takes 20 ms to delete links. */
const WORKERS = 8;

/** Settings of {@link EgressClients}. */
export interface EgressClientOptions {
  readonly nodeName: string;
  readonly asked: (typeof TUNNEL_DRIVERS)[number];
  /** UDP port of the tunnels. */
  readonly port: number;
  /** Ranges that a wider destination does not capture. */
  readonly inCluster: readonly Cidr[];
  /** The value for an Egress that does not say. */
  readonly originatingOnly: boolean;
  /** The time for which an ADD waits for the permission to use an Egress, milliseconds. A kubelet tries a failed ADD again after 10 to 15 s only. */
  readonly permissionMs: number;
  /** Each client is compared again within this time, milliseconds: other programs change a pod's rules and links too. */
  readonly resyncMs: number;
  /** The time for which a router must answer after a death before its clients may have it again, milliseconds. Default 10,000. */
  readonly routerHoldMs?: number;
}

/** Collaborators of {@link EgressClients}. */
export interface EgressClientParts extends ClientViewParts {
  readonly events: Pick<EventRecorder, "record">;
  /** For `originatingOnly`. */
  readonly filters: FilterOpeners;
  /** Opens a socket in the namespace of a client. Default: one of the kernel. */
  readonly openProbeSocket?: ConstructorParameters<typeof ClientRouters>[0]["openSocket"] | undefined;
}

/**
 * The NAT clients of this node's pods (docs/spec/pod-network.md#7): made by ADD, and kept equal to Egresses, Services and annotations
 * as long as {@link EgressClients.run} runs. `ClientView` knows the objects, `ClientPasses` and `RuntimeCalls` plan, `ClientSpaces` applies.
 */
export class EgressClients {
  readonly #options: EgressClientOptions;
  readonly #parts: EgressClientParts;
  readonly #view: ClientView;
  readonly #spaces: ClientSpaces;
  readonly #calls: RuntimeCalls;
  readonly #passes: ClientPasses;
  readonly #controller: Controller;
  /** One change of a namespace at a time; by the UID of the pod. */
  readonly #turns = new KeyedMutex();
  readonly #translation: TranslationLook;
  readonly #refused: RefusedFlows;
  readonly #routers: ClientRouters;
  readonly #reports: ClientReports;

  constructor(parts: EgressClientParts, options: EgressClientOptions) {
    this.#parts = parts;
    this.#options = options;
    const { kernel, filters, log, clock } = parts;
    this.#reports = new ClientReports(parts);
    this.#view = new ClientView(
      {
        ...parts,
        onChange: (egress, change) => this.#egressChanged(egress, change),
        onNamespace: (namespace) => {
          this.#markUsers(this.#view.pods.store.byIndex("namespace", namespace));
          this.#calls.changed();
        },
        onRouter: () => this.#routers.routersChanged(),
      },
      options,
    );
    this.#controller = this.#makeController();
    this.#routers = this.#makeRouters();
    const { events } = parts;
    this.#translation = new TranslationLook(
      { openConntrack: () => this.#openConntrack(), events, log, clock },
      options,
    );
    this.#refused = this.#makeRefused();
    const [view, reports, routers] = [this.#view, this.#reports, this.#routers];
    this.#spaces = new ClientSpaces({ kernel, view, filters, routers, reports, log }, options);
    const forget = (uid: string): void => this.#forget(uid);
    const shared = { view, spaces: this.#spaces, reports, forget, clock };
    const enqueue = (uid: string): void => this.#controller.enqueue(uid);
    this.#calls = new RuntimeCalls({ ...shared, turns: this.#turns, enqueue }, options);
    this.#passes = new ClientPasses({ ...shared, routers, translation: this.#translation, log }, options);
    this.#watchPods();
  }

  #makeController(): Controller {
    const { recording, log, clock } = this.#parts;
    return new Controller({
      name: "nat-clients",
      reconcile: (uid, at) => this.#turns.run(uid, () => this.#passes.reconcile(uid), at),
      workers: WORKERS,
      // Longer than the pause, which would count as a success and begin the back-off anew.
      retry: { initialMs: 2 * PAUSE_MS, maxMs: 30_000 },
      waitFor: this.#view.informers,
      ...asideOptions(recording, { view: () => this.#view, log }),
      log,
      clock,
    });
  }

  #makeRouters(): ClientRouters {
    const { log, clock, health } = this.#parts;
    const { sources, places } = this.#view;
    return new ClientRouters(
      {
        routersOf: (egress) => sources.routers.store.byIndex("egress", egress),
        openSocket:
          this.#parts.openProbeSocket ??
          ((place, address, onDatagram) => {
            using netns = places.open(place);
            if (netns === undefined) throw new KernelError("not-found", "the pod's network namespace is gone");
            return openProbeSocket(netns, address, onDatagram, log);
          }),
        openConntrack: () => this.#openConntrack(),
        onChange: (egress) => this.#egressChanged(egress, { isAccess: sources.hasSelectors(egress) }),
        health: neverNeeded(health, "egress-routers"),
        log,
        clock,
      },
      { port: this.#options.port, holdMs: this.#options.routerHoldMs },
    );
  }

  #makeRefused(): RefusedFlows {
    const { api, events, health, filters, log, clock } = this.#parts;
    const { sources, places, pods } = this.#view;
    const podsAt = (address: string): readonly ClientPod[] => this.#view.podsAt(address);
    const { openElements } = filters;
    return new RefusedFlows({
      ...nodeRouters({ api, sources, places, pods: () => pods.store.values(), podsAt, openElements }),
      health: neverNeeded(health, "refused-flows"),
      ...{ events, log, clock },
    });
  }

  /** The connection tracking of the node. */
  #openConntrack(): ConntrackPort {
    const { kernel, filters } = this.#parts;
    using own = kernel.openNetNs("own");
    return filters.openConntrack(own);
  }

  #watchPods(): void {
    const concerns = (pod: ClientPod): boolean => this.#view.isUser(pod) || pod.isRefused;
    const mark = (pod: ClientPod): void => this.#controller.enqueue(pod.metadata.uid);
    this.#view.pods.addHandler({
      // At the start every pod is compared: its annotation may have been removed while there was no coild.
      onAdd: (pod, { initial }) => (initial || concerns(pod)) && mark(pod),
      onUpdate: (before, after) => {
        if (before.metadata.uid !== after.metadata.uid) mark(before);
        if (differs(before, after) && [before, after].some(concerns)) mark(after);
      },
      onDelete: mark,
    });
  }

  /** Compares the clients of an Egress, as `namespace/name`; `isAccess`: also pods that it selects, or may have selected. */
  #egressChanged(egress: string, { isAccess }: { readonly isAccess: boolean }): void {
    const { store } = this.#view.pods;
    for (const { metadata } of store.byIndex("egress", egress)) this.#controller.enqueue(metadata.uid);
    if (isAccess) this.#markUsers(store.values());
    this.#calls.changed();
  }

  #markUsers(pods: Iterable<ClientPod> = this.#view.pods.store.values()): void {
    for (const pod of pods) if (this.#view.isUser(pod)) this.#controller.enqueue(pod.metadata.uid);
  }

  #forget(uid: string): void {
    this.#view.places.forget(uid);
    this.#view.states.forget(uid);
    this.#translation.forget(uid);
    this.#routers.forget(uid);
    this.#reports.forget(uid);
  }

  /** Compares all clients again: objects of pods have been restored, which may have been missing when a client was compared. */
  recheck(): void {
    this.#view.places.refresh();
    this.#markUsers();
  }

  /** The number of pods that have a NAT client. */
  get count(): number {
    return this.#view.states.clients.length;
  }

  /** The number of pods whose packets to their Egress the node translates. */
  get translatedCount(): number {
    return this.#translation.count;
  }

  /** The router that serves each client past the Service, and what is known of the routers in use. */
  get routers(): Pick<ClientRouters, "redirects" | "verdicts"> {
    return this.#routers;
  }

  /** The state of the pods of this node, and how clients are made, for `isthmus audit`. Rejects with `KernelError`. */
  inspect(options: AbortOptions): Promise<EgressNode> {
    const { nodeName: node, port, inCluster, originatingOnly } = this.#options;
    const pods = [...this.#view.pods.store.values()].filter((pod) => this.#view.isUser(pod));
    const families = FAMILIES.filter((family) =>
      pods.some((pod) => pod.addresses.some((one) => one.family === family)),
    );
    const { driver, fault = "" } = this.#view.driver.of(families);
    const redirects = this.#routers.redirects.map(({ uid, egress, router }) => ({ uid, egress, router: router.uid }));
    const clients = { fault, port, inCluster, originatingOnly, redirects };
    return inspectPods(
      this.#parts,
      { node, clients: driver === undefined ? clients : { ...clients, driver: driver.name } },
      options,
    );
  }

  /** ADD: see {@link RuntimeCalls.setUp}. */
  setUp(request: ClientAdd, options: AbortOptions): Promise<void> {
    return this.#calls.setUp(request, options);
  }

  /** CHECK: see {@link RuntimeCalls.check}. */
  check(pod: Parameters<RuntimeCalls["check"]>[0], options: AbortOptions): Promise<void> {
    return this.#calls.check(pod, options);
  }

  /** Watches and keeps clients up to date until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const group = new TaskGroup(signal);
    group.spawn((at) => this.#view.run({ signal: at, onAll: () => this.#markUsers() }));
    group.spawn(async (at) => {
      await allSynced(this.#view.informers, { signal: at });
      await this.#refused.run({ signal: at });
    });
    group.spawn((at) => this.#controller.run({ signal: at }));
    group.spawn((at) => this.#translation.run({ signal: at }));
    group.spawn((at) => this.#routers.run({ signal: at }));
    await group.wait();
    this.#spaces.openGuards();
  }
}
