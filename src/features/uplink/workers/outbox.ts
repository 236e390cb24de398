import type { Logger, LogLevel } from "#base/log";
import type { Evidence } from "../model/index.ts";
import type { Recorder } from "../stats/index.ts";
import type { EvidenceCall, Note } from "./messages.ts";

/** Notes wait for each other at most so long, milliseconds: a message for each would cost more than what it tells. */
const FLUSH_MS = 50;
/** As many go at once. */
const MAX_NOTES = 256;

/** What a thread tells the first one: counted events, evidence and log lines, in order and in batches. */
export class Outbox {
  readonly #post: (notes: readonly Note[]) => void;
  #notes: Note[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(post: (notes: readonly Note[]) => void) {
    this.#post = post;
  }

  readonly record: Recorder = (event) => this.#push({ kind: "stats", event });

  readonly evidence: Evidence = {
    dialSucceeded: (uplink, destination) => this.#tell({ call: "dialSucceeded", uplink, destination }),
    dialFailed: (uplink, destination, failure, text) =>
      this.#tell({ call: "dialFailed", uplink, destination, failure, text }),
    firstByte: (uplink, destination) => this.#tell({ call: "firstByte", uplink, destination }),
    // The first thread tells so from the counted bytes of all threads.
    bytesReceived: () => undefined,
    blackholed: (uplink, destination) => this.#tell({ call: "blackholed", uplink, destination }),
    stalled: (uplink, destination) => this.#tell({ call: "stalled", uplink, destination }),
  };

  readonly log: Logger = this.#logger();

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#notes.length === 0) return;
    const notes = this.#notes;
    this.#notes = [];
    this.#post(notes);
  }

  #tell(call: EvidenceCall): void {
    this.#push({ kind: "evidence", call });
  }

  #push(note: Note): void {
    this.#notes.push(note);
    if (this.#notes.length >= MAX_NOTES) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  #logger(): Logger {
    const at =
      (level: LogLevel): Logger["info"] =>
      (message, fields = {}) =>
        this.#push({ kind: "log", level, message, fields });
    const logger: Logger = {
      debug: at("debug"),
      info: at("info"),
      warn: at("warn"),
      error: at("error"),
      child: () => logger,
    };
    return logger;
  }
}

/** Repeats a call of another thread. */
export function repeatEvidence(evidence: Evidence, call: EvidenceCall): void {
  if (call.call === "dialFailed") evidence.dialFailed(call.uplink, call.destination, call.failure, call.text);
  else evidence[call.call](call.uplink, call.destination);
}
