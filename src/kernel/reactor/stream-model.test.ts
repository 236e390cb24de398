// own process: it counts the descriptors of the process.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { sleep } from "#base/async";
import { type ByteStream, NodeStream } from "#base/byte-stream";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { C, setsockopt } from "#kernel/ffi";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { connectTcp, connectUnix, TcpListener, TcpStream, UnixListener, UnixStream } from "./index.ts";
import { StreamSocket } from "./stream-socket.ts";
import { freshPath } from "./testing/own-pair.ts";
import { type Act, Witness } from "./testing/witness.ts";

const LOOPBACK = IpAddress.parse("127.0.0.1");
/** The limit of one run, in milliseconds. Small buffers make the kernel wait for late acknowledgements now and then. */
const FOR_EVER_MS = 10_000;
/** So many ticks at once, then one each millisecond. */
const QUICK_TICKS = 200;
const LONG = { timeout: 120_000 };

/** The streams at the two ends; the first is ours always. */
type Kind = "ours-dialled" | "ours-accepted" | "node-dialled" | "node-accepted";

const write = fc.record({
  kind: fc.constant("write" as const),
  bytes: fc.constantFrom(1, 2, 100, 4096, 65_536, 300_000),
});
const writeAll = fc.record({
  kind: fc.constant("write-all" as const),
  sizes: fc.array(fc.constantFrom(0, 1, 9, 100, 4096, 16_383, 16_384, 40_000), { minLength: 1, maxLength: 8 }),
});
const flow = fc.constantFrom<Act>({ kind: "pause" }, { kind: "resume" });
const finish = fc.constant<Act>({ kind: "end" });
const cut = fc.constantFrom<Act>({ kind: "destroy" }, { kind: "reset" });
const anyAct = fc.oneof(
  { weight: 6, arbitrary: write as fc.Arbitrary<Act> },
  { weight: 3, arbitrary: writeAll as fc.Arbitrary<Act> },
  { weight: 8, arbitrary: flow },
  { weight: 2, arbitrary: finish },
  { weight: 1, arbitrary: cut },
);
const few = fc.array(anyAct, { maxLength: 3 });
const inside = fc.record({ data: fc.array(anyAct, { maxLength: 8 }), end: few, drain: few, finish: few, hangUp: few });
const step = fc.record({ side: fc.constantFrom(0, 1), act: anyAct, ticks: fc.constantFrom(0, 0, 1, 3) });
const scenario = fc.record({
  kind: fc.constantFrom<Kind>("ours-dialled", "ours-accepted", "node-dialled", "node-accepted"),
  smallBuffers: fc.boolean(),
  readBytes: fc.constantFrom(1024, 16_384, 65_536),
  insides: fc.tuple(inside, inside),
  steps: fc.array(step, { maxLength: 30 }),
});
type Scenario = typeof scenario extends fc.Arbitrary<infer Value> ? Value : never;

/** Listeners of both makes over one kind of socket, for all runs. */
interface Bench {
  pair(how: Pick<Scenario, "kind" | "readBytes">): Promise<[StreamSocket, ByteStream]>;
  close(): void;
}

class TcpBench implements Bench {
  readonly #waiting: ((fd: number, port: number) => void)[] = [];
  readonly #listener: TcpListener;
  readonly #port: number;
  readonly #server: Server;

  constructor(server: Server) {
    const fd = listenTcp(LOOPBACK, 0);
    this.#port = localEndpoint(fd).port;
    this.#listener = new TcpListener(fd, {
      onClient: (client, remote) => this.#waiting.shift()?.(client, remote.port),
      onFault: assert.fail,
      onError: assert.fail,
    });
    this.#server = server;
  }

  async pair({ kind, readBytes }: Pick<Scenario, "kind" | "readBytes">): Promise<[TcpStream, ByteStream]> {
    const options = { readBytes };
    const accepted = new Promise<TcpStream>((resolve) =>
      this.#waiting.push((fd, port) => resolve(TcpStream.adopt(fd, { address: LOOPBACK, port }, options))),
    );
    if (kind === "node-accepted") {
      this.#waiting.pop();
      const connection = once(this.#server, "connection");
      const { port } = this.#server.address() as AddressInfo;
      const ours = await connectTcp({ address: LOOPBACK, port }, options);
      return [ours, new NodeStream(((await connection) as [Socket])[0])];
    }
    if (kind === "node-dialled") {
      const socket = connect({ port: this.#port, host: "127.0.0.1", allowHalfOpen: true });
      await once(socket, "connect");
      return [await accepted, new NodeStream(socket)];
    }
    const dialled = await connectTcp({ address: LOOPBACK, port: this.#port }, options);
    return kind === "ours-dialled" ? [dialled, await accepted] : [await accepted, dialled];
  }

  close(): void {
    this.#listener.close();
    this.#server.close();
  }
}

class UnixBench implements Bench {
  readonly #waiting: ((fd: number) => void)[] = [];
  readonly #listener: UnixListener;
  readonly #server: Server;

  /** The server listens on a UNIX socket. */
  constructor(server: Server) {
    this.#listener = UnixListener.listen(
      freshPath(),
      { umask: 0o077 },
      { onClient: (client) => this.#waiting.shift()?.(client), onFault: assert.fail, onError: assert.fail },
    );
    this.#server = server;
  }

  async pair({ kind, readBytes }: Pick<Scenario, "kind" | "readBytes">): Promise<[UnixStream, ByteStream]> {
    const options = { readBytes };
    if (kind === "node-accepted") {
      const connection = once(this.#server, "connection");
      const ours = connectUnix(this.#server.address() as string, options);
      return [ours, new NodeStream(((await connection) as [Socket])[0])];
    }
    const accepted = new Promise<UnixStream>((resolve) =>
      this.#waiting.push((fd) => resolve(UnixStream.adopt(fd, options))),
    );
    if (kind === "node-dialled") {
      const socket = connect({ path: this.#listener.path, allowHalfOpen: true });
      await once(socket, "connect");
      return [await accepted, new NodeStream(socket)];
    }
    const dialled = connectUnix(this.#listener.path, options);
    return kind === "ours-dialled" ? [dialled, await accepted] : [await accepted, dialled];
  }

  close(): void {
    this.#listener.close();
    this.#server.close();
  }
}

const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function ticksUntil(isTrue: () => boolean, what: () => string): Promise<void> {
  const until = systemClock.monotonic() + FOR_EVER_MS;
  for (let ticks = 0; !isTrue(); ticks += 1) {
    if (systemClock.monotonic() > until) assert.fail(`somebody waits for ever: ${what()}`);
    await (ticks < QUICK_TICKS ? tick() : sleep(1));
  }
}

async function run(bench: Bench, { insides, steps, smallBuffers, ...how }: Scenario): Promise<void> {
  const descriptors = readdirSync("/proc/self/fd").length;
  const streams = await bench.pair(how);
  if (smallBuffers)
    for (const stream of streams)
      if (stream instanceof StreamSocket) setsockopt(stream.fd, C.SOL_SOCKET, C.SO_SNDBUF, 4608);
  const ends = [new Witness(streams[0], [1, 2], insides[0]), new Witness(streams[1], [2, 1], insides[1])] as const;
  for (const { side, act, ticks } of steps) {
    ends[side === 0 ? 0 : 1].do(act);
    for (let at = 0; at < ticks; at += 1) await tick();
  }
  // From here on both sides listen and have ended; whatever a listener does then is undone in the next tick.
  await ticksUntil(
    () => {
      for (const end of ends) {
        if (end.isClosed) continue;
        end.do({ kind: "resume" });
        if (!end.isSilent) end.do({ kind: "end" });
      }
      return ends.every(({ isClosed }) => isClosed);
    },
    () =>
      JSON.stringify(
        ends.map(({ said, heard, events, stream }) => ({ said, heard, events, left: stream.writableLength })),
      ),
  );
  const isOrderly = ends.every(({ hasCut }) => !hasCut);
  for (const [at, end] of ends.entries()) {
    const other = ends[at === 0 ? 1 : 0];
    if (isOrderly) assert.deepEqual([end.heard, end.stream.errored], [other.said, undefined]);
    if (isOrderly) assert.deepEqual([...end.events].sort(), ["close", "end", "finish"]);
    assert.ok(end.heard <= other.said);
    if (end.stream instanceof StreamSocket) {
      assert.equal(end.stream.bytesRead, end.heard);
      assert.ok(end.stream.bytesWritten >= other.heard && end.stream.bytesWritten <= end.said);
    }
    assert.equal(end.events.at(-1), "close");
  }
  await tick();
  assert.equal(readdirSync("/proc/self/fd").length, descriptors, "a descriptor is left");
}

async function check(server: Server, makeBench: (server: Server) => Bench): Promise<void> {
  await once(server, "listening");
  const bench = makeBench(server);
  try {
    await fc.assert(
      fc.asyncProperty(scenario, (one) => run(bench, one)),
      { numRuns: 300 },
    );
  } finally {
    bench.close();
  }
}

const CLAIM =
  "whatever both ends do, every byte arrives in order or the loss is reported, each event comes once, and nothing is left";
const makeServer = (): Server => createServer({ allowHalfOpen: true, pauseOnConnect: true });

test(`TcpStream: ${CLAIM}`, LONG, () => check(makeServer().listen(0, "127.0.0.1"), (server) => new TcpBench(server)));

test(`UnixStream: ${CLAIM}`, LONG, () => check(makeServer().listen(freshPath()), (server) => new UnixBench(server)));
