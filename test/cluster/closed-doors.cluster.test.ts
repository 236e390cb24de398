/** Signals and variables of the environment open nothing in the shipped programs (docs/security.md). */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { EveryProgram, isOver, portsOf } from "#test/every-program";
import { ISTHMUS, until } from "#test/lab";
import { PROGRAMS } from "../../src/programs/programs.ts";

/** The port of Node's debugger. */
const DEBUGGER_PORT = 9229;
/** Signals that a program that serves outlives, whatever it does at them. */
const OUTLIVED = ["SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGWINCH", "SIGCONT", "SIGURG", "SIGCHLD"] as const;
/** Signals that end a program at once, as every process that does not handle them. */
const ENDING = ["SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT", "SIGXCPU"] as const;

const folder = mkdtempSync(join(tmpdir(), "isthmus-doors-"));
const at = (name: string): string => join(folder, name);
const marker = at("code-ran");
after(() => rmSync(folder, { recursive: true, force: true }));

/** Variables by which Node runs other code, opens a debugger or writes files. */
const STRANGE: Readonly<Record<string, string>> = {
  NODE_OPTIONS: `--inspect=0.0.0.0:${DEBUGGER_PORT} --require=${at("strange.cjs")}`,
  NODE_REPL_EXTERNAL_MODULE: at("strange.cjs"),
  NODE_PATH: folder,
  NODE_V8_COVERAGE: at("coverage"),
  NODE_REDIRECT_WARNINGS: at("warnings"),
  NODE_DEBUG: "*",
  NODE_COMPILE_CACHE: at("cache"),
  OPENSSL_CONF: at("openssl.cnf"),
};

before(() => {
  writeFileSync(at("strange.cjs"), `require("node:fs").writeFileSync(${JSON.stringify(marker)}, "")`);
  writeFileSync(at("openssl.cnf"), "nodejs_conf = strange\n[strange]\nengines = strange\n");
});

const programs = new EveryProgram(folder);

/** All processes in the network of this one. */
function groupOf(pid: number): readonly number[] {
  const own = readlinkSync(`/proc/${pid}/ns/net`);
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        return readlinkSync(`/proc/${name}/ns/net`) === own ? [Number(name)] : [];
      } catch {
        // It has ended.
        return [];
      }
    });
}

/** True if a process has a handler of SIGUSR2: it has begun to run our code. A worker may still be Node alone, which that signal ends. */
function hasHandlers(pid: number): boolean {
  const [, caught = "0"] = /^SigCgt:\s*([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return ((BigInt(`0x${caught}`) >> BigInt(constants.signals.SIGUSR2 - 1)) & 1n) === 1n;
}

test("programs: the list has every one that serves", () => {
  const serving = Object.entries(PROGRAMS).filter(
    ([, { memory, onNode, group }]) => group !== "internal" && (memory !== undefined || onNode === true),
  );
  assert.deepEqual(serving.map(([name]) => name).sort(), Object.keys(programs.flags).sort());
});

test("programs: no signal and no variable of Node opens a port or runs code, in them or in their workers; at a signal that is not theirs they go on, or end", async (t) => {
  const all = Object.keys(programs.flags).map((name, place) => ({
    name,
    place,
    running: programs.launch(name, { env: STRANGE }),
  }));
  t.after(async () => {
    for (const { running } of all) running.child.kill("SIGKILL");
    await Promise.all(all.map(({ running }) => running.ended));
  });
  await Promise.all(
    all.map(async ({ name, place, running }) => {
      const pid = running.child.pid ?? 0;
      const seen = (): string => `${name}: ${running.said()}`;
      const command = (): string => readFileSync(`/proc/${pid}/cmdline`, "utf8");
      await until(`${name} serves`, () => isOver(running) || portsOf(pid).length > 0, { seen });
      assert.equal(isOver(running), false, seen());
      if (name === "proxy-server") await until("workers run", () => groupOf(pid).length >= 3, { seen });
      await until(`each process of ${name} takes signals`, () => groupOf(pid).every(hasHandlers), { seen });
      assert.match(command(), /\0--disable-sigusr1\0/, name);
      for (const one of groupOf(pid)) {
        for (const signal of OUTLIVED) process.kill(one, signal);
        if (PROGRAMS[name]?.reloads === true) process.kill(one, "SIGHUP");
      }
      // A debugger is there within milliseconds.
      for (let look = 0; look < 20; look += 1) {
        await new Promise((resolve) => setTimeout(resolve, 25));
        assert.equal(isOver(running), false, seen());
        assert.ok(!portsOf(pid).includes(DEBUGGER_PORT), seen());
      }
      assert.doesNotMatch(running.said(), /[Dd]ebugger/);
      const ending = PROGRAMS[name]?.reloads === true ? (ENDING[place % ENDING.length] ?? "SIGQUIT") : "SIGHUP";
      process.kill(pid, ending);
      await running.ended;
      assert.equal(running.child.signalCode, ending, seen());
    }),
  );
  const made = readdirSync(folder);
  for (const name of ["code-ran", "coverage", "warnings", "cache"]) assert.ok(!made.includes(name), name);
});

test("launcher: each variable that the pinned Node reads is decided", () => {
  const launcher = readFileSync(join(dirname(ISTHMUS), "isthmus"), "utf8");
  const gone = new Set(/^closed_names="([^"]*)"$/m.exec(launcher)?.[1]?.split(/[\s\\]+/));
  // By these a program shows colours, or waits on a machine of another kind. They change nothing that runs.
  const stay = new Set(["NODE_DISABLE_COLORS", "NODE_PENDING_PIPE_INSTANCES", "NODE_SKIP_PLATFORM_CHECK"]);
  const { binding } = process as unknown as { binding(name: string): Readonly<Record<string, unknown>> };
  const sources = Object.values(binding("natives")).join("\n");
  const read = new Set([...sources.matchAll(/\bNODE_[A-Z][A-Z0-9_]+/g)].map(([name]) => name));
  assert.ok(read.has("NODE_OPTIONS") && read.has("NODE_PATH"), [...read].join(" "));
  const isRead = (name: string): boolean => new RegExp(`env\\.${name}\\b`).test(sources);
  const open = [...read].filter((name) => isRead(name) && !gone.has(name) && !stay.has(name));
  assert.deepEqual(open, []);
});
