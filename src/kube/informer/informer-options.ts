import type { Clock } from "#base/clock";
import type { ApiFailure, KubeApi, ReadForm, Selection } from "#kube/client";
import type { Cached, IndexFunction } from "./store.ts";

/** The part of the API that an informer needs. Without `whenOpen` an unreachable server is tried again only after a back-off. */
export type InformerApi = Pick<KubeApi, "listPages" | "watch"> & Partial<Pick<KubeApi, "whenOpen">>;

/** Does what is computed on one object: see `PassRecord.step` of `kube/suspects`. */
export interface ObjectSteps {
  /** Returns the value of `work`, or after which time the object should be tried again, in milliseconds: it is set aside. */
  readonly step: <R>(
    object: Cached,
    work: () => R,
    options: { readonly isLast?: boolean; readonly isThrown?: boolean },
  ) => { readonly value: R } | { readonly waitMs: number };
}

/** The state of an informer. */
export type InformerHealth =
  | { readonly state: "ready" }
  | { readonly state: "degraded"; readonly error: ApiFailure; readonly failures: number };

/** The selection of objects, their storage, and the back-off. */
export interface InformerOptions<U extends Cached> extends Selection, ReadForm {
  /** The indexes by name; `byIndex` of the store finds objects by the values of an index. */
  readonly indexers?: Readonly<Record<string, IndexFunction<U>>>;
  /** Objects in a page of the list. Default 500. */
  readonly pageSize?: number;
  /** `consistent` (default): the most recent state. `any`: the state in the server's cache, which takes less work and may be old. */
  readonly firstList?: "consistent" | "any";
  /**
   * A watch that gets no byte for this time is followed by a look whether the server answers and its state was not restored to an older one, and then
   * by the next watch, in milliseconds. Silence is no failure: kube-apiserver sends no bookmarks of a resource that has not changed since its start.
   * Default: random, up to 150,000. With the time that the look may take, a dead connection is noticed within three minutes.
   */
  readonly idleTimeoutMs?: number;
  /**
   * The back-off after error answers of the server. Default: 250 ms, doubled after each error up to 30 s; half of each pause is random.
   * If the server cannot be reached, the informer probes the server's port. Once the port is open, the informer tries again within 5 s.
   * If the server ends each watch soon after it has opened the watch, the pause between watches is at most 5 s.
   */
  readonly backoff?: { readonly initialMs: number; readonly maxMs: number };
  /** Called when a list has items without a name, which are left out. */
  readonly onNameless?: (count: number) => void;
  /** Called when the state changes, and for each further failure. */
  readonly onHealth?: (health: InformerHealth) => void;
  /** The transform and the handlers of an object are a step of its own. An object that is set aside counts as absent until its time is over, or it has changed. */
  readonly steps?: ObjectSteps | undefined;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
}
