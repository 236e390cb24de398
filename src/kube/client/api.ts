import type { AbortOptions } from "#base/async";
import type { KubeStatus } from "./errors.ts";
import type { Draft, KubeObject, ObjectRef, ResourceType } from "./resource.ts";
import type { PortState } from "./server-port.ts";

/** The last parameter of every call. */
export interface CallOptions extends AbortOptions {
  /** For the whole call with its retries, milliseconds. Default 30,000. For a watch: until its first byte. */
  readonly timeoutMs?: number | undefined;
}

/** A selection of objects. */
export interface Selection {
  /** Absent: all namespaces. */
  readonly namespace?: string | undefined;
  /** Such as `coil.cybozu.com/pool=default,coil.cybozu.com/node`. */
  readonly labelSelector?: string | undefined;
  /** Such as `spec.nodeName=node1`. */
  readonly fieldSelector?: string | undefined;
}

/** Options of `get`. */
export interface GetOptions extends CallOptions {
  /** Absent: the most recent. `0`: whatever the server has at hand. */
  readonly resourceVersion?: string | undefined;
  readonly subresource?: string | undefined;
}

/** Options of `list`, `listPages` and `listAll`. */
export interface ListOptions extends CallOptions, Selection {
  /** Absent: the most recent. `0`: whatever the server has at hand. */
  readonly resourceVersion?: string | undefined;
  readonly resourceVersionMatch?: "Exact" | "NotOlderThan" | undefined;
  /** The most objects of a page. `list`: absent is all; `listPages` and `listAll`: default 500. */
  readonly limit?: number | undefined;
  /** The token of the page before. */
  readonly continueToken?: string | undefined;
}

/** Some or all objects of a selection, at one version of it. */
export interface ListPage<T> {
  readonly items: T[];
  /** Of the list, to watch from. */
  readonly resourceVersion: string;
  /** Present when there is a further page. */
  readonly continueToken: string | undefined;
  readonly remainingItemCount: number | undefined;
  /** Items that have no name, and are left out. */
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
  /** Delete only this very object, or this very version of it; else `conflict`. */
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string } | undefined;
  readonly propagationPolicy?: "Background" | "Foreground" | "Orphan" | undefined;
  readonly gracePeriodSeconds?: number | undefined;
}

/** The result of a delete: the object is gone (`status`), or it stays for a while with its deletionTimestamp set (`object`). */
export type DeleteResult<T> =
  | { readonly kind: "status"; readonly status: KubeStatus }
  | { readonly kind: "object"; readonly object: T };

/** Options of `watch`. */
export interface WatchOptions extends CallOptions, Selection {
  /** Events after this version. Absent or `0`: the server starts with an ADDED for each object it has. */
  readonly resourceVersion?: string | undefined;
  /** Ask for BOOKMARK events. Default true. */
  readonly bookmarks?: boolean | undefined;
  /** The server ends the watch after this many seconds. */
  readonly timeoutSeconds?: number | undefined;
  /** A watch without a byte for this long ends with `unreachable`, milliseconds. Default: none. */
  readonly idleTimeoutMs?: number | undefined;
  /** Called when the server has accepted the watch. */
  readonly onOpen?: (() => void) | undefined;
}

/** One change. ERROR events are thrown instead. */
export type WatchEvent<T> =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED"; readonly object: T }
  | { readonly type: "BOOKMARK"; readonly resourceVersion: string };

/** Any call, for what has no method of its own (discovery, `pods/binding`, …). */
export interface RawRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Such as `/api/v1/namespaces/default/pods/x/binding`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Default `application/json`. */
  readonly contentType?: string;
}

/**
 * The API server as features need it. {@link KubeClient} implements it; tests may wrap it.
 *
 * Every method rejects with `KubeError`, or with the signal's reason when that aborts first.
 */
export interface KubeApi {
  /** Reads one object. Rejects with `not-found`; see {@link findObject} for `undefined` instead. */
  get<T extends KubeObject>(type: ResourceType<T>, ref: ObjectRef, options?: GetOptions): Promise<T>;
  /** One page (everything, without `limit`). */
  list<T extends KubeObject>(type: ResourceType<T>, options?: ListOptions): Promise<ListPage<T>>;
  /** Page after page, of one consistent snapshot. Throws `gone` when the snapshot expires midway. */
  listPages<T extends KubeObject>(type: ResourceType<T>, options?: ListOptions): AsyncIterable<ListPage<T>>;
  /** All objects, read in pages; starts again when the snapshot expires midway. */
  listAll<T extends KubeObject>(type: ResourceType<T>, options?: ListOptions): Promise<ListPage<T>>;
  create<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options?: WriteOptions): Promise<T>;
  /** Writes the whole object; with `metadata.resourceVersion` only over that version, else `conflict`. */
  replace<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options?: WriteOptions): Promise<T>;
  /** As `replace`, but of the status subresource alone. */
  replaceStatus<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options?: WriteOptions): Promise<T>;
  patch<T extends KubeObject>(type: ResourceType<T>, ref: ObjectRef, patch: Patch, options?: WriteOptions): Promise<T>;
  /** Rejects with `not-found` when there is none, `conflict` when a precondition fails. */
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
   * Events as they come, until the server ends the watch (the iteration ends), the signal aborts (it throws the reason)
   * or the connection fails (it throws `KubeError`; `gone` means: list again). Nothing is read ahead of the consumer beyond socket buffers.
   */
  watch<T extends KubeObject>(type: ResourceType<T>, options?: WatchOptions): AsyncIterable<WatchEvent<T>>;
  /**
   * Resolves when the server's port takes connections; call it after a failure to reach the server. `open`: it did at once, so back off
   * before the next try. `returned`: it did not, and does now. All callers share one probe. Rejects with `unreachable` when the client is closed.
   */
  whenOpen(options?: AbortOptions): Promise<PortState>;
  /** The parsed JSON of the answer. */
  request(request: RawRequest, options?: CallOptions): Promise<unknown>;
}
