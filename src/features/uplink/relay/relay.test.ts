import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { resetSocket } from "#base/socket-reset";
import { C, setsockopt } from "#kernel/ffi";
import { connectTcp, TcpStream } from "#kernel/reactor";
import { clientHello, listenerFor, serverFor, TestClient } from "../testing/proxy-fixtures.ts";
import { type ByteCount, Tunnel, type TunnelEnd, TunnelWatch } from "./index.ts";
import { TlsRecords } from "./tls-records.ts";

const TIMEOUT = { timeout: 20_000 };
const LOOPBACK = IpAddress.parse("127.0.0.1");
const OPTIONS = {
  idleTimeoutMs: 30_000,
  halfCloseTimeoutMs: 20_000,
  firstByteTimeoutMs: 5000,
  replayBytes: 65_536,
  bufferBytes: 65_536,
};

/** A tunnel between a test's client and a test's server, both real sockets of loopback; time is the test's. */
class Bed {
  readonly clock = new FakeClock();
  readonly total: ByteCount = { up: 0, down: 0 };
  readonly told: string[] = [];
  readonly client: TestClient;
  readonly near: TcpStream;
  readonly tunnel: Tunnel;
  readonly upstream: TcpStream;
  readonly far: TestClient;
  readonly watch: TunnelWatch;
  end: TunnelEnd | undefined;

  private constructor(client: TestClient, near: TcpStream, upstream: TcpStream, far: TestClient) {
    this.client = client;
    this.near = near;
    this.upstream = upstream;
    this.far = far;
    this.watch = new TunnelWatch(this.clock);
    const deps = { watch: this.watch, total: this.total };
    this.tunnel = new Tunnel(near, upstream, deps, OPTIONS, {
      onFirstByte: () => this.told.push("first byte"),
      onSilent: () => this.told.push("silent"),
      onClosed: (end) => {
        assert.equal(this.end, undefined, "closed twice");
        this.end = end;
      },
    });
  }

  static async open(t: TestContext, early: readonly Uint8Array[] = []): Promise<Bed> {
    const [near, client] = await pair(t);
    const { upstream, far } = await upstreamPair(t);
    const bed = new Bed(client, near, upstream, far);
    bed.tunnel.start(early);
    return bed;
  }

  async closed(): Promise<TunnelEnd> {
    while (this.end === undefined) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(this.watch.size, 0);
    return this.end;
  }

  /** The monotonic time at which the watch has ended the tunnel. */
  async endedBy(untilMs: number): Promise<number> {
    while (this.end === undefined && this.clock.monotonic() < untilMs) await this.clock.advance(100);
    return this.clock.monotonic();
  }
}

/** The proxy's side of a client, and the client. */
async function pair(t: TestContext): Promise<[near: TcpStream, client: TestClient]> {
  const accepted = Promise.withResolvers<TcpStream>();
  const { port } = listenerFor(t, (fd, remote) => accepted.resolve(TcpStream.adopt(fd, remote)));
  const client = await TestClient.to(t, port);
  const near = await accepted.promise;
  t.after(() => near.destroy());
  return [near, client];
}

/** A connected upstream, and the destination's side of it. */
async function upstreamPair(t: TestContext): Promise<{ upstream: TcpStream; far: TestClient }> {
  const accepted = Promise.withResolvers<Socket>();
  const { port } = await serverFor(t, (socket) => accepted.resolve(socket));
  const upstream = await connectTcp({ address: LOOPBACK, port });
  t.after(() => upstream.destroy());
  return { upstream, far: new TestClient(await accepted.promise) };
}

/** RST although bytes wait to be sent, which Node's own sockets cannot: SO_LINGER (13) of no time. */
function resetAtOnce(socket: Socket): void {
  const { _handle: handle } = socket as unknown as { readonly _handle: { readonly fd: number } };
  setsockopt(handle.fd, C.SOL_SOCKET, 13, new Uint8Array(new Int32Array([1, 0]).buffer));
  socket.destroy();
}

test(
  "Tunnel: between its end and the news of it no silence is told of, and no other upstream is taken",
  TIMEOUT,
  async (t) => {
    for (const how of ["close", "client", "upstream"] as const) {
      const bed = await Bed.open(t);
      const hello = clientHello("a.example");
      bed.client.socket.write(hello);
      await bed.far.until(({ text }) => text.length === hello.length);
      assert.ok(bed.tunnel.canReplay);
      if (how === "close") bed.tunnel.close("error");
      else if (how === "client") bed.near.destroy();
      else bed.upstream.destroy();
      bed.tunnel.check(bed.clock.monotonic() + OPTIONS.firstByteTimeoutMs);
      assert.deepEqual([bed.told, bed.tunnel.canReplay], [[], false]);
      await bed.closed();
      assert.deepEqual(bed.told, []);
    }
  },
);

test("Tunnel: early bytes first, then both ways, counted as they pass", TIMEOUT, async (t) => {
  const bed = await Bed.open(t, [Buffer.from("early ")]);
  bed.client.write("late");
  assert.equal(await bed.far.read("early late"), "early late");
  bed.far.write("answer");
  await bed.client.read("answer");
  assert.deepEqual(bed.tunnel.bytes, { up: 10, down: 6 });
  assert.deepEqual(bed.total, { up: 10, down: 6 });
  assert.deepEqual(bed.told, ["first byte"]);
});

test(
  "Tunnel: the end of the client's sending reaches the destination, whose answer still arrives",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    bed.client.write("request");
    bed.client.socket.end();
    await bed.far.until(({ isEnded }) => isEnded);
    bed.far.write("answer");
    bed.far.socket.end();
    await bed.client.until(({ isEnded }) => isEnded);
    assert.equal(bed.client.text, "answer");
    assert.deepEqual(await bed.closed(), { reason: "eof", stalled: false });
  },
);

test("Tunnel: the end of the destination's sending reaches the client, which may go on", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  bed.far.write("banner");
  bed.far.socket.end();
  await bed.client.until(({ isEnded }) => isEnded);
  assert.equal(bed.client.text, "banner");
  bed.client.write("more");
  await bed.far.read("more");
  bed.client.socket.end();
  await bed.far.until(({ isEnded }) => isEnded);
  assert.deepEqual(await bed.closed(), { reason: "eof", stalled: false });
});

test(
  "Tunnel: megabytes that are in flight when the destination ends all arrive, and the buffer goes back",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    const body = randomBytes(8 << 20).toString("latin1");
    bed.client.socket.pause();
    bed.far.write(body);
    bed.far.socket.end();
    while (bed.total.down === 0) await new Promise((resolve) => setImmediate(resolve));
    bed.client.socket.resume();
    await bed.client.until(({ isEnded }) => isEnded);
    assert.ok(bed.client.text === body);
    bed.client.socket.end();
    await bed.closed();
  },
);

test("Tunnel: a reader that stands still stops the sender, not the heap; both ways", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  const block = Buffer.alloc(1 << 20);
  bed.client.socket.pause();
  bed.far.socket.pause();
  // Far more than all kernel buffers on the way hold.
  for (let at = 0; at < 64; at += 1) {
    bed.far.socket.write(block);
    bed.client.socket.write(block);
  }
  let before = { ...bed.total, rounds: 0 };
  while (before.rounds < 50) {
    await new Promise((resolve) => setImmediate(resolve));
    const isStill = before.up === bed.total.up && before.down === bed.total.down;
    before = { ...bed.total, rounds: isStill ? before.rounds + 1 : 0 };
  }
  assert.ok(bed.total.down < 64 << 20 && bed.total.up < 64 << 20);
  assert.ok(bed.upstream.writableLength <= 128 << 10, `${bed.upstream.writableLength}`);
  bed.client.socket.resume();
  bed.far.socket.resume();
  while (bed.total.down < 64 << 20 || bed.total.up < 64 << 20) await new Promise((resolve) => setImmediate(resolve));
});

test("Tunnel: a reset of either side is a reset of the other", TIMEOUT, async (t) => {
  for (const side of ["client", "far"] as const) {
    const bed = await Bed.open(t);
    bed.client.write("x");
    await bed.far.read("x");
    bed.far.write("y");
    await bed.client.read("y");
    resetSocket(bed[side].socket);
    const other = side === "client" ? bed.far : bed.client;
    await other.until(({ isClosed }) => isClosed);
    assert.equal(other.error?.code, "ECONNRESET", side);
    assert.equal((await bed.closed()).reason, "reset", side);
  }
});

test(
  "Tunnel: a reset is one also while bytes wait for the other side, so that no part of something looks whole",
  TIMEOUT,
  async (t) => {
    for (const side of ["client", "far"] as const) {
      const bed = await Bed.open(t);
      const other = side === "client" ? bed.far : bed.client;
      other.socket.pause();
      const queued = side === "client" ? bed.upstream : bed.near;
      for (let at = 0; at < 64; at += 1) bed[side].socket.write(Buffer.alloc(1 << 20));
      while (queued.writableLength === 0) await new Promise((resolve) => setImmediate(resolve));
      resetAtOnce(bed[side].socket);
      // A sender that is stopped does not read: its loss shows when the watch looks, or the reader goes on.
      other.socket.resume();
      await other.until(({ isClosed }) => isClosed);
      assert.equal(other.error?.code, "ECONNRESET", side);
      assert.equal(other.isEnded, false, side);
      assert.equal((await bed.closed()).reason, "reset", side);
    }
  },
);

test(
  "Tunnel: a destination that has said all and is gone takes nothing from a slow client that still sends",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    const body = randomBytes(300_000).toString("latin1");
    bed.client.socket.pause();
    bed.far.socket.end(body, "latin1");
    while (!bed.near.writableFinished) await new Promise((resolve) => setImmediate(resolve));
    // Nobody reads any more at the far side: what the client says is answered with a reset.
    bed.far.socket.destroy();
    while (!bed.upstream.destroyed) {
      bed.client.write("and another thing");
      await new Promise((resolve) => setImmediate(resolve));
    }
    bed.client.socket.resume();
    await bed.client.until(({ isEnded, isClosed }) => isEnded || isClosed);
    assert.ok(bed.client.text === body);
    bed.client.socket.end();
    await bed.closed();
  },
);

test("Tunnel: silence ends it after 30 to 31 s, a byte either way puts that off", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  bed.far.write("banner");
  await bed.client.read("banner");
  await bed.clock.advance(20_300);
  bed.client.write("x");
  await bed.far.read("x");
  const since = bed.clock.monotonic();
  const endedMs = (await bed.endedBy(100_000)) - since;
  assert.ok(endedMs >= 30_000 && endedMs <= 31_000, `${endedMs}`);
  // The client had asked and was still waiting.
  assert.deepEqual(await bed.closed(), { reason: "idle", stalled: true });
  await bed.client.until(({ isEnded }) => isEnded);
});

test("Tunnel: after one side has ended, the other has its own limit", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  bed.client.socket.end();
  await bed.far.until(({ isEnded }) => isEnded);
  const endedMs = await bed.endedBy(100_000);
  assert.ok(endedMs >= 20_000 && endedMs <= 21_000, `${endedMs}`);
  assert.deepEqual(await bed.closed(), { reason: "idle", stalled: false });
});

test(
  "Tunnel: a TLS connection that rests between two records has not stalled, one in the middle of a record has",
  TIMEOUT,
  async (t) => {
    const record = Buffer.concat([Buffer.of(23, 3, 3, 0, 4), Buffer.from("body")]);
    for (const [bytes, stalled] of [
      [record, false],
      [record.subarray(0, 7), true],
    ] as const) {
      const bed = await Bed.open(t);
      bed.client.write("x");
      await bed.far.read("x");
      bed.far.socket.write(bytes);
      await bed.client.until(({ text }) => text.length === bytes.length);
      await bed.endedBy(40_000);
      assert.deepEqual(await bed.closed(), { reason: "idle", stalled });
    }
  },
);

test(
  "Tunnel: a destination that swallows a ClientHello is told of once, and another takes its place unseen",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    const hello = clientHello("a.example");
    bed.client.socket.write(hello.subarray(0, 20));
    await bed.far.until(({ text }) => text.length === 20);
    await bed.clock.advance(4000);
    bed.client.socket.write(hello.subarray(20));
    await bed.far.until(({ text }) => text.length === hello.length);
    await bed.clock.advance(4400);
    assert.deepEqual(bed.told, []);
    await bed.clock.advance(1100);
    assert.deepEqual(bed.told, ["silent"]);
    await bed.clock.advance(10_000);
    assert.deepEqual(bed.told, ["silent"]);
    assert.ok(bed.tunnel.canReplay);
    const next = await upstreamPair(t);
    const total = { up: 0, down: 0 };
    bed.tunnel.replaceUpstream(next.upstream, total);
    await bed.far.until(({ isClosed }) => isClosed);
    await next.far.until(({ text }) => text.length === hello.length);
    assert.equal(next.far.text, hello.toString("latin1"));
    next.far.write("answer");
    await bed.client.read("answer");
    assert.equal(bed.tunnel.canReplay, false);
    assert.deepEqual(total, { up: hello.length, down: 6 });
    bed.client.socket.end();
    await next.far.until(({ isEnded }) => isEnded);
    next.far.socket.end();
    assert.deepEqual(await bed.closed(), { reason: "eof", stalled: false });
  },
);

test(
  "Tunnel: nothing is sent twice once a byte came, that is no whole ClientHello, has early data, or was too much",
  TIMEOUT,
  async (t) => {
    const hello = clientHello("a.example");
    const cases: Readonly<Record<string, readonly [Uint8Array, boolean]>> = {
      "a ClientHello": [hello, true],
      "a ClientHello with something behind it": [Buffer.concat([hello, Buffer.of(20, 3, 3, 0, 1, 1)]), true],
      "half a ClientHello": [hello.subarray(0, 30), false],
      "early data": [clientHello("a.example", { hasEarlyData: true }), false],
      "plain text": [Buffer.from("GET / HTTP/1.1\r\n\r\n"), false],
      nothing: [new Uint8Array(0), false],
      "more than is kept": [Buffer.concat([hello, Buffer.alloc(OPTIONS.replayBytes)]), false],
    };
    for (const [name, [bytes, expected]] of Object.entries(cases)) {
      const bed = await Bed.open(t, bytes.length === 0 ? [] : [bytes]);
      await bed.far.until(({ text }) => text.length === bytes.length);
      assert.equal(bed.tunnel.canReplay, expected, name);
      const next = await upstreamPair(t);
      if (!expected)
        assert.throws(() => bed.tunnel.replaceUpstream(next.upstream, bed.total), /can no longer be replaced/);
      next.upstream.destroy();
      bed.far.write("z");
      await bed.client.read("z");
      assert.equal(bed.tunnel.canReplay, false, name);
      bed.tunnel.close("drain");
      assert.equal((await bed.closed()).reason, "drain");
    }
  },
);

test(
  "Tunnel: a client that says nothing is not kept waiting by anybody, and a blackhole ends with a reset",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    await bed.clock.advance(20_000);
    assert.deepEqual(bed.told, []);
    bed.tunnel.close("blackhole");
    await bed.client.until(({ isClosed }) => isClosed);
    assert.equal(bed.client.error?.code, "ECONNRESET");
    assert.equal((await bed.closed()).reason, "blackhole");
  },
);

test(
  "Tunnel: whatever both sides do in whatever order, all is closed in the end, and orderly sent bytes arrive (fuzz)",
  TIMEOUT,
  async (t) => {
    const step = fc.tuple(
      fc.constantFrom("client", "far"),
      fc.constantFrom("write", "end", "reset", "pause", "resume"),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
        const bed = await Bed.open(t);
        const sent = { client: "", far: "" };
        const ended = new Set<string>();
        let isReset = false;
        for (const [who, what] of steps) {
          const side = bed[who];
          if (side.socket.destroyed) continue;
          if (what === "write" && !ended.has(who)) {
            const text = randomBytes(30_000).toString("latin1");
            side.write(text);
            sent[who] += text;
          } else if (what === "end") {
            side.socket.end();
            ended.add(who);
          } else if (what === "reset") {
            resetSocket(side.socket);
            isReset = true;
          } else if (what === "pause") side.socket.pause();
          else side.socket.resume();
          await new Promise((resolve) => setImmediate(resolve));
        }
        for (const who of ["client", "far"] as const) {
          bed[who].socket.resume();
          if (!bed[who].socket.destroyed) bed[who].socket.end();
        }
        const { reason } = await bed.closed();
        if (isReset) return;
        assert.equal(reason, "eof");
        await bed.far.until(({ isEnded }) => isEnded);
        await bed.client.until(({ isEnded }) => isEnded);
        assert.ok(bed.far.text === sent.client && bed.client.text === sent.far);
      }),
      { numRuns: 60 },
    );
  },
);

test("TlsRecords: the same verdict however the stream is cut (property)", () => {
  const records = fc
    .array(fc.tuple(fc.integer({ min: 20, max: 23 }), fc.nat(600)), { maxLength: 5 })
    .map((each) =>
      Buffer.concat(
        each.map(([type, length]) =>
          Buffer.concat([Buffer.of(type, 3, 3, length >> 8, length & 255), Buffer.alloc(length)]),
        ),
      ),
    );
  fc.assert(
    fc.property(records, fc.nat(3000), fc.array(fc.nat(700), { maxLength: 6 }), (stream, cut, sizes) => {
      const part = stream.subarray(0, cut);
      const [whole, pieces] = [new TlsRecords(), new TlsRecords()];
      whole.push(part);
      let at = 0;
      for (const size of [...sizes, part.length]) {
        pieces.push(part.subarray(at, at + size));
        at += size;
      }
      assert.equal(pieces.isWithinRecord, whole.isWithinRecord);
      if (cut >= stream.length) assert.equal(whole.isWithinRecord, false);
    }),
  );
  const plain = new TlsRecords();
  plain.push(Buffer.from("HTTP/1.1 200 OK\r\n\r\n"));
  assert.equal(plain.isWithinRecord, true);
});
