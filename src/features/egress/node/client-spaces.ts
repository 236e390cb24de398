import { ExpectedError } from "#base/errors";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { type Kernel, type NetNs, type NetStack, OF_OTHERS } from "#kernel/net";
import {
  type ClientSync,
  type ClientWish,
  type ClosedDestinations,
  type Gateway,
  gatewaysOf,
  type HeldEgresses,
  isBeingRepaired,
  keepClosed,
  lackOfClient,
  NOTHING_HELD,
  observeClosed,
  syncClient,
  withLackingFamilies,
} from "../client/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";
import type { ClientPlace } from "./client-places.ts";
import type { ClientPod } from "./client-pods.ts";
import type { ClientReports } from "./client-reports.ts";
import type { ClientRouters } from "./client-routers.ts";
import { type ClientView, familiesOf } from "./client-view.ts";
import type { FilterOpeners } from "./open-filter.ts";

/** The result of {@link ClientSpaces.sync}, and the wanted state that it applied. */
export interface SpaceSync extends ClientSync {
  readonly wish: ClientWish;
}

/** Settings of {@link ClientSpaces}. */
export interface SpaceOptions extends Pick<Gateway, "originatingOnly"> {
  /** UDP port of the tunnels. */
  readonly port: number;
  /** Ranges that a wider destination does not capture. */
  readonly inCluster: readonly Cidr[];
}

/** Compares the network namespaces of pods with the plans of their clients, and changes what differs. */
export class ClientSpaces {
  readonly #parts: ConstructorParameters<typeof ClientSpaces>[0];
  readonly #options: SpaceOptions;

  constructor(
    parts: {
      readonly kernel: Kernel;
      readonly view: ClientView;
      readonly filters: FilterOpeners;
      readonly routers: Pick<ClientRouters, "use" | "redirect">;
      readonly reports: Pick<ClientReports, "leftMarks">;
      readonly log: Logger;
    },
    options: SpaceOptions,
  ) {
    this.#parts = parts;
    this.#options = options;
  }

  /**
   * Brings the namespace of a pod to the state that `wishOf` makes of what the pod had before. Returns `undefined` if the namespace or the pod's interface is gone. Rejects with an
   * `ExpectedError` if the kernel or a packet filter refuses a step.
   */
  async sync(
    { uid, namespace = "default" }: Pick<ClientPod["metadata"], "uid" | "namespace">,
    place: ClientPlace,
    wishOf: (held: HeldEgresses) => ClientWish,
    driver: TunnelDriver,
  ): Promise<SpaceSync | undefined> {
    const { kernel, view, routers } = this.#parts;
    using netns = view.places.open(place);
    if (netns === undefined) return undefined;
    using stack = kernel.openStack(netns, OF_OTHERS);
    const link = stack.links.get({ name: place.ifname });
    if (link === undefined) return undefined;
    const before = this.#heldOf(uid, stack);
    const wish = wishOf(before);
    const { gateways, closed } = wish;
    // Without its Service an Egress has no gateway. The pod keeps what it has: packets must not leave without NAT.
    if (wish.isFrozen) {
      const hasTunnel = view.states.of(uid).hasClient;
      return { changes: 0, hasTunnel, skipped: [], isOtherClean: false, faults: [], wish };
    }
    const { addresses, ifname } = place;
    const all = withLackingFamilies(closed, addresses, () => observeClosed(stack, this.#options));
    const guarded = gateways.length === 0 && before === NOTHING_HELD ? 0 : await this.#guard(netns, gateways, driver);
    routers.use(uid, { namespace, place, driver, gateways });
    const pod = { addresses, ifname, mtuBytes: link.mtu, closed: all };
    const done = await syncClient(stack, pod, routers.redirect(uid, gateways), this.#openers(uid, netns, driver));
    this.#remember(uid, done, wish);
    return { ...done, changes: done.changes + guarded, wish };
  }

  #openers(uid: string, netns: NetNs, driver: TunnelDriver): Parameters<typeof syncClient>[3] {
    const { filters, view } = this.#parts;
    const { port, inCluster } = this.#options;
    return {
      driver,
      port,
      inCluster,
      openFilter: () => filters.openFilter(netns),
      openOther: view.states.of(uid).isOtherClean ? undefined : () => filters.openOther(netns),
      openConntrack: () => filters.openConntrack(netns),
    };
  }

  #remember(uid: string, done: ClientSync, { held }: ClientWish): void {
    const { view, reports } = this.#parts;
    for (const fault of done.faults) reports.leftMarks(fault);
    view.states.update(uid, {
      held: held.egresses.size + closedCount(held.found) === 0 ? NOTHING_HELD : held,
      hasClient: done.hasTunnel,
      ...(done.isOtherClean ? { isOtherClean: true } : {}),
    });
  }

  /** The state of the last comparison; of a pod that this process has not compared yet, what its own routes say. */
  #heldOf(uid: string, stack: NetStack): HeldEgresses {
    const { held } = this.#parts.view.states.of(uid);
    if (held !== undefined) return held;
    const found = observeClosed(stack, this.#options);
    return closedCount(found) === 0 ? NOTHING_HELD : { ...NOTHING_HELD, found };
  }

  /** Before the tunnels are there, and before they go: without traces of a client nobody looks for the table. Returns the number of changes. */
  async #guard(netns: NetNs, gateways: readonly Gateway[], driver: TunnelDriver): Promise<number> {
    const { filters, view } = this.#parts;
    using guard = filters.openGuard(netns);
    if (gateways.length === 0) return guard.remove();
    const found = await view.sources.routersOf(gateways.map(({ egress }) => egress));
    // A router's packets come from its Service where the node's connection tracking takes them for answers: both ports are the same then.
    const routers = [...gateways.map(({ address }) => address), ...found];
    return await guard.sync({ driver, port: this.#options.port, routers });
  }

  /** The first thing that a pod lacks of its client, in words; `undefined` if it lacks nothing, or if an Egress is being repaired. Throws `KernelError`. */
  lackOf(pod: ClientPod): string | undefined {
    const { kernel, view, routers } = this.#parts;
    const place = view.places.of(pod);
    if (place === undefined) return "its network namespace";
    const { driver } = view.driver.of(familiesOf(place));
    if (driver === undefined) return undefined;
    const { uses, faults } = gatewaysOf(pod, view.sources.known, familiesOf(place), this.#options);
    // Until then it keeps what it has.
    if (faults.some(isBeingRepaired)) return undefined;
    using netns = view.places.open(place);
    if (netns === undefined) return "its network namespace";
    using stack = kernel.openStack(netns, OF_OTHERS);
    const { addresses, ifname } = place;
    const link = stack.links.get({ name: ifname });
    if (link === undefined) return `interface ${ifname}`;
    const { gateways, closed } = keepClosed(uses, this.#heldOf(pod.metadata.uid, stack));
    const all = withLackingFamilies(closed, addresses, () => observeClosed(stack, this.#options));
    const served = routers.redirect(pod.metadata.uid, gateways);
    const { port, inCluster } = this.#options;
    return lackOfClient(stack, { addresses, ifname, mtuBytes: link.mtu, closed: all }, served, {
      driver,
      port,
      inCluster,
    });
  }

  /**
   * At an orderly end, clients take packets of tunnels from everybody until the next coild has compared them: a release before the guard, to which a cluster may
   * go back, tells no client of new routers. A coild that was killed leaves the guards as they are.
   */
  openGuards(): void {
    const { view, filters, log } = this.#parts;
    for (const uid of view.states.clients) {
      const pod = view.podOf(uid);
      try {
        const place = pod === undefined ? undefined : view.places.of(pod);
        using netns = place === undefined ? undefined : view.places.open(place);
        if (netns === undefined) continue;
        using guard = filters.openGuard(netns);
        guard.remove();
      } catch (error) {
        if (!(error instanceof ExpectedError)) throw error;
        const { namespace, name } = pod?.metadata ?? {};
        const fix =
          "a release before 0.2.0 tells it of no new router: nft delete table inet coil-client in the pod's network namespace";
        log.warn("a client takes packets of tunnels from the routers of now alone", {
          ...{ namespace, pod: name, error: error.message, fix },
        });
      }
    }
  }
}

const closedCount = ({ annotation, selector }: ClosedDestinations): number => annotation.length + selector.length;
