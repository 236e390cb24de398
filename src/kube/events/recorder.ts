import { createHash } from "node:crypto";
import type * as CoreV1 from "kubernetes-types/core/v1.js";
import { Backoff, retry } from "#base/async";
import type { Clock } from "#base/clock";
import { isAbortError } from "#base/errors";
import { TokenBucket } from "#base/rate-limit";
import { Loop } from "#base/reconcile";
import { printable } from "#base/text";
import {
  apiVersionOf,
  type Draft,
  type Event,
  isApiFailure,
  isAway,
  isKubeError,
  type KubeApi,
  type KubeObject,
  type ResourceType,
  resources,
} from "#kube/client";

/** The maximum number of events that wait to be sent; further events are dropped and counted. */
export const MAX_PENDING_EVENTS = 1000;
/** The maximum number of remembered events. A repeat of one of them is counted on it and not written as a new event. */
export const MAX_REMEMBERED_EVENTS = 4096;
/** A repeat within this time after the last one is counted on the first event, milliseconds (as client-go's series). */
export const SERIES_MS = 6 * 60_000;
/** The maximum number of tries to write an event to a server that is away, and the pause between two, in milliseconds (client-go's numbers). */
const MAX_TRIES = 12;
/** Longest time between two passes, in milliseconds: an event wakes the loop. */
const IDLE_MS = 3_600_000;
const RETRY_MS = 10_000;
/** The maximum length of `note`, in bytes (events.k8s.io/v1 validation). */
const MAX_NOTE_BYTES = 1024;

/** The object that an event is about. */
export type Regarding = CoreV1.ObjectReference;

/** An event of an object, as operators read it. */
export interface EventInput {
  readonly regarding: Regarding;
  readonly type: "Normal" | "Warning";
  /** The reason, in CamelCase: `FailedToStartServiceHealthcheck`. */
  readonly reason: string;
  /** The action, in CamelCase. Default: the reason. */
  readonly action?: string;
  /** A sentence for operators, cut at 1024 bytes. It stays one line: `kubectl` prints notes to terminals. */
  readonly note: string;
}

/** Settings of an {@link EventRecorder}. */
export interface EventRecorderOptions {
  /** The program: `coild`. */
  readonly controller: string;
  /** The program's instance: the node or pod. */
  readonly instance: string;
  /** The maximum number of events a second and in a burst. Default 10 and 100. */
  readonly rateLimit?: { readonly qps: number; readonly burst: number };
  /** Called for an event that could not be written, also not within two minutes to a server that is away, or was dropped. */
  readonly onLoss?: (event: EventInput, why: string) => void;
  readonly clock: Clock;
}

/** An event that waits to be written, and how often it has happened. */
interface Waiting {
  readonly event: EventInput;
  /** When it happened first, milliseconds since the epoch. */
  readonly atMs: number;
  times: number;
}

interface Series {
  readonly name: string;
  readonly namespace: string;
  count: number;
  lastAt: number;
}

/** Writes events.k8s.io/v1 Events in the background; repeats of an event increase its count. */
export class EventRecorder {
  readonly #api: Pick<KubeApi, "create" | "patch">;
  readonly #options: EventRecorderOptions;
  readonly #clock: Clock;
  readonly #bucket: TokenBucket;
  readonly #loop: Loop;
  /** Identity of an event → the event and its count that is not written yet. The map is in order of arrival. */
  readonly #pending = new Map<string, Waiting>();
  /** Identity → the written event. The least recently used is first. */
  readonly #series = new Map<string, Series>();

  constructor(api: Pick<KubeApi, "create" | "patch">, options: EventRecorderOptions) {
    this.#api = api;
    this.#options = options;
    this.#clock = options.clock;
    const { qps, burst } = options.rateLimit ?? { qps: 10, burst: 100 };
    this.#bucket = new TokenBucket({ ratePerSecond: qps, burst, clock: this.#clock });
    this.#loop = new Loop({ everyMs: IDLE_MS, clock: this.#clock });
  }

  /** Notes an event; returns at once and never throws. {@link EventRecorder.run} writes it. */
  record(event: EventInput): void {
    const key = identity(event);
    const waiting = this.#pending.get(key);
    if (waiting !== undefined) {
      waiting.times += 1;
      return;
    }
    if (this.#pending.size >= MAX_PENDING_EVENTS) {
      this.#options.onLoss?.(event, `the event was dropped: ${MAX_PENDING_EVENTS} events already wait to be written`);
      return;
    }
    this.#pending.set(key, { event, atMs: this.#clock.now(), times: 1 });
    this.#loop.wake("event");
  }

  /** Writes events as they come, until the signal aborts. */
  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    const { signal } = options;
    try {
      await this.#loop.run(() => this.#deliverAll(signal), { signal });
    } catch (error) {
      if (!signal.aborted || (error !== signal.reason && !isAbortError(error))) throw error;
    }
  }

  async #deliverAll(signal: AbortSignal): Promise<void> {
    for (const [key, waiting] of this.#pending) {
      await this.#bucket.take({ signal });
      this.#pending.delete(key);
      await this.#deliver(key, waiting, signal);
    }
  }

  /** Writes an event. A server that is away is waited for: what happens while it is away is what operators look for. */
  async #deliver(key: string, waiting: Waiting, signal: AbortSignal): Promise<void> {
    try {
      await retry(() => this.#write(key, waiting, signal), {
        signal,
        clock: this.#clock,
        backoff: new Backoff({ initialMs: RETRY_MS, maxMs: RETRY_MS, jitter: 0 }),
        maxTries: MAX_TRIES,
        isPassing: isAway,
      });
    } catch (error) {
      if (!isApiFailure(error)) throw error;
      this.#options.onLoss?.(waiting.event, error.message);
    }
  }

  async #write(key: string, { event, atMs, times }: Waiting, signal: AbortSignal): Promise<void> {
    const series = this.#series.get(key);
    const fresh = series !== undefined && atMs - series.lastAt < SERIES_MS;
    if (fresh && (await this.#count(series, atMs, times, signal))) return;
    await this.#create(key, event, atMs, times, signal);
  }

  async #create(key: string, event: EventInput, atMs: number, times: number, signal: AbortSignal): Promise<void> {
    const namespace = event.regarding.namespace || "default";
    const at = microTime(atMs);
    // As in client-go, the name has the object and the time; the hash keeps it short and distinguishes events of the same instant.
    const name = `${(event.regarding.name ?? "unknown").slice(0, 200)}.${hash(`${key} ${at}`)}`;
    const draft: Draft<Event> = {
      metadata: { name, namespace },
      eventTime: at,
      type: event.type,
      reason: event.reason,
      action: event.action ?? event.reason,
      note: cut(printable(event.note)),
      regarding: event.regarding,
      reportingController: this.#options.controller,
      reportingInstance: this.#options.instance.slice(0, 128),
      ...(times > 1 ? { series: { count: times, lastObservedTime: at } } : {}),
    };
    try {
      await this.#api.create(resources.events, draft, { signal });
    } catch (error) {
      // An earlier try has written it, and its answer was lost.
      if (!isKubeError(error, "already-exists")) throw error;
    }
    this.#remember(key, { name, namespace, count: times, lastAt: atMs });
  }

  /** Resolves to false if the event does not exist any more: the server keeps events only for an hour. */
  async #count(series: Series, atMs: number, times: number, signal: AbortSignal): Promise<boolean> {
    const count = series.count + times;
    const body = { series: { count, lastObservedTime: microTime(atMs) } };
    try {
      await this.#api.patch(resources.events, series, { type: "merge", body }, { signal });
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      throw error;
    }
    series.count = count;
    series.lastAt = atMs;
    return true;
  }

  #remember(key: string, series: Series): void {
    this.#series.delete(key);
    this.#series.set(key, series);
    const oldest = this.#series.keys().next();
    if (this.#series.size > MAX_REMEMBERED_EVENTS && oldest.done !== true) this.#series.delete(oldest.value);
  }
}

/** The reference of an object that was read. */
export function regarding(
  type: ResourceType<KubeObject>,
  object: {
    readonly metadata: {
      readonly name: string;
      readonly namespace?: string | undefined;
      readonly uid: string;
      readonly resourceVersion: string;
    };
  },
): Regarding {
  const { name, namespace, uid, resourceVersion } = object.metadata;
  return {
    apiVersion: apiVersionOf(type),
    kind: type.kind,
    name,
    uid,
    resourceVersion,
    ...(namespace === undefined ? {} : { namespace }),
  };
}

/** Events with the same identity are repeats. The object's version is not part of it. */
function identity({ regarding: about, type, reason, action, note }: EventInput): string {
  return JSON.stringify([about.kind, about.namespace, about.name, about.uid, type, reason, action, note]);
}

/** The beginning of a note, of whole characters. */
function cut(note: string): string {
  const bytes = Buffer.from(note, "utf8");
  if (bytes.length <= MAX_NOTE_BYTES) return note;
  return new TextDecoder().decode(bytes.subarray(0, MAX_NOTE_BYTES)).replace(/\uFFFD+$/, "");
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}

/** RFC 3339 with microseconds (metav1.MicroTime). */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace("Z", "000Z");
}
