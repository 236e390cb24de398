import type { ByteStream } from "#base/byte-stream";
import type { Entry } from "#base/collections";
import type { RelayTimer } from "./relay-timer.ts";
import { ReplayBuffer, type ReplayRule } from "./replay-buffer.ts";
import { TlsRecords } from "./tls-records.ts";

/** Go's default, milliseconds (docs/spec/uplink-proxy.md#7). */
const TCP_KEEPALIVE_MS = 15_000;

/** A limit is divided into so many parts, in each of which the kernel is asked once whether its queues drain. */
const LOOKS_A_LIMIT = 4;

/** The end of a stream is acknowledged as a byte, in both directions. */
const FINS = 2;

/** Why a tunnel ended (docs/spec/uplink-proxy.md#7). */
export type CloseReason = "eof" | "reset" | "idle" | "blackhole" | "drain" | "error";

/** Bytes since the start, counted as they pass. */
export interface ByteCount {
  /** Client to upstream. */
  up: number;
  /** Upstream to client. */
  down: number;
}

/** Limits of one tunnel. */
export interface RelayOptions {
  /** Without a byte either way. */
  readonly idleTimeoutMs: number;
  /** The same once one side has ended its sending. */
  readonly halfCloseTimeoutMs: number;
  /** What the destination's host has not acknowledged for so long, and its first byte has not come, is swallowed. */
  readonly firstByteTimeoutMs: number;
  /** Most that a direction holds. */
  readonly bufferBytes: number;
  /** Kept for another uplink until the first byte comes. */
  readonly replayBytes: number;
  /** What of the client's bytes may be sent twice. Default: a ClientHello alone. */
  readonly replay?: ReplayRule | undefined;
}

/** What a tunnel tells. None may throw. */
export interface RelayEvents {
  /** The first byte of the destination. */
  onFirstByte(): void;
  /** What the client has said was not acknowledged for `firstByteTimeoutMs`, and nothing has come back. Told once for each upstream. */
  onSilent(): void;
  /** Both sockets are closed. */
  onClosed(end: RelayEnd): void;
}

/** How a tunnel ended. */
export interface RelayEnd {
  readonly reason: CloseReason;
  /** It ended for silence though the client was still waiting for bytes that had begun to come. */
  readonly stalled: boolean;
}

/**
 * Two streams joined (docs/spec/uplink-proxy.md#7): half-close both ways, no faster than either side takes, RST for RST, limits on silence. A
 * direction holds at most what one read brings. Until the first byte of the destination the upstream can be replaced. Both streams
 * are paused.
 */
export class Relay {
  readonly bytes: ByteCount = { up: 0, down: 0 };
  readonly #client: ByteStream;
  readonly #timer: RelayTimer;
  readonly #options: RelayOptions;
  readonly #events: RelayEvents;
  readonly #replayBuffer: ReplayBuffer;
  readonly #records = new TlsRecords();
  #upstream: ByteStream;
  #total: ByteCount;
  #lastByteAt: number;
  /** The exact time of a byte of the client, the first of those that may not be acknowledged; till the first byte comes back. */
  #owedSince: number | undefined;
  /** What both hosts had acknowledged when they were looked at last, and when that is to be done again. */
  #acked: number | undefined;
  #lookAt = 0;
  #isKeptAlive = false;
  #clientSpokeLast = false;
  #gotFirstByte = false;
  #wasSilent = false;
  #clientEnded = false;
  #upstreamEnded = false;
  /** Whether the close of each was seen. */
  #clientClosed = false;
  #upstreamClosed = false;
  /** At the timer. */
  #entry: Entry | undefined;
  #reason: CloseReason | undefined;
  #isStalled = false;

  /** `total` is counted up with the tunnel's own bytes. */
  constructor(
    client: ByteStream,
    upstream: ByteStream,
    deps: { readonly timer: RelayTimer; readonly total: ByteCount },
    options: RelayOptions,
    events: RelayEvents,
  ) {
    this.#client = client;
    this.#upstream = upstream;
    this.#timer = deps.timer;
    this.#total = deps.total;
    this.#options = options;
    this.#events = events;
    this.#replayBuffer = new ReplayBuffer(options.replayBytes, options.replay ?? "hello");
    this.#lastByteAt = deps.timer.now;
  }

  /** Both ways open. `early` was read from the client before and goes first. */
  start(early: readonly Uint8Array[]): void {
    this.#entry = this.#timer.add(this);
    this.#moved();
    this.#client.limitReads(this.#options.bufferBytes);
    this.#client.on("data", this.#onClientData);
    this.#client.on("drain", this.#onClientDrain);
    this.#client.on("end", this.#onClientEnd);
    this.#client.on("close", this.#onClientClose);
    this.#attach();
    for (const chunk of early) this.#onClientData(chunk);
    if (this.#client.closed) this.#onClientClose();
    else if (this.#client.readableEnded) this.#onClientEnd();
    else if (!this.#upstream.writableNeedDrain) this.#client.resume();
  }

  /** Whether another upstream may take this one's place: nothing came yet, and what was sent may be sent once more. */
  get canReplay(): boolean {
    const areOpen = !this.#client.destroyed && !this.#upstream.destroyed;
    return !this.#gotFirstByte && areOpen && !this.#upstreamEnded && this.#replayBuffer.isReplayable;
  }

  /** Sends all that the client has said so far to another upstream, connected and paused, which takes the place of the present one. */
  replaceUpstream(next: ByteStream, total: ByteCount): void {
    const said = this.#replayBuffer.chunks;
    if (!this.canReplay || said === undefined) throw new Error("Relay: the upstream can no longer be replaced");
    this.#detach();
    // No word of farewell that would be sent again and again into a hole.
    this.#upstream.reset();
    this.#upstream = next;
    this.#total = total;
    this.#wasSilent = false;
    this.#isKeptAlive = false;
    this.#owedSince = this.#timer.exactNow();
    this.#moved();
    this.#attach();
    for (const chunk of said) {
      next.write(chunk);
      total.up += chunk.length;
    }
    if (this.#clientEnded) next.end();
    else if (!next.writableNeedDrain) this.#client.resume();
  }

  /** Ends both sides: at once with RST where the reason is a failure, else in order. */
  close(reason: CloseReason): void {
    this.#reason ??= reason;
    const isFailure = reason === "blackhole" || reason === "error" || reason === "reset";
    for (const socket of [this.#client, this.#upstream]) {
      if (isFailure) socket.reset();
      else socket.destroy();
    }
  }

  /** Called by the timer: closes a relay that was silent for too long. */
  check(now: number): void {
    // Its end is about to be told; till then nobody is to blame for a silence.
    const isEnding = this.#client.destroyed && !this.#clientClosed;
    if (isEnding || (this.#upstream.destroyed && !this.#upstreamClosed)) return;
    if (!this.#isKeptAlive) this.#keepAlive();
    const limitMs = this.#limitMs;
    this.#lookForProgress(now, limitMs);
    if (this.#timer.hasPassed(this.#lastByteAt, limitMs) && !this.#isThinking(limitMs)) {
      this.#isStalled =
        this.#gotFirstByte && !this.#clientEnded && (this.#clientSpokeLast || this.#records.isWithinRecord);
      this.close("idle");
      return;
    }
    if (this.#isSwallowed(now)) {
      this.#wasSilent = true;
      this.#events.onSilent();
    }
  }

  get #limitMs(): number {
    const { idleTimeoutMs, halfCloseTimeoutMs } = this.#options;
    return this.#clientEnded || this.#upstreamEnded ? halfCloseTimeoutMs : idleTimeoutMs;
  }

  /**
   * Bytes that drain from the kernel's queues are no silence: a reader may be slow, or the line. Looked at four times in a limit, and only
   * while nothing passes here.
   */
  #lookForProgress(now: number, limitMs: number): void {
    if (now < this.#lookAt) return;
    const acked = (this.#client.transport?.()?.ackedBytes ?? 0) + (this.#upstream.transport?.()?.ackedBytes ?? 0);
    if (this.#acked !== undefined && acked > this.#acked + FINS) this.#lastByteAt = this.#timer.now;
    this.#acked = acked;
    this.#lookAt = now + limitMs / LOOKS_A_LIMIT;
  }

  /** A byte has passed: from here the silence is counted. */
  #moved(): void {
    this.#lastByteAt = this.#timer.now;
    this.#acked = undefined;
    this.#lookAt = this.#lastByteAt + this.#limitMs / LOOKS_A_LIMIT;
  }

  /**
   * The client waits for an answer, and the destination's host has all that it said and is there, as its acknowledgements and its answers to
   * probes show: it is slow, and waited for as long as the client would wait for it without us.
   */
  #isThinking(limitMs: number): boolean {
    if (!this.#clientSpokeLast || this.#clientEnded || this.#upstreamEnded) return false;
    const path = this.#upstream.transport?.();
    return path !== undefined && (path.heardMs < limitMs || (path.unacked === 0 && path.probes === 0));
  }

  /** The kernel says it: what was sent is not acknowledged. A host that has acknowledged it has it, however long it thinks. */
  #isSwallowed(now: number): boolean {
    const { firstByteTimeoutMs } = this.#options;
    if (this.#owedSince === undefined || this.#wasSilent || this.#upstreamEnded) return false;
    const path = this.#upstream.transport?.();
    if (path === undefined) return false;
    const sinceMs = now - this.#owedSince;
    // Looked at each time, so that what is said next has all of its time again.
    if (path.unacked === 0) this.#owedSince = undefined;
    return path.unacked > 0 && sinceMs >= firstByteTimeoutMs && path.heardMs >= firstByteTimeoutMs;
  }

  /** Eight system calls, which a tunnel of less than half a second need not pay for. Often enough to tell within the limit who is there. */
  #keepAlive(): void {
    this.#isKeptAlive = true;
    const idleMs = Math.min(TCP_KEEPALIVE_MS, this.#options.idleTimeoutMs / 2);
    for (const socket of [this.#client, this.#upstream]) socket.keepAlive(idleMs);
  }

  readonly #onClientData = (chunk: Uint8Array): void => {
    this.bytes.up += chunk.length;
    this.#total.up += chunk.length;
    this.#moved();
    this.#clientSpokeLast = true;
    if (!this.#gotFirstByte) {
      this.#owedSince ??= this.#timer.exactNow();
      this.#replayBuffer.push(chunk);
    }
    if (!this.#upstream.destroyed && !this.#upstream.write(chunk)) this.#client.pause();
  };

  readonly #onClientEnd = (): void => {
    this.#clientEnded = true;
    this.#moved();
    this.#upstream.end();
  };

  readonly #onUpstreamData = (chunk: Uint8Array): void => {
    if (!this.#gotFirstByte) this.#firstByte();
    this.bytes.down += chunk.length;
    this.#total.down += chunk.length;
    this.#moved();
    this.#clientSpokeLast = false;
    this.#records.push(chunk);
    if (!this.#client.write(chunk)) this.#upstream.pause();
  };

  readonly #onClientDrain = (): void => {
    this.#upstream.resume();
  };

  readonly #onUpstreamEnd = (): void => {
    this.#upstreamEnded = true;
    this.#moved();
    this.#client.end();
  };

  readonly #onUpstreamDrain = (): void => {
    this.#client.resume();
  };

  // A stream is closed before it tells so: whoever looks first acts, and what is told then is old.
  readonly #onClientClose = (): void => {
    if (this.#clientClosed) return;
    this.#clientClosed = true;
    this.#closed(this.#client, this.#upstream);
  };

  readonly #onUpstreamClose = (): void => {
    if (this.#upstreamClosed) return;
    this.#upstreamClosed = true;
    this.#closed(this.#upstream, this.#client);
  };

  #firstByte(): void {
    this.#gotFirstByte = true;
    this.#owedSince = undefined;
    this.#replayBuffer.forget();
    this.#events.onFirstByte();
  }

  #attach(): void {
    const upstream = this.#upstream;
    upstream.on("data", this.#onUpstreamData);
    upstream.on("drain", this.#onUpstreamDrain);
    upstream.on("end", this.#onUpstreamEnd);
    upstream.on("close", this.#onUpstreamClose);
    if (upstream.closed) this.#onUpstreamClose();
    else if (!this.#client.writableNeedDrain) upstream.resume();
  }

  #detach(): void {
    const upstream = this.#upstream;
    upstream.off("data", this.#onUpstreamData);
    upstream.off("drain", this.#onUpstreamDrain);
    upstream.off("end", this.#onUpstreamEnd);
    upstream.off("close", this.#onUpstreamClose);
  }

  /**
   * What one side's end means for the other. In order both ways: nothing. A loss before it had said all that it had to say: the same loss.
   * A loss after that: what it said still arrives, and only then there is nobody left to listen.
   */
  #closed(lost: ByteStream, other: ByteStream): void {
    const isOrderly = lost.readableEnded && lost.writableFinished && lost.errored === undefined;
    if (!isOrderly && !other.destroyed) {
      this.#reason ??= "reset";
      if (!lost.readableEnded) other.reset();
      else if (lost === this.#client) whenFlushed(other, () => other.reset());
      // What the client still sends goes nowhere; closing now could take the answer from it.
      else this.#client.resume();
    }
    if (!this.#clientClosed || !this.#upstreamClosed) return;
    if (this.#entry !== undefined) this.#timer.remove(this.#entry);
    this.#events.onClosed({ reason: this.#reason ?? "eof", stalled: this.#isStalled });
  }
}

/** Once all that was written has been handed to the kernel, its end included. */
function whenFlushed(stream: ByteStream, act: () => void): void {
  if (stream.writableFinished) act();
  else stream.once("finish", act);
}
