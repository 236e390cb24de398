import { type AbortOptions, Backoff, Deferred, TimeSlice, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { isAbortError } from "#base/errors";
import {
  type ApiFailure,
  isAway,
  isKubeError,
  type KubeApi,
  KubeError,
  type KubeObject,
  objectKey,
  type PortState,
  type ReadForm,
  type ResourceType,
  resourceName,
  type Selection,
  type WatchEvent,
} from "#kube/client";
import { attempt, sleepUntilAborted } from "./attempt.ts";
import { Changes, type InformerHandler } from "./handlers.ts";
import { type Cached, type IndexFunction, Store, type StoreReader } from "./store.ts";

/** Each watch requests its end after this time multiplied by a random number in [1, 2), so that watches are spread over the servers. */
const WATCH_SECONDS = 300;
/** The longest idle time of a watch, in milliseconds; each has a random part of it from here on, so that nodes do not look at the same moment. */
const IDLE_MS = 150_000;
const LEAST_IDLE = 0.6;
/** The maximum random pause before the list of a server that was restored to an older state, in milliseconds: all nodes find that out. */
const RESTORED_SPREAD_MS = 5_000;
/** A watch that ends within this time without an event counts as a failure; a longer watch resets the back-off, in milliseconds. */
const SHORT_WATCH_MS = 1_000;

/** After this number of failed answers in a row, the informer lists again, for any kind of failure. */
const RELIST_AFTER_FAILURES = 5;

/** The maximum pause between tries to reach a server whose port is open, in milliseconds. */
const AWAY_MAX_MS = 5_000;
/** The maximum pause between watches if the server ends each soon after it has opened it, in milliseconds. */
const CUT_MAX_MS = 5_000;
/**
 * The maximum random delay of informers, and nodes, that noticed at the same moment that the server is reachable again, in milliseconds.
 */
const RETURN_SPREAD_MS = 250;
/** The time, in milliseconds, during which a server that has just started may refuse requests, until it has read its objects and roles. */
const STARTING_MS = 30_000;
/** The maximum pause between tries at a server that has just started, in milliseconds. */
const STARTING_MAX_MS = 1_000;
/** The pause before an object whose time of being set aside is over is tried again while a list is being read, in milliseconds. */
const ASIDE_RETRY_MS = 1_000;
/** The maximum random delay of clients with the same Retry-After, in milliseconds. */
const RETRY_SPREAD_MS = 1_000;

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

/** A local copy of a selection of objects, kept up to date by list and watch. Make one with {@link createInformer}. */
export class Informer<T extends KubeObject, U extends Cached> {
  readonly type: ResourceType<T>;
  readonly store: StoreReader<U>;
  readonly #api: InformerApi;
  readonly #options: InformerOptions<U>;
  readonly #transform: (object: T) => U;
  readonly #store: Store<U>;
  readonly #changes: Changes<U>;
  readonly #synced = new Deferred();
  readonly #clock: Clock;
  readonly #random: () => number;
  /** The back-off after error answers of the server. */
  readonly #refused: Backoff;
  /** The back-off while the server cannot be reached. */
  readonly #away: Backoff;
  /** The back-off for a server that opens watches and soon ends them. */
  readonly #cut: Backoff;
  /** True if the server had accepted the watch that failed last. */
  #opened = false;
  #hasSynced = false;
  #failures = 0;
  /** True when `ready` was the last report. */
  #isReady = false;
  /** The number of consecutive error answers of the server. */
  #refusals = 0;
  #returnedAt = Number.NEGATIVE_INFINITY;
  /** True while the server's state is older than what is stored: equal versions do not mean equal objects. */
  #isRestored = false;
  /** True if the last watch ended after it had been silent for the idle time, and no list came after it. */
  #isSilent = false;
  #resourceVersion: string | undefined;
  /** By key, the objects that are set aside: at most as many as there are suspects. */
  readonly #aside = new Map<string, { readonly cancel: () => void; readonly list: number }>();
  /** The number of lists that have begun. */
  #lists = 0;
  #isListing = false;

  constructor(api: InformerApi, type: ResourceType<T>, transform: (object: T) => U, options: InformerOptions<U>) {
    this.type = type;
    this.#api = api;
    this.#options = options;
    this.#transform = transform;
    this.#clock = options.clock;
    this.#random = options.random ?? Math.random;
    const pace = { initialMs: 250, maxMs: 30_000, ...options.backoff, random: this.#random };
    this.#refused = new Backoff(pace);
    this.#away = new Backoff({ ...pace, maxMs: Math.min(pace.maxMs, AWAY_MAX_MS) });
    this.#cut = new Backoff({ ...pace, maxMs: Math.min(pace.maxMs, CUT_MAX_MS) });
    this.#store = new Store(options.indexers);
    this.store = this.#store;
    this.#changes = new Changes(this.#store);
  }

  /** Resolves when the first list is in the store and the handlers were called for it. Never rejects. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }

  /** The resourceVersion of the last list, event or bookmark. */
  get resourceVersion(): string | undefined {
    return this.#resourceVersion;
  }

  /** Adds a handler, which is called for every stored object first; returns a function that removes it. */
  addHandler(handler: InformerHandler<U>): () => void {
    return this.#changes.subscribe(handler);
  }

  /**
   * Lists and watches until the signal aborts, then resolves. Failures of the API do not end the run: they are reported to
   * `onHealth` and retried. Rejects only for a bug: an error of a handler, an index or the transform.
   */
  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    const { signal } = options;
    try {
      await this.#follow(signal);
    } catch (error) {
      if (!signal.aborted || (error !== signal.reason && !isAbortError(error))) throw error;
    } finally {
      for (const { cancel } of this.#aside.values()) cancel();
      this.#aside.clear();
    }
  }

  async #follow(signal: AbortSignal): Promise<void> {
    let listed = false;
    while (!signal.aborted) {
      const failure = listed ? await this.#goOn(signal) : await this.#list(signal);
      if (signal.aborted) return;
      if (failure === undefined) {
        listed = true;
        continue;
      }
      await this.#recover(failure, signal);
      // A list helps if the same watch would always fail: because of an event that cannot be read, a version that the server does not
      // accept, or a server that was restored to an older state and does not know our version. An unreachable server is not such a case.
      const isOften = !isAway(failure) && this.#refusals % RELIST_AFTER_FAILURES === 0;
      if (isKubeError(failure, "gone", "bad-response", "invalid") || isOften) listed = false;
    }
  }

  /** Reads all pages, then makes the store equal to them. Resolves to the API's failure, if any. */
  async #list(signal: AbortSignal): Promise<ApiFailure | undefined> {
    this.#lists += 1;
    this.#isListing = true;
    try {
      return await this.#listAll(signal);
    } finally {
      this.#isListing = false;
    }
  }

  async #listAll(signal: AbortSignal): Promise<ApiFailure | undefined> {
    const { namespace, labelSelector, fieldSelector, metadataOnly, pageSize, firstList } = this.#options;
    this.#opened = false;
    const any = firstList === "any" && !this.#hasSynced;
    const pages = this.#api
      .listPages(this.type, {
        namespace,
        labelSelector,
        fieldSelector,
        metadataOnly,
        limit: pageSize,
        ...(any ? { resourceVersion: "0", resourceVersionMatch: "NotOlderThan" } : {}),
        signal,
      })
      [Symbol.asyncIterator]();
    const seen = new Map<string, U>();
    const slice = new TimeSlice({ clock: this.#clock });
    let version = "";
    for (;;) {
      const page = await attempt(() => pages.next());
      if (page.failure !== undefined) return page.failure;
      if (page.value.done === true) break;
      this.#away.reset();
      version = page.value.value.resourceVersion;
      if (page.value.value.nameless !== undefined) this.#options.onNameless?.(page.value.value.nameless);
      for (const object of page.value.value.items) {
        const key = objectKey(object);
        const kept = this.#keep(key, object);
        if (kept !== undefined) seen.set(key, kept);
        if (slice.isOver) await slice.yield();
      }
    }
    await this.#replace(seen, slice, signal);
    if (signal.aborted) return undefined;
    this.#resourceVersion = version;
    this.#hasSynced = true;
    this.#isSilent = false;
    this.#isRestored = false;
    this.#refusals = 0;
    this.#synced.resolve();
    this.#ready();
    return undefined;
  }

  /**
   * Follows the next watch. After a silent one it looks whether the server answers, and lists first if the server's state is older than ours. A look or a
   * watch over a dead connection runs into its deadline, which gives the connection up. Resolves as the look, the watch or the list does.
   */
  async #goOn(signal: AbortSignal): Promise<ApiFailure | undefined> {
    if (this.#isSilent) {
      this.#opened = false;
      const look = await attempt(() => this.#isBehind(signal));
      if (look.failure !== undefined) return look.failure;
      if (look.value) {
        this.#isRestored = true;
        await sleepUntilAborted(RESTORED_SPREAD_MS * this.#random(), signal, this.#clock);
        return this.#list(signal);
      }
      this.#isSilent = false;
    }
    return this.#watch(signal);
  }

  /**
   * Resolves with true if the server's version is older than ours: its database was restored. It accepts a watch from a version that it has not reached, and sends
   * nothing (kubernetes/kubernetes#107457). Versions that are no decimal numbers cannot be compared. Any object of the type will do: with a selector the
   * server may read all of them to find one. One by name stays: rights by resourceNames allow no other list. Rejects like a list.
   */
  async #isBehind(signal: AbortSignal): Promise<boolean> {
    const { namespace, metadataOnly, fieldSelector } = this.#options;
    const name = fieldSelector?.split(",").find((one) => one.startsWith("metadata.name="));
    const options = {
      namespace,
      metadataOnly,
      limit: 1,
      signal,
      ...(name === undefined ? {} : { fieldSelector: name }),
    };
    for await (const { resourceVersion } of this.#api.listPages(this.type, options)) {
      this.#ready();
      return isOlder(resourceVersion, this.#resourceVersion ?? "");
    }
    return false;
  }

  /** Unchanged objects of the store are kept, so that a relist does not double the memory. */
  #keep(key: string, object: T): U | undefined {
    const known = this.#store.getByKey(key);
    const { uid, resourceVersion } = object.metadata;
    if (known === undefined || this.#isRestored) return this.#read(key, object);
    if (known.metadata.uid === uid && known.metadata.resourceVersion === resourceVersion) return known;
    return this.#read(key, object);
  }

  /** Transforms an object; `undefined`: it is set aside, and is tried again after its time. */
  #read(key: string, object: T): U | undefined {
    const { steps } = this.#options;
    if (steps === undefined) return this.#transform(object);
    this.#forgetAside(key);
    const done = steps.step(object, () => this.#transform(object), { isLast: false });
    if ("value" in done) return done.value;
    const again = (): void => {
      // A list that is being read has left it out, and would remove it.
      if (this.#isListing) {
        this.#setAside(key, ASIDE_RETRY_MS, again);
        return;
      }
      const read = this.#read(key, object);
      if (read !== undefined) this.#upsert(key, read, false);
    };
    this.#setAside(key, done.waitMs, again);
    return undefined;
  }

  #setAside(key: string, waitMs: number, again: () => void): void {
    const { list = this.#lists } = this.#aside.get(key) ?? {};
    this.#aside.set(key, { cancel: this.#clock.after(waitMs, again, { unref: true }), list });
  }

  #forgetAside(key: string): void {
    this.#aside.get(key)?.cancel();
    this.#aside.delete(key);
  }

  /** Stores an object and calls the handlers, as one step. */
  #upsert(key: string, object: U, initial: boolean): void {
    const work = (): void => this.#changes.upsert(key, object, initial, this.#isRestored);
    const { steps } = this.#options;
    // A relist mostly finds what is stored already.
    if (steps === undefined || this.#store.getByKey(key) === object) work();
    else steps.step(object, work, { isThrown: true });
  }

  /**
   * Adds before it removes, as client-go's `Replace` does: others run between its slices, and must not find an object gone before the one in its place
   * is there.
   */
  async #replace(seen: Map<string, U>, slice: TimeSlice, signal: AbortSignal): Promise<void> {
    for (const [key, object] of seen) {
      this.#upsert(key, object, !this.#hasSynced);
      if (slice.isOver) await slice.yield();
      if (signal.aborted) return;
    }
    for (const key of [...this.#store.keys()]) {
      if (!seen.has(key)) this.#changes.remove(key, undefined);
      if (slice.isOver) await slice.yield();
      if (signal.aborted) return;
    }
    for (const [key, { list }] of [...this.#aside]) if (list !== this.#lists) this.#forgetAside(key);
  }

  /** Follows one watch to its end. Resolves to `undefined` if another watch should follow, else to the failure. */
  async #watch(signal: AbortSignal): Promise<ApiFailure | undefined> {
    const { namespace, labelSelector, fieldSelector, metadataOnly } = this.#options;
    const idleTimeoutMs = this.#options.idleTimeoutMs ?? IDLE_MS * (LEAST_IDLE + (1 - LEAST_IDLE) * this.#random());
    const startedAt = this.#clock.monotonic();
    this.#opened = false;
    const events = this.#api
      .watch(this.type, {
        namespace,
        labelSelector,
        fieldSelector,
        metadataOnly,
        resourceVersion: this.#resourceVersion,
        timeoutSeconds: Math.floor(WATCH_SECONDS * (1 + this.#random())),
        idleTimeoutMs,
        onOpen: () => {
          this.#opened = true;
          // The server has accepted the watch: earlier refusals do not count.
          this.#refused.reset();
          this.#ready();
        },
        signal,
      })
      [Symbol.asyncIterator]();
    const slice = new TimeSlice({ clock: this.#clock });
    let heardAt = startedAt;
    for (let any = false; ; any = true) {
      const next = await attempt(() => events.next());
      const now = this.#clock.monotonic();
      this.#isSilent = now - heardAt >= idleTimeoutMs;
      heardAt = now;
      const useful = any || now - startedAt >= SHORT_WATCH_MS;
      // A list does not reset it: watches that fail after each successful list must still back off.
      if (useful) {
        this.#refused.reset();
        this.#cut.reset();
        this.#refusals = 0;
      }
      // Whether the connection of a silent watch is dead is found by the look that follows.
      if (next.failure !== undefined) return this.#isSilent ? undefined : next.failure;
      if (next.value.done === true) {
        if (useful) return undefined;
        return new KubeError("server", `the watch of ${resourceName(this.type)} ended immediately, without an event`);
      }
      try {
        this.#apply(next.value.value);
      } catch (bug) {
        await events.return?.();
        throw bug;
      }
      if (slice.isOver) await slice.yield();
    }
  }

  #apply(event: WatchEvent<T>): void {
    if (event.type === "BOOKMARK") {
      this.#resourceVersion = event.resourceVersion;
      return;
    }
    const key = objectKey(event.object);
    const object = this.#read(key, event.object);
    if (event.type === "DELETED") {
      this.#forgetAside(key);
      this.#changes.remove(key, object);
    } else if (object === undefined) this.#changes.remove(key, undefined);
    else this.#upsert(key, object, false);
    this.#resourceVersion = event.object.metadata.resourceVersion;
  }

  /** Records that the server has answered without an error. */
  #ready(): void {
    this.#away.reset();
    this.#failures = 0;
    if (this.#isReady) return;
    this.#isReady = true;
    this.#options.onHealth?.({ state: "ready" });
  }

  async #recover(error: ApiFailure, signal: AbortSignal): Promise<void> {
    this.#failures += 1;
    this.#isReady = false;
    this.#options.onHealth?.({ state: "degraded", error, failures: this.#failures });
    const waitMs = isAway(error) ? await this.#reach(error, signal) : this.#refusal(error);
    await sleepUntilAborted(waitMs, signal, this.#clock);
  }

  /** Waits until the server's port is open; resolves to the further wait in milliseconds. */
  async #reach(error: KubeError, signal: AbortSignal): Promise<number> {
    // If a gateway answered instead of the server, the port is open: a probe says nothing about the server.
    if (error.httpStatus === undefined && (await this.#whenOpen(signal)) === "returned") {
      this.#away.reset();
      this.#refused.reset();
      this.#returnedAt = this.#clock.monotonic();
      return RETURN_SPREAD_MS * this.#random();
    }
    return this.#away.next();
  }

  async #whenOpen(signal: AbortSignal): Promise<PortState> {
    const { whenOpen } = this.#api;
    if (whenOpen === undefined) return "open";
    const { value, failure } = await attempt(() => whenOpen.call(this.#api, { signal }));
    // The client was closed, so further calls fail at once; they must not follow each other without a pause.
    return failure === undefined ? value : "open";
  }

  #refusal(error: ApiFailure): number {
    this.#refusals += 1;
    this.#away.reset();
    const isStarting = this.#clock.monotonic() - this.#returnedAt < STARTING_MS;
    const backoff = this.#opened ? this.#cut : this.#refused;
    const waitMs = Math.min(backoff.next(), isStarting ? STARTING_MAX_MS : Number.POSITIVE_INFINITY);
    const retryAfterMs = error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0;
    return Math.max(waitMs, retryAfterMs + Math.min(retryAfterMs, RETRY_SPREAD_MS) * this.#random());
  }
}

/**
 * Makes an informer of whole objects, or of the results of `transform`. The transform is applied before an object is stored, so only its
 * result takes memory. The result must have name, namespace, uid and resourceVersion.
 */
export function createInformer<T extends KubeObject, U extends Cached = T>(
  api: InformerApi,
  type: ResourceType<T>,
  options: InformerOptions<U> & { readonly transform?: (object: T) => U },
): Informer<T, U> {
  // Without a transform, TypeScript infers U from its default, T.
  const transform = options.transform ?? (dropManagedFields as (object: T) => T & U);
  return new Informer(api, type, transform, options);
}

/** Returns true if version `a` is before `b`; false unless both are decimal numbers. */
function isOlder(a: string, b: string): boolean {
  return [a, b].every((version) => /^[0-9]+$/.test(version)) && BigInt(a) < BigInt(b);
}

/** The default transform removes managedFields, which are often half of an object and which no controller reads. */
function dropManagedFields<T extends KubeObject>(object: T): T {
  delete object.metadata.managedFields;
  return object;
}

/** Resolves when all informers have synced; rejects with the signal's reason when the signal aborts first. */
export async function allSynced(
  informers: Iterable<{ readonly synced: Promise<void> }>,
  options: AbortOptions = {},
): Promise<void> {
  await unlessAborted(Promise.all(Array.from(informers, (informer) => informer.synced)), options);
}
