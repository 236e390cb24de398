/** CONNECT clients that close while the endpoint goes on (docs/spec/tunnel.md#5.6, #6). */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Bed, type BedOptions } from "./testing/bed.ts";

/** Polls a condition; resolves with how long it took, in milliseconds. */
async function until(what: string, condition: () => boolean, ms = 10_000): Promise<number> {
  const started = performance.now();
  while (!condition()) {
    if (performance.now() - started > ms) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return performance.now() - started;
}

function isIdle(bed: Bed): boolean {
  return (
    bed.serverCounts.get("established") + bed.agentCounts.get("endpoints") + bed.proxy.budget.used === 0 &&
    bed.agents.every(({ mux }) => mux.connections === 0)
  );
}

/** A client whose tunnel is open. */
async function tunnel(where: { readonly path: string } | { readonly port: number }, port: number): Promise<Socket> {
  const socket = connect({ ...where, allowHalfOpen: true });
  socket.on("error", () => undefined);
  socket.write(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`);
  await once(socket, "data");
  return socket;
}

const AGENTS: readonly { readonly whose: string; readonly options: BedOptions }[] = [
  { whose: "of ours", options: {} },
  { whose: "of Konnectivity", options: { agentCapabilities: new Set<never>() } },
];

for (const { whose, options } of AGENTS) {
  test(`CONNECT: clients on a UNIX socket that close end their connections at once, agent ${whose}, the endpoint goes on`, async () => {
    await using bed = await Bed.open(options);
    await bed.agent();
    // It reads, and never closes.
    const port = await bed.endpoint((socket) => socket.resume());
    const path = await bed.connectPath();
    const clients = await Promise.all(Array.from({ length: 100 }, () => tunnel({ path }, port)));
    // Half of them end their sending first.
    for (const [at, client] of clients.entries()) if (at % 2 === 0) client.end();
    await until(
      "half of them have ended their sending",
      () => clients.filter((one) => one.writableFinished).length === 50,
    );
    for (const client of clients) client.destroy();
    const took = await until("nothing is left", () => isIdle(bed));
    assert.ok(took < 2000, `${took.toFixed(0)} ms`);
    assert.deepEqual(bed.bugs, []);
  });

  test(`CONNECT: bytes that a client on a UNIX socket has sent arrive although it has closed, agent ${whose}`, async () => {
    await using bed = await Bed.open(options);
    await bed.agent();
    const sent = randomBytes(16 * 1024 * 1024);
    const got = createHash("sha256");
    const ended = Promise.withResolvers<void>();
    const port = await bed.endpoint((socket) => {
      socket.on("data", (chunk: Buffer) => {
        got.update(chunk);
        socket.pause();
        setTimeout(() => socket.resume(), 2);
      });
      socket.once("end", () => ended.resolve());
    });
    const client = await tunnel({ path: await bed.connectPath() }, port);
    await new Promise<void>((resolve) => client.write(sent, () => resolve()));
    client.destroy();
    await ended.promise;
    assert.equal(got.digest("hex"), createHash("sha256").update(sent).digest("hex"));
    await until("nothing is left", () => isIdle(bed));
    assert.deepEqual(bed.bugs, []);
  });
}

test("CONNECT: a client over TCP that closes ends its connection after the half-close timeout, and not while bytes come", async () => {
  await using bed = await Bed.open({ halfCloseTimeoutMs: 300 });
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.resume());
  const gone = await tunnel({ port: bed.connectPort }, port);
  gone.destroy();
  await until("nothing is left", () => isIdle(bed), 3000);
  let sent = 0;
  const talking = await bed.endpoint((socket) => {
    const timer = setInterval(() => {
      sent += 1;
      socket.write("x");
      if (sent < 10) return;
      clearInterval(timer);
      socket.end();
    }, 100);
  });
  const listener = await tunnel({ port: bed.connectPort }, talking);
  let received = 0;
  listener.on("data", (chunk: Buffer) => {
    received += chunk.length;
  });
  listener.end();
  await once(listener, "end");
  assert.equal(received, 10);
});

test("CONNECT: a client on a UNIX socket that has ended its sending is served for longer than the half-close timeout", async () => {
  await using bed = await Bed.open({ halfCloseTimeoutMs: 50 });
  await bed.agent();
  const port = await bed.endpoint((socket) => {
    socket.resume();
    socket.once("end", () => setTimeout(() => socket.end("late"), 500));
  });
  const client = await tunnel({ path: await bed.connectPath() }, port);
  client.end();
  const [answer] = (await once(client, "data")) as [Buffer];
  assert.equal(answer.toString(), "late");
  await until("nothing is left", () => isIdle(bed));
});

test("CONNECT: a client on a UNIX socket that half-closes and pauses before it reads gets all bytes and then the end", async () => {
  const clock = new FakeClock();
  await using bed = await Bed.open({ clock });
  await bed.agent();
  // More than the client's socket and the window take, and so little that the agent reads all of it.
  const total = 560 * 1024;
  let isClosed = false;
  const port = await bed.endpoint((socket) => {
    socket.resume();
    socket.once("end", () => socket.end(Buffer.alloc(total, 7)));
    socket.once("close", () => {
      isClosed = true;
    });
  });
  const client = await tunnel({ path: await bed.connectPath() }, port);
  client.pause();
  client.end();
  await until("the endpoint is done", () => isClosed);
  assert.equal(bed.agents[0]?.mux.connections, 1, "bytes wait at the agent");
  await clock.advance(25_000);
  let received = 0;
  client.on("data", (chunk: Buffer) => {
    received += chunk.length;
  });
  await Promise.all([client.resume(), once(client, "end")]);
  assert.equal(received, total);
  await until("nothing is left", () => isIdle(bed));
  assert.deepEqual(bed.bugs, []);
});
