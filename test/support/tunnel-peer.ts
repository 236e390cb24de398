/**
 * The interfaces of server, agent and client, so that each can be replaced by any other, and the packets as independent peers on
 * `@grpc/grpc-js` read them.
 *
 * Owns: the protocol as loaded from `konnectivity.proto`, a tunnelled connection as a duplex stream. Does not know: our codec,
 * our HTTP/2, the tests.
 *
 * ```ts
 * const connection = await client.dial("127.0.0.1:80");
 * connection.end("GET / HTTP/1.0\r\n\r\n");
 * await connection.outcome; // what the other end said when it closed
 * ```
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { Duplex } from "node:stream";
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

/** The packet types of Konnectivity. */
export const PACKET_TYPES = ["DIAL_REQ", "DIAL_RSP", "CLOSE_REQ", "CLOSE_RSP", "DATA", "DIAL_CLS", "DRAIN"] as const;

/** A packet; int64 is text. To send DIAL_REQ leave `type` out, as Go does: it is proto3's default. */
export interface GrpcPacket {
  readonly type?: (typeof PACKET_TYPES)[number];
  readonly dialRequest?: { readonly protocol: string; readonly address: string; readonly random: string };
  readonly dialResponse?: { readonly error?: string; readonly connectID?: string; readonly random: string };
  readonly data?: { readonly connectID: string; readonly data: Buffer };
  readonly closeRequest?: { readonly connectID: string };
  readonly closeResponse?: { readonly error?: string; readonly connectID: string };
  readonly closeDial?: { readonly random: string };
}

const definitions = loadSync(join(import.meta.dirname, "konnectivity.proto"), {
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
});

/** The two services for `@grpc/grpc-js`. */
export const TUNNEL_SERVICES = {
  proxy: definitions["ProxyService"] as ServiceDefinition,
  agent: definitions["AgentService"] as ServiceDefinition,
};

/** A method of the services. */
export function tunnelMethod(service: ServiceDefinition, name: string): MethodDefinition<GrpcPacket, GrpcPacket> {
  return service[name] as unknown as MethodDefinition<GrpcPacket, GrpcPacket>;
}

/** Addresses and files that one set of peers shares. */
export interface Places {
  readonly udsPath: string;
  readonly agentPort: number;
  readonly serverHealthPort: number;
  /** The path of a file: `ca.crt`, `server.crt`, `server.key`, `agent.crt`, `agent.key`. */
  file(name: string): string;
}

/** A running peer. */
export interface RunningPeer {
  /** Ends at once, as by SIGKILL. */
  kill(): Promise<void>;
  /** Violations of the protocol by its counterparts, a sentence each. */
  readonly violations: readonly string[];
}

/** A running server. */
export interface RunningServer extends RunningPeer {
  /** An agent is connected. */
  hasAgent(): Promise<boolean>;
}

/** A kind of peer. */
export interface Peer<Running> {
  readonly name: string;
  /** The program is of this project, and must keep our own promises too. */
  readonly isOurs: boolean;
  start(places: Places): Promise<Running>;
}

/** A client on a server's socket, with one session or several. */
export interface RunningClient extends RunningPeer {
  /**
   * Rejects with {@link DialRefused}. An abort cancels the dial like Go's client (DIAL_CLS, then it hangs up) and rejects with the reason.
   */
  dial(address: string, options?: { readonly signal?: AbortSignal }): Promise<TunnelConnection>;
}

/** The dial was answered with an error; the message is the peer's text. */
export class DialRefused extends Error {
  override readonly name = "DialRefused";
}

/** A dial id as in Go: 63 random bits. */
export function randomDialId(): string {
  return (randomBytes(8).readBigUInt64BE() >> 1n).toString();
}

/** The stream of a connection's packets. */
export interface ConnectionPort {
  sendData(bytes: Buffer, sent: (error?: Error | null) => void): void;
  sendClose(): void;
  sendDialClose(): void;
  pause(): void;
  resume(): void;
  /** Ends the stream at once, and its session if no other stream uses it. */
  hangUp(): void;
}

/** The end of a connection: with CLOSE_RSP and its error (mostly empty), or by the loss of its stream. */
export type ConnectionEnd = { readonly kind: "closed"; readonly error: string } | { readonly kind: "lost" };

/**
 * A tunnelled connection like Go's `net.Conn`: `end()` sends CLOSE_REQ and waits for CLOSE_RSP; reading ends with CLOSE_RSP or with the
 * stream; `destroy()` ends the stream without a packet.
 */
export class TunnelConnection extends Duplex {
  readonly outcome: Promise<ConnectionEnd>;
  readonly #port: ConnectionPort;
  readonly #settle: (end: ConnectionEnd) => void;
  #isOver = false;

  constructor(port: ConnectionPort) {
    // Like the window of an HTTP/2 stream: large enough that a reader that is slightly late does not stop the other readers.
    super({ allowHalfOpen: true, highWaterMark: 256 * 1024 });
    this.#port = port;
    const { promise, resolve } = Promise.withResolvers<ConnectionEnd>();
    this.outcome = promise;
    this.#settle = resolve;
  }

  /** The peer's bytes. */
  received(bytes: Buffer): void {
    if (!this.push(bytes)) this.#port.pause();
  }

  /** CLOSE_RSP, or without it the stream's end. */
  over(end: ConnectionEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.push(null);
    this.#settle(end);
    this.#port.hangUp();
  }

  /** A DIAL_CLS that has crossed the dial's success. */
  giveUp(): void {
    this.#port.sendDialClose();
  }

  override _read(): void {
    this.#port.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    if (this.#isOver) callback(new Error("the connection is over"));
    else this.#port.sendData(chunk, callback);
  }

  override _final(callback: () => void): void {
    if (!this.#isOver) this.#port.sendClose();
    this.outcome.then(() => callback(), callback);
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#isOver = true;
    this.#settle({ kind: "lost" });
    this.#port.hangUp();
    callback(error);
  }
}
