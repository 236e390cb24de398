import { GrpcCode } from "#wire/grpc";
import { frameControl, frameData, type PacketTypeName, type TunnelId } from "#wire/konnectivity";
import type { PacketStream } from "../link/packet-stream.ts";
import { MAX_DATA_BYTES } from "../mux/options.ts";
import type { LocalEnd } from "./local-end.ts";

/** The stream of a gRPC frontend as the local side of its connection. What it sends is read by its owner. */
export class PacketEnd implements LocalEnd {
  readonly #stream: PacketStream;
  readonly #onWrite: (seconds: number) => void;
  /** A packet is on its way, for metrics. */
  readonly #onPacket: (type: PacketTypeName) => void;
  /** Whether the client is not read, because the agent does not take what it has sent. */
  readonly #onPaused: (isPaused: boolean) => void;
  /** The text for the client of an end with this error. */
  readonly #closeText: (error: string) => string;
  #connectID: TunnelId = 0;
  readonly tellsLeaving = true;
  #written = 0;
  #finished = false;

  constructor(
    stream: PacketStream,
    options: {
      readonly onWrite: (seconds: number) => void;
      readonly onPacket: (type: PacketTypeName) => void;
      readonly onPaused: (isPaused: boolean) => void;
      readonly closeText: (error: string) => string;
    },
  ) {
    this.#stream = stream;
    this.#onWrite = options.onWrite;
    this.#onPacket = options.onPacket;
    this.#onPaused = options.onPaused;
    this.#closeText = options.closeText;
  }

  get bytesWritten(): number {
    return this.#written;
  }

  /** The id under which the client knows the connection. */
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
      this.#onPacket("DATA");
      bytes += header.length + packet.length;
    }
    // An empty DATA would be the end of the file to a Go client.
    if (bytes === 0) return;
    const started = performance.now();
    this.#stream.send(out, bytes, () => {
      this.#written += bytes;
      this.#onWrite((performance.now() - started) / 1000);
      onWritten();
    });
  }

  finish(error: string | undefined, onFlushed: () => void): void {
    this.#finished = true;
    const text = error === undefined ? "" : this.#closeText(error);
    const packet = frameControl({ type: "CLOSE_RSP", error: text, connectID: this.#connectID });
    this.#onPacket("CLOSE_RSP");
    this.#stream.send([packet], packet.length, onFlushed);
  }

  pause(): void {
    this.#onPaused(true);
    this.#stream.pause();
  }

  resume(): void {
    this.#onPaused(false);
    this.#stream.resume();
  }

  /** A client that was told of the end keeps its stream until it ends it itself. */
  destroy(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#stream.destroy({ code: GrpcCode.cancelled, message: "the connection was given up" });
  }
}

/** As few packets as may carry the pieces: however what one packet held was cut by its way here, it leaves as one. */
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
