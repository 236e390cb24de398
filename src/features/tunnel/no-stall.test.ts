/** docs/spec/tunnel.md#8.5: no transport and no frontend stalls, whatever is sent and however it is read. */
import assert from "node:assert/strict";
import { createHash, type Hash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type ConnectionOptions, connect as connectTls, createServer as createTlsServer } from "node:tls";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { makeCertificates } from "#test/certificates";
import { ProgressTimer } from "./dial/progress-timer.ts";
import { UnixTransport } from "./http2/unix-transport.ts";
import { DEFAULT_SETTINGS } from "./http2/windows.ts";
import { Bed, listen } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

const RUNS = process.env["ISTHMUS_SOAK"] === "full" ? 30 : 2;
const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";
/** The connection has stalled if nothing has moved for so long, in milliseconds. */
const STALL_MS = 8000;
const { ca, pairs } = makeCertificates("cluster", { server: ["localhost"] });

/** The client's side of a connection over any frontend. */
interface Way {
  /** Resolves when the connection is writable. */
  write(bytes: Buffer): Promise<void>;
  pause(): void;
  resume(): void;
  destroy(): void;
}
type Open = (endpointPort: number, onBytes: (bytes: Uint8Array) => void) => Promise<Way>;

interface Frontend {
  readonly name: string;
  readonly open: (bed: Bed, path: string) => Promise<Open>;
}

type Client = "reads always" | "busy";

async function throughGrpc(socket: Socket, kind: Client): Promise<Open> {
  const client = await (kind === "busy" ? TunnelClient.openBusy(socket) : TunnelClient.open(socket));
  return async (port, onBytes) => {
    // The endpoint's first bytes may come together with the answer to the dial.
    client.onBytes = onBytes;
    assert.equal((await client.dial(`127.0.0.1:${port}`)).kind, "open");
    return {
      write: (bytes) => client.writeAll(bytes),
      pause: () => client.pause(),
      resume: () => client.resume(),
      destroy: () => client.destroy(),
    };
  };
}

function throughConnect(socket: Socket): Open {
  return async (port, onBytes) => {
    socket.write(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`);
    const [first] = (await once(socket, "data")) as [Buffer];
    assert.equal(first.toString("latin1", 0, ESTABLISHED.length), ESTABLISHED);
    if (first.length > ESTABLISHED.length) onBytes(first.subarray(ESTABLISHED.length));
    socket.on("data", onBytes);
    return {
      write: async (bytes) => {
        if (!socket.write(bytes)) await writable(socket);
      },
      pause: () => void socket.pause(),
      resume: () => void socket.resume(),
      destroy: () => void socket.destroy(),
    };
  };
}

async function overUnix(path: string): Promise<Socket> {
  const socket = connect({ path, allowHalfOpen: true });
  await once(socket, "connect");
  return socket;
}

async function overTls(port: number, alpn: string): Promise<Socket> {
  const options: ConnectionOptions & { readonly allowHalfOpen: boolean } = {
    ...{ port, host: "127.0.0.1", servername: "localhost", ca },
    ALPNProtocols: [alpn],
    allowHalfOpen: true,
  };
  const socket = connectTls(options);
  await once(socket, "secureConnect");
  return socket;
}

async function grpcOverUnix(bed: Bed, kind: Client, path: string): Promise<Open> {
  await bed.listenOn(path, (stream) => bed.proxy.serveGrpcFrontend(new UnixTransport(stream), DEFAULT_SETTINGS));
  return throughGrpc(await overUnix(path), kind);
}

async function grpcOverTls(bed: Bed, kind: Client): Promise<Open> {
  const server = bed.keep(tlsServer("h2"));
  bed.proxy.serveGrpcFrontends(server, DEFAULT_SETTINGS);
  return throughGrpc(await overTls(await listen(server), "h2"), kind);
}

function tlsServer(alpn: string): Server {
  return createTlsServer({ ...pairs.server, ALPNProtocols: [alpn], noDelay: true, allowHalfOpen: true });
}

const FRONTENDS: readonly Frontend[] = [
  { name: "gRPC over a UNIX socket", open: (bed, path) => grpcOverUnix(bed, "reads always", path) },
  {
    name: "gRPC over a UNIX socket, a client that does not read while it writes",
    open: (bed, path) => grpcOverUnix(bed, "busy", path),
  },
  { name: "gRPC over TLS", open: (bed) => grpcOverTls(bed, "reads always") },
  { name: "gRPC over TLS, a client that does not read while it writes", open: (bed) => grpcOverTls(bed, "busy") },
  {
    name: "CONNECT over a UNIX socket",
    open: async (bed) => throughConnect(await overUnix(await bed.connectPath())),
  },
  {
    name: "CONNECT over TLS",
    open: async (bed) => {
      const server = bed.keep(tlsServer("http/1.1"));
      bed.proxy.serveConnectFrontends(server, "tls");
      return throughConnect(await overTls(await listen(server), "http/1.1"));
    },
  },
];

interface Pause {
  readonly atBytes: number;
  readonly ms: number;
}

/** The bytes each way, the sizes of their pieces, and the pauses of the readers. */
interface Traffic {
  readonly isEcho: boolean;
  readonly totalBytes: number;
  readonly clientChunks: readonly number[];
  readonly endpointChunks: readonly number[];
  readonly clientPauses: readonly Pause[];
  readonly endpointPauses: readonly Pause[];
}

const chunks = fc.array(
  fc.oneof(
    fc.integer({ min: 1, max: 400 }),
    fc.integer({ min: 1000, max: 40_000 }),
    fc.integer({ min: 60_000, max: 300_000 }),
  ),
  { minLength: 1, maxLength: 20 },
);
const pauses = fc.array(
  fc.record({ atBytes: fc.integer({ min: 0, max: 16 << 20 }), ms: fc.integer({ min: 0, max: 30 }) }),
  {
    maxLength: 4,
  },
);
const traffic: fc.Arbitrary<Traffic> = fc.record({
  isEcho: fc.boolean(),
  totalBytes: fc.integer({ min: 4 << 20, max: 16 << 20 }),
  clientChunks: chunks,
  endpointChunks: chunks,
  clientPauses: pauses,
  endpointPauses: pauses,
});

/** Received bytes, and the pauses of their reader. */
class Reading {
  received = 0;
  readonly hash: Hash = createHash("sha256");
  readonly #pauses: Pause[];
  readonly #onChange: () => void;

  constructor(pauses: readonly Pause[], onChange: () => void) {
    this.#pauses = pauses.toSorted((a, b) => a.atBytes - b.atBytes);
    this.#onChange = onChange;
  }

  take(bytes: Uint8Array, reader: { pause(): void; resume(): void }): void {
    this.received += bytes.length;
    this.hash.update(bytes);
    this.#onChange();
    for (let next = this.#pauses[0]; next !== undefined && next.atBytes <= this.received; next = this.#pauses[0]) {
      this.#pauses.shift();
      reader.pause();
      setTimeout(() => reader.resume(), next.ms);
    }
  }
}

/** Pieces of these sizes in rotation. A stream joins many small pieces, so each is at least a fraction of the whole. */
function* pieces(sizes: readonly number[], totalBytes: number): Generator<Buffer> {
  const smallest = Math.ceil(totalBytes / 20_000);
  for (let sent = 0, at = 0; sent < totalBytes; at += 1) {
    const size = Math.min(Math.max(sizes[at % sizes.length] ?? 1, smallest), totalBytes - sent);
    yield Buffer.alloc(size, at % 251);
    sent += size;
  }
}

async function run(open: Open, endpointPort: number, bed: EndpointBed, { ...plan }: Traffic): Promise<void> {
  const done = Promise.withResolvers<void>();
  let way: Way | undefined;
  const wanted = (): boolean => client.received >= plan.totalBytes && endpoint.received >= plan.totalBytes;
  const check = (): void => {
    if (wanted()) done.resolve();
  };
  const client = new Reading(plan.clientPauses, check);
  const endpoint = new Reading(plan.endpointPauses, check);
  const endpointSent = createHash("sha256");
  bed.onSocket = (socket) => {
    socket.on("data", (bytes: Buffer) => endpoint.take(bytes, socket));
    if (plan.isEcho) socket.pipe(socket);
    else void sendAll(socket, plan, endpointSent);
  };
  const stalled = new ProgressTimer(systemClock);
  let [queued, sent] = [0, createHash("sha256")];
  stalled.start(
    STALL_MS,
    () => client.received + endpoint.received + queued,
    () =>
      done.reject(
        new Error(
          `stands still: ${client.received} and ${endpoint.received} of ${plan.totalBytes} bytes came, ${queued} were sent`,
        ),
      ),
  );
  try {
    way = await open(endpointPort, (bytes) =>
      client.take(bytes, way ?? { pause: () => undefined, resume: () => undefined }),
    );
    const opened = way;
    const writing = (async () => {
      for (const piece of pieces(plan.clientChunks, plan.totalBytes)) {
        sent.update(piece);
        await opened.write(piece);
        queued += piece.length;
      }
    })();
    await Promise.all([done.promise, Promise.race([writing, done.promise])]);
    const hex = (hash: Hash): string => hash.copy().digest("hex");
    assert.equal(hex(endpoint.hash), hex(sent));
    assert.equal(hex(client.hash), plan.isEcho ? hex(sent) : hex(endpointSent));
  } finally {
    stalled.stop();
    way?.destroy();
  }
}

/** Resolves when the stream is writable or has ended. */
function writable(socket: Socket): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const done = (): void => {
    socket.off("drain", done).off("close", done);
    resolve();
  };
  socket.once("drain", done).once("close", done);
  return promise;
}

async function sendAll(socket: Socket, plan: Traffic, hash: Hash): Promise<void> {
  for (const piece of pieces(plan.endpointChunks, plan.totalBytes)) {
    hash.update(piece);
    if (socket.destroyed) return;
    if (!socket.write(piece)) await writable(socket);
  }
}

interface EndpointBed {
  onSocket: (socket: Socket) => void;
}

for (const frontend of FRONTENDS) {
  for (const hasCredit of [true, false]) {
    test(`tunnel: ${frontend.name}, agent ${hasCredit ? "with flow control" : "without flow control"}: no traffic stalls it`, {
      timeout: 110_000,
    }, async () => {
      await fc.assert(
        fc.asyncProperty(traffic, async (plan) => {
          const folder = mkdtempSync(join(tmpdir(), "isthmus-stall-"));
          await using bed = await Bed.open({
            ...(hasCredit ? {} : { agentCapabilities: new Set<never>() }),
          });
          try {
            await bed.agent();
            const endpoints: EndpointBed = { onSocket: () => undefined };
            const port = await bed.endpoint((socket) => endpoints.onSocket(socket));
            await run(await frontend.open(bed, join(folder, "socket")), port, endpoints, plan);
            assert.deepEqual(bed.bugs, []);
          } finally {
            rmSync(folder, { recursive: true, force: true });
          }
        }),
        { numRuns: RUNS, endOnFailure: true },
      );
    });
  }
}
