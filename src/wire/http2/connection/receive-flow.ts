import { DEFAULT_WINDOW_BYTES } from "./frames.ts";
import type { Sender } from "./sender.ts";
import type { Stream } from "./stream.ts";

/**
 * Flow control of what is received (RFC 9113 section 5.2). Credit goes back in batches of half a window: that of a stream when its user consumes, that
 * of the connection when bytes come, as long as the users hold at most `maxUnconsumedBytes` in all.
 */
export class ReceiveFlow {
  readonly #sender: Pick<Sender, "windowUpdate">;
  #streamWindow: number;
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

  /** The window of a new stream. */
  get streamWindow(): number {
    return this.#streamWindow;
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

  /** The windows of new streams and of these become larger by the difference; the peer is told by SETTINGS (RFC 9113 section 6.9.2). */
  widenStreams(bytes: number, streams: Iterable<Stream>): void {
    const more = bytes - this.#streamWindow;
    this.#streamWindow = bytes;
    for (const stream of streams) stream.receiveWindow += more;
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
    if (2 * stream.credit < this.#streamWindow) return;
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
