import { Deferred, TimeSlice } from "#base/async";
import type { Clock } from "#base/clock";
import { isAbortError } from "#base/errors";
import {
  type ApiFailure,
  isAway,
  isKubeError,
  KubeError,
  type KubeObject,
  objectKey,
  type ResourceType,
  resourceName,
  type WatchEvent,
} from "#kube/client";
import { attempt, sleepUntilAborted } from "./attempt.ts";
import { Changes, type InformerHandler } from "./handlers.ts";
import type { InformerApi, InformerOptions } from "./informer-options.ts";
import { RecoveryPace } from "./recovery-pace.ts";
import { type Cached, Store, type StoreReader } from "./store.ts";

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

/** The pause before an object whose time of being set aside is over is tried again while a list is being read, in milliseconds. */
const ASIDE_RETRY_MS = 1_000;

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
  readonly #pace: RecoveryPace;
  /** True if the server had accepted the watch that failed last. */
  #opened = false;
  #hasSynced = false;
  #failures = 0;
  /** True when `ready` was the last report. */
  #isReady = false;
  /** True while the server's state is older than what is stored: equal versions do not mean equal objects. */
  #isRestored = false;
  /** True if the last watch ended after it had been silent for the idle time, and no list came after it. */
  #isSilent = false;
  #resourceVersion: string | undefined;
  /** The objects that are set aside, by key: at most as many as there are suspects. */
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
    this.#pace = new RecoveryPace(api, { clock: this.#clock, random: this.#random, backoff: options.backoff });
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
      const isOften = !isAway(failure) && this.#pace.refusals % RELIST_AFTER_FAILURES === 0;
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
      this.#pace.answered();
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
    this.#pace.refusals = 0;
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
          this.#pace.accepted();
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
        this.#pace.succeeded();
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
    this.#pace.answered();
    this.#failures = 0;
    if (this.#isReady) return;
    this.#isReady = true;
    this.#options.onHealth?.({ state: "ready" });
  }

  async #recover(error: ApiFailure, signal: AbortSignal): Promise<void> {
    this.#failures += 1;
    this.#isReady = false;
    this.#options.onHealth?.({ state: "degraded", error, failures: this.#failures });
    await sleepUntilAborted(await this.#pace.after(error, this.#opened, signal), signal, this.#clock);
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
