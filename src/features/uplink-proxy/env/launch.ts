import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { ExpectedError } from "#base/errors";

/** The command of `mgmtproxy-env run` or `launch` cannot be started. */
export class LaunchError extends ExpectedError<"cannot-start"> {
  override readonly name = "LaunchError";
}

/** Runs a command in the foreground; resolves with its exit status, 128 and the signal's number after a signal. */
export async function runCommand(
  words: readonly string[],
  env: NodeJS.ProcessEnv,
  { signal }: { readonly signal: AbortSignal },
): Promise<number> {
  const [command = "", ...args] = words;
  const child = spawn(command, args, { env, stdio: "inherit" });
  // A signal to this process is passed to the command, which decides how it ends.
  const pass = (): void =>
    void child.kill(signal.reason instanceof Error && /SIGINT/.test(signal.reason.message) ? "SIGINT" : "SIGTERM");
  signal.addEventListener("abort", pass);
  try {
    return await exitStatus(child, command);
  } finally {
    signal.removeEventListener("abort", pass);
  }
}

function exitStatus(child: ChildProcess, command: string): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  child.once("error", (cause) => reject(cannotStart(command, cause)));
  child.once("exit", (code, name) => resolve(code ?? 128 + signalNumber(name)));
  return promise;
}

/** Numbers of the signals that end programs, for exit status 128 + n. */
const SIGNALS: Readonly<Record<string, number>> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGABRT: 6,
  SIGKILL: 9,
  SIGSEGV: 11,
  SIGPIPE: 13,
  SIGTERM: 15,
};

function signalNumber(name: NodeJS.Signals | null): number {
  return SIGNALS[name ?? ""] ?? 0;
}

/** Starts a command that continues to run after this process has ended; resolves with its process id once it runs. */
export async function startDetached(
  words: readonly string[],
  env: NodeJS.ProcessEnv,
  { logFile }: { readonly logFile: string | undefined },
): Promise<number> {
  const [command = "", ...args] = words;
  const output = logFile === undefined ? "inherit" : openSync(logFile, "a");
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const child = spawn(command, args, { env, detached: true, stdio: ["ignore", output, output] });
  child.once("error", (cause) => reject(cannotStart(command, cause)));
  child.once("spawn", () => resolve(child.pid ?? 0));
  try {
    return await promise;
  } finally {
    child.unref();
    if (typeof output === "number") closeSync(output);
  }
}

/** The process in the file; `undefined` unless it runs and is the same program, because another process may have got its id. */
export function runningPid(pidFile: string, command: string): number | undefined {
  const pid = Number(readText(pidFile)?.trim());
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  const [argv0 = ""] = readText(`/proc/${pid}/cmdline`)?.split("\0") ?? [];
  return basename(argv0) === basename(command) ? pid : undefined;
}

/** Records a process for {@link runningPid}. */
export function writePid(pidFile: string, pid: number): void {
  writeFileSync(pidFile, `${pid}\n`);
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    // ESRCH: the process ended while its file was read.
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    throw error;
  }
}

function cannotStart(command: string, cause: Error): LaunchError {
  return new LaunchError("cannot-start", `cannot start ${command}: ${cause.message}`, { cause });
}
