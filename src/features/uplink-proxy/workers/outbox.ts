import { describeError } from "#base/errors";
import type { LogFields, Logger, LogLevel } from "#base/log";
import type { Evidence } from "#base/uplink-model";
import type { Recorder, StatsEvent } from "../stats/index.ts";
import { areClosedAlike, areConnectedAlike, EventAggregator } from "./event-aggregator.ts";
import type { EvidenceCall, Note } from "./messages.ts";

/** Longest delay of a note, in milliseconds: one message for each note would be expensive. */
const FLUSH_MS = 50;
/** A batch with this number of notes is sent at once. */
const MAX_NOTES = 256;

/**
 * Sends counted events, evidence and log lines of a thread to the first one, in batches. A batch begins with the tunnels that were opened
 * and ends with those that were closed, so that no tunnel is closed before it is counted; other events keep their order. A repetition of
 * the last evidence of an uplink is left out.
 */
export class Outbox {
  readonly #post: (notes: string) => void;
  readonly #levels: ReadonlySet<LogLevel>;
  #notes: Note[] = [];
  #requests = 0;
  readonly #connected = new EventAggregator(areConnectedAlike);
  readonly #closed = new EventAggregator(areClosedAlike);
  /** The last evidence of each uplink in the batch. */
  readonly #said = new Map<string, EvidenceCall>();
  #timer: NodeJS.Timeout | undefined;

  /** `post` gets an array of {@link Note} as JSON, which takes a third of the time of a structured clone; `levels` are the enabled ones. */
  constructor(post: (notes: string) => void, levels: readonly LogLevel[]) {
    this.#post = post;
    this.#levels = new Set(levels);
  }

  readonly record: Recorder = (event) => {
    if (event.kind === "request") this.#requests += event.count;
    else if (event.kind === "connected") this.#connected.add(event);
    else if (event.kind === "closed") this.#closed.add(event);
    else this.#notes.push({ kind: "stats", event });
    this.#flushSoon();
  };

  readonly evidence: Evidence = {
    dialSucceeded: (uplink, destination) => this.#report({ call: "dialSucceeded", uplink, destination }),
    dialFailed: (uplink, destination, failure, text, context) =>
      this.#report({ call: "dialFailed", uplink, destination, failure, text, context }),
    firstByte: (uplink, destination) => this.#report({ call: "firstByte", uplink, destination }),
    // The first thread reports this from the counted bytes of all threads.
    bytesReceived: () => undefined,
    blackholed: (uplink, destination, context) => this.#report({ call: "blackholed", uplink, destination, context }),
    stalled: (uplink, destination, context) => this.#report({ call: "stalled", uplink, destination, context }),
  };

  readonly log: Logger = this.#logger();

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const notes = [...this.#connected.take().map(statsNote), ...this.#notes, ...this.#closed.take().map(statsNote)];
    if (this.#requests > 0) notes.push(statsNote({ kind: "request", count: this.#requests }));
    if (notes.length === 0) return;
    this.#notes = [];
    this.#requests = 0;
    this.#said.clear();
    this.#post(JSON.stringify(notes));
  }

  #report(call: EvidenceCall): void {
    const last = this.#said.get(call.uplink);
    if (last?.call === call.call && last.destination === call.destination && call.call !== "dialFailed") return;
    this.#said.set(call.uplink, call);
    this.#push({ kind: "evidence", call });
  }

  #push(note: Note): void {
    this.#notes.push(note);
    this.#flushSoon();
  }

  #flushSoon(): void {
    const waiting = this.#notes.length + this.#connected.size + this.#closed.size + Math.sign(this.#requests);
    if (waiting >= MAX_NOTES) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  #logger(): Logger {
    const at =
      (level: LogLevel): Logger["info"] =>
      (message, fields = {}) => {
        if (this.#levels.has(level)) this.#push({ kind: "log", level, message, fields: plain(fields) });
      };
    const logger: Logger = {
      debug: at("debug"),
      info: at("info"),
      warn: at("warn"),
      error: at("error"),
      isEnabled: (level) => this.#levels.has(level),
      child: () => logger,
    };
    return logger;
  }
}

function statsNote(event: StatsEvent): Note {
  return { kind: "stats", event };
}

/** The fields as values that JSON can represent. */
function plain(fields: LogFields): LogFields {
  const entries = Object.entries(fields);
  return Object.fromEntries(
    entries.map(([key, value]) => [key, value instanceof Error ? describeError(value) : value]),
  );
}

/** Repeats a call of another thread. */
export function repeatEvidence(evidence: Evidence, call: EvidenceCall): void {
  const { uplink, destination } = call;
  if (call.call === "dialFailed") evidence.dialFailed(uplink, destination, call.failure, call.text, call.context);
  else if ("context" in call) evidence[call.call](uplink, destination, call.context);
  else evidence[call.call](uplink, destination);
}
