/**
 * An agent like Konnectivity's, on `@grpc/grpc-js`: connections numbered from 1, 4 KiB a packet, no half-close, no credit; an
 * endpoint that does not read stops the whole stream. It reports violations of the protocol by the server.
 */
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { Client, type ClientDuplexStream, credentials, Metadata } from "@grpc/grpc-js";
import {
  type GrpcPacket,
  PACKET_TYPES,
  type Peer,
  type Places,
  type RunningPeer,
  TUNNEL_SERVICES,
  tunnelMethod,
} from "#test/tunnel-peer";

const METHOD = tunnelMethod(TUNNEL_SERVICES.agent, "Connect");
/** Bytes of one read of Konnectivity's agent. */
const READ_BYTES = 4096;
/** Our server splits larger packets of its clients. */
const MAX_DATA_BYTES = 64 * 1024;
const DIAL_TIMEOUT_MS = 5000;

/** An agent like Konnectivity's. `serverIsOurs`: the server must keep our own promises too, such as small packets. */
export function grpcAgent({ serverIsOurs }: { readonly serverIsOurs: boolean }): Peer<RunningPeer> {
  return {
    name: "grpc-js",
    isOurs: false,
    start: (places) => GrpcAgent.connect(places, serverIsOurs ? MAX_DATA_BYTES : Number.POSITIVE_INFINITY),
  };
}

interface Endpoint {
  readonly socket: Socket;
  /** True after CLOSE_REQ: no packet may follow. */
  isClosing: boolean;
}

class GrpcAgent implements RunningPeer {
  readonly violations: string[] = [];
  readonly #client: Client;
  readonly #call: ClientDuplexStream<GrpcPacket, GrpcPacket>;
  readonly #maxDataBytes: number;
  readonly #endpoints = new Map<string, Endpoint>();
  #nextId = 1;

  private constructor(places: Places, maxDataBytes: number) {
    this.#maxDataBytes = maxDataBytes;
    const [ca, key, cert] = ["ca.crt", "agent.key", "agent.crt"].map((name) => readFileSync(places.file(name)));
    this.#client = new Client(
      `127.0.0.1:${places.agentPort}`,
      credentials.createSsl(ca ?? null, key ?? null, cert ?? null),
      { "grpc.use_local_subchannel_pool": 1, "grpc.ssl_target_name_override": "localhost" },
    );
    const metadata = new Metadata();
    metadata.set("agentID", "upstream-like-agent");
    this.#call = this.#client.makeBidiStreamRequest(
      METHOD.path,
      METHOD.requestSerialize,
      METHOD.responseDeserialize,
      metadata,
    );
    this.#call.on("data", (packet: GrpcPacket) => this.#take(packet));
    // The status event follows.
    this.#call.on("error", () => undefined);
    this.#call.on("status", () => this.#lost());
  }

  /** Resolves once the server has sent its headers, for which Konnectivity's agent waits. */
  static async connect(places: Places, maxDataBytes: number): Promise<GrpcAgent> {
    const agent = new GrpcAgent(places, maxDataBytes);
    const { promise, resolve, reject } = Promise.withResolvers<Metadata>();
    agent.#call.once("metadata", resolve);
    agent.#call.once("status", ({ code, details }) => reject(new Error(`status ${code} ${details}`)));
    const headers = await promise;
    const [ids, counts] = [headers.get("serverID"), headers.get("serverCount")];
    if (ids.length !== 1) agent.violations.push(`${ids.length} serverID headers`);
    if (counts.length !== 1 || !/^\d+$/.test(String(counts[0]))) agent.violations.push(`serverCount is ${counts}`);
    return agent;
  }

  async kill(): Promise<void> {
    this.#call.cancel();
    this.#client.close();
    this.#lost();
  }

  #lost(): void {
    for (const { socket } of this.#endpoints.values()) socket.destroy();
    this.#endpoints.clear();
  }

  #take(packet: GrpcPacket): void {
    switch (packet.type) {
      case "DIAL_REQ":
        if (packet.dialRequest !== undefined) this.#dial(packet.dialRequest);
        break;
      case "DATA":
        this.#data(packet.data);
        break;
      case "CLOSE_REQ":
        this.#close(packet.closeRequest?.connectID ?? "0");
        break;
      case "DIAL_CLS":
        // Konnectivity's agent does not know it.
        break;
      default:
        this.violations.push(
          PACKET_TYPES.some((one) => one === packet.type)
            ? `an agent was sent ${packet.type}`
            : `an agent without capabilities was sent type ${packet.type}`,
        );
    }
  }

  #dial({ address, random }: NonNullable<GrpcPacket["dialRequest"]>): void {
    const connectID = String(this.#nextId);
    this.#nextId += 1;
    const at = address.lastIndexOf(":");
    const socket = connect({
      host: address.slice(0, at).replace(/^\[(.*)\]$/, "$1"),
      port: Number(address.slice(at + 1)),
      noDelay: true,
      allowHalfOpen: true,
    });
    const refuse = (error: string): void => {
      socket.destroy();
      this.#send({ type: "DIAL_RSP", dialResponse: { random, error: `dial tcp ${address}: ${error}` } });
    };
    const onError = (error: NodeJS.ErrnoException): void =>
      refuse(error.code === "ECONNREFUSED" ? "connect: connection refused" : error.message);
    const onTimeout = (): void => refuse("i/o timeout");
    socket.once("error", onError);
    socket.setTimeout(DIAL_TIMEOUT_MS, onTimeout);
    socket.once("connect", () => {
      socket.setTimeout(0).off("timeout", onTimeout).off("error", onError);
      this.#endpoints.set(connectID, { socket, isClosing: false });
      this.#send({ type: "DIAL_RSP", dialResponse: { random, connectID } });
      this.#pump(connectID, socket);
    });
  }

  #pump(connectID: string, socket: Socket): void {
    let told = false;
    const close = (error: string): void => {
      if (told) return;
      told = true;
      this.#endpoints.delete(connectID);
      this.#send({ type: "CLOSE_RSP", closeResponse: error === "" ? { connectID } : { connectID, error } });
      socket.end();
    };
    socket.on("data", (chunk: Buffer) => {
      for (let at = 0; at < chunk.length; at += READ_BYTES) {
        const data = chunk.subarray(at, at + READ_BYTES);
        if (!this.#send({ type: "DATA", data: { connectID, data } })) this.#waitToSend(socket);
      }
    });
    socket.once("end", () => close(""));
    socket.once("error", (error) => close(error.message));
    socket.once("close", () => close(""));
  }

  #waitToSend(socket: Socket): void {
    socket.pause();
    this.#call.once("drain", () => socket.resume());
  }

  #data(data: GrpcPacket["data"]): void {
    if (data === undefined) return;
    if (data.data.length > this.#maxDataBytes) this.violations.push(`a DATA packet had ${data.data.length} bytes`);
    if (Number(data.connectID) >= this.#nextId) this.violations.push(`DATA came for connection ${data.connectID}`);
    const endpoint = this.#endpoints.get(data.connectID);
    if (endpoint === undefined) return;
    if (endpoint.isClosing) this.violations.push("DATA came behind CLOSE_REQ");
    if (endpoint.socket.write(data.data)) return;
    this.#call.pause();
    const resume = (): void => {
      endpoint.socket.off("drain", resume).off("close", resume);
      this.#call.resume();
    };
    endpoint.socket.on("drain", resume).on("close", resume);
  }

  #close(connectID: string): void {
    const endpoint = this.#endpoints.get(connectID);
    if (endpoint === undefined) {
      this.#send({ type: "CLOSE_RSP", closeResponse: { connectID, error: "Unknown connectID" } });
      return;
    }
    endpoint.isClosing = true;
    // The close event sends CLOSE_RSP. Bytes that wait for the endpoint are lost, as with Konnectivity's agent.
    endpoint.socket.destroy();
  }

  #send(packet: GrpcPacket): boolean {
    return this.#call.write(packet);
  }
}
