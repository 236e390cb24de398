import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import {
  KubeError,
  type ListOptions,
  type ListPage,
  type Pod,
  type PortState,
  resources,
  type WatchEvent,
  type WatchOptions,
} from "#kube/client";
import { allSynced, createInformer, type Informer, type InformerApi, type InformerHealth } from "./index.ts";

function pod(name: string, version: string, uid = `uid-${name}`, ip = ""): Pod {
  return {
    metadata: { name, namespace: "d", uid, resourceVersion: version, managedFields: [] },
    status: { podIP: ip },
  };
}

type Step = WatchEvent<Pod> | KubeError | "open" | "end" | "hang";
interface Watch {
  readonly options: WatchOptions;
  readonly steps: Step[];
  wake: Deferred;
}

/** An API whose lists and watches the test plays. */
class FakeApi {
  lists: (ListPage<Pod> | KubeError)[][] = [];
  listOptions: ListOptions[] = [];
  watches: Watch[] = [];
  readonly opened: Deferred<Watch>[] = [new Deferred()];

  /** The state of the port; absent: it is open whenever it is asked. */
  port: Deferred<PortState> | undefined;

  readonly api = {
    listPages: (_type: unknown, options: ListOptions = {}) => this.#list(options),
    watch: (_type: unknown, options: WatchOptions = {}) => this.#watch(options),
    whenOpen: async () => this.port?.promise ?? "open",
  } as unknown as InformerApi;

  async *#list(options: ListOptions): AsyncGenerator<ListPage<Pod>> {
    this.listOptions.push(options);
    for (const step of this.lists.shift() ?? []) {
      if (step instanceof KubeError) throw step;
      yield step;
    }
  }

  async *#watch(options: WatchOptions): AsyncGenerator<WatchEvent<Pod>> {
    const watch: Watch = { options, steps: [], wake: new Deferred() };
    const at = this.watches.push(watch);
    this.opened.push(new Deferred());
    options.signal?.addEventListener("abort", () => watch.wake.resolve(), { once: true });
    this.opened[at - 1]?.resolve(watch);
    for (;;) {
      const step = watch.steps.shift();
      if (step === undefined) {
        await watch.wake.promise;
        watch.wake = new Deferred();
        options.signal?.throwIfAborted();
        continue;
      }
      if (step instanceof KubeError) throw step;
      if (step === "end") return;
      if (step === "open") options.onOpen?.();
      else if (step !== "hang") yield step;
    }
  }

  /** The n-th watch, from 0, once it is there. */
  async watchAt(at: number): Promise<Watch> {
    while (this.opened[at] === undefined) await new Promise((resolve) => setImmediate(resolve));
    return (this.opened[at] ?? new Deferred<Watch>()).promise;
  }

  async play(at: number, ...steps: Step[]): Promise<void> {
    const watch = await this.watchAt(at);
    watch.steps.push(...steps);
    watch.wake.resolve();
  }
}

const page = (version: string, ...items: Pod[]): ListPage<Pod> => ({
  items,
  resourceVersion: version,
  continueToken: undefined,
  remainingItemCount: undefined,
});
const gone = new KubeError("gone", "too old");
const down = new KubeError("unreachable", "down");

/** A clock by which each slice of time is over at once. */
class HurriedClock extends FakeClock {
  #reads = 0;

  override monotonic(): number {
    this.#reads += 1;
    return super.monotonic() + this.#reads * 10;
  }
}

class Rig implements AsyncDisposable {
  readonly fake = new FakeApi();
  readonly clock: FakeClock;
  readonly log: string[] = [];
  readonly health: InformerHealth[] = [];
  readonly informer: Informer<Pod, Pod>;
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor({ random = 0, backoff = { initialMs: 100, maxMs: 400 }, isHurried = false, fieldSelector = "" } = {}) {
    this.clock = isHurried ? new HurriedClock() : new FakeClock();
    this.informer = createInformer(this.fake.api, resources.pods, {
      clock: this.clock,
      ...(fieldSelector === "" ? {} : { fieldSelector }),
      random: () => random,
      backoff,
      onHealth: (health) => this.health.push(health),
      indexers: { ip: (one) => (one.status?.podIP ? [one.status.podIP] : []) },
    });
    this.informer.addHandler({
      onAdd: (one, { initial }) =>
        this.log.push(`add ${one.metadata.name}@${one.metadata.resourceVersion}${initial ? " initial" : ""}`),
      onUpdate: (old, now) =>
        this.log.push(`update ${now.metadata.name} ${old.metadata.resourceVersion}->${now.metadata.resourceVersion}`),
      onDelete: (one, { finalStateUnknown }) =>
        this.log.push(
          `delete ${one.metadata.name}@${one.metadata.resourceVersion}${finalStateUnknown ? " unseen" : ""}`,
        ),
    });
  }

  start(): void {
    this.#running = this.informer.run({ signal: this.#stop.signal });
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise((resolve) => setImmediate(resolve));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

test("informer: lists page by page, then watches from the list's version", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("9", pod("a", "1")), page("9", pod("b", "2"))]];
  rig.start();
  await allSynced([rig.informer]);
  assert.deepEqual(rig.log, ["add a@1 initial", "add b@2 initial"]);
  assert.equal((await rig.fake.watchAt(0)).options.resourceVersion, "9");
  assert.equal(rig.informer.store.get("a", "d")?.metadata.managedFields, undefined, "managedFields are dropped");
});

test("informer: events reach store, indexes and handlers with old and new", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("9", pod("a", "1", "u", "10.0.0.1"))]];
  rig.start();
  await rig.fake.play(
    0,
    { type: "MODIFIED", object: pod("a", "10", "u", "10.0.0.2") },
    { type: "ADDED", object: pod("b", "11") },
    { type: "ADDED", object: pod("b", "11") },
    { type: "DELETED", object: pod("b", "12") },
    { type: "BOOKMARK", resourceVersion: "20" },
  );
  await rig.until(() => rig.informer.resourceVersion === "20");
  assert.deepEqual(rig.log, ["add a@1 initial", "update a 1->10", "add b@11", "delete b@12"]);
  assert.deepEqual(rig.informer.store.byIndex("ip", "10.0.0.1"), []);
  assert.equal(rig.informer.store.byIndex("ip", "10.0.0.2")[0]?.metadata.name, "a");
  assert.deepEqual(rig.informer.store.indexValues("ip"), ["10.0.0.2"]);
  assert.throws(() => rig.informer.store.byIndex("no", "x"), RangeError);
});

test("informer: a watch that ends quietly is resumed from the last version without a list", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("9")]];
  rig.start();
  await rig.fake.play(0, { type: "BOOKMARK", resourceVersion: "15" }, "end");
  assert.equal((await rig.fake.watchAt(1)).options.resourceVersion, "15");
  assert.equal(rig.fake.listOptions.length, 1);
  assert.deepEqual(rig.health, [{ state: "ready" }]);
});

test("informer: 410 makes it list again, and handlers get the difference, missed deletions included", async () => {
  await using rig = new Rig();
  rig.fake.lists = [
    [page("9", pod("a", "1"), pod("b", "2"), pod("c", "3"), pod("e", "4"))],
    [page("30", pod("a", "1"), pod("b", "20")), gone],
    [page("31", pod("a", "1"), pod("b", "21"), pod("d", "30"), pod("e", "29", "reborn"))],
  ];
  rig.start();
  await rig.fake.play(0, gone);
  await rig.until(() => rig.clock.pending > 0);
  await rig.clock.advance(100);
  assert.equal(
    rig.informer.store.get("b", "d")?.metadata.resourceVersion,
    "2",
    "a list that broke off changes nothing",
  );
  await rig.clock.advance(200);
  await rig.fake.watchAt(1);
  assert.deepEqual(rig.log.slice(4), [
    "update b 2->21",
    "add d@30",
    "delete e@4 unseen",
    "add e@29",
    "delete c@3 unseen",
  ]);
  assert.deepEqual(
    rig.health.map((health) => health.state),
    ["ready", "degraded", "degraded", "ready"],
  );
});

test("informer: a relist adds what is new before it removes what is gone, also where it pauses in between", async () => {
  await using rig = new Rig({ isHurried: true });
  const seen: string[] = [];
  rig.fake.lists = [[page("9", pod("a", "1"))], [page("30", pod("b", "20"))]];
  rig.start();
  await rig.fake.watchAt(0);
  await rig.fake.play(0, gone);
  await rig.until(() => rig.clock.pending > 0);
  const relisted = rig.fake.watchAt(1);
  await rig.clock.advance(100);
  while (rig.fake.watches.length < 2) {
    seen.push([...rig.informer.store.keys()].join());
    await new Promise((resolve) => setImmediate(resolve));
  }
  await relisted;
  assert.ok(!seen.includes(""), `the store in each turn of the event loop: ${seen.join(" | ")}`);
  assert.deepEqual(rig.log, ["add a@1 initial", "add b@20", "delete a@1 unseen"]);
});

test("informer: failures are retried with growing delays and never end it", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[down], [down], [down], [down], [page("5", pod("a", "1"))]];
  rig.start();
  for (const delay of [100, 200, 400, 400]) {
    await rig.until(() => rig.clock.pending > 0);
    const lists = rig.fake.listOptions.length;
    await rig.clock.advance(delay - 1);
    assert.equal(rig.fake.listOptions.length, lists);
    await rig.clock.advance(1);
    assert.equal(rig.fake.listOptions.length, lists + 1);
  }
  await rig.informer.synced;
  assert.deepEqual(
    rig.health.map((health) => (health.state === "ready" ? 0 : health.failures)),
    [1, 2, 3, 4, 0],
  );
});

test("informer: lists that work do not reset the back-off while the watches after them fail", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("1")], [page("2")], [page("3")], [page("4")]];
  rig.start();
  for (const [at, delay] of [100, 200, 400].entries()) {
    await rig.fake.play(at, gone);
    await rig.until(() => rig.clock.pending > 0);
    await rig.clock.advance(delay - 1);
    assert.equal(rig.fake.listOptions.length, at + 1);
    await rig.clock.advance(1);
    assert.equal(rig.fake.listOptions.length, at + 2);
  }
});

test("informer: an event that cannot be read, and failures without end, make it list again", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("9", pod("a", "1"))], [page("3", pod("a", "2"))], [page("1")]];
  rig.start();
  await rig.fake.play(0, new KubeError("bad-response", "an event is longer than 8 MiB"));
  await rig.until(() => rig.clock.pending > 0);
  await rig.clock.advance(100);
  assert.equal((await rig.fake.watchAt(1)).options.resourceVersion, "3");
  for (let at = 1; at < 6; at += 1) {
    await rig.fake.play(at, new KubeError("server", "no such version yet"));
    await rig.until(() => rig.clock.pending > 0);
    assert.equal(rig.fake.listOptions.length, 2);
    await rig.clock.advance(400);
  }
  assert.equal((await rig.fake.watchAt(6)).options.resourceVersion, "1");
  assert.equal(rig.informer.store.size, 0);
});

test("informer: a watch that ends at once without an event backs off instead of spinning", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("1")]];
  rig.start();
  await rig.fake.play(0, "end");
  await rig.until(() => rig.clock.pending > 0);
  assert.equal(rig.fake.watches.length, 1);
  await rig.clock.advance(100);
  assert.equal((await rig.fake.watchAt(1)).options.resourceVersion, "1");
  assert.equal(rig.fake.listOptions.length, 1);
});

/** Advances the clock until the condition holds; how long it took. */
async function taken(rig: Rig, condition: () => boolean, limitMs: number): Promise<number> {
  const startedAt = rig.clock.monotonic();
  while (!condition()) {
    assert.ok(rig.clock.monotonic() - startedAt < limitMs, `not within ${limitMs} ms`);
    await rig.clock.advance(10);
  }
  return rig.clock.monotonic() - startedAt;
}

const LONG = { initialMs: 250, maxMs: 30_000 };

test("informer: however long the server was away, the watch goes on a quarter of a second after its port opens, without a list", async () => {
  for (const random of [0, 0.99]) {
    await using rig = new Rig({ random, backoff: LONG });
    rig.fake.lists = [[page("9", pod("a", "1"))]];
    rig.start();
    rig.fake.port = new Deferred();
    await rig.fake.play(0, down);
    await rig.clock.advance(600_000);
    assert.equal(rig.fake.watches.length, 1, "a closed port is not tried");
    rig.fake.port.resolve("returned");
    await taken(rig, () => rig.fake.watches.length === 2, 260);
    assert.equal((await rig.fake.watchAt(1)).options.resourceVersion, "9");
    assert.equal(rig.fake.listOptions.length, 1);
  }
});

test("informer: with its port open, a server that does not answer is tried each 5 s, whatever came before", async () => {
  await using rig = new Rig({ backoff: LONG });
  rig.fake.lists = [[page("9")], ...Array.from({ length: 50 }, () => [down]), [page("9")]];
  rig.start();
  for (let at = 0; at < 40; at += 1) {
    await rig.fake.play(at, at % 2 === 0 ? down : new KubeError("server", "bad gateway", { httpStatus: 502 }));
    await taken(rig, () => rig.fake.watches.length === at + 2, 5010);
  }
  assert.equal(rig.fake.listOptions.length, 1, "who cannot be reached says nothing of versions");
});

test("informer: a server that has just returned and still refuses is tried each second", async () => {
  await using rig = new Rig({ backoff: LONG });
  const starting = new KubeError("forbidden", "roles are not known yet", { httpStatus: 403 });
  rig.fake.lists = [[down], ...Array.from({ length: 12 }, () => [starting]), [page("9", pod("a", "1"))]];
  rig.fake.port = new Deferred();
  rig.fake.port.resolve("returned");
  rig.start();
  for (let lists = 1; lists < 14; lists += 1) await taken(rig, () => rig.fake.listOptions.length === lists + 1, 1010);
  await rig.informer.synced;
});

test("informer: Retry-After is obeyed, and clients with the same pause come back spread", async () => {
  const busy = new KubeError("too-many-requests", "busy", { httpStatus: 429, retryAfterMs: 7000 });
  for (const [random, wanted] of [
    [0, 7000],
    [0.5, 7500],
  ] as const) {
    await using rig = new Rig({ random, backoff: LONG });
    rig.fake.lists = [[busy], [page("9")]];
    rig.start();
    assert.equal(await taken(rig, () => rig.fake.listOptions.length === 2, 20_000), wanted);
  }
});

/** A watch of an informer with the version 9 that is silent for the idle time, on a server whose state has this version now. */
async function silence(rig: Rig, version: string, ...after: Pod[]): Promise<void> {
  rig.fake.lists = [[page("9", pod("a", "1"))], [page(version)], [page(version, ...after)]];
  rig.start();
  await rig.fake.play(0, "open");
  await rig.informer.synced;
  await rig.clock.advance(180_000);
  await rig.fake.play(0, new KubeError("unreachable", "the server sent nothing for 150000 ms"));
  await taken(rig, () => rig.fake.watches.length === 2, 6000);
}

test("informer: after a silent watch of a server that was restored to an older state it lists again", async () => {
  await using rig = new Rig();
  await silence(rig, "5", pod("b", "4"));
  assert.deepEqual(
    rig.fake.listOptions.map(({ limit }) => limit),
    [undefined, 1, undefined],
  );
  assert.equal((await rig.fake.watchAt(1)).options.resourceVersion, "5");
  assert.deepEqual(rig.log, ["add a@1 initial", "add b@4", "delete a@1 unseen"]);
});

test("informer: after a restore an object may have its version again with another content", async () => {
  await using rig = new Rig();
  await silence(rig, "5", pod("a", "1", "uid-a", "10.0.0.9"));
  assert.deepEqual(rig.log, ["add a@1 initial", "update a 1->1"]);
  assert.deepEqual(
    rig.informer.store.byIndex("ip", "10.0.0.9").map((one) => one.metadata.name),
    ["a"],
  );
});

test("informer: an object that a server gives without a uid is stored as any other", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("9", { metadata: { namespace: "d", name: "a", resourceVersion: "1" } } as Pod)]];
  rig.start();
  await rig.informer.synced;
  assert.equal(rig.informer.store.size, 1);
});

test("informer: silent watches of two informers end at different times, and the look has no selector", async () => {
  const idleOf = async (random: number): Promise<number | undefined> => {
    await using rig = new Rig({ random });
    await silence(rig, "9");
    const { labelSelector, fieldSelector, limit } = rig.fake.listOptions[1] ?? {};
    assert.deepEqual([labelSelector, fieldSelector, limit], [undefined, undefined, 1]);
    return (await rig.fake.watchAt(0)).options.idleTimeoutMs;
  };
  assert.deepEqual([await idleOf(0), await idleOf(0.5)], [90_000, 120_000]);
});

test("informer: the look after a silent watch of one object by its name has the name, as rights by resourceNames ask for", async () => {
  for (const [fieldSelector, looked] of [
    ["metadata.name=a", "metadata.name=a"],
    ["spec.nodeName=n,metadata.name=a", "metadata.name=a"],
    ["spec.nodeName=n", undefined],
  ] as const) {
    await using rig = new Rig({ fieldSelector });
    await silence(rig, "9");
    assert.equal(rig.fake.listOptions[1]?.fieldSelector, looked);
  }
});

test("informer: after a silent watch of a server with our version, a later one, or one that is no number, the watch goes on", async () => {
  for (const version of ["9", "10", "0x1", "", "v1"]) {
    await using rig = new Rig();
    await silence(rig, version);
    assert.equal(rig.fake.listOptions.length, 2);
    assert.equal((await rig.fake.watchAt(1)).options.resourceVersion, "9");
    assert.equal(rig.informer.store.size, 1);
    // A server that has nothing to say is well.
    assert.deepEqual(rig.health, [{ state: "ready" }]);
  }
});

test("informer: a look and a list that fail after a silent watch are repeated", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("9", pod("a", "1"))], [down], [page("5")], [down], [page("5")], [page("5")]];
  rig.start();
  await rig.informer.synced;
  await rig.fake.watchAt(0);
  await rig.clock.advance(180_000);
  await rig.fake.play(0, "end");
  await taken(rig, () => rig.fake.watches.length === 2, 1000);
  assert.deepEqual(
    rig.fake.listOptions.map(({ limit }) => limit),
    [undefined, 1, 1, undefined, 1, undefined],
  );
  assert.equal(rig.informer.store.size, 0);
});

test("informer: a watch that had an event within the idle time is followed by the next one without a list", async () => {
  await using rig = new Rig();
  rig.fake.lists = [[page("9", pod("a", "1"))]];
  rig.start();
  await rig.fake.watchAt(0);
  for (let minute = 0; minute < 5; minute += 1) {
    await rig.clock.advance(60_000);
    await rig.fake.play(0, { type: "BOOKMARK", resourceVersion: String(10 + minute) });
    await rig.until(() => rig.informer.resourceVersion === String(10 + minute));
  }
  await rig.fake.play(0, "end");
  assert.equal((await rig.fake.watchAt(1)).options.resourceVersion, "14");
  assert.equal(rig.fake.listOptions.length, 1);
});

test("informer: one malformed event of a watch costs a quarter of a second, whatever came before", async () => {
  await using rig = new Rig({ backoff: LONG });
  const rubbish = new KubeError("bad-response", "an event is not JSON");
  rig.fake.lists = [...Array.from({ length: 8 }, () => [down]), [page("9")], [page("10")], [page("11")]];
  rig.start();
  await taken(rig, () => rig.fake.watches.length === 1, 60_000);
  await rig.fake.play(0, rubbish);
  await taken(rig, () => rig.fake.watches.length === 2, 260);
  // A version that came with it and that no server takes is not asked for again.
  await rig.fake.play(1, { type: "BOOKMARK", resourceVersion: "rubbish" }, "end");
  await rig.fake.play(2, new KubeError("invalid", "resourceVersion: Invalid value", { httpStatus: 400 }));
  await taken(rig, () => rig.fake.watches.length === 4, 260);
  assert.equal((await rig.fake.watchAt(3)).options.resourceVersion, "11");
});

test("informer: a server that opens watches and ends them at once, however long, is tried again within 5 s", async () => {
  await using rig = new Rig({ random: 0.99, backoff: LONG });
  rig.fake.lists = Array.from({ length: 30 }, (_none, at) => [page(String(at))]);
  rig.start();
  for (let at = 0; at < 20; at += 1) {
    await rig.fake.play(at, "open", gone);
    await taken(rig, () => rig.fake.watches.length === at + 2, 5_010);
  }
  // One failure that it answers with is not the twentieth.
  await rig.fake.play(20, new KubeError("server", "etcdserver: leader changed", { httpStatus: 500 }));
  await taken(rig, () => rig.fake.watches.length === 22, 260);
});

test("informer: an error of a handler is a bug and ends run", async () => {
  const fake = new FakeApi();
  fake.lists = [[page("1", pod("a", "1"))]];
  const informer = createInformer(fake.api, resources.pods, { clock: systemClock });
  const bug = new TypeError("bug");
  informer.addHandler({
    onAdd: () => {
      throw bug;
    },
  });
  await assert.rejects(informer.run({ signal: new AbortController().signal }), bug);
});

test("informer: transform runs before the store, and a late handler gets the stored objects", async () => {
  const fake = new FakeApi();
  fake.lists = [[page("1", pod("a", "1", "u", "10.0.0.1"))]];
  const informer = createInformer(fake.api, resources.pods, {
    namespace: "d",
    labelSelector: "a=b",
    fieldSelector: "c=d",
    metadataOnly: true,
    pageSize: 7,
    firstList: "any",
    transform: ({ metadata: { name, namespace, uid, resourceVersion }, status }) => ({
      metadata: { name, namespace, uid, resourceVersion },
      ip: status?.podIP,
    }),
    clock: systemClock,
  });
  const stop = new AbortController();
  const running = informer.run({ signal: stop.signal });
  await informer.synced;
  assert.deepEqual(informer.store.list(), [
    { metadata: { name: "a", namespace: "d", uid: "u", resourceVersion: "1" }, ip: "10.0.0.1" },
  ]);
  const seen: (string | undefined)[] = [];
  const remove = informer.addHandler({ onAdd: (one) => seen.push(one.ip) });
  remove();
  assert.deepEqual(seen, ["10.0.0.1"]);
  const { signal, ...options } = fake.listOptions[0] ?? {};
  assert.deepEqual(options, {
    namespace: "d",
    labelSelector: "a=b",
    fieldSelector: "c=d",
    metadataOnly: true,
    limit: 7,
    resourceVersion: "0",
    resourceVersionMatch: "NotOlderThan",
  });
  assert.equal((await fake.watchAt(0)).options.metadataOnly, true);
  stop.abort();
  await running;
  assert.ok(signal?.aborted);
});

test("allSynced: rejects with the reason when the signal aborts first", async () => {
  const reason = new Error("enough");
  const stop = new AbortController();
  const waiting = allSynced([{ synced: new Promise(() => undefined) }], { signal: stop.signal });
  stop.abort(reason);
  await assert.rejects(waiting, reason);
});

test("informer: after any mix of events, losses and relists, store and handlers' view equal the server", async () => {
  const change = fc.record({
    name: fc.constantFrom("a", "b", "c", "d"),
    op: fc.constantFrom("put", "delete", "recreate"),
    seen: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(change, { maxLength: 8 }), { minLength: 1, maxLength: 5 }), async (rounds) => {
      await using rig = new Rig();
      const server = new Map<string, Pod>();
      const view = new Map<string, string>();
      let version = 1;
      rig.informer.addHandler({
        onAdd: (one) => {
          assert.ok(!view.has(one.metadata.name));
          view.set(one.metadata.name, one.metadata.resourceVersion);
        },
        onUpdate: (old, now) => {
          assert.equal(view.get(old.metadata.name), old.metadata.resourceVersion);
          assert.equal(old.metadata.uid, now.metadata.uid);
          view.set(now.metadata.name, now.metadata.resourceVersion);
        },
        onDelete: (one) => assert.ok(view.delete(one.metadata.name)),
      });
      rig.fake.lists = [[page("1")]];
      rig.start();
      for (const [at, changes] of rounds.entries()) {
        let lost = false;
        const steps: Step[] = [];
        for (const { name, op, seen } of changes) {
          const known = server.get(name);
          version += 1;
          // Events after a lost one are lost too: a watch has no gaps, it breaks.
          lost ||= !seen;
          if (op !== "put" && known !== undefined) {
            server.delete(name);
            if (!lost)
              steps.push({
                type: "DELETED",
                object: { ...known, metadata: { ...known.metadata, resourceVersion: String(version) } },
              });
            version += 1;
          }
          if (op === "delete") continue;
          const now = server.get(name);
          const object = pod(name, String(version), now?.metadata.uid ?? `uid-${version}`);
          server.set(name, object);
          if (!lost) steps.push({ type: now === undefined ? "ADDED" : "MODIFIED", object: structuredClone(object) });
        }
        rig.fake.lists.push([page(String(version), ...Array.from(server.values(), (one) => structuredClone(one)))]);
        await rig.fake.play(at, ...steps, gone);
        while (rig.fake.watches.length < at + 2) await rig.clock.advance(400);
      }
      const wanted = [...server.values()]
        .map((one) => [one.metadata.name, one.metadata.resourceVersion] as const)
        .sort();
      assert.deepEqual([...view].sort(), wanted);
      assert.deepEqual(
        rig.informer.store
          .list()
          .map((one) => [one.metadata.name, one.metadata.resourceVersion])
          .sort(),
        wanted,
      );
    }),
    { numRuns: 40 },
  );
});

test("informer: an object that is set aside counts as absent, whether a list or an event brings it; it is tried again after its time, and a change or its end forgets it", async () => {
  const clock = new FakeClock();
  const fake = new FakeApi();
  fake.lists = [[page("9", pod("a", "1"), pod("b", "2"))]];
  /** Versions that are set aside. */
  const aside = new Set(["1"]);
  const kinds: string[] = [];
  const log: string[] = [];
  const informer = createInformer(fake.api, resources.pods, {
    steps: {
      step: ({ metadata }, work, { isLast, isThrown }) => {
        kinds.push(`${metadata.name} ${isLast ?? "last"} ${isThrown ?? "kept"}`);
        return aside.has(metadata.resourceVersion) ? { waitMs: 5000 } : { value: work() };
      },
    },
    clock,
  });
  informer.addHandler({
    onAdd: ({ metadata }) => log.push(`add ${metadata.name}@${metadata.resourceVersion}`),
    onUpdate: (_before, { metadata }) => log.push(`update ${metadata.name}@${metadata.resourceVersion}`),
    onDelete: ({ metadata }) => log.push(`delete ${metadata.name}@${metadata.resourceVersion}`),
  });
  const stop = new AbortController();
  const running = informer.run({ signal: stop.signal });
  await informer.synced;
  assert.deepEqual([...informer.store.keys()], ["d/b"]);
  assert.deepEqual(kinds, ["a false kept", "b false kept", "b last true"]);
  aside.clear();
  await clock.advance(5000);
  assert.deepEqual(log.splice(0), ["add b@2", "add a@1"]);
  aside.add("11").add("12").add("13");
  const seen = async (version: string): Promise<void> => {
    while (informer.resourceVersion !== version) await new Promise((resolve) => setImmediate(resolve));
  };
  await fake.play(0, { type: "MODIFIED", object: pod("a", "11") }, { type: "MODIFIED", object: pod("b", "12") });
  await seen("12");
  assert.deepEqual(log.splice(0), ["delete a@1", "delete b@2"]);
  // A change that is read, and the end of the object, come before its time.
  await fake.play(0, { type: "MODIFIED", object: pod("a", "14") }, { type: "DELETED", object: pod("b", "15") });
  await seen("15");
  aside.clear();
  await clock.advance(10_000);
  assert.deepEqual(log.splice(0), ["add a@14"]);
  // One that a later list does not have is forgotten.
  aside.add("16");
  fake.lists = [[page("20", pod("a", "14"))]];
  await fake.play(0, { type: "ADDED", object: pod("c", "16") }, gone);
  await clock.advance(1000);
  await seen("20");
  aside.clear();
  await clock.advance(10_000);
  assert.deepEqual(log, []);
  assert.deepEqual([...informer.store.keys()], ["d/a"]);
  stop.abort();
  await running;
});
