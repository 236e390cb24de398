import type { ServerResponse } from "node:http";
import type { Clock } from "#base/clock";
import type { ApiError } from "../errors.ts";
import { type Selection, selects, selectsAll } from "../handlers/list.ts";
import { fromStored } from "../handlers/object-rules.ts";
import type { JsonObject } from "../object/json.ts";
import { apiVersionOf } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import type { Entry, StoreEvent } from "../store/entry.ts";
import { partialMetadata, toTable } from "../table/table.ts";
import type { Form } from "./accept.ts";
import { drained, entryBytes } from "./list-response.ts";

/** The maximum number of events that may wait for a slow client, in addition to its initial events; then the watch is ended. */
export const MAX_QUEUED_EVENTS = 10_000;

/** Bytes that may wait in a client's socket before its events are queued. */
const SOCKET_BYTES = 1024 * 1024;

/** Interval of bookmarks of a watch that requested them, in milliseconds. */
const BOOKMARK_MS = 60_000;

type EventType = StoreEvent["type"];

/** The number of encoded events that are kept: all watchers of an event get it in the tick of its commit, but for slow ones. */
const KEPT_EVENTS = 256;

/** The encoded event, shared by all watchers that get the same bytes. */
export class EventEncoder {
  /** The newest events, oldest first. */
  readonly #cache = new Map<Entry, Map<string, Buffer>>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The bytes are not cached for the initial state, which is sent to only one watcher. */
  encodeOnce(type: EventType, entry: Entry, resource: ResourceDef, form: Form): Buffer {
    return Buffer.concat([
      Buffer.from(`{"type":"${type}","object":`),
      this.#body(entry, resource, form),
      Buffer.from("}\n"),
    ]);
  }

  /** The number of events whose bytes are kept. */
  get kept(): number {
    return this.#cache.size;
  }

  encode(type: EventType, entry: Entry, resource: ResourceDef, form: Form): Buffer {
    const key = `${type} ${resource.group}/${resource.version} ${formKey(form)}`;
    let forms = this.#cache.get(entry);
    if (forms === undefined) {
      forms = new Map();
      this.#cache.set(entry, forms);
      for (const oldest of this.#cache.keys()) {
        if (this.#cache.size <= KEPT_EVENTS) break;
        this.#cache.delete(oldest);
      }
    }
    let bytes = forms.get(key);
    if (bytes === undefined) {
      bytes = this.encodeOnce(type, entry, resource, form);
      forms.set(key, bytes);
    }
    return bytes;
  }

  #body(entry: Entry, resource: ResourceDef, form: Form): Buffer {
    if (form.as === "object") return entryBytes(resource, entry);
    const object = fromStored(resource, entry.object);
    if (form.as === "metadata") return Buffer.from(JSON.stringify(partialMetadata(object, form.version)));
    const { resourceVersion = "" } = object.metadata;
    return Buffer.from(
      JSON.stringify(toTable(resource.columns, [object], { resourceVersion }, form.table, this.#clock.now())),
    );
  }
}

function formKey(form: Form): string {
  if (form.as === "table") return `table ${form.table.version} ${form.table.include}`;
  return form.as === "metadata" ? `metadata ${form.version}` : "object";
}

/** The settings of a watch. */
export interface WatchInit {
  readonly response: ServerResponse;
  readonly resource: ResourceDef;
  readonly selection: Selection;
  readonly form: Form;
  readonly encoder: EventEncoder;
  readonly clock: Clock;
  readonly bookmarks: boolean;
  /** State to send as ADDED before anything else. */
  readonly initial: readonly Entry[];
  /** A bookmark marks the end of the initial state (streaming lists). */
  readonly markInitialEnd: boolean;
  /** The revision that the client requested; 0: any. Nothing of it and of earlier ones is sent. */
  readonly after: number;
  /** Changes since that revision. */
  readonly missed: readonly StoreEvent[];
  readonly timeoutMs: number;
  /** The store's revision, for bookmarks. */
  readonly revision: () => number;
  readonly onEnd: (why: "timeout" | "closed" | "slow" | "fault") => void;
}

/** One running watch: from the store's events to the client's stream, in order and bounded. */
export class Watcher {
  readonly #init: WatchInit;
  #queue: StoreEvent[] = [];
  #pumping = false;
  #ended = false;
  #cancelTimeout: () => void = () => undefined;
  #cancelBookmark: () => void = () => undefined;
  /** The revision up to which the client has all events. */
  #sent: number;

  constructor(init: WatchInit) {
    this.#init = init;
    this.#sent = init.revision();
  }

  get resource(): ResourceDef {
    return this.#init.resource;
  }

  get namespace(): string {
    return this.#init.selection.namespace;
  }

  /** Sends headers and starts. Call in the tick in which the watcher was subscribed. */
  start(): void {
    const { response, clock, timeoutMs, bookmarks } = this.#init;
    response.writeHead(200, { "content-type": "application/json", "cache-control": "no-cache" });
    response.flushHeaders();
    response.on("close", () => this.#end("closed"));
    this.#cancelTimeout = clock.after(timeoutMs, () => this.#timeout(), { unref: true });
    if (bookmarks) this.#scheduleBookmark();
    void this.#pump(true);
  }

  /** A change was committed. */
  readonly deliver = (event: StoreEvent): void => {
    if (this.#ended || event.revision <= this.#init.after) return;
    if (!this.#pumping && this.#init.response.writableLength < SOCKET_BYTES) {
      this.#write(event);
      this.#sent = event.revision;
      return;
    }
    this.#queue.push(event);
    if (this.#queue.length > MAX_QUEUED_EVENTS) this.cut("slow");
    else if (!this.#pumping) void this.#pump(false);
  };

  /** Ends the stream with an ERROR event. */
  fail(error: ApiError): void {
    if (this.#ended) return;
    this.#init.response.write(`${JSON.stringify({ type: "ERROR", object: error.toStatus() })}\n`);
    this.#finish("fault");
  }

  /** Closes the connection without an error event. */
  cut(why: "slow" | "fault"): void {
    if (this.#ended) return;
    this.#end(why);
    this.#init.response.destroy();
  }

  /** Ends the stream properly, as at the end of its time. */
  close(): void {
    this.#finish("timeout");
  }

  #timeout(): void {
    if (this.#init.bookmarks && !this.#pumping) this.#bookmark(false);
    this.#finish("timeout");
  }

  #finish(why: "timeout" | "fault"): void {
    if (this.#ended) return;
    this.#end(why);
    this.#init.response.end();
  }

  #end(why: "timeout" | "closed" | "slow" | "fault"): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#queue = [];
    this.#cancelTimeout();
    this.#cancelBookmark();
    this.#init.onEnd(why);
  }

  /** Writes queued events as fast as the client reads. */
  async #pump(first: boolean): Promise<void> {
    this.#pumping = true;
    const { response, initial, missed, resource, form, encoder } = this.#init;
    if (first) {
      for (const entry of initial) {
        if (this.#ended) return;
        if (!response.write(encoder.encodeOnce("ADDED", entry, resource, form))) await drained(response);
      }
      for (const event of missed) {
        if (this.#ended) return;
        if (!this.#write(event)) await drained(response);
      }
      if (this.#init.markInitialEnd && !this.#ended) this.#bookmark(true);
    }
    for (let next = this.#queue.shift(); next !== undefined && !this.#ended; next = this.#queue.shift()) {
      if (!this.#write(next)) await drained(response);
      this.#sent = next.revision;
    }
    this.#pumping = false;
  }

  /** Writes an event for this selection; an object that enters or leaves the selection is reported as added or deleted. */
  #write(event: StoreEvent): boolean {
    const { response, resource, selection, form, encoder } = this.#init;
    const type = seenAs(event, selection, resource);
    if (type === undefined) return true;
    return response.write(encoder.encode(type, event.entry, resource, form));
  }

  #scheduleBookmark(): void {
    this.#cancelBookmark = this.#init.clock.after(
      BOOKMARK_MS,
      () => {
        if (!this.#pumping) this.#bookmark(false);
        this.#scheduleBookmark();
      },
      { unref: true },
    );
  }

  #bookmark(initialEnd: boolean): void {
    const { resource, response, form, revision, after } = this.#init;
    if (revision() < after) return;
    // Each commit is delivered to all watchers in the tick of the commit, so an idle watcher has all events up to the store's revision.
    const resourceVersion = String(initialEnd ? this.#sent : revision());
    const metadata: JsonObject = {
      resourceVersion,
      creationTimestamp: null,
      ...(initialEnd ? { annotations: { "k8s.io/initial-events-end": "true" } } : {}),
    };
    const own = { kind: resource.kind, apiVersion: apiVersionOf(resource.group, resource.version), metadata };
    const partial = { kind: "PartialObjectMetadata", apiVersion: "meta.k8s.io/v1", metadata };
    const table = { kind: "Table", apiVersion: "meta.k8s.io/v1", metadata, columnDefinitions: [], rows: [] };
    const object = form.as === "object" ? own : form.as === "metadata" ? partial : table;
    response.write(`${JSON.stringify({ type: "BOOKMARK", object })}\n`);
  }
}

function seenAs(event: StoreEvent, selection: Selection, resource: ResourceDef): EventType | undefined {
  const { entry, previous } = event;
  if (selection.namespace !== "" && entry.object.metadata.namespace !== selection.namespace) return undefined;
  if (selectsAll(selection)) return event.type;
  const before = previous !== undefined && selects(selection, resource, previous.object);
  const now = event.type !== "DELETED" && selects(selection, resource, entry.object);
  if (before) return now ? "MODIFIED" : "DELETED";
  return now ? "ADDED" : undefined;
}
