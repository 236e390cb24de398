import { type Clock, systemClock } from "#base/clock";
import { describeError } from "#base/errors";
import { type Logger, nullLogger } from "#base/log";

/** A part is `starting` until its first report. A `degraded` part still works, and has a reason. */
export interface PartState {
  readonly name: string;
  readonly status: "starting" | "ok" | "degraded";
  readonly reason: string;
  /** The progress of its loop at the last `ok`, such as `sync 3 done, wanted state of revision 7`. Absent: it has none. Shown while the part is ok. */
  readonly progress?: string;
  /** Milliseconds since the epoch of the last change of status. */
  readonly since: number;
}

/** Reports the state of one part. */
export interface HealthPart {
  /** `progress`: what the part has done so far. It is shown, and its change is no news. */
  ok(reason?: string, progress?: string): void;
  degraded(error: unknown): void;
}

/** The parts of one program. The program is ready if every part was ok once and no required part is starting or degraded. */
export class Health {
  readonly #parts = new Map<string, PartState>();
  readonly #sticky = new Set<string>();
  readonly #readyOnce = new Set<string>();
  readonly #clock: Clock;
  readonly #log: Logger;

  /** The `log` gets a line when a part degrades, when the reason changes, and when the part is ready again. */
  constructor({ clock = systemClock, log = nullLogger }: { readonly clock?: Clock; readonly log?: Logger } = {}) {
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Declares a part. With `needed: "once"` (default), a part that degrades after it was ready once does not make the program unready: the
   * loss of an API server must not make a node's network agent unready. With `needed: "always"`, the program is not ready while the part is
   * degraded.
   */
  part(name: string, options: { readonly needed?: "once" | "always" } = {}): HealthPart {
    if (options.needed !== "always") this.#sticky.add(name);
    this.#set(name, "starting", "");
    return {
      ok: (reason = "", progress) => {
        this.#readyOnce.add(name);
        this.#set(name, "ok", reason, progress);
      },
      degraded: (error) => this.#set(name, "degraded", describeError(error)),
    };
  }

  /** A part is degraded from now on because the program ends in order. It is no news, so the log gets no line. */
  drain(name: string): void {
    const since = this.#clock.now();
    this.#parts.set(name, { name, status: "degraded", reason: "draining", since });
  }

  get parts(): readonly PartState[] {
    return [...this.#parts.values()];
  }

  /** The parts that keep the program from being ready. */
  get unready(): readonly PartState[] {
    return this.parts.filter(
      (part) => part.status !== "ok" && !(this.#sticky.has(part.name) && this.#readyOnce.has(part.name)),
    );
  }

  #set(name: string, status: PartState["status"], reason: string, latest?: string): void {
    const before = this.#parts.get(name);
    const progress = latest ?? before?.progress;
    const since = before?.status === status ? before.since : this.#clock.now();
    if (status === "degraded" && (before?.status !== status || before.reason !== reason)) {
      this.#log.warn("degraded", { part: name, reason });
    } else if (status === "ok" && before?.status === "degraded") {
      this.#log.info("well again", { part: name });
    }
    this.#parts.set(name, { name, status, reason, since, ...(progress === undefined ? {} : { progress }) });
  }
}
