// own process: it replaces the timers of its process
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { IpAddress } from "#base/ip";
import { resetSocket } from "#base/socket-reset";
import { connectTcp, UnixListener, UnixStream } from "#kernel/reactor";
import { CLOSE_LINGER_MS } from "../mux/options.ts";
import type { LocalHandlers } from "./local-side.ts";
import { StreamSide } from "./stream-side.ts";

/** A stream and its peer. */
async function pair(t: TestContext): Promise<{ readonly side: StreamSide; readonly peer: Socket }> {
  const accepted = Promise.withResolvers<Socket>();
  const server = createServer({ allowHalfOpen: true }, accepted.resolve);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const stream = await connectTcp({ address: IpAddress.parse("127.0.0.1"), port }, { losesWhilePaused: true });
  const peer = await accepted.promise;
  peer.on("error", () => undefined);
  t.after(() => {
    server.close();
    peer.destroy();
    stream.destroy();
  });
  return { side: new StreamSide(stream), peer };
}

/** A stream of a UNIX socket and its peer. */
async function unixPair(t: TestContext): Promise<{ readonly side: StreamSide; readonly peer: Socket }> {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-side-"));
  const accepted = Promise.withResolvers<number>();
  const listener = UnixListener.listen(
    join(folder, "socket"),
    { umask: 0o077 },
    { onClient: accepted.resolve, onFault: accepted.reject, onError: accepted.reject },
  );
  const peer = connect({ path: listener.path, allowHalfOpen: true });
  peer.on("error", () => undefined);
  const stream = UnixStream.adopt(await accepted.promise);
  t.after(() => {
    listener.close();
    peer.destroy();
    stream.destroy();
    rmSync(folder, { recursive: true });
  });
  return { side: new StreamSide(stream, { detectsClose: true }), peer };
}

const IDLE: LocalHandlers = { onLocalData: () => undefined, onLocalEof: () => undefined, onLocalGone: () => undefined };

for (const unread of [0, 1 << 20]) {
  test(`StreamSide: a reset of a paused stream is detected at once, with ${unread} bytes unread`, async (t) => {
    const { side, peer } = await pair(t);
    const gone = Promise.withResolvers<string | undefined>();
    side.start({
      onLocalData: () => side.pause(),
      onLocalEof: () => gone.reject(new Error("no end")),
      onLocalGone: gone.resolve,
    });
    side.pause();
    if (unread > 0) await new Promise((resolve) => peer.write(Buffer.alloc(unread), resolve));
    resetSocket(peer);
    assert.equal(await gone.promise, "connection reset by peer");
  });
}

test("StreamSide: bytes that are kept stay as they came, although reads share a buffer", async (t) => {
  const { side, peer } = await pair(t);
  const kept: Uint8Array[] = [];
  const ended = Promise.withResolvers<void>();
  side.start({ ...IDLE, onLocalData: (pieces) => void kept.push(...pieces), onLocalEof: ended.resolve });
  const sent: Buffer[] = [];
  for (let at = 0; at < 64; at += 1) {
    const block = Buffer.alloc(50_000 + at, at);
    sent.push(block);
    peer.write(block);
  }
  peer.end();
  await ended.promise;
  assert.deepEqual(Buffer.concat(kept), Buffer.concat(sent));
});

test("StreamSide: writes keep their order, and are confirmed when the kernel has them", async (t) => {
  const { side, peer } = await pair(t);
  side.start(IDLE);
  const confirmed: number[] = [];
  const total = 40;
  // The peer does not read: the kernel holds some megabytes at most.
  for (let at = 0; at < total; at += 1) {
    side.write([Buffer.alloc(200_000, at), Buffer.alloc(100_000, at)], () => void confirmed.push(at));
  }
  assert.ok(confirmed.length < total, `${confirmed.length}`);
  const before = side.bytesWritten;
  const flushed = Promise.withResolvers<void>();
  side.finish(undefined, flushed.resolve);
  let received = 0;
  peer.on("data", (chunk: Buffer) => {
    for (const at of [0, chunk.length - 1]) assert.equal(chunk[at], Math.floor((received + at) / 300_000));
    received += chunk.length;
  });
  await Promise.all([flushed.promise, once(peer, "end")]);
  assert.deepEqual(
    confirmed,
    Array.from({ length: total }, (_, at) => at),
  );
  assert.deepEqual([received, side.bytesWritten], [total * 300_000, total * 300_000]);
  assert.ok(before < side.bytesWritten);
});

for (const kind of ["TCP", "UNIX"] as const) {
  test(`StreamSide: each write is confirmed when the kernel has it, also while later ones wait for a slow reader, over ${kind}`, async (t) => {
    const { side, peer } = await (kind === "TCP" ? pair(t) : unixPair(t));
    side.start(IDLE);
    let confirmed = 0;
    // The peer does not read: the kernel holds some megabytes at most.
    for (let at = 0; at < 320; at += 1) {
      side.write([Buffer.alloc(64 * 1024, at)], () => {
        confirmed += 1;
      });
    }
    const before = confirmed;
    let left = 8 * 1024 * 1024;
    const take = (): void => {
      for (let chunk: Buffer | null = peer.read(); chunk !== null && left > 0; chunk = peer.read())
        left -= chunk.length;
      if (left <= 0) peer.off("readable", take);
    };
    peer.on("readable", take);
    const least = Math.floor(side.bytesWritten / 65_536) + 60;
    for (const deadline = performance.now() + 10_000; confirmed < least; ) {
      assert.ok(
        performance.now() < deadline,
        `${before}, then ${confirmed} of 320 are confirmed, with ${left} bytes left to read`,
      );
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.ok(confirmed < 320 && confirmed * 65_536 <= side.bytesWritten);
    // The last ones are confirmed when the connection has ended.
    side.destroy("reset");
    while (confirmed < 320) await new Promise((resolve) => setTimeout(resolve, 10));
  });
}

test("StreamSide: a peer that still sends gets the last bytes of a stream that is closed", async (t) => {
  const { side, peer } = await pair(t);
  side.start(IDLE);
  const flushed = Promise.withResolvers<void>();
  side.write([Buffer.from("last")], () => undefined);
  side.finish(undefined, flushed.resolve);
  await flushed.promise;
  peer.write(Buffer.alloc(1000));
  side.destroy("close");
  const [bytes] = (await once(peer, "data")) as [Buffer];
  assert.equal(bytes.toString(), "last");
  peer.end();
  await once(peer, "close");
  assert.equal(peer.errored, null);
});

test("StreamSide: an end after an error of the other side resets the connection if nothing waits", async (t) => {
  const { side, peer } = await pair(t);
  side.start(IDLE);
  let isFlushed = false;
  side.finish("the link was lost", () => {
    isFlushed = true;
  });
  assert.equal(isFlushed, true);
  await new Promise((resolve) => peer.resume().once("close", resolve));
  assert.equal((peer.errored as NodeJS.ErrnoException | null)?.code, "ECONNRESET");
});

test("StreamSide: the close of a watched peer is told, and its end of sending before it; the bytes before are passed on", async (t) => {
  const { side, peer } = await unixPair(t);
  const told: string[] = [];
  const gone = Promise.withResolvers<void>();
  side.watch(
    {
      onLocalEof: () => told.push("end"),
      onLocalGone: () => {
        told.push("gone");
        gone.resolve();
      },
    },
    [Buffer.from("early ")],
  );
  await new Promise((resolve) => peer.write("late", resolve));
  peer.end();
  while (told.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(told, ["end"]);
  peer.destroy();
  await gone.promise;
  const bytes: Uint8Array[] = [];
  const late = Promise.withResolvers<string | undefined>();
  side.start({ ...IDLE, onLocalData: (pieces) => void bytes.push(...pieces), onLocalGone: late.resolve });
  assert.equal(await late.promise, "broken pipe");
  assert.deepEqual([told, Buffer.concat(bytes).toString()], [["end", "gone"], "early late"]);
});

test("StreamSide: a peer that sends without end before the start is read to a bound only", async (t) => {
  const { side, peer } = await unixPair(t);
  side.watch({ onLocalEof: () => undefined, onLocalGone: () => undefined }, []);
  peer.write(Buffer.alloc(8 << 20));
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.ok(peer.writableLength > 6 << 20, `${peer.writableLength} bytes are left`);
  let received = 0;
  const all = Promise.withResolvers<void>();
  side.start({
    ...IDLE,
    onLocalData: (pieces) => {
      for (const { length } of pieces) received += length;
      if (received === 8 << 20) all.resolve();
    },
  });
  await all.promise;
});

test("StreamSide: a peer that sends byte for byte before the start is read to a bound too, and all of it comes", async (t) => {
  const { side, peer } = await unixPair(t);
  side.watch({ onLocalEof: () => undefined, onLocalGone: () => undefined }, []);
  const total = 3000;
  // Each of them is a read.
  for (let at = 0; at < total; at += 1) {
    peer.write(Buffer.of(at));
    await new Promise((resolve) => setImmediate(resolve));
  }
  const reads: number[] = [];
  const bytes: Uint8Array[] = [];
  const all = Promise.withResolvers<void>();
  side.start({
    ...IDLE,
    onLocalData: (pieces) => {
      reads.push(pieces.length);
      bytes.push(...pieces);
      if (Buffer.concat(bytes).length === total) all.resolve();
    },
  });
  await all.promise;
  assert.equal(reads[0], 1024);
  assert.deepEqual(Buffer.concat(bytes), Buffer.from(Array.from({ length: total }, (_, at) => at)));
});

test("StreamSide: the bytes of a peer that has closed are read however slowly the tunnel takes them", async (t) => {
  const { side, peer } = await unixPair(t);
  let received = 0;
  const gone = Promise.withResolvers<string | undefined>();
  side.start({
    ...IDLE,
    onLocalData: (pieces) => {
      for (const { length } of pieces) received += length;
      side.pause();
      setTimeout(() => side.resume(), 300);
    },
    onLocalGone: gone.resolve,
  });
  side.pause();
  await new Promise((resolve) => peer.write(Buffer.alloc(100_000), resolve));
  peer.destroy();
  await new Promise((resolve) => setTimeout(resolve, 1500));
  side.resume();
  await gone.promise;
  assert.equal(received, 100_000);
});

test("StreamSide: a peer that has closed is given up when the tunnel takes nothing of it for the linger", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { side, peer } = await unixPair(t);
  const gone = Promise.withResolvers<string | undefined>();
  side.start({ ...IDLE, onLocalGone: gone.resolve });
  side.pause();
  await new Promise((resolve) => peer.write(Buffer.alloc(100_000), resolve));
  peer.destroy();
  await once(peer, "close");
  for (let at = 0; at < 20; at += 1) await new Promise((resolve) => setImmediate(resolve));
  t.mock.timers.tick(CLOSE_LINGER_MS - 1);
  let isGone = false;
  void gone.promise.then(() => {
    isGone = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isGone, false);
  t.mock.timers.tick(1);
  await gone.promise;
});

test("StreamSide: an end after an error of the other side is no end in order for a peer that has bytes to read", async (t) => {
  const { side, peer } = await pair(t);
  side.start(IDLE);
  let isWritten = false;
  side.write([Buffer.alloc(64 << 20)], () => {
    isWritten = true;
  });
  assert.equal(isWritten, false);
  side.finish("the link was lost", () => side.destroy("reset"));
  peer.once("end", () => assert.fail("an end in order"));
  await new Promise((resolve) => peer.resume().once("close", resolve));
  assert.equal(isWritten, true);
  assert.equal((peer.errored as NodeJS.ErrnoException | null)?.code, "ECONNRESET");
});
