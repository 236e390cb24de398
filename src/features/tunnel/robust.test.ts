import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import type { DialHandlers } from "./mux/link-handlers.ts";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

async function client(bed: Bed): Promise<TunnelClient> {
  return TunnelClient.open(await bed.socket(bed.frontendPort));
}

/** Polls a condition. */
async function until(what: string, condition: () => boolean, ms = 10_000): Promise<void> {
  const deadline = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function idle(bed: Bed): Promise<void> {
  const busy = (): string[] => [
    ...["pending", "established", "full"].filter((gauge) => bed.serverCounts.get(gauge) !== 0),
    ...["endpoints", "full"].filter((gauge) => bed.agentCounts.get(gauge) !== 0),
    ...bed.agents.filter(({ mux }) => mux.connections !== 0).map(() => "agent channels"),
    ...bed.proxy.backends.all.filter(({ load }) => load !== 0).map(() => "server channels"),
    ...(bed.proxy.budget.used === 0 ? [] : [`${bed.proxy.budget.used} bytes buffered`]),
  ];
  await until("everything is idle again", () => busy().length === 0, 12_000).catch(() => assert.deepEqual(busy(), []));
  assert.deepEqual(bed.bugs, []);
}

for (const flowControl of [true, false]) {
  test(`tunnel: a reader that stops costs the others nothing, ${flowControl ? "with credit" : "without credit: its connection ends after the grace"}`, async () => {
    await using bed = await Bed.open({
      ...(flowControl ? {} : { agentCapabilities: new Set<never>() }),
      slowConsumerGraceMs: 300,
    });
    await bed.agent();
    const sink = Buffer.alloc(256 * 1024, 7);
    const fast = await bed.endpoint((socket) => {
      const more = (): void => {
        while (!socket.destroyed && socket.write(sink)) {
          // until the socket is full
        }
      };
      socket.on("drain", more);
      socket.resume();
      more();
    });
    const echo = await bed.endpoint((socket) => socket.pipe(socket));
    const stalled = await client(bed);
    assert.equal((await stalled.dial(`127.0.0.1:${fast}`)).kind, "open");
    stalled.pause();
    // Without credit the whole stream is paused meanwhile, which the gauge shows.
    if (!flowControl) await until("the gauge of full channels is up", () => bed.serverCounts.get("full") === 1);
    const other = await client(bed);
    await other.dial(`127.0.0.1:${echo}`);
    const took: number[] = [];
    const deadline = performance.now() + 1500;
    for (let rounds = 1; performance.now() < deadline; rounds += 1) {
      const before = performance.now();
      other.write(Buffer.alloc(64, rounds));
      await other.until(() => other.received === 64 * rounds);
      took.push(performance.now() - before);
    }
    // One may be slow: all ends of the tunnel are in this process, which other tests keep from the processor now and then.
    const [slowest = 0, second = 0] = took.toSorted((a, b) => b - a);
    const said = `of ${took.length} echoes beside a stalled reader the slowest took ${slowest.toFixed(0)} and ${second.toFixed(0)} ms`;
    assert.ok(second < (flowControl ? 200 : 1000) && slowest < 1000 && took.length > 5, said);
    assert.ok(bed.proxy.budget.used < 20 * 1024 * 1024, `${bed.proxy.budget.used} bytes are buffered`);
    assert.equal(bed.serverCounts.get("slow"), flowControl ? 0 : 1);
    if (flowControl) {
      const had = stalled.received;
      stalled.resume();
      await stalled.until(() => stalled.received > had + 4 * 1024 * 1024);
    }
    stalled.destroy();
    other.close();
    await other.closed();
    await idle(bed);
  });
}

/** Number of dials that are given up; all of the promise with ISTHMUS_SOAK=full. */
const RACES = process.env["ISTHMUS_SOAK"] === "full" ? 10_000 : 300;

test("tunnel: DIAL_CLS at every moment of a dial leaves no open socket", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const open = new Set<Socket>();
  const port = await bed.endpoint((socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
    socket.on("end", () => socket.end());
    socket.resume();
  });
  for (let round = 0; round < RACES; round += 1) {
    const one = await client(bed);
    const random = 10_000 + round;
    one.send({ type: "DIAL_REQ", protocol: "tcp", address: `127.0.0.1:${port}`, random });
    for (let turns = round % 12; turns > 0; turns -= 1) await new Promise((resolve) => setImmediate(resolve));
    one.send({ type: "DIAL_CLS", random });
    if (round % 3 === 0) one.end();
    else if (round % 3 === 1) one.destroy();
    else {
      await until("the dial is over", () => one.packets.length > 0 || bed.serverCounts.get("pending") === 0);
      one.end();
    }
  }
  await idle(bed);
  await until("no endpoint has an open socket", () => open.size === 0);
});

test("tunnel: a pending dial is answered when its agent dies, and an open connection ends with CLOSE_RSP", async () => {
  await using bed = await Bed.open();
  const agent = await bed.agent();
  const port = await bed.endpoint((socket) => socket.resume());
  const openOne = await client(bed);
  await openOne.dial(`127.0.0.1:${port}`);
  const waiting = await client(bed);
  // Nobody answers SYNs to a socket whose backlog is full.
  const pending = waiting.dial("127.0.0.1:1", 77);
  agent.mux.destroy({ code: 14, message: "the test ends it" });
  const outcome = await pending;
  assert.equal(outcome.kind, "refused");
  assert.equal((await openOne.closed()).error, "");
  await idle(bed);
});

test("tunnel: a dial whose agent is lost before its answer goes to another agent, until none is left", async () => {
  await using bed = await Bed.open();
  const agents = new Set([await bed.rawAgent("one"), await bed.rawAgent("two"), await bed.rawAgent("three")]);
  const waiting = await client(bed);
  const outcome = waiting.dial("10.0.0.1:80", 5);
  const asked = (): TunnelClient | undefined => [...agents].find(({ packets }) => packets.length > 0);
  for (let lost = 0; lost < 2; lost += 1) {
    await until("an agent is asked", () => asked() !== undefined);
    const agent = asked() ?? assert.fail();
    agents.delete(agent);
    agent.destroy();
  }
  await until("the last agent is asked", () => asked() !== undefined);
  const [last] = agents;
  last?.send({ type: "DIAL_RSP", error: "", connectID: 7, random: 5 });
  assert.deepEqual(await outcome, { kind: "open", connectID: 7 });
  assert.equal(bed.serverCounts.get("pending"), 0);
  assert.equal(bed.serverCounts.get("dialFailed backend_close"), 0);
  const none = await client(bed);
  const refused = none.dial("10.0.0.2:80", 6);
  await until("it is asked again", () => (last?.packets.length ?? 0) > 1);
  last?.destroy();
  assert.equal((await refused).kind, "refused");
  await waiting.closed();
  assert.equal(bed.serverCounts.get("dialFailed backend_close"), 1);
  await idle(bed);
});

test("tunnel: a dial that a backend does not answer in time fails with a time-out and is cancelled", async () => {
  await using bed = await Bed.open({ backendDialTimeoutMs: 100 });
  const agent = await bed.rawAgent();
  const one = await client(bed);
  const outcome = await one.dial("10.0.0.1:80", 5);
  assert.deepEqual(outcome, { kind: "refused", error: "timed out waiting for backend dial" });
  await agent.until(() => agent.packets.some(({ type }) => type === "DIAL_CLS"));
  // A late success is closed; the client receives nothing for it.
  agent.send({ type: "DIAL_RSP", error: "", connectID: 9, random: 5 });
  await agent.until(() => agent.packets.some((packet) => packet.type === "CLOSE_REQ" && packet.connectID === 9));
  assert.equal(bed.serverCounts.get("dialFailed unrecognized_response"), 1);
  assert.equal(one.packets.length, 1);
});

test("tunnel: an agent cannot answer another agent's dial, nor use a connection of another", async () => {
  await using bed = await Bed.open();
  const first = await bed.rawAgent("first");
  const one = await client(bed);
  const dialling = one.dial("10.0.0.1:80", 5);
  await first.until(() => first.packets.some(({ type }) => type === "DIAL_REQ"));
  const thief = await bed.rawAgent("thief");
  thief.send({ type: "DIAL_RSP", error: "", connectID: 1, random: 5 });
  await thief.until(() => thief.packets.some(({ type }) => type === "CLOSE_REQ"));
  first.send({ type: "DIAL_RSP", error: "", connectID: 1, random: 5 });
  assert.deepEqual(await dialling, { kind: "open", connectID: 1 });
  thief.connectID = 1;
  thief.write(Buffer.from("stolen"));
  thief.send({ type: "CLOSE_RSP", error: "", connectID: 1 });
  first.connectID = 1;
  first.write(Buffer.from("true"));
  await one.until(() => one.received === 4);
  assert.equal(one.closeResponse, undefined);
});

test("tunnel: packets of unknown connections are answered once a second, and zero-length packets do no harm", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  agent.connectID = 4;
  for (let at = 0; at < 50; at += 1) agent.write(Buffer.from("x"));
  agent.sendRaw(Buffer.from([0, 0, 0, 0, 0]));
  agent.sendRaw(Buffer.from([0, 0, 0, 0, 2, 8, 4]));
  await agent.until(() => agent.packets.some(({ type }) => type === "DIAL_RSP"));
  assert.equal(agent.packets.filter(({ type }) => type === "CLOSE_REQ").length, 1);
  const [refused] = agent.packets.filter((packet) => packet.type === "DIAL_RSP");
  assert.ok(refused?.type === "DIAL_RSP" && refused.error === "node to control plane traffic is disabled");
  const one = await client(bed);
  one.sendRaw(Buffer.from([0, 0, 0, 0, 0]));
  one.sendRaw(Buffer.from([0, 0, 0, 0, 2, 8, 2]));
  await one.until(() => one.packets.length > 0);
  assert.deepEqual(one.packets[0], { type: "DIAL_RSP", error: "protocol not supported", connectID: 0, random: 0 });
  assert.deepEqual(bed.bugs, []);
});

test("tunnel: a stream that breaks the protocol ends alone, with INTERNAL", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  await bed.agent("other");
  agent.sendRaw(Buffer.from([0, 0, 0, 0, 1, 0xff]));
  await agent.until(() => agent.isEnded);
  assert.equal(bed.proxy.backends.all.length, 1);
});

test("tunnel: a second dial on a frontend's stream is refused and the first stays", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.pipe(socket));
  const one = await client(bed);
  await one.dial(`127.0.0.1:${port}`, 1);
  assert.equal((await one.dial(`127.0.0.1:${port}`, 2)).kind, "refused");
  one.write(Buffer.from("still"));
  await one.until(() => one.received === 5);
  one.close();
  await one.closed();
  await idle(bed);
});

test("tunnel: an agent's stream that takes no packets is retired once a dial over it has timed out", async () => {
  await using bed = await Bed.open({ backendDialTimeoutMs: 300 });
  const agent = await bed.rawAgent();
  const one = await client(bed);
  const dialling = one.dial("10.0.0.1:80", 5);
  await agent.until(() => agent.packets.some(({ type }) => type === "DIAL_REQ"));
  agent.send({ type: "DIAL_RSP", error: "", connectID: 1, random: 5 });
  await dialling;
  agent.pause();
  // More than every window and buffer between them.
  const block = Buffer.alloc(1 << 20);
  for (let at = 0; at < 64; at += 1) one.write(block);
  const [backend] = bed.proxy.backends.all;
  await until("the link is stuck", () => {
    const before = backend?.mux.bytesSent ?? 0;
    return (backend?.mux.queuedBytes ?? 0) > 0 && before === backend?.mux.bytesSent;
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  const two = await client(bed);
  assert.equal((await two.dial("10.0.0.1:80", 6)).kind, "refused");
  assert.equal(bed.proxy.backends.all.length, 0);
  await one.closed();
});

test("tunnel: an agent that sends beyond its credit loses the connection, holds no memory, and others go on", async () => {
  await using endpointBed = await Bed.open();
  const port = await endpointBed.endpoint((socket) => {
    // Takes nothing.
    socket.pause();
  });
  await using bed = await Bed.open({ allowedDestinations: [`127.0.0.1:${port}`] });
  const evil = await TunnelClient.open(await bed.socket(bed.agentPort), {
    path: "/AgentService/Connect",
    metadata: { agentid: "evil", "x-tunnel-caps": "reverse/1,half-close/1,flow-control/1" },
  });
  assert.equal((await evil.dial(`127.0.0.1:${port}`, 1)).kind, "open");
  const block = Buffer.alloc(1 << 20);
  for (let at = 0; at < 64; at += 1) await evil.writeAll(block);
  await evil.until(() => evil.closeResponse !== undefined);
  await until("nothing is held of it", () => bed.proxy.budget.used === 0);
  assert.deepEqual(bed.bugs, []);
});

test("tunnel: a connection whose peer reads nothing more ends, and holds no memory", async () => {
  await using endpointBed = await Bed.open();
  const port = await endpointBed.endpoint((socket) => {
    socket.on("error", () => undefined);
    socket.write(Buffer.alloc(2 << 20));
    socket.resume();
  });
  await using bed = await Bed.open({ allowedDestinations: [`127.0.0.1:${port}`] });
  const evil = await TunnelClient.open(await bed.socket(bed.agentPort), {
    path: "/AgentService/Connect",
    metadata: { agentid: "evil", "x-tunnel-caps": "reverse/1,half-close/1,flow-control/1" },
  });
  await evil.dial(`127.0.0.1:${port}`, 1);
  // One window of bytes comes, and no credit is returned.
  await evil.until(() => evil.received === 256 * 1024);
  evil.close();
  await until("it is gone", () => bed.serverCounts.get("reverseConnections") === 0, 25_000);
  assert.equal(bed.proxy.budget.used, 0);
  assert.equal(bed.proxy.backends.all[0]?.mux.connections, 0);
});

test("tunnel: incomplete messages count in the budget, and an address as long as a message is refused", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  const part = Buffer.alloc(5 + 1000);
  part.writeUInt32BE(3_000_000, 1);
  agent.sendRaw(part);
  await until("it is counted", () => bed.proxy.budget.used === 1000);
  agent.destroy();
  await until("it is given back", () => bed.proxy.budget.used === 0);
  await bed.rawAgent("other");
  const one = await client(bed);
  assert.deepEqual(await one.dial("x".repeat(100_000), 3), { kind: "refused", error: "the address is too long" });
});

test("tunnel: an agent refuses an address as long as a message, with a short answer", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const { promise, resolve } = Promise.withResolvers<string>();
  const handlers = { onRefused: resolve } as unknown as DialHandlers;
  const [backend] = bed.proxy.backends.all;
  backend?.mux.dial({ protocol: "tcp", address: `${"x".repeat(4_000_000)}:1`, random: 9 }, handlers);
  assert.equal(await promise, "the address is too long");
  assert.equal(bed.agents[0]?.mux.isClosed, false);
});
