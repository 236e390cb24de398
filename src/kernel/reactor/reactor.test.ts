import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { connectTcp, connectUnix, TcpListener, TcpStream, UnixListener, UnixStream } from "./index.ts";
import type { StreamSocket } from "./stream-socket.ts";
import { freshPath } from "./testing/own-pair.ts";

const TIMEOUT = { timeout: 20_000 };
const LOOPBACK = { 4: IpAddress.parse("127.0.0.1"), 6: IpAddress.parse("::1") } as const;

/** Our end and Node's end of one connection; ours was accepted or dialled. */
async function pair<How extends keyof typeof MAKERS>(
  t: TestContext,
  how: How,
): Promise<Awaited<ReturnType<(typeof MAKERS)[How]>>> {
  const made = (await MAKERS[how](t)) as Awaited<ReturnType<(typeof MAKERS)[How]>>;
  t.after(() => {
    made.ours.destroy();
    made.peer.destroy();
  });
  made.peer.on("error", () => made.peer.destroy());
  return made;
}

async function accepted(t: TestContext): Promise<{ ours: TcpStream; peer: Socket }> {
  const client = Promise.withResolvers<TcpStream>();
  const fd = listenTcp(LOOPBACK[4], 0, { noDelay: true });
  const { port } = localEndpoint(fd);
  const listener = new TcpListener(fd, {
    onClient: (one, remote) => client.resolve(TcpStream.adopt(one, remote)),
    onFault: client.reject,
    onError: client.reject,
  });
  t.after(() => listener.close());
  const peer = connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  return { ours: await client.promise, peer };
}

async function dialled(t: TestContext): Promise<{ ours: TcpStream; peer: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  const connection = once(server, "connection");
  const { port } = server.address() as AddressInfo;
  const ours = await connectTcp({ address: LOOPBACK[4], port });
  const [peer] = (await connection) as [Socket];
  return { ours, peer };
}

async function acceptedOverUnix(t: TestContext): Promise<{ ours: UnixStream; peer: Socket }> {
  const client = Promise.withResolvers<UnixStream>();
  const events = {
    onClient: (one: number) => client.resolve(UnixStream.adopt(one)),
    onFault: client.reject,
    onError: client.reject,
  };
  const listener = UnixListener.listen(freshPath(), { umask: 0o077 }, events);
  t.after(() => listener.close());
  const peer = connect({ path: listener.path, allowHalfOpen: true });
  return { ours: await client.promise, peer };
}

async function dialledOverUnix(t: TestContext): Promise<{ ours: UnixStream; peer: Socket }> {
  const path = freshPath();
  const server = createServer({ allowHalfOpen: true }).listen(path);
  t.after(() => server.close());
  await once(server, "listening");
  const connection = once(server, "connection");
  const ours = connectUnix(path);
  const [peer] = (await connection) as [Socket];
  return { ours, peer };
}

const MAKERS = {
  accepted,
  dialled,
  "accepted over UNIX": acceptedOverUnix,
  "dialled over UNIX": dialledOverUnix,
} as const;

/** All that comes until the end. */
function collect(stream: StreamSocket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  stream.on("data", (chunk) => chunks.push(Buffer.from(chunk)));
  stream.resume();
  return new Promise((resolve, reject) => {
    stream.once("end", () => resolve(Buffer.concat(chunks)));
    stream.once("close", () => reject(stream.errored ?? new Error("closed without an end")));
  });
}

function closed(stream: StreamSocket): Promise<void> {
  return new Promise((resolve) => (stream.closed ? resolve() : stream.once("close", resolve)));
}

for (const how of ["accepted", "dialled", "accepted over UNIX", "dialled over UNIX"] as const) {
  test(
    `a stream that was ${how}: 16 MiB each way at once arrive whole, in order, and both ends close it`,
    TIMEOUT,
    async (t) => {
      const { ours, peer } = await pair(t, how);
      const [up, down] = [randomBytes(1 << 24), randomBytes(1 << 24)];
      const got: Buffer[] = [];
      peer.on("data", (chunk: Buffer) => got.push(chunk));
      const ended = once(peer, "end");
      const collected = collect(ours);
      peer.end(down);
      let at = 0;
      const pump = (): void => {
        for (let goes = true; goes && at < up.length; at += 100_000) goes = ours.write(up.subarray(at, at + 100_000));
        if (at >= up.length) ours.end();
      };
      ours.on("drain", pump);
      pump();
      assert.ok((await collected).equals(down));
      await ended;
      assert.ok(Buffer.concat(got).equals(up));
      await closed(ours);
      assert.deepEqual(
        [ours.errored, ours.readableEnded, ours.writableFinished, ours.destroyed],
        [undefined, true, true, true],
      );
    },
  );
}

for (const how of ["accepted", "accepted over UNIX"] as const) {
  test(`a stream that was ${how}: paused it reads nothing, resumed all that came and the end`, TIMEOUT, async (t) => {
    const { ours, peer } = await pair(t, how);
    let text = "";
    let hasEnded = false;
    ours.on("data", (chunk) => {
      text += Buffer.from(chunk).toString();
      ours.pause();
    });
    ours.once("end", () => {
      hasEnded = true;
    });
    peer.write("one");
    ours.resume();
    while (text !== "one") await new Promise((resolve) => setImmediate(resolve));
    peer.end("two");
    await once(peer, "finish");
    for (let tick = 0; tick < 20; tick += 1) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([text, hasEnded], ["one", false]);
    ours.resume();
    while (text.length < 6) await new Promise((resolve) => setImmediate(resolve));
    ours.resume();
    while (!hasEnded) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(ours.closed, false, "the way out is open still");
  });
}

test(
  "TcpStream: half closed it still receives; the peer's reset is an error, emitted by `close`",
  TIMEOUT,
  async (t) => {
    const { ours, peer } = await pair(t, "dialled");
    const collected = collect(ours);
    ours.end(Buffer.from("question"));
    const [asked] = (await once(peer, "data")) as [Buffer];
    assert.equal(asked.toString(), "question");
    peer.write("half of an answer");
    await new Promise((resolve) => ours.once("data", resolve));
    peer.resetAndDestroy();
    await assert.rejects(collected, (error: unknown) => error instanceof KernelError && error.errno === "ECONNRESET");
    assert.deepEqual([ours.closed, ours.readableEnded], [true, false]);
  },
);

test("TcpStream: reset is RST though bytes wait to be sent; destroy without any is FIN", TIMEOUT, async (t) => {
  const first = await pair(t, "accepted");
  first.peer.pause();
  while (first.ours.write(Buffer.alloc(1 << 20)));
  const failed = new Promise<NodeJS.ErrnoException>((resolve) => first.peer.once("error", resolve));
  first.ours.reset();
  first.peer.resume();
  assert.equal((await failed).code, "ECONNRESET");
  const second = await pair(t, "accepted");
  const ended = once(second.peer, "end");
  second.peer.resume();
  second.ours.destroy();
  await ended;
  await closed(second.ours);
});

test("TcpStream: has the addresses of both ends, in both families", TIMEOUT, async (t) => {
  for (const family of [4, 6] as const) {
    const server = createServer().listen(0, String(LOOPBACK[family]));
    t.after(() => server.close());
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const connection = once(server, "connection");
    const ours = await connectTcp({ address: LOOPBACK[family], port }, { source: LOOPBACK[family] });
    const [peer] = (await connection) as [Socket];
    assert.deepEqual([ours.remoteAddress, ours.remotePort], [String(LOOPBACK[family]), port]);
    assert.deepEqual([ours.localAddress, ours.localPort], [peer.remoteAddress, peer.remotePort]);
    ours.destroy();
    peer.destroy();
  }
});

test("connectTcp: a refusal has its errno, an abort its reason, and neither leaves a descriptor", TIMEOUT, async () => {
  const before = readdirSync("/proc/self/fd").length;
  const fd = listenTcp(LOOPBACK[4], 0, { backlog: 1 });
  const taken = localEndpoint(fd);
  const listener = new TcpListener(fd, { onClient: () => undefined, onFault: assert.fail, onError: assert.fail });
  listener.close();
  await assert.rejects(
    connectTcp(taken),
    (error: unknown) => error instanceof KernelError && error.errno === "ECONNREFUSED",
  );
  const stop = new AbortController();
  const waiting = connectTcp({ address: LOOPBACK[4], port: taken.port }, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await assert.rejects(connectTcp(taken, { signal: stop.signal }), /enough/);
  assert.equal(readdirSync("/proc/self/fd").length, before);
});

test("TcpListener: takes a flood of clients, each once, and none after its end", TIMEOUT, async (t) => {
  const fd = listenTcp(LOOPBACK[4], 0, { backlog: 512 });
  const { port } = localEndpoint(fd);
  const ports = new Set<number>();
  const listener = new TcpListener(fd, {
    onClient: (one, remote) => {
      ports.add(remote.port);
      const client = TcpStream.adopt(one, remote);
      client.end(Buffer.from("hello"));
      client.resume();
    },
    onFault: assert.fail,
    onError: assert.fail,
  });
  t.after(() => listener.close());
  const one = async (): Promise<string> => {
    const socket = connect({ host: "127.0.0.1", port });
    const chunks = await socket.toArray();
    return Buffer.concat(chunks as Buffer[]).toString();
  };
  const answers = await Promise.all(Array.from({ length: 200 }, one));
  assert.deepEqual([new Set(answers), ports.size], [new Set(["hello"]), 200]);
  listener.close();
  await assert.rejects(one(), /ECONNREFUSED/);
});

test(
  "reactor: a worker thread has its own, ends in order once it is closed, and is not kept alive by nothing",
  TIMEOUT,
  async () => {
    const worker = new Worker(new URL("./testing/echo-worker.ts", import.meta.url));
    const [port] = (await once(worker, "message")) as [number];
    const peer = connect({ host: "127.0.0.1", port });
    peer.write("to a thread");
    const [answer] = (await once(peer, "data")) as [Buffer];
    assert.equal(answer.toString(), "to a thread");
    worker.postMessage("close");
    const [code] = (await once(worker, "exit")) as [number];
    assert.equal(code, 0);
    peer.destroy();
  },
);

for (const [family, listener] of [
  ["tcp", "TcpListener"],
  ["unix", "UnixListener"],
] as const) {
  test(
    `${listener}: a client for whom there is no descriptor is refused at once; others are taken when there are some again`,
    TIMEOUT,
    async () => {
      // In a process of its own: its limit is reached by what it holds.
      const script = fileURLToPath(new URL("./testing/short-of-descriptors.ts", import.meta.url));
      const child = spawn("sh", ["-c", 'ulimit -n 64; exec "$0" "$1" "$2"', process.execPath, script, family]);
      assert.deepEqual(JSON.parse(await text(child.stdout)), { fault: "EMFILE", answered: 39 });
    },
  );
}
