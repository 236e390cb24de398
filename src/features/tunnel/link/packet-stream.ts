import type { Entry } from "#base/collections";
import { GrpcCode as Code, type GrpcCode, GrpcDeframer, GrpcWireError } from "#wire/grpc";
import type { Header } from "#wire/http2";
import { decodePacket, type Packet, TunnelWireError } from "#wire/konnectivity";
import type { Call, CallEvents, StreamEnd } from "../http2/session.ts";
import { type BufferBudget, type Holder, MIN_EVICTED_BYTES, type PausedReader } from "../mux/budget.ts";

/**
 * The stream is writable while HTTP/2 holds fewer bytes than this. The limit is small, because the order of held bytes cannot be changed.
 */
const QUEUE_HIGH_BYTES = 256 * 1024;
const QUEUE_LOW_BYTES = 128 * 1024;
/** Default limit of a message, in bytes: that of Go's gRPC. */
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/** The reason why a stream has ended. */
export interface StreamFault {
  readonly code: GrpcCode;
  readonly message: string;
}

export interface PacketStreamHandlers {
  /** Called for each packet in the order of the wire; never called after {@link onClosed}. */
  onPacket(packet: Packet): void;
  /** The peer has ended its sending side; writing still works. */
  onEnd(): void;
  /** The stream is writable again. */
  onWritable(): void;
  /** Called once, at the end of the stream. `fault` is `undefined` if both sides ended the stream in order. */
  onClosed(fault: StreamFault | undefined): void;
}

/** Packets over one gRPC stream. */
export interface PacketStream {
  /** If false, the sender has to wait for `onWritable` before it sends more data. */
  readonly isWritable: boolean;
  /** Bytes passed to `send` that the transport has not taken. */
  readonly queuedBytes: number;
  /** Bytes that the transport has taken. Two values show whether a stream is stuck. */
  readonly bytesSent: number;
  /** The round trip without load to the peer, in milliseconds; `undefined` before it is known. */
  readonly roundTripMs?: number | undefined;
  /** Writes framed packets in one go; `onSent` is called when the transport has taken them. */
  send(pieces: readonly Uint8Array[], bytes: number, onSent?: () => void): void;
  pause(): void;
  resume(): void;
  /** Ends the stream in order, after all sent packets. */
  end(fault?: StreamFault): void;
  /** Ends the stream at once; bytes that were not sent are lost. */
  destroy(fault: StreamFault): void;
}

/** Packets over one stream of an HTTP/2 session. */
export class CallPacketStream implements PacketStream, CallEvents, PausedReader, Holder {
  readonly #call: Call;
  readonly #handlers: PacketStreamHandlers;
  readonly #lostCode: GrpcCode;
  readonly #trailersOf: ((fault: StreamFault | undefined) => readonly Header[]) | undefined;
  readonly #onTrailers: ((trailers: readonly Header[]) => void) | undefined;
  readonly #deframer: GrpcDeframer;
  readonly #budget: BufferBudget | undefined;
  /** Bytes of an incomplete message that are counted in the budget. */
  #held = 0;
  /** Its entry among the streams that wait for the rest of a message, if many bytes of it are held. */
  #waiting: Entry | undefined;
  #messages = 0;
  /** Paused by the user, and because the process holds too many bytes. */
  #isPaused = false;
  #isHeldUp = false;
  #queued = 0;
  #sent = 0;
  #full = false;
  #closed = false;

  constructor(
    call: Call,
    handlers: PacketStreamHandlers,
    options: {
      readonly maxMessageBytes?: number;
      /** On a server: the trailers by which this side ends the stream. */
      readonly trailersOf?: (fault: StreamFault | undefined) => readonly Header[];
      /** On a client: receives the trailers of the server. */
      readonly onTrailers?: (trailers: readonly Header[]) => void;
      /** The status of a lost connection. On a server, as in Go, the call is cancelled. Default: unavailable. */
      readonly lostCode?: GrpcCode;
      /** Counts the bytes of incomplete messages. Above the budget the stream is paused, or ends (docs/spec/tunnel.md#8.8). */
      readonly budget?: BufferBudget | undefined;
    },
  ) {
    this.#call = call;
    this.#handlers = handlers;
    this.#trailersOf = options.trailersOf;
    this.#onTrailers = options.onTrailers;
    this.#lostCode = options.lostCode ?? Code.unavailable;
    this.#budget = options.budget;
    this.#deframer = new GrpcDeframer({
      maxBytes: options.maxMessageBytes ?? MAX_MESSAGE_BYTES,
      onMessage: (pieces, length) => {
        this.#messages += 1;
        if (!this.#closed) handlers.onPacket(decodePacket(pieces, length));
      },
    });
    call.start(this);
  }

  get isWritable(): boolean {
    return !this.#closed && !this.#full;
  }

  get queuedBytes(): number {
    return this.#queued;
  }

  get roundTripMs(): number | undefined {
    return this.#call.roundTripMs;
  }

  get bytesSent(): number {
    return this.#sent;
  }

  send(pieces: readonly Uint8Array[], bytes: number, onSent?: () => void): void {
    if (this.#closed) return;
    const taken = (): void => {
      this.#queued -= bytes;
      this.#sent += bytes;
      onSent?.();
      this.#checkWritable();
    };
    if (!this.#call.send(pieces, bytes, taken)) return;
    this.#queued += bytes;
    if (this.#queued >= QUEUE_HIGH_BYTES) this.#full = true;
  }

  pause(): void {
    this.#isPaused = true;
    this.#stop();
  }

  resume(): void {
    this.#isPaused = false;
    this.#go();
  }

  /** For the budget: the process does not hold too many bytes any more. */
  onBelowLimit(): void {
    this.#isHeldUp = false;
    this.#go();
  }

  /** For the budget: the peer does not finish its message. */
  evict(): void {
    this.destroy({
      code: Code.resourceExhausted,
      message: "the peer did not finish a message while too many bytes were held",
    });
  }

  #stop(): void {
    this.#call.pause();
    // What it waits for is not read: the peer is not to blame.
    this.#wait(false);
  }

  #go(): void {
    if (this.#isPaused || this.#isHeldUp || this.#closed) return;
    this.#wait(this.#held >= MIN_EVICTED_BYTES);
    this.#call.resume();
  }

  #wait(isWaiting: boolean): void {
    this.#waiting?.remove();
    this.#waiting = isWaiting ? this.#budget?.blocked(this) : undefined;
  }

  end(fault?: StreamFault): void {
    if (!this.#closed) this.#call.end(this.#trailersOf?.(fault));
  }

  destroy(fault: StreamFault): void {
    if (this.#closed) return;
    this.#call.reset();
    this.#close(fault);
  }

  onData(chunk: Uint8Array): void {
    if (this.#closed) return;
    try {
      const before = this.#messages;
      this.#deframer.push(chunk);
      if (!this.#closed) this.#count(this.#deframer.heldBytes, this.#messages > before);
    } catch (error) {
      const fault = faultOf(error);
      if (fault === undefined) throw error;
      this.end(fault);
      this.#close(fault);
    }
  }

  onTrailers(trailers: readonly Header[]): void {
    this.#onTrailers?.(trailers);
  }

  onEnd(): void {
    if (!this.#closed) this.#handlers.onEnd();
  }

  onClosed(end: StreamEnd): void {
    this.#close(this.#faultOf(end));
  }

  #checkWritable(): void {
    if (!this.#full || this.#queued > QUEUE_LOW_BYTES) return;
    this.#full = false;
    if (!this.#closed) this.#handlers.onWritable();
  }

  #count(held: number, isProgress: boolean): void {
    const budget = this.#budget;
    if (budget === undefined) return;
    if (held > this.#held) budget.add(held - this.#held);
    else budget.remove(this.#held - held);
    this.#held = held;
    const waits = held >= MIN_EVICTED_BYTES && !this.#isPaused;
    if (isProgress || waits !== (this.#waiting !== undefined)) this.#wait(waits);
    if (this.#isHeldUp || !budget.mustPauseStreams) return;
    this.#isHeldUp = true;
    budget.whenStreamsMayBeRead(this);
    this.#stop();
  }

  #faultOf(end: StreamEnd): StreamFault | undefined {
    if (end.kind === "done") return undefined;
    if (end.kind === "reset") return { code: Code.cancelled, message: "the peer reset the stream" };
    return { code: this.#lostCode, message: end.reason ?? "the connection was lost" };
  }

  #close(fault: StreamFault | undefined): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#wait(false);
    this.#budget?.forget(this);
    this.#budget?.remove(this.#held);
    this.#held = 0;
    this.#handlers.onClosed(fault);
  }
}

/** The status for bytes that break the protocol; `undefined` for any other error, which is a bug. */
function faultOf(error: unknown): StreamFault | undefined {
  if (error instanceof TunnelWireError) return { code: Code.internal, message: error.message };
  if (!(error instanceof GrpcWireError)) return undefined;
  const code = error.code === "too-large" ? Code.resourceExhausted : Code.internal;
  return { code, message: error.message };
}
