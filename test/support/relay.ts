/**
 * An address in front of a server, which can go and come back: connections are refused and those that were open end, while the server itself continues. With a certificate it is the side
 * of TLS, and the server has none.
 *
 * ```ts
 * const relay = new Relay("127.0.0.2", new URL("http://127.0.0.1:8080"), { certificate });
 * const port = await relay.open();
 * await relay.close();
 * ```
 */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";

export class Relay {
  readonly host: string;
  readonly #target: URL;
  readonly #certificate: { readonly cert: string; readonly key: string } | undefined;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #port: number;

  /** `port`: default: any that is free. */
  constructor(
    host: string,
    target: URL,
    {
      certificate,
      port = 0,
    }: { readonly certificate?: { readonly cert: string; readonly key: string }; readonly port?: number } = {},
  ) {
    this.host = host;
    this.#target = target;
    this.#certificate = certificate;
    this.#port = port;
  }

  /** The port of the last {@link Relay.open}. */
  get port(): number {
    return this.#port;
  }

  /** Its own address, with the scheme of the server; with a certificate: https. */
  get url(): URL {
    const scheme = this.#certificate === undefined ? this.#target.protocol : "https:";
    return new URL(`${scheme}//${this.host}:${this.#port}`);
  }

  /** Listens, at the same port each time; resolves to it. */
  async open(): Promise<number> {
    const keep = (socket: Socket): void => {
      this.#sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => this.#sockets.delete(socket));
    };
    const onConnection = (near: Socket): void => {
      const far = connect(Number(this.#target.port), this.#target.hostname);
      for (const socket of [near, far]) keep(socket);
      near.pipe(far).pipe(near);
    };
    const server =
      this.#certificate === undefined ? createServer(onConnection) : createTlsServer(this.#certificate, onConnection);
    // Also one whose TLS handshake is under way: the server would wait for its end.
    server.on("connection", keep);
    server.listen(this.#port, this.host);
    await once(server, "listening");
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
    return this.#port;
  }

  /** Ends; nothing if it has ended. */
  async close(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const ended = once(server, "close");
    server.close();
    for (const socket of this.#sockets) socket.destroy();
    await ended;
  }
}

/** Addresses of servers that take each other's places, all at one port, as the servers of a cluster have it. */
export class Relays {
  readonly #target: URL;
  readonly #certificate: { readonly cert: string; readonly key: string };
  readonly #open = new Map<string, Relay>();
  #port = 0;

  constructor(target: URL, certificate: { readonly cert: string; readonly key: string }) {
    this.#target = target;
    this.#certificate = certificate;
  }

  get port(): number {
    return this.#port;
  }

  /** The addresses that answer. */
  get hosts(): readonly string[] {
    return [...this.#open.keys()];
  }

  async begin(host: string): Promise<void> {
    const relay = new Relay(host, this.#target, { certificate: this.#certificate, port: this.#port });
    this.#port = await relay.open();
    this.#open.set(host, relay);
  }

  async end(host: string): Promise<void> {
    await this.#open.get(host)?.close();
    this.#open.delete(host);
  }

  /** Ends all of them. */
  async close(): Promise<void> {
    for (const host of this.hosts) await this.end(host);
  }
}

/** EndpointSlice `default/kubernetes` with these servers. */
export const serversSlice = (port: number, addresses: readonly string[]) => ({
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { name: "kubernetes", namespace: "default" },
  addressType: "IPv4",
  endpoints: addresses.map((one) => ({ addresses: [one], conditions: { ready: true } })),
  ports: [{ name: "https", port, protocol: "TCP" }],
});
