import type { AbortOptions } from "#base/async";
import type { KubeStatus } from "./errors.ts";
import type { Draft, KubeObject, ObjectRef, ResourceType } from "./resource.ts";
import type { PortState } from "./server-port.ts";

/** Options of every call; they are its last parameter. */
export interface CallOptions extends AbortOptions {
  /** The timeout of the whole call with its retries, in milliseconds. Default 30,000. For a watch: the time until its first byte. */
  readonly timeoutMs?: number | undefined;
}

/** A selection of objects. */
export interface Selection {
  /** The namespace to select from. Absent: all namespaces. */
  readonly namespace?: string | undefined;
  /** A label selector, such as `coil.cybozu.com/pool=default,coil.cybozu.com/node`. */
  readonly labelSelector?: string | undefined;
  /** A field selector, such as `spec.nodeName=node1`. */
  readonly fieldSelector?: string | undefined;
}

/** Selects the part of each object that is read. */
export interface ReadForm {
  /** True: only the metadata of each object (PartialObjectMetadata). A server that does not support this form sends whole objects. */
  readonly metadataOnly?: boolean | undefined;
}

/** Options of `get`. */
export interface GetOptions extends CallOptions {
  /** Absent: the most recent state. `0`: any state that the server has in its cache. */
  readonly resourceVersion?: string | undefined;
  readonly subresource?: string | undefined;
}

/** Options of `list`, `listPages` and `listAll`. */
export interface ListOptions extends CallOptions, Selection, ReadForm {
  /** Absent: the most recent state. `0`: any state that the server has in its cache. */
  readonly resourceVersion?: string | undefined;
  readonly resourceVersionMatch?: "Exact" | "NotOlderThan" | undefined;
  /** The maximum number of objects on a page. Default for `list`: no maximum; for `listPages` and `listAll`: 500. */
  readonly limit?: number | undefined;
  /** The `continueToken` of the previous page. */
  readonly continueToken?: string | undefined;
}

/** Some or all objects of a selection, at one resourceVersion. */
export interface ListPage<T> {
  readonly items: T[];
  /** The version of the list, from which a watch can start. */
  readonly resourceVersion: string;
  /** Present if there is another page. */
  readonly continueToken: string | undefined;
  readonly remainingItemCount: number | undefined;
  /** The number of items without a name, which are left out. */
  readonly nameless?: number;
}

/** Options of writes. */
export interface WriteOptions extends CallOptions {
  /** The name of the writer, for managedFields. Required by the server for apply patches, see {@link Patch}. */
  readonly fieldManager?: string | undefined;
  readonly dryRun?: boolean | undefined;
  readonly subresource?: string | undefined;
}

/** One operation of RFC 6902. */
export type JsonPatchOperation =
  | { readonly op: "add" | "replace" | "test"; readonly path: string; readonly value: unknown }
  | { readonly op: "remove"; readonly path: string }
  | { readonly op: "move" | "copy"; readonly from: string; readonly path: string };

/**
 * A change to an object: RFC 6902 operations, an RFC 7386 merge, a strategic merge (built-in types only), or
 * server-side apply of the fields that `fieldManager` wants to own (`force` takes them from others).
 */
export type Patch =
  | { readonly type: "json"; readonly operations: readonly JsonPatchOperation[] }
  | { readonly type: "merge" | "strategic"; readonly body: object }
  | { readonly type: "apply"; readonly body: object; readonly fieldManager: string; readonly force?: boolean };

/** Options of `delete` (meta/v1 DeleteOptions). */
export interface DeleteOptions extends CallOptions {
  /** The call deletes only the object with this uid and resourceVersion; otherwise it rejects with `conflict`. */
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string } | undefined;
  readonly propagationPolicy?: "Background" | "Foreground" | "Orphan" | undefined;
  readonly gracePeriodSeconds?: number | undefined;
}

/** The result of a delete: the object is deleted (`status`), or it stays for a while with its deletionTimestamp set (`object`). */
export type DeleteResult<T> =
  | { readonly kind: "status"; readonly status: KubeStatus }
  | { readonly kind: "object"; readonly object: T };

/** Options of `watch`. */
export interface WatchOptions extends CallOptions, Selection, ReadForm {
  /** The watch has the events after this version. Absent or `0`: the server starts with an ADDED event for each object. */
  readonly resourceVersion?: string | undefined;
  /** True if to request BOOKMARK events. Default true. */
  readonly bookmarks?: boolean | undefined;
  /** The server ends the watch after this many seconds. */
  readonly timeoutSeconds?: number | undefined;
  /**
   * A watch that gets no byte for this time ends with `unreachable`, in milliseconds; its connection is kept, since servers may have nothing to say.
   * Default: no limit.
   */
  readonly idleTimeoutMs?: number | undefined;
  /** Called when the server has accepted the watch. */
  readonly onOpen?: (() => void) | undefined;
}

/** One change. ERROR events are thrown instead. */
export type WatchEvent<T> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T }
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string };

/** Any call for which {@link KubeApi} has no method (discovery, `pods/binding`, …). */
export interface RawRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The path, such as `/api/v1/namespaces/default/pods/x/binding`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** The body, which is sent as JSON. */
  readonly body?: unknown;
  /** Default `application/json`. */
  readonly contentType?: string;
}

/** Any answer to a GET, whatever its status is. */
export interface RawAnswer {
  /** The HTTP status. */
  readonly status: number;
  readonly text: string;
  /** The time of the server by its header Date, in milliseconds since the epoch, whole seconds; `undefined` without a valid one. */
  readonly dateMs: number | undefined;
}

/**
 * The calls of the API server that features need. {@link KubeClient} implements it; tests may wrap it.
 *
 * Every method rejects with `KubeError`, with `KubeConfigError` if it has no credentials for the call, or with the signal's reason when the signal
 * aborts first; `isApiFailure` tells the first two.
 */
export interface KubeApi {
  /** Reads one object. Rejects with `not-found`; see {@link findObject} for `undefined` instead. */
  get<T extends KubeObject>(type: ResourceType<T>, ref: ObjectRef, options?: GetOptions): Promise<T>;
  /** Reads one page; without `limit`, the page has all objects. */
  list<T extends KubeObject>(type: ResourceType<T>, options?: ListOptions): Promise<ListPage<T>>;
  /** Reads the pages of one consistent snapshot. Throws `gone` if the snapshot expires before the last page. */
  listPages<T extends KubeObject>(type: ResourceType<T>, options?: ListOptions): AsyncIterable<ListPage<T>>;
  /** Reads all objects in pages. If the snapshot expires before the last page, the list starts again. */
  listAll<T extends KubeObject>(type: ResourceType<T>, options?: ListOptions): Promise<ListPage<T>>;
  create<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options?: WriteOptions): Promise<T>;
  /** Writes the whole object. Rejects with `conflict` if `metadata.resourceVersion` is given and is not the stored version. */
  replace<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options?: WriteOptions): Promise<T>;
  /** Writes only the status subresource; otherwise like `replace`. */
  replaceStatus<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options?: WriteOptions): Promise<T>;
  patch<T extends KubeObject>(type: ResourceType<T>, ref: ObjectRef, patch: Patch, options?: WriteOptions): Promise<T>;
  /** Deletes an object. Rejects with `not-found` if it does not exist, with `conflict` if a precondition fails. */
  delete<T extends KubeObject>(
    type: ResourceType<T>,
    ref: ObjectRef,
    options?: DeleteOptions,
  ): Promise<DeleteResult<T>>;
  deleteCollection<T extends KubeObject>(
    type: ResourceType<T>,
    selection: Selection,
    options?: Omit<DeleteOptions, "preconditions">,
  ): Promise<void>;
  /**
   * Yields events as they arrive, until the server ends the watch (the iteration ends), the signal aborts (it throws the reason)
   * or the connection fails (it throws `KubeError`; `gone` means: list again). Nothing is read ahead of the consumer beyond socket buffers.
   */
  watch<T extends KubeObject>(type: ResourceType<T>, options?: WatchOptions): AsyncIterable<WatchEvent<T>>;
  /**
   * Resolves when the server's port accepts connections; call it after a failure to reach the server. `open`: the port did so at once, so
   * back off before the next try. `returned`: the port was closed and is open now. All callers share one probe. Rejects with `unreachable`
   * when the client is closed.
   */
  whenOpen(options?: AbortOptions): Promise<PortState>;
  /** Sends any request. Resolves to the parsed JSON of the answer. */
  request(request: RawRequest, options?: CallOptions): Promise<unknown>;
}
