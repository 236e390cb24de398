import { type ExecFileException, execFile } from "node:child_process";
import type { AbortOptions } from "#base/async";

/** The time that modprobe may take, milliseconds. */
const COMMAND_MS = 10_000;
/** The folders in which distributions have modprobe; services may start without these in PATH. */
const FOLDERS = ["/usr/sbin", "/sbin"];

/**
 * Loads kernel modules, each whether or not the others can be loaded; one that is there, or built in, stays. Resolves to the reason if modprobe is missing or
 * refuses a module, in one line: a kernel may have all of it nevertheless. Rejects with the signal's reason. Needs CAP_SYS_MODULE, and the
 * system's /lib/modules.
 */
export function loadModules(names: readonly string[], { signal }: AbortOptions = {}): Promise<string | undefined> {
  const env = { ...process.env, LC_ALL: "C", PATH: [process.env["PATH"] ?? "", ...FOLDERS].join(":") };
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const ended = (error: ExecFileException | null, _stdout: string, stderr: string): void => {
      if (signal?.aborted === true) reject(signal.reason);
      else if (error === null) resolve(undefined);
      else if (error.code === "ENOENT") resolve("there is no modprobe");
      else resolve(oneLineOf(stderr) || error.message);
    };
    execFile("modprobe", ["-a", ...names], { env, timeout: COMMAND_MS, signal }, ended);
  });
}

function oneLineOf(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  return lines.filter((line) => line !== "").join("; ");
}
