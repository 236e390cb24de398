import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Place } from "./listeners.ts";

/** A process in which all listeners listen, and nothing else happens. */
export class ListenersHost implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly places: Readonly<Record<string, Place>>;
  /** Its memory before strangers came, in MiB. */
  baseMiB = 0;

  private constructor(child: ChildProcess, places: Readonly<Record<string, Place>>) {
    this.#child = child;
    this.places = places;
  }

  /** `folder` has what `prepare` writes. Rejects if the process ends before it listens. */
  static async start(folder: string, options: { readonly signal: AbortSignal }): Promise<ListenersHost> {
    const script = join(import.meta.dirname, "listeners-host.ts");
    // As the launcher starts programs.
    const execArgv = ["--max-semi-space-size=1", "--expose-gc"];
    const child = fork(script, [folder], { execArgv, env: { ...process.env, MALLOC_ARENA_MAX: "1" } });
    const ended = once(child, "exit", options).then(() =>
      Promise.reject(new Error("the process of the listeners has ended")),
    );
    const [places] = await Promise.race([once(child, "message", options), ended]);
    ended.catch(() => undefined);
    return new ListenersHost(child, places as Readonly<Record<string, Place>>);
  }

  async collectGarbage(): Promise<void> {
    const done = once(this.#child, "message");
    this.#child.send("gc");
    await done;
  }

  /** Lets the peak begin anew (proc(5)). */
  resetPeak(): void {
    writeFileSync(`/proc/${this.#child.pid}/clear_refs`, "5");
  }

  /** A line of the status of the process, in MiB. */
  memory(line: "VmRSS" | "VmHWM"): number {
    const text = readFileSync(`/proc/${this.#child.pid}/status`, "utf8");
    return Number(new RegExp(`^${line}:\\s+(\\d+) kB`, "m").exec(text)?.[1]) / 1024;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }
}
