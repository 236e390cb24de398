import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { inNetNs, openNetNs } from "#kernel/netns";
import { NeutronBedError } from "./errors.ts";
import { seldomCollecting } from "./python.ts";

/**
 * Variable by which processes of a bed are found, also daemons that have left their parents. Its value is the bed's folder. Programs that
 * write their titles over it have the folder in their titles.
 */
const MARK = "ISTHMUS_NEUTRON_BED";
/** Time of an orderly end, in milliseconds. */
const ORDERLY_MS = 30_000;
const LOOK_MS = 20;

/** One program of the bed. */
export interface ProgramSpec {
  readonly name: string;
  readonly argv: readonly string[];
  /** Name of its network namespace. Default: that of this process. */
  readonly netns?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** File that the program and its helpers have on their command lines. */
  readonly config?: string;
}

/** A program that was started. */
export interface StartedProgram {
  readonly pid: number;
  readonly config: string | undefined;
  readonly isEnded: () => boolean;
  /** The last 2000 characters that it has written. */
  readonly lastWords: () => string;
}

/** The processes of one bed. Disposing ends them and all that they have started. */
export class Processes implements AsyncDisposable {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** The environment of the bed's programs. */
  get env(): Readonly<Record<string, string>> {
    return {
      PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
      LANG: "C.UTF-8",
      HOME: this.#folder,
      [MARK]: this.#folder,
      ...seldomCollecting(join(this.#folder, "python")),
    };
  }

  /** Starts a program. Its output goes to `NAME.log` in the bed's folder. */
  start(spec: ProgramSpec): StartedProgram {
    const { file, child } = this.#spawn(spec);
    const { config } = spec;
    // A program that cannot be run is one that has ended.
    let isFailed = false;
    child.once("error", () => {
      isFailed = true;
    });
    return {
      pid: child.pid ?? 0,
      config,
      isEnded: () => isFailed || child.exitCode !== null || child.signalCode !== null,
      lastWords: () => readFileSync(file, "utf8").slice(-2000),
    };
  }

  /** A program that another process has started in this folder, by its configuration; one that does not run has ended. */
  find({ name, config }: Pick<ProgramSpec, "name"> & { readonly config: string }): StartedProgram {
    const started = this.#all().filter((pid) => commandOf(pid).includes(config));
    // The first is the program, and all others its helpers.
    const pid = started.find((one) => !started.includes(parentOf(one))) ?? 0;
    return {
      pid,
      config,
      isEnded: () => pid === 0 || !isAlive(pid),
      lastWords: () => readFileSync(join(this.#folder, `${name}.log`), "utf8").slice(-2000),
    };
  }

  /** Runs a program to its end. Rejects with {@link NeutronBedError} `start-failed` unless its exit code is 0, and with the signal's reason. */
  async run(spec: ProgramSpec, { signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { file, child } = this.#spawn(spec, signal);
    const [code] = (await once(child, "exit")) as [number | null];
    if (code !== 0)
      throw new NeutronBedError(
        "start-failed",
        `${spec.argv[0]} ended with ${code}: ${readFileSync(file, "utf8").slice(-500)}`,
      );
  }

  /** Ends one program and the helpers that it has started, at once. */
  async stop(program: StartedProgram): Promise<void> {
    const family = new Set<number>();
    const kill = (): number => {
      // One that was started meanwhile, too.
      for (const pid of this.#familyOf(program)) family.add(pid);
      return signalAll([...family].filter(isAlive), "SIGKILL");
    };
    await poll(kill, {
      until: (left) => left === 0,
      everyMs: LOOK_MS,
      clock: systemClock,
    });
  }

  /** Has one program stand still, with the helpers that it has started, or go on. */
  pause(program: StartedProgram, isPaused: boolean): void {
    signalAll(this.#familyOf(program), isPaused ? "SIGSTOP" : "SIGCONT");
  }

  /** Asks one program to end in order, and waits until it has. Rejects with {@link NeutronBedError} `start-failed` after 30 s. */
  async end(program: StartedProgram): Promise<void> {
    signalAll([program.pid], "SIGTERM");
    const isEnded = await poll(() => program.isEnded(), {
      until: (is) => is,
      everyMs: LOOK_MS,
      deadlineMs: ORDERLY_MS,
      clock: systemClock,
    });
    if (!isEnded) throw new NeutronBedError("start-failed", `a program does not end: ${program.lastWords()}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing of theirs is needed afterwards.
    await poll(() => signalAll(this.#all(), "SIGKILL"), {
      until: (left) => left === 0,
      everyMs: LOOK_MS,
      clock: systemClock,
    });
  }

  /** The child, and the file of its output. */
  #spawn(
    { name, argv, netns: netnsName, env = {} }: ProgramSpec,
    signal?: AbortSignal,
  ): { readonly file: string; readonly child: ChildProcess } {
    const file = join(this.#folder, `${name}.log`);
    const log = openSync(file, "a", 0o600);
    try {
      const [program = "", ...args] = argv;
      const run = (): ChildProcess =>
        spawn(program, args, {
          cwd: "/",
          stdio: ["ignore", log, log],
          env: { ...this.env, ...env },
          ...(signal === undefined ? {} : { signal }),
        });
      if (netnsName === undefined) return { file, child: run() };
      using netns = openNetNs({ name: netnsName });
      // A child made while this thread is in the namespace stays in it.
      return { file, child: inNetNs(netns, run) };
    } finally {
      closeSync(log);
    }
  }

  /** All processes with the bed's mark, or its folder on their command lines. */
  #all(): number[] {
    const mark = `${MARK}=${this.#folder}`;
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => pid !== process.pid && isAlive(pid))
      .filter(
        (pid) => read(`/proc/${pid}/environ`).split("\0").includes(mark) || commandOf(pid).includes(`${this.#folder}/`),
      );
  }

  /** A process, those with its configuration, and the descendants of all of them. */
  #familyOf({ pid, config }: StartedProgram): number[] {
    const all = this.#all();
    const family = new Set(
      all.filter((one) => one === pid || (config !== undefined && commandOf(one).includes(config))),
    );
    for (let size = -1; size !== family.size; ) {
      size = family.size;
      for (const other of all) if (family.has(parentOf(other))) family.add(other);
    }
    return [...family];
  }
}

function signalAll(pids: readonly number[], signal: "SIGTERM" | "SIGKILL" | "SIGSTOP" | "SIGCONT"): number {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  }
  return pids.length;
}

/** The fields of /proc/PID/stat after the name: state, parent and so on. */
function statOf(pid: number): readonly string[] {
  const stat = read(`/proc/${pid}/stat`);
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** Returns true if a process runs; a zombie does not. */
function isAlive(pid: number): boolean {
  return !["", "Z", "X"].includes(statOf(pid)[0] ?? "");
}

function commandOf(pid: number): string {
  return read(`/proc/${pid}/cmdline`);
}

function parentOf(pid: number): number {
  return Number(statOf(pid)[1] ?? 0);
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    // It has ended, or belongs to somebody else.
    if (["ENOENT", "ESRCH", "EACCES", "EINVAL"].includes((error as NodeJS.ErrnoException).code ?? "")) return "";
    throw error;
  }
}
