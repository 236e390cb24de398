import { GrpcCode } from "#wire/grpc";
import type { ControlPacket, PacketTypeName } from "#wire/konnectivity";
import type { PacketStream } from "../link/packet-stream.ts";
import type { Channel } from "./channel.ts";
import { MAX_CONTROL_BYTES, MAX_CONTROL_PACKETS } from "./options.ts";
import { SendQueue } from "./send-queue.ts";

/** Sends the packets of a link in the order of its {@link SendQueue}, as fast as the stream takes them. */
export class Outbox {
  readonly #stream: () => PacketStream;
  readonly #onPacket: (type: PacketTypeName) => void;
  readonly #queue = new SendQueue();
  #pumping = false;
  #closed = false;

  /** `stream` is called only once something is sent. `onPacket` is called for each control packet. */
  constructor(stream: () => PacketStream, onPacket: (type: PacketTypeName) => void) {
    this.#stream = stream;
    this.#onPacket = onPacket;
  }

  /** Queues a control packet. Destroys the link if too many wait. */
  control(packet: ControlPacket): void {
    if (this.#closed) return;
    const { controlPackets, controlBytes } = this.#queue;
    if (controlPackets >= MAX_CONTROL_PACKETS || controlBytes >= MAX_CONTROL_BYTES) {
      this.#stream().destroy({
        code: GrpcCode.resourceExhausted,
        message: "the peer sends requests faster than it reads the answers",
      });
      return;
    }
    this.#onPacket(packet.type);
    this.#queue.control(packet);
    this.#schedule();
  }

  /** To be called when a channel has something to send. */
  ready(channel: Channel): void {
    if (this.#closed) return;
    this.#queue.add(channel);
    this.#schedule();
  }

  /** Removes the channel from the queue: nothing more of the channel is sent. */
  remove(channel: Channel): void {
    this.#queue.remove(channel);
  }

  /** Sends while the stream is writable. */
  pump(): void {
    while (!this.#closed && this.#stream().isWritable && !this.#queue.isEmpty) this.#sendBatch();
  }

  /** Sends everything that credit allows, whether the stream is writable or not. */
  flush(): void {
    while (!this.#closed && !this.#queue.isEmpty) {
      if (this.#sendBatch() === 0) break;
    }
  }

  /** Drops all packets that wait, and ignores all packets from now on. */
  close(): void {
    this.#closed = true;
    this.#queue.clear();
  }

  #schedule(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    const pump = (): void => {
      this.#pumping = false;
      this.pump();
    };
    // What all sockets that are readable now cause is sent together.
    setImmediate(pump);
  }

  #sendBatch(): number {
    const out: Uint8Array[] = [];
    const bytes = this.#queue.take(out);
    if (bytes > 0) this.#stream().send(out, bytes);
    return bytes;
  }
}
