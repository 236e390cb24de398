import { LinkedSet } from "#base/collections";
import { type ControlPacket, frameControl } from "#wire/konnectivity";
import type { Channel } from "./channel.ts";
import { QUANTUM_BYTES } from "./options.ts";

/** About so many bytes are handed to the transport at once. */
const BATCH_BYTES = 128 * 1024;
/** After so many channels in a row that have just become ready, one of the others sends. */
const FRESH_TURNS = 8;

/**
 * The order in which the packets of a link are sent: control packets first, then channels in round robin, a quantum each. A
 * channel that had nothing to send goes before those that have sent a quantum, so that an echo does not wait behind a hundred bulk
 * transfers. The others still send after every {@link FRESH_TURNS} of such channels.
 */
export class SendQueue {
  #control: Uint8Array[] = [];
  #controlBytes = 0;
  readonly #fresh = new LinkedSet<Channel>();
  readonly #ring = new LinkedSet<Channel>();
  #freshTurns = 0;

  /** Control packets that wait. */
  get controlPackets(): number {
    return this.#control.length;
  }

  /** Their bytes. */
  get controlBytes(): number {
    return this.#controlBytes;
  }

  get isEmpty(): boolean {
    return this.#control.length === 0 && this.#fresh.size === 0 && this.#ring.size === 0;
  }

  control(packet: ControlPacket): void {
    const framed = frameControl(packet);
    this.#control.push(framed);
    this.#controlBytes += framed.length;
  }

  /** The channel has something to send. */
  add(channel: Channel): void {
    channel.turn ??= this.#fresh.add(channel);
  }

  remove(channel: Channel): void {
    channel.turn?.remove();
    channel.turn = undefined;
  }

  clear(): void {
    this.#control = [];
    this.#controlBytes = 0;
    for (const channel of [...this.#fresh, ...this.#ring]) this.remove(channel);
  }

  /** Appends the next packets, about 128 KiB, to `out` and returns their size in bytes. */
  take(out: Uint8Array[]): number {
    let bytes = 0;
    for (const packet of this.#control) {
      out.push(packet);
      bytes += packet.length;
    }
    this.#control = [];
    this.#controlBytes = 0;
    while (bytes < BATCH_BYTES) {
      const channel = this.#next();
      if (channel === undefined) break;
      bytes += channel.take(QUANTUM_BYTES, out);
      this.remove(channel);
      if (channel.isReady) channel.turn = this.#ring.add(channel);
    }
    return bytes;
  }

  #next(): Channel | undefined {
    const useFresh = this.#fresh.size > 0 && (this.#freshTurns < FRESH_TURNS || this.#ring.size === 0);
    this.#freshTurns = useFresh ? this.#freshTurns + 1 : 0;
    const channel = (useFresh ? this.#fresh : this.#ring).shift();
    if (channel !== undefined) channel.turn = undefined;
    return channel;
  }
}
