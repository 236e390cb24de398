import { closeSync, openSync } from "node:fs";
import type { Clock } from "#base/clock";
import type { Worker } from "#base/workers";

/** The time that a worker that has run out of descriptors leaves frontends to others before it looks again, in milliseconds. */
const SHORTAGE_MS = 1000;
/** The descriptors that must be free then: with fewer it would soon refuse clients again. */
const FREE_DESCRIPTORS = 16;

export interface FrontendShareDeps {
  readonly worker: Pick<Worker, "reportServing" | "onOthers">;
  readonly backends: { readonly isEmpty: boolean };
  readonly frontends: { isPaused: boolean };
  readonly clock: Clock;
  /** Returns true if this process can open some more descriptors. */
  readonly hasRoom?: () => boolean;
}

/**
 * Which frontends of a shared UNIX socket a worker accepts: none while it has no agent or no descriptors, and another worker can serve. While
 * none can, each accepts, and answers or refuses as one process alone does.
 */
export class FrontendShare {
  readonly #deps: FrontendShareDeps;
  readonly #hasRoom: () => boolean;
  #canOthers = false;
  #isShort = false;

  constructor(deps: FrontendShareDeps) {
    this.#deps = deps;
    this.#hasRoom = deps.hasRoom ?? canOpenMore;
    deps.worker.onOthers((canServe) => {
      this.#canOthers = canServe;
      this.#decide();
    });
    this.update();
  }

  /** To be called after each change of the agents. */
  update(): void {
    this.#deps.worker.reportServing(this.#canServe);
    this.#decide();
  }

  /** To be called when a client cannot be accepted. */
  noteShortage(): void {
    if (this.#isShort) return;
    this.#isShort = true;
    this.update();
    this.#lookLater();
  }

  #lookLater(): void {
    const look = (): void => {
      if (!this.#hasRoom()) {
        this.#lookLater();
        return;
      }
      this.#isShort = false;
      this.update();
    };
    this.#deps.clock.after(SHORTAGE_MS, look, { unref: true });
  }

  get #canServe(): boolean {
    return !this.#deps.backends.isEmpty && !this.#isShort;
  }

  #decide(): void {
    this.#deps.frontends.isPaused = this.#canOthers && !this.#canServe;
  }
}

function canOpenMore(): boolean {
  const opened: number[] = [];
  try {
    while (opened.length < FREE_DESCRIPTORS) opened.push(openSync("/dev/null", "r"));
    return true;
  } catch {
    return false;
  } finally {
    for (const fd of opened) closeSync(fd);
  }
}
