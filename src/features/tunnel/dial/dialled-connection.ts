import type { Clock } from "#base/clock";
import type { TunnelId } from "#wire/konnectivity";
import type { LocalHandlers, LocalSide } from "../local/local-side.ts";
import type { Channel } from "../mux/channel.ts";
import type { DialHandlers, PendingDial } from "../mux/link-handlers.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { CLOSE_LINGER_MS, CLOSE_WAIT_MS, UNREAD_MS } from "../mux/options.ts";
import {
  type DiallerAction,
  type DiallerEvent,
  type DiallerState,
  type DiallerTable,
  diallerTable,
} from "./dialler-table.ts";
import { type Patience, ProgressTimer } from "./progress-timer.ts";

/** The error for the local side when the link of an open connection is lost. */
export const LINK_LOST = "the link of the tunnel was lost";

/** The reason why a dial failed. */
export type DialFailure =
  /** The peer could not connect, or refused to; `error` is its text. */
  | { readonly kind: "refused"; readonly error: string }
  /** The peer cancelled the dial (DIAL_CLS). */
  | { readonly kind: "aborted" }
  | { readonly kind: "timeout" }
  | { readonly kind: "link-lost" };

/** The events of a dialled connection, for the code that dialled. */
export interface DialObserver {
  /** The connection is open. The local side is read after this call returns. */
  onOpen(connectID: TunnelId): void;
  /** The peer has answered the dial, in whatever way. Called before what follows from it. */
  onAnswered?(): void;
  onFailed(failure: DialFailure): void;
  /** Called once, when the connection has ended completely, also after a failed dial and when the local side has gone while dialling. */
  onClosed(): void;
}

export interface DialledConnectionOptions {
  readonly local: LocalSide;
  /** True if the local side can end each direction by itself: a socket can, a gRPC frontend cannot. */
  readonly localHalfClose: boolean;
  readonly observer: DialObserver;
  readonly clock: Clock;
  /** The time to wait for DIAL_RSP, in milliseconds. */
  readonly dialTimeoutMs: number;
  /**
   * The time for which a local side that has ended its sending is served without a byte of the peer, in milliseconds. It applies where the link
   * has no half-close, and where the local side may have closed altogether (see {@link LocalSide.detectsClose}).
   */
  readonly halfCloseTimeoutMs: number;
  /** The time for which the last bytes of a local side that has closed wait for an endpoint that takes none of them, in milliseconds. Default: 10 s. */
  readonly closeLingerMs?: number | undefined;
}

const LOST_WHILE_DIALING: DialFailure = { kind: "link-lost" };

/** A connection that this side dialled: executes {@link diallerTable}. */
export class DialledConnection implements DialHandlers, LocalHandlers {
  readonly #local: LocalSide;
  readonly #observer: DialObserver;
  readonly #clock: Clock;
  readonly #halfCloseTimeoutMs: number;
  readonly #closeLingerMs: number;
  readonly #table: DiallerTable;
  readonly #timer: ProgressTimer;
  #state: DiallerState = "dialing";
  /** Set until the dial is accepted. */
  #dial: PendingDial | undefined;
  #channel: Channel | undefined;
  #failure = LOST_WHILE_DIALING;
  #endError: string | undefined;
  #ended = false;
  #flushed = false;
  #paused = false;
  #closeSent = false;
  /** The local side has closed, and gives up by itself what does not come soon. */
  #localClosed = false;

  private constructor(mux: LinkMux, options: DialledConnectionOptions) {
    this.#local = options.local;
    this.#observer = options.observer;
    this.#clock = options.clock;
    this.#halfCloseTimeoutMs = options.halfCloseTimeoutMs;
    this.#closeLingerMs = options.closeLingerMs ?? CLOSE_LINGER_MS;
    this.#table = diallerTable({ linkHalfClose: mux.halfClose, localHalfClose: options.localHalfClose });
    this.#timer = new ProgressTimer(options.clock);
  }

  /**
   * Dials over a link. If the link does not take the dial, returns why; then the local side is untouched and the observer is not
   * called.
   */
  static dial(
    mux: LinkMux,
    request: { readonly protocol: string; readonly address: string; readonly random: TunnelId },
    options: DialledConnectionOptions,
  ): DialledConnection | "duplicate" | "limit" | "closed" {
    const connection = new DialledConnection(mux, options);
    const dial = mux.dial(request, connection);
    if (typeof dial === "string") return dial;
    connection.#dial = dial;
    connection.#timer.start(
      options.dialTimeoutMs,
      () => 0,
      () => connection.#apply("dial-timeout"),
    );
    return connection;
  }

  get state(): DiallerState {
    return this.#state;
  }

  /** To be called when the local side closes the connection after its sent bytes. */
  close(): void {
    this.#apply("local-close");
  }

  onLocalGone(): void {
    this.#apply("local-gone");
  }

  /** To be called when the local side has got its connection over another link. If the peer still opens one, it is closed at once. */
  supersede(): void {
    this.#apply("superseded");
  }

  onLocalEof(): void {
    this.#apply("local-eof");
  }

  /** Called too by the owner of a local side that is not read through {@link LocalSide.start}. */
  onLocalData(pieces: readonly Uint8Array[]): void {
    const channel = this.#channel;
    if (channel === undefined || (this.#state !== "open" && this.#state !== "peer-done")) return;
    channel.send(pieces);
    if (!this.#paused && channel.mustPause()) {
      this.#paused = true;
      this.#local.pause();
    }
  }

  onAccepted(channel: Channel): void {
    this.#dial = undefined;
    this.#channel = channel;
    this.#observer.onAnswered?.();
    this.#apply("accepted");
  }

  onRefused(error: string): void {
    this.#failure = { kind: "refused", error };
    this.#observer.onAnswered?.();
    this.#apply("refused");
  }

  onDialAborted(): void {
    this.#failure = { kind: "aborted" };
    this.#observer.onAnswered?.();
    this.#apply("aborted");
  }

  onData(pieces: readonly Uint8Array[], length: number): void {
    const channel = this.#channel;
    this.#local.write(pieces, () => channel?.consumed(length));
  }

  onFin(): void {
    this.#apply("peer-fin");
  }

  /** Normally the dialler sends CLOSE_REQ. If the peer sends it, it is handled as a close of the local side. */
  onCloseRequest(): void {
    this.#apply("local-close");
  }

  onCloseResponse(error: string): void {
    if (error !== "") this.#endError = error;
    this.#apply("peer-closed");
  }

  onWritable(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#local.resume();
  }

  onSlowConsumer(): void {
    this.#apply("slow");
  }

  onLinkLost(): void {
    this.#endError = LINK_LOST;
    this.#apply("link-lost");
  }

  #apply(event: DiallerEvent): void {
    if (this.#state === "closed") return;
    if (event === "dial-timeout") this.#failure = { kind: "timeout" };
    if (event === "local-close" || event === "local-gone") this.#localClosed = true;
    const before = this.#state;
    const [next, ...actions] = this.#table[before][event];
    this.#state = next;
    if (next !== before) this.#enter(next);
    for (const action of actions) this.#act(action);
    if (next === "finishing" && this.#flushed) this.#apply("flushed");
    if (next !== "closed") return;
    this.#channel?.discard();
    this.#observer.onClosed();
  }

  #enter(state: DiallerState): void {
    const progress = (): number => (this.#channel?.progress ?? 0) + this.#local.bytesWritten;
    const mayHaveLeft = state === "local-done" && !this.#local.detectsClose;
    if (state === "local-done-quietly" || mayHaveLeft) {
      this.#timer.start(this.#halfCloseTimeoutMs, progress, () => this.#apply("idle"), this.#patience());
    } else if (state === "waiting" || state === "finishing") {
      this.#timer.start(this.#lastWaitMs(), progress, () => this.#apply("stuck"), this.#patience());
    } else {
      this.#timer.stop();
    }
  }

  /**
   * Bytes that wait only for their reader, on this side or on the peer's, are not dropped as soon as he pauses. Once the local side has closed nobody waits for what they cause, and a
   * reader that takes none of them is given up soon.
   */
  #patience(): Patience {
    const applies = (): boolean => {
      const { queuedBytes = 0, heldBytes = 0 } = this.#channel ?? {};
      return queuedBytes + heldBytes > 0 && !this.#localClosed;
    };
    return { ms: UNREAD_MS, applies };
  }

  /** For how long without progress the end of the connection is waited for, in milliseconds. */
  #lastWaitMs(): number {
    const { queuedBytes = 0 } = this.#channel ?? {};
    return this.#localClosed && queuedBytes > 0 ? this.#closeLingerMs : CLOSE_WAIT_MS;
  }

  #act(action: DiallerAction): void {
    const local = this.#local;
    const connectID = this.#channel?.id ?? 0;
    switch (action) {
      case "announce":
        this.#observer.onOpen(connectID);
        local.start(this);
        break;
      case "fail":
        this.#observer.onFailed(this.#failure);
        break;
      case "cancel-dial":
        this.#dial?.cancel();
        break;
      case "send-fin":
        this.#channel?.sendAfterData({ type: "FIN", connectID });
        break;
      case "send-close":
        this.#closeSent = true;
        this.#channel?.sendAfterData({ type: "CLOSE_REQ", connectID });
        break;
      case "abandon":
        this.#abandon();
        break;
      case "leave":
        this.#leave();
        break;
      case "end-local":
        this.#endLocal();
        break;
      case "drop-local":
        local.destroy(this.#flushed && this.#endError === undefined ? "close" : "reset");
        break;
    }
  }

  #endLocal(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#local.finish(this.#endError, () => {
      this.#flushed = true;
      if (this.#state === "finishing") this.#apply("flushed");
    });
  }

  /** Ends the connection at once. The channel stays until the peer's answer, so that the peer's last packets do not count as unknown. */
  #abandon(): void {
    const channel = this.#channel;
    if (channel === undefined || channel.isGone) return;
    // CLOSE_REQ is not sent twice.
    if (!this.#closeSent || !channel.isDrained) {
      channel.sendInsteadOfData({ type: "CLOSE_REQ", connectID: channel.id });
    }
    channel.discard();
    this.#clock.after(CLOSE_WAIT_MS, () => channel.remove(), { unref: true });
  }

  /** Ends the connection; bytes of the local side are still delivered. The channel stays until the peer's answer. */
  #leave(): void {
    const channel = this.#channel;
    if (channel === undefined || channel.isGone) return;
    if (!this.#closeSent) channel.sendAfterData({ type: "CLOSE_REQ", connectID: channel.id });
    this.#closeSent = true;
    channel.discard();
    channel.whenGone = () => this.#timer.stop();
    this.#timer.start(
      this.#lastWaitMs(),
      () => channel.progress,
      () => this.#cut(channel),
      this.#patience(),
    );
  }

  #cut(channel: Channel): void {
    if (channel.isDrained) channel.remove();
    else channel.cut({ type: "CLOSE_REQ", connectID: channel.id });
  }
}
