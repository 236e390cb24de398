/**
 * One server with one agent, each of any kind, with certificates and endpoints.
 *
 * Owns: starting, killing and starting again. Does not know: the tests, and the kinds of the peers.
 *
 * ```ts
 * const pair = new TunnelPair(serverProgram(), agentProgram());
 * await pair.start();
 * const client = await ourClient.start(pair.places);
 * const connection = await client.dial(await pair.echo());
 * await pair.stop();
 * ```
 */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeCertificates } from "#test/certificates";
import { until } from "#test/lab";
import { freePort } from "#test/ports";
import type { Peer, Places, RunningPeer, RunningServer } from "#test/tunnel-peer";

/** See the module's comment. */
export class TunnelPair {
  readonly serverPeer: Peer<RunningServer>;
  readonly agentPeer: Peer<RunningPeer>;
  readonly #listeners = new Set<Server>();
  readonly #sockets = new Set<Socket>();
  #folder: string | undefined;
  #places: Places | undefined;
  #server: RunningServer | undefined;
  #agent: RunningPeer | undefined;

  constructor(server: Peer<RunningServer>, agent: Peer<RunningPeer>) {
    this.serverPeer = server;
    this.agentPeer = agent;
  }

  /** True if both programs belong to this project. */
  get isOurs(): boolean {
    return this.serverPeer.isOurs && this.agentPeer.isOurs;
  }

  get places(): Places {
    return started(this.#places);
  }

  get server(): RunningServer {
    return started(this.#server);
  }

  get agent(): RunningPeer {
    return started(this.#agent);
  }

  async start(): Promise<void> {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-interop-"));
    this.#folder = folder;
    const file = (name: string): string => join(folder, name);
    const { ca, pairs } = makeCertificates("cluster", { server: ["localhost", "127.0.0.1"], agent: [] });
    writeFileSync(file("ca.crt"), ca);
    for (const [name, { cert, key }] of Object.entries(pairs)) {
      writeFileSync(file(`${name}.crt`), cert);
      writeFileSync(file(`${name}.key`), key);
    }
    const [agentPort, serverHealthPort] = [await freePort(), await freePort()];
    this.#places = { udsPath: file("frontend.sock"), agentPort, serverHealthPort, file };
    await this.startServer();
    await this.startAgent();
  }

  /** Starts a server at the address of the last one. */
  async startServer(): Promise<void> {
    this.#server = await this.serverPeer.start(this.places);
  }

  /** Starts an agent and waits until the server has it. */
  async startAgent(): Promise<void> {
    this.#agent = await this.agentPeer.start(this.places);
    await this.connected();
  }

  /** Resolves when an agent is connected. */
  connected(): Promise<void> {
    return until("an agent is connected", () => this.server.hasAgent(), { everyMs: 20 });
  }

  /** An endpoint on loopback; resolves with its address. */
  async endpoint(onSocket: (socket: Socket) => void): Promise<string> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
      socket.on("error", () => socket.destroy());
      onSocket(socket);
    });
    this.#listeners.add(server);
    await once(server.listen(0, "127.0.0.1"), "listening");
    const address = server.address();
    return `127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
  }

  /** An endpoint that echoes, and ends when its client does. */
  echo(): Promise<string> {
    return this.endpoint((socket) => socket.pipe(socket));
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    for (const listener of this.#listeners) listener.close();
    await this.#agent?.kill();
    await this.#server?.kill();
    if (this.#folder !== undefined) rmSync(this.#folder, { recursive: true, force: true });
  }
}

function started<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("the pair has not been started");
  return value;
}
