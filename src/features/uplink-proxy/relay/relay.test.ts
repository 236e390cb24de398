import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { resetSocket } from "#base/socket-reset";
import { C, setsockopt } from "#kernel/ffi";
import { RelayBed } from "../testing/relay-bed.ts";

const TIMEOUT = { timeout: 20_000 };

/** RST although bytes wait to be sent, which Node's own sockets cannot: SO_LINGER (13) of no time. */
function resetAtOnce(socket: Socket): void {
  const { _handle: handle } = socket as unknown as { readonly _handle: { readonly fd: number } };
  setsockopt(handle.fd, C.SOL_SOCKET, 13, new Uint8Array(new Int32Array([1, 0]).buffer));
  socket.destroy();
}

test("Relay: early bytes first, then both ways, counted as they pass", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t, [Buffer.from("early ")]);
  bed.client.write("late");
  assert.equal(await bed.far.read("early late"), "early late");
  bed.far.write("answer");
  await bed.client.read("answer");
  assert.deepEqual(bed.relay.bytes, { up: 10, down: 6 });
  assert.deepEqual(bed.total, { up: 10, down: 6 });
  assert.deepEqual(bed.reported, ["first byte"]);
});

test(
  "Relay: the end of the client's sending reaches the destination, whose answer still arrives",
  TIMEOUT,
  async (t) => {
    const bed = await RelayBed.open(t);
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

test("Relay: the end of the destination's sending reaches the client, which may go on", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t);
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
  "Relay: megabytes that are in flight when the destination ends all arrive, and the buffer goes back",
  TIMEOUT,
  async (t) => {
    const bed = await RelayBed.open(t);
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

test("Relay: a reader that stands still stops the sender, not the heap; both ways", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t);
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

test("Relay: a reset of either side is a reset of the other", TIMEOUT, async (t) => {
  for (const side of ["client", "far"] as const) {
    const bed = await RelayBed.open(t);
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
  "Relay: a reset is one also while bytes wait for the other side, so that no part of something looks whole",
  TIMEOUT,
  async (t) => {
    for (const side of ["client", "far"] as const) {
      const bed = await RelayBed.open(t);
      const other = side === "client" ? bed.far : bed.client;
      other.socket.pause();
      const queued = side === "client" ? bed.upstream : bed.near;
      for (let at = 0; at < 64; at += 1) bed[side].socket.write(Buffer.alloc(1 << 20));
      while (queued.writableLength === 0) await new Promise((resolve) => setImmediate(resolve));
      resetAtOnce(bed[side].socket);
      // A sender that is stopped does not read: its loss shows when the timer checks, or the reader goes on.
      other.socket.resume();
      await other.until(({ isClosed }) => isClosed);
      assert.equal(other.error?.code, "ECONNRESET", side);
      assert.equal(other.isEnded, false, side);
      assert.equal((await bed.closed()).reason, "reset", side);
    }
  },
);

test(
  "Relay: a destination that has ended and is lost takes nothing from a slow client that still sends",
  TIMEOUT,
  async (t) => {
    const bed = await RelayBed.open(t);
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

test(
  "Relay: whatever both sides do in whatever order, all is closed in the end, and orderly sent bytes arrive (fuzz)",
  TIMEOUT,
  async (t) => {
    const step = fc.tuple(
      fc.constantFrom("client", "far"),
      fc.constantFrom("write", "end", "reset", "pause", "resume"),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
        const bed = await RelayBed.open(t);
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
