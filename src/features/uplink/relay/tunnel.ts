import type { Socket } from "node:net";
import { cut } from "./cut.ts";
import { Retained } from "./retained.ts";
import { TlsRecords } from "./tls-records.ts";
import type { TunnelWatch } from "./tunnel-watch.ts";
import type { Upstream } from "./upstream.ts";

/** Go's default, milliseconds (spec uplink-proxy 7). */
const TCP_KEEPALIVE_MS = 15_000;

/** Why a tunnel ended (spec uplink-proxy 7). */
export type CloseReason = "eof" | "reset" | "idle" | "blackhole" | "drain" | "error";

/** Bytes since the start, counted as they pass. */
export interface ByteCount {
  /** Client to upstream. */
  up: number;
  /** Upstream to client. */
  down: number;
}

/** Limits of one tunnel. */
export interface TunnelOptions {
  /** Without a byte either way. */
  readonly idleTimeoutMs: number;
  /** The same once one side has ended its sending. */
  readonly halfCloseTimeoutMs: number;
  /** From the last byte of the client to the first of the destination. */
  readonly firstByteTimeoutMs: number;
  /** Kept for another uplink until the first byte comes. */
  readonly replayBytes: number;
  /** What the client sends may be sent twice, whatever it is. Default: a ClientHello alone. */
  readonly isIdempotent?: boolean | undefined;
}

/** What a tunnel tells. None may throw. */
export interface TunnelEvents {
  /** The first byte of the destination. */
  onFirstByte(): void;
  /** The client waits, the destination has not said anything for `firstByteTimeoutMs`. Told once for each upstream. */
  onSilent(): void;
  /** Both sockets are closed. */
  onClosed(end: TunnelEnd): void;
}

/** How a tunnel ended. */
export interface TunnelEnd {
  readonly reason: CloseReason;
  /** It ended for silence though the client was still waiting for bytes that had begun to come. */
  readonly stalled: boolean;
}

/**
 * Two sockets joined (spec uplink-proxy 7): half-close both ways, no faster than either side takes, RST for RST, limits on silence. A
 * direction holds at most what one read brings and the sockets' own queue. Until the first byte of the destination the
 * upstream socket can be replaced. Both sockets must be half-closable, paused, and have a listener for errors.
 */
export class Tunnel {
  readonly bytes: ByteCount = { up: 0, down: 0 };
  readonly #client: Socket;
  readonly #watch: TunnelWatch;
  readonly #options: TunnelOptions;
  readonly #events: TunnelEvents;
  readonly #retained: Retained;
  readonly #records = new TlsRecords();
  #upstream: Upstream;
  #total: ByteCount;
  #lastByteAt: number;
  /** The exact time of the client's last byte, while the destination owes its first one. */
  #waitingSince: number | undefined;
  #isKeptAlive = false;
  #clientSpokeLast = false;
  #gotFirstByte = false;
  #wasSilent = false;
  #clientEnded = false;
  #upstreamEnded = false;
  #isUpstreamPaused = false;
  /** Those whose end has not been seen yet. */
  readonly #open: Set<Socket>;
  #reason: CloseReason | undefined;
  #isStalled = false;

  /** `total` is counted up with the tunnel's own bytes. */
  constructor(
    client: Socket,
    upstream: Upstream,
    deps: { readonly watch: TunnelWatch; readonly total: ByteCount },
    options: TunnelOptions,
    events: TunnelEvents,
  ) {
    this.#client = client;
    this.#upstream = upstream;
    this.#watch = deps.watch;
    this.#total = deps.total;
    this.#options = options;
    this.#events = events;
    this.#retained = new Retained(options.replayBytes, options);
    this.#lastByteAt = deps.watch.now;
    this.#open = new Set([client, upstream.socket]);
  }

  /** Both ways open. `early` was read from the client before and goes first. */
  start(early: readonly Uint8Array[]): void {
    this.#watch.add(this);
    this.#lastByteAt = this.#watch.now;
    this.#client.on("data", this.#onClientData);
    this.#client.once("end", this.#onClientEnd);
    this.#client.once("close", this.#onClientClose);
    this.#attach();
    for (const chunk of early) this.#onClientData(chunk);
    if (this.#client.closed) this.#onClientClose();
    else if (this.#client.readableEnded) this.#onClientEnd();
    else if (!this.#upstream.socket.writableNeedDrain) this.#client.resume();
  }

  /** Whether another upstream may take this one's place: nothing came yet, and what was sent may be sent once more. */
  get canReplay(): boolean {
    return !this.#gotFirstByte && this.#open.size === 2 && !this.#upstreamEnded && this.#retained.isReplayable;
  }

  /** Sends all that the client has said so far to another upstream, connected and paused, which takes the place of the present one. */
  replaceUpstream(next: Upstream, total: ByteCount): void {
    const said = this.#retained.chunks;
    if (!this.canReplay || said === undefined) throw new Error("Tunnel: the upstream can no longer be replaced");
    this.#detach();
    // No word of farewell that would be sent again and again into a hole.
    cut(this.#upstream.socket);
    this.#open.delete(this.#upstream.socket);
    this.#open.add(next.socket);
    this.#upstream = next;
    this.#total = total;
    this.#wasSilent = false;
    this.#isKeptAlive = false;
    this.#waitingSince = this.#watch.exactNow();
    this.#lastByteAt = this.#watch.now;
    this.#attach();
    for (const chunk of said) {
      next.socket.write(chunk);
      total.up += chunk.length;
    }
    if (this.#clientEnded) next.socket.end();
    else if (!next.socket.writableNeedDrain) this.#client.resume();
  }

  /** Ends both sides: at once with RST where the reason is a failure, else in order. */
  close(reason: CloseReason): void {
    this.#reason ??= reason;
    const isFailure = reason === "blackhole" || reason === "error" || reason === "reset";
    for (const socket of [this.#client, this.#upstream.socket]) {
      if (isFailure) cut(socket);
      else socket.destroy();
    }
  }

  /** For the watch: ends what has been silent for too long. */
  check(now: number): void {
    if (!this.#isKeptAlive) this.#keepAlive();
    const { idleTimeoutMs, halfCloseTimeoutMs, firstByteTimeoutMs } = this.#options;
    const limitMs = this.#clientEnded || this.#upstreamEnded ? halfCloseTimeoutMs : idleTimeoutMs;
    if (this.#watch.hasPassed(this.#lastByteAt, limitMs)) {
      this.#isStalled =
        this.#gotFirstByte && !this.#clientEnded && (this.#clientSpokeLast || this.#records.isWithinRecord);
      this.close("idle");
      return;
    }
    if (this.#waitingSince === undefined || this.#wasSilent || this.#upstreamEnded) return;
    if (now - this.#waitingSince < firstByteTimeoutMs) return;
    this.#wasSilent = true;
    this.#events.onSilent();
  }

  /** Eight system calls, which a tunnel of less than half a second need not pay for. */
  #keepAlive(): void {
    this.#isKeptAlive = true;
    for (const socket of [this.#client, this.#upstream.socket]) socket.setKeepAlive(true, TCP_KEEPALIVE_MS);
  }

  readonly #onClientData = (chunk: Uint8Array): void => {
    this.bytes.up += chunk.length;
    this.#total.up += chunk.length;
    this.#lastByteAt = this.#watch.now;
    this.#clientSpokeLast = true;
    if (!this.#gotFirstByte) {
      this.#waitingSince = this.#watch.exactNow();
      this.#retained.push(chunk);
    }
    const { socket } = this.#upstream;
    if (!socket.destroyed && !socket.write(chunk)) this.#client.pause();
  };

  readonly #onClientEnd = (): void => {
    this.#clientEnded = true;
    this.#lastByteAt = this.#watch.now;
    this.#upstream.socket.end();
  };

  readonly #onUpstreamData = (chunk: Uint8Array): boolean => {
    if (!this.#gotFirstByte) this.#firstByte();
    this.bytes.down += chunk.length;
    this.#total.down += chunk.length;
    this.#lastByteAt = this.#watch.now;
    this.#clientSpokeLast = false;
    this.#records.push(chunk);
    this.#client.write(chunk, this.#onClientWritten);
    // The kernel has taken all of it, or the buffer must not be read into again yet.
    if (this.#client.writableLength === 0) return true;
    this.#isUpstreamPaused = true;
    this.#upstream.lend(true);
    return false;
  };

  readonly #onClientWritten = (): void => {
    if (!this.#isUpstreamPaused || this.#client.writableLength > 0) return;
    this.#isUpstreamPaused = false;
    this.#upstream.lend(false);
    this.#upstream.socket.resume();
  };

  readonly #onUpstreamEnd = (): void => {
    this.#upstreamEnded = true;
    this.#lastByteAt = this.#watch.now;
    this.#client.end();
  };

  readonly #onUpstreamDrain = (): void => {
    this.#client.resume();
  };

  readonly #onClientClose = (): void => this.#closed(this.#client, this.#upstream.socket);

  readonly #onUpstreamClose = (): void => this.#closed(this.#upstream.socket, this.#client);

  #firstByte(): void {
    this.#gotFirstByte = true;
    this.#waitingSince = undefined;
    this.#retained.forget();
    this.#events.onFirstByte();
  }

  #attach(): void {
    const { socket } = this.#upstream;
    socket.on("drain", this.#onUpstreamDrain);
    socket.once("end", this.#onUpstreamEnd);
    socket.once("close", this.#onUpstreamClose);
    this.#upstream.start(this.#onUpstreamData);
    if (socket.closed) this.#onUpstreamClose();
  }

  #detach(): void {
    const { socket } = this.#upstream;
    socket.off("drain", this.#onUpstreamDrain);
    socket.off("end", this.#onUpstreamEnd);
    socket.off("close", this.#onUpstreamClose);
  }

  /**
   * What one side's end means for the other. In order both ways: nothing. A loss before it had said all that it had to say: the same loss.
   * A loss after that: what it said still arrives, and only then there is nobody left to listen.
   */
  #closed(lost: Socket, other: Socket): void {
    // Node says that a socket is closed before it tells so.
    if (!this.#open.delete(lost)) return;
    const isOrderly = lost.readableEnded && lost.writableFinished && lost.errored === null;
    if (!isOrderly && !other.destroyed) {
      this.#reason ??= "reset";
      if (!lost.readableEnded) cut(other);
      else if (lost === this.#client) whenFlushed(other, () => cut(other));
      // What the client still sends goes nowhere; closing now could take the answer from it.
      else this.#client.resume();
    }
    if (this.#open.size > 0) return;
    this.#watch.delete(this);
    this.#upstream.lend(false);
    this.#events.onClosed({ reason: this.#reason ?? "eof", stalled: this.#isStalled });
  }
}

/** Once all that was written has been handed to the kernel, its end included. */
function whenFlushed(socket: Socket, act: () => void): void {
  if (socket.writableFinished) act();
  else socket.once("finish", act);
}
