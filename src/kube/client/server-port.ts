import type { Socket } from "node:net";
import { type AbortOptions, sleep, unlessAborted, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { connectThrough, type HttpProxy } from "#base/http-proxy";
import { buildConnector } from "#undici";
import { DIAL_EVERY_MS, type Dialled, dial } from "./dial.ts";
import { KubeConfigError, KubeError } from "./errors.ts";
import { withParserBudget } from "./parser-budget.ts";

/** `open`: the port accepted a connection at once. `returned`: the port was closed and accepts connections now. */
export type PortState = "open" | "returned";

/** The timeout of a connection for a waiting request, and of its TLS handshake, in milliseconds. */
const CONNECT_MS = 10_000;
/** The time for which the probe's connection is kept for the next request, in milliseconds. */
const SPARE_MS = 2000;
/**
 * A connection without data for this time, milliseconds, gets ten keep-alive probes, one a second (libuv's numbers). So the client notices
 * after 20 s that a server does not exist any more. If the server restarts meanwhile, it answers the next probe with a reset.
 */
const KEEP_ALIVE_MS = 10_000;

/** Options for connections to one server. */
export interface ServerPortOptions {
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
  /** The proxy through which the server is reached. */
  readonly proxy?: HttpProxy | undefined;
}

interface Probe {
  readonly done: Promise<PortState>;
  readonly stop: AbortController;
  waiters: number;
}

/** The TCP port of one API server: makes connections to the port, and probes it once for all callers that wait for it. */
export class ServerPort {
  readonly #host: string;
  readonly #port: number;
  readonly #options: ServerPortOptions;
  readonly #clock: Clock;
  readonly #closing = new AbortController();
  #probe: Probe | undefined;
  #spare: Socket | undefined;

  constructor(server: URL, options: ServerPortOptions) {
    this.#host = server.hostname.replace(/^\[|\]$/g, "");
    this.#port = server.port === "" ? (server.protocol === "http:" ? 80 : 443) : Number(server.port);
    this.#options = options;
    this.#clock = options.clock;
  }

  /**
   * Resolves when the port accepts connections. It is probed at most once a second for all callers. Rejects with the signal's reason,
   * and with `unreachable` when the client is closed.
   */
  async whenOpen({ signal }: AbortOptions = {}): Promise<PortState> {
    signal?.throwIfAborted();
    this.#closing.signal.throwIfAborted();
    this.#probe ??= this.#startProbe();
    const probe = this.#probe;
    probe.waiters += 1;
    try {
      return await unlessAborted(probe.done, { signal });
    } finally {
      probe.waiters -= 1;
      if (probe.waiters === 0) {
        probe.stop.abort();
        if (this.#probe === probe) this.#probe = undefined;
      }
    }
  }

  /**
   * Makes the connector of a pool of connections with these TLS options, which are of `source`. A certificate or key that OpenSSL refuses fails each
   * connection with `KubeConfigError` `invalid`.
   */
  connector(tls: buildConnector.BuildOptions, source: string): buildConnector.connector {
    const keepAlive = { keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS };
    const overTls = buildConnector({ ...tls, ...keepAlive, timeout: CONNECT_MS });
    return (options, connected) => {
      const callback: buildConnector.Callback = (...outcome) => withParserBudget(() => connected(...outcome));
      this.#connect().then(
        (socket) => {
          if (options.protocol === "https:") {
            try {
              overTls({ ...options, httpSocket: socket }, callback);
            } catch (cause) {
              // The options are read at once, before the handshake: nobody holds the promise of this handler.
              socket.destroy();
              const text = `The client certificate and key of ${source} cannot be used: ${describeError(cause)}`;
              callback(new KubeConfigError("invalid", text, { cause }), null);
            }
            return;
          }
          socket.setKeepAlive(true, KEEP_ALIVE_MS).setNoDelay(true);
          callback(null, socket);
        },
        (error: Error) => callback(error, null),
      );
    };
  }

  /** Ends running probes. */
  close(): void {
    this.#closing.abort(new KubeError("unreachable", "the client was closed"));
    this.#probe?.stop.abort(this.#closing.signal.reason);
    this.#spare?.destroy();
  }

  async #connect(): Promise<Socket> {
    const spare = this.#takeSpare();
    if (spare !== undefined) return spare;
    const connecting = withDeadline(CONNECT_MS, (signal) => this.#dial(signal, false), {
      signal: this.#closing.signal,
      clock: this.#clock,
    });
    const { socket } = await connecting;
    return socket;
  }

  #dial(signal: AbortSignal, isPatient: boolean): Promise<Dialled> {
    const { clock, random, proxy } = this.#options;
    if (proxy !== undefined) return this.#dialThrough(proxy, signal, isPatient);
    return dial({ host: this.#host, port: this.#port, isPatient, signal, clock, random });
  }

  /** A server behind a proxy is there when the proxy connects to it. */
  async #dialThrough(proxy: HttpProxy, signal: AbortSignal, isPatient: boolean): Promise<Dialled> {
    const { clock, random = Math.random } = this.#options;
    const target = { hostname: this.#host, port: this.#port };
    for (let tries = 1; ; tries += 1) {
      try {
        const socket = await withDeadline(CONNECT_MS, (limit) => connectThrough(proxy, target, { signal: limit }), {
          signal,
          clock,
        });
        return { socket, tries };
      } catch (error) {
        if (!isPatient || signal.aborted) throw error;
        await sleep(DIAL_EVERY_MS * (1 - 0.5 * random()), { signal, clock });
      }
    }
  }

  #startProbe(): Probe {
    const stop = new AbortController();
    const done = this.#dial(stop.signal, true).then(({ socket, tries }): PortState => {
      this.#probe = undefined;
      this.#keep(socket);
      return tries === 1 ? "open" : "returned";
    });
    // Every waiter gets the failure; without a waiter the probe was stopped.
    done.catch(() => undefined);
    return { done, stop, waiters: 0 };
  }

  /** Keeps the probe's connection for a request: servers log each connection that is closed without a handshake. */
  #keep(socket: Socket): void {
    this.#spare?.destroy();
    this.#spare = socket;
    const cancel = this.#clock.after(SPARE_MS, () => {
      if (this.#spare === socket) this.#takeSpare()?.destroy();
    });
    const forget = (): void => {
      cancel();
      if (this.#spare === socket) this.#spare = undefined;
    };
    socket.once("close", forget);
    // The close event follows.
    socket.on("error", () => undefined);
  }

  #takeSpare(): Socket | undefined {
    const spare = this.#spare;
    this.#spare = undefined;
    return spare?.destroyed === false && spare.readable ? spare : undefined;
  }
}
