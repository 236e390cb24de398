import { ByteQueue, type Entry } from "#base/collections";
import { type ControlPacket, frameControl, frameData, type PacketTypeName, type TunnelId } from "#wire/konnectivity";
import { type BufferBudget, type Holder, MIN_EVICTED_BYTES, type PausedReader } from "./budget.ts";
import { CreditWindow } from "./credit-window.ts";
import { INITIAL_WINDOW_BYTES, MAX_CREDIT_BYTES, MAX_DATA_BYTES } from "./options.ts";

/** The error of CLOSE_RSP when bytes before it were dropped. */
export const UNREAD_ERROR = "the last bytes were not read in time";

/** The most that one byte of a waiting piece may hold of the read that the piece is a view of, in bytes. */
const MAX_HELD_PER_BYTE = 8;

/** The events of a channel, for its owner. */
export interface ChannelHandlers {
  /** Bytes from the peer. When the bytes of a call have left, {@link Channel.consumed} must be called with their number. */
  onData(pieces: readonly Uint8Array[], length: number): void;
  /** The peer sends no more DATA (half-close). */
  onFin(): void;
  /** The peer, which dialled, closes. */
  onCloseRequest(): void;
  /** The peer, which accepted, has closed. The channel has ended. */
  onCloseResponse(error: string): void;
  /** Called when more bytes may be sent. */
  onWritable(): void;
  /** This side did not consume the bytes of the peer in time. */
  onSlowConsumer(): void;
  /** The link has ended, and so has the channel. */
  onLinkLost(): void;
}

/** The parts of its link that a channel needs. */
export interface ChannelLink {
  readonly flowControl: boolean;
  readonly budget: BufferBudget;
  /** Bytes that may wait to be sent before the source must pause, at most: with many connections it is less. */
  readonly softLimitBytes: number;
  /** The link's round trip without load, in milliseconds; `undefined` before it is known. */
  readonly roundTripMs: number | undefined;
  /** `Clock.monotonic`. */
  readonly now: () => number;
  /** Called when the channel has something to send. */
  ready(channel: Channel): void;
  sendControl(packet: ControlPacket): void;
  /** A packet of the channel's queue was handed to the transport, for metrics. */
  sent(type: PacketTypeName): void;
  /** The number of bytes that this side has not consumed has changed. */
  held(channel: Channel): void;
  /** The channel's connection ends, because its reader stood still while the process held too many bytes. */
  evicted(): void;
  /** Removes the channel from the link's table, unless its id belongs to another channel now. */
  remove(channel: Channel): void;
}

/**
 * One connection on a link: the bytes to the peer and the packets that end them, the credit, and the number of the peer's bytes that were
 * not consumed. The state machines of `dial/` decide when the channel opens and ends.
 */
export class Channel implements PausedReader, Holder {
  readonly id: TunnelId;
  /** Called once, when the channel was removed from its link. */
  whenGone: (() => void) | undefined;
  /** The channel's entry in the send queue. Only the send queue sets it. */
  queueEntry: Entry | undefined;
  readonly #link: ChannelLink;
  readonly #handlers: ChannelHandlers;
  /** Bytes that wait to be sent; absent if there are none. */
  #queue: ByteQueue | undefined;
  /** Packets to send after the last byte; absent if there are none. */
  #trailing: ControlPacket[] | undefined;
  #credit = INITIAL_WINDOW_BYTES;
  /** The peer's credit; absent without flow control. */
  readonly #window: CreditWindow | undefined;
  /** Number of bytes that were received and not yet consumed. */
  #held = 0;
  /** The channel's entry among those that wait for their readers, if it holds many bytes. */
  #waiting: Entry | undefined;
  /** Its entry among those whose bytes wait to be sent, if there are many. */
  #blocked: Entry | undefined;
  #progress = 0;
  #discarding = false;
  #wasFull = false;
  #endsWhenSent = false;
  #gone = false;

  constructor(id: TunnelId, link: ChannelLink, handlers: ChannelHandlers) {
    this.id = id;
    this.#link = link;
    this.#handlers = handlers;
    this.#window = link.flowControl ? new CreditWindow(link.budget.windows) : undefined;
  }

  get handlers(): ChannelHandlers {
    return this.#handlers;
  }

  /** Grows while bytes move in either direction. A timer compares two values to detect a connection that is stuck. */
  get progress(): number {
    return this.#progress;
  }

  /** Bytes that wait to be sent. */
  get queuedBytes(): number {
    return this.#queue?.length ?? 0;
  }

  /** Bytes of the peer that this side has not consumed. They count in the budget until then, also once the channel is removed. */
  get heldBytes(): number {
    return this.#held;
  }

  /** True if the source must pause. `onWritable` is called when it may continue. */
  mustPause(): boolean {
    const over = this.#link.budget.isOver;
    if (!over && this.queuedBytes < this.#softLimitBytes) return false;
    this.#wasFull = true;
    if (over) this.#link.budget.whenBelowLimit(this);
    return true;
  }

  get #softLimitBytes(): number {
    return Math.min(this.#link.softLimitBytes, this.#link.budget.sendQueueBytes);
  }

  onBelowLimit(): void {
    this.#checkWritable();
  }

  /** True if bytes or packets wait, and credit allows sending them. */
  get isReady(): boolean {
    if (this.#queue !== undefined) return !this.#link.flowControl || this.#credit > 0;
    return this.#trailing !== undefined;
  }

  /** True if nothing waits to be sent. */
  get isDrained(): boolean {
    return this.#queue === undefined && this.#trailing === undefined;
  }

  /** Queues bytes without a copy: the caller must not change them. Ignored once the channel has ended. */
  send(pieces: readonly Uint8Array[]): void {
    if (this.#gone) return;
    for (const bytes of pieces) {
      if (bytes.length === 0) continue;
      if (this.#queue === undefined) {
        this.#queue = new ByteQueue();
        this.#link.budget.sending(1);
      }
      this.#queue.push(bytes);
      this.#link.budget.add(bytes.length);
    }
    if (this.queuedBytes >= MIN_EVICTED_BYTES) this.#blocked ??= this.#link.budget.blocked(this);
    if (this.isReady) this.#link.ready(this);
  }

  /** Queues a packet behind the bytes that wait. */
  sendAfterData(packet: ControlPacket): void {
    if (this.#gone) return;
    this.#trailing ??= [];
    this.#trailing.push(packet);
    if (this.isReady) this.#link.ready(this);
  }

  /**
   * Queues the packet that ends the channel on this side. Later bytes of the peer are discarded. The channel is removed once the
   * packet was sent.
   */
  sendLast(packet: ControlPacket): void {
    this.sendAfterData(packet);
    this.#endsWhenSent = true;
    this.discard();
  }

  /** Drops all packets that wait to be sent on this channel and sends a packet at once. */
  sendInsteadOfData(packet: ControlPacket): void {
    if (this.#gone) return;
    this.#drop();
    this.#link.sendControl(packet);
  }

  /** Does what {@link sendInsteadOfData} does, and removes the channel: for a peer that reads nothing. */
  cut(packet: ControlPacket): void {
    this.sendInsteadOfData(packet);
    this.remove();
  }

  /** From now on, bytes of the peer are consumed and discarded. The owner has to call this at its end, also once the channel is removed. */
  discard(): void {
    this.#discarding = true;
    if (this.#held > 0) this.consumed(this.#held);
  }

  /** To be called when this side has passed on `bytes` bytes of the peer. */
  consumed(bytes: number): void {
    const counted = Math.min(bytes, this.#held);
    this.#held -= counted;
    this.#link.budget.removeUnread(counted);
    this.#waiting?.remove();
    this.#waiting = this.#held < MIN_EVICTED_BYTES ? undefined : this.#link.budget.unread(this);
    if (this.#gone) return;
    this.#link.held(this);
    this.#returnCredit(counted);
  }

  /** Removes the channel from its link and drops all packets that wait to be sent. Idempotent. */
  remove(): void {
    if (this.#gone) return;
    this.#link.remove(this);
    this.#drop();
    this.#link.budget.forget(this);
    this.#window?.release();
    this.#gone = true;
    this.whenGone?.();
  }

  /** For the budget: the connection ends. If its owner has ended it, the bytes that still wait to be sent are dropped. */
  evict(): void {
    // It may stand still in both directions, and ends once.
    this.#waiting?.remove();
    this.#waiting = undefined;
    this.#blocked?.remove();
    this.#blocked = undefined;
    this.#link.evicted();
    this.#handlers.onSlowConsumer();
    const last = this.#trailing?.at(-1);
    if (this.#gone || this.#queue === undefined || last === undefined) return;
    // Bytes are dropped, so this is no end in order.
    this.cut(last.type === "CLOSE_RSP" && last.error === "" ? { ...last, error: UNREAD_ERROR } : last);
  }

  get isGone(): boolean {
    return this.#gone;
  }

  /** For the link: takes bytes of the peer. Returns false if they exceed the peer's credit. */
  receive(pieces: readonly Uint8Array[], length: number): boolean {
    if (length === 0) return true;
    if (this.#window !== undefined && length > this.#window.creditOf(this.#held)) return false;
    this.#held += length;
    this.#progress += length;
    this.#link.budget.addUnread(length);
    if (this.#discarding) {
      this.consumed(length);
      return true;
    }
    if (this.#held >= MIN_EVICTED_BYTES) this.#waiting ??= this.#link.budget.unread(this);
    this.#handlers.onData(withoutLongReads(pieces), length);
    this.#link.held(this);
    // Credit cannot be taken back. Where the process holds too much, a connection whose part others have is not held for a grace.
    if (!this.#gone && this.#link.budget.isOver && this.#window?.isBeyond(this.#held) === true) this.evict();
    return true;
  }

  /** For the link: adds the bytes of credit that the peer grants. */
  grant(bytes: number): void {
    this.#credit += bytes;
    if (this.isReady) this.#link.ready(this);
  }

  /**
   * For the send queue: appends framed packets of about `quantum` bytes, and the trailing packets once no byte waits. Returns their size.
   */
  take(quantum: number, out: Uint8Array[]): number {
    let bytes = 0;
    for (let queue = this.#queue; queue !== undefined && bytes < quantum; queue = this.#queue) {
      const allowed = this.#link.flowControl ? this.#credit : Number.POSITIVE_INFINITY;
      const size = Math.min(MAX_DATA_BYTES, quantum - bytes, queue.length, allowed);
      if (size <= 0) break;
      const header = frameData(this.id, size);
      out.push(header);
      this.#link.sent("DATA");
      queue.take(size, out);
      if (queue.length === 0) this.#clearQueue();
      this.#progress += size;
      this.#link.budget.remove(size);
      this.#credit -= size;
      bytes += header.length + size;
    }
    if (bytes > 0) this.#progressed();
    if (this.#queue === undefined) {
      const trailing = this.#trailing ?? [];
      this.#trailing = undefined;
      for (const packet of trailing) {
        const framed = frameControl(packet);
        this.#link.sent(packet.type);
        out.push(framed);
        bytes += framed.length;
      }
    }
    if (this.#endsWhenSent && this.#queue === undefined) this.remove();
    else this.#checkWritable();
    return bytes;
  }

  #checkWritable(): void {
    if (!this.#wasFull || this.#gone || this.queuedBytes * 2 > this.#softLimitBytes) return;
    if (this.mustPause()) return;
    this.#wasFull = false;
    this.#handlers.onWritable();
  }

  #returnCredit(taken: number): void {
    const { roundTripMs, now, budget } = this.#link;
    let credit = this.#window?.taken(taken, { heldBytes: this.#held, isOver: budget.isOver, roundTripMs, now }) ?? 0;
    for (; credit > 0; credit -= MAX_CREDIT_BYTES) {
      this.#link.sendControl({ type: "WINDOW", connectID: this.id, credit: Math.min(credit, MAX_CREDIT_BYTES) });
    }
  }

  /** Some bytes have left. */
  #progressed(): void {
    this.#blocked?.remove();
    this.#blocked = this.queuedBytes < MIN_EVICTED_BYTES ? undefined : this.#link.budget.blocked(this);
  }

  #clearQueue(): void {
    if (this.#queue === undefined) return;
    this.#queue = undefined;
    this.#link.budget.sending(-1);
  }

  #drop(): void {
    this.#trailing = undefined;
    this.#link.budget.remove(this.queuedBytes);
    this.#clearQueue();
    this.#progressed();
  }
}

/**
 * The pieces, with copies of those that are a small part of a read. The reads of a link have bytes of many connections: the short packets of one whose
 * reader stands still would hold the bytes of all others.
 */
function withoutLongReads(pieces: readonly Uint8Array[]): readonly Uint8Array[] {
  if (!pieces.some(isSmallPart)) return pieces;
  return pieces.map((piece) => (isSmallPart(piece) ? new Uint8Array(piece) : piece));
}

function isSmallPart(piece: Uint8Array): boolean {
  return piece.length * MAX_HELD_PER_BYTE < piece.buffer.byteLength;
}
