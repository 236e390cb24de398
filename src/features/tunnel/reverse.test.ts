import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { freePort } from "#test/ports";
import { ReverseListener } from "./agent/reverse-listener.ts";
import { parseTarget } from "./agent/target.ts";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

/** The node's side: a listener on loopback, whose clients reach `address` on the server's side. */
async function listenFor(bed: Bed, address: string, allowedSources: readonly string[] = [], own = "127.0.0.1") {
  const localPort = await freePort();
  const listener = await ReverseListener.open(
    {
      links: () => bed.agents.filter(({ mux }) => !mux.isClosed),
      metrics: bed.agentCounts.agent(),
      clock: systemClock,
      log: nullLogger,
      interfaces: () => ({ lo: [{ address: own }] }),
    },
    {
      bindAddresses: [IpAddress.parse("127.0.0.1")],
      targets: [parseTarget(`${localPort}:${address}`)],
      allowedSources: allowedSources.map((text) => Cidr.parse(text)),
      halfCloseTimeoutMs: 1000,
    },
  );
  return { listener, localPort };
}

async function dial(port: number): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  await once(socket, "connect");
  return socket;
}

/** Returns how the connection of a refused client ends; it may be reset as soon as it is connected. */
function fateAt(port: number): Promise<string> {
  return fate(connect({ port, host: "127.0.0.1", allowHalfOpen: true }));
}

/** Returns how a socket ends. */
async function fate(socket: Socket): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.once("end", () => resolve("closed"));
  socket.resume();
  return promise.finally(() => socket.destroy());
}

async function idle(bed: Bed): Promise<void> {
  const busy = (): number[] =>
    [
      bed.serverCounts.get("reverseConnections"),
      bed.agentCounts.get("reverseConnections"),
      bed.proxy.budget.used,
      ...bed.agents.map(({ mux }) => mux.connections + mux.pendingDials),
      ...bed.proxy.backends.all.map(({ load }) => load),
    ].filter((value) => value !== 0);
  for (const deadline = performance.now() + 5000; busy().length > 0 && performance.now() < deadline; ) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.deepEqual(busy(), []);
  assert.deepEqual(bed.bugs, []);
}

for (const halfClose of [true, false]) {
  test(`reverse: 64 MiB there and back with equal checksums, the sender ends first${halfClose ? "" : ", without half-close"}`, async () => {
    const options = halfClose ? {} : { agentCapabilities: new Set(["reverse/1"] as const) };
    await using endpointBed = await Bed.open();
    const port = await endpointBed.endpoint((socket) => socket.pipe(socket));
    await using bed = await Bed.open({ ...options, allowedDestinations: [`127.0.0.1:${port}`] });
    await bed.agent();
    const { listener, localPort } = await listenFor(bed, `127.0.0.1:${port}`);
    await using _listener = listener;
    const socket = await dial(localPort);
    const [sent, got] = [createHash("sha256"), createHash("sha256")];
    let received = 0;
    const ended = once(socket, "end");
    socket.on("data", (chunk: Buffer) => {
      received += chunk.length;
      got.update(chunk);
    });
    const total = (process.env["ISTHMUS_SOAK"] === "full" ? 1024 : 64) * 2 ** 20;
    for (let left = total; left > 0; ) {
      const chunk = randomBytes(Math.min(left, 1 + Math.floor(Math.random() * 300_000)));
      left -= chunk.length;
      sent.update(chunk);
      if (!socket.write(chunk)) await once(socket, "drain");
    }
    socket.end();
    await ended;
    assert.deepEqual([received, got.digest("hex")], [total, sent.digest("hex")]);
    await idle(bed);
  });
}

test("reverse: a destination that is not listed is refused at once, without a DNS query", async () => {
  await using bed = await Bed.open({ allowedDestinations: ["127.0.0.1:1"] });
  await bed.agent();
  const { listener, localPort } = await listenFor(bed, "no-such-host.invalid:443");
  await using _listener = listener;
  const started = performance.now();
  assert.equal(await fateAt(localPort), "ECONNRESET");
  assert.ok(performance.now() - started < 500);
  assert.equal(bed.serverCounts.get("reverse denied"), 1);
  assert.equal(bed.agentCounts.get("reverseFailed denied"), 1);
  await idle(bed);
});

test("reverse: off on the server, off on the agent, an upstream server: each fails at once", async () => {
  for (const options of [
    {},
    { serverCapabilities: new Set<never>(), allowedDestinations: ["127.0.0.1:1"] },
    { agentCapabilities: new Set<never>(), allowedDestinations: ["127.0.0.1:1"] },
  ]) {
    await using bed = await Bed.open(options);
    await bed.agent();
    const { listener, localPort } = await listenFor(bed, "127.0.0.1:1");
    await using _listener = listener;
    const started = performance.now();
    assert.equal(await fateAt(localPort), "ECONNRESET");
    assert.ok(performance.now() - started < 500);
    await idle(bed);
  }
});

test("reverse: a client outside the allowed sources, and one without a server, are reset", async () => {
  await using bed = await Bed.open({ allowedDestinations: ["127.0.0.1:1"] });
  const lonely = await listenFor(bed, "127.0.0.1:1");
  await using _lonely = lonely.listener;
  assert.equal(lonely.listener.hasServer, false);
  assert.equal(await fateAt(lonely.localPort), "ECONNRESET");
  assert.equal(bed.agentCounts.get("reverseFailed no_server"), 1);
  await bed.agent();
  assert.equal(lonely.listener.hasServer, true);
  const choosy = await listenFor(bed, "127.0.0.1:1", ["192.0.2.0/24"], "192.0.2.1");
  await using _choosy = choosy.listener;
  assert.equal(await fateAt(choosy.localPort), "ECONNRESET");
  assert.equal(bed.agentCounts.get("reverseFailed source"), 1);
  const own = await listenFor(bed, "127.0.0.1:1", ["192.0.2.0/24"]);
  await using _own = own.listener;
  assert.equal(await fateAt(own.localPort), "ECONNRESET");
  assert.deepEqual(
    ["source", "dial"].map((reason) => bed.agentCounts.get(`reverseFailed ${reason}`)),
    [1, 1],
    "the machine itself is let in, and nobody is there",
  );
  await idle(bed);
});

test("reverse: the link's end resets the node's clients, and the endpoint's sockets are gone", async () => {
  await using endpointBed = await Bed.open();
  const sockets: Socket[] = [];
  const port = await endpointBed.endpoint((socket) => {
    sockets.push(socket);
    socket.on("end", () => socket.end());
    socket.write("hello");
    socket.resume();
  });
  await using bed = await Bed.open({ allowedDestinations: [`127.0.0.1:${port}`] });
  const agent = await bed.agent();
  const { listener, localPort } = await listenFor(bed, `127.0.0.1:${port}`);
  await using _listener = listener;
  const socket = await dial(localPort);
  assert.equal(String(await once(socket, "data")), "hello");
  agent.mux.destroy({ code: 14, message: "the test ends it" });
  assert.match(await fate(socket), /ECONNRESET|closed/);
  await idle(bed);
  for (const deadline = performance.now() + 2000; sockets.some((one) => !one.destroyed); ) {
    assert.ok(performance.now() < deadline, "the endpoint's socket is open");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
});

test("reverse and forward at once: equal low ids of dials and connections do not collide", async () => {
  await using endpointBed = await Bed.open();
  const port = await endpointBed.endpoint((socket) => socket.pipe(socket));
  await using bed = await Bed.open({ allowedDestinations: [`127.0.0.1:${port}`] });
  await bed.agent();
  const { listener, localPort } = await listenFor(bed, `127.0.0.1:${port}`);
  await using _listener = listener;
  await Promise.all(
    Array.from({ length: 20 }, async (_, at) => {
      const message = `message ${at}`;
      const socket = await dial(localPort);
      socket.write(message);
      const forward = await TunnelClient.open(await bed.socket(bed.frontendPort));
      const chunks: Uint8Array[] = [];
      forward.onBytes = (piece) => chunks.push(piece);
      await forward.dial(`127.0.0.1:${port}`);
      forward.write(Buffer.from(`forward ${at}`));
      assert.equal(String(await once(socket, "data")), message);
      await forward.until(() => forward.received === `forward ${at}`.length);
      assert.equal(Buffer.concat(chunks).toString(), `forward ${at}`);
      socket.destroy();
      forward.close();
      await forward.closed();
    }),
  );
  await idle(bed);
});

test("reverse: 250 dials at once on two streams of an agent open no more connections than its limit, and closed ones free places", async () => {
  await using endpointBed = await Bed.open();
  const port = await endpointBed.endpoint((socket) => socket.on("end", () => socket.end()).resume());
  const address = `127.0.0.1:${port}`;
  await using bed = await Bed.open({ allowedDestinations: [address, "127.0.0.1:1"], reverseMaxConnections: 10 });
  await bed.agent("same");
  await bed.agent("same");
  const { listener, localPort } = await listenFor(bed, address);
  await using _listener = listener;
  for (let round = 0; round < 3; round += 1) {
    const already = bed.serverCounts.get("reverse limited");
    const sockets = Array.from({ length: 250 }, () => connect({ port: localPort, host: "127.0.0.1" }));
    let refused = 0;
    for (const socket of sockets) {
      socket
        .on("error", () => undefined)
        .on("close", () => {
          refused += 1;
        });
      socket.resume();
    }
    await until(() => refused === 240);
    assert.equal(bed.serverCounts.get("reverseConnections"), 10);
    assert.equal(bed.serverCounts.get("reverse limited") - already, 240);
    for (const socket of sockets) socket.destroy();
    await idle(bed);
  }
  // Failed dials free their places too.
  const failing = await listenFor(bed, "127.0.0.1:1");
  await using _failing = failing.listener;
  for (let at = 0; at < 30; at += 1) assert.match(await fateAt(failing.localPort), /ECONNRESET|closed/);
  // Each is tried on the other stream too.
  assert.equal(bed.serverCounts.get("reverse dial_error"), 60);
  const sockets = await Promise.all(Array.from({ length: 10 }, () => dial(localPort)));
  await until(() => bed.serverCounts.get("reverseConnections") === 10);
  for (const socket of sockets) socket.destroy();
  await idle(bed);
});

async function until(condition: () => boolean): Promise<void> {
  for (const deadline = performance.now() + 10_000; !condition(); ) {
    assert.ok(performance.now() < deadline, "not in time");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
