import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { Deferred, unlessAborted, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import { LabError } from "./errors.ts";
import type { LabPaths } from "./lab-paths.ts";
import type { ChildEnd } from "./supervisor.ts";

/** A program that has ended this often before its lab is up does not serve. */
const MAX_ENDS = 3;
/** The end of a log that is told, in lines and characters. */
const LAST_LINES = 3;
const TAIL = 4000;

/** A part of the lab that is not ready at the deadline. */
export interface NotReady {
  readonly text: string;
  /** The program that must serve first; `undefined` if none was started. */
  readonly program: string | undefined;
}

/** Watches the start of a lab, so that programs that do not serve end it. Ends of programs after the start have no effect. */
export class Starting {
  readonly #paths: Pick<LabPaths, "logOf" | "failedLog">;
  readonly #broken = new Deferred<never>();
  #last: ChildEnd | undefined;
  #isOver = false;

  constructor(paths: Pick<LabPaths, "logOf" | "failedLog">) {
    this.#paths = paths;
    this.#broken.promise.catch(() => undefined);
  }

  /** A program has ended by itself. */
  ended(end: ChildEnd): void {
    if (this.#isOver) return;
    this.#last = end;
    if (end.times >= MAX_ENDS) this.#broken.reject(new LabError("start-failed", this.#tellEnd(end)));
  }

  /**
   * Resolves with `ready`. Rejects with {@link LabError} `start-failed` when a program has ended three times before that, or after `deadlineMs`;
   * `waitsFor` then tells what is not ready.
   */
  async untilReady(
    ready: Promise<void>,
    waitsFor: () => NotReady,
    { signal, deadlineMs, clock }: { readonly signal: AbortSignal; readonly deadlineMs: number; readonly clock: Clock },
  ): Promise<void> {
    try {
      const either = Promise.race([ready, this.#broken.promise]);
      await withDeadline(deadlineMs, (at) => unlessAborted(either, { signal: at }), { signal, clock });
    } catch (error) {
      if (signal.aborted || error instanceof LabError) throw error;
      const { text, program } = waitsFor();
      const why = this.#last !== undefined ? this.#tellEnd(this.#last) : program && this.#tellLog(program);
      const message = `${text} after ${deadlineMs / 1000} s${why === undefined ? "" : `: ${why}`}`;
      throw new LabError("start-failed", message, { cause: error });
    } finally {
      this.#isOver = true;
    }
  }

  #tellEnd({ name, times, code, by }: ChildEnd): string {
    const how = code === null ? `by ${by}` : `with exit code ${code}`;
    return `${name} has ended ${times} ${times === 1 ? "time" : "times"}, ${how}; ${this.#tellLog(name)}`;
  }

  /** The last lines of a program's log, which is kept: the folder of the lab is removed. */
  #tellLog(program: string): string {
    const { failedLog } = this.#paths;
    const log = this.#paths.logOf(program);
    mkdirSync(dirname(failedLog), { recursive: true, mode: 0o700 });
    copyFileSync(log, failedLog);
    const lines = readFileSync(log, "utf8").slice(-TAIL).trimEnd().split("\n").slice(-LAST_LINES);
    return [`the end of the log of ${program}, which is kept in ${failedLog}:`, ...lines].join("\n  ");
  }
}
