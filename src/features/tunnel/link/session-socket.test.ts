/** Node's HTTP/2 over TLS. Without SessionSocket these tests would not end. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientHttp2Session, connect, createServer, type Http2Server, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from "node:tls";
import { resetSocket } from "#base/socket-reset";
import { C, setsockopt } from "#kernel/ffi";
import { makeCertificates } from "#test/certificates";
import { FrameType, frameBytes, PREFACE } from "./authority-rewriter.ts";
import { DuplexPacketStream } from "./packet-stream.ts";
import { SESSION_SETTINGS, widenWindow } from "./session.ts";
import { type SessionLimits, SessionSocket, serveSessions, sessionSocketOf } from "./session-socket.ts";

const TIMEOUT = { timeout: 30_000 };
const BLOCK = Buffer.alloc(128 * 1024, 7);
const { ca, pairs } = makeCertificates("cluster", { server: ["localhost"] });

/** Size of the kernel's buffers: small. */
function narrow(socket: Socket): void {
  const { fd } = (socket as unknown as { readonly _handle: { readonly fd: number } })._handle;
  for (const option of [C.SO_SNDBUF, C.SO_RCVBUF]) setsockopt(fd, C.SOL_SOCKET, option, 16 * 1024);
}

/** A server that exposes its streams and its side of the connection. */
async function serve(t: TestContext, onStream: (stream: ServerHttp2Stream) => void, limits?: SessionLimits) {
  const sessions: Http2Server = createServer({ settings: SESSION_SETTINGS });
  sessions.on("session", (session) => {
    session.on("error", () => session.destroy());
    widenWindow(session);
  });
  sessions.on("stream", (stream) => {
    stream.on("error", () => undefined);
    stream.respond({ ":status": 200 });
    onStream(stream);
  });
  const server = createTlsServer({ ...pairs.server, ALPNProtocols: ["h2", "http/1.1"], noDelay: true });
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    narrow(socket);
    sockets.add(socket);
  });
  serveSessions(server, sessions, limits);
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

async function dial(t: TestContext, port: number, alpn: readonly string[] = ["h2"]): Promise<TLSSocket> {
  const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", ca, ALPNProtocols: [...alpn] });
  socket.once("connect", () => narrow(socket));
  socket.on("error", () => undefined);
  t.after(() => socket.destroy());
  await once(socket, "secureConnect");
  return socket;
}

function sessionOver(t: TestContext, socket: TLSSocket): ClientHttp2Session {
  const transport = new SessionSocket(socket);
  const session = connect("http://localhost", { createConnection: () => transport, settings: SESSION_SETTINGS });
  session.on("error", () => undefined);
  t.after(() => session.destroy());
  return session;
}

/** Keeps a stream full, and counts the received bytes. */
function saturate(stream: {
  write(block: Buffer, done: (error?: Error | null) => void): unknown;
  on(event: "data", listener: (chunk: Buffer) => void): unknown;
}): { received: number } {
  const seen = { received: 0 };
  stream.on("data", (chunk) => {
    seen.received += chunk.length;
  });
  const more = (error?: Error | null): void => {
    if (!error) stream.write(BLOCK, more);
  };
  for (let at = 0; at < 4; at += 1) more();
  return seen;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}

test(
  "SessionSocket: two sessions that both have more to send than the kernel holds do not wait for each other",
  TIMEOUT,
  async (t) => {
    const served = Promise.withResolvers<{ received: number }>();
    const port = await serve(t, (stream) => served.resolve(saturate(stream)));
    const session = sessionOver(t, await dial(t, port));
    await once(session, "connect");
    widenWindow(session);
    const ours = saturate(session.request({ ":method": "POST" }, { endStream: false }));
    const theirs = await served.promise;
    await until(() => ours.received > 48 << 20 && theirs.received > 48 << 20);
  },
);

test(
  "SessionSocket: a peer that resets while much waits for it is lost at once, whatever is written meanwhile",
  TIMEOUT,
  async (t) => {
    const closed = Promise.withResolvers<number>();
    const opened = Promise.withResolvers<SessionSocket | undefined>();
    let resetAt = 0;
    const port = await serve(t, (stream) => {
      opened.resolve(sessionSocketOf(stream.session));
      saturate(stream);
      stream.once("close", () => closed.resolve(performance.now()));
    });
    const socket = await dial(t, port);
    const session = sessionOver(t, socket);
    session.request({ ":method": "POST" }, { endStream: false }).on("error", () => undefined);
    const server = await opened.promise;
    socket.pause();
    await until(() => (server?.backlogBytes ?? 0) > 0);
    resetAt = performance.now();
    resetSocket(socket);
    assert.ok((await closed.promise) - resetAt < 1000);
  },
);

test(
  "SessionSocket: a peer that asks for answers and reads none of them is not read either, until it reads",
  TIMEOUT,
  async (t) => {
    const port = await serve(t, () => assert.fail("it has a stream"), {
      waitingBytes: 64 * 1024,
    });
    const socket = await dial(t, port);
    socket.pause();
    socket.write(PREFACE);
    const settings = frameBytes(FrameType.settings, 0, 0, Buffer.alloc(0));
    // Node ends a session for more at once.
    const burst = Buffer.concat(Array.from({ length: 500 }, () => settings));
    const isSent = (): Promise<boolean> =>
      Promise.race([
        new Promise<boolean>((resolve) => socket.write(burst, (error) => resolve(!error))),
        new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 1000)),
      ]);
    let bursts = 1;
    while ((await isSent()) && bursts < 1000) bursts += 1;
    assert.equal(socket.destroyed, false);
    t.diagnostic(`stopped after ${bursts} times 500 requests`);
    assert.ok(bursts < 200, `${bursts}`);
    let received = 0;
    socket.on("data", (chunk: Buffer) => {
      received += chunk.length;
    });
    socket.resume();
    await until(() => received >= bursts * 500 * 9);
    assert.equal(socket.destroyed, false);
  },
);

test("SessionSocket: a peer that reads may cause any number of answers", TIMEOUT, async (t) => {
  const port = await serve(t, (stream) => stream.on("data", (chunk: Buffer) => stream.write(chunk)));
  const session = sessionOver(t, await dial(t, port));
  const stream = session.request({ ":method": "POST" }, { endStream: false });
  let answers = 0;
  const done = Promise.withResolvers<void>();
  stream.on("data", () => {
    answers += 1;
    if (answers === 20_000) done.resolve();
    else stream.write("x");
  });
  stream.on("close", () => done.reject(new Error(`closed after ${answers}`)));
  stream.write("x");
  await done.promise;
});

test(
  "DuplexPacketStream: a stream waits for room beside one that always has something under way",
  TIMEOUT,
  async (t) => {
    const streams: DuplexPacketStream[] = [];
    const woken: number[] = [];
    const port = await serve(t, (stream) => {
      const number = streams.length;
      woken.push(0);
      const handlers = {
        onPacket: () => undefined,
        onEnd: () => undefined,
        onWritable: () => {
          woken[number] = (woken[number] ?? 0) + 1;
          fill(streams[number]);
        },
        onClosed: () => undefined,
      };
      const ending = { end: () => undefined, reset: () => undefined };
      streams.push(new DuplexPacketStream(stream, handlers, { ending, backlog: sessionSocketOf(stream.session) }));
    });
    const fill = (stream: DuplexPacketStream | undefined): void => {
      while (stream?.isWritable === true) stream.send([BLOCK], BLOCK.length);
    };
    const session = sessionOver(t, await dial(t, port));
    await once(session, "connect");
    widenWindow(session);
    for (const wanted of [1, 2]) {
      session.request({ ":method": "POST" }, { endStream: false }).resume();
      await until(() => streams.length === wanted);
    }
    // The second one sends a block for each one that has left.
    const busy = (): void => streams[1]?.send([BLOCK], BLOCK.length, busy);
    busy();
    busy();
    fill(streams[0]);
    await until(() => (woken[0] ?? 0) > 100);
  },
);

test("serveSessions: a client that did not agree on HTTP/2 is closed", TIMEOUT, async (t) => {
  const port = await serve(t, () => assert.fail("it has a stream"));
  for (const alpn of [[], ["http/1.1"]]) {
    const socket = await dial(t, port, alpn);
    socket.resume();
    await once(socket, "close");
  }
});
