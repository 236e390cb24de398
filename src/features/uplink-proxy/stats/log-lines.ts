import type { Clock } from "#base/clock";
import { keepNewest } from "#base/collections";
import type { Logger } from "#base/log";
import { TokenBucket } from "#base/rate-limit";
import type { CloseReason } from "../relay/index.ts";

/** Maximum number of lines of one kind in a second, such as failures of one target (docs/spec/uplink-proxy.md#8). */
const LINES_PER_SECOND = 10;
/** Targets whose failures are counted; the target that failed longest ago is dropped first. */
const MAX_TARGETS = 1000;
/** Longest line, characters: a destination with many attempts is logged in one line too. */
const MAX_LINE = 2048;

/** A CONNECT that succeeded, and its uplink. */
export interface ConnectedLine {
  readonly target: string;
  readonly client: string;
  readonly ifName: string;
  readonly source: string;
  readonly cost: number;
  readonly dialMs: number;
  /** Attempts that failed before. */
  readonly fallbacks: number;
}

/** The lines that the reference writes, word for word (docs/spec/uplink-proxy.md#8). */
export class LogLines {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #failing = new Map<string, { readonly bucket: TokenBucket; suppressed: number }>();

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** `line` is called only if the level is enabled. */
  connected(line: () => ConnectedLine): void {
    if (!this.#log.isEnabled("info")) return;
    const { target, client, ifName, source, cost, dialMs, fallbacks } = line();
    const dial = `dial ${Math.round(dialMs)}ms, ${fallbacks} fallback(s)`;
    this.#log.info(
      `mgmtproxy: CONNECT ${printable(target)} from ${client} via ${ifName} src ${source} cost ${cost} (${dial})`,
    );
  }

  failed(target: string, client: string, afterMs: number, summary: string): void {
    const after = `FAILED after ${Math.round(afterMs)}ms`;
    const line = `mgmtproxy: CONNECT ${printable(target)} from ${client} ${after}: ${printable(summary)}`;
    this.#paced(`failed ${target}`, line.length > MAX_LINE ? `${line.slice(0, MAX_LINE)}…` : line);
  }

  nearName(target: string, address: string, servers: string): void {
    const why = `the DNS servers of ${servers} lead to ${address} of this node or cluster; no others were asked`;
    this.#paced("near", `mgmtproxy: ${printable(target)} is dialled direct: ${why}`);
  }

  /** The address of the client is no secret, the credentials are. */
  wrongToken(client: string): void {
    this.#paced("wrong-token", `mgmtproxy: CONNECT from ${client} refused: wrong token`);
  }

  /** Limits the lines of a kind a second; the next line has the number of suppressed lines. */
  #paced(kind: string, line: string): void {
    const state = this.#failing.get(kind) ?? {
      bucket: new TokenBucket({ ratePerSecond: LINES_PER_SECOND, burst: LINES_PER_SECOND, clock: this.#clock }),
      suppressed: 0,
    };
    this.#failing.delete(kind);
    this.#failing.set(kind, state);
    keepNewest(this.#failing, MAX_TARGETS);
    if (!state.bucket.tryTake()) {
      state.suppressed += 1;
      return;
    }
    const more = state.suppressed === 0 ? "" : ` (${state.suppressed} more like this)`;
    state.suppressed = 0;
    this.#log.warn(`${line}${more}`);
  }

  idle(limitMs: number): void {
    this.#paced("idle", `mgmtproxy: tunnel idle for ${limitMs / 1000}s, closing`);
  }

  smallSegments(target: string, ifName: string): void {
    const what = "large packets are lost on the path and nobody says so; connections have small ones for 10 min";
    this.#paced("segments", `mgmtproxy: tunnel ${printable(target)} via ${ifName}: ${what}`);
  }

  closed(
    target: string,
    ifName: string,
    end: { readonly up: number; readonly down: number; readonly durationMs: number; readonly reason: CloseReason },
  ): void {
    if (!this.#log.isEnabled("debug")) return;
    const { up, down, durationMs, reason } = end;
    const numbers = `up=${up} down=${down} duration=${Math.round(durationMs)}ms idle=${reason === "idle"}`;
    this.#log.debug(`mgmtproxy: tunnel ${printable(target)} via ${ifName} closed: ${numbers} reason=${reason}`);
  }

  replayed(target: string, from: string, to: string): void {
    this.#paced("replayed", `mgmtproxy: tunnel ${printable(target)} got no answer via ${from}, goes on via ${to}`);
  }
}

/** Removes characters that could forge a log line or move a terminal's cursor. */
export function printable(text: string): string {
  return text.replace(/[^\x20-\x7e\u00a0-\u2027\u202a-\uffff]/g, "?");
}
