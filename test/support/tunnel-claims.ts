/**
 * Claims about a tunnel with any server, agent and client, as data: a name and a test. Owns: the claims. Does not know: the peers,
 * except whether they are of this project and promise more.
 */
import assert from "node:assert/strict";
import { createHash, type Hash } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { pipeline } from "node:stream/promises";
import { sleep } from "#base/async";
import { until } from "#test/lab";
import { freePort } from "#test/ports";
import { silentPort } from "#test/silent-port";
import type { TunnelPair } from "#test/tunnel-pair";
import { DialRefused, type RunningClient, type TunnelConnection } from "#test/tunnel-peer";

/** The tested peers, and the clean-up of the test. */
export interface Scene {
  readonly pair: TunnelPair;
  readonly client: RunningClient;
  after(cleanUp: () => unknown): void;
}

export interface Claim {
  readonly name: string;
  readonly run: (scene: Scene) => Promise<void>;
}

const MIB = 1024 * 1024;
/** Within this time everyone must have been notified of the loss of a peer, in milliseconds. */
const LOSS_MS = 2000;

/** Claims for which the peers stay alive. */
export const CLAIMS: readonly Claim[] = [
  {
    name: "bytes come back as they were sent",
    async run({ pair, client }) {
      const connection = await client.dial(await pair.echo());
      assert.equal(String(await exchange(connection, Buffer.from("hello"))), "hello");
      connection.end();
      assert.deepEqual(await connection.outcome, { kind: "closed", error: "" });
    },
  },
  {
    name: "a failed dial has its reason",
    async run({ client }) {
      await assert.rejects(
        client.dial(`127.0.0.1:${await freePort()}`),
        (error: unknown) => error instanceof DialRefused && error.message.includes("connection refused"),
      );
    },
  },
  {
    name: "a client that hangs up ends the endpoint's connection",
    async run({ pair, client }) {
      const accepted = Promise.withResolvers<Socket>();
      const connection = await client.dial(await pair.endpoint(accepted.resolve));
      const socket = await accepted.promise;
      connection.destroy();
      await closesWithin(socket, LOSS_MS);
    },
  },
  {
    name: "a response of 32 MiB arrives complete and in order",
    async run({ pair, client }) {
      const size = 32 * MIB;
      const address = await pair.endpoint((socket) => {
        socket.resume();
        void pipeline(patternOf(size), socket).catch(() => socket.destroy());
      });
      const connection = await client.dial(address);
      const received = digestOf(connection);
      assert.deepEqual(await received, { bytes: size, hash: patternHash(size) });
      assert.deepEqual(await connection.outcome, { kind: "closed", error: "" });
    },
  },
  {
    name: "a thousand writes of one byte keep their order",
    async run({ pair, client }) {
      const connection = await client.dial(await pair.echo());
      const text = Buffer.from(Array.from({ length: 1000 }, (_, at) => at % 251));
      const back = exchange(connection, text, 1);
      assert.deepEqual(await back, text);
      connection.destroy();
    },
  },
  {
    name: "8 MiB in writes of random sizes come back equal",
    async run({ pair, client }) {
      const connection = await client.dial(await pair.echo());
      const size = 8 * MIB;
      const received = digestOf(connection, size);
      await writeAll(connection, patternOf(size, seededSizes(20_260_101)));
      assert.deepEqual(await received, { bytes: size, hash: patternHash(size) });
      connection.destroy();
    },
  },
  {
    name: "a dial given up before its answer leaves the tunnel as it was",
    async run({ pair, client, after }) {
      const port = await silentPort({ after });
      const abort = new AbortController();
      const dial = client.dial(`127.0.0.1:${port}`, { signal: abort.signal });
      await sleep(50);
      abort.abort(new Error("given up"));
      await assert.rejects(dial, /given up/);
      const next = await client.dial(await pair.echo());
      assert.equal(String(await exchange(next, Buffer.from("after"))), "after");
      next.destroy();
    },
  },
  {
    name: "a DIAL_CLS that crosses the dial's success leaves no connection at the endpoint",
    async run({ pair, client }) {
      const accepted = Promise.withResolvers<Socket>();
      const connection = await client.dial(await pair.endpoint(accepted.resolve));
      const socket = await accepted.promise;
      connection.giveUp();
      // Konnectivity's server does not know the dial any more; there the end of the client's stream closes the connection.
      if (pair.serverPeer.isOurs) assert.equal((await connection.outcome).kind, "closed");
      else connection.destroy();
      await closesWithin(socket, LOSS_MS);
    },
  },
  {
    name: "8 MiB that wait when the client closes reach the endpoint",
    async run({ pair, client }) {
      const size = 8 * MIB;
      const accepted = Promise.withResolvers<Socket>();
      const connection = await client.dial(await pair.endpoint((socket) => accepted.resolve(socket.pause())));
      const socket = await accepted.promise;
      const written = writeAll(connection, patternOf(size)).then(() => connection.end());
      await sleep(100);
      const { bytes, hash } = await digestOf(socket.resume());
      await written;
      // Konnectivity's agent drops bytes that the endpoint has not taken when CLOSE_REQ comes.
      if (pair.agentPeer.isOurs) assert.equal(bytes, size);
      assert.equal(hash, patternHash(bytes));
    },
  },
  {
    name: "8 MiB that wait when the endpoint closes reach the client, then CLOSE_RSP",
    async run({ pair, client }) {
      const size = 8 * MIB;
      const address = await pair.endpoint((socket) => {
        socket.resume();
        void pipeline(patternOf(size), socket).catch(() => socket.destroy());
      });
      const connection = await client.dial(address);
      await sleep(200);
      assert.deepEqual(await digestOf(connection), { bytes: size, hash: patternHash(size) });
      assert.deepEqual(await connection.outcome, { kind: "closed", error: "" });
    },
  },
  {
    name: "50 connections at once do not mix",
    async run({ pair, client }) {
      const address = await pair.echo();
      const all = Array.from({ length: 50 }, async (_, at) => {
        const connection = await client.dial(address);
        const own = Buffer.alloc(64 * 1024, `connection ${at} `);
        assert.deepEqual(await exchange(connection, own), own);
        connection.end();
        assert.equal((await connection.outcome).kind, "closed");
      });
      await Promise.all(all);
    },
  },
];

/** Claims that kill a peer and start another. */
export const LOSS_CLAIMS: readonly Claim[] = [
  {
    name: "the loss of the agent ends its connections, and another agent takes over",
    async run({ pair, client }) {
      const connection = await client.dial(await pair.echo());
      assert.equal(String(await exchange(connection, Buffer.from("before"))), "before");
      const killed = performance.now();
      await pair.agent.kill();
      const end = await connection.outcome;
      assert.ok(performance.now() - killed < LOSS_MS, `the client was told after ${performance.now() - killed} ms`);
      if (pair.serverPeer.isOurs) assert.deepEqual(end, { kind: "closed", error: "" });
      await until("the server has no agent", async () => !(await pair.server.hasAgent()), { everyMs: 20 });
      await assert.rejects(client.dial(await pair.echo()), /No agent available/);
      await pair.startAgent();
      const next = await client.dial(await pair.echo());
      assert.equal(String(await exchange(next, Buffer.from("after"))), "after");
      next.destroy();
    },
  },
  {
    name: "the loss of the server ends its connections on both sides, and the next server works",
    async run({ pair, client }) {
      const accepted = Promise.withResolvers<Socket>();
      const connection = await client.dial(await pair.endpoint(accepted.resolve));
      const socket = await accepted.promise;
      const closed = closesWithin(socket, LOSS_MS);
      await pair.server.kill();
      await Promise.all([closed, connection.outcome]);
      await pair.startServer();
      // Our agent connects again by itself. Reconnecting of other programs is not part of the protocol.
      if (pair.agentPeer.isOurs) await pair.connected();
      else {
        await pair.agent.kill();
        await pair.startAgent();
      }
      const address = await pair.echo();
      // A shared session of the client needs a moment to detect that the old server is gone.
      let next: TunnelConnection | undefined;
      await until("the client reaches the next server", async () => {
        next = await client.dial(address).catch((error: unknown) => {
          if (error instanceof DialRefused) return undefined;
          throw error;
        });
        return next !== undefined;
      });
      next?.destroy();
    },
  },
];

/** The pattern repeats itself after so many bytes. */
const PERIOD_BYTES = 2 ** 24;
/** One period of the pattern, made at its first use. */
let period: Buffer | undefined;
/** Hashes by size: each mix of peers needs the same ones. */
const patternHashes = new Map<number, string>();

/** Bytes that depend on their position: a missing, repeated or moved part changes the hash. Nobody may change them. */
function* patternOf(size: number, sizes: () => number = () => 64 * 1024): Generator<Buffer> {
  period ??= onePeriod();
  for (let at = 0; at < size; ) {
    const from = at % PERIOD_BYTES;
    const part = period.subarray(from, Math.min(from + sizes(), from + size - at));
    yield part;
    at += part.length;
  }
}

function onePeriod(): Buffer {
  const bytes = Buffer.alloc(PERIOD_BYTES);
  for (let at = 0; at < PERIOD_BYTES; at += 1) bytes[at] = (at ^ (at >>> 8) ^ (at >>> 16)) & 0xff;
  return bytes;
}

function patternHash(size: number): string {
  const known = patternHashes.get(size);
  if (known !== undefined) return known;
  const hash = createHash("sha256");
  for (const part of patternOf(size)) hash.update(part);
  const made = hash.digest("hex");
  patternHashes.set(size, made);
  return made;
}

/** Sizes from 1 byte to 200 KiB, mostly small ones, the same for the same seed. */
function seededSizes(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const scale = [16, 1024, 16 * 1024, 200 * 1024][state >>> 30] ?? 1;
    return 1 + ((state >>> 8) % scale);
  };
}

async function writeAll(connection: TunnelConnection, parts: Iterable<Buffer>): Promise<void> {
  for (const part of parts) {
    if (!connection.write(part)) await once(connection, "drain");
  }
}

/** Hashes the bytes until the end, or until this number has come. */
async function digestOf(
  source: NodeJS.ReadableStream,
  limit = Number.POSITIVE_INFINITY,
): Promise<{ readonly bytes: number; readonly hash: string }> {
  const hash: Hash = createHash("sha256");
  let bytes = 0;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  source.on("data", (chunk: Buffer) => {
    hash.update(chunk);
    bytes += chunk.length;
    if (bytes >= limit) resolve();
  });
  source.once("end", resolve);
  source.once("close", resolve);
  source.once("error", reject);
  await promise;
  return { bytes, hash: hash.digest("hex") };
}

/** Writes in pieces, and resolves with the same number of received bytes. */
async function exchange(connection: TunnelConnection, bytes: Buffer, pieceBytes = bytes.length): Promise<Buffer> {
  const parts: Buffer[] = [];
  let missing = bytes.length;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onData = (part: Buffer): void => {
    parts.push(part);
    missing -= part.length;
    if (missing <= 0) resolve();
  };
  connection.on("data", onData);
  connection.outcome.then(() => reject(new Error(`the connection ended with ${missing} bytes missing`)), reject);
  for (let at = 0; at < bytes.length; at += pieceBytes) connection.write(bytes.subarray(at, at + pieceBytes));
  await promise;
  connection.off("data", onData);
  return Buffer.concat(parts);
}

async function closesWithin(socket: Socket, ms: number): Promise<void> {
  const start = performance.now();
  // FIN and reset are both allowed; this side ends too.
  if (socket.readableEnded) socket.end();
  else socket.on("end", () => socket.end()).resume();
  if (!socket.destroyed) await until("the endpoint's connection is closed", () => socket.destroyed, { everyMs: 10 });
  assert.ok(
    performance.now() - start < ms,
    `the endpoint's connection was closed after ${performance.now() - start} ms`,
  );
}
