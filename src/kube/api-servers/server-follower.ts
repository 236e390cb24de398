import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { FileError } from "#base/file";
import { type Logger, Repeats } from "#base/log";
import { repeat } from "#base/reconcile";
import { withoutEnd } from "#base/text";
import { isKubeError, type KubeApi, type KubeConnection, resources, type ServerAddress } from "#kube/client";
import { ServerFile } from "./server-file.ts";
import { serversOf, textOf } from "./server-list.ts";

/** The time between two looks at the slice, in milliseconds. */
const EVERY_MS = 60_000;
/** The time until the next look without the right to one, in milliseconds. */
const FORBIDDEN_MS = 600_000;
/** The first pause after a failure, in milliseconds. */
const AGAIN_MS = 1000;
/** The timeout of a look, in milliseconds. */
const LOOK_MS = 10_000;

/** Collaborators of a {@link ServerFollower}. */
export interface ServerFollowerDeps {
  readonly api: Pick<KubeApi, "list">;
  /** Takes the servers, at most 16, whenever they change. */
  readonly learn: (servers: readonly ServerAddress[]) => void;
  readonly log: Logger;
  readonly clock: Clock;
  /** Uniform in [0, 1): mixes the servers, so that not all programs go to the same one. Default `Math.random`. */
  readonly random?: () => number;
}

/** The connection whose servers are followed, and the file that keeps them. */
export interface ServerFollowerOptions {
  readonly connection: Pick<KubeConnection, "server">;
  /** The file that keeps them; its folder is the program's own, and is made and closed to others. */
  readonly path: string;
  /** The time between two looks, in milliseconds. Default 60,000. */
  readonly everyMs?: number;
}

/**
 * Returns true if a program of this connection uses the servers that the cluster names: they have no path prefix, are reached directly, and prove by TLS who they are. Throws `KubeConfigError`
 * for a proxy that is none.
 */
export function mayFollow({
  server,
  proxyTo,
  insecureSkipTlsVerify,
}: Pick<KubeConnection, "server" | "proxyTo" | "insecureSkipTlsVerify">): boolean {
  const isPlain = server.protocol !== "https:" || withoutEnd(server.pathname, "/") !== "";
  return !isPlain && !insecureSkipTlsVerify && proxyTo?.(server) === undefined;
}

/** Reads the API servers of the cluster again and again, and keeps them for the next start of the program. */
export class ServerFollower {
  readonly #deps: ServerFollowerDeps;
  readonly #everyMs: number;
  readonly #file: ServerFile;
  readonly #random: () => number;
  readonly #said = new Repeats();
  #known = "";

  constructor(deps: ServerFollowerDeps, { connection, path, everyMs = EVERY_MS }: ServerFollowerOptions) {
    this.#deps = deps;
    this.#everyMs = everyMs;
    this.#file = new ServerFile(path, connection.server.href);
    this.#random = deps.random ?? Math.random;
  }

  /**
   * Passes on the servers of the file at once, and those of the cluster when they change, until the signal aborts. Without the right to list the slice it looks each ten minutes. Never
   * rejects but for a bug: failures are logged at debug, once each, since programs report by other means that the API server is unavailable.
   */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock, log } = this.#deps;
    this.#pass(this.#file.read());
    const backoff = new Backoff({ initialMs: AGAIN_MS, maxMs: this.#everyMs, random: this.#random });
    await repeat(() => this.#look(signal), {
      ...{ signal, clock, backoff, everyMs: this.#everyMs },
      retryAfterMs: (error) => (isKubeError(error, "forbidden") ? FORBIDDEN_MS : undefined),
      onFailure: (error) => {
        if (!this.#said.isNew("look", error.message)) return;
        const why = "cannot list EndpointSlice default/kubernetes; only the configured API servers are used";
        log.debug(why, { error: error.message });
      },
    });
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { items } = await this.#deps.api.list(resources.endpointSlices, {
      namespace: "default",
      fieldSelector: "metadata.name=kubernetes",
      // Any state will do: it is read again.
      resourceVersion: "0",
      timeoutMs: LOOK_MS,
      signal,
    });
    const servers = serversOf(items[0]);
    // A slice without servers says nothing about them: who answered is one.
    if (servers.length === 0 || !this.#pass(servers)) return;
    try {
      this.#file.write(servers);
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      const why = "cannot keep the API servers of the cluster; the next start knows the configured ones only";
      if (this.#said.isNew("file", error.message)) this.#deps.log.debug(why, { error: error.message });
    }
  }

  /** Returns whether they are others than before. */
  #pass(servers: readonly ServerAddress[]): boolean {
    const text = servers.map(textOf).join(" ");
    if (text === this.#known) return false;
    this.#known = text;
    this.#deps.learn(shuffled(servers, this.#random));
    this.#deps.log.debug("the cluster names its API servers", { servers: text });
    return true;
  }
}

/** Pure but for `random`. */
function shuffled<T>(items: readonly T[], random: () => number): readonly T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
