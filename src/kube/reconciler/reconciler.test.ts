import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Deferred, sleep } from "#base/async";
import { FakeClock } from "#base/clock";
import { type Logger, nullLogger } from "#base/log";
import { KubeError } from "#kube/client";
import { PassRecord } from "#kube/suspects";
import { Controller, type ControllerOptions, type ReconcileSample } from "./index.ts";

interface Rig extends AsyncDisposable {
  readonly controller: Controller;
  readonly clock: FakeClock;
  readonly samples: ReconcileSample[];
  readonly warnings: string[];
  readonly errors: string[];
  readonly running: Promise<void>;
}

function start(reconcile: ControllerOptions["reconcile"], options: Partial<ControllerOptions> = {}): Rig {
  const clock = new FakeClock();
  const samples: ReconcileSample[] = [];
  const warnings: string[] = [];
  const errors: string[] = [];
  const log: Logger = {
    ...nullLogger,
    warn: (message, fields) => warnings.push(`${message} ${fields?.["key"]} ${fields?.["error"]}`),
    error: (message, fields) => errors.push(`${message} ${fields?.["key"]} ${fields?.["stack"]}`),
  };
  const controller = new Controller({
    name: "test",
    reconcile,
    log,
    clock,
    retry: { initialMs: 10, maxMs: 1000, jitter: 0 },
    onReconcile: (sample) => samples.push(sample),
    ...options,
  });
  const stop = new AbortController();
  const running = controller.run({ signal: stop.signal });
  return {
    controller,
    clock,
    samples,
    warnings,
    errors,
    running,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
    },
  };
}

test("controller: several marks are one reconciliation; a requeue comes after its time", async () => {
  const keys: string[] = [];
  await using rig = start(async (key) => {
    keys.push(key);
    return key === "again" && keys.length < 3 ? { requeueAfterMs: 50 } : undefined;
  });
  for (const key of ["a", "a", "again"]) rig.controller.enqueue(key);
  await rig.clock.advance(49);
  assert.deepEqual(keys, ["a", "again"]);
  await rig.clock.advance(1);
  assert.deepEqual(keys, ["a", "again", "again"]);
  assert.deepEqual(
    rig.samples.map(({ controller, result }) => `${controller} ${result}`),
    ["test success", "test requeue_after", "test success"],
  );
});

test("controller: expected errors are retried with back-off and a storm of one error is one warning", async () => {
  let fail = 4;
  const at: number[] = [];
  await using rig = start(async () => {
    at.push(rig.clock.monotonic());
    fail -= 1;
    if (fail >= 0) throw new KubeError("invalid", fail === 0 ? "other" : "same");
  });
  rig.controller.enqueue("a");
  await rig.clock.advance(1000);
  assert.deepEqual(at, [0, 10, 30, 70, 150]);
  assert.deepEqual(rig.warnings, ["reconcile failed a same", "reconcile failed a other"]);
  assert.deepEqual(
    rig.samples.map((sample) => sample.result),
    ["error", "error", "error", "error", "success"],
  );
});

test("controller: a conflict with another writer is no warning until it lasts", async () => {
  let conflicts = 5;
  await using rig = start(async (key) => {
    conflicts -= 1;
    if (key === "a" ? conflicts >= 0 : true) throw new KubeError("conflict", "changed");
  });
  rig.controller.enqueue("a");
  await rig.clock.advance(1000);
  assert.equal(rig.samples.at(-1)?.result, "success");
  assert.deepEqual(rig.warnings, []);
  rig.controller.enqueue("b");
  await rig.clock.advance(10_000);
  assert.deepEqual(rig.warnings, ["reconcile failed b changed"]);
});

test("controller: a key that fails because the API server is away is looked at each second, however long that is", async () => {
  const at: number[] = [];
  await using rig = start(
    async () => {
      at.push(rig.clock.monotonic());
      throw new KubeError("unreachable", "refused");
    },
    { retry: { initialMs: 1000, maxMs: 1_000_000, jitter: 0 } },
  );
  rig.controller.enqueue("a");
  await rig.clock.advance(60_000);
  assert.deepEqual(
    at,
    Array.from({ length: 61 }, (_, second) => 1000 * second),
  );
});

test("controller: however many keys failed while the API server was away, all are reconciled soon after its return", async () => {
  const isDone = new Set<string>();
  let isThere = false;
  let passes = 0;
  await using rig = start(
    async (key) => {
      passes += 1;
      if (!isThere) throw new KubeError("unreachable", "refused");
      isDone.add(key);
    },
    { workers: 8, retry: { initialMs: 20, maxMs: 5000 } },
  );
  const keys = Array.from({ length: 5000 }, (_, node) => `node-${node}`);
  for (const key of keys) rig.controller.enqueue(key);
  await rig.clock.advance(20_000);
  // Each once, and then one in a second.
  assert.ok(passes < keys.length + 40, `${passes} passes`);
  isThere = true;
  await rig.clock.advance(1100);
  assert.equal(isDone.size, keys.length);
  assert.equal(rig.clock.pending, 0);
});

test("controller: a key that no answer comes for keeps no other from the API server", async () => {
  const tried: string[] = [];
  const slow = async (signal: AbortSignal): Promise<never> => {
    if (tried.includes("slow", 1)) await sleep(30_000, { signal, clock: rig.clock });
    throw new KubeError("timeout", "no answer");
  };
  await using rig = start(
    async (key, { signal }) => {
      const isFirst = !tried.includes(key);
      tried.push(key);
      if (key === "slow") return await slow(signal);
      if (key.startsWith("once") && isFirst) throw new KubeError("unreachable", "reset");
    },
    { workers: 2 },
  );
  for (const key of ["slow", "once", "once too", "well"]) rig.controller.enqueue(key);
  await rig.clock.advance(2000);
  const passes = [...tried].sort();
  assert.deepEqual(passes, ["once", "once", "once too", "once too", "slow", "slow", "well"]);
  rig.controller.enqueue("later");
  await rig.clock.advance(0);
  assert.equal(tried.at(-1), "later");
  await rig.clock.advance(30_000);
  assert.equal(tried.at(-1), "slow");
});

test("controller: a key that hits a bug is logged with its stack, counted and retried, and delays no other key", async () => {
  const bug = new TypeError("cannot read properties of undefined");
  const done: string[] = [];
  await using rig = start(async (key) => {
    if (key === "bad" && done.length < 3) {
      done.push("bug");
      throw bug;
    }
    done.push(key);
  });
  for (const key of ["bad", "good"]) rig.controller.enqueue(key);
  await rig.clock.advance(1000);
  assert.deepEqual(done, ["bug", "good", "bug", "bad"]);
  assert.deepEqual(
    rig.samples.map((sample) => [sample.result, sample.bug]),
    [
      ["error", true],
      ["success", false],
      ["error", true],
      ["success", false],
    ],
  );
  assert.deepEqual(rig.errors, [`reconcile failed because of a bug bad ${bug.stack}`]);
  assert.deepEqual(rig.warnings, []);
});

test("controller: nothing is reconciled before the informers are in step", async () => {
  const synced = new Deferred();
  const keys: string[] = [];
  await using rig = start(async (key) => void keys.push(key), { waitFor: [{ synced: synced.promise }] });
  rig.controller.enqueue("a");
  await rig.clock.advance(100);
  assert.deepEqual(keys, []);
  synced.resolve();
  await rig.clock.advance(0);
  assert.deepEqual(keys, ["a"]);
});

test("controller: an object that ended three processes is set aside and told once; others go on, and it is tried again when it changes", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-reconciler-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const done: string[] = [];
  const asides: string[] = [];
  let version = "1";
  /** A controller of the next process. */
  const next = (reconcile: ControllerOptions["reconcile"]): Rig & { readonly passes: PassRecord } => {
    const passes = new PassRecord({ folder, boot: "one", log: nullLogger, clock: new FakeClock() });
    const onAside = (key: string, { times }: { readonly times: number }) => void asides.push(`${key} ${times}`);
    return { ...start(reconcile, { passes, versionOf: () => version, onAside, workers: 2 }), passes };
  };
  const never = new Deferred();
  for (let at = 0; at < 3; at += 1) {
    const rig = next(() => never.promise);
    rig.controller.enqueue("poison");
    await rig.clock.advance(0);
    // The process is killed here: its files stay as they are.
    rig.passes.close({ isFault: true });
  }
  never.resolve();
  await using rig = next(async (key) => void done.push(key));
  for (const key of ["poison", "good"]) rig.controller.enqueue(key);
  await rig.clock.advance(0);
  rig.controller.enqueue("poison");
  await rig.clock.advance(30_000);
  assert.deepEqual({ done, asides }, { done: ["good"], asides: ["poison 1"] });
  version = "2";
  rig.controller.enqueue("poison");
  await rig.clock.advance(0);
  assert.deepEqual(done, ["good", "poison"]);
});
