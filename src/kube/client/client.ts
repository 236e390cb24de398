import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import type {
  CallOptions,
  DeleteOptions,
  DeleteResult,
  GetOptions,
  KubeApi,
  ListOptions,
  ListPage,
  Patch,
  RawAnswer,
  RawRequest,
  Selection,
  WatchEvent,
  WatchOptions,
  WriteOptions,
} from "./api.ts";
import { acceptMetadata, deleteBody, PATCH_TYPES, parseList, patchBody, withType } from "./bodies.ts";
import type { KubeConnection } from "./connection.ts";
import { isKubeError, KubeError } from "./errors.ts";
import { collectionPath, describeAction, objectPath, query, writePath } from "./paths.ts";
import type { Draft, KubeObject, ObjectRef, ResourceType } from "./resource.ts";
import { checkObject, parseObject } from "./response.ts";
import type { PortState, ServerAddress } from "./server-port.ts";
import { Transport, type TransportOptions, type WireRequest } from "./transport.ts";
import { watchEvents } from "./watch.ts";

/** The page size of `listPages` and `listAll`, the same as in kubectl and client-go. */
export const DEFAULT_PAGE_SIZE = 500;
/** The maximum number of times that `listAll` starts again because its snapshot expired. */
const MAX_LIST_RESTARTS = 3;

/** Settings of a {@link KubeClient}. */
export type KubeClientOptions = TransportOptions;

/** Talks to one API server. Dispose it to close its connections. */
export class KubeClient implements KubeApi, AsyncDisposable {
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly connection: KubeConnection;

  constructor(connection: KubeConnection, options: KubeClientOptions) {
    this.connection = connection;
    this.#clock = options.clock;
    this.#transport = new Transport(connection, options);
  }

  async get<T extends KubeObject>(type: ResourceType<T>, ref: ObjectRef, options: GetOptions = {}): Promise<T> {
    const path = objectPath(type, ref, options.subresource) + query({ resourceVersion: options.resourceVersion });
    return this.#object<T>({ method: "GET", path, action: describeAction("get", type, ref) }, options);
  }

  async list<T extends KubeObject>(type: ResourceType<T>, options: ListOptions = {}): Promise<ListPage<T>> {
    const action = describeAction("list", type, { namespace: options.namespace });
    const path =
      collectionPath(type, options.namespace) +
      query({
        labelSelector: options.labelSelector,
        fieldSelector: options.fieldSelector,
        limit: options.limit,
        continue: options.continueToken,
        // A continue token contains its own resourceVersion; the server refuses a request that has both.
        resourceVersion: options.continueToken === undefined ? options.resourceVersion : undefined,
        resourceVersionMatch: options.continueToken === undefined ? options.resourceVersionMatch : undefined,
      });
    const accept = options.metadataOnly === true ? acceptMetadata("PartialObjectMetadataList") : undefined;
    const text = await this.#transport.send({ method: "GET", path, action, accept }, options);
    return parseList<T>(action, text, type);
  }

  async *listPages<T extends KubeObject>(
    type: ResourceType<T>,
    options: ListOptions = {},
  ): AsyncGenerator<ListPage<T>> {
    let token = options.continueToken;
    do {
      const page: ListPage<T> = await this.list(type, {
        ...options,
        limit: options.limit ?? DEFAULT_PAGE_SIZE,
        continueToken: token,
      });
      yield page;
      if (page.continueToken !== undefined && page.continueToken === token) {
        throw new KubeError("bad-response", `Cannot list ${type.plural}: the server sent the same page twice`);
      }
      token = page.continueToken;
    } while (token !== undefined);
  }

  async listAll<T extends KubeObject>(type: ResourceType<T>, options: ListOptions = {}): Promise<ListPage<T>> {
    for (let restarts = 0; ; restarts += 1) {
      try {
        const items: T[] = [];
        let resourceVersion = "";
        for await (const page of this.listPages(type, options)) {
          for (const item of page.items) items.push(item);
          resourceVersion = page.resourceVersion;
        }
        return { items, resourceVersion, continueToken: undefined, remainingItemCount: undefined };
      } catch (error) {
        if (!isKubeError(error, "gone") || restarts >= MAX_LIST_RESTARTS) throw error;
      }
    }
  }

  async create<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options: WriteOptions = {}): Promise<T> {
    const { namespace, name, generateName } = object.metadata;
    const action = describeAction("create", type, { namespace, name: name ?? `${generateName ?? ""}*` });
    const path =
      options.subresource === undefined
        ? writePath(type, namespace)
        : objectPath(type, object.metadata, options.subresource);
    return this.#write<T>("POST", action, path, withType(type, object), options);
  }

  async replace<T extends KubeObject>(type: ResourceType<T>, object: Draft<T>, options: WriteOptions = {}): Promise<T> {
    const action = describeAction("replace", type, object.metadata);
    const path = objectPath(type, object.metadata, options.subresource);
    return this.#write<T>("PUT", action, path, withType(type, object), options);
  }

  async replaceStatus<T extends KubeObject>(
    type: ResourceType<T>,
    object: Draft<T>,
    options: WriteOptions = {},
  ): Promise<T> {
    return this.replace(type, object, { ...options, subresource: "status" });
  }

  async patch<T extends KubeObject>(
    type: ResourceType<T>,
    ref: ObjectRef,
    patch: Patch,
    options: WriteOptions = {},
  ): Promise<T> {
    const action = describeAction(patch.type === "apply" ? "apply" : "patch", type, ref);
    const fieldManager = patch.type === "apply" ? patch.fieldManager : options.fieldManager;
    const path =
      objectPath(type, ref, options.subresource) +
      query({
        fieldManager,
        dryRun: options.dryRun === true ? "All" : undefined,
        force: patch.type === "apply" && patch.force === true ? true : undefined,
      });
    const body = JSON.stringify(patchBody(type, ref, patch));
    return this.#object<T>({ method: "PATCH", path, body, contentType: PATCH_TYPES[patch.type], action }, options);
  }

  async delete<T extends KubeObject>(
    type: ResourceType<T>,
    ref: ObjectRef,
    options: DeleteOptions = {},
  ): Promise<DeleteResult<T>> {
    const action = describeAction("delete", type, ref);
    const request: WireRequest = { method: "DELETE", path: objectPath(type, ref), body: deleteBody(options), action };
    const value = parseObject(action, await this.#transport.send(request, options));
    if (value["kind"] === "Status") return { kind: "status", status: value };
    return { kind: "object", object: checkObject<T>(action, value) };
  }

  async deleteCollection<T extends KubeObject>(
    type: ResourceType<T>,
    selection: Selection,
    options: Omit<DeleteOptions, "preconditions"> = {},
  ): Promise<void> {
    const path =
      collectionPath(type, selection.namespace) +
      query({ labelSelector: selection.labelSelector, fieldSelector: selection.fieldSelector });
    const action = describeAction("delete all", type, { namespace: selection.namespace });
    await this.#transport.send({ method: "DELETE", path, body: deleteBody(options), action }, options);
  }

  watch<T extends KubeObject>(type: ResourceType<T>, options: WatchOptions = {}): AsyncIterable<WatchEvent<T>> {
    const path =
      collectionPath(type, options.namespace) +
      query({
        watch: true,
        allowWatchBookmarks: options.bookmarks ?? true,
        resourceVersion: options.resourceVersion,
        labelSelector: options.labelSelector,
        fieldSelector: options.fieldSelector,
        timeoutSeconds: options.timeoutSeconds,
      });
    const action = describeAction("watch", type, { namespace: options.namespace });
    const accept = options.metadataOnly === true ? acceptMetadata("PartialObjectMetadata") : undefined;
    return watchEvents<T>(this.#transport, { method: "GET", path, action, accept }, { ...options, clock: this.#clock });
  }

  /**
   * Sets the servers that the cluster itself names, for when none of the connection's is reached; each call replaces those of the last one. The certificate of each is verified like that of
   * the connection's servers, and must have the name of one of them, or `tlsServerName`.
   */
  learn(servers: readonly ServerAddress[]): void {
    this.#transport.learn(servers);
  }

  whenOpen(options: AbortOptions = {}): Promise<PortState> {
    return this.#transport.whenOpen(options);
  }

  async request(request: RawRequest, options: CallOptions = {}): Promise<unknown> {
    const action = `${request.method} ${request.path}`;
    const text = await this.#transport.send(
      {
        method: request.method,
        path: request.path + query(request.query ?? {}),
        ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
        contentType: request.contentType,
        action,
      },
      options,
    );
    return parseObject(action, text);
  }

  /**
   * Sends a GET once, and resolves to the answer with any status: the answers of pods behind `pods/proxy` have statuses of their own. Rejects like
   * the other calls, also with `bad-response` if the body has more than `maxBytes`.
   */
  fetch(path: string, options: CallOptions & { readonly maxBytes: number }): Promise<RawAnswer> {
    return this.#transport.fetch({ method: "GET", path, action: `GET ${path}`, accept: "*/*" }, options);
  }

  /** Aborts running calls, which reject with `unreachable`, and closes all connections. */
  async close(): Promise<void> {
    await this.#transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #write<T>(
    method: "POST" | "PUT",
    action: string,
    path: string,
    object: object,
    options: WriteOptions,
  ): Promise<T> {
    const flags = query({ fieldManager: options.fieldManager, dryRun: options.dryRun === true ? "All" : undefined });
    return this.#object<T>({ method, path: path + flags, body: JSON.stringify(object), action }, options);
  }

  async #object<T>(request: WireRequest, options: CallOptions): Promise<T> {
    return checkObject<T>(request.action, parseObject(request.action, await this.#transport.send(request, options)));
  }
}

/** Reads an object; resolves to `undefined` if it does not exist. */
export async function findObject<T extends KubeObject>(
  api: Pick<KubeApi, "get">,
  type: ResourceType<T>,
  ref: ObjectRef,
  options: GetOptions = {},
): Promise<T | undefined> {
  try {
    return await api.get(type, ref, options);
  } catch (error) {
    if (isKubeError(error, "not-found")) return undefined;
    throw error;
  }
}
