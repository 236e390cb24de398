/**
 * A server of OpenStack from one of Debian's packages, as a process of a test, with a folder of its own.
 *
 * Owns: the process with its workers, its log, its folder. Does not know: its configuration and its API.
 *
 * ```ts
 * const server = new OpenStackProcess({ name: "Keystone", folder, argv, url });
 * await server.start();
 * await server[Symbol.asyncDispose]();
 * ```
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, openSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { seldomCollecting } from "#lab/neutron";
import { until } from "#test/lab";

const PYTHON = "/usr/bin/python3";
const STATE = join(import.meta.dirname, "../../.state");
/** Time until a server answers, in milliseconds: seconds, and more on a busy machine. */
const START_MS = 90_000;
const LOOK_MS = 200;

export interface OpenStackProcessOptions {
  /** The name of the process in a failure. */
  readonly name: string;
  /** Its folder, which is removed with it. */
  readonly folder: string;
  /** The script with its arguments. */
  readonly argv: readonly string[];
  /** The URL at which it answers with 200. */
  readonly url: URL;
  /** Added to this process's environment. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Disposing ends the process and removes its folder. */
export class OpenStackProcess implements AsyncDisposable {
  readonly #options: OpenStackProcessOptions;
  #child: ChildProcess | undefined;

  constructor(options: OpenStackProcessOptions) {
    this.#options = options;
  }

  /** Starts it, also again after {@link stop}; resolves when it answers. */
  async start(): Promise<void> {
    const { name, folder, argv, url, env = {} } = this.#options;
    const log = openSync(join(folder, "log"), "a");
    this.#child = spawn(PYTHON, argv, {
      stdio: ["ignore", log, log],
      detached: true,
      env: { ...process.env, ...seldomCollecting(join(folder, "python")), ...env },
    });
    const answers = async (): Promise<boolean> => (await fetch(url).catch(() => undefined))?.status === 200;
    const seen = (): string => this.log().slice(-800);
    await until(`${name} answers`, answers, { deadlineMs: START_MS, everyMs: LOOK_MS, seen });
  }

  /** Ends the process with its workers, which are in its process group. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    process.kill(-(child.pid ?? 0), "SIGKILL");
    await once(child, "exit");
  }

  /** All that it has written since its first start. */
  log(): string {
    return readFileSync(join(this.#options.folder, "log"), "utf8");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    rmSync(this.#options.folder, { recursive: true, force: true });
  }
}

/** Runs a script of Python's to its end; its standard output. */
export async function runPython(...argv: readonly string[]): Promise<string> {
  const env = { ...process.env, ...seldomCollecting(join(STATE, "python")) };
  return (await promisify(execFile)(PYTHON, argv, { env })).stdout;
}

/** Runs `work` while no other process holds the lock of this file. */
async function locked<T>(file: string, work: () => Promise<T>): Promise<T> {
  const holder = spawn("flock", [file, "sh", "-c", "echo locked; exec cat"], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(holder, "close");
  const failed = ended.then(() => {
    throw new Error(`flock ${file} ended with ${holder.exitCode}`);
  });
  await Promise.race([once(holder.stdout, "data"), failed]);
  try {
    return await work();
  } finally {
    holder.stdin.end();
    await ended;
  }
}

/**
 * A file or folder that servers start from, kept in `.state` of the checkout, because it takes ten seconds to make. `make` makes it at the path
 * that it gets. Of several processes that want it one makes it, and the others wait.
 */
export async function keptTemplate(name: string, make: (path: string) => Promise<void>): Promise<string> {
  const kept = join(STATE, name);
  if (existsSync(kept)) return kept;
  mkdirSync(STATE, { recursive: true });
  await locked(`${kept}.lock`, async () => {
    if (existsSync(kept)) return;
    const work = `${kept}.${process.pid}`;
    await make(work);
    renameSync(work, kept);
  });
  return kept;
}
