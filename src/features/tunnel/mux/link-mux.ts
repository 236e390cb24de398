import type { Clock } from "#base/clock";
import { assertNever } from "#base/errors";
import { GrpcCode } from "#wire/grpc";
import type {
  Capability,
  CloseResponse,
  ControlPacket,
  Data,
  DialRequest,
  DialResponse,
  Packet,
  PacketTypeName,
  TunnelId,
  WindowUpdate,
} from "#wire/konnectivity";
import type { PacketStream, PacketStreamHandlers, StreamFault } from "../link/packet-stream.ts";
import type { BufferBudget } from "./budget.ts";
import { Channel, type ChannelHandlers, type ChannelLink } from "./channel.ts";
import { DialTable } from "./dial-table.ts";
import {
  MAX_CONTROL_BYTES,
  MAX_CONTROL_PACKETS,
  MAX_WINDOW_BYTES,
  type MuxOptions,
  SEND_QUEUE_BYTES,
} from "./options.ts";
import { SendQueue } from "./send-queue.ts";
import { SlowConsumers } from "./slow-consumers.ts";
import { UnknownIds } from "./unknown-ids.ts";

/** Connections that a server accepts from an agent have ids from here on, so an id tells its direction (spec tunnel 3). */
export const FIRST_REVERSE_ID = 2 ** 40;

/** Who dials and is told what came of it; then the owner of the channel. */
export interface DialHandlers extends ChannelHandlers {
  onAccepted(channel: Channel): void;
  onRefused(error: string): void;
  /** The peer gave the dial up (DIAL_CLS). */
  onDialAborted(): void;
}

/** What the owner of a link is told. */
export interface MuxOwner {
  /** The peer wants us to connect. Answer with {@link LinkMux.accept} or {@link LinkMux.refuse}. */
  onDialRequest(request: DialRequest): void;
  /** The peer no longer wants the dial that it asked for. */
  onDialCancelled(random: TunnelId): void;
  /** A success or failure that nobody waits for; a success is closed again. */
  onUnmatchedDialResponse(response: DialResponse): void;
  onDrain(): void;
  /** Told of each packet, for metrics. */
  onPacket(direction: "in" | "out", type: PacketTypeName | "UNKNOWN"): void;
  /** So many slow consumers hold the stream up now. */
  onBlocked(channels: number): void;
  /** The peer ends its side in order: nothing more comes from it. */
  onEnd(): void;
  /** The link is gone; channels and dials have been told. */
  onClosed(fault: StreamFault | undefined): void;
}

/** A dial that waits for its answer. */
export interface PendingDial {
  readonly random: TunnelId;
  /** Tells the peer and remembers the dial, so that a late success is closed. Idempotent. */
  cancel(): void;
}

export interface MuxDeps {
  readonly owner: MuxOwner;
  readonly clock: Clock;
  readonly budget: BufferBudget;
  /** Which side we are: decides whose ids are whose. */
  readonly side: "server" | "agent";
  readonly capabilities: ReadonlySet<Capability>;
}

/** All connections and dials of one agent stream, seen from one side. */
export class LinkMux implements ChannelLink {
  readonly budget: BufferBudget;
  readonly flowControl: boolean;
  readonly halfClose: boolean;
  readonly reverse: boolean;
  readonly softLimitBytes: number;
  readonly #stream: PacketStream;
  readonly #owner: MuxOwner;
  readonly #options: MuxOptions;
  readonly #side: "server" | "agent";
  readonly #channels = new Map<TunnelId, Channel>();
  readonly #dials: DialTable<DialHandlers>;
  readonly #unknown: UnknownIds;
  readonly #queue = new SendQueue();
  readonly #slow: SlowConsumers;
  #nextId: number;
  #pumping = false;
  #closed = false;

  /** `open` makes the stream that the handlers then serve. */
  constructor(open: (handlers: PacketStreamHandlers) => PacketStream, deps: MuxDeps, options: MuxOptions) {
    this.#owner = deps.owner;
    this.#dials = new DialTable(deps.clock);
    this.#unknown = new UnknownIds(deps.clock);
    this.#options = options;
    this.#side = deps.side;
    this.#nextId = deps.side === "server" ? FIRST_REVERSE_ID : 1;
    this.budget = deps.budget;
    this.softLimitBytes = Math.min(options.connBufferBytes, SEND_QUEUE_BYTES);
    this.flowControl = deps.capabilities.has("flow-control/1");
    this.halfClose = deps.capabilities.has("half-close/1");
    this.reverse = deps.capabilities.has("reverse/1");
    this.#slow = new SlowConsumers({
      clock: deps.clock,
      graceMs: options.slowConsumerGraceMs,
      policy: options.slowConsumerPolicy,
      pause: () => this.#stream.pause(),
      resume: () => this.#stream.resume(),
      onBlocked: (channels) => this.#owner.onBlocked(channels),
    });
    this.#stream = open({
      onPacket: (packet) => this.#receive(packet),
      onEnd: () => this.#owner.onEnd(),
      onWritable: () => this.#pump(),
      onClosed: (fault) => this.#close(fault),
    });
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Open connections. */
  get connections(): number {
    return this.#channels.size;
  }

  get pendingDials(): number {
    return this.#dials.size;
  }

  /** Bytes that have left. */
  get bytesSent(): number {
    return this.#stream.bytesSent;
  }

  /** Bytes handed to the transport that have not left. */
  get queuedBytes(): number {
    return this.#stream.queuedBytes;
  }

  /**
   * Asks the peer to connect. Returns why not: `duplicate` while a dial of that id waits or was just given up, `limit`
   * when too many wait or are open, `closed`.
   */
  dial(request: Omit<DialRequest, "type">, handlers: DialHandlers): PendingDial | "duplicate" | "limit" | "closed" {
    const { random } = request;
    if (this.#closed) return "closed";
    const { maxPendingDials, maxConnections } = this.#options;
    const full = this.#dials.size >= maxPendingDials || this.#channels.size >= maxConnections;
    if (full || this.budget.isOver) return "limit";
    if (!this.#dials.add(random, handlers)) return "duplicate";
    this.sendControl({ type: "DIAL_REQ", ...request });
    return { random, cancel: () => this.#cancelDial(random, handlers) };
  }

  /** Answers a peer's dial with success; the channel is open from now on. `undefined` when the link is full or gone. */
  accept(random: TunnelId, handlers: ChannelHandlers): Channel | undefined {
    if (this.#closed) return undefined;
    if (this.#channels.size >= this.#options.maxConnections) {
      this.refuse(random, "too many connections");
      return undefined;
    }
    while (this.#channels.has(this.#nextId)) this.#nextId += 1;
    const channel = new Channel(this.#nextId, this, handlers);
    this.#nextId += 1;
    this.#channels.set(channel.id, channel);
    this.sendControl({ type: "DIAL_RSP", error: "", connectID: channel.id, random });
    return channel;
  }

  /** Answers a peer's dial with an error. */
  refuse(random: TunnelId, error: string): void {
    this.sendControl({ type: "DIAL_RSP", error, connectID: 0, random });
  }

  /** Tells the peer that we are about to end: no new dials. */
  drain(): void {
    this.sendControl({ type: "DRAIN" });
  }

  /** Ends the link in order, after what waits. */
  end(fault?: StreamFault): void {
    this.#flush();
    this.#stream.end(fault);
  }

  /** Ends the link now. */
  destroy(fault: StreamFault): void {
    this.#stream.destroy(fault);
  }

  sendControl(packet: ControlPacket): void {
    if (this.#closed) return;
    const { controlPackets, controlBytes } = this.#queue;
    if (controlPackets >= MAX_CONTROL_PACKETS || controlBytes >= MAX_CONTROL_BYTES) {
      this.destroy({ code: GrpcCode.resourceExhausted, message: "the peer asks for more than it reads" });
      return;
    }
    this.#owner.onPacket("out", packet.type);
    this.#queue.control(packet);
    this.#schedule();
  }

  sent(type: PacketTypeName): void {
    this.#owner.onPacket("out", type);
  }

  ready(channel: Channel): void {
    if (this.#closed) return;
    this.#queue.add(channel);
    this.#schedule();
  }

  held(channel: Channel): void {
    if (this.flowControl) return;
    if (channel.heldBytes > 2 * this.#options.connBufferBytes) this.#slow.block(channel);
    else if (channel.heldBytes <= this.#options.connBufferBytes) this.#slow.unblock(channel);
  }

  remove(channel: Channel): void {
    if (this.#channels.get(channel.id) === channel) this.#channels.delete(channel.id);
    this.#queue.remove(channel);
    this.#slow.unblock(channel);
  }

  #schedule(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    const pump = (): void => {
      this.#pumping = false;
      this.#pump();
    };
    // On an idle link a packet leaves at once; on a busy one it waits until the sockets that have something were read, so
    // that their packets leave together.
    if (this.#stream.queuedBytes === 0) queueMicrotask(pump);
    else setImmediate(pump);
  }

  #pump(): void {
    while (!this.#closed && this.#stream.isWritable && !this.#queue.isEmpty) this.#sendBatch();
  }

  #flush(): void {
    while (!this.#closed && !this.#queue.isEmpty) {
      if (this.#sendBatch() === 0) break;
    }
  }

  #sendBatch(): number {
    const out: Uint8Array[] = [];
    const bytes = this.#queue.take(out);
    if (bytes > 0) this.#stream.send(out, bytes);
    return bytes;
  }

  #receive(packet: Packet): void {
    this.#owner.onPacket("in", packet.type);
    switch (packet.type) {
      case "DATA":
        this.#receiveData(packet);
        break;
      case "WINDOW":
        this.#receiveWindow(packet);
        break;
      case "FIN":
        if (this.halfClose) this.#channels.get(packet.connectID)?.handlers.onFin();
        break;
      case "DIAL_REQ":
        this.#owner.onDialRequest(packet);
        break;
      case "DIAL_RSP":
        this.#receiveDialResponse(packet);
        break;
      case "DIAL_CLS":
        this.#receiveDialClose(packet.random);
        break;
      case "CLOSE_REQ":
        this.#receiveCloseRequest(packet.connectID);
        break;
      case "CLOSE_RSP":
        this.#receiveCloseResponse(packet);
        break;
      case "DRAIN":
        this.#owner.onDrain();
        break;
      case "UNKNOWN":
        break;
      default:
        assertNever(packet);
    }
  }

  #receiveData(packet: Data): void {
    const channel = this.#channels.get(packet.connectID);
    if (channel === undefined) this.#receiveUnknown(packet.connectID);
    // A peer that sends without credit breaks its promise; it loses this connection, nobody else suffers.
    else if (!channel.receive(packet.pieces, packet.length)) {
      channel.handlers.onSlowConsumer();
      channel.remove();
    }
  }

  #receiveWindow({ connectID, credit }: WindowUpdate): void {
    if (!this.flowControl || typeof credit !== "number" || credit <= 0) return;
    this.#channels.get(connectID)?.grant(Math.min(credit, 2 * MAX_WINDOW_BYTES));
  }

  #receiveUnknown(id: TunnelId): void {
    if (id === 0 || !this.#unknown.mayAnswer(id)) return;
    if (this.#dialledByUs(id)) this.sendControl({ type: "CLOSE_REQ", connectID: id });
    else this.sendControl({ type: "CLOSE_RSP", error: "unrecognized connectID", connectID: id });
  }

  #receiveDialResponse(response: DialResponse): void {
    const handlers = this.#dials.answer(response.random);
    const { connectID, error } = response;
    if (handlers === undefined) {
      this.#owner.onUnmatchedDialResponse(response);
      if (error === "" && connectID !== 0) this.sendControl({ type: "CLOSE_REQ", connectID });
    } else if (error !== "") {
      handlers.onRefused(error);
    } else if (connectID === 0 || !this.#dialledByUs(connectID) || this.#channels.has(connectID)) {
      handlers.onRefused(`the peer answered with connection id ${connectID}, which cannot be used`);
    } else {
      const channel = new Channel(connectID, this, handlers);
      this.#channels.set(connectID, channel);
      handlers.onAccepted(channel);
    }
  }

  #receiveDialClose(random: TunnelId): void {
    const handlers = this.#dials.answer(random);
    if (handlers === undefined) this.#owner.onDialCancelled(random);
    else handlers.onDialAborted();
  }

  #receiveCloseRequest(id: TunnelId): void {
    const channel = this.#channels.get(id);
    if (channel !== undefined) channel.handlers.onCloseRequest();
    else this.sendControl({ type: "CLOSE_RSP", error: "Unknown connectID", connectID: id });
  }

  #receiveCloseResponse({ connectID, error }: CloseResponse): void {
    const channel = this.#channels.get(connectID);
    if (channel === undefined) return;
    channel.remove();
    channel.handlers.onCloseResponse(error);
  }

  #cancelDial(random: TunnelId, handlers: DialHandlers): void {
    if (this.#dials.giveUp(random, handlers)) this.sendControl({ type: "DIAL_CLS", random });
  }

  #dialledByUs(id: TunnelId): boolean {
    const isReverse = id >= FIRST_REVERSE_ID;
    return this.#side === "agent" ? isReverse : !isReverse;
  }

  #close(fault: StreamFault | undefined): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#queue.clear();
    this.#slow.clear();
    for (const handlers of this.#dials.clear()) handlers.onLinkLost();
    for (const channel of [...this.#channels.values()]) {
      channel.remove();
      channel.handlers.onLinkLost();
    }
    this.#owner.onClosed(fault);
  }
}
