import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { objectKey, resources } from "#kube/client";
import { regarding } from "#kube/events";
import type { ControllerOptions } from "#kube/reconciler";
import { type Gateway, gatewaysOf, keepClosed } from "../client/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";
import type { ClientPlace } from "./client-places.ts";
import type { ClientPod } from "./client-pods.ts";
import { type ClientReports, wayText } from "./client-reports.ts";
import type { ClientRouters } from "./client-routers.ts";
import type { ClientSpaces, SpaceSync } from "./client-spaces.ts";
import { type ClientView, familiesOf } from "./client-view.ts";
import type { TranslationLook } from "./translation-look.ts";
import type { ClientRecording } from "./types.ts";

/** The pauses while the namespace of a running pod cannot be found, milliseconds. */
const ABSENT = { initialMs: 200, maxMs: 30_000 };
/** The time for which the place of an ADD is kept for a pod that the watch does not show, milliseconds. */
const UNSEEN_MS = 60_000;
/** Two comparisons of one pod begin this far apart at least, milliseconds: who may edit an Egress can do it hundreds of times a second. */
export const PAUSE_MS = 200;

type Requeue = { readonly requeueAfterMs: number } | undefined;

/** The comparisons of running pods: one pass reads the view of a pod, plans its client as a whole, and has it applied. */
export class ClientPasses {
  readonly #parts: ConstructorParameters<typeof ClientPasses>[0];
  readonly #options: ConstructorParameters<typeof ClientPasses>[1];

  constructor(
    parts: {
      readonly view: ClientView;
      readonly spaces: Pick<ClientSpaces, "sync">;
      readonly routers: Pick<ClientRouters, "forget">;
      readonly translation: Pick<TranslationLook, "add">;
      readonly reports: ClientReports;
      /** The pod is gone: all of it is forgotten. */
      readonly forget: (uid: string) => void;
      readonly log: Logger;
      readonly clock: Clock;
    },
    options: Pick<Gateway, "originatingOnly"> & {
      /** Each client is compared again within this time, milliseconds. */
      readonly resyncMs: number;
    },
  ) {
    this.#parts = parts;
    this.#options = options;
  }

  /** Brings the namespace of one pod to what its annotations name now. Rejects with an `ExpectedError`: the caller logs it and tries again. */
  async reconcile(uid: string): Promise<Requeue> {
    const { view, clock, forget } = this.#parts;
    const { states } = view;
    const pod = view.podOf(uid);
    const { unseenAt, comparedAt = Number.NEGATIVE_INFINITY } = states.of(uid);
    const now = clock.monotonic();
    if (pod === undefined && unseenAt !== undefined && unseenAt + UNSEEN_MS > now)
      return { requeueAfterMs: unseenAt + UNSEEN_MS - now };
    if (pod === undefined || !pod.hasNetwork) {
      forget(uid);
      return undefined;
    }
    const waitMs = comparedAt + PAUSE_MS - now;
    states.update(uid, { unseenAt: undefined, ...(waitMs > 0 ? {} : { comparedAt: now }) });
    if (waitMs > 0) return { requeueAfterMs: waitMs };
    const place = view.places.of(pod);
    if (place === undefined) return this.#whenAbsent(pod);
    const { driver } = view.driver.of(familiesOf(place));
    // The health and the log say so. When there is a driver, all clients are compared.
    if (driver === undefined) return undefined;
    if (view.lacksNamespace(pod)) return undefined;
    return await this.#compare(pod, place, driver);
  }

  async #compare(pod: ClientPod, place: ClientPlace, driver: TunnelDriver): Promise<Requeue> {
    const { view, reports, translation } = this.#parts;
    const { metadata } = pod;
    const { uses, faults } = gatewaysOf(pod, view.sources.known, familiesOf(place), this.#options);
    reports.refused(pod, faults);
    const done = await this.#apply(pod, place, uses, driver);
    if (done === undefined) return this.#whenAbsent(pod);
    view.states.update(metadata.uid, { absent: undefined });
    if (done.hasTunnel) translation.add({ ...looked(metadata), addresses: Object.values(place.addresses) });
    reports.incomplete(pod, faults, done);
    reports.changed(metadata, done.changes, done.wish);
    // At different times, though all were compared at once at the start.
    return view.states.holds(metadata.uid)
      ? { requeueAfterMs: this.#options.resyncMs * (1 - Math.random() / 2) }
      : undefined;
  }

  async #apply(
    { metadata }: ClientPod,
    place: ClientPlace,
    uses: ReturnType<typeof gatewaysOf>["uses"],
    driver: TunnelDriver,
  ): Promise<SpaceSync | undefined> {
    try {
      return await this.#parts.spaces.sync(metadata, place, (held) => keepClosed(uses, held), driver);
    } catch (error) {
      if (error instanceof ExpectedError) this.#parts.reports.event(metadata, "EgressNotReady", wayText(error));
      throw error;
    }
  }

  /** A pod may run while its sandbox is being replaced. A pod that names no Egress needs nothing. */
  #whenAbsent(pod: ClientPod): Requeue {
    const { view, routers, log } = this.#parts;
    const { uid, namespace, name } = pod.metadata;
    view.states.update(uid, { hasClient: false });
    routers.forget(uid);
    if (!view.isUser(pod) || !pod.isRunning || pod.isLeaving) {
      view.states.update(uid, { absent: undefined });
      return undefined;
    }
    let { absent } = view.states.of(uid);
    if (absent === undefined) {
      absent = new Backoff(ABSENT);
      view.states.update(uid, { absent });
      log.info("the network namespace of a pod that names an Egress is not found; trying again", {
        namespace,
        pod: name,
      });
    }
    return { requeueAfterMs: absent.next() };
  }
}

const looked = ({ uid, name, namespace }: ClientPod["metadata"]) => ({ uid, name, namespace });

/** Options of a controller by which a pod whose comparison ends the program keeps what it has, until it or an Egress that it names has changed. */
export function asideOptions(
  recording: ClientRecording | undefined,
  { view, log }: { readonly view: () => ClientView; readonly log: Logger },
): Pick<ControllerOptions, "passes" | "versionOf" | "onAside"> {
  if (recording === undefined) return {};
  const versionOf = ({ metadata }: { readonly metadata: { readonly resourceVersion: string } }): string =>
    metadata.resourceVersion;
  return {
    passes: recording.passes,
    versionOf: (uid) => {
      const pod = view().podOf(uid);
      return pod === undefined ? undefined : [pod, ...view().sources.namedBy(pod)].map(versionOf).join("/");
    },
    onAside: (uid, aside) => {
      const pod = view().podOf(uid);
      const about = pod === undefined ? undefined : regarding(resources.pods, pod);
      recording.report({ key: pod === undefined ? uid : objectKey(pod), about }, aside, log);
    },
  };
}
