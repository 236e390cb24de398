/** docs/spec/tunnel.md#11.1: a server that ends, alone and with a successor, with a fake clock. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { drainServer } from "./drain.ts";

/** A server with agents, of which each has connections; what happens to it is in `events`, with the time in milliseconds. */
function bedOf(agents: readonly { readonly load: number; readonly isOurs: boolean }[]) {
  const clock = new FakeClock();
  const events: [atMs: number, what: string][] = [];
  const note = (what: string): void => void events.push([clock.monotonic(), what]);
  const all = agents.map(({ load, isOurs }, at) => ({
    load,
    announceLeaving: isOurs ? () => note(`GOAWAY ${at}`) : undefined,
    mux: {
      end: () => {
        note(`end ${at}`);
        const { length } = all;
        all.splice(0, length, ...all.filter((one) => one !== backends[at]));
      },
    },
  }));
  const backends = [...all];
  const state = { isWaiting: false };
  const parts = {
    proxy: {
      backends: {
        get all() {
          return [...all];
        },
      },
      forwarder: { stop: () => note("no dials") },
    },
    reverse: { stop: () => note("no reverse dials") },
    agents: { stopAccepting: () => note("no agents") },
    frontends: { stopAccepting: () => note("no frontends") },
    successor: {
      isWaiting: async () => state.isWaiting,
      handOver: () => {
        note("hand over");
        return true;
      },
    },
    onSuperseded: async () => note("no probes"),
    log: nullLogger,
    clock,
  };
  const drain = (timeoutMs: number): { readonly isOver: () => boolean; readonly over: Promise<void> } => {
    let isOver = false;
    const over = drainServer(parts as unknown as Parameters<typeof drainServer>[0], { timeoutMs }).then(() => {
      isOver = true;
    });
    return { isOver: () => isOver, over };
  };
  return { clock, events, backends, state, drain };
}

test("drainServer: without a successor it serves everything until its time is over or its last connection", async () => {
  const held = bedOf([{ load: 1, isOurs: true }]);
  const late = held.drain(30_000);
  await held.clock.advance(29_900);
  assert.equal(held.events.length, 0);
  await held.clock.advance(200);
  assert.deepEqual(
    held.events.map(([at, what]) => [at >= 30_000 && at <= 30_001, what]),
    ["no dials", "no reverse dials", "no agents", "no frontends"].map((what) => [true, what]),
  );
  await late.over;

  const ending = bedOf([{ load: 1, isOurs: true }]);
  const idle = ending.drain(30_000);
  await ending.clock.advance(10_000);
  Object.assign(ending.backends[0] ?? {}, { load: 0 });
  await ending.clock.advance(100);
  assert.deepEqual(
    ending.events.map(([, what]) => what),
    ["no dials", "no reverse dials", "no agents", "no frontends", "end 0"],
  );
  await idle.over;
});

test("drainServer: a successor gets probes and agents, then frontends; connections go on, and so do dials meanwhile", async () => {
  const bed = bedOf([
    { load: 1, isOurs: true },
    { load: 0, isOurs: true },
    { load: 1, isOurs: false },
    { load: 0, isOurs: false },
  ]);
  const { over, isOver } = bed.drain(30_000);
  await bed.clock.advance(5000);
  bed.state.isWaiting = true;
  await bed.clock.advance(100);
  const names = (): string[] => bed.events.map(([, what]) => what);
  // Konnectivity's agents drop all their connections at GOAWAY, and look for a server only when their stream has ended.
  const first = ["no probes", "no agents", "GOAWAY 0", "GOAWAY 1", "end 3"];
  assert.deepEqual(names(), first);
  await bed.clock.advance(1500);
  assert.deepEqual(names(), [...first, "hand over", "no agents", "no frontends", "end 1"]);
  await bed.clock.advance(10_000);
  assert.equal(isOver(), false);
  for (const backend of bed.backends) backend.load = 0;
  await bed.clock.advance(200);
  assert.deepEqual(names().slice(-2), ["end 0", "end 2"]);
  await over;
});

test("drainServer: a successor that is gone before the hand-over does not get the path; one that waits later does", async () => {
  const bed = bedOf([{ load: 1, isOurs: true }]);
  const { over } = bed.drain(30_000);
  bed.state.isWaiting = true;
  await bed.clock.advance(200);
  bed.state.isWaiting = false;
  await bed.clock.advance(5000);
  const names = (): string[] => bed.events.map(([, what]) => what);
  const first = ["no probes", "no agents", "GOAWAY 0"];
  assert.deepEqual(names(), first);
  bed.state.isWaiting = true;
  await bed.clock.advance(300);
  assert.deepEqual(names(), [...first, "hand over", "no agents", "no frontends"]);
  for (const backend of bed.backends) backend.load = 0;
  await bed.clock.advance(200);
  await over;
});
