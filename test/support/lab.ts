/**
 * Labs as a user runs them: the built executable, its exit code and output, and its remains on the machine.
 *
 * Owns: running `dist/isthmus`, waiting for conditions, finding leftovers of a lab. Does not know: the tests.
 *
 * ```ts
 * const { code, stdout } = await isthmus(["lab", "--json", "--name=mine"]);
 * assert.deepEqual(leftOf("mine"), []);
 * ```
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { sleep } from "#base/async";
import { type LabState, labPaths, readState } from "#lab/host";

/** The built executable. */
export const ISTHMUS = join(import.meta.dirname, "../../dist/isthmus");

/** Exit code and output of a command. */
export interface Outcome {
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Options for running a command. */
export interface RunOptions {
  /** Added to this process's environment; `undefined` removes. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The command is killed after this time, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number;
  /** The command's whole standard input. Default: none. */
  readonly input?: Uint8Array;
}

/** A command that runs. */
export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Outcome>;
  /** The command's standard error until now. */
  readonly said: () => string;
  /** The command's standard output until now. */
  readonly printed: () => string;
}

/**
 * The name of a lab on a cluster that ends with the test, one for each process. A lab whose cluster is gone cannot be removed, and a test run that
 * was killed leaves such labs; the next run must not meet them.
 */
export function nameOfGuest(name: string): string {
  return `${name}-${process.pid.toString(36)}`;
}

/** Starts a command. */
export function start(argv: readonly string[], options: RunOptions = {}): Running {
  const [file = "", ...args] = argv;
  const child = spawn(file, args, {
    stdio: "pipe",
    // A program of a test leaves no estate on the machine, unless the test names a folder.
    env: { RUNTIME_DIRECTORY: "", ...process.env, ...options.env },
    timeout: options.timeoutMs ?? 60_000,
    killSignal: "SIGKILL",
  });
  // The command may end without reading its input.
  child.stdin.on("error", () => undefined).end(options.input);
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const ended = new Promise<Outcome>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
  });
  return { child, ended, said: () => stderr, printed: () => stdout };
}

/** Runs `isthmus` to its end. */
export function isthmus(args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
  return start([ISTHMUS, ...args], options).ended;
}

/** Waits until a condition holds. After `deadlineMs` it fails with its name and the last observation. */
export async function until(
  what: string,
  condition: () => unknown | Promise<unknown>,
  { deadlineMs = 30_000, everyMs = 50, seen }: { deadlineMs?: number; everyMs?: number; seen?: () => string } = {},
): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`not so after ${deadlineMs / 1000} s: ${what}${seen === undefined ? "" : `; found ${seen()}`}`);
    await sleep(everyMs);
  }
}

/** A process, identified so that a later process with the same id is not mistaken for it. */
export interface KnownProcess {
  readonly pid: number;
  readonly startTime: string;
  readonly command: string;
}

/** Every process in a lab's namespaces or with the lab's name on its command line. */
export function processesOf(lab: string): KnownProcess[] {
  const inodes = new Set(namespacesOf(lab).flatMap(inodeOf));
  const words = (text: string): boolean =>
    text.split("\0").some((word) => word === `--name=${lab}` || word.includes(`/run/isthmus/lab-${lab}/`));
  return allProcesses().filter(({ pid, command }) => {
    if (pid === process.pid) return false;
    return words(command) || inodes.has(netnsOf(pid));
  });
}

/** The names of a lab's network namespaces. */
export function namespacesOf(lab: string): string[] {
  if (!existsSync("/run/netns")) return [];
  return readdirSync("/run/netns").filter((name) => name.startsWith(`isthmus-${lab}-`));
}

/** All remains of a lab on the machine, one line each; `known` are its former processes. */
export function leftOf(lab: string, known: readonly KnownProcess[] = []): string[] {
  const alive = new Map(allProcesses().map((one) => [`${one.pid} ${one.startTime}`, one] as const));
  const survivors = known.filter(({ pid, startTime }) => alive.has(`${pid} ${startTime}`));
  const processes = new Map([...processesOf(lab), ...survivors].map((one) => [one.pid, one] as const));
  return [
    ...namespacesOf(lab).map((name) => `namespace ${name}`),
    ...[labPaths(lab).dir, labPaths(lab).disk].filter((path) => existsSync(path)).map((path) => `folder ${path}`),
    ...Array.from(processes.values(), ({ pid, command }) => `process ${pid} ${command.replaceAll("\0", " ")}`),
  ];
}

/** Removes a lab in any state; for the end of a test. Starts no program if nothing of the lab is there. */
export async function removeLab(lab: string): Promise<void> {
  if (leftOf(lab).length === 0) return;
  const { code, stderr } = await isthmus(["lab", "down", `--name=${lab}`]);
  if (code !== 0) throw new Error(`lab down --name=${lab} ended with ${code}: ${stderr}`);
}

/** The state file of a lab that must be up. */
export function stateOf(lab: string): LabState {
  const state = readState(lab);
  if (state === undefined) throw new Error(`lab ${lab} has no state file`);
  return state;
}

function allProcesses(): KnownProcess[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const stat = readProc(`/proc/${name}/stat`);
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      // A zombie has no resources; only its parent has not waited for it yet.
      if (fields[0] === "Z" || fields[19] === undefined) return [];
      return [{ pid: Number(name), startTime: fields[19], command: readProc(`/proc/${name}/cmdline`) }];
    });
}

function netnsOf(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch (error) {
    return gone(error);
  }
}

function inodeOf(name: string): string[] {
  try {
    return [`net:[${statSync(join("/run/netns", name)).ino}]`];
  } catch (error) {
    gone(error);
    return [];
  }
}

function readProc(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    return gone(error);
  }
}

/** A process that ended meanwhile, or that we may not read, does not belong to the lab; other failures are thrown. */
function gone(error: unknown): "" {
  if (["ENOENT", "ESRCH", "EINVAL", "EACCES"].includes((error as NodeJS.ErrnoException).code ?? "")) return "";
  throw error;
}
