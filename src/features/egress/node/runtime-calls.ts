import { type AbortOptions, Dirty, type KeyedMutex, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { routerEgress } from "#kube/coil";
import {
  type ClientWish,
  faultText,
  type Gateway,
  gatewaysOf,
  isMissing,
  keepClosed,
  NOTHING_HELD,
  skipText,
} from "../client/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";
import { EgressClientError } from "./client-error.ts";
import { PAUSE_MS } from "./client-passes.ts";
import { type ClientReports, wayText } from "./client-reports.ts";
import type { ClientSpaces } from "./client-spaces.ts";
import { type ClientView, familiesOf } from "./client-view.ts";
import type { ClientAdd } from "./types.ts";

/** At most this many ADDs wait for the permission to use an Egress; further ones fail at once. */
const MAX_WAITING = 256;
/** The number of times that CHECK looks before it names a fault. */
const CHECK_TRIES = 4;

/** ADD and CHECK of the container runtime: the client of a new pod, and what a pod lacks. */
export class RuntimeCalls {
  readonly #parts: ConstructorParameters<typeof RuntimeCalls>[0];
  readonly #options: ConstructorParameters<typeof RuntimeCalls>[1];
  /** ADDs that wait for a permission; each is marked at every change. At most {@link MAX_WAITING} and those that fail at once. */
  readonly #waiting = new Set<Dirty>();

  constructor(
    parts: {
      readonly view: ClientView;
      readonly spaces: Pick<ClientSpaces, "sync" | "lackOf">;
      readonly reports: Pick<ClientReports, "event">;
      /** One change of a namespace at a time; by the UID of the pod. */
      readonly turns: KeyedMutex;
      /** The pod is to be compared. */
      readonly enqueue: (uid: string) => void;
      /** The ADD has failed: all of the pod is forgotten. */
      readonly forget: (uid: string) => void;
      readonly clock: Clock;
    },
    options: Pick<Gateway, "originatingOnly"> & {
      /** The time for which an ADD waits for the permission to use an Egress, milliseconds. */
      readonly permissionMs: number;
    },
  ) {
    this.#parts = parts;
    this.#options = options;
  }

  /** Egresses, Namespaces or routers have changed: ADDs that wait look again. */
  changed(): void {
    for (const one of this.#waiting) one.mark("change");
  }

  /** ADD: gives a new pod what it uses. Idempotent; does nothing for a pod that uses no Egress. Rejects with {@link EgressClientError}. */
  async setUp(request: ClientAdd, options: AbortOptions): Promise<void> {
    const { view, reports, enqueue, clock } = this.#parts;
    const { pod } = request;
    // The watch shows it, and its event is written then.
    if (routerEgress(pod.labels) !== undefined) return;
    let isUser = true;
    try {
      isUser = await this.#add(request, options);
    } catch (error) {
      // The service logs it and answers the runtime; who made the pod sees its events. The event of a refusal was written before the wait.
      if (error instanceof EgressClientError && error.code !== "refused")
        reports.event(pod, "EgressNotReady", error.message);
      throw error;
    } finally {
      if (isUser) {
        view.states.update(pod.uid, { unseenAt: clock.monotonic() });
        // An Egress may have changed while this pod was not known as its client. This pass also reports what the pod lacks.
        enqueue(pod.uid);
      }
    }
  }

  /** Returns false if the pod uses no Egress. */
  async #add(request: ClientAdd, options: AbortOptions): Promise<boolean> {
    const { view, turns } = this.#parts;
    const { pod, ipv4, ipv6 } = request;
    const families = familiesOf({ addresses: { 4: ipv4, 6: ipv6 } });
    const { uses, faults } = await this.#wantedOf(pod, families, options);
    if (uses.length + faults.length === 0) return false;
    const { driver, fault } = view.driver.of(families);
    if (driver === undefined) throw new EgressClientError("try-again", `the pod uses an Egress, and ${fault}`);
    const missing = faults.find(isMissing);
    if (missing !== undefined) throw new EgressClientError("try-again", faultText(missing));
    await turns.run(pod.uid, () => this.#make(request, keepClosed(uses, NOTHING_HELD), driver), options);
    return true;
  }

  /** The Egresses that a new pod uses. While one of them refuses it, waits for the permission, and rejects at the end of that time. */
  async #wantedOf(
    pod: ClientAdd["pod"],
    families: readonly IpFamily[],
    options: AbortOptions,
  ): Promise<ReturnType<typeof gatewaysOf>> {
    const { view, reports, clock } = this.#parts;
    const endMs = clock.monotonic() + this.#options.permissionMs;
    const changed = new Dirty(clock);
    const mayWait = this.#waiting.size < MAX_WAITING;
    let reported = "";
    this.#waiting.add(changed);
    try {
      for (;;) {
        const source = await view.sources.forAdd(pod, { ...options, isSynced: view.isSynced });
        const wanted = gatewaysOf(pod, source, families, this.#options);
        const refused = wanted.faults.find(({ why }) => why === "refused");
        if (refused === undefined) return wanted;
        const text = faultText(refused);
        if (text !== reported) reports.event(pod, "EgressRefused", text);
        reported = text;
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

  async #make(
    { pod, netns: path, ifname, ipv4, ipv6 }: ClientAdd,
    wish: ClientWish,
    driver: TunnelDriver,
  ): Promise<void> {
    const { view, spaces, forget } = this.#parts;
    const addresses = { ...(ipv4 === undefined ? {} : { 4: ipv4 }), ...(ipv6 === undefined ? {} : { 6: ipv6 }) };
    try {
      const place = view.places.tell(pod.uid, { path, ifname, addresses });
      const done = await spaces.sync(pod, place, () => wish, driver);
      if (done === undefined) throw new EgressClientError("try-again", `the pod has no interface ${ifname} any more`);
      const collision = done.skipped.find(({ why }) => why === "same-vni");
      if (collision !== undefined) throw new EgressClientError("try-again", skipText(collision));
    } catch (error) {
      forget(pod.uid);
      if (!(error instanceof ExpectedError) || error instanceof EgressClientError) throw error;
      throw new EgressClientError("try-again", wayText(error), { cause: error });
    }
  }

  /**
   * CHECK: rejects with {@link EgressClientError} `incomplete`, which names the first thing that the pod lacks. Asks no API server: it resolves where this pod or its Egresses
   * are not known. The UID is empty if the runtime does not give it.
   */
  async check(pod: Pick<ClientAdd["pod"], "namespace" | "name" | "uid">, { signal }: AbortOptions): Promise<void> {
    // An edit may be under way to the pod: it has some time to arrive.
    let missing = this.#lackOf(pod);
    for (let tries = 1; missing !== undefined && tries < CHECK_TRIES; tries += 1) {
      await sleep(2 * PAUSE_MS, { clock: this.#parts.clock, signal });
      missing = this.#lackOf(pod);
    }
    if (missing !== undefined)
      throw new EgressClientError("incomplete", `the pod's way to its Egress lacks: ${missing}`);
  }

  #lackOf({ namespace, name, uid }: Pick<ClientAdd["pod"], "namespace" | "name" | "uid">): string | undefined {
    const { view, spaces } = this.#parts;
    const pod = view.pods.store.getByKey(`${namespace}/${name}`);
    if (pod === undefined || !view.isUser(pod)) return undefined;
    if (uid !== "" && pod.metadata.uid !== uid && pod.staticUid !== uid) return undefined;
    return view.isSynced && !view.lacksNamespace(pod) ? spaces.lackOf(pod) : undefined;
  }
}
