import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { ConfigError, type FlagValues, parseFlags, stringFlag } from "#base/config";
import { ExpectedError } from "#base/errors";
import { NO_ESTATE } from "#base/estate";
import { nullLogger } from "#base/log";
import { Counter, type Registry } from "#base/metrics";
import { acquireFileLock } from "#kernel/lock";
import { startApiServer } from "#lab/api-server";
import { endpointFlags, kubeFlags, logFlags } from "../daemon/index.ts";
import { type DaemonKit, defineDaemon, runDaemon } from "./define-daemon.ts";
import type { Part } from "./part.ts";

const flags = {
  ...endpointFlags("127.0.0.1:0", "127.0.0.1:0"),
  folder: stringFlag("folder", "", "folder of the lock", "PATH"),
  ...kubeFlags,
  ...logFlags,
};
type Values = FlagValues<typeof flags>;
type Kit = DaemonKit<Values, string, Counter<never>>;

class PartError extends ExpectedError<"failed"> {
  override readonly name = "PartError";
}

const metrics = (registry: Registry): Counter<never> =>
  new Counter({ name: "test_parts_total", help: "Parts.", labelNames: [] as const, registers: [registry] });

/** A daemon whose parts are those of the test, with an API server. `steps` has what happens, in order. */
async function open(
  t: TestContext,
  parts: (kit: Kit, steps: string[]) => readonly Part[],
  more: {
    readonly drain?: (start: unknown, options: { readonly signal: AbortSignal }) => Promise<void>;
    readonly lock?: () => string;
  } = {},
) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-daemon-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const server = await startApiServer({
    listen: [{ host: "127.0.0.1", port: 0 }],
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, server.kubeconfig({ server: server.urls[0] ?? "" }));
  const argv = [`--kubeconfig=${kubeconfig}`, `--folder=${join(folder, "made/here")}`, "--zap-log-level=error"];
  const steps: string[] = [];
  const closes = (name: string): Disposable => ({ [Symbol.dispose]: () => void steps.push(`${name} closed`) });
  const daemon = {
    name: "test-daemon",
    summary: "A daemon of a test.",
    flags,
    metrics,
    estate: () => NO_ESTATE,
    environment: (env: Readonly<Record<string, string | undefined>>): string => {
      if (env["NODE"] === undefined) throw new ConfigError("invalid-flags", ["NODE is missing"]);
      return env["NODE"];
    },
    faults: ({ folder: at }: Values) => (at.includes("wrong") ? ["--folder: wrong", "--folder: very wrong"] : []),
    privileges: { task: "be tested", needs: [] },
    folders: (values: Values) => [values.folder],
    lock: (values: Values) => join(values.folder, "lock"),
    open: ({ use }: Pick<Kit, "use">) => use(closes("kernel")),
    parts: (kit: Kit) => {
      kit.use(closes("server"));
      return parts(kit, steps);
    },
    ...more,
  };
  const stop = new AbortController();
  const env = { NODE: "n", RUNTIME_DIRECTORY: join(folder, "run"), STATE_DIRECTORY: join(folder, "state") };
  const run = (more: readonly string[] = [], at: NodeJS.ProcessEnv = env) =>
    runDaemon(daemon, { values: parseFlags(flags, [...argv, ...more]).values, signal: stop.signal }, { env: at });
  return { folder, daemon, steps, stop, run };
}

/** Waits for its end, and says so. */
const waits = (name: string, steps: string[]): Part => ({
  name,
  run: async ({ signal }) => {
    steps.push(name);
    await untilAborted(signal);
    steps.push(`${name} ended`);
  },
});

test("runDaemon: parts start in their order; at the end they end first, then atEnd runs, then what was opened closes in reverse; the estate is left", async (t) => {
  const bed = await open(t, (kit, steps) => {
    assert.equal(kit.environment, "n");
    kit.metrics.inc();
    kit.atEnd(async () => void steps.push("at the end"));
    const last: Part = { name: "last", run: async () => bed.stop.abort(new DOMException("asked", "AbortError")) };
    return [waits("first", steps), waits("second", steps), last];
  });
  assert.equal(await bed.run(), 0);
  const ends = ["first ended", "second ended", "at the end", "server closed", "kernel closed"];
  assert.deepEqual(bed.steps, ["first", "second", ...ends]);
  assert.equal(existsSync(join(bed.folder, "made/here/lock")), true);
  assert.match(readFileSync(join(bed.folder, "run/test-daemon/estate.json"), "utf8"), /"netns"/);
});

test("runDaemon: the first part that fails ends the others and the daemon; what was opened closes, and atEnd does not run", async (t) => {
  const bed = await open(t, (kit, steps) => {
    kit.atEnd(async () => void steps.push("at the end"));
    const fails: Part = { name: "fails", run: () => Promise.reject(new PartError("failed", "no luck")) };
    return [waits("first", steps), fails];
  });
  await assert.rejects(bed.run(), { name: "PartError", message: "no luck" });
  assert.deepEqual(bed.steps, ["first", "first ended", "server closed", "kernel closed"]);
});

test("runDaemon: an error that reaches a callback ends it as one of a part does, also before the parts run", async (t) => {
  const bed = await open(t, (kit, steps) => {
    kit.onBug(new TypeError("a bug"));
    return [waits("first", steps)];
  });
  await assert.rejects(bed.run(), { name: "TypeError", message: "a bug" });
  assert.deepEqual(bed.steps.slice(-2), ["server closed", "kernel closed"]);
});

test("runDaemon: a wrong environment or wrong flags are all reported before anything is opened or made", async (t) => {
  const bed = await open(t, () => []);
  await assert.rejects(bed.run([], {}), { faults: ["NODE is missing"] });
  await assert.rejects(bed.run([`--folder=${bed.folder}/wrong`]), {
    faults: ["--folder: wrong", "--folder: very wrong"],
  });
  assert.deepEqual([bed.steps, existsSync(join(bed.folder, "wrong"))], [[], false]);
});

test("runDaemon: a second daemon opens nothing while the first has the lock, and ends when it is asked to", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-lock-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const lock = join(folder, "lock");
  const reached = Promise.withResolvers<void>();
  const bed = await open(t, () => [], {
    lock: () => {
      reached.resolve();
      return lock;
    },
  });
  await using _first = await acquireFileLock(lock);
  const waiting = assert.rejects(bed.run(), { name: "AbortError" });
  await reached.promise;
  bed.stop.abort(new DOMException("asked", "AbortError"));
  await waiting;
  assert.deepEqual(bed.steps, []);
});

test("runDaemon: the parts of one that drains go on until that is over", async (t) => {
  const [started, drained] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const seen: string[][] = [];
  const bed = await open(
    t,
    (_kit, steps) => [waits("serves", steps), { name: "starts", run: async () => started.resolve() }],
    {
      drain: async () => {
        seen.push([...bed.steps]);
        await drained.promise;
        seen.push([...bed.steps]);
      },
    },
  );
  const running = bed.run();
  await started.promise;
  bed.stop.abort(new DOMException("asked", "AbortError"));
  drained.resolve();
  assert.equal(await running, 0);
  assert.deepEqual(seen, [["serves"], ["serves"]]);
  assert.deepEqual(bed.steps, ["serves", "serves ended", "server closed", "kernel closed"]);
});

test("runDaemon: a part that fails while the daemon drains ends it with its failure", async (t) => {
  const started = Promise.withResolvers<void>();
  const bed = await open(
    t,
    () => [
      {
        name: "fails",
        run: async () => {
          started.resolve();
          await untilAborted(bed.stop.signal);
          throw new PartError("failed", "no luck");
        },
      },
    ],
    { drain: (_start, { signal }) => untilAborted(signal) },
  );
  const running = assert.rejects(bed.run(), { message: "no luck" });
  await started.promise;
  bed.stop.abort(new DOMException("asked", "AbortError"));
  await running;
});

test("defineDaemon: a program with the metrics of the kit and of its flags, and its privileges as data", () => {
  const base = {
    ...{ name: "d", summary: "d", metrics, estate: () => NO_ESTATE, environment: () => "" },
    privileges: { task: "be tested", needs: ["CAP_NET_ADMIN"] as const },
    open: () => undefined,
    parts: () => [],
  };
  const program = defineDaemon({ ...base, flags });
  const recorded = defineDaemon({ ...base, flags: { ...flags, recordDir: stringFlag("record-dir", "", "record") } });
  assert.deepEqual([program.metrics?.length, recorded.metrics?.length], [2, 3]);
  assert.deepEqual(program.privileges, base.privileges);
});
