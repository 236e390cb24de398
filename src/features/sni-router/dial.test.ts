import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { SystemNames } from "#base/names";
import { silentPort } from "#test/silent-port";
import { connectFirst, type DialOptions } from "./dial.ts";
import { deadPort, startBackend } from "./testing/bed.ts";

const names = new SystemNames({ clock: systemClock });
const at = (port: number) => ({ host: "127.0.0.1", port });

/** Options with a timeout of 5 s, and the ports that failed. */
function options(more: Partial<DialOptions> = {}) {
  const failures: number[] = [];
  const signal = new AbortController().signal;
  const onFailure: DialOptions["onFailure"] = ({ port }) => failures.push(port);
  return { failures, options: { timeoutMs: 5000, clock: systemClock, names, signal, onFailure, ...more } };
}

test("connectFirst: a backend that refuses is skipped at once", async (t) => {
  const [dead, good] = [await deadPort(t), await startBackend(t)];
  const { failures, options: of } = options();
  const { socket, backend } = await connectFirst([at(dead), at(good.port)], of);
  assert.deepEqual([failures, backend.port, socket.isPaused(), socket.allowHalfOpen], [[dead], good.port, true, true]);
  socket.destroy();
});

test("connectFirst: a backend that does not answer gets its share of the time, then the next one is tried", async (t) => {
  const clock = new FakeClock();
  const [silent, good] = [await silentPort(t), await startBackend(t)];
  const { failures, options: of } = options({ clock });
  const connected = connectFirst([at(silent), at(good.port)], of);
  await clock.advance(2499);
  assert.deepEqual(failures, []);
  await clock.advance(1);
  const { socket } = await connected;
  assert.deepEqual([failures, clock.pending], [[silent], 0]);
  socket.destroy();
});

test("connectFirst: all attempts together end in time, and attempts without time are not made", async (t) => {
  const clock = new FakeClock();
  const ports = [await silentPort(t), await silentPort(t), await silentPort(t)];
  const { failures, options: of } = options({ clock, timeoutMs: 2000 });
  const failed = assert.rejects(connectFirst(ports.map(at), of), {
    code: "no-backend",
    message: /^none of the 127\.0\.0\.1:\d+, .* backends accepted a connection within 2000 ms$/,
  });
  await clock.advance(1000);
  assert.equal(failures.length, 1);
  await clock.advance(1000);
  await failed;
  assert.deepEqual([failures, clock.pending], [ports.slice(0, 2), 0]);
});

test("connectFirst: an abort ends the attempt, and no other is made", async (t) => {
  const good = await startBackend(t);
  const controller = new AbortController();
  const { failures, options: of } = options({ signal: controller.signal });
  const connected = connectFirst([at(await silentPort(t)), at(good.port)], of);
  controller.abort(new Error("enough"));
  await assert.rejects(connected, /enough/);
  assert.deepEqual([failures, good.taken()], [[], 0]);
});

test("connectFirst: an error after the connection ends only the socket", async (t) => {
  const good = await startBackend(t);
  const { socket } = await connectFirst([at(good.port)], options().options);
  const closed = once(socket, "close");
  (await good.accepted()).resetAndDestroy();
  socket.resume();
  await closed.catch((error: unknown) => assert.match(String(error), /ECONNRESET/));
  assert.ok(socket.destroyed);
});
