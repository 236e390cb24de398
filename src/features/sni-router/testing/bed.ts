/** A router, clients and backends in one process over loopback, for the tests of the router. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { Readable } from "node:stream";
import { type Clock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import type { RouterObserver } from "../observer.ts";
import { SniRouter, type SniRouterOptions } from "../router.ts";
import { type Route, RouteTable } from "../routes.ts";

/** The `TestContext` of node:test, used for clean-up. */
export interface Scope {
  after(cleanUp: () => unknown): void;
}

/** Records the calls of the router's observer. */
export class Recorder implements RouterObserver {
  /** `route:result`, one for each client. */
  readonly decisions: string[] = [];
  readonly failures: string[] = [];
  readonly reloads: string[] = [];
  readonly bytes = { to_backend: 0, to_client: 0 };
  clients = 0;

  decided(route: string, result: string): void {
    this.decisions.push(`${route}:${result}`);
  }

  connected(clients: number): void {
    this.clients = clients;
  }

  passed(_route: string, direction: "to_backend" | "to_client", bytes: number): void {
    this.bytes[direction] += bytes;
  }

  reloaded(result: string): void {
    this.reloads.push(result);
  }

  backendFailed(backend: string): void {
    this.failures.push(backend);
  }
}

/** A route to ports of loopback. */
export function routeTo(name: string, ports: readonly number[], proxyProtocol = false): Route {
  return { name, backends: ports.map((port) => ({ host: "127.0.0.1", port })), proxyProtocol };
}

/** A table; the route called `default` is the default. */
export function tableOf(...routes: readonly Route[]): RouteTable {
  const [defaultRoute] = routes.filter(({ name }) => name === "default");
  const named = routes.filter(({ name }) => name !== "default");
  return new RouteTable([defaultRoute === undefined ? { routes: named } : { routes: named, defaultRoute }]);
}

/** A router that listens on loopback; it ends with the test, and a bug in it fails the test. */
export async function startRouter(
  scope: Scope,
  routes: RouteTable,
  { clock = systemClock, ...options }: { readonly clock?: Clock } & Partial<SniRouterOptions> = {},
) {
  const observer = new Recorder();
  const bugs: unknown[] = [];
  const router = new SniRouter(
    { log: nullLogger, observer, onBug: (error) => bugs.push(error), clock },
    { maxConnections: 100, ...options, routes },
  );
  const port = await router.listen({ host: "127.0.0.1", port: 0 });
  scope.after(async () => {
    await router[Symbol.asyncDispose]();
    if (bugs.length > 0) throw new AggregateError(bugs, "the router reported a bug");
  });
  return { router, port, observer };
}

/** A TCP server whose sockets can be half-closed; `accepted` gives them in order. */
export async function startBackend(scope: Scope) {
  const waiting: Socket[] = [];
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on("error", () => socket.destroy());
    sockets.add(socket);
    waiting.push(socket);
    server.emit("taken");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const close = (): void => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  scope.after(close);
  const accepted = async (): Promise<Socket> => {
    while (waiting.length === 0) await once(server, "taken");
    return waiting.shift() ?? accepted();
  };
  return { port: (server.address() as AddressInfo).port, accepted, close, taken: () => sockets.size };
}

/** A port of loopback that nothing listens on. */
export async function deadPort(scope: Scope): Promise<number> {
  const backend = await startBackend(scope);
  backend.close();
  return backend.port;
}

/** A client's socket that can be half-closed; it comes from an address of loopback. */
export function dial(scope: Scope, port: number, localAddress = "127.0.0.1"): Socket {
  const socket = connect({ host: "127.0.0.1", port, localAddress, allowHalfOpen: true, noDelay: true });
  socket.on("error", () => socket.destroy());
  scope.after(() => socket.destroy());
  return socket;
}

/** Reads until this number of bytes have come, or the end. */
export async function readBytes(stream: Readable, wanted: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for (let length = 0; length < wanted; ) {
    const chunk: Buffer | null = stream.read(Math.min(wanted - length, Math.max(1, stream.readableLength)));
    if (chunk !== null) {
      chunks.push(chunk);
      length += chunk.length;
      continue;
    }
    if (stream.readableEnded || stream.destroyed) break;
    await changed(stream);
  }
  return Buffer.concat(chunks);
}

/** Waits until there is something to read, or the socket has ended. */
function changed(stream: Readable): Promise<void> {
  const events = ["readable", "end", "close"];
  return new Promise((resolve) => {
    const settle = (): void => {
      for (const event of events) stream.off(event, settle);
      resolve();
    };
    for (const event of events) stream.on(event, settle);
  });
}

/** SHA-256 of all bytes of a stream. */
export async function checksum(stream: AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of stream) hash.update(chunk);
  return hash.digest("hex");
}

/** Polls a condition. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

/** A valid ClientHello; only the server name matters. */
export function helloFor(serverName: string | undefined): Buffer {
  const vector = (size: number, ...parts: readonly Uint8Array[]): Buffer => {
    const body = Buffer.concat(parts);
    const length = Buffer.alloc(size);
    length.writeUIntBE(body.length, 0, size);
    return Buffer.concat([length, body]);
  };
  const name = vector(2, Buffer.of(0), vector(2, Buffer.from(serverName ?? "")));
  const extensions = vector(2, ...(serverName === undefined ? [] : [Buffer.of(0, 0), vector(2, name)]));
  const ciphers = vector(2, Buffer.of(0x13, 0x01));
  const body = vector(3, Buffer.of(3, 3), Buffer.alloc(32, 1), vector(1), ciphers, vector(1, Buffer.of(0)), extensions);
  return Buffer.concat([Buffer.of(22, 3, 1), vector(2, Buffer.of(1), body)]);
}
