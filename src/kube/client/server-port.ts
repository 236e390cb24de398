import { isIP, type Socket } from "node:net";
import { type ConnectionOptions, checkServerIdentity } from "node:tls";
import { type AbortOptions, sleep, unlessAborted, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { connectThrough, type HttpProxy } from "#base/http-proxy";
import type { IpAddress } from "#base/ip";
import { buildConnector } from "#base/undici";
import { DIAL_EVERY_MS, type DialTarget, dial } from "./dial.ts";
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

/** The address and port at which an API server listens. */
export interface ServerAddress {
  readonly address: IpAddress;
  readonly port: number;
}

/** Options for connections to the servers of one cluster. */
export interface ServerPortOptions {
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
  /** Servers beside the first one. {@link ServerPort.learn} adds others later. */
  readonly others?: readonly URL[] | undefined;
  /** The proxy through which a server is reached. Default: none. */
  readonly proxyTo?: ((server: URL) => HttpProxy | undefined) | undefined;
  /** The name that each server's certificate must have. Absent: that of its address. */
  readonly tlsServerName?: string | undefined;
}

/** One API server. Others compare it by identity: one that is learnt again stays the same object. */
export interface ServerTarget extends DialTarget {
  readonly server: URL;
  readonly proxy: HttpProxy | undefined;
  /** The names of which its certificate must have one, the first one is sent (SNI). Empty: the first server's, which the request names. */
  readonly names: readonly string[];
}

/** The connector's outcome: a socket, and the server to which it leads. */
interface Reached {
  readonly socket: Socket;
  readonly target: ServerTarget;
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
  readonly #configured: readonly ServerTarget[];
  #learnt: readonly ServerTarget[] = [];
  /** The server to which connections go. */
  #current: ServerTarget;
  readonly #options: ServerPortOptions;
  readonly #clock: Clock;
  readonly #closing = new AbortController();
  #probe: Probe | undefined;
  /** Goes to the server of now: {@link ServerPort.leave}, and a connection to another one, end it. */
  #spare: Socket | undefined;

  constructor(server: URL, options: ServerPortOptions) {
    this.#options = options;
    this.#clock = options.clock;
    const { tlsServerName, others = [] } = options;
    const first = this.#target(server, tlsServerName === undefined ? [] : [tlsServerName]);
    this.#configured = [first, ...others.map((one) => this.#target(one, [tlsServerName ?? hostOf(one)]))];
    this.#current = first;
  }

  /** The server to which connections go. */
  get current(): ServerTarget {
    return this.#current;
  }

  /** The host and port of that server, for messages. */
  get where(): string {
    return this.#current.server.host;
  }

  /** True if there is another server to go to. */
  get hasOthers(): boolean {
    return this.#configured.length + this.#learnt.length > 1;
  }

  /** The other servers, the next one first. */
  othersOf(target: ServerTarget): ServerTarget[] {
    return this.#from(target).filter((one) => one !== target);
  }

  /**
   * Sets the servers that the cluster itself names, which are tried beside the configured ones and must have the certificate of a configured name. None is used that is configured too,
   * nor one that is behind a proxy by the environment. Connections to one that is not named any more go on until they end.
   */
  learn(servers: readonly ServerAddress[]): void {
    const { protocol } = this.#first.server;
    const { tlsServerName } = this.#options;
    const names = tlsServerName === undefined ? this.#configured.map(({ host }) => host) : [tlsServerName];
    const known = new Map(this.#learnt.map((one) => [one.server.host, one]));
    const taken = new Set(this.#configured.map(({ server }) => server.host));
    const learnt: ServerTarget[] = [];
    for (const { address, port } of servers) {
      const server = new URL(`${protocol}//${address.family === 6 ? `[${address}]` : address}:${port}`);
      if (taken.has(server.host)) continue;
      taken.add(server.host);
      const target = known.get(server.host) ?? this.#target(server, names);
      if (target.proxy === undefined) learnt.push(target);
    }
    this.#learnt = learnt;
    if (!this.#all.includes(this.#current)) this.#go(this.#first);
  }

  /** Sends the next connections to another server, by default the next one, unless they go to another one than `target` by now. */
  leave(target: ServerTarget, other: ServerTarget | undefined = this.othersOf(target)[0]): void {
    if (target !== this.#current || other === undefined || !this.#all.includes(other)) return;
    this.#go(other);
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
  connector(tls: buildConnector.BuildOptions, source: string, only?: ServerTarget): buildConnector.connector {
    const keepAlive = { keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS };
    const made = new WeakMap<ServerTarget, buildConnector.connector>();
    const overTls = (target: ServerTarget): buildConnector.connector => {
      const found = made.get(target);
      if (found !== undefined) return found;
      const timeout = this.hasOthers ? SILENT_MS : CONNECT_MS;
      const connector = buildConnector({ ...tls, ...serverIdentity(target.names), ...keepAlive, timeout });
      made.set(target, connector);
      return connector;
    };
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
              overTls(target)({ ...options, httpSocket: socket }, settled);
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

  async #connect(only: ServerTarget | undefined): Promise<Reached> {
    const spare = only === undefined ? this.#takeSpare() : undefined;
    if (spare !== undefined) return { socket: spare, target: this.#current };
    const connecting = withDeadline(CONNECT_MS, (signal) => this.#dial(signal, false, only), {
      signal: this.#closing.signal,
      clock: this.#clock,
    });
    const { socket, target } = await connecting;
    if (only === undefined) this.#reached(target);
    return { socket, target };
  }

  /** Without `only` to any server: to the one of now first, and while it does not answer to the next ones in turn. */
  async #dial(signal: AbortSignal, isPatient: boolean, only?: ServerTarget): Promise<Reached & { tries: number }> {
    const { clock, random } = this.#options;
    const all = only === undefined ? this.#from(this.#current) : [only];
    if (all.some(({ proxy }) => proxy !== undefined)) return this.#dialInTurn(all, signal, isPatient);
    const targets = all.filter((one, at) => at === 0 || !this.#learnt.includes(one));
    const beside = all.filter((one) => !targets.includes(one));
    const { socket, target, tries } = await dial({ targets, beside, isPatient, signal, clock, random });
    return { socket, target: atOf([...targets, ...beside], target), tries };
  }

  /** A server behind a proxy is there when the proxy connects to it. */
  async #dialInTurn(
    targets: readonly ServerTarget[],
    signal: AbortSignal,
    isPatient: boolean,
  ): Promise<Reached & { tries: number }> {
    const { clock, random = Math.random } = this.#options;
    const limitMs = this.hasOthers ? SILENT_MS : CONNECT_MS;
    for (let tries = 1; ; tries += 1) {
      const target = atOf(targets, (tries - 1) % targets.length);
      try {
        const socket = await withDeadline(limitMs, (limit) => this.#dialOne(target, limit), { signal, clock });
        return { socket, target, tries };
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

  get #first(): ServerTarget {
    return atOf(this.#configured, 0);
  }

  get #all(): readonly ServerTarget[] {
    return [...this.#configured, ...this.#learnt];
  }

  /** All servers, in turn from this one on; one that is not named any more is none of them. */
  #from(target: ServerTarget): ServerTarget[] {
    const all = this.#all;
    const at = Math.max(0, all.indexOf(target));
    return [...all.slice(at), ...all.slice(0, at)];
  }

  #target(server: URL, names: readonly string[]): ServerTarget {
    const port = server.port === "" ? (server.protocol === "http:" ? 80 : 443) : Number(server.port);
    return { server, host: hostOf(server), port, proxy: this.#options.proxyTo?.(server), names };
  }

  #go(target: ServerTarget): void {
    this.#current = target;
    this.#takeSpare()?.destroy();
  }

  /** A dial that began before the list changed may have reached a server that is not in it. */
  #reached(target: ServerTarget): void {
    if (target !== this.#current && this.#all.includes(target)) this.#go(target);
  }

  #startProbe(): Probe {
    const stop = new AbortController();
    const done = this.#dial(stop.signal, true).then(({ socket, target, tries }): PortState => {
      this.#probe = undefined;
      this.#reached(target);
      if (target === this.#current) this.#keep(socket);
      else socket.destroy();
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

/** The certificate must have one of these names. An IP address is checked but not sent: SNI has only names (RFC 6066). */
function serverIdentity(
  names: readonly string[],
): Pick<ConnectionOptions, "checkServerIdentity"> & { readonly servername?: string } {
  const [first] = names;
  if (first === undefined) return {};
  const sent = names.find((name) => isIP(name) === 0);
  if (names.length === 1 && sent !== undefined) return { servername: sent };
  return {
    ...(sent === undefined ? {} : { servername: sent }),
    checkServerIdentity: (_host, certificate) => {
      const faults = names.map((name) => checkServerIdentity(name, certificate));
      return faults.includes(undefined) ? undefined : faults[0];
    },
  };
}

function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, "");
}

function atOf(targets: readonly ServerTarget[], at: number): ServerTarget {
  const found = targets[at];
  if (found === undefined) throw new RangeError(`there is no API server ${at}`);
  return found;
}
