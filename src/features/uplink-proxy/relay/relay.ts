import type { ByteStream } from "#base/byte-stream";
import type { Entry } from "#base/collections";
import { assertNever } from "#base/errors";
import { closeKindOf, whenFlushed } from "./closing.ts";
import type { ByteCount, CloseReason, RelayEvents, RelayOptions } from "./relay-options.ts";
import {
  isOpenBothWays,
  isReplaceable,
  RELAY_TABLE,
  type RelayAction,
  type RelayEvent,
  type RelayState,
} from "./relay-table.ts";
import type { RelayTimer } from "./relay-timer.ts";
import { ReplayBuffer } from "./replay-buffer.ts";
import { TlsRecords } from "./tls-records.ts";

/** Go's default, milliseconds (docs/spec/uplink-proxy.md#7). */
const TCP_KEEPALIVE_MS = 15_000;

/** An unanswered keep-alive probe is repeated this number of times in the time of the first: a lost packet is no lost host. */
const PROBES_PER_IDLE = 5;

/** Number of checks, in the time of one limit, whether the kernel's queues drain. */
const CHECKS_PER_LIMIT = 4;

/** Time of silence after which the relay looks for bytes behind a missing segment, in milliseconds, and how long it does so. */
const GAP_AFTER_MS = 2000;

const GAP_UNTIL_MS = 10_000;

/** Interval of the probes that tell a lost path from one that loses large packets, in milliseconds. */
const GAP_PROBE_MS = 1000;

/** Number of round trips in which bytes must be acknowledged: the kernel sends them twice again in this time. */
const ROUND_TRIPS = 6;

/** The FIN of each direction is acknowledged like a byte. */
const FINS = 2;

/**
 * Relays bytes between two streams (docs/spec/uplink-proxy.md#7): half-close both ways, back-pressure, RST for RST, limits on silence. A
 * direction holds at most what one read brings. Until the first byte of the destination the upstream can be replaced. Both streams are
 * paused at first. {@link RELAY_TABLE} has the transitions.
 */
export class Relay {
  readonly bytes: ByteCount = { up: 0, down: 0 };
  readonly #client: ByteStream;
  readonly #timer: RelayTimer;
  readonly #options: RelayOptions;
  readonly #events: RelayEvents;
  readonly #replayBuffer: ReplayBuffer;
  readonly #records = new TlsRecords();
  #state: RelayState = "unanswered";
  #upstream: ByteStream;
  #total: ByteCount;
  #lastByteAt: number;
  /** Exact time of the oldest byte of the client that may not be acknowledged yet; unset after the first byte of the destination. */
  #unackedSince: number | undefined;
  /** Bytes that both hosts had acknowledged at the last queue check, and the time of the next one. */
  #acked: number | undefined;
  #checkQueuesAt = 0;
  /** Until this time the path was found alive: a resting tunnel costs no system call at each check. */
  #askPathAt = 0;
  #isKeptAlive = false;
  #clientSentLast = false;
  #isBlackholeReported = false;
  /** Time at which bytes behind a missing segment were first seen in this silence. */
  #gapSince: number | undefined;
  #isLossReported = false;
  #entry: Entry | undefined;
  #reason: CloseReason | undefined;
  #isStalled = false;
  #silentMs: number | undefined;

  /** `total` is counted up with the relay's own bytes. */
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

  /** Opens both directions. `early` was read from the client before and is sent first. */
  start(early: readonly Uint8Array[]): void {
    this.#entry = this.#timer.add(this);
    this.#noteProgress();
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

  /** True if another upstream may replace this upstream: no byte of it has come, and the client's bytes may be sent twice. */
  get canReplay(): boolean {
    const areOpen = !this.#client.destroyed && !this.#upstream.destroyed;
    return isReplaceable(this.#state) && areOpen && this.#replayBuffer.isReplayable;
  }

  /** Sends all bytes of the client to another upstream, connected and paused, which replaces the present upstream. */
  replaceUpstream(next: ByteStream, total: ByteCount): void {
    const chunks = this.#replayBuffer.chunks;
    if (!this.canReplay || chunks === undefined) throw new Error("Relay: the upstream can no longer be replaced");
    this.#detach();
    // No FIN, which the kernel would send again and again into the blackhole.
    this.#upstream.reset();
    this.#upstream = next;
    this.#total = total;
    this.#isBlackholeReported = false;
    this.#isLossReported = false;
    this.#isKeptAlive = false;
    this.#unackedSince = this.#timer.exactNow();
    this.#noteProgress();
    this.#attach();
    for (const chunk of chunks) {
      next.write(chunk);
      total.up += chunk.length;
    }
    if (this.#state === "unanswered-client-ended") next.end();
    else if (!next.writableNeedDrain) this.#client.resume();
  }

  /**
   * Closes both sides: with RST if the reason is a failure. After silence, and at the end of the program, only a side that has all bytes and
   * the end of the other one is closed in order: a reader would take FIN for the end of an answer that was cut.
   */
  close(reason: CloseReason): void {
    this.#reason ??= reason;
    const isFailure = reason === "blackhole" || reason === "error" || reason === "reset";
    for (const socket of [this.#client, this.#upstream]) {
      if (reason === "eof" || (!isFailure && socket.writableFinished)) socket.destroy();
      else socket.reset();
    }
  }

  /** Called by the timer: closes a relay that was silent for too long. */
  check(now: number): void {
    // A socket was closed, and its event is about to come.
    if (this.#client.destroyed && this.#state !== "client-closed") return;
    if (this.#upstream.destroyed && this.#state !== "upstream-closed") return;
    if (!this.#isKeptAlive) this.#keepAlive();
    const limitMs = this.#limitMs;
    this.#checkQueues(now, limitMs);
    if (now >= this.#askPathAt && this.#timer.hasPassed(this.#lastByteAt, limitMs)) {
      const longestMs = this.#longestSilenceMs(limitMs);
      if (this.#timer.hasPassed(this.#lastByteAt, longestMs)) {
        this.#silentMs = longestMs;
        this.#isStalled = longestMs === limitMs && this.#isAwaitingRest;
        this.close("idle");
        return;
      }
      this.#askPathAt = Math.min(now + limitMs / CHECKS_PER_LIMIT, this.#lastByteAt + longestMs);
    }
    if (this.#losesLargeSegments(now)) {
      this.#isLossReported = true;
      this.#events.onLargeSegmentsLost();
      return;
    }
    if (this.#isBlackhole(now)) {
      this.#isBlackholeReported = true;
      this.#events.onBlackhole();
    }
  }

  /**
   * The client waits for the rest of an answer. A client that does not take what has come waits for nothing: it is itself the cause of the
   * silence.
   */
  get #isAwaitingRest(): boolean {
    if (this.bytes.down === 0 || this.#client.readableEnded || !this.#isClientReading) return false;
    return this.#clientSentLast || this.#records.isWithinRecord;
  }

  /** The client has taken all bytes that have come. */
  get #isClientReading(): boolean {
    return !this.#client.writableNeedDrain && (this.#client.transport?.()?.unacked ?? 0) === 0;
  }

  get #limitMs(): number {
    const { idleTimeoutMs, halfCloseTimeoutMs } = this.#options;
    return isOpenBothWays(this.#state) ? idleTimeoutMs : halfCloseTimeoutMs;
  }

  /**
   * Queued bytes that the other host acknowledges count as progress: a reader or a line may be slow. Checked four times in a limit, and
   * only while no byte passes here.
   */
  #checkQueues(now: number, limitMs: number): void {
    if (now < this.#checkQueuesAt) return;
    const acked = (this.#client.transport?.()?.ackedBytes ?? 0) + (this.#upstream.transport?.()?.ackedBytes ?? 0);
    if (this.#acked !== undefined && acked > this.#acked + FINS) this.#lastByteAt = this.#timer.now;
    this.#acked = acked;
    this.#checkQueuesAt = now + limitMs / CHECKS_PER_LIMIT;
  }

  /** A byte has passed: the silence is counted from here. */
  #noteProgress(): void {
    this.#lastByteAt = this.#timer.now;
    this.#endGap();
    this.#acked = undefined;
    this.#checkQueuesAt = this.#lastByteAt + this.#limitMs / CHECKS_PER_LIMIT;
  }

  /**
   * The limit that holds now for a silence that is longer than `limitMs`, in milliseconds. It is longer where the destination's host has
   * acknowledged all bytes and answers keep-alive probes. If the client sent last, the server is slow: the relay waits as long as the client
   * would wait without the proxy. If the destination sent last, an answer may still be under way: a server of TLS 1.3 sends session tickets
   * and then thinks, and one of events sends the next one later. Only within a record of TLS nothing is to come: servers write records whole,
   * so the rest of it was lost.
   */
  #longestSilenceMs(limitMs: number): number {
    const hasBytes = this.#clientSentLast || this.bytes.down > 0;
    const path = hasBytes && isOpenBothWays(this.#state) ? this.#upstream.transport?.() : undefined;
    if (path === undefined) return limitMs;
    const isHostThere = path.heardMs < limitMs || (path.unacked === 0 && path.probes === 0);
    if (this.#clientSentLast) return isHostThere ? Number.POSITIVE_INFINITY : limitMs;
    const mayBeAnswering = isHostThere && path.unacked === 0 && this.#isClientReading;
    return mayBeAnswering && !this.#records.isWithinTlsRecord
      ? Math.max(limitMs, this.#options.quietTimeoutMs)
      : limitMs;
  }

  /** Bytes of the client stay unacknowledged (TCP_INFO). Acknowledged bytes have arrived, even if the server takes long to answer. */
  #isBlackhole(now: number): boolean {
    if (this.#unackedSince === undefined || this.#isBlackholeReported) return false;
    const path = this.#upstream.transport?.();
    if (path === undefined) return false;
    const limitMs = Math.max(this.#options.firstByteTimeoutMs, ROUND_TRIPS * (path.rttMs ?? 0));
    const sinceMs = now - this.#unackedSince;
    // Reset at each check, so that later bytes have all of their time again.
    if (path.unacked === 0) this.#unackedSince = undefined;
    return path.unacked > 0 && sinceMs >= limitMs && path.heardMs >= limitMs;
  }

  /** The gap is closed: the usual keep-alive again, since a probe each second costs a metered link and gives a host up after ten. */
  #endGap(): void {
    if (this.#gapSince !== undefined) this.#isKeptAlive = false;
    this.#gapSince = undefined;
  }

  /**
   * Segments arrive behind one that does not come, in either direction, and the peer's host answers meanwhile. On a lossy path the missing one
   * comes with one of several repeats. Looked for at the beginning of a silence only, so that resting tunnels cost nothing.
   */
  #losesLargeSegments(now: number): boolean {
    const silentMs = now - this.#lastByteAt;
    if (this.#isLossReported || silentMs < GAP_AFTER_MS || this.#upstream.destroyed) return false;
    if (this.#gapSince === undefined && silentMs > Math.max(GAP_UNTIL_MS, this.#options.firstByteTimeoutMs))
      return false;
    const path = this.#upstream.transport?.();
    if (path === undefined) return false;
    const isSent = path.unacked > 0 && (path.sacked ?? 0) > 0;
    const isReceived = !this.#client.writableNeedDrain && this.#upstream.hasGap?.() === true;
    if (!isSent && !isReceived) {
      this.#endGap();
      return false;
    }
    if (this.#gapSince === undefined) {
      this.#gapSince = now;
      this.#upstream.keepAlive(GAP_PROBE_MS, GAP_PROBE_MS);
      return false;
    }
    const limitMs = Math.max(this.#options.firstByteTimeoutMs, ROUND_TRIPS * (path.rttMs ?? 0));
    // Probes are not sent while own segments are on their way: then what the peer has received of them shows that it is there.
    return silentMs >= limitMs && (isSent || path.heardMs < GAP_AFTER_MS + (path.rttMs ?? 0));
  }

  /**
   * This takes eight system calls, which a tunnel shorter than half a second need not make. The interval is short enough to detect a dead
   * host within the limit, and to send several probes before, of which some may be lost.
   */
  #keepAlive(): void {
    this.#isKeptAlive = true;
    const idleMs = Math.min(TCP_KEEPALIVE_MS, this.#options.idleTimeoutMs / 2);
    for (const socket of [this.#client, this.#upstream]) socket.keepAlive(idleMs, idleMs / PROBES_PER_IDLE);
  }

  readonly #onClientData = (chunk: Uint8Array): void => {
    this.bytes.up += chunk.length;
    this.#total.up += chunk.length;
    this.#noteProgress();
    this.#clientSentLast = true;
    if (isReplaceable(this.#state)) {
      this.#unackedSince ??= this.#timer.exactNow();
      this.#replayBuffer.push(chunk);
    }
    if (!this.#upstream.destroyed && !this.#upstream.write(chunk)) this.#client.pause();
  };

  readonly #onUpstreamData = (chunk: Uint8Array): void => {
    if (this.bytes.down === 0) this.#onFirstByte();
    this.bytes.down += chunk.length;
    this.#total.down += chunk.length;
    this.#noteProgress();
    this.#clientSentLast = false;
    this.#records.push(chunk);
    if (!this.#client.write(chunk)) this.#upstream.pause();
  };

  #onFirstByte(): void {
    this.#unackedSince = undefined;
    this.#replayBuffer.forget();
    this.#handle("first-byte");
  }

  readonly #onClientDrain = (): void => {
    this.#upstream.resume();
  };

  readonly #onUpstreamDrain = (): void => {
    this.#client.resume();
  };

  readonly #onClientEnd = (): void => {
    this.#handle("client-ended");
    this.#noteProgress();
  };

  readonly #onUpstreamEnd = (): void => {
    this.#unackedSince = undefined;
    this.#handle("upstream-ended");
    this.#noteProgress();
  };

  // `start` and `#attach` call these for a stream that is closed already; its event may follow, and changes nothing.
  readonly #onClientClose = (): void => this.#handle(`client-${closeKindOf(this.#client)}`);

  readonly #onUpstreamClose = (): void => this.#handle(`upstream-${closeKindOf(this.#upstream)}`);

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

  #handle(event: RelayEvent): void {
    if (this.#state === "closed") return;
    const [next, ...actions] = RELAY_TABLE[this.#state][event];
    this.#state = next;
    for (const action of actions) this.#act(action);
  }

  #act(action: RelayAction): void {
    const client = this.#client;
    const upstream = this.#upstream;
    if (action === "report-first-byte") this.#events.onFirstByte();
    else if (action === "report-closed") this.#onClosed();
    else if (action === "end-client") client.end();
    else if (action === "end-upstream") upstream.end();
    else if (action === "reset-client") this.#afterLoss(client, () => client.reset());
    else if (action === "reset-upstream") this.#afterLoss(upstream, () => upstream.reset());
    else if (action === "discard-client") this.#afterLoss(client, () => client.resume());
    else if (action === "flush-then-reset-upstream")
      this.#afterLoss(upstream, () => whenFlushed(upstream, () => upstream.reset()));
    else assertNever(action);
  }

  #onClosed(): void {
    if (this.#entry !== undefined) this.#timer.remove(this.#entry);
    const silent = this.#silentMs === undefined ? {} : { silentMs: this.#silentMs };
    this.#events.onClosed({ reason: this.#reason ?? "eof", stalled: this.#isStalled, ...silent });
  }

  /** The other side was lost. A stream that is closed as well had its own reason. */
  #afterLoss(stream: ByteStream, act: () => void): void {
    if (stream.destroyed) return;
    this.#reason ??= "reset";
    act();
  }
}
