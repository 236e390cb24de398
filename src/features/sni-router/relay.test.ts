import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { relay } from "./relay.ts";
import { checksum, dial, type Scope, startBackend, until } from "./testing/bed.ts";

/** A client and a backend with a relay between them; `left` and `right` are the relay's own sockets. */
async function bed(scope: Scope, clock = systemClock) {
  const [front, back] = [await startBackend(scope), await startBackend(scope)];
  const client = dial(scope, front.port);
  const left = await front.accepted();
  const right = dial(scope, back.port);
  const [backend] = await Promise.all([back.accepted(), once(right, "connect")]);
  const bytes = { to_backend: 0, to_client: 0 };
  const onBytes = (direction: keyof typeof bytes, count: number): void => {
    bytes[direction] += count;
  };
  left.pause();
  right.pause();
  return { client, left, right, backend, bytes, ended: relay(left, right, { clock, onBytes }) };
}

test("relay: a side that does not read stops the other; the relay holds little, and no byte is lost", async (t) => {
  const { client, left, right, backend, bytes, ended } = await bed(t);
  const sent = randomBytes(64 * 1_048_576);
  client.end(sent);
  await until(() => right.writableNeedDrain && left.isPaused());
  assert.ok(right.writableLength <= 2 * 65_536 + right.writableHighWaterMark, String(right.writableLength));
  assert.ok(bytes.to_backend < sent.length / 2, String(bytes.to_backend));
  assert.equal(await checksum(backend), createHash("sha256").update(sent).digest("hex"));
  backend.end();
  client.resume();
  await ended;
  assert.deepEqual(bytes, { to_backend: sent.length, to_client: 0 });
});

test("relay: bytes read from a side that is lost still reach the other, which is then reset", async (t) => {
  const { client, left, right, backend, bytes, ended } = await bed(t);
  const sent = randomBytes(32 * 1_048_576);
  client.write(sent);
  await until(() => right.writableNeedDrain && left.isPaused());
  left.destroy();
  const received = await collect(backend);
  assert.equal(received.length, bytes.to_backend);
  assert.ok(received.equals(sent.subarray(0, received.length)));
  await ended;
});

test("relay: a side that does not take its remaining bytes is closed after 30 s", async (t) => {
  const clock = new FakeClock();
  const { client, left, right, ended } = await bed(t, clock);
  client.write(randomBytes(32 * 1_048_576));
  await until(() => right.writableNeedDrain && left.isPaused());
  left.destroy();
  await once(left, "close");
  await clock.advance(30_000);
  await ended;
  assert.ok(right.destroyed);
});

test("relay: a side that was lost before the relay started resets the other", async (t) => {
  const [front, back] = [await startBackend(t), await startBackend(t)];
  dial(t, front.port);
  const left = await front.accepted();
  const right = dial(t, back.port);
  const [backend] = await Promise.all([back.accepted(), once(right, "connect")]);
  left.destroy();
  const failed = once(backend, "error");
  backend.resume();
  await relay(left, right, { clock: systemClock, onBytes: () => assert.fail("there are no bytes") });
  const [error] = await failed;
  assert.equal((error as NodeJS.ErrnoException).code, "ECONNRESET");
});

/** All bytes until the end or loss of a socket. */
async function collect(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk) => chunks.push(chunk));
  await new Promise<void>((resolve) => {
    socket.once("end", resolve);
    socket.once("close", () => resolve());
  });
  return Buffer.concat(chunks);
}
