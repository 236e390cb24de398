import { DEFAULT_WINDOW_BYTES } from "./frames.ts";
import type { Sender } from "./sender.ts";
import type { Stream } from "./stream.ts";

/** A peer may take so long to acknowledge SETTINGS by which its windows become smaller, in milliseconds. */
export const ACKNOWLEDGE_MS = 30_000;

/**
 * Flow control of what is received (RFC 9113 section 5.2). Credit goes back in batches of half a window: that of a stream when its user consumes, that
 * of the connection when bytes come, as long as the users hold at most `maxUnconsumedBytes` in all.
 */
export class ReceiveFlow {
  readonly #sender: Pick<Sender, "windowUpdate">;
  #streamWindow: number;
  /** The numbers of bytes by which the windows shrink at the next acknowledgements of SETTINGS, in order; 0 for SETTINGS that do not change them. */
  #unacknowledged: { readonly less: number; readonly sentAt: number }[] = [];
  /** The sum of {@link ReceiveFlow.#unacknowledged}: the peer may still send so much more. */
  #less = 0;
  readonly #connectionWindow: number;
  readonly #maxUnconsumed: number;
  #window: number;
  /** Bytes that the peer may send again and does not know of yet. */
  #credit = 0;
  #unconsumed = 0;

  constructor(
    sender: Pick<Sender, "windowUpdate">,
    options: {
      readonly streamWindowBytes: number;
      readonly connectionWindowBytes: number;
      readonly maxUnconsumedBytes: number;
    },
  ) {
    this.#sender = sender;
    this.#streamWindow = options.streamWindowBytes;
    this.#connectionWindow = options.connectionWindowBytes;
    this.#maxUnconsumed = options.maxUnconsumedBytes;
    this.#window = options.connectionWindowBytes;
  }

  /** The window of streams, as the peer was told last. */
  get streamWindow(): number {
    return this.#streamWindow;
  }

  /** The window of a new stream: that of the last SETTINGS that the peer has acknowledged, if that is larger. */
  get newStreamWindow(): number {
    return this.#streamWindow + this.#less;
  }

  /** Received bytes that are not consumed. */
  get unconsumed(): number {
    return this.#unconsumed;
  }

  /** Tells the peer the connection's window, after SETTINGS. */
  announce(): void {
    const more = this.#connectionWindow - DEFAULT_WINDOW_BYTES;
    if (more > 0) this.#sender.windowUpdate(0, more);
  }

  /**
   * The windows of new streams and of these change by the difference; SETTINGS tell the peer (RFC 9113 section 6.9.2). Larger ones are so at once, smaller ones when the
   * peer has acknowledged them.
   */
  resizeStreams(bytes: number, streams: Iterable<Stream>, now: number): void {
    const more = bytes - this.#streamWindow;
    this.#streamWindow = bytes;
    this.#unacknowledged.push({ less: Math.max(0, -more), sentAt: now });
    this.#less += Math.max(0, -more);
    for (const stream of streams) {
      if (more > 0) stream.receiveWindow += more;
      // Of a smaller window less credit makes a batch, and the peer may have none left.
      else this.giveBack(stream, 0);
    }
  }

  /** SETTINGS were sent that do not change windows. */
  toldSettings(now: number): void {
    this.#unacknowledged.push({ less: 0, sentAt: now });
  }

  /** The peer has acknowledged SETTINGS. Windows may become negative. */
  acknowledged(streams: Iterable<Stream>): void {
    const less = this.#unacknowledged.shift()?.less ?? 0;
    if (less === 0) return;
    this.#less -= less;
    for (const stream of streams) stream.receiveWindow -= less;
  }

  /** True if the peer has sent no acknowledgement of a smaller window for {@link ACKNOWLEDGE_MS}, and so goes on with the larger one. */
  isOverdue(now: () => number): boolean {
    if (this.#less === 0) return false;
    const first = this.#unacknowledged.find(({ less }) => less > 0);
    return first !== undefined && now() - first.sentAt > ACKNOWLEDGE_MS;
  }

  /** A DATA frame begins. Returns false if it is above the connection's window. */
  begin(length: number): boolean {
    if (length > this.#window) return false;
    this.#window -= length;
    return true;
  }

  /** A DATA frame has ended, also one that was dropped. */
  end(length: number): void {
    this.#credit += length;
    this.returnCredit();
  }

  /** Bytes are handed on to the user of a stream. */
  hold(stream: Stream, bytes: number): void {
    stream.unconsumed += bytes;
    this.#unconsumed += bytes;
  }

  /** The user of a stream has consumed bytes; more than it holds count as what it holds. */
  consume(stream: Stream, bytes: number): void {
    const size = Math.min(bytes, stream.unconsumed);
    stream.unconsumed -= size;
    this.#unconsumed -= size;
    this.giveBack(stream, size);
    this.returnCredit();
  }

  /** Bytes of a stream's window that nobody holds any more. */
  giveBack(stream: Stream, bytes: number): void {
    stream.credit += bytes;
    if (2 * stream.credit < this.#streamWindow || stream.credit === 0) return;
    if (stream.state === "half-closed-remote" || stream.state === "closed") return;
    this.#sender.windowUpdate(stream.id, stream.credit);
    stream.receiveWindow += stream.credit;
    stream.credit = 0;
  }

  /** A stream has closed: what its user holds counts as consumed. {@link returnCredit} is to follow, if the connection goes on. */
  release(stream: Stream): void {
    this.#unconsumed -= stream.unconsumed;
    stream.unconsumed = 0;
  }

  /** Opens the connection's window again, if that is due. */
  returnCredit(): void {
    if (2 * this.#credit < this.#connectionWindow || this.#unconsumed > this.#maxUnconsumed) return;
    this.#sender.windowUpdate(0, this.#credit);
    this.#window += this.#credit;
    this.#credit = 0;
  }
}
