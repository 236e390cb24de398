import { LinkedSet } from "#base/collections";
import { type ControlPacket, frameControl } from "#wire/konnectivity";
import type { Channel } from "./channel.ts";
import { QUANTUM_BYTES } from "./options.ts";

/** About this number of bytes is handed to the transport at once. */
const BATCH_BYTES = 128 * 1024;
/** After this number of turns in a row for channels that have just become ready, one of the other channels sends. */
const MAX_NEWLY_READY_TURNS = 8;

/**
 * The order in which the packets of a link are sent: control packets first, then channels in round robin, a quantum each. A channel that
 * had nothing to send goes before those that have sent a quantum, so that an echo does not wait behind a hundred bulk transfers. After
 * {@link MAX_NEWLY_READY_TURNS} turns of such channels, one of the others sends.
 */
export class SendQueue {
  #control: Uint8Array[] = [];
  #controlBytes = 0;
  readonly #newlyReady = new LinkedSet<Channel>();
  readonly #roundRobin = new LinkedSet<Channel>();
  #newlyReadyTurns = 0;

  /** Number of control packets that wait. */
  get controlPackets(): number {
    return this.#control.length;
  }

  /** Bytes of the control packets that wait. */
  get controlBytes(): number {
    return this.#controlBytes;
  }

  get isEmpty(): boolean {
    return this.#control.length === 0 && this.#newlyReady.size === 0 && this.#roundRobin.size === 0;
  }

  control(packet: ControlPacket): void {
    const framed = frameControl(packet);
    this.#control.push(framed);
    this.#controlBytes += framed.length;
  }

  /** To be called when the channel has something to send. */
  add(channel: Channel): void {
    channel.queueEntry ??= this.#newlyReady.add(channel);
  }

  remove(channel: Channel): void {
    channel.queueEntry?.remove();
    channel.queueEntry = undefined;
  }

  clear(): void {
    this.#control = [];
    this.#controlBytes = 0;
    for (const channel of [...this.#newlyReady, ...this.#roundRobin]) this.remove(channel);
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
      if (channel.isReady) channel.queueEntry = this.#roundRobin.add(channel);
    }
    return bytes;
  }

  #next(): Channel | undefined {
    const useNewlyReady =
      this.#newlyReady.size > 0 && (this.#newlyReadyTurns < MAX_NEWLY_READY_TURNS || this.#roundRobin.size === 0);
    this.#newlyReadyTurns = useNewlyReady ? this.#newlyReadyTurns + 1 : 0;
    const channel = (useNewlyReady ? this.#newlyReady : this.#roundRobin).shift();
    if (channel !== undefined) channel.queueEntry = undefined;
    return channel;
  }
}
