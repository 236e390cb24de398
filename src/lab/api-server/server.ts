import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { buildState } from "./build.ts";
import { ApiError } from "./errors.ts";
import type { FaultPlan } from "./faults/plan.ts";
import { handle } from "./http/handle.ts";
import type { ServerState } from "./http/state.ts";
import { selfSignedCertificate } from "./http/tls.ts";
import { handleUpgrade } from "./http/upgrade.ts";
import { renderKubeconfig } from "./kubeconfig.ts";
import type { DeferredQueue } from "./lifecycle/deferred-queue.ts";
import type { JsonObject } from "./object/json.ts";
import type { ApiServerOptions, ListenAddress } from "./options.ts";
import { type SeedObject, seedObjects } from "./seed.ts";

/** Options of a kubeconfig. `server` defaults to the first URL, `token` to the first of `tokens`. */
export interface KubeconfigOverrides {
  readonly server?: string;
  readonly token?: string;
  readonly namespace?: string;
  readonly user?: string;
}

/** A running server. */
export interface ApiServer extends AsyncDisposable {
  /** The URLs of the listeners, in their order. */
  readonly urls: readonly string[];
  /** The CA to trust, PEM; undefined for plain HTTP. */
  readonly ca: string | undefined;
  readonly faults: FaultPlan;
  /** The revision of the last change. */
  readonly resourceVersion: string;
  /** A kubeconfig as YAML. */
  kubeconfig(overrides?: KubeconfigOverrides): string;
  /**
   * Stores objects as they are, without admission, validation or events for watches: for many objects before clients connect.
   * Returns their number. Throws ApiError for a kind that is not served or a name that is taken.
   */
  seed(objects: Iterable<SeedObject>): number;
  /** A stored object; `undefined` if it does not exist. */
  get(apiVersion: string, kind: string, namespace: string, name: string): JsonObject | undefined;
  /** Drops all history: earlier watches and chunked lists get 410 when they continue. */
  compact(): void;
  /** Resolves when the server's own controllers (garbage, namespaces, CRDs) have no work that waits. */
  settled(): Promise<void>;
  /** Ends watches and connections, closes the listeners. */
  stop(): Promise<void>;
}

/** Starts a server; resolves when all listeners accept. Throws ApiError when a certificate cannot be made, or as `listen` fails. */
export async function startApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const listen: readonly ListenAddress[] = Array.isArray(options.listen)
    ? options.listen
    : [options.listen as ListenAddress];
  const certificate =
    options.tls === "self-signed"
      ? selfSignedCertificate(certificateHosts(listen, options.tlsHosts ?? []))
      : options.tls;
  const { state, queue } = buildState(options);
  const listener = (request: IncomingMessage, response: ServerResponse): void => void handle(state, request, response);
  const servers: Server[] = [];
  const urls: string[] = [];
  try {
    for (const address of listen) {
      const secure = certificate !== undefined && address.plain !== true;
      const server = secure
        ? createTlsServer({ cert: certificate.cert, key: certificate.key }, listener)
        : createServer(listener);
      server.on("upgrade", (request, socket, head) => void handleUpgrade(state, request, socket, head));
      server.keepAliveTimeout = 120_000;
      server.requestTimeout = 0;
      servers.push(server);
      urls.push(await open(server, address, secure ? "https" : "http"));
    }
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
  options.log.info("the lab's API server is up: in memory, for labs and tests only", { urls });
  return new RunningServer(options, state, queue, servers, urls, certificate?.ca);
}

function certificateHosts(listen: readonly ListenAddress[], more: readonly string[]): string[] {
  const named = listen.flatMap((address) => (address.host === undefined ? [] : [address.host]));
  return [...new Set(["localhost", "127.0.0.1", "::1", ...named, ...more])];
}

function open(server: Server, address: ListenAddress, scheme: string): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    const done = (): void => {
      server.off("error", reject);
      const bound = server.address() as AddressInfo | string | null;
      const found = typeof bound === "object" && bound !== null ? bound : undefined;
      const host = address.host ?? found?.address ?? "127.0.0.1";
      const name = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host;
      resolve(`${scheme}://${name.includes(":") ? `[${name}]` : name}:${found?.port ?? 0}`);
    };
    if ("fd" in address) server.listen({ fd: address.fd }, done);
    else server.listen(address.port, address.host, done);
  });
}

/** The age from which changes are forgotten, in milliseconds: that of kube-apiserver's `--etcd-compaction-interval`. */
const HISTORY_MS = 300_000;

class RunningServer implements ApiServer {
  readonly urls: readonly string[];
  readonly ca: string | undefined;
  readonly #options: ApiServerOptions;
  readonly #state: ServerState;
  readonly #queue: DeferredQueue;
  readonly #servers: readonly Server[];
  #cancelForget: () => void = () => undefined;

  constructor(
    options: ApiServerOptions,
    state: ServerState,
    queue: DeferredQueue,
    servers: readonly Server[],
    urls: readonly string[],
    ca: string | undefined,
  ) {
    this.#options = options;
    this.#state = state;
    this.#queue = queue;
    this.#servers = servers;
    this.urls = urls;
    this.ca = ca;
    this.#forgetLater();
  }

  /** Forgets what is older than the last call, each five minutes. */
  #forgetLater(): void {
    const { revision } = this.#state.store;
    this.#cancelForget = this.#state.clock.after(
      HISTORY_MS,
      () => {
        this.#state.store.forget(revision);
        this.#forgetLater();
      },
      { unref: true },
    );
  }

  get faults(): FaultPlan {
    return this.#state.faults;
  }

  get resourceVersion(): string {
    return String(this.#state.store.revision);
  }

  kubeconfig(overrides: KubeconfigOverrides = {}): string {
    const server = overrides.server ?? this.urls[0] ?? "";
    const token = overrides.token ?? Object.keys(this.#options.tokens ?? {})[0];
    return renderKubeconfig({ ...overrides, server, token, ca: server.startsWith("https:") ? this.ca : undefined });
  }

  seed(objects: Iterable<SeedObject>): number {
    return seedObjects(this.#state, objects);
  }

  get(apiVersion: string, kind: string, namespace: string, name: string): JsonObject | undefined {
    const resource = this.#state.registry.findKind(apiVersion, kind);
    if (resource === undefined)
      throw new ApiError(
        "NotFound",
        `cannot get ${kind} ${namespace}/${name}: no such kind is served in ${apiVersion}`,
      );
    return this.#state.objects.find(resource, namespace, name)?.object;
  }

  compact(): void {
    this.#state.store.compact();
  }

  async settled(): Promise<void> {
    await this.#queue.idle();
  }

  async stop(): Promise<void> {
    this.#cancelForget();
    this.#queue.stop();
    for (const watcher of [...this.#state.watchers]) watcher.close();
    for (const socket of this.#state.upgraded) socket.destroy();
    await Promise.all(this.#servers.map(closeServer));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    // The only possible error is that the server was already closed.
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
