import type { Clock } from "#base/clock";
import type { TunnelId } from "#wire/konnectivity";
import type { LocalHandlers, LocalSide } from "../local/local-side.ts";
import { type Channel, type ChannelHandlers, UNREAD_ERROR } from "../mux/channel.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { CLOSE_WAIT_MS, UNREAD_MS } from "../mux/options.ts";
import {
  type AcceptorAction,
  type AcceptorEvent,
  type AcceptorState,
  type AcceptorTable,
  acceptorTable,
} from "./acceptor-table.ts";
import { ProgressTimer } from "./progress-timer.ts";

/** Connects to the endpoint of a dial. Rejects with an error that `failureText` translates. */
export type ConnectEndpoint = (options: { readonly signal: AbortSignal }) => Promise<LocalSide>;

/** The options that all connections of a link share. */
export interface AcceptedConnectionOptions {
  readonly clock: Clock;
  /** At the end of the connection, the endpoint is dropped after this time without progress, in milliseconds. */
  readonly closeLingerMs: number;
  /** The error text of DIAL_RSP for a rejection of {@link ConnectEndpoint}; `undefined` if the rejection is a bug, which is thrown. */
  readonly failureText: (error: unknown) => string | undefined;
  readonly onOpened: () => void;
  /** Called once for each connection that was open, when it has ended completely. */
  readonly onClosed: () => void;
}

/** A connection that the peer dialled: executes {@link acceptorTable}. */
export class AcceptedConnection implements ChannelHandlers, LocalHandlers {
  readonly #mux: LinkMux;
  readonly #random: TunnelId;
  readonly #options: AcceptedConnectionOptions;
  readonly #table: AcceptorTable;
  readonly #timer: ProgressTimer;
  /** Set while {@link run} connects. */
  #abortDial: (() => void) | undefined;
  #state: AcceptorState = "dialing";
  #endpoint: LocalSide | undefined;
  #channel: Channel | undefined;
  #error = "";
  #reading = true;
  #ended = false;
  #flushed = false;
  #peerClosed = false;

  constructor(mux: LinkMux, random: TunnelId, options: AcceptedConnectionOptions) {
    this.#mux = mux;
    this.#random = random;
    this.#options = options;
    this.#table = acceptorTable({ halfClose: mux.halfClose });
    this.#timer = new ProgressTimer(options.clock);
  }

  get state(): AcceptorState {
    return this.#state;
  }

  /** Connects to the endpoint. Resolves when the dial has succeeded or failed; rejects only for a bug. */
  async run(connect: ConnectEndpoint): Promise<void> {
    const dialling = new AbortController();
    const { signal } = dialling;
    this.#abortDial = () => dialling.abort();
    try {
      const endpoint = await connect({ signal });
      this.#abortDial = undefined;
      if (this.#state !== "dialing") {
        endpoint.destroy("reset");
        return;
      }
      this.#endpoint = endpoint;
      this.#apply("connected");
    } catch (error) {
      if (signal.aborted) return;
      const text = this.#options.failureText(error);
      if (text === undefined) throw error;
      this.#error = text;
      this.#apply("failed");
    }
  }

  /** To be called when the peer has cancelled the dial. */
  cancel(): void {
    this.#apply("cancelled");
  }

  onLocalData(pieces: readonly Uint8Array[]): void {
    const channel = this.#channel;
    if (channel === undefined || !this.#reading) return;
    channel.send(pieces);
    if (channel.mustPause()) this.#endpoint?.pause();
  }

  onLocalEof(): void {
    this.#apply("eof");
  }

  onLocalGone(error: string | undefined): void {
    this.#error = error ?? "the endpoint closed the connection";
    this.#apply("gone");
  }

  onData(pieces: readonly Uint8Array[], length: number): void {
    const channel = this.#channel;
    this.#endpoint?.write(pieces, () => channel?.consumed(length));
  }

  onFin(): void {
    this.#apply("peer-fin");
  }

  onCloseRequest(): void {
    this.#peerClosed = true;
    this.#apply("peer-close");
  }

  /** Only this side sends CLOSE_RSP. If the peer sends it, the peer does not know the connection any more. */
  onCloseResponse(): void {
    this.#apply("link-lost");
  }

  onWritable(): void {
    if (this.#reading) this.#endpoint?.resume();
  }

  onSlowConsumer(): void {
    this.#error = "slow consumer";
    this.#apply("slow");
  }

  /** To be called when the link has ended, while dialling or later. */
  onLinkLost(): void {
    this.#apply("link-lost");
  }

  #apply(event: AcceptorEvent): void {
    if (this.#state === "closed") return;
    const before = this.#state;
    const [next, ...actions] = this.#table[before][event];
    this.#state = next;
    if (next !== before) this.#enter(next);
    for (const action of actions) this.#act(action);
    if ((this.#state === "closing" || this.#state === "lingering") && this.#flushed) this.#apply("flushed");
    if (next === "closed") this.#finish();
  }

  /**
   * The connection counts as open until its last packet is sent, or the peer has taken nothing for {@link UNREAD_MS}. One that has sent
   * CLOSE_REQ waits for {@link CLOSE_WAIT_MS} itself.
   */
  #finish(): void {
    const channel = this.#channel;
    if (channel === undefined) return;
    channel.discard();
    if (channel.isGone) {
      this.#options.onClosed();
      return;
    }
    channel.whenGone = () => {
      this.#timer.stop();
      this.#options.onClosed();
    };
    // Bytes are dropped, so this is no end in order, whatever the endpoint's was.
    const error = this.#error === "" ? UNREAD_ERROR : this.#error;
    const cut = (): void => channel.cut({ type: "CLOSE_RSP", error, connectID: channel.id });
    this.#timer.start(CLOSE_WAIT_MS, () => channel.progress, cut, { ms: UNREAD_MS, applies: () => !this.#peerClosed });
  }

  #enter(state: AcceptorState): void {
    this.#timer.stop();
    if (state !== "closing" && state !== "lingering") return;
    const progress = (): number => (this.#endpoint?.bytesWritten ?? 0) + (this.#channel?.progress ?? 0);
    const onStuck = (): void => {
      this.#error = "the endpoint did not take the last bytes in time";
      this.#apply("stuck");
    };
    this.#timer.start(this.#options.closeLingerMs, progress, onStuck);
  }

  #act(action: AcceptorAction): void {
    const connectID = this.#channel?.id ?? 0;
    switch (action) {
      case "accept":
        this.#accept();
        break;
      case "refuse":
        this.#mux.refuse(this.#random, this.#error);
        break;
      case "abort-dial":
        this.#abortDial?.();
        break;
      case "stop-reading":
        this.#reading = false;
        this.#endpoint?.pause();
        break;
      case "send-fin":
        this.#channel?.sendAfterData({ type: "FIN", connectID });
        break;
      case "send-close":
        this.#channel?.sendLast({ type: "CLOSE_RSP", error: "", connectID });
        break;
      case "send-failure":
        this.#channel?.sendLast({ type: "CLOSE_RSP", error: this.#error, connectID });
        break;
      case "cut":
        this.#channel?.cut({ type: "CLOSE_RSP", error: this.#error, connectID });
        break;
      case "end-endpoint":
        this.#endEndpoint();
        break;
      case "drop-endpoint":
        this.#endpoint?.destroy(this.#flushed ? "close" : "reset");
        break;
    }
  }

  #accept(): void {
    const channel = this.#mux.accept(this.#random, this);
    if (channel === undefined) {
      // The dial was refused because the link is full, or the link has ended.
      this.#endpoint?.destroy("reset");
      this.#state = "closed";
      return;
    }
    this.#channel = channel;
    this.#options.onOpened();
    this.#endpoint?.start(this);
  }

  #endEndpoint(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#endpoint?.finish(undefined, () => {
      this.#flushed = true;
      if (this.#state === "closing" || this.#state === "lingering") this.#apply("flushed");
    });
  }
}
