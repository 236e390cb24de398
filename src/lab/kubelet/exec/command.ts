import { type ChildProcess, execFile, spawn } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { inNetNs, type NetNs } from "#kernel/netns";
import type { Exit } from "./channels.ts";
import type { ExecRequest } from "./request.ts";

/** The namespace and environment of a command. */
export interface ExecPlace {
  readonly netns: NetNs;
  readonly env: Readonly<Record<string, string>>;
}

/** A running command of a pod. */
export interface RunningCommand {
  readonly child: ChildProcess;
  /** Resolves once the command has ended and its whole output was read. Rejects if the command cannot be started. */
  readonly ended: Promise<Exit>;
  /** Resizes the terminal. No effect without one. */
  resize(columns: number, rows: number): void;
}

/** Runs a command in a pod's network namespace. With a terminal it runs under script(1), which has one. */
export function startCommand(place: ExecPlace, { command, tty }: ExecRequest): RunningCommand {
  const argv = tty ? ["script", "--quiet", "--return", "--command", shellWords(command), "/dev/null"] : command;
  const [file = "", ...args] = argv;
  const env = { PATH: process.env["PATH"] ?? "", ...(tty ? { TERM: "xterm" } : {}), ...place.env };
  // The command has its own process group, so that its children can be killed too.
  const child = inNetNs(place.netns, () => spawn(file, args, { env, stdio: "pipe", detached: true }));
  const ended = new Promise<Exit>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code: code ?? undefined, signal: signal ?? undefined }));
  });
  return {
    child,
    ended,
    resize: (columns, rows) => {
      if (tty) resizeTerminal(child.pid ?? 0, columns, rows);
    },
  };
}

/** Kills a command and its children. */
export function killCommand({ child }: RunningCommand): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch (error) {
    // The process has ended meanwhile.
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

function shellWords(command: readonly string[]): string {
  return command.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
}

/** stty(1) at the terminal of script's child; before there is one, the size is the one that script has set. */
function resizeTerminal(script: number, columns: number, rows: number): void {
  const terminal = terminalOf(script);
  if (terminal === undefined) return;
  // A failure is ignored: a terminal that has ended needs no size.
  execFile("stty", ["-F", terminal, "cols", String(columns), "rows", String(rows)], () => undefined);
}

/** The standard input of the first child. */
function terminalOf(parent: number): string | undefined {
  try {
    const child = childrenOf(parent)[0];
    if (child === undefined) return undefined;
    const terminal = readlinkSync(`/proc/${child}/fd/0`);
    return terminal.startsWith("/dev/pts/") ? terminal : undefined;
  } catch (error) {
    // The process has ended meanwhile.
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    throw error;
  }
}

function childrenOf(parent: number): readonly string[] {
  return readdirSync(`/proc/${parent}/task`).flatMap((task) =>
    readFileSync(`/proc/${parent}/task/${task}/children`, "utf8")
      .trim()
      .split(" ")
      .filter((pid) => pid !== ""),
  );
}
