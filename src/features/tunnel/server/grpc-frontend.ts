import { assertNever } from "#base/errors";
import { GrpcCode } from "#wire/grpc";
import {
  type ControlPacket,
  type DialRequest,
  frameControl,
  type Packet,
  type PacketTypeName,
  type TunnelId,
} from "#wire/konnectivity";
import { LINK_LOST } from "../dial/dialled-connection.ts";
import type { IncomingStream } from "../link/incoming.ts";
import type { PacketStream, PacketStreamHandlers, StreamFault } from "../link/packet-stream.ts";
import { type GrpcFrontendObserver, GrpcFrontendSide } from "../local/grpc-frontend-side.ts";
import type { ForwardedDial, Forwarder, ForwardFailure, ForwardObserver, FrontendDeps } from "./forward.ts";
import { FRONTEND_TABLE, type FrontendAction, type FrontendEvent, type FrontendState } from "./grpc-frontend-table.ts";
import type { ServerMetrics } from "./metrics.ts";

/** Serves one stream of `ProxyService/Proxy`: the connection of one client (docs/spec/tunnel.md#5.1). */
export function serveGrpcFrontend(incoming: IncomingStream, deps: FrontendDeps): void {
  deps.metrics.grpcConnections("Proxy", 1);
  new GrpcFrontend(incoming, deps).opened();
}

/**
 * Maximum of answers that wait for a client, in bytes. A client that exceeds the limit sends without reading, and loses its stream. Another
 * limit applies to the bytes of the connection.
 */
const MAX_QUEUED_ANSWERS_BYTES = 8 * 1024 * 1024;

class GrpcFrontend implements PacketStreamHandlers, ForwardObserver, GrpcFrontendObserver {
  readonly #forwarder: Forwarder;
  readonly #metrics: ServerMetrics;
  readonly #stream: PacketStream;
  readonly #end: GrpcFrontendSide;
  #state: FrontendState = "idle";
  #random: TunnelId | undefined;
  #connectID: TunnelId | undefined;
  #connection: ForwardedDial | undefined;
  #finishing = false;
  #isPaused = false;

  constructor(incoming: IncomingStream, deps: FrontendDeps) {
    this.#forwarder = deps.forwarder;
    this.#metrics = deps.metrics;
    this.#stream = incoming.accept({}, this);
    this.#end = new GrpcFrontendSide(this.#stream, this, deps.clock);
  }

  /** Starts reading; called once the object is complete. */
  opened(): void {
    this.#stream.resume();
  }

  onPacket(packet: Packet): void {
    this.#metrics.packet("from_client", packet.type);
    const event = eventOf(packet, this.#random, this.#connectID);
    if (event !== undefined) this.#act(FRONTEND_TABLE[this.#state][event], packet);
  }

  onEnd(): void {
    this.#act(FRONTEND_TABLE[this.#state].END);
  }

  onWritable(): void {
    // The side of the frontend waits for its bytes to leave, not for this.
  }

  onClosed(fault: StreamFault | undefined): void {
    if (fault !== undefined) this.#lost(fault);
    this.onPaused(false);
    this.#metrics.grpcConnections("Proxy", -1);
    this.#act(FRONTEND_TABLE[this.#state].GONE);
  }

  onWritten(seconds: number): void {
    this.#metrics.frontendWrite(seconds);
  }

  onSent(type: PacketTypeName): void {
    this.#metrics.packet("to_client", type);
  }

  /** Updates the gauge of paused streams. */
  onPaused(isPaused: boolean): void {
    if (isPaused === this.#isPaused) return;
    this.#isPaused = isPaused;
    this.#metrics.fullReceiveChannels("Proxy", isPaused ? 1 : -1);
  }

  /** The client gets the agent's error text. If the agent is lost, the client gets a close without an error (docs/spec/tunnel.md#5.1). */
  closeText(error: string): string {
    return error === LINK_LOST ? "" : error;
  }

  #lost({ code }: StreamFault): void {
    this.#metrics.streamError("from_client", code, "Unknown");
    // Packets to the client are lost too; nearly all of them are DATA.
    if (this.#stream.queuedBytes > 0) this.#metrics.streamError("to_client", code, "DATA");
  }

  #act(action: FrontendAction, packet?: Packet): void {
    switch (action) {
      case "ignore":
        break;
      case "dial":
        if (packet?.type === "DIAL_REQ") this.#dial(packet);
        break;
      case "refuse-dial":
        if (packet?.type === "DIAL_REQ") {
          const error = "this stream already has a connection; a stream carries only one connection";
          this.#send({ type: "DIAL_RSP", error, connectID: 0, random: packet.random });
        }
        break;
      case "cancel":
        this.#state = "ended";
        this.#connection?.onLocalGone();
        // The client has ended its sending instead of sending DIAL_CLS: end the stream too.
        if (packet === undefined) this.#stream.end();
        break;
      case "forward":
        if (packet?.type === "DATA") this.#connection?.onLocalData(packet.pieces);
        break;
      case "close":
        this.#connection?.close();
        break;
      case "mismatch":
        this.#mismatch(idOf(packet));
        break;
      case "answer-data":
        this.#send({ type: "CLOSE_RSP", error: "backend not initialized", connectID: idOf(packet) });
        // Later packets belong to a connection that was never opened.
        this.#state = "ended";
        break;
      case "answer-close":
        this.#send({ type: "CLOSE_RSP", error: "backend uninitialized", connectID: idOf(packet) });
        break;
      case "finish":
        this.#finishing = true;
        if (this.#state === "open") this.#connection?.close();
        else this.#stream.end();
        break;
      case "abandon":
        this.#connection?.onLocalGone();
        this.#state = "ended";
        break;
      default:
        assertNever(action);
    }
  }

  #dial({ protocol, address, random }: DialRequest): void {
    this.#state = "dialing";
    this.#random = random;
    this.#connection = this.#forwarder.dial(
      { protocol, address, random, local: this.#end, localHalfClose: false },
      this,
    );
  }

  onConnected(connectID: TunnelId): void {
    this.#state = "open";
    this.#connectID = connectID;
    this.#end.open(connectID);
    this.#send({ type: "DIAL_RSP", error: "", connectID, random: this.#random ?? 0 });
  }

  onDisconnected(): void {
    this.#state = "ended";
    // If the connection ended while its sender was paused, nobody else reads on. What comes is ignored, up to the end of the client's side.
    this.#end.resume();
    if (this.#finishing) this.#stream.end();
  }

  onDialFailed(failure: ForwardFailure): void {
    const random = this.#random ?? 0;
    if (failure.kind === "aborted") this.#send({ type: "DIAL_CLS", random });
    else this.#send({ type: "DIAL_RSP", error: failureText(failure), connectID: 0, random });
    if (failure.kind === "no-agent") this.#stream.end();
  }

  /** Only the stream's own connection is closed at the agent: the other id may belong to another frontend. */
  #mismatch(other: TunnelId): void {
    const error = "mismatched connection IDs";
    for (const connectID of [this.#connectID ?? 0, other]) this.#send({ type: "CLOSE_RSP", error, connectID });
    this.#state = "ended";
    this.#connection?.onLocalGone();
    this.#stream.end({ code: GrpcCode.ok, message: "" });
  }

  #send(packet: ControlPacket): void {
    if (this.#stream.queuedBytes > MAX_QUEUED_ANSWERS_BYTES) {
      this.#stream.destroy({
        code: GrpcCode.resourceExhausted,
        message: "the client sends requests faster than it reads the answers",
      });
      return;
    }
    this.#metrics.packet("to_client", packet.type);
    const framed = frameControl(packet);
    this.#stream.send([framed], framed.length);
  }
}

/** The error text of DIAL_RSP for a failed dial (docs/spec/tunnel.md#5.1, #5.5). */
function failureText(failure: Exclude<ForwardFailure, { readonly kind: "aborted" }>): string {
  switch (failure.kind) {
    case "refused":
      return failure.error;
    case "no-agent":
      return "No agent available";
    case "timeout":
      return "timed out waiting for backend dial";
    case "link-lost":
      return "the connection to the agent was lost while dialing";
    case "duplicate":
      return "another dial with the same random is pending";
    case "limit":
      return "too many connections";
    case "protocol":
      return "protocol not supported";
    case "address":
      return "the address is too long";
    default:
      return assertNever(failure);
  }
}

function eventOf(
  packet: Packet,
  random: TunnelId | undefined,
  connectID: TunnelId | undefined,
): FrontendEvent | undefined {
  switch (packet.type) {
    case "DIAL_REQ":
      return "DIAL_REQ";
    case "DIAL_CLS":
      return packet.random === random ? "DIAL_CLS own" : "DIAL_CLS other";
    case "DATA":
      // 0 is not a valid connection id. A payload that does not fit its type is read as 0 too (docs/spec/tunnel.md#2, #3).
      if (packet.connectID === 0) return undefined;
      return packet.connectID === connectID ? "DATA own" : "DATA other";
    case "CLOSE_REQ":
      return packet.connectID === connectID ? "CLOSE_REQ own" : "CLOSE_REQ other";
    default:
      return undefined;
  }
}

function idOf(packet: Packet | undefined): TunnelId {
  return packet !== undefined && "connectID" in packet ? packet.connectID : 0;
}
