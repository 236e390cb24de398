import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { FakeClock } from "#base/clock";
import {
  Flag,
  FrameType,
  frame,
  grpcRequest,
  headers,
  PREFACE_BYTES,
  RawHttp2,
  settings,
  uint32,
} from "#test/raw-http2";
import type { Header } from "#wire/http2";
import { WindowPool } from "../mux/window-pool.ts";
import { ConnectionSession } from "./connection-session.ts";
import type { SessionSettings, StreamEnd } from "./session.ts";
import { SocketTransport, type TransportEvents, type TransportPeer } from "./transport.ts";

const KIB = 1024;
const ENHANCE_YOUR_CALM = 11;
const OK: readonly Header[] = [[":status", "200"]];

/** A session of a server, and the socket of its client. */
async function accepted(
  t: TestContext,
  firstWindowBytes = 256 * KIB,
  more: Partial<SessionSettings> = {},
): Promise<{
  readonly session: ConnectionSession;
  readonly socket: Socket;
  readonly client: Socket;
  readonly clock: FakeClock;
}> {
  const taken = Promise.withResolvers<Socket>();
  const server = createServer({ noDelay: true }, taken.resolve);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const socket = await taken.promise;
  const clock = new FakeClock();
  const session = new ConnectionSession(new SocketTransport(socket), "server", {
    settings: { streamWindowBytes: 256 * KIB, firstWindowBytes, ...more },
    clock,
  });
  t.after(() => {
    server.close();
    client.destroy();
    socket.destroy();
  });
  return { session, socket, client, clock };
}

/** A session of a server whose calls are read, and its peer. */
async function pair(
  t: TestContext,
  options: {
    readonly firstWindowBytes?: number;
    readonly pong?: boolean;
    readonly settings?: Partial<SessionSettings>;
  } = {},
): Promise<{
  readonly session: ConnectionSession;
  readonly socket: Socket;
  readonly peer: RawHttp2;
  readonly received: () => number;
}> {
  const { session, socket, client } = await accepted(t, options.firstWindowBytes, options.settings);
  let received = 0;
  session.serve((call) => {
    call.respond(OK, { isEnd: false });
    call.start({
      onData: (chunk) => {
        received += chunk.length;
      },
      onTrailers: () => undefined,
      onEnd: () => undefined,
      onClosed: () => undefined,
    });
  });
  return { session, socket, peer: new RawHttp2(client, { pong: options.pong ?? true }), received: () => received };
}

/** A session of a server on a transport without a socket, which has the client's greeting. */
function onMemory() {
  let events: TransportEvents | undefined;
  const transport = {
    isPaused: false,
    start: (own: TransportEvents): void => {
      events = own;
    },
    write: (_views: readonly Uint8Array[], onWritten: () => void): void => queueMicrotask(onWritten),
    pause: (): void => {
      transport.isPaused = true;
    },
    resume: (): void => {
      transport.isPaused = false;
    },
    destroy: (): void => undefined,
    closeSoon: (): void => undefined,
    peer: (): TransportPeer => ({ address: "unix", serverName: undefined, commonName: undefined }),
    read: (bytes: Uint8Array): void => events?.onData(bytes),
    lose: (): void => events?.onLost("lost"),
  };
  const session = new ConnectionSession(transport, "server", {
    settings: { streamWindowBytes: 256 * KIB },
    clock: new FakeClock(),
  });
  transport.read(Buffer.concat([PREFACE_BYTES, settings()]));
  return { session, transport };
}

/** The values of SETTINGS_INITIAL_WINDOW_SIZE that a peer was sent. */
function windowsOf(peer: RawHttp2): number[] {
  const windows: number[] = [];
  for (const { payload } of peer.of(FrameType.settings)) {
    for (let at = 0; at + 6 <= payload.length; at += 6) {
      if (payload.readUInt16BE(at) === 4) windows.push(payload.readUInt32BE(at + 2));
    }
  }
  return windows;
}

test("ConnectionSession: the window of streams grows when it limits the peer, and shrinks when others have what it had for that", async (t) => {
  const clock = new FakeClock();
  const windows = new WindowPool(64 * KIB, clock);
  const settings = { windows, nearWindowBytes: 64 * KIB };
  const { peer, received } = await pair(t, { firstWindowBytes: 64 * KIB, pong: false, settings });
  const pings = (): number => peer.of(FrameType.ping).length;
  const pong = (): void =>
    peer.write(
      Buffer.concat([
        Buffer.from("000008060100000000", "hex"),
        peer.of(FrameType.ping).at(-1)?.payload ?? assert.fail(),
      ]),
    );
  let sent = 0;
  const send = async (kib: number): Promise<void> => {
    for (let left = kib; left > 0; left -= 8) peer.data(1, Buffer.alloc(Math.min(left, 8) * KIB));
    sent += kib * KIB;
    while (received() < sent) await turn();
  };
  peer.request(1, grpcRequest("/x"));
  await peer.until("a PING", () => pings() === 1);
  pong();
  for (let wanted = 2; wanted <= 6; wanted += 1) {
    // Credit comes in halves of the window.
    while (pings() < wanted) await send(8);
    // More than half of a window comes within the round trip.
    for (let part = 0; part < 2; part += 1) await send(24);
    pong();
  }
  await peer.until("a larger window", () => windowsOf(peer).length === 2);
  assert.deepEqual(windowsOf(peer), [64 * KIB, 128 * KIB]);
  assert.equal(windows.taken, 64 * KIB);
  await clock.advance(30_000);
  assert.ok(windows.reservation().grow(1));
  await peer.until("a smaller window", () => windowsOf(peer).length === 3);
  assert.deepEqual(windowsOf(peer).at(-1), 64 * KIB);
});

test("ConnectionSession: a constant window needs no PING", async (t) => {
  const { peer, received } = await pair(t);
  peer.request(1, grpcRequest("/x"));
  for (let at = 0; at < 8; at += 1) peer.data(1, Buffer.alloc(16 * KIB));
  peer.ping();
  await peer.until("the PING is answered", () => peer.of(FrameType.ping).length > 0);
  assert.equal(received(), 128 * KIB);
  assert.equal(peer.of(FrameType.ping).length, 1);
  assert.deepEqual(windowsOf(peer), [256 * KIB]);
});

test("ConnectionSession: a peer that causes answers and reads none of them is sent away", async (t) => {
  const { session, peer } = await pair(t);
  await peer.until("it is set up", () => peer.of(FrameType.settings).length >= 2);
  peer.socket.pause();
  const burst = Buffer.concat(
    Array.from({ length: 1000 }, () => Buffer.from("0000080600000000000000000000000000", "hex")),
  );
  for (let at = 0; at < 1000 && !session.isDestroyed; at += 1) {
    peer.write(burst);
    await turn();
  }
  assert.equal(session.isDestroyed, true);
  peer.socket.resume();
  await peer.closed();
  const [goAway] = peer.of(FrameType.goAway);
  if (goAway !== undefined) assert.equal(goAway.payload.readUInt32BE(4), ENHANCE_YOUR_CALM);
});

test("ConnectionSession: a peer that asks much and reads no answer is not read either, until it reads", async (t) => {
  const { session, socket, peer } = await pair(t);
  session.serve((call) => call.respond([...OK, ["x-fill", "y".repeat(500)]], { isEnd: true }));
  peer.socket.pause();
  let asked = 0;
  // It pauses for single turns too, so that others have theirs.
  const staysPaused = async (): Promise<boolean> => {
    for (let turns = 0; turns < 200 && socket.isPaused(); turns += 1) await turn();
    return socket.isPaused();
  };
  while (!(await staysPaused()) && asked < 100_000) {
    for (let at = 0; at < 200; at += 1, asked += 1) {
      peer.request(2 * asked + 1, grpcRequest("/x"), Flag.endHeaders | Flag.endStream);
    }
    await turn();
  }
  assert.equal(socket.isPaused(), true);
  assert.equal(session.isDestroyed, false);
  peer.socket.resume();
  await peer.until("all answers are here", () => peer.of(FrameType.headers).length === asked);
  // The last answers can be here while it still waits for its next turn; no frame comes after them.
  for (let turns = 0; turns < 1000 && socket.isPaused(); turns += 1) await turn();
  assert.equal(socket.isPaused(), false);
});

test("ConnectionSession: what is done for a peer in a turn is bounded in frames, however many come in one read, and nothing of them is lost", async () => {
  const { session, transport } = onMemory();
  let [perTurn, most, total] = [0, 0, 0];
  session.serve((call) => {
    perTurn += 16;
    total += 1;
    call.respond(OK, { isEnd: true });
  });
  const requests = Array.from({ length: 500 }, (_, at) => headers(2 * at + 1, grpcRequest("/x"), true));
  transport.read(Buffer.concat(requests));
  // Another read was under way.
  transport.read(headers(1001, grpcRequest("/x"), true));
  assert.equal(transport.isPaused, true);
  for (let turns = 0; transport.isPaused && turns < 1000; turns += 1) {
    most = Math.max(most, perTurn);
    perTurn = 0;
    await turn();
  }
  assert.equal(total, 501);
  assert.ok(most <= 2 * 128, `${most}`);
});

test("ConnectionSession: what has come before the end of the connection is handed on, also while it waits for its turn", () => {
  const { session, transport } = onMemory();
  let total = 0;
  session.serve(() => {
    total += 1;
  });
  transport.read(Buffer.concat(Array.from({ length: 100 }, (_, at) => headers(2 * at + 1, grpcRequest("/x"), true))));
  transport.read(headers(201, grpcRequest("/x"), true));
  assert.ok(total < 100);
  transport.lose();
  assert.equal(total, 101);
});

test("ConnectionSession: a client that waits for settings, sends byte by byte, and has a path as its authority is served", async (t) => {
  const { session, client, clock } = await accepted(t);
  const asked = Promise.withResolvers<readonly Header[]>();
  session.serve((call, headers) => {
    call.respond(OK, { isEnd: true });
    asked.resolve(headers);
  });
  await clock.advance(50);
  await once(client, "readable");
  const request = grpcRequest("/x", [], "/run/frontend.sock");
  const bytes = [PREFACE_BYTES, settings(), headers(1, request, true)];
  client.setNoDelay(true);
  for (const byte of Buffer.concat(bytes)) {
    client.write(Uint8Array.of(byte));
    await turn();
  }
  assert.deepEqual(await asked.promise, request);
});

for (const how of ["end", "destroy"] as const) {
  test(`ConnectionSession: a client that leaves (${how}) ends its session and its calls`, async (t) => {
    const { session, client } = await accepted(t);
    const opened = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<StreamEnd>();
    session.serve((call) => {
      call.whenGone(ended.resolve);
      opened.resolve();
    });
    const peer = new RawHttp2(client);
    peer.request(1, grpcRequest("/x"));
    await opened.promise;
    await peer.until("the settings are here", () => peer.of(FrameType.settings).length > 0);
    client[how]();
    assert.equal((await ended.promise).kind, "lost");
    assert.equal(session.isDestroyed, true);
    await peer.closed();
  });
}

test("ConnectionSession: a peer that breaks the protocol is told why, and its connection ends", async (t) => {
  const { session, peer } = await pair(t);
  peer.write(Buffer.from("000000000000000000", "hex")); // DATA of stream 0
  await peer.closed();
  assert.equal(session.isDestroyed, true);
  assert.equal(peer.of(FrameType.goAway)[0]?.payload.readUInt32BE(4), 1);
});

/** A session of a client, with the socket of a server that writes frames by hand. */
async function clientOf(t: TestContext): Promise<{ readonly session: ConnectionSession; readonly server: Socket }> {
  const taken = Promise.withResolvers<Socket>();
  const listener = createServer({ noDelay: true }, taken.resolve);
  await once(listener.listen(0, "127.0.0.1"), "listening");
  const socket = connect((listener.address() as AddressInfo).port, "127.0.0.1");
  const server = await taken.promise;
  server.resume();
  t.after(() => {
    listener.close();
    socket.destroy();
    server.destroy();
  });
  const session = new ConnectionSession(new SocketTransport(socket), "client", {
    settings: { streamWindowBytes: 256 * KIB },
    clock: new FakeClock(),
  });
  server.write(settings());
  return { session, server };
}

function goAway(lastStream: number, code: number, text = ""): Buffer {
  return frame(FrameType.goAway, 0, 0, Buffer.concat([uint32(lastStream, code), Buffer.from(text)]));
}

test("ConnectionSession: a connection that the peer ends with an error is lost for the reason that its GOAWAY tells", async (t) => {
  const { session, server } = await clientOf(t);
  const ended = Promise.withResolvers<StreamEnd>();
  session.request(grpcRequest("/x"), () => undefined).whenGone(ended.resolve);
  server.end(goAway(1, ENHANCE_YOUR_CALM, "too_many_pings"));
  const reason = "the peer has ended the connection with ENHANCE_YOUR_CALM: too_many_pings";
  assert.deepEqual(await ended.promise, { kind: "lost", reason });
});

test("ConnectionSession: who asks after the first of two GOAWAYs learns once that the peer leaves", async (t) => {
  const { session, server } = await clientOf(t);
  session.request(grpcRequest("/x"), () => undefined);
  let pings = 0;
  const pinged = Promise.withResolvers<void>();
  const again = Promise.withResolvers<void>();
  session.whenPing(() => (pings++ === 0 ? pinged : again).resolve());
  const ping = frame(FrameType.ping, 0, 0, Buffer.alloc(8));
  server.write(Buffer.concat([goAway(0x7fff_ffff, 0), ping]));
  await pinged.promise;
  let told = 0;
  session.whenLeaving(() => {
    told += 1;
  });
  assert.equal(told, 0, "no event comes within a call of a method");
  await turn();
  assert.equal(told, 1);
  server.write(Buffer.concat([goAway(1, 0), ping]));
  await again.promise;
  assert.equal(told, 1);
  assert.equal(session.isDestroyed, false);
});
