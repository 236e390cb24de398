/** The tunnel's requirements on HTTP/2, over TLS with little room in the kernel. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from "node:tls";
import { resetSocket } from "#base/socket-reset";
import { C, setsockopt } from "#kernel/ffi";
import { makeCertificates } from "#test/certificates";
import type { Header } from "#wire/http2";
import { CallPacketStream } from "../link/packet-stream.ts";
import { acceptSessions, openSession } from "./open-session.ts";
import type { Call, CallEvents, ClientSession, IncomingCall, Session, StreamEnd } from "./session.ts";
import { DEFAULT_SETTINGS } from "./windows.ts";

const TIMEOUT = { timeout: 30_000 };
const BLOCK = Buffer.alloc(128 * 1024, 7);
const POST: readonly Header[] = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", "/"],
  [":authority", "localhost"],
];
const OK: readonly Header[] = [[":status", "200"]];
const { ca, pairs } = makeCertificates("cluster", { server: ["localhost"] });

/** Size of the kernel's buffers: small. */
function narrow(socket: Socket): void {
  const { fd } = (socket as unknown as { readonly _handle: { readonly fd: number } })._handle;
  for (const option of [C.SO_SNDBUF, C.SO_RCVBUF]) setsockopt(fd, C.SOL_SOCKET, option, 16 * 1024);
}

/** A server that hands on its calls. */
async function serve(
  t: TestContext,
  onCall: (call: IncomingCall) => void,
  onSession: (session: Session) => void = () => undefined,
): Promise<number> {
  const server = createTlsServer({ ...pairs.server, ALPNProtocols: ["h2", "http/1.1"], noDelay: true });
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    narrow(socket);
    sockets.add(socket);
  });
  acceptSessions(server, DEFAULT_SETTINGS, (session) => {
    onSession(session);
    return onCall;
  });
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

async function connected(t: TestContext, port: number): Promise<ClientSession> {
  const session = openSession(await dial(t, port), DEFAULT_SETTINGS);
  t.after(() => session.destroy());
  return session;
}

/** The events of a call, counted. */
class Seen implements CallEvents {
  readonly order: string[] = [];
  readonly closed = Promise.withResolvers<StreamEnd>();
  received = 0;
  onBytes: (chunk: Uint8Array) => void = () => undefined;

  onData(chunk: Uint8Array): void {
    this.received += chunk.length;
    this.onBytes(chunk);
  }

  onTrailers(trailers: readonly Header[]): void {
    this.order.push(`trailers ${trailers.join(" ")}`);
  }

  onEnd(): void {
    this.order.push("end");
  }

  onClosed(end: StreamEnd): void {
    this.order.push(end.kind);
    this.closed.resolve(end);
  }
}

function started(call: Call): Seen {
  const seen = new Seen();
  call.start(seen);
  return seen;
}

/** Keeps four blocks under way. */
function saturate(call: Call): void {
  const more = (): void => void call.send([BLOCK], BLOCK.length, more);
  for (let at = 0; at < 4; at += 1) more();
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}

test(
  "Session: two sessions that both have more to send than the kernel holds do not wait for each other",
  TIMEOUT,
  async (t) => {
    const served = Promise.withResolvers<Seen>();
    const port = await serve(t, (call) => {
      call.respond(OK, { isEnd: false });
      served.resolve(started(call));
      saturate(call);
    });
    const call = (await connected(t, port)).request(POST, () => undefined);
    const ours = started(call);
    saturate(call);
    const theirs = await served.promise;
    await until(() => ours.received > 16 << 20 && theirs.received > 16 << 20);
  },
);

test("Session: a peer that resets its connection while much waits for it is lost at once", TIMEOUT, async (t) => {
  const served = Promise.withResolvers<Seen>();
  const port = await serve(t, (call) => {
    call.respond(OK, { isEnd: false });
    served.resolve(started(call));
    saturate(call);
  });
  const socket = await dial(t, port);
  const session = openSession(socket, DEFAULT_SETTINGS);
  session.request(POST, () => undefined).start(new Seen());
  const seen = await served.promise;
  socket.pause();
  await new Promise((resolve) => setTimeout(resolve, 100));
  const resetAt = performance.now();
  resetSocket(socket);
  assert.equal((await seen.closed.promise).kind, "lost");
  assert.ok(performance.now() - resetAt < 1000);
});

test("Session: a peer that reads may cause any number of answers", TIMEOUT, async (t) => {
  const port = await serve(t, (call) => {
    call.respond(OK, { isEnd: false });
    started(call).onBytes = (chunk) => void call.send([chunk], chunk.length, () => undefined);
  });
  const call = (await connected(t, port)).request(POST, () => undefined);
  const seen = started(call);
  const ask = (): void => void call.send([Buffer.of(1)], 1, () => undefined);
  seen.onBytes = ask;
  ask();
  await until(() => seen.received >= 20_000);
});

test("CallPacketStream: a stream waits for room beside one that always has something under way", TIMEOUT, async (t) => {
  const streams: CallPacketStream[] = [];
  const woken: number[] = [];
  const fill = (stream: CallPacketStream | undefined): void => {
    while (stream?.isWritable === true) stream.send([BLOCK], BLOCK.length);
  };
  const port = await serve(t, (call) => {
    call.respond(OK, { isEnd: false });
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
    streams.push(new CallPacketStream(call, handlers, {}));
  });
  const session = await connected(t, port);
  for (const wanted of [1, 2]) {
    started(session.request(POST, () => undefined));
    await until(() => streams.length === wanted);
  }
  // The second one sends a block for each one that has left.
  const busy = (): void => streams[1]?.send([BLOCK], BLOCK.length, busy);
  busy();
  busy();
  fill(streams[0]);
  await until(() => (woken[0] ?? 0) > 100);
});

test(
  "Session: a call that is not read holds a window at most, stops no other call, and loses no byte",
  TIMEOUT,
  async (t) => {
    const calls: IncomingCall[] = [];
    const port = await serve(t, (call) => {
      call.respond(OK, { isEnd: false });
      calls.push(call);
      call.start(new Seen());
    });
    const session = await connected(t, port);
    const [slow, quick] = [0, 1].map(() => session.request(POST, () => undefined));
    assert.ok(slow !== undefined && quick !== undefined);
    const [slowSeen, quickSeen] = [started(slow), started(quick)];
    slow.pause();
    await until(() => calls.length === 2);
    let taken = 0;
    const total = 64;
    for (let at = 0; at < total; at += 1) {
      const block = Buffer.alloc(BLOCK.length, at);
      calls[0]?.send([block], block.length, () => {
        taken += 1;
      });
    }
    calls[0]?.end([["grpc-status", "0"]]);
    for (let at = 0; at < 32; at += 1) calls[1]?.send([BLOCK], BLOCK.length, () => undefined);
    await until(() => quickSeen.received === 32 * BLOCK.length);
    assert.equal(slowSeen.received, 0);
    assert.deepEqual(slowSeen.order, []);
    assert.ok(taken * BLOCK.length <= DEFAULT_SETTINGS.streamWindowBytes + BLOCK.length, `${taken} blocks have left`);
    let at = 0;
    slowSeen.onBytes = (chunk) => {
      for (const part of [0, chunk.length - 1]) assert.equal(chunk[part], Math.floor((at + part) / BLOCK.length));
      at += chunk.length;
    };
    slow.resume();
    await until(() => slowSeen.received === total * BLOCK.length && slowSeen.order.includes("end"));
    slow.end();
    await slowSeen.closed.promise;
    assert.deepEqual(slowSeen.order, ["trailers grpc-status,0", "end", "done"]);
    assert.equal(taken, total);
  },
);

test("Session: no event comes within a call of a method, and none after the end", TIMEOUT, async (t) => {
  const served = Promise.withResolvers<Seen>();
  const port = await serve(t, (call) => {
    call.respond(OK, { isEnd: false });
    served.resolve(started(call));
  });
  const session = await connected(t, port);
  const call = session.request(POST, () => undefined);
  const seen = started(call);
  await served.promise;
  let gone = 0;
  call.whenGone(() => {
    gone += 1;
  });
  call.send([BLOCK], BLOCK.length, () => undefined);
  call.reset();
  assert.deepEqual(seen.order, []);
  await seen.closed.promise;
  assert.equal(call.isGone, true);
  assert.equal(
    call.send([BLOCK], BLOCK.length, () => undefined),
    false,
  );
  call.reset();
  call.end();
  assert.equal((await (await served.promise).closed.promise).kind, "reset");
  assert.deepEqual(seen.order, ["reset"]);
  assert.equal(gone, 1);
});

test("Session: a server answers in one go without waiting for the end of the caller's side", TIMEOUT, async (t) => {
  const port = await serve(t, (call) => call.respond([...OK, ["grpc-status", "7"]], { isEnd: true }));
  const answered = Promise.withResolvers<readonly Header[]>();
  const call = (await connected(t, port)).request(POST, answered.resolve);
  const seen = started(call);
  assert.deepEqual(
    (await answered.promise).find(([name]) => name === "grpc-status"),
    ["grpc-status", "7"],
  );
  await seen.closed.promise;
});

test(
  "Session: a session that is destroyed closes its calls and its connection, and tells it once",
  TIMEOUT,
  async (t) => {
    const served = Promise.withResolvers<Seen>();
    const sessions: Session[] = [];
    const port = await serve(
      t,
      (call) => {
        call.respond(OK, { isEnd: false });
        served.resolve(started(call));
      },
      (session) => sessions.push(session),
    );
    const session = await connected(t, port);
    let closed = 0;
    session.whenClosed(() => {
      closed += 1;
    });
    const seen = started(session.request(POST, () => undefined));
    const theirs = await served.promise;
    session.destroy();
    session.destroy();
    assert.equal(session.isDestroyed, true);
    await Promise.all([seen.closed.promise, theirs.closed.promise]);
    await until(() => sessions[0]?.isDestroyed === true && closed > 0);
    assert.equal(closed, 1);
  },
);

test("Session: a client that did not agree on HTTP/2 is closed", TIMEOUT, async (t) => {
  const port = await serve(t, () => assert.fail("it has a stream"));
  for (const alpn of [[], ["http/1.1"]]) {
    const socket = await dial(t, port, alpn);
    socket.resume();
    await once(socket, "close");
  }
});

test("Session: ping says when too many wait for their answers", TIMEOUT, async (t) => {
  const server = createServer((socket) => socket.on("error", () => undefined).resume());
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  t.after(() => socket.destroy());
  await once(socket, "connect");
  const session = openSession(socket, DEFAULT_SETTINGS);
  await new Promise((resolve) => setImmediate(resolve));
  let sent = 0;
  while (session.ping()) sent += 1;
  assert.equal(sent, 10);
  session.destroy();
});
