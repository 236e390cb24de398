import assert from "node:assert/strict";
import { Socket } from "node:net";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { type DialOptions, dial } from "./dial.ts";

/** Sockets that the test connects, refuses and closes, on a clock of its own. */
function rig(options: Partial<DialOptions> = {}) {
  const clock = new FakeClock();
  const sockets: Socket[] = [];
  const begunAt: number[] = [];
  const stop = new AbortController();
  const done = dial({
    host: "api",
    port: 6443,
    signal: stop.signal,
    clock,
    random: () => 0,
    open: () => {
      const socket = new Socket();
      sockets.push(socket);
      begunAt.push(clock.monotonic());
      return socket;
    },
    ...options,
  });
  done.catch(() => undefined);
  const at = (index: number): Socket => sockets[index] ?? assert.fail(`there is no socket ${index}`);
  return { clock, sockets, begunAt, stop, done, at };
}

const refuse = (socket: Socket): Socket =>
  socket.destroy(Object.assign(new Error("refused"), { code: "ECONNREFUSED" }));

test("dial: where nothing answers a try is begun each second, the first that connects counts, and the others end", async () => {
  const { clock, sockets, begunAt, done, at } = rig();
  await clock.advance(2500);
  assert.deepEqual(begunAt, [0, 1000, 2000]);
  at(1).emit("connect");
  const { socket, tries } = await done;
  assert.equal(socket, at(1));
  assert.equal(tries, 3);
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    [true, false, true],
  );
  await clock.advance(10_000);
  assert.equal(sockets.length, 3);
  assert.equal(clock.pending, 0);
});

test("dial: a silent try ends after three seconds, so that there are never many", async () => {
  const { clock, sockets } = rig({ random: () => 1 });
  for (let second = 0; second < 20; second += 1) {
    await clock.advance(1000);
    const open = sockets.filter(({ destroyed }) => !destroyed).length;
    assert.ok(open <= 7, `${open}`);
  }
});

test("dial: a refusal ends it, unless another try has no answer yet", async () => {
  const one = rig();
  refuse(one.at(0));
  await assert.rejects(one.done, { code: "ECONNREFUSED" });
  const two = rig();
  await two.clock.advance(1000);
  refuse(two.at(1));
  await two.clock.advance(0);
  two.at(0).emit("connect");
  assert.equal((await two.done).socket, two.at(0));
});

test("dial: a patient one goes on after refusals and connections that are closed at once", async () => {
  const { clock, begunAt, done, at } = rig({ isPatient: true });
  refuse(at(0));
  await clock.advance(1000);
  at(1).emit("connect");
  await clock.advance(20);
  at(1).destroy();
  await clock.advance(980);
  at(2).emit("connect");
  await clock.advance(100);
  assert.equal((await done).tries, 3);
  assert.deepEqual(begunAt, [0, 1000, 2000]);
});

test("dial: an abort ends all tries, with its reason", async () => {
  const { clock, sockets, stop, done } = rig({ isPatient: true });
  await clock.advance(1500);
  const reason = new Error("enough");
  stop.abort(reason);
  await assert.rejects(done, reason);
  assert.ok(sockets.every(({ destroyed }) => destroyed));
  await clock.advance(0);
  assert.equal(clock.pending, 0);
});
