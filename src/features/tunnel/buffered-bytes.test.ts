/** docs/spec/tunnel.md#8.4, #8.8: what happens above `--max-buffered-bytes`. */
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { frameData } from "#wire/konnectivity";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

const MIB = 1024 * 1024;
const LIMIT = 8 * MIB;
/** The kernel's part of bytes that an endpoint does not read: little, whatever tcp_rmem of the machine is. */
const ENDPOINT_BUFFER = 64 * 1024;
/** More uploads than the server may hold: each one that nobody reads holds its first credit, a quarter of a MiB, of a limit of 2 MiB. */
const UPLOADS = 12;

async function until(what: string, condition: () => boolean, ms = 30_000): Promise<void> {
  const deadline = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function client(bed: Bed): Promise<TunnelClient> {
  return TunnelClient.open(await bed.socket(bed.frontendPort));
}

/** Dials until it succeeds: those that were paused go on below the limit, so that it is passed again until further ones end. */
async function opened(bed: Bed, port: number): Promise<TunnelClient> {
  for (const deadline = performance.now() + 30_000; ; ) {
    const one = await client(bed);
    const { kind } = await one.dial(`127.0.0.1:${port}`);
    if (kind === "open") return one;
    assert.ok(performance.now() < deadline, "all dials are refused for 30 s");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Sends for as long as its client takes it. */
function source(socket: Socket): void {
  const block = Buffer.alloc(256 * 1024, 7);
  const more = (): void => {
    while (!socket.destroyed && socket.write(block)) {
      // until the socket is full
    }
  };
  socket.on("drain", more);
  socket.resume();
  more();
}

for (const flowControl of [true, false]) {
  test(`tunnel: readers that stand still and hold all that the server may hold, ${flowControl ? "with" : "without"} credit, cost no agent its link`, async () => {
    await using bed = await Bed.open({
      ...(flowControl ? {} : { agentCapabilities: new Set<never>() }),
      ...{ maxBufferedBytes: LIMIT, slowConsumerGraceMs: 1000 },
    });
    let most = 0;
    const note = (): void => {
      most = Math.max(most, bed.proxy.budget.used);
    };
    const timer = setInterval(note, 1);
    using _ = { [Symbol.dispose]: () => clearInterval(timer) };
    const endless = await bed.endpoint(source);
    // Without credit a link is paused by one reader with 2 MiB. These have somewhat less, beside what their own windows hold.
    const some = await bed.endpoint((socket) => void socket.write(Buffer.alloc(2.3 * MIB, 7)));
    const a = await bed.agent("a");
    const readers: TunnelClient[] = [];
    for (let at = 0; at < 10; at += 1) {
      const reader = await client(bed);
      if ((await reader.dial(`127.0.0.1:${flowControl ? endless : some}`)).kind !== "open") break;
      readers.push(reader);
      // Credit grows while a reader keeps up.
      if (flowControl) await reader.until(() => reader.received > 3 * MIB || reader.isEnded);
      reader.pause();
    }
    const b = await bed.agent("b");
    a.mux.drain();
    await until("a is left alone", () => bed.proxy.backends.all.some(({ isDraining }) => isDraining) || a.mux.isClosed);
    const download = await opened(bed, endless);
    await download.until(() => download.received > 64 * MIB || download.isEnded);
    assert.ok(download.received > 64 * MIB, `${download.received} bytes of the download came`);
    assert.deepEqual([a.mux.isClosed, b.mux.isClosed], [false, false]);
    assert.ok(most > LIMIT && most < LIMIT + 2 * MIB, `${most} bytes were held`);
    assert.ok(readers.some(({ isEnded }) => isEnded) && readers.some(({ isEnded }) => !isEnded));
    assert.deepEqual(bed.bugs, []);
  });
}

test("tunnel: connections that have ended, and whose last bytes nobody reads, end above the limit", async () => {
  await using bed = await Bed.open({ maxBufferedBytes: 2 * MIB, slowConsumerGraceMs: 300 });
  const lost = await bed.agent("a");
  const port = await bed.endpoint(source);
  const readers = await Promise.all(Array.from({ length: 6 }, () => client(bed)));
  for (const reader of readers) {
    assert.equal((await reader.dial(`127.0.0.1:${port}`)).kind, "open");
    reader.pause();
  }
  await until("each holds its credit", () => bed.proxy.budget.used > MIB);
  lost.mux.destroy({ code: 14, message: "the test ends it" });
  await until("all connections end", () => bed.proxy.backends.isEmpty);
  assert.ok(bed.proxy.budget.used > MIB, `${bed.proxy.budget.used} bytes`);
  await bed.agent("b");
  // Others fill the rest.
  const more = await Promise.all(Array.from({ length: 6 }, () => client(bed)));
  for (const reader of more) {
    await reader.dial(`127.0.0.1:${port}`);
    reader.pause();
  }
  // Mostly the oldest, but a window that grows late counts as progress.
  const all = [...readers, ...more];
  await until("some end", () => all.some(({ isEnded }) => isEnded) && bed.proxy.budget.used <= 2 * MIB);
  await opened(bed, port);
  assert.deepEqual(bed.bugs, []);
});

test("tunnel: a peer that does not finish its messages, and no reader, is ended above the limit", async () => {
  await using bed = await Bed.open({ maxBufferedBytes: 2 * MIB, slowConsumerGraceMs: 1000 });
  const good = await bed.rawAgent("good");
  const evil = await bed.rawAgent("evil");
  const part = Buffer.concat([frameData(1, 3 * MIB), Buffer.alloc(2 * MIB + 1)]);
  evil.sendRaw(part);
  await until("too much is held", () => bed.proxy.budget.used > 2 * MIB);
  assert.equal((await (await client(bed)).dial("10.0.0.1:1")).kind, "refused");
  assert.equal(evil.isEnded, false);
  await evil.until(() => evil.isEnded);
  assert.equal(bed.proxy.budget.used, 0);
  assert.equal(good.isEnded, false);
  assert.deepEqual(bed.bugs, []);
});

test("tunnel: a dial of the peer is refused above the limit", async () => {
  const endpoints = await Bed.open();
  await using _ = endpoints;
  const port = await endpoints.endpoint((socket) => socket.resume());
  await using bed = await Bed.open({ maxBufferedBytes: MIB, allowedDestinations: [`127.0.0.1:${port}`] });
  const hog = await bed.rawAgent("hog");
  hog.sendRaw(Buffer.concat([frameData(1, 3 * MIB), Buffer.alloc(MIB + 1)]));
  await until("too much is held", () => bed.proxy.budget.used > MIB);
  const agent = await bed.rawAgent("a", ["reverse/1"]);
  assert.deepEqual(await agent.dial(`127.0.0.1:${port}`), { kind: "refused", error: "too many connections" });
});

for (const flowControl of [true, false]) {
  test(`tunnel: uploads that nobody reads and hold all that the server may hold end too, ${flowControl ? "with" : "without"} credit`, async () => {
    await using bed = await Bed.open({
      ...(flowControl ? {} : { agentCapabilities: new Set<never>() }),
      ...{ maxBufferedBytes: 2 * MIB, endpointBufferBytes: ENDPOINT_BUFFER, slowConsumerGraceMs: 1000 },
    });
    await bed.agent("a");
    const port = await bed.endpoint((socket) => void socket.pause());
    const echo = await bed.endpoint((socket) => socket.pipe(socket));
    const ended = (one: TunnelClient): boolean => one.isEnded || one.closeResponse !== undefined;
    const uploads: TunnelClient[] = [];
    // The first bytes of an upload may be above the limit for a moment and have a dial refused: only those that stay count.
    while (uploads.length < UPLOADS && !uploads.some(ended)) {
      const upload = await opened(bed, port);
      uploads.push(upload);
      for (let sent = 0; sent < 12; sent += 1) upload.write(Buffer.alloc(MIB));
    }
    await until("some end", () => uploads.some(ended));
    await until("the others are within the limit", () => !bed.proxy.budget.isOver);
    // Without credit the agent may be the first that holds too much, and ends an upload before the server does.
    const endsByAgent = uploads.filter(({ closeResponse }) => closeResponse?.error === "slow consumer").length;
    await until("an end is counted", () => bed.serverCounts.get("slow") + (flowControl ? 0 : endsByAgent) > 0);
    assert.equal(bed.proxy.backends.all.length, 1);
    assert.ok(!uploads.every(ended));
    const one = await opened(bed, echo);
    one.write(Buffer.from("hello"));
    await one.until(() => one.received === 5);
    assert.deepEqual(bed.bugs, []);
  });
}

test("tunnel: uploads that nobody reads end above the limit beside a client that reads on", async () => {
  await using bed = await Bed.open({
    maxBufferedBytes: 2 * MIB,
    endpointBufferBytes: ENDPOINT_BUFFER,
    slowConsumerGraceMs: 1000,
  });
  await bed.agent("a");
  const port = await bed.endpoint((socket) => void socket.pause());
  const endless = await bed.endpoint(source);
  const uploads: TunnelClient[] = [];
  for (let at = 0; at < 24; at += 1) uploads.push(await opened(bed, port));
  const download = await opened(bed, endless);
  for (const upload of uploads) for (let sent = 0; sent < 12; sent += 1) upload.write(Buffer.alloc(MIB));
  const ended = (one: TunnelClient): boolean => one.isEnded || one.closeResponse !== undefined;
  await until("some end", () => uploads.some(ended));
  await until("the others are within the limit", () => !bed.proxy.budget.isOver);
  assert.equal(ended(download), false);
  const before = download.received;
  await download.until(() => download.received > before + 16 * MIB || ended(download));
  assert.equal(ended(download), false);
  assert.deepEqual(bed.bugs, []);
});
