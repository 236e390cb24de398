/**
 * A client with our codec over `node:http2`: a session and a stream for each dial. Like Go's client it sends its dial before it has
 * received response headers, which Konnectivity's server sends with its first packet.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect as connectHttp2, constants } from "node:http2";
import { connect } from "node:net";
import {
  type ConnectionPort,
  DialRefused,
  type Peer,
  type RunningClient,
  randomDialId,
  TunnelConnection,
} from "#test/tunnel-peer";
import { decodeGrpcMessage, GrpcDeframer } from "#wire/grpc";
import {
  type ControlPacket,
  decodePacket,
  frameControl,
  frameData,
  type Packet,
  TUNNEL_METHODS,
  type TunnelId,
  tunnelId,
} from "#wire/konnectivity";

/** See the module's comment. */
export const ourClient: Peer<RunningClient> = {
  name: "ours",
  isOurs: true,
  start: async ({ udsPath }) => {
    const dials = new Set<OurDial>();
    return {
      violations: [],
      dial(address, { signal } = {}) {
        const dial = new OurDial(udsPath);
        dials.add(dial);
        return dial.start(address, signal);
      },
      async kill() {
        for (const dial of dials) dial.hangUp();
      },
    };
  },
};

class OurDial implements ConnectionPort {
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  readonly #random = tunnelId(BigInt(randomDialId()));
  readonly #answer = Promise.withResolvers<TunnelConnection>();
  #connectID: TunnelId = 0;
  #connection: TunnelConnection | undefined;

  constructor(udsPath: string) {
    this.#session = connectHttp2("http://localhost", { createConnection: () => connect(udsPath) });
    // The stream's close event follows.
    this.#session.on("error", () => undefined);
    this.#stream = this.#session.request({
      ":method": "POST",
      ":path": TUNNEL_METHODS.proxy,
      "content-type": "application/grpc",
      te: "trailers",
    });
    const deframer = new GrpcDeframer({
      maxBytes: 4 * 1024 * 1024,
      onMessage: (pieces, length) => this.#take(decodePacket(pieces, length)),
    });
    this.#stream.on("data", (chunk: Buffer) => deframer.push(chunk));
    let status = "";
    this.#stream.on("trailers", (trailers) => {
      status = `${trailers["grpc-status"]} ${decodeGrpcMessage(String(trailers["grpc-message"] ?? ""))}`;
    });
    this.#stream.on("error", () => undefined);
    this.#stream.once("close", () => {
      this.#answer.reject(new DialRefused(`the stream ended with status ${status}`));
      this.#connection?.over({ kind: "lost" });
      this.#session.destroy();
    });
  }

  async start(address: string, signal?: AbortSignal): Promise<TunnelConnection> {
    this.#send({ type: "DIAL_REQ", protocol: "tcp", address, random: this.#random });
    const onAbort = (): void => {
      this.sendDialClose();
      this.#stream.end();
      this.#answer.reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await this.#answer.promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #take(packet: Packet): void {
    if (packet.type === "DATA") {
      for (const piece of packet.pieces) this.#connection?.received(Buffer.from(piece));
    } else if (packet.type === "CLOSE_RSP") {
      this.#connection?.over({ kind: "closed", error: packet.error });
    } else if (packet.type === "DIAL_CLS") {
      this.#answer.reject(new DialRefused("dial closed"));
    } else if (packet.type === "DIAL_RSP" && packet.error !== "") {
      this.#answer.reject(new DialRefused(packet.error));
    } else if (packet.type === "DIAL_RSP") {
      this.#connectID = packet.connectID;
      this.#connection = new TunnelConnection(this);
      this.#answer.resolve(this.#connection);
    }
  }

  #send(packet: ControlPacket): void {
    this.#stream.write(frameControl(packet));
  }

  sendData(bytes: Buffer, sent: (error?: Error | null) => void): void {
    this.#stream.write(frameData(this.#connectID, bytes.length));
    this.#stream.write(bytes, sent);
  }

  sendClose(): void {
    this.#send({ type: "CLOSE_REQ", connectID: this.#connectID });
  }

  sendDialClose(): void {
    this.#send({ type: "DIAL_CLS", random: this.#random });
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  hangUp(): void {
    this.#stream.close(constants.NGHTTP2_CANCEL);
  }
}
