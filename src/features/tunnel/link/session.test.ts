import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { FakeClock } from "#base/clock";
import { makeCertificates } from "#test/certificates";
import { Flag, FrameType, frame, grpcRequest, headers, RawHttp2, settings } from "#test/raw-http2";
import type { Header } from "#wire/http2";
import { frameData, TUNNEL_METHODS } from "#wire/konnectivity";
import { DEFAULT_SETTINGS } from "../http2/windows.ts";
import { serveStreams } from "./incoming.ts";
import { openStream } from "./outgoing.ts";
import type { PacketStream, StreamFault } from "./packet-stream.ts";
import type { Pulse } from "./session.ts";

const ENHANCE_YOUR_CALM = 11;
/** A constant window: no PING measures the link. */
const SETTINGS = { streamWindowBytes: DEFAULT_SETTINGS.streamWindowBytes };
const MIN_PING_MS = 30_000;

/** A server that accepts every stream; its streams and how they ended. */
async function serve(
  t: TestContext,
  clock: FakeClock,
  listener: Server = createServer({ noDelay: true }),
): Promise<{
  readonly port: number;
  readonly streams: PacketStream[];
  readonly pulses: Pulse[];
  readonly ended: (StreamFault | undefined)[];
}> {
  const streams: PacketStream[] = [];
  const pulses: Pulse[] = [];
  const ended: (StreamFault | undefined)[] = [];
  const sockets = new Set<Socket>();
  listener.on("connection", (socket: Socket) => sockets.add(socket));
  serveStreams(listener, {
    settings: SETTINGS,
    path: TUNNEL_METHODS.connect,
    maxMessageBytes: 1024 * 1024,
    keepAliveMs: 60_000,
    minPingIntervalMs: MIN_PING_MS,
    clock,
    onStream: (stream) => {
      const handlers = {
        onPacket: () => undefined,
        onEnd: () => undefined,
        onWritable: () => undefined,
        onClosed: (fault: StreamFault | undefined) => void ended.push(fault),
      };
      pulses.push(stream.pulse);
      streams.push(stream.accept({}, handlers));
    },
  });
  await once(listener.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    listener.close();
  });
  return { port: (listener.address() as AddressInfo).port, streams, pulses, ended };
}

async function dial(t: TestContext, port: number): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  t.after(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

async function pings(peer: RawHttp2, count: number): Promise<void> {
  for (let sent = 0; sent < count && !peer.isClosed; sent += 1) {
    const before = peer.of(FrameType.ping).length;
    peer.ping();
    await peer.until("an answer", () => peer.of(FrameType.ping).length > before || peer.isClosed);
  }
}

function goAway(peer: RawHttp2): { readonly code: number; readonly text: string } | undefined {
  const [last] = peer.of(FrameType.goAway);
  return last && { code: last.payload.readUInt32BE(4), text: last.payload.toString("latin1", 8) };
}

test("limitPings: a peer that pings without data gets too_many_pings after two strikes", async (t) => {
  const { port } = await serve(t, new FakeClock());
  const peer = new RawHttp2(await dial(t, port));
  await peer.until("settings are confirmed", () => peer.of(FrameType.settings).length >= 2);
  await pings(peer, 8);
  await peer.closed();
  assert.deepEqual(goAway(peer), { code: ENHANCE_YOUR_CALM, text: "too_many_pings" });
});

test("limitPings: PINGs that come in one piece cause one GOAWAY", async (t) => {
  const { port } = await serve(t, new FakeClock());
  const peer = new RawHttp2(await dial(t, port));
  await peer.until("settings are confirmed", () => peer.of(FrameType.settings).length >= 2);
  // The pieces of one write come in one read.
  peer.socket.cork();
  for (let at = 0; at < 100; at += 1) peer.ping();
  peer.socket.uncork();
  await peer.closed();
  assert.equal(peer.of(FrameType.goAway).length, 1);
});

test("limitPings: TLS, whose records are longer than a PING, hides none", async (t) => {
  const { ca, pairs } = makeCertificates("cluster", { server: ["localhost"] });
  const listener = createTlsServer({ ...pairs.server, ALPNProtocols: ["h2"] });
  const { port } = await serve(t, new FakeClock(), listener);
  const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", ca, ALPNProtocols: ["h2"] });
  t.after(() => socket.destroy());
  await once(socket, "secureConnect");
  const peer = new RawHttp2(socket);
  await peer.until("settings are confirmed", () => peer.of(FrameType.settings).length >= 2);
  await pings(peer, 8);
  await peer.closed();
  assert.deepEqual(goAway(peer), { code: ENHANCE_YOUR_CALM, text: "too_many_pings" });
});

test("limitPings: a PING every 30 s is allowed", async (t) => {
  const clock = new FakeClock();
  const { port } = await serve(t, clock);
  const peer = new RawHttp2(await dial(t, port));
  for (let round = 0; round < 20; round += 1) {
    await pings(peer, 1);
    await clock.advance(MIN_PING_MS);
  }
  assert.equal(goAway(peer), undefined);
  assert.equal(peer.isClosed, false);
});

test("limitPings: a peer that measures the link while it sends is never punished", async (t) => {
  const { port } = await serve(t, new FakeClock());
  const peer = new RawHttp2(await dial(t, port));
  peer.request(1, grpcRequest(TUNNEL_METHODS.connect));
  for (let round = 0; round < 50; round += 1) {
    peer.data(1, Buffer.concat([frameData(1, 100), Buffer.alloc(100)]));
    await pings(peer, 1);
  }
  assert.equal(goAway(peer), undefined);
});

test("limitPings: a peer that measures the link while it receives is never punished, however little is sent", async (t) => {
  const { port, streams } = await serve(t, new FakeClock());
  const peer = new RawHttp2(await dial(t, port));
  peer.request(1, grpcRequest(TUNNEL_METHODS.connect));
  await peer.until("the stream is accepted", () => peer.of(FrameType.headers, 1).length > 0);
  for (let round = 0; round < 50; round += 1) {
    const data = Buffer.concat([frameData(1, 1), Buffer.from("x")]);
    streams[0]?.send([data], data.length);
    const before = peer.dataOf(1).length;
    await peer.until("the data is here", () => peer.dataOf(1).length > before);
    await pings(peer, 1);
  }
  assert.equal(goAway(peer), undefined);
  assert.equal(peer.isClosed, false);
});

test("limitPings: PINGs are answered promptly while as much is sent as the peer takes", async (t) => {
  const { port, streams } = await serve(t, new FakeClock());
  const peer = new RawHttp2(await dial(t, port));
  peer.request(1, grpcRequest(TUNNEL_METHODS.connect));
  await peer.until("the stream is accepted", () => peer.of(FrameType.headers, 1).length > 0);
  const [stream] = streams;
  const data = Buffer.concat([frameData(1, 32 * 1024), Buffer.alloc(32 * 1024)]);
  let slowest = 0;
  for (let round = 0; round < 10; round += 1) {
    // All that the peer's window of 16 MiB holds is under way when the PING comes.
    for (let sent = 0; sent < 32; sent += 1) stream?.send([data], data.length);
    const before = performance.now();
    await pings(peer, 1);
    slowest = Math.max(slowest, performance.now() - before);
  }
  // Go drops a connection after 20 s.
  assert.ok(slowest < 2000, `an answer took ${slowest} ms`);
});

test("keepAlive: a server drops a peer that answers no PING, 20 s after the PING", async (t) => {
  const clock = new FakeClock();
  const { port, ended } = await serve(t, clock);
  const peer = new RawHttp2(await dial(t, port), { pong: false });
  peer.request(1, grpcRequest(TUNNEL_METHODS.connect));
  await peer.until("the stream is accepted", () => peer.of(FrameType.headers, 1).length > 0);
  // It sends a PING in between; its silence begins then.
  await clock.advance(50_000);
  await pings(peer, 1);
  await clock.advance(59_999);
  assert.equal(peer.of(FrameType.ping).length, 1);
  await clock.advance(1);
  await peer.until("a PING is here", () => peer.of(FrameType.ping).length === 2);
  await clock.advance(19_999);
  assert.equal(peer.isClosed, false);
  await clock.advance(1);
  await peer.closed();
  assert.equal(ended.length, 1);
});

test("keepAlive: a peer that answers stays, and gets the next PING", async (t) => {
  const clock = new FakeClock();
  const { port } = await serve(t, clock);
  const peer = new RawHttp2(await dial(t, port));
  peer.request(1, grpcRequest(TUNNEL_METHODS.connect));
  await peer.until("the stream is accepted", () => peer.of(FrameType.headers, 1).length > 0);
  for (let round = 1; round <= 3; round += 1) {
    await clock.advance(60_000);
    await peer.until(`PING ${round} is here`, () => peer.of(FrameType.ping).length >= 2 * round - 1);
    // The answer of this side follows the peer's, so that was handled.
    await pings(peer, 1);
  }
  assert.equal(peer.isClosed, false);
});

for (const pong of [true, false]) {
  const fate = pong
    ? "stays if it answers, and the next PING comes in its time"
    : "is dropped after 20 s without a byte";
  test(`keepAlive: a peer in doubt is sent one PING at once, and ${fate}`, async (t) => {
    const clock = new FakeClock();
    const { port, pulses, ended } = await serve(t, clock);
    const peer = new RawHttp2(await dial(t, port), { pong });
    peer.request(1, grpcRequest(TUNNEL_METHODS.connect));
    await peer.until("the stream is accepted", () => peer.of(FrameType.headers, 1).length > 0);
    await clock.advance(50_000);
    const [pulse] = pulses;
    assert.ok(pulse !== undefined);
    assert.equal(pulse.isInDoubt, false);
    const before = pulse.bytesRead;
    for (let at = 0; at < 3; at += 1) pulse.probe();
    await peer.until("a PING is here", () => peer.of(FrameType.ping).length > 0);
    if (!pong) {
      await clock.advance(19_999);
      assert.deepEqual([pulse.isInDoubt, pulse.bytesRead, peer.isClosed], [true, before, false]);
      await clock.advance(1);
      await peer.closed();
      assert.equal(ended.length, 1);
      assert.equal(peer.of(FrameType.ping).length, 1);
      return;
    }
    // The answer of this side follows the peer's, so that was handled.
    await pings(peer, 1);
    assert.equal(pulse.isInDoubt, false);
    assert.ok(pulse.bytesRead > before);
    await clock.advance(59_999);
    assert.equal(peer.of(FrameType.ping).length, 2);
    await clock.advance(1);
    await peer.until("the next PING is here", () => peer.of(FrameType.ping).length === 3);
  });
}

test("keepAlive: a peer that has just sent a byte is not in doubt, however often that is asked", async (t) => {
  const clock = new FakeClock();
  const { port, pulses } = await serve(t, clock);
  const peer = new RawHttp2(await dial(t, port));
  peer.request(1, grpcRequest(TUNNEL_METHODS.connect));
  await peer.until("the stream is accepted", () => peer.of(FrameType.headers, 1).length > 0);
  const [pulse] = pulses;
  assert.ok(pulse !== undefined);
  await clock.advance(999);
  pulse.probeIfSilent();
  assert.equal(pulse.isInDoubt, false);
  await clock.advance(1);
  for (let at = 0; at < 30; at += 1) pulse.probeIfSilent();
  assert.equal(pulse.isInDoubt, true);
  await peer.until("a PING is here", () => peer.of(FrameType.ping).length > 0);
  await pings(peer, 1);
  for (let at = 0; at < 30; at += 1) pulse.probeIfSilent();
  assert.deepEqual([pulse.isInDoubt, peer.isClosed], [false, false]);
});

test("keepAlive: a client drops a server that answers no PING", async (t) => {
  const clock = new FakeClock();
  const response: readonly Header[] = [
    [":status", "200"],
    ["content-type", "application/grpc"],
  ];
  // A server that answers the call and then sends nothing more.
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.once("data", () => {
      socket.write(settings());
      socket.write(frame(FrameType.settings, Flag.ack, 0));
      socket.write(headers(1, response));
      socket.resume();
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  const opened = await openStream(
    {
      socket: await dial(t, (server.address() as AddressInfo).port),
      path: TUNNEL_METHODS.connect,
      authority: "localhost",
      metadata: {},
      timeoutMs: 5000,
      keepAliveMs: 30_000,
      clock,
    },
    { signal: AbortSignal.timeout(5000) },
  );
  const closed = Promise.withResolvers<void>();
  opened.start({
    onPacket: () => undefined,
    onEnd: () => undefined,
    onWritable: () => undefined,
    onClosed: () => closed.resolve(),
  });
  await clock.advance(30_000 + 20_000);
  await closed.promise;
});
