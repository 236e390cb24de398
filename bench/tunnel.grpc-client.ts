/** A connection over gRPC through a side, as an API server's konnectivity-client makes it: a session of its own with one call. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { systemClock } from "#base/clock";
import { GrpcDeframer } from "#wire/grpc";
import { Http2Connection, type Http2Stream } from "#wire/http2";
import {
  type ControlPacket,
  decodePacket,
  frameControl,
  frameData,
  type Packet,
  TUNNEL_METHODS,
  type TunnelId,
} from "#wire/konnectivity";

const HEAD = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", TUNNEL_METHODS.proxy],
  [":authority", "localhost"],
  ["content-type", "application/grpc"],
  ["te", "trailers"],
] as const;
const WINDOW_BYTES = 4 << 20;
const MAX_MESSAGE_BYTES = 8 << 20;
/** The time that an answer may take, in milliseconds. */
const PATIENCE_MS = 60_000;

/** The session writes on a socket of Node, and is as small as a client can be: the load shares the processors with what it measures. */
export class GrpcClient {
  static #randoms = 0;
  readonly #socket: Socket;
  readonly #connection: Http2Connection;
  readonly #stream: Http2Stream;
  readonly #deframer: GrpcDeframer;
  #connectID: TunnelId = 0;
  #answer: Exclude<Packet, { readonly type: "DATA" }> | undefined;
  #received = 0;
  #isGone = false;
  #condition: () => boolean = () => false;
  #resolve: () => void = () => undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#connection = new Http2Connection(
      "client",
      { clock: systemClock, streamWindowBytes: WINDOW_BYTES, connectionWindowBytes: 2 * WINDOW_BYTES },
      {
        onWantsWrite: () => queueMicrotask(() => this.#flush()),
        onRequest: () => {
          throw new Error("a server opened a stream");
        },
        onGoAway: () => undefined,
        onPing: () => undefined,
        onPong: () => undefined,
        onFailed: () => this.destroy(),
      },
    );
    this.#deframer = new GrpcDeframer({
      maxBytes: MAX_MESSAGE_BYTES,
      onMessage: (pieces, length) => this.#take(decodePacket(pieces, length)),
    });
    this.#stream = this.#connection.openStream(HEAD, false, {
      onHeaders: () => undefined,
      onData: (bytes) => {
        this.#stream.consume(bytes.length);
        this.#deframer.push(bytes);
      },
      onTrailers: () => undefined,
      onEnd: () => undefined,
      onSent: () => undefined,
      onClosed: () => this.#gone(),
    });
    socket.on("data", (bytes: Buffer) => {
      this.#connection.receive(bytes);
      if (this.#condition()) this.#resolve();
    });
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#gone());
  }

  /** Dials `port` of loopback through the server on a UNIX socket. Throws an `Error` if the dial fails. */
  static async open(uds: string, port: number): Promise<GrpcClient> {
    const socket = connect(uds);
    await once(socket, "connect");
    const client = new GrpcClient(socket);
    GrpcClient.#randoms += 1;
    const random = GrpcClient.#randoms;
    client.#send({ type: "DIAL_REQ", protocol: "tcp", address: `127.0.0.1:${port}`, random });
    const answer = await client.#answered();
    if (answer.type !== "DIAL_RSP" || answer.error !== "") {
      client.destroy();
      throw new Error(JSON.stringify(answer));
    }
    client.#connectID = answer.connectID;
    return client;
  }

  write(bytes: Uint8Array): void {
    const header = frameData(this.#connectID, bytes.length);
    this.#stream.sendData([header, bytes], false);
  }

  /** Resolves when `bytes` have come since the dial. */
  received(bytes: number): Promise<void> {
    return this.#until(() => this.#received >= bytes);
  }

  /** Closes in order: CLOSE_REQ, its answer, the end of the session. */
  async close(): Promise<void> {
    this.#answer = undefined;
    this.#send({ type: "CLOSE_REQ", connectID: this.#connectID });
    await this.#answered();
    this.destroy();
  }

  destroy(): void {
    this.#connection.close("the client is done");
    this.#socket.destroy();
  }

  #send(packet: ControlPacket): void {
    this.#stream.sendData([frameControl(packet)], false);
  }

  async #answered(): Promise<Exclude<Packet, { readonly type: "DATA" }>> {
    await this.#until(() => this.#answer !== undefined);
    if (this.#answer === undefined) throw new Error("no answer");
    return this.#answer;
  }

  #take(packet: Packet): void {
    if (packet.type === "DATA") this.#received += packet.length;
    else this.#answer = packet;
  }

  #flush(): void {
    if (this.#socket.destroyed) return;
    this.#socket.cork();
    for (const view of this.#connection.takeOutput(WINDOW_BYTES)) this.#socket.write(view);
    this.#socket.uncork();
  }

  #gone(): void {
    this.#isGone = true;
    this.#resolve();
  }

  /** Waits for a condition, which is checked after all that came at once. One wait at a time. */
  async #until(condition: () => boolean): Promise<void> {
    if (condition()) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => reject(new Error(`not within ${PATIENCE_MS} ms`)), PATIENCE_MS);
    this.#condition = condition;
    this.#resolve = resolve;
    await promise.finally(() => clearTimeout(timer));
    this.#condition = () => false;
    if (this.#isGone && !condition()) throw new Error("the server has closed the connection");
  }
}

const SMALL = Buffer.alloc(64, 1);

/** Dials, echoes 64 bytes and closes, `concurrency` at a time, for `ms`; returns the number a second. */
export async function grpcDials(uds: string, echo: number, concurrency: number, ms: number): Promise<number> {
  const started = performance.now();
  let done = 0;
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      while (performance.now() - started < ms) {
        const client = await GrpcClient.open(uds, echo);
        client.write(SMALL);
        await client.received(SMALL.length);
        await client.close();
        done += 1;
      }
    }),
  );
  return done / ((performance.now() - started) / 1000);
}
