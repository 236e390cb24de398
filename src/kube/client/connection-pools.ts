import { withDeadline } from "#base/async";
import { machineTrust, type Trust, trustIn } from "#base/authorities";
import type { Clock } from "#base/clock";
import { withoutEnd } from "#base/text";
import { Agent, type Dispatcher } from "#base/undici";
import type { KubeConnection, KubeCredentials } from "./connection.ts";
import { KubeConfigError, KubeError } from "./errors.ts";
import { type ServerPort, type ServerTarget, SILENT_MS } from "./server-port.ts";

/** The maximum number of concurrent requests, watches not counted; further requests are queued. */
export const MAX_CONCURRENT_REQUESTS = 32;
/** `null`: one for each watch that needs it. */
const MAX_CONNECTIONS = { requests: MAX_CONCURRENT_REQUESTS, watches: null } as const;
/** The time in which a server whose silence is judged must answer, in milliseconds. */
const PROBE_MS = 2000;

/** The agents of requests and of watches, which have connections of their own. */
export interface Pools {
  /** The server to which connections went when the pools were made. */
  readonly target: ServerTarget;
  readonly credentials: KubeCredentials;
  readonly requests: Agent;
  readonly watches: Agent;
}

/** The connections to the API servers: one set of agents for each version of the credentials, and the choice of a server that is well. */
export class ConnectionPools {
  readonly #connection: KubeConnection;
  readonly #port: ServerPort;
  readonly #clock: Clock;
  #pools: Pools | undefined;
  /** A server is being judged. */
  #judging = false;
  /** The server that was found well last, and when, in milliseconds of the monotonic clock. */
  #well: { readonly target: ServerTarget; readonly at: number } | undefined;
  /** Agents whose credentials were replaced, and those with a request that timed out. Each closes when its last request ends. */
  readonly #retiring = new Set<Agent>();

  constructor(connection: KubeConnection, deps: { readonly port: ServerPort; readonly clock: Clock }) {
    this.#connection = connection;
    this.#port = deps.port;
    this.#clock = deps.clock;
  }

  /** The trust of the present credentials, for messages. */
  get trusted(): string {
    return this.#pools?.credentials.ca === undefined
      ? "this machine, as no certificate-authority is set"
      : this.#authorities;
  }

  /** Destroys all agents. `closePort` is called before they are waited for. */
  async close(closePort: () => void): Promise<void> {
    const agents = [...this.#retiring, ...(this.#pools ? [this.#pools.requests, this.#pools.watches] : [])];
    this.#pools = undefined;
    closePort();
    await Promise.all(agents.map((agent) => agent.destroy()));
  }

  /** The agents and credentials for the next request. Rejects with `KubeConfigError`, or the signal's reason. */
  async connect(signal: AbortSignal): Promise<Pools> {
    const credentials = await this.#connection.credentials({ signal });
    const old = this.#pools;
    const target = this.#port.current;
    if (old !== undefined && old.target === target && sameTls(old.credentials, credentials)) {
      if (old.credentials !== credentials) this.#pools = { ...old, credentials };
      return this.#pools ?? old;
    }
    if (old !== undefined) for (const agent of [old.requests, old.watches]) this.#retire(agent);
    this.#pools = {
      target,
      credentials,
      requests: this.#agent(credentials, MAX_CONNECTIONS.requests),
      watches: this.#agent(credentials, MAX_CONNECTIONS.watches),
    };
    return this.#pools;
  }

  /** With `only`, its connections go to that server alone. */
  #agent(credentials: KubeCredentials, connections: number | null, only?: ServerTarget): Agent {
    const { insecureSkipTlsVerify, source } = this.#connection;
    return new Agent({
      connections,
      pipelining: 1,
      // These timeouts are off: the call's own deadline and the watch's idle limit apply instead.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: this.#port.connector(
        {
          rejectUnauthorized: !insecureSkipTlsVerify,
          ...this.#trust(credentials),
          ...(credentials.cert === undefined ? {} : { cert: credentials.cert }),
          ...(credentials.key === undefined ? {} : { key: credentials.key }),
        },
        source,
        only,
      ),
    });
  }

  /** Throws `KubeConfigError`. */
  #trust({ ca }: KubeCredentials): { readonly ca: string[]; readonly allowPartialTrustChain: true } | undefined {
    const { server, insecureSkipTlsVerify } = this.#connection;
    if (server.protocol !== "https:" || insecureSkipTlsVerify) return undefined;
    const trust: Trust | undefined = ca === undefined ? machineTrust() : trustIn(ca);
    if (trust !== undefined) return { ...trust, ca: [...trust.ca] };
    // The file may have been read while it was replaced.
    this.#connection.expire();
    throw new KubeConfigError(
      "invalid",
      `${this.#authorities} has no certificate that can be read: a PEM text with CERTIFICATE blocks is expected`,
    );
  }

  get #authorities(): string {
    return `the certificate-authority of ${this.#connection.source}`;
  }

  /** Judges the server each few seconds until the returned function is called. */
  doubt(pools: Pools): () => void {
    let cancel = (): void => undefined;
    const wait = (): void => {
      cancel = this.#clock.after(SILENT_MS, () => {
        if (this.#port.hasOthers) void this.judge(pools);
        wait();
      });
    };
    wait();
    return () => cancel();
  }

  /**
   * A request has no answer, or one of a server in trouble: a server that is not well is left for the next one that is, with all that waits for it. Reads are sent again. Where none is well
   * the one of now stays. `pools` are those of the request: connections of others may go elsewhere by now.
   */
  async judge(pools: Pools): Promise<void> {
    const { target, credentials } = pools;
    // A busy server is not asked again for each of its slow answers.
    const isKnown = this.#well?.target === target && this.#clock.monotonic() - this.#well.at < SILENT_MS;
    if (this.#judging || isKnown) return;
    this.#judging = true;
    try {
      const isWell = await this.#isWell(credentials, target);
      if (isWell === true) this.#well = { target, at: this.#clock.monotonic() };
      if (isWell !== false) return;
      for (const other of this.#port.othersOf(target)) {
        if ((await this.#isWell(credentials, other)) !== true) continue;
        this.#port.leave(target, other);
        if (this.#pools?.target === target) this.#pools = undefined;
        const left = new KubeError("unreachable", "the API server is not well, and was left for another one");
        await Promise.all([pools.requests.destroy(left), pools.watches.destroy(left)]);
        return;
      }
    } finally {
      this.#judging = false;
    }
  }

  /** Resolves with true if a server answers a new connection with no error of its own; `undefined`: with credentials that cannot be used nothing is known of it. */
  async #isWell(credentials: KubeCredentials, target: ServerTarget): Promise<boolean | undefined> {
    const { server } = this.#connection;
    let agent: Agent | undefined;
    try {
      agent = this.#agent(credentials, 1, target);
      const path = `${withoutEnd(server.pathname, "/")}/livez`;
      const asking = (signal: AbortSignal): Promise<Dispatcher.ResponseData> | undefined =>
        agent?.request({ origin: server.origin, path, method: "GET", headers: credentials.headers, signal });
      const answer = await withDeadline(PROBE_MS, async (signal) => asking(signal), { clock: this.#clock });
      answer?.body.on("error", () => undefined).destroy();
      // Who may not ask for it gets 401 or 403 of a server that is well.
      return answer !== undefined && answer.statusCode < 500;
    } catch (error) {
      return error instanceof KubeConfigError ? undefined : false;
    } finally {
      await agent?.destroy();
    }
  }

  /**
   * The next requests have new connections: those of this agent may lead to a server that is gone without a reset, and an aborted request of
   * HTTP/2, which API servers choose, does not end its connection.
   */
  abandon(pool: "requests" | "watches", agent: Agent): void {
    const current = this.#pools;
    if (current?.[pool] !== agent) return;
    this.#pools = { ...current, [pool]: this.#agent(current.credentials, MAX_CONNECTIONS[pool]) };
    this.#retire(agent);
  }

  #retire(agent: Agent): void {
    this.#retiring.add(agent);
    const forget = (): boolean => this.#retiring.delete(agent);
    // Closing fails only for an agent that `close` has destroyed meanwhile.
    agent.close().then(forget, forget);
  }
}

function sameTls(a: KubeCredentials, b: KubeCredentials): boolean {
  return a.ca === b.ca && a.cert === b.cert && a.key === b.key;
}
