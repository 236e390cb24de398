/** docs/spec/tunnel.md#12: values of counters and gauges that Konnectivity has too. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:http2";
import type { Socket } from "node:net";
import { test } from "node:test";
import { frameControl, frameData, MetadataKey, TUNNEL_METHODS } from "#wire/konnectivity";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

/** gRPC status CANCELLED. */
const CANCELLED = 1;

async function until(what: string, condition: () => boolean, ms = 10_000): Promise<void> {
  const deadline = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test("metrics: the packet that ends a connection is counted, whichever side ends it", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.end("bye"));
  for (const ending of ["endpoint", "client"]) {
    const client = await TunnelClient.open(await bed.socket(bed.frontendPort));
    const target = ending === "endpoint" ? port : await bed.endpoint((socket) => socket.pipe(socket));
    assert.equal((await client.dial(`127.0.0.1:${target}`)).kind, "open");
    if (ending === "client") client.close();
    await client.closed();
    client.destroy();
  }
  assert.equal(bed.serverCounts.get("to_client CLOSE_RSP"), 2);
  assert.equal(bed.serverCounts.get("to_client DIAL_RSP"), 2);
});

test("metrics: a client and an agent that vanish are cancelled calls, as in Go", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.resume());
  const socket = await bed.socket(bed.frontendPort);
  const client = await TunnelClient.open(socket);
  await client.dial(`127.0.0.1:${port}`);
  socket.destroy();
  await until("the client is counted", () => bed.serverCounts.get(`from_client ${CANCELLED} Unknown`) === 1);
  const agent = await bed.socket(bed.agentPort);
  await TunnelClient.open(agent, { path: TUNNEL_METHODS.connect, metadata: { [MetadataKey.agentID]: "two" } });
  agent.destroy();
  await until("the agent is counted", () => bed.serverCounts.get(`from_agent ${CANCELLED} Unknown`) === 1);
  const codes = [...bed.serverCounts.values.keys()].filter((name) => /^(from|to)_\w+ \d+ /.test(name));
  assert.deepEqual(new Set(codes), new Set([`from_client ${CANCELLED} Unknown`, `from_agent ${CANCELLED} Unknown`]));
});

test("metrics: packets on the way to a client that vanishes are an error with the packets' type", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const block = Buffer.alloc(1 << 20, 7);
  const port = await bed.endpoint((endpoint) => {
    const more = (): void => {
      while (!endpoint.destroyed && endpoint.write(block)) {
        // until it is full
      }
    };
    endpoint.on("drain", more);
    more();
  });
  const socket = await bed.socket(bed.frontendPort);
  const client = await TunnelClient.open(socket);
  await client.dial(`127.0.0.1:${port}`);
  client.pause();
  await until("nothing more leaves", () => bed.proxy.budget.used > 256 * 1024);
  socket.destroy();
  await until("it is counted", () => bed.serverCounts.get(`to_client ${CANCELLED} DATA`) === 1);
});

test("metrics: a packet of an agent is one packet to the client, however it was cut", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  const client = await TunnelClient.open(await bed.socket(bed.frontendPort));
  const dialled = client.dial("127.0.0.1:1");
  await agent.until(() => agent.packets.length > 0);
  const [dial] = agent.packets;
  agent.send({
    ...{ type: "DIAL_RSP", error: "", connectID: 1 },
    random: dial?.type === "DIAL_REQ" ? dial.random : assert.fail(),
  });
  await dialled;
  // Larger than an HTTP/2 frame, and not larger than one sent packet may be.
  const sizes = [1, 100, 16_000, 40_000, 65_536];
  for (const size of sizes) agent.sendRaw(Buffer.concat([frameData(1, size), Buffer.alloc(size, 7)]));
  // A larger packet of another peer leaves in as few packets as possible.
  agent.sendRaw(Buffer.concat([frameData(1, 150_000), Buffer.alloc(150_000, 8)]));
  const lengths: number[] = [];
  client.onPacket = (length) => void lengths.push(length);
  const total = sizes.reduce((sum, size) => sum + size, 150_000);
  await client.until(() => client.received === total);
  assert.deepEqual(lengths, [...sizes, 65_536, 65_536, 150_000 - 2 * 65_536]);
  assert.equal(bed.serverCounts.get("to_client DATA"), lengths.length);
});

test("metrics: the gauge counts a paused frontend until it is read again or gone", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const sockets: Socket[] = [];
  const port = await bed.endpoint((socket) => void sockets.push(socket.pause()));
  for (const end of ["read", "gone"] as const) {
    const client = await TunnelClient.open(await bed.socket(bed.frontendPort));
    await client.dial(`127.0.0.1:${port}`);
    for (let sent = 0; sent < 12; sent += 1) client.write(Buffer.alloc(1 << 20, 7));
    await until("the gauge is up", () => bed.serverCounts.get("unread") === 1);
    if (end === "read") sockets.at(-1)?.resume();
    else client.destroy();
    await until("the gauge is down", () => bed.serverCounts.get("unread") === 0);
    client.destroy();
  }
});

test("metrics: a frontend that is paused when its endpoint resets, and then only ends its side, leaves nothing behind", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const sockets: Socket[] = [];
  const port = await bed.endpoint((socket) => void sockets.push(socket.pause()));
  const session = connect(`http://127.0.0.1:${bed.frontendPort}`);
  session.on("error", () => undefined);
  const stream = session.request(
    { ":method": "POST", ":path": TUNNEL_METHODS.proxy, "content-type": "application/grpc", te: "trailers" },
    { endStream: false },
  );
  stream.on("error", () => undefined);
  let read = "";
  stream.on("data", (bytes: Buffer) => {
    read += bytes.toString("latin1");
  });
  stream.write(frameControl({ type: "DIAL_REQ", protocol: "tcp", address: `127.0.0.1:${port}`, random: 5 }));
  await until("it is open", () => read.length > 0);
  const block = Buffer.concat([frameData(1, 1 << 20), Buffer.alloc(1 << 20)]);
  for (let sent = 0; sent < 12; sent += 1) stream.write(block);
  await until("the gauge is up", () => bed.serverCounts.get("unread") === 1);
  const before = read.length;
  sockets[0]?.resetAndDestroy();
  await until("CLOSE_RSP has come", () => read.length > before);
  assert.equal(bed.serverCounts.get("unread"), 0);
  const trailers = once(stream, "trailers", { signal: AbortSignal.timeout(5000) });
  stream.end();
  const [{ "grpc-status": status }] = (await trailers) as [Record<string, string>];
  assert.equal(status, "0");
  await until("the stream is gone", () => bed.serverCounts.get("Proxy") === 0);
  assert.equal(bed.proxy.budget.used, 0);
  session.destroy();
});
