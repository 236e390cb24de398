import type { Socket } from "node:net";
import { systemClock } from "#base/clock";
import {
  type ControlPacket,
  frameControl,
  frameData,
  type Packet,
  TUNNEL_METHODS,
  type TunnelId,
} from "#wire/konnectivity";
import { openStream } from "../link/outgoing.ts";
import { CallPacketStream, type PacketStream, type PacketStreamHandlers } from "../link/packet-stream.ts";
import { BusyCall } from "./busy-call.ts";

/** The outcome of a dial. */
export type Dialled =
  | { readonly kind: "open"; readonly connectID: TunnelId }
  | { readonly kind: "refused"; readonly error: string }
  | { readonly kind: "closed" };

/** A client like the API server's konnectivity-client: one stream, one connection. */
export class TunnelClient {
  readonly packets: Packet[] = [];
  readonly #stream: PacketStream;
  readonly #waiting = new Set<() => void>();
  /** Bytes received. */
  received = 0;
  /** Called with each received piece. */
  onBytes: (piece: Uint8Array) => void = () => undefined;
  /** Called with the length of each DATA packet. */
  onPacket: (length: number) => void = () => undefined;
  isEnded = false;
  connectID: TunnelId = 0;
  static #random = 1;

  private constructor(open: (client: TunnelClient) => PacketStream) {
    this.#stream = open(this);
  }

  /** Calls `ProxyService/Proxy` by default. */
  static async open(
    socket: Socket,
    {
      path = TUNNEL_METHODS.proxy,
      metadata = {},
    }: { readonly path?: string; readonly metadata?: Readonly<Record<string, string>> } = {},
  ): Promise<TunnelClient> {
    const stream = await openStream(
      {
        ...{ socket, path, authority: "localhost", metadata, timeoutMs: 5000, keepAliveMs: 0, clock: systemClock },
      },
      { signal: AbortSignal.timeout(5000) },
    );
    return new TunnelClient((client) => stream.start(client.#handlers()));
  }

  #handlers(): PacketStreamHandlers {
    return {
      onPacket: (packet) => this.#take(packet),
      onEnd: () => undefined,
      onWritable: () => this.#wake(),
      onClosed: () => {
        this.isEnded = true;
        this.#wake();
      },
    };
  }

  #take(packet: Packet): void {
    if (packet.type === "DATA") {
      this.received += packet.length;
      this.onPacket(packet.length);
      for (const piece of packet.pieces) this.onBytes(piece);
    } else {
      this.packets.push(packet);
    }
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }

  /** A client that does not wait for the server's headers, nor reads while one of its writes waits for the kernel. */
  static async openBusy(socket: Socket): Promise<TunnelClient> {
    const call = await BusyCall.open(socket);
    return new TunnelClient((client) => new CallPacketStream(call, client.#handlers(), {}));
  }

  /** Waits for a condition, which is checked after each packet. */
  async until(condition: () => boolean, timeoutMs = 20_000): Promise<void> {
    if (condition()) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => reject(new Error(`not within ${timeoutMs} ms`)), timeoutMs);
    const check = (): void => {
      if (condition()) resolve();
    };
    this.#waiting.add(check);
    await promise.finally(() => {
      clearTimeout(timer);
      this.#waiting.delete(check);
    });
  }

  send(packet: ControlPacket): void {
    const framed = frameControl(packet);
    this.#stream.send([framed], framed.length);
  }

  /** Sends raw bytes. */
  sendRaw(bytes: Uint8Array): void {
    this.#stream.send([bytes], bytes.length);
  }

  async dial(address: string, random: TunnelId = TunnelClient.#random++): Promise<Dialled> {
    this.send({ type: "DIAL_REQ", protocol: "tcp", address, random });
    const answer = (): Packet | undefined =>
      this.packets.find(
        (packet) => (packet.type === "DIAL_RSP" || packet.type === "DIAL_CLS") && packet.random === random,
      );
    await this.until(() => answer() !== undefined || this.isEnded);
    const packet = answer();
    if (packet?.type !== "DIAL_RSP") return { kind: "closed" };
    if (packet.error !== "") return { kind: "refused", error: packet.error };
    this.connectID = packet.connectID;
    return { kind: "open", connectID: packet.connectID };
  }

  write(bytes: Uint8Array): void {
    const header = frameData(this.connectID, bytes.length);
    this.#stream.send([header, bytes], header.length + bytes.length);
  }

  /** Writes, and waits until the stream is writable. */
  async writeAll(bytes: Uint8Array): Promise<void> {
    this.write(bytes);
    if (!this.#stream.isWritable) await this.until(() => this.#stream.isWritable || this.isEnded);
  }

  get closeResponse(): (Packet & { type: "CLOSE_RSP" }) | undefined {
    return this.packets.find((packet): packet is Packet & { type: "CLOSE_RSP" } => packet.type === "CLOSE_RSP");
  }

  async closed(): Promise<Packet & { type: "CLOSE_RSP" }> {
    await this.until(() => this.closeResponse !== undefined || this.isEnded);
    const response = this.closeResponse;
    if (response === undefined) throw new Error("the stream ended without CLOSE_RSP");
    return response;
  }

  close(): void {
    this.send({ type: "CLOSE_REQ", connectID: this.connectID });
  }

  /** Stops and starts reading the stream. */
  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  end(): void {
    this.#stream.end();
  }

  destroy(): void {
    this.#stream.destroy({ code: 1, message: "the test is done" });
  }
}
