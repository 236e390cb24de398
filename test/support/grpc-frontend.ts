/**
 * A frontend as the API server is one, on `@grpc/grpc-js`: an HTTP/2 stack and framing that are not ours.
 *
 * ```ts
 * using frontend = openFrontend(`unix:${path}`, credentials.createInsecure());
 * await frontend.dial("127.0.0.1:80", 7);
 * assert.equal(await frontend.roundTrip("hello"), "hello");
 * ```
 */
import { type ChannelCredentials, Client, type ServiceError } from "@grpc/grpc-js";
import { until } from "#test/lab";
import {
  type ControlPacket,
  decodePacket,
  frameControl,
  frameData,
  type Packet,
  TUNNEL_METHODS,
} from "#wire/konnectivity";

/** The length prefix of each message on the wire; grpc-js writes its own. */
const PREFIX_BYTES = 5;

/** One stream of `ProxyService/Proxy`. */
export interface GrpcFrontend extends Disposable {
  /** The received packets except DATA. */
  readonly packets: readonly Packet[];
  /** The end of the stream; `undefined` while it is open. */
  readonly ended: () => { readonly code: number; readonly details: string } | undefined;
  send(packet: ControlPacket): void;
  /** Resolves with the error of the answer, empty for a success. */
  dial(address: string, random: number): Promise<string>;
  roundTrip(text: string): Promise<string>;
  /** Resolves when the stream has ended. */
  end(): Promise<void>;
}

/** Opens a stream at `unix:PATH` or `HOST:PORT`. */
export function openFrontend(target: string, credentials: ChannelCredentials): GrpcFrontend {
  const client = new Client(target, credentials);
  const packets: Packet[] = [];
  let received = "";
  let connectID = 0;
  let ended: { code: number; details: string } | undefined;
  const call = client.makeBidiStreamRequest<Buffer, Packet>(
    TUNNEL_METHODS.proxy,
    (message) => message,
    (bytes) => decodePacket([bytes], bytes.length),
  );
  call.on("data", (packet: Packet) => {
    if (packet.type === "DATA") received += Buffer.concat([...packet.pieces]).toString("latin1");
    else packets.push(packet);
  });
  call.on("status", ({ code, details }) => {
    ended = { code, details };
  });
  // The status event reports the same.
  call.on("error", (_error: ServiceError) => undefined);
  const send = (packet: ControlPacket): void =>
    void call.write(Buffer.from(frameControl(packet).subarray(PREFIX_BYTES)));
  return {
    packets,
    ended: () => ended,
    send,
    async dial(address, random) {
      send({ type: "DIAL_REQ", protocol: "tcp", address, random });
      const answer = (): Packet | undefined =>
        packets.find((one) => (one.type === "DIAL_RSP" || one.type === "DIAL_CLS") && one.random === random);
      await until("the dial is answered", () => answer() !== undefined || ended !== undefined, { everyMs: 5 });
      const found = answer();
      if (found?.type !== "DIAL_RSP") return ended === undefined ? "DIAL_CLS" : `status ${ended.code} ${ended.details}`;
      connectID = Number(found.connectID);
      return found.error;
    },
    async roundTrip(text) {
      const bytes = Buffer.from(text, "latin1");
      const before = received.length;
      call.write(Buffer.concat([frameData(connectID, bytes.length), bytes]).subarray(PREFIX_BYTES));
      await until("it comes back", () => received.length >= before + text.length || ended !== undefined, {
        everyMs: 5,
      });
      return received.slice(before);
    },
    async end() {
      call.end();
      await until("the stream has ended", () => ended !== undefined, { everyMs: 5 });
    },
    [Symbol.dispose]() {
      call.cancel();
      client.close();
    },
  };
}
