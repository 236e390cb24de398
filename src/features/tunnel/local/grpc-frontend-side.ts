import type { Clock } from "#base/clock";
import { GrpcCode } from "#wire/grpc";
import { frameControl, frameData, type PacketTypeName, type TunnelId } from "#wire/konnectivity";
import type { PacketStream } from "../link/packet-stream.ts";
import { MAX_DATA_BYTES } from "../mux/options.ts";
import type { LocalSide } from "./local-side.ts";

/** The callbacks of a {@link GrpcFrontendSide}: events for metrics, and questions to its owner. */
export interface GrpcFrontendObserver {
  /** Bytes have left, `seconds` after they were written. */
  onWritten(seconds: number): void;
  /** A packet was sent. */
  onSent(type: PacketTypeName): void;
  /** The frontend is paused because the agent does not take its bytes, or is resumed. */
  onPaused(isPaused: boolean): void;
  /** The error text of CLOSE_RSP for the frontend. */
  closeText(error: string): string;
}

/** The stream of a gRPC frontend as the local side of its connection. Its owner reads the packets of the frontend. */
export class GrpcFrontendSide implements LocalSide {
  readonly #stream: PacketStream;
  readonly #clock: Clock;
  readonly #observer: GrpcFrontendObserver;
  #connectID: TunnelId = 0;
  readonly detectsClose = true;
  #written = 0;
  /** Bytes that were written and have not left. */
  #unread = 0;
  #finished = false;

  constructor(stream: PacketStream, observer: GrpcFrontendObserver, clock: Clock) {
    this.#stream = stream;
    this.#observer = observer;
    this.#clock = clock;
  }

  get bytesWritten(): number {
    return this.#written;
  }

  /** Sets the id of the connection in packets for the frontend. */
  open(connectID: TunnelId): void {
    this.#connectID = connectID;
  }

  start(): void {
    this.#stream.resume();
  }

  write(pieces: readonly Uint8Array[], onWritten: () => void): void {
    const out: Uint8Array[] = [];
    let bytes = 0;
    for (const packet of packetsOf(pieces)) {
      const header = frameData(this.#connectID, packet.length);
      out.push(header, ...packet.pieces);
      this.#observer.onSent("DATA");
      bytes += header.length + packet.length;
    }
    // A Go client reads an empty DATA as the end of the file.
    if (bytes === 0) return;
    const started = this.#clock.monotonic();
    this.#unread += bytes;
    this.#stream.send(out, bytes, () => {
      this.#written += bytes;
      this.#unread -= bytes;
      this.#observer.onWritten((this.#clock.monotonic() - started) / 1000);
      onWritten();
    });
  }

  finish(error: string | undefined, onFlushed: () => void): void {
    this.#finished = true;
    const text = error === undefined ? "" : this.#observer.closeText(error);
    const packet = frameControl({ type: "CLOSE_RSP", error: text, connectID: this.#connectID });
    this.#observer.onSent("CLOSE_RSP");
    this.#stream.send([packet], packet.length, onFlushed);
  }

  pause(): void {
    this.#observer.onPaused(true);
    this.#stream.pause();
  }

  resume(): void {
    this.#observer.onPaused(false);
    this.#stream.resume();
  }

  /** A frontend that was sent CLOSE_RSP keeps its stream until it ends the stream itself, unless it does not read the bytes before that packet. */
  destroy(): void {
    if (this.#finished && this.#unread === 0) return;
    this.#finished = true;
    this.#stream.destroy({ code: GrpcCode.cancelled, message: "the connection was cancelled" });
  }
}

/** The fewest packets that carry the pieces. The payload of one received packet, however it was cut, leaves as one packet. */
function* packetsOf(
  pieces: readonly Uint8Array[],
): Generator<{ readonly pieces: readonly Uint8Array[]; readonly length: number }> {
  let packet: Uint8Array[] = [];
  let length = 0;
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; ) {
      const part = piece.subarray(at, at + MAX_DATA_BYTES - length);
      packet.push(part);
      length += part.length;
      at += part.length;
      if (length < MAX_DATA_BYTES) continue;
      yield { pieces: packet, length };
      packet = [];
      length = 0;
    }
  }
  if (length > 0) yield { pieces: packet, length };
}
