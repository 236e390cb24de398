import { createServer, type Server, type Socket } from "node:net";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { IpAddress, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { Loop, type PassResult } from "#base/reconcile";
import { isKernelError } from "#kernel/errors";
import type { NetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import type { LocalNodePort, LocalPlan } from "./plan.ts";
import { relay } from "./relay.ts";

const LOOPBACK: readonly IpAddress[] = [IpAddress.parse("127.0.0.1"), IpAddress.parse("::1")];
/** Maximum of connections at once, of which a client's address has half; further ones are reset. */
export const MAX_CONNECTIONS = 1024;
const BACKLOG = 1024;
/** Time after which ports that could not be bound are tried again, in milliseconds. */
export const RETRY_MS = 5000;
/** Without a change and a failure nothing is to be done; the wait only needs some limit, in milliseconds. */
const WAIT_MS = 3_600_000;

/** Collaborators of {@link LocalNodePorts}. */
export interface LocalNodePortsDeps {
  /** Namespace of the listeners and of the connections to Services; absent: the process's own. */
  readonly netns?: Pick<NetNs, "fd"> | undefined;
  readonly log: Logger;
  readonly clock: Clock;
  /** Default {@link MAX_CONNECTIONS}. */
  readonly maxConnections?: number;
}

/**
 * Listens at the loopback addresses of both families for each NodePort of TCP, and relays connections to the cluster IP of the Service, of the family of
 * the listener where the Service has it. Connections outlive their listener, as those through the kernel's rules outlive a NodePort.
 */
export class LocalNodePorts {
  readonly #deps: LocalNodePortsDeps;
  readonly #loop: Loop;
  readonly #servers = new Map<string, Server>();
  readonly #clients = new Set<Socket>();
  /** Connections of each client's address. */
  readonly #ofAddress = new Map<string, number>();
  /** Listeners that could not be bound, by key: each is logged once. */
  readonly #failing = new Set<string>();
  #ports: ReadonlyMap<number, LocalNodePort> = new Map();
  #hasWarned = false;
  #isFull = false;

  constructor(deps: LocalNodePortsDeps) {
    this.#deps = deps;
    this.#loop = new Loop({ everyMs: WAIT_MS, clock: deps.clock });
  }

  /** Sets the ports that are to be served. To be called after a sync, when the kernel has the Services. */
  set({ ports, others }: LocalPlan): void {
    this.#ports = ports;
    if (others > 0 && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#deps.log.warn("NodePorts of UDP and SCTP are not served at loopback addresses; those of TCP are", {
        count: others,
      });
    }
    this.#loop.wake("ports");
  }

  /** Number of listeners, of both addresses. */
  get size(): number {
    return this.#servers.size;
  }

  /** Number of connections. */
  get connections(): number {
    return this.#clients.size;
  }

  /** Serves until the signal aborts; then listeners and connections are closed. Rejects only because of a bug. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    try {
      await this.#loop.run(async () => this.#sync(), { signal });
    } finally {
      for (const server of this.#servers.values()) server.close();
      this.#servers.clear();
      for (const client of this.#clients) client.destroy();
    }
  }

  #sync(): PassResult {
    for (const [key, server] of this.#servers) {
      if (this.#ports.has(portOf(key))) continue;
      server.close();
      this.#servers.delete(key);
    }
    for (const key of this.#failing) if (!this.#ports.has(portOf(key))) this.#failing.delete(key);
    for (const port of this.#ports.keys())
      for (const address of LOOPBACK) if (!this.#servers.has(keyOf(address, port))) this.#listen(address, port);
    return { againMs: this.#failing.size > 0 ? RETRY_MS : WAIT_MS };
  }

  #listen(address: IpAddress, port: number): void {
    const key = keyOf(address, port);
    const { log, netns } = this.#deps;
    try {
      const fd = listenTcp(address, port, { netns, backlog: BACKLOG });
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
      server.on("connection", (client) => this.#accept(client, { family: address.family, port }));
      server.on("error", (error) =>
        log.warn("cannot accept a connection to a NodePort at a loopback address", {
          port,
          reason: describeError(error),
        }),
      );
      server.listen({ fd }, BACKLOG);
      this.#servers.set(key, server);
      this.#failing.delete(key);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      // A host without the family has no such address.
      if (error.errno === "EAFNOSUPPORT" || error.errno === "EADDRNOTAVAIL") return;
      if (this.#failing.has(key)) return;
      this.#failing.add(key);
      const service = this.#ports.get(port)?.service;
      log.warn("cannot listen for a NodePort at a loopback address; trying again", { service, reason: error.message });
    }
  }

  #accept(client: Socket, { family, port }: { readonly family: IpFamily; readonly port: number }): void {
    const { log, netns, clock, maxConnections = MAX_CONNECTIONS } = this.#deps;
    const targets = this.#ports.get(port)?.targets;
    const target = targets?.get(family) ?? targets?.get(family === 4 ? 6 : 4);
    const from = client.remoteAddress ?? "";
    const own = this.#ofAddress.get(from) ?? 0;
    const isFull = this.#clients.size >= maxConnections || own >= maxConnections / 2;
    if (isFull !== this.#isFull) {
      this.#isFull = isFull;
      if (isFull)
        log.warn("too many connections to NodePorts at loopback addresses: new ones are reset", { maxConnections });
    }
    client.on("error", () => client.destroy());
    if (target === undefined || isFull) {
      client.resetAndDestroy();
      return;
    }
    this.#clients.add(client);
    this.#ofAddress.set(from, own + 1);
    client.once("close", () => this.#left(client, from));
    try {
      relay(client, target, { netns, clock });
    } catch (error) {
      client.resetAndDestroy();
      if (!isKernelError(error)) throw error;
      log.debug("cannot connect to a Service for a client at a loopback address", { port, reason: error.message });
    }
  }

  #left(client: Socket, from: string): void {
    this.#clients.delete(client);
    const left = (this.#ofAddress.get(from) ?? 1) - 1;
    if (left > 0) this.#ofAddress.set(from, left);
    else this.#ofAddress.delete(from);
  }
}

const keyOf = (address: IpAddress, port: number): string => `${port} ${address}`;
const portOf = (key: string): number => Number.parseInt(key, 10);
