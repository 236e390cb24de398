import { isIP, type Socket } from "node:net";
import { type ConnectionOptions, checkServerIdentity } from "node:tls";
import { type AbortOptions, sleep, unlessAborted, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { connectThrough, type HttpProxy } from "#base/http-proxy";
import { buildConnector } from "#undici";
import { DIAL_EVERY_MS, type Dialled, type DialTarget, dial } from "./dial.ts";
import { KubeConfigError, KubeError } from "./errors.ts";
import { withParserBudget } from "./parser-budget.ts";

/** `open`: the port accepted a connection at once. `returned`: the port was closed and accepts connections now. */
export type PortState = "open" | "returned";

/** The timeout of a connection for a waiting request, and of its TLS handshake, in milliseconds. */
const CONNECT_MS = 10_000;
/** A server that answers nothing for this time is left, if there is another one, in milliseconds. */
export const SILENT_MS = 5000;
/** The time for which the probe's connection is kept for the next request, in milliseconds. */
const SPARE_MS = 2000;
/**
 * A connection without data for this time, milliseconds, gets ten keep-alive probes, one a second (libuv's numbers). So the client notices
 * after 20 s that a server does not exist any more. If the server restarts meanwhile, it answers the next probe with a reset.
 */
const KEEP_ALIVE_MS = 10_000;

/** Options for connections to the servers of one cluster. */
export interface ServerPortOptions {
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
  /** Servers beside the first one. */
  readonly others?: readonly URL[] | undefined;
  /** The proxy through which a server is reached. Default: none. */
  readonly proxyTo?: ((server: URL) => HttpProxy | undefined) | undefined;
  /** The name that each server's certificate must have. Absent: that of its address. */
  readonly tlsServerName?: string | undefined;
}

/** One API server. */
interface ServerTarget extends DialTarget {
  readonly server: URL;
  readonly proxy: HttpProxy | undefined;
}

interface Probe {
  readonly done: Promise<PortState>;
  readonly stop: AbortController;
  waiters: number;
}

/**
 * The TCP ports of the API servers of one cluster: makes connections to the one that was reached last, and to the next one where it is not reached; probes them once for
 * all callers that wait.
 */
export class ServerPort {
  readonly #targets: readonly ServerTarget[];
  /** Index of the target to which connections go. */
  #current = 0;
  readonly #options: ServerPortOptions;
  readonly #clock: Clock;
  readonly #closing = new AbortController();
  #probe: Probe | undefined;
  /** Goes to the server of now: {@link ServerPort.leave}, and a connection to another one, end it. */
  #spare: Socket | undefined;

  constructor(server: URL, options: ServerPortOptions) {
    this.#targets = [server, ...(options.others ?? [])].map((one) => ({
      server: one,
      host: one.hostname.replace(/^\[|\]$/g, ""),
      port: one.port === "" ? (one.protocol === "http:" ? 80 : 443) : Number(one.port),
      proxy: options.proxyTo?.(one),
    }));
    this.#options = options;
    this.#clock = options.clock;
  }

  /** Index of the server to which connections go. */
  get current(): number {
    return this.#current;
  }

  /** The host and port of that server, for messages. */
  get where(): string {
    return this.#at(this.#current).server.host;
  }

  /** Whether there is another server to go to. */
  get hasOthers(): boolean {
    return this.#targets.length > 1;
  }

  /** Indexes of the other servers, the next one first. */
  othersOf(target: number): number[] {
    const count = this.#targets.length;
    return Array.from({ length: count - 1 }, (_, at) => (target + 1 + at) % count);
  }

  /** Sends the next connections to another server, by default the next one, unless they go to another one than `target` by now. */
  leave(target: number, other = (target + 1) % this.#targets.length): void {
    if (target !== this.#current || !this.hasOthers) return;
    this.#current = other;
    this.#takeSpare()?.destroy();
  }

  /**
   * Resolves when one of the ports accepts connections. It is probed at most once a second for all callers. Rejects with the signal's reason,
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
   * Makes the connector of a pool of connections with these TLS options, which are of `source`; with `only`, to that server alone. A certificate or key that
   * OpenSSL refuses fails each connection with `KubeConfigError` `invalid`. A server whose handshake fails is left for the next one.
   */
  connector(tls: buildConnector.BuildOptions, source: string, only?: number): buildConnector.connector {
    const keepAlive = { keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS };
    const { tlsServerName } = this.#options;
    const overTls = this.#targets.map(({ host }, at) => {
      const name = tlsServerName ?? (at === 0 ? undefined : host);
      return buildConnector({
        ...tls,
        ...(name === undefined ? {} : serverIdentity(name)),
        ...keepAlive,
        timeout: this.hasOthers ? SILENT_MS : CONNECT_MS,
      });
    });
    return (options, connected) => {
      const callback: buildConnector.Callback = (...outcome) => withParserBudget(() => connected(...outcome));
      this.#connect(only).then(
        ({ socket, target }) => {
          if (options.protocol === "https:") {
            const settled: buildConnector.Callback = (...outcome) => {
              if (outcome[0] !== null && only === undefined) this.leave(target);
              callback(...outcome);
            };
            try {
              overTls[target]?.({ ...options, httpSocket: socket }, settled);
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

  async #connect(only: number | undefined): Promise<Pick<Dialled, "socket" | "target">> {
    const spare = only === undefined ? this.#takeSpare() : undefined;
    if (spare !== undefined) return { socket: spare, target: this.#current };
    const connecting = withDeadline(CONNECT_MS, (signal) => this.#dial(signal, false, only), {
      signal: this.#closing.signal,
      clock: this.#clock,
    });
    const { socket, target } = await connecting;
    if (only === undefined && target !== this.#current) {
      this.#current = target;
      this.#takeSpare()?.destroy();
    }
    return { socket, target };
  }

  async #dial(signal: AbortSignal, isPatient: boolean, only?: number): Promise<Dialled> {
    const { clock, random } = this.#options;
    const targets = only === undefined ? this.#targets : [this.#at(only)];
    const first = only === undefined ? this.#current : 0;
    if (targets.some(({ proxy }) => proxy !== undefined))
      return this.#dialInTurn({ targets, first }, signal, isPatient, only);
    const dialled = await dial({ targets, first, isPatient, signal, clock, random });
    return only === undefined ? dialled : { ...dialled, target: only };
  }

  /** A server behind a proxy is there when the proxy connects to it. */
  async #dialInTurn(
    { targets, first }: { readonly targets: readonly ServerTarget[]; readonly first: number },
    signal: AbortSignal,
    isPatient: boolean,
    only: number | undefined,
  ): Promise<Dialled> {
    const { clock, random = Math.random } = this.#options;
    const limitMs = this.hasOthers ? SILENT_MS : CONNECT_MS;
    for (let tries = 1; ; tries += 1) {
      const at = (first + tries - 1) % targets.length;
      const target = targets[at] ?? this.#at(0);
      try {
        const socket = await withDeadline(limitMs, (limit) => this.#dialOne(target, limit), { signal, clock });
        return { socket, target: only ?? at, tries };
      } catch (error) {
        if (signal.aborted || (!isPatient && tries >= targets.length)) throw error;
        if (tries >= targets.length) await sleep(DIAL_EVERY_MS * (1 - 0.5 * random()), { signal, clock });
      }
    }
  }

  async #dialOne(target: ServerTarget, signal: AbortSignal): Promise<Socket> {
    const { clock, random } = this.#options;
    const { host: hostname, port, proxy } = target;
    if (proxy !== undefined) return await connectThrough(proxy, { hostname, port }, { signal });
    const { socket } = await dial({ targets: [target], signal, clock, random });
    return socket;
  }

  #at(target: number): ServerTarget {
    const found = this.#targets[target];
    if (found === undefined) throw new RangeError(`there is no API server ${target}`);
    return found;
  }

  #startProbe(): Probe {
    const stop = new AbortController();
    const done = this.#dial(stop.signal, true).then(({ socket, target, tries }): PortState => {
      this.#probe = undefined;
      this.#current = target;
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

/** The name that the server's certificate must have. An IP address is checked but not sent: SNI has only names (RFC 6066). */
function serverIdentity(
  name: string,
): Pick<ConnectionOptions, "checkServerIdentity"> & { readonly servername?: string } {
  if (isIP(name) === 0) return { servername: name };
  return { checkServerIdentity: (_host, certificate) => checkServerIdentity(name, certificate) };
}
