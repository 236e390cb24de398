/** Bytes on the tunnel's sockets: HTTP/2 frames that no library would send, against the listeners (docs/spec/tunnel.md#2, #15.B). */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Flag, FrameType, frame, grpcRequest, RawHttp2 } from "#test/raw-http2";
import type { Header } from "#wire/http2";
import { decodePacket, frameControl, frameData, type Packet, TUNNEL_METHODS } from "#wire/konnectivity";
import { UnixTransport } from "./http2/unix-transport.ts";
import { DEFAULT_SETTINGS } from "./http2/windows.ts";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

const AGENT: readonly Header[] = [["agentid", "agent-1"]];
const END = Flag.endHeaders;

async function frontend(bed: Bed): Promise<RawHttp2> {
  return new RawHttp2(await bed.socket(bed.frontendPort));
}

async function agentSide(bed: Bed): Promise<RawHttp2> {
  return new RawHttp2(await bed.socket(bed.agentPort));
}

/** The whole packets among a stream's DATA. */
function packetsOf(peer: RawHttp2, stream: number): Packet[] {
  const bytes = peer.dataOf(stream);
  const packets: Packet[] = [];
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    if (end > bytes.length) break;
    packets.push(decodePacket([bytes.subarray(at + 5, end)], end - at - 5));
    at = end;
  }
  return packets;
}

function bytesOf(packets: readonly Packet[]): string {
  return packets
    .flatMap((packet) => (packet.type === "DATA" ? packet.pieces : []))
    .map((piece) => Buffer.from(piece).toString("latin1"))
    .join("");
}

const dialRequest = (port: number, random: number | bigint): Uint8Array =>
  frameControl({ type: "DIAL_REQ", protocol: "tcp", address: `127.0.0.1:${port}`, random });

async function dialled(peer: RawHttp2, stream: number): Promise<void> {
  await peer.until("the dial is answered", () => packetsOf(peer, stream).length > 0);
  const [answer] = packetsOf(peer, stream);
  assert.equal(answer?.type === "DIAL_RSP" ? answer.error : answer?.type, "");
}

test("wire: a conversation cut into HTTP/2 frames at every byte is understood, and so is one in a single frame", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.pipe(socket));
  const dial = dialRequest(port, 2n ** 60n + 1n);
  const data = Buffer.concat([frameData(1, 3), Buffer.from("abc")]);
  const peer = await frontend(bed);
  for (let cut = 0; cut <= dial.length + data.length; cut += 1) {
    const stream = 2 * cut + 1;
    peer.request(stream, grpcRequest(TUNNEL_METHODS.proxy));
    peer.data(stream, dial.subarray(0, cut));
    peer.data(stream, dial.subarray(cut));
    await dialled(peer, stream);
    const [answer] = packetsOf(peer, stream);
    assert.ok(answer?.type === "DIAL_RSP" && answer.random === 2n ** 60n + 1n);
    const own = Buffer.concat([frameData(answer.connectID, 3), Buffer.from("abc")]);
    const at = Math.min(Math.max(0, cut - dial.length), own.length);
    peer.data(stream, own.subarray(0, at));
    peer.data(stream, own.subarray(at));
    await peer.until("the echo is here", () => bytesOf(packetsOf(peer, stream)) === "abc");
  }
  const stream = 1001;
  peer.request(stream, grpcRequest(TUNNEL_METHODS.proxy));
  peer.data(stream, dial);
  await dialled(peer, stream);
  const [answer] = packetsOf(peer, stream);
  const connectID = answer?.type === "DIAL_RSP" ? answer.connectID : 0;
  const many = Array.from("0123456789").flatMap((text) => [frameData(connectID, 1), Buffer.from(text)]);
  peer.data(stream, Buffer.concat(many));
  await peer.until("the echo is here", () => bytesOf(packetsOf(peer, stream)) === "0123456789");
  assert.deepEqual(bed.bugs, []);
});

const FAULTS: readonly { readonly what: string; readonly bytes: Uint8Array; readonly status: number }[] = [
  { what: "a message above 4 MiB is RESOURCE_EXHAUSTED", bytes: Buffer.from("0000400001", "hex"), status: 8 },
  { what: "a compressed message is INTERNAL", bytes: Buffer.from("010000000208061a00", "hex"), status: 13 },
  { what: "a message that is not protobuf is INTERNAL", bytes: Buffer.from("0000000003ffffff", "hex"), status: 13 },
  {
    what: "a field that is longer than its message is INTERNAL",
    bytes: Buffer.from("000000000308047f", "hex"),
    status: 13,
  },
];

for (const [side, path, metadata] of [
  ["frontend", TUNNEL_METHODS.proxy, []],
  ["agent", TUNNEL_METHODS.connect, AGENT],
] as const) {
  for (const { what, bytes, status } of FAULTS) {
    test(`wire: ${what}, from ${side === "agent" ? "an agent" : "a frontend"}`, async () => {
      await using bed = await Bed.open();
      const peer = side === "agent" ? await agentSide(bed) : await frontend(bed);
      peer.request(1, grpcRequest(path, metadata));
      peer.data(1, bytes);
      assert.equal(await peer.status(1), status);
      // The session goes on.
      peer.request(3, grpcRequest(path, metadata));
      await peer.until("the next stream is served", () => peer.header(3, ":status") === "200");
      assert.equal(peer.header(3, "grpc-status"), undefined);
      assert.deepEqual(bed.bugs, []);
    });
  }

  test(`wire: the ${side} listener serves its own service alone`, async () => {
    await using bed = await Bed.open();
    const peer = side === "agent" ? await agentSide(bed) : await frontend(bed);
    const other = side === "agent" ? TUNNEL_METHODS.proxy : TUNNEL_METHODS.connect;
    peer.request(1, grpcRequest(other, AGENT));
    assert.equal(await peer.status(1), 12);
    peer.request(3, grpcRequest("/ProxyService/Other"));
    assert.equal(await peer.status(3), 12);
  });
}

test("wire: the largest message of 4 MiB is taken, and leaves for the agent in pieces of at most 64 KiB", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  const peer = await frontend(bed);
  peer.request(1, grpcRequest(TUNNEL_METHODS.proxy));
  peer.data(1, dialRequest(1, 5));
  await agent.until(() => agent.packets.length > 0);
  agent.send({ type: "DIAL_RSP", error: "", connectID: 1, random: 5 });
  await dialled(peer, 1);
  let overhead = frameData(1, 4 * 1024 * 1024).length - 5;
  overhead = frameData(1, 4 * 1024 * 1024 - overhead).length - 5;
  const size = 4 * 1024 * 1024 - overhead;
  let largest = 0;
  agent.onPacket = (length) => {
    largest = Math.max(largest, length);
  };
  const whole = Buffer.concat([frameData(1, size), Buffer.alloc(size, 7)]);
  for (let at = 0; at < whole.length; at += 16_384) peer.data(1, whole.subarray(at, at + 16_384));
  await agent.until(() => agent.received === size);
  assert.ok(largest > 0 && largest <= 64 * 1024, `a DATA packet had ${largest} bytes`);
});

const long = "x".repeat(257);
const INTRODUCTIONS: readonly { readonly what: string; readonly metadata: readonly Header[]; readonly ok?: true }[] = [
  { what: "without agentID", metadata: [] },
  { what: "with two agentIDs", metadata: [...AGENT, ["agentid", "agent-2"]] },
  { what: "with an empty agentID", metadata: [["agentid", ""]] },
  { what: "with an agentID of 257 bytes", metadata: [["agentid", long]] },
  { what: "with an agentID that has a blank", metadata: [["agentid", "agent 1"]] },
  {
    what: "with two agentIdentifiers",
    metadata: [...AGENT, ["agentidentifiers", "host=a"], ["agentidentifiers", "host=b"]],
  },
  { what: "with an agentID of 256 bytes", metadata: [["agentid", long.slice(1)]], ok: true },
  { what: "with an unknown identifier", metadata: [...AGENT, ["agentidentifiers", "host=a&colour=red"]], ok: true },
];

for (const { what, metadata, ok } of INTRODUCTIONS) {
  test(`wire: an agent ${what} is ${ok ? "admitted" : "refused with INVALID_ARGUMENT"}`, async () => {
    await using bed = await Bed.open();
    const peer = await agentSide(bed);
    peer.request(1, grpcRequest(TUNNEL_METHODS.connect, metadata));
    if (ok) await peer.until("it is answered", () => peer.header(1, "serverid") === "server-1");
    else assert.equal(await peer.status(1), 3);
    assert.equal(bed.proxy.backends.all.length, ok ? 1 : 0);
  });
}

test("wire: an agent gets serverID and serverCount before any packet, once each", async () => {
  await using bed = await Bed.open();
  const peer = await agentSide(bed);
  peer.request(1, grpcRequest(TUNNEL_METHODS.connect, AGENT));
  await peer.until("it is answered", () => peer.of(FrameType.headers, 1).length > 0);
  const values = (name: string): string[] => peer.headersOf(1).flatMap(([one, value]) => (one === name ? [value] : []));
  assert.deepEqual(values("serverid"), ["server-1"]);
  assert.deepEqual(values("servercount"), ["1"]);
  assert.deepEqual(values("content-type"), ["application/grpc"]);
  assert.equal(peer.of(FrameType.data, 1).length, 0);
});

for (const authority of [encodeURIComponent("/run/a b/frontend.sock"), "/run/frontend.sock"]) {
  test(`wire: a frontend on a UNIX socket may have the authority ${authority}`, async (t) => {
    await using bed = await Bed.open();
    await bed.agent();
    const port = await bed.endpoint((socket) => socket.pipe(socket));
    const folder = mkdtempSync(join(tmpdir(), "isthmus-wire-"));
    await bed.listenOn(join(folder, "socket"), (stream) =>
      bed.proxy.serveGrpcFrontend(new UnixTransport(stream), DEFAULT_SETTINGS),
    );
    const socket = connect(join(folder, "socket"));
    t.after(() => {
      socket.destroy();
      rmSync(folder, { recursive: true });
    });
    const peer = new RawHttp2(socket);
    peer.request(1, grpcRequest(TUNNEL_METHODS.proxy, [["user-agent", "grpc-go/1.40.0"]], authority));
    peer.data(1, dialRequest(port, 3));
    await dialled(peer, 1);
    peer.data(1, Buffer.concat([frameData(1, 5), Buffer.from("hello")]));
    await peer.until("the echo is here", () => bytesOf(packetsOf(peer, 1)) === "hello");
    for (let round = 1; round <= 10; round += 1) {
      // Go peers measure the link with PINGs beside data: these are never too many.
      peer.data(1, Buffer.concat([frameData(1, 1), Buffer.from("x")]));
      await peer.until("another byte is here", () => bytesOf(packetsOf(peer, 1)).length === 5 + round);
      peer.ping();
      await peer.until("the PING is answered", () => peer.of(FrameType.ping).length === round);
    }
    peer.data(1, frameControl({ type: "CLOSE_REQ", connectID: 1 }), Flag.endStream);
    assert.equal(await peer.status(1), 0);
    await peer.until("CLOSE_RSP was here", () => packetsOf(peer, 1).at(-1)?.type === "CLOSE_RSP");
  });
}

test("wire: an agent without capabilities is sent no packet of an extension", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  const port = 1;
  const peer = await frontend(bed);
  peer.request(1, grpcRequest(TUNNEL_METHODS.proxy));
  peer.data(1, dialRequest(port, 9));
  await agent.until(() => agent.packets.length > 0);
  agent.send({ type: "DIAL_RSP", error: "", connectID: 1, random: 9 });
  await dialled(peer, 1);
  for (let round = 0; round < 64; round += 1) {
    agent.connectID = 1;
    await agent.writeAll(Buffer.alloc(32 * 1024, round));
  }
  await peer.until("it is all here", () => bytesOf(packetsOf(peer, 1)).length === 64 * 32 * 1024);
  peer.data(1, frameControl({ type: "CLOSE_REQ", connectID: 1 }));
  await agent.until(() => agent.packets.some(({ type }) => type === "CLOSE_REQ"));
  assert.deepEqual(new Set(agent.packets.map(({ type }) => type)), new Set(["DIAL_REQ", "CLOSE_REQ"]));
});

test("wire: packets without payload, and empty messages, end neither the stream nor the process", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const peer = await frontend(bed);
  const hostile = [
    "0000000000",
    ...[0, 1, 2, 3, 4, 5, 6, 7, 64, 65, 99].map((type) => `000000000208${type.toString(16).padStart(2, "0")}`),
  ];
  for (const [at, hex] of hostile.entries()) {
    const stream = 2 * at + 1;
    peer.request(stream, grpcRequest(TUNNEL_METHODS.proxy));
    peer.data(stream, Buffer.from(hex, "hex"), Flag.endStream);
    const status = await peer.status(stream);
    assert.ok(status === 0 || status === 13, `${hex}: status ${status}`);
  }
  const agent = await agentSide(bed);
  for (const [at, hex] of hostile.entries()) {
    const stream = 2 * at + 1;
    agent.request(stream, grpcRequest(TUNNEL_METHODS.connect, [["agentid", `hostile-${at}`]]));
    agent.data(stream, Buffer.from(hex, "hex"), Flag.endStream);
    const status = await agent.status(stream);
    assert.ok(status === 0 || status === 13, `${hex}: status ${status}`);
  }
  assert.deepEqual(bed.bugs, []);
});

test("wire: a frontend that ends its side while it dials, or without a dial, gets status 0", async () => {
  await using bed = await Bed.open();
  await bed.rawAgent();
  const peer = await frontend(bed);
  peer.request(1, grpcRequest(TUNNEL_METHODS.proxy), END | Flag.endStream);
  assert.equal(await peer.status(1), 0);
  peer.request(3, grpcRequest(TUNNEL_METHODS.proxy));
  peer.data(3, dialRequest(1, 6), Flag.endStream);
  assert.equal(await peer.status(3), 0);
});

test("wire: a frontend that sends CLOSE_REQ and ends its stream at once costs its agent one CLOSE_REQ", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  const peer = await frontend(bed);
  peer.request(1, grpcRequest(TUNNEL_METHODS.proxy));
  peer.data(1, dialRequest(1, 7));
  await agent.until(() => agent.packets.length > 0);
  agent.send({ type: "DIAL_RSP", error: "", connectID: 1, random: 7 });
  await dialled(peer, 1);
  peer.data(1, frameControl({ type: "CLOSE_REQ", connectID: 1 }));
  await agent.until(() => agent.packets.some(({ type }) => type === "CLOSE_REQ"));
  peer.write(frame(FrameType.rstStream, 0, 1, Buffer.from("00000008", "hex")));
  // The answer to a second dial follows all packets of the first one.
  const next = await TunnelClient.open(await bed.socket(bed.frontendPort));
  const dial = next.dial("127.0.0.1:1", 8);
  await agent.until(() => agent.packets.some((packet) => packet.type === "DIAL_REQ" && packet.random === 8));
  agent.send({ type: "DIAL_RSP", error: "no", connectID: 0, random: 8 });
  await dial;
  assert.equal(agent.packets.filter(({ type }) => type === "CLOSE_REQ").length, 1);
});
