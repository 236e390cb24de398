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
  const hosts: string[] = [];
  const stop = new AbortController();
  const done = dial({
    targets: [{ host: "api", port: 6443 }],
    signal: stop.signal,
    clock,
    random: () => 0,
    open: ({ host }) => {
      hosts.push(host);
      const socket = new Socket();
      sockets.push(socket);
      begunAt.push(clock.monotonic());
      return socket;
    },
    ...options,
  });
  done.catch(() => undefined);
  const at = (index: number): Socket => sockets[index] ?? assert.fail(`there is no socket ${index}`);
  return { clock, sockets, hosts, begunAt, stop, done, at };
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

const THREE = ["a", "b", "c"].map((host) => ({ host, port: 6443 }));

test("dial: with several targets a refusal leads to the next one at once, silence within a second, and only all of them end it", async () => {
  const refused = rig({ targets: THREE.slice(1) });
  refuse(refused.at(0));
  await refused.clock.advance(0);
  assert.deepEqual(
    [refused.hosts, refused.begunAt],
    [
      ["b", "c"],
      [0, 0],
    ],
  );
  refused.at(1).emit("connect");
  assert.deepEqual([(await refused.done).target, (await refused.done).tries], [1, 2]);
  assert.equal(refused.clock.pending, 0);
  const silent = rig({ targets: THREE });
  await silent.clock.advance(2000);
  assert.deepEqual(
    [silent.hosts, silent.begunAt],
    [
      ["a", "b", "c"],
      [0, 1000, 2000],
    ],
  );
  silent.at(1).emit("connect");
  assert.equal((await silent.done).target, 1);
  const none = rig({ targets: THREE });
  for (const at of [0, 1, 2]) {
    refuse(none.at(at));
    await none.clock.advance(0);
  }
  await assert.rejects(none.done, { code: "ECONNREFUSED" });
  assert.deepEqual(none.hosts, ["a", "b", "c"]);
  const patient = rig({ targets: THREE.slice(0, 2), isPatient: true });
  for (const at of [0, 1]) {
    refuse(patient.at(at));
    await patient.clock.advance(0);
  }
  await patient.clock.advance(1000);
  assert.deepEqual(
    [patient.hosts, patient.begunAt],
    [
      ["a", "b", "a"],
      [0, 0, 1000],
    ],
  );
  patient.stop.abort();
});

test("dial: many targets beside the first ones do not delay these: a silent one is tried each second, a refusal leads through all at once", async () => {
  const beside = ["d", "e", "f", "g"].map((host) => ({ host, port: 6443 }));
  const silent = rig({ targets: THREE.slice(0, 1), beside });
  await silent.clock.advance(5000);
  assert.deepEqual(silent.hosts, ["a", "d", "a", "e", "a", "f", "a", "g", "a", "a"]);
  silent.at(3).emit("connect");
  assert.equal((await silent.done).target, 2);
  await silent.clock.advance(0);
  assert.equal(silent.clock.pending, 0);
  const refused = rig({ targets: THREE.slice(0, 1), beside });
  for (const at of [0, 1, 2, 3, 4]) {
    refuse(refused.at(at));
    await refused.clock.advance(0);
  }
  await assert.rejects(refused.done, { code: "ECONNREFUSED" });
  assert.deepEqual(refused.hosts, ["a", "d", "e", "f", "g"]);
});
