import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { type Event, type KubeApi, KubeError } from "#kube/client";
import { type EventInput, EventRecorder, MAX_PENDING_EVENTS, SERIES_MS } from "./index.ts";

class Rig implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly created: Event[] = [];
  readonly patched: unknown[] = [];
  readonly lost: string[] = [];
  failCreate: KubeError | undefined;
  failPatch: KubeError | undefined;
  readonly recorder: EventRecorder;
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor() {
    const api = {
      create: async (_type: unknown, event: Event) => {
        const failure = this.failCreate;
        // An event is there once.
        if (failure?.code === "already-exists") this.failCreate = undefined;
        if (failure !== undefined) throw failure;
        this.created.push(event);
        return event;
      },
      patch: async (_type: unknown, _ref: unknown, patch: { body: unknown }) => {
        if (this.failPatch !== undefined) throw this.failPatch;
        this.patched.push(patch.body);
      },
    } as unknown as Pick<KubeApi, "create" | "patch">;
    const onLoss = (_event: EventInput, why: string): void => void this.lost.push(why);
    this.recorder = new EventRecorder(api, { controller: "coild", instance: "node1", clock: this.clock, onLoss });
  }

  start(): this {
    this.#running = this.recorder.run({ signal: this.#stop.signal });
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

const event = (note: string, name = "p"): EventInput => ({
  regarding: { apiVersion: "v1", kind: "Pod", namespace: "d", name, uid: "u" },
  type: "Warning",
  reason: "NoSuchPool",
  note,
});

test("events: the first is written whole, with its note cut at the API's limit", async () => {
  await using rig = new Rig().start();
  rig.recorder.record(event("x".repeat(2000)));
  await rig.clock.advance(0);
  const [written] = rig.created;
  assert.match(written?.metadata.name ?? "", /^p\.[0-9a-f]{16}$/);
  assert.equal(written?.metadata.namespace, "d");
  assert.equal(written?.note?.length, 1024);
  assert.equal(written?.eventTime, "2026-01-01T00:00:00.000000Z");
  assert.deepEqual(
    [written?.action, written?.reportingController, written?.reportingInstance],
    ["NoSuchPool", "coild", "node1"],
  );
});

test("events: repeats are counted on the first, until it is long ago or gone", async () => {
  await using rig = new Rig().start();
  rig.recorder.record(event("a"));
  await rig.clock.advance(1000);
  rig.recorder.record(event("a"));
  rig.recorder.record(event("a"));
  await rig.clock.advance(1000);
  assert.equal(rig.created.length, 1);
  assert.deepEqual(rig.patched, [{ series: { count: 3, lastObservedTime: "2026-01-01T00:00:01.000000Z" } }]);
  rig.failPatch = new KubeError("not-found", "gone");
  rig.recorder.record(event("a"));
  await rig.clock.advance(SERIES_MS);
  assert.equal(rig.created.length, 2);
  rig.recorder.record(event("a"));
  await rig.clock.advance(0);
  assert.equal(rig.created.length, 3);
});

test("events: an event that cannot be written is reported and dropped", async () => {
  await using rig = new Rig().start();
  rig.failCreate = new KubeError("forbidden", "not you");
  rig.recorder.record(event("a"));
  await rig.clock.advance(0);
  rig.failCreate = undefined;
  rig.recorder.record(event("b"));
  await rig.clock.advance(0);
  assert.deepEqual(rig.lost, ["not you"]);
  assert.equal(rig.created.length, 1);
});

test("events: what was recorded while the API server was away is written when it is back, once and with its repeats", async () => {
  await using rig = new Rig().start();
  rig.failCreate = new KubeError("unreachable", "away");
  rig.recorder.record(event("a"));
  rig.recorder.record(event("b"));
  await rig.clock.advance(5_000);
  for (let times = 0; times < 3; times += 1) rig.recorder.record(event("b"));
  await rig.clock.advance(55_000);
  // The server had stored it, and its answer was lost.
  rig.failCreate = new KubeError("already-exists", "there");
  await rig.clock.advance(10_000);
  assert.deepEqual(
    rig.created.map(({ note, eventTime, series }) => [note, eventTime, series?.count]),
    [["b", "2026-01-01T00:00:00.000000Z", 4]],
  );
  assert.deepEqual(rig.lost, []);
});

test("events: a server that stays away costs an event after two minutes, and the next ones wait in their turn", async () => {
  await using rig = new Rig().start();
  rig.failCreate = new KubeError("timeout", "no answer");
  rig.recorder.record(event("a"));
  rig.recorder.record(event("b"));
  await rig.clock.advance(109_000);
  assert.deepEqual(rig.lost, []);
  await rig.clock.advance(2_000);
  assert.deepEqual(rig.lost, ["no answer"]);
  rig.failCreate = undefined;
  await rig.clock.advance(10_000);
  assert.deepEqual(
    rig.created.map(({ note }) => note),
    ["b"],
  );
});

test("events: repeats that come while an event waits for its turn are counted", async () => {
  await using rig = new Rig();
  for (let n = 0; n < 101; n += 1) rig.recorder.record(event("a", `p${n}`));
  rig.start();
  await rig.clock.advance(50);
  assert.equal(rig.created.length, 100);
  rig.recorder.record(event("a", "p100"));
  await rig.clock.advance(1000);
  assert.equal(rig.created[100]?.series?.count, 2);
});

test("events: a note is cut to the bytes that the API takes, at a whole character", async () => {
  await using rig = new Rig().start();
  rig.recorder.record(event(`x${"é".repeat(600)}`));
  await rig.clock.advance(0);
  assert.equal(rig.created[0]?.note, `x${"é".repeat(511)}`);
});

test("events: those that wait are bounded, and the rate is limited", async () => {
  await using rig = new Rig();
  for (let n = 0; n < MAX_PENDING_EVENTS + 5; n += 1) rig.recorder.record(event("a", `p${n}`));
  assert.equal(rig.lost.length, 5);
  rig.start();
  await rig.clock.advance(1000);
  assert.equal(rig.created.length, 110);
});
