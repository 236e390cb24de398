import type { Duplex } from "node:stream";
import { GrpcCode as Code, type GrpcCode, GrpcDeframer, GrpcWireError } from "#wire/grpc";
import { decodePacket, type Packet, TunnelWireError } from "#wire/konnectivity";
import type { BufferBudget } from "../mux/budget.ts";
import type { SendBacklog } from "./session-socket.ts";

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
  readonly onPacket: (packet: Packet) => void;
  /** The peer has ended its sending side; writing still works. */
  readonly onEnd: () => void;
  /** The stream is writable again. */
  readonly onWritable: () => void;
  /** Called once, at the end of the stream. `fault` is `undefined` if both sides ended the stream in order. */
  readonly onClosed: (fault: StreamFault | undefined) => void;
}

/** Packets over one gRPC stream. */
export interface PacketStream {
  /** If false, the sender has to wait for `onWritable` before it sends more data. */
  readonly isWritable: boolean;
  /** Bytes passed to `send` that the transport has not taken. */
  readonly queuedBytes: number;
  /** Bytes that the transport has taken. Two values show whether a stream is stuck. */
  readonly bytesSent: number;
  /** Writes framed packets in one go; `onSent` is called when the transport has taken them. */
  send(pieces: readonly Uint8Array[], bytes: number, onSent?: () => void): void;
  pause(): void;
  resume(): void;
  /** Ends the stream in order, after all sent packets. */
  end(fault?: StreamFault): void;
  /** Ends the stream at once; bytes that were not sent are lost. */
  destroy(fault: StreamFault): void;
}

/** The way this side ends the stream: a server writes trailers, a client ends or resets. */
export interface StreamEnding {
  readonly end: (fault: StreamFault | undefined) => void;
  readonly reset: (fault: StreamFault) => void;
}

/** Packets over an HTTP/2 stream of `node:http2`, or any duplex that behaves like one. */
export class DuplexPacketStream implements PacketStream {
  readonly #duplex: Duplex;
  readonly #handlers: PacketStreamHandlers;
  readonly #ending: StreamEnding;
  readonly #budget: Pick<BufferBudget, "add" | "remove" | "isOver"> | undefined;
  /** Bytes of an incomplete message that are counted in the budget. */
  #held = 0;
  #queued = 0;
  #sent = 0;
  #full = false;
  #closed = false;
  /** Bytes that wait on the connection, if it is a {@link SessionSocket}. */
  readonly #backlog: SendBacklog | undefined;

  constructor(
    duplex: Duplex,
    handlers: PacketStreamHandlers,
    options: {
      readonly maxMessageBytes?: number;
      readonly ending: StreamEnding;
      /** The status of a lost connection. On a server, as in Go, the call is cancelled. Default: unavailable. */
      readonly lostCode?: GrpcCode;
      /** Counts the bytes of incomplete messages. Above the budget the stream ends. */
      readonly budget?: Pick<BufferBudget, "add" | "remove" | "isOver"> | undefined;
      readonly backlog?: SendBacklog | undefined;
    },
  ) {
    this.#duplex = duplex;
    this.#backlog = options.backlog;
    this.#handlers = handlers;
    this.#ending = options.ending;
    this.#budget = options.budget;
    const deframer = new GrpcDeframer({
      maxBytes: options.maxMessageBytes ?? MAX_MESSAGE_BYTES,
      onMessage: (pieces, length) => {
        if (!this.#closed) handlers.onPacket(decodePacket(pieces, length));
      },
    });
    duplex.on("data", (chunk: Uint8Array) => this.#take(deframer, chunk));
    const lostCode = options.lostCode ?? Code.unavailable;
    const lost: StreamFault = { code: lostCode, message: "the connection was lost" };
    duplex.once("end", () => {
      if (this.#closed || isReset(duplex)) return;
      if (isLost(duplex)) this.#close(lost);
      else handlers.onEnd();
    });
    duplex.once("error", (error: Error) => this.#close({ code: lostCode, message: error.message }));
    duplex.once("close", () => {
      if (isReset(duplex)) this.#close({ code: Code.cancelled, message: "the peer reset the stream" });
      else this.#close(isLost(duplex) ? lost : undefined);
    });
  }

  get isWritable(): boolean {
    return !this.#closed && !this.#full;
  }

  get queuedBytes(): number {
    return this.#queued;
  }

  get bytesSent(): number {
    return this.#sent;
  }

  send(pieces: readonly Uint8Array[], bytes: number, onSent?: () => void): void {
    const last = pieces.at(-1);
    if (this.#closed || last === undefined || !this.#duplex.writable) return;
    this.#queued += bytes;
    if (this.#queued >= QUEUE_HIGH_BYTES) this.#full = true;
    this.#duplex.cork();
    for (let at = 0; at < pieces.length - 1; at += 1) this.#duplex.write(pieces[at]);
    const taken = (): void => {
      this.#queued -= bytes;
      this.#sent += bytes;
      onSent?.();
      this.#checkWritable();
    };
    this.#duplex.write(last, (error) => {
      // The error event of the stream follows.
      if (error !== null && error !== undefined) return;
      if (this.#backlog === undefined) taken();
      else this.#backlog.whenLow(taken);
    });
    this.#duplex.uncork();
  }

  pause(): void {
    this.#duplex.pause();
  }

  resume(): void {
    this.#duplex.resume();
  }

  end(fault?: StreamFault): void {
    if (!this.#closed) this.#ending.end(fault);
  }

  destroy(fault: StreamFault): void {
    if (this.#closed) return;
    this.#ending.reset(fault);
    this.#close(fault);
  }

  #checkWritable(): void {
    if (!this.#full || this.#queued > QUEUE_LOW_BYTES) return;
    this.#full = false;
    if (!this.#closed) this.#handlers.onWritable();
  }

  #take(deframer: GrpcDeframer, chunk: Uint8Array): void {
    if (this.#closed) return;
    try {
      deframer.push(chunk);
      if (!this.#closed) this.#count(deframer.heldBytes);
    } catch (error) {
      const fault = faultOf(error);
      if (fault === undefined) throw error;
      this.#ending.end(fault);
      this.#close(fault);
    }
  }

  #count(held: number): void {
    this.#budget?.add(held);
    this.#budget?.remove(this.#held);
    this.#held = held;
    if (held === 0 || this.#budget?.isOver !== true) return;
    this.destroy({ code: Code.resourceExhausted, message: "the peer sent more bytes than may be buffered" });
  }

  #close(fault: StreamFault | undefined): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#budget?.remove(this.#held);
    this.#held = 0;
    this.#handlers.onClosed(fault);
  }
}

/** True if the stream was reset: Node.js ends its reading side as if the peer had ended it. */
function isReset(duplex: Duplex): boolean {
  return "rstCode" in duplex && typeof duplex.rstCode === "number" && duplex.rstCode !== 0;
}

/**
 * True if the connection was lost before this side ended the stream. In this case too, Node.js ends the reading side as if the peer had
 * ended it.
 */
function isLost(duplex: Duplex): boolean {
  return duplex.destroyed && !duplex.writableEnded;
}

/** The status for bytes that break the protocol; `undefined` for any other error, which is a bug. */
function faultOf(error: unknown): StreamFault | undefined {
  if (error instanceof TunnelWireError) return { code: Code.internal, message: error.message };
  if (!(error instanceof GrpcWireError)) return undefined;
  const code = error.code === "too-large" ? Code.resourceExhausted : Code.internal;
  return { code, message: error.message };
}
