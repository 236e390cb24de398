import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { WorkerError, WorkerGroup } from "./index.ts";

const SCRIPT = join(import.meta.dirname, "testing/worker.ts");
const never = new AbortController().signal;

function commandOf(mode: string): readonly string[] {
  return [process.execPath, SCRIPT, mode];
}

function begin(mode: string, count = 2, signal = never): Promise<WorkerGroup> {
  return WorkerGroup.start({ command: commandOf(mode), count }, { signal });
}

async function pidsOf(group: WorkerGroup): Promise<readonly number[]> {
  const answers = (await group.ask("who", { timeoutMs: 10_000 })) as readonly { readonly pid: number }[];
  return answers.map(({ pid }) => pid);
}

function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

async function untilDead(pids: readonly number[]): Promise<void> {
  for (let tries = 0; pids.some(isAlive); tries += 1) {
    assert.ok(tries < 200, `still there: ${pids.filter(isAlive).join(", ")}`);
    await delay(50);
  }
}

test("workers: each answers for itself, and orders reach all; the highest exit code counts", async () => {
  await using group = await begin("usual", 3);
  const answers = (await group.ask("who", { timeoutMs: 10_000 })) as readonly { readonly index: number }[];
  assert.deepEqual(
    answers.map(({ index }) => index),
    [1, 2, 3],
  );
  assert.deepEqual(await group.ask("again", { timeoutMs: 10_000 }), Array(3).fill("not passed on"));
  const watching = new AbortController();
  const watched = group.watch({ signal: watching.signal });
  watching.abort();
  await watched;
  group.tell("end");
  assert.equal(await group.ended(), 3);
});

test("workers: each receives the listening socket that the leader passes, as a descriptor of its own", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-workers-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const leader = join(import.meta.dirname, "testing/passing-leader.ts");
  const child = spawn(process.execPath, [leader, join(folder, "x.sock")], { stdio: ["ignore", "pipe", "inherit"] });
  const { own, received } = JSON.parse(await text(child.stdout)) as { own: string; received: readonly string[] };
  assert.match(own, /^socket:\[\d+\]$/);
  assert.deepEqual(received, [own, own]);
});

test("workers: one that does not answer delays the answers of none, and is not asked twice at once", async () => {
  await using group = await begin("usual", 3);
  for (const _ of [1, 2]) assert.deepEqual(await group.ask("stuck", { timeoutMs: 100 }), ["well", undefined, "well"]);
  assert.deepEqual(await group.ask("nobody knows this", { timeoutMs: 10_000 }), [undefined, undefined, undefined]);
  assert.equal((await pidsOf(group)).length, 3);
});

test("workers: each knows whether another one can serve", async () => {
  await using group = await begin("usual", 3);
  const others = (): Promise<readonly unknown[]> => group.ask("others", { timeoutMs: 10_000 });
  const expected = async (report: string, answers: readonly boolean[]): Promise<void> => {
    await group.ask(report, { timeoutMs: 10_000 });
    for (let tries = 0; tries < 100; tries += 1) {
      if ((await others()).join() === answers.join()) return;
      await delay(20);
    }
    assert.deepEqual(await others(), answers, report);
  };
  assert.deepEqual(await others(), [false, false, false]);
  await expected("1 serves", [false, true, true]);
  await expected("2 and 3 serve", [true, true, true]);
  await expected("none serves", [false, false, false]);
});

test("workers: one that starts while another one can serve learns it, however long it takes to ask", async () => {
  await using group = await begin("learns-late", 3);
  await delay(400);
  assert.deepEqual(await group.ask("others", { timeoutMs: 10_000 }), [false, true, true]);
});

test("workers: what another one can do is no queue for one that is stuck; it learns the last state", async () => {
  await using group = await begin("usual", 2);
  await group.ask("2 sleeps while 1 changes", { timeoutMs: 30_000 });
  const last = async (): Promise<unknown> => (await group.ask("others", { timeoutMs: 10_000 }))[1];
  for (let tries = 0; (await last()) !== true; tries += 1) {
    assert.ok(tries < 100);
    await delay(20);
  }
  const [, told] = await group.ask("told", { timeoutMs: 10_000 });
  assert.ok(typeof told === "number" && told > 0 && told < 10_000, String(told));
});

test("workers: a fault of all is reported once, by the first; nobody else is started then", async () => {
  await assert.rejects(begin("fails"), (error: unknown) => {
    assert.ok(error instanceof WorkerError);
    assert.equal(error.message, "worker 1 has ended with exit code 7");
    return true;
  });
  await assert.rejects(begin("second-fails"), /^WorkerError: worker 2 has ended with exit code 8$/);
  await assert.rejects(
    WorkerGroup.start({ command: ["/nowhere/at/all"], count: 2 }, { signal: never }),
    /^WorkerError: worker 1 cannot be started: spawn \/nowhere\/at\/all ENOENT$/,
  );
});

test("workers: an abort while they start starts no more, and those that are there end in order", async () => {
  const controller = new AbortController();
  const starting = begin("slow", 2, controller.signal);
  setTimeout(() => controller.abort(new Error("enough")), 300);
  await using group = await starting;
  const pids = await pidsOf(group);
  assert.equal(pids.length, 1);
  group.tell("end");
  assert.equal(await group.ended(), 0);
  await untilDead(pids);
  await using none = await begin("usual", 2, AbortSignal.abort());
  assert.deepEqual(await pidsOf(none), []);
  assert.equal(await none.ended(), 0);
});

test("workers: one that is killed is named, and the others end with the group", async () => {
  const group = await begin("dies", 3);
  const pids = await pidsOf(group);
  await assert.rejects(group.watch({ signal: never }), /^WorkerError: worker 2 has ended by SIGKILL$/);
  await group[Symbol.asyncDispose]();
  await untilDead(pids);
});

/** Runs a leader in a process of its own; returns the process and the process ids of its workers. */
async function leader(t: TestContext, mode: string) {
  const index = join(import.meta.dirname, "index.ts");
  const source = `
    import { WorkerGroup } from ${JSON.stringify(index)};
    const init = { command: ${JSON.stringify(commandOf(mode))}, count: 2 };
    const group = await WorkerGroup.start(init, { signal: new AbortController().signal });
    const pids = (await group.ask("who", { timeoutMs: 10_000 })).map(({ pid }) => pid);
    process.stdout.write(JSON.stringify(pids) + "\\n");
    process.on("SIGUSR2", () => process.exit(0));
    setInterval(() => undefined, 1000);
  `;
  const folder = mkdtempSync(join(tmpdir(), "isthmus-workers-"));
  const output = join(folder, "output");
  t.after(() => rmSync(folder, { recursive: true }));
  const fd = openSync(output, "w");
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], { stdio: ["ignore", fd, "inherit"] });
  closeSync(fd);
  t.after(() => child.kill("SIGKILL"));
  for (let tries = 0; !readFileSync(output, "utf8").includes("\n"); tries += 1) {
    assert.ok(tries < 400, "the workers have not started");
    await delay(50);
  }
  return { child, pids: JSON.parse(readFileSync(output, "utf8").split("\n")[0] ?? "") as readonly number[] };
}

for (const [how, signal] of [
  ["is killed", "SIGKILL"],
  ["exits by itself", "SIGUSR2"],
] as const) {
  test(`workers: none outlives a leader that ${how}`, async (t) => {
    const { child, pids } = await leader(t, "stubborn");
    assert.ok(pids.every(isAlive));
    child.kill(signal);
    await untilDead(pids);
  });
}

test("workers: a process without a leader is none, whatever its environment says", async () => {
  const env = { ...process.env, ISTHMUS_WORKER: "1/2" };
  const child = spawn(process.execPath, [SCRIPT], { env, stdio: ["ignore", "pipe", "inherit"] });
  assert.equal(await text(child.stdout), "no worker\n");
});
