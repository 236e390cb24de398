import { DrainedMap } from "#base/collections";
import type { ControlPacket, DialRequest, PacketTypeName, TunnelId } from "#wire/konnectivity";
import type { PacketStream, PacketStreamHandlers, StreamFault } from "../link/packet-stream.ts";
import type { BufferBudget } from "./budget.ts";
import { Channel, type ChannelHandlers, type ChannelLink } from "./channel.ts";
import { FIRST_REVERSE_ID } from "./id-space.ts";
import { Inbox } from "./inbox.ts";
import type { DialHandlers, LinkHandlers, MuxDeps, PendingDial } from "./link-handlers.ts";
import { type MuxOptions, SEND_QUEUE_BYTES } from "./options.ts";
import { Outbox } from "./outbox.ts";
import { PendingDials } from "./pending-dials.ts";
import { SlowConsumers } from "./slow-consumers.ts";

/** All connections and dials of one agent stream, seen from one side. */
export class LinkMux implements ChannelLink {
  readonly budget: BufferBudget;
  readonly flowControl: boolean;
  readonly halfClose: boolean;
  readonly reverse: boolean;
  readonly softLimitBytes: number;
  readonly now: () => number;
  readonly #stream: PacketStream;
  readonly #handlers: LinkHandlers;
  readonly #options: MuxOptions;
  readonly #channels = new DrainedMap<TunnelId, Channel>();
  readonly #dials: PendingDials<DialHandlers>;
  readonly #outbox: Outbox;
  readonly #slow: SlowConsumers;
  #nextId: number;
  #closed = false;

  /** `open` makes the stream with the given handlers. */
  constructor(open: (handlers: PacketStreamHandlers) => PacketStream, deps: MuxDeps, options: MuxOptions) {
    this.#handlers = deps.handlers;
    this.#dials = new PendingDials(deps.clock);
    this.#outbox = new Outbox(
      () => this.#stream,
      (type) => this.sent(type),
    );
    this.#options = options;
    this.#nextId = deps.side === "server" ? FIRST_REVERSE_ID : 1;
    this.budget = deps.budget;
    this.now = () => deps.clock.monotonic();
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
      onBlocked: (channels) => this.#handlers.onBlocked(channels),
      onExpired: () => this.#handlers.onSlowConsumerClosed(),
    });
    const inbox = this.#inbox(deps);
    this.#stream = open({
      onPacket: (packet) => inbox.receive(packet),
      onEnd: () => this.#handlers.onEnd(),
      onWritable: () => this.#outbox.pump(),
      onClosed: (fault) => this.#close(fault),
    });
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  get roundTripMs(): number | undefined {
    return this.#stream.roundTripMs;
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#channels.size;
  }

  get pendingDials(): number {
    return this.#dials.size;
  }

  /** Bytes that the transport has taken. */
  get bytesSent(): number {
    return this.#stream.bytesSent;
  }

  /** Bytes that were handed to the transport and that it has not taken. */
  get queuedBytes(): number {
    return this.#stream.queuedBytes;
  }

  /**
   * Sends DIAL_REQ. If no dial is possible, returns the reason: `duplicate` (a dial of that id is pending or has a tombstone), `limit` (too
   * many dials, connections or buffered bytes), `closed`.
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

  /**
   * Answers a peer's dial with success and opens the channel. Returns `undefined` if the link is closed, or if it is full or the process holds
   * too many bytes: the dial is then refused.
   */
  accept(random: TunnelId, handlers: ChannelHandlers): Channel | undefined {
    if (this.#closed) return undefined;
    if (this.#channels.size >= this.#options.maxConnections || this.budget.isOver) {
      this.refuse(random, "too many connections");
      return undefined;
    }
    while (this.#channels.has(this.#nextId)) this.#nextId += 1;
    const channel = this.#open(this.#nextId, handlers);
    this.#nextId += 1;
    this.sendControl({ type: "DIAL_RSP", error: "", connectID: channel.id, random });
    return channel;
  }

  /** Answers a peer's dial with an error. */
  refuse(random: TunnelId, error: string): void {
    this.sendControl({ type: "DIAL_RSP", error, connectID: 0, random });
  }

  /** Sends DRAIN: this side is about to end and wants no new dials. */
  drain(): void {
    this.sendControl({ type: "DRAIN" });
  }

  /** Ends the link in order, after all packets that wait to be sent. */
  end(fault?: StreamFault): void {
    this.#outbox.flush();
    this.#stream.end(fault);
  }

  /** Ends the link at once; bytes that wait are lost. */
  destroy(fault: StreamFault): void {
    this.#stream.destroy(fault);
  }

  sendControl(packet: ControlPacket): void {
    this.#outbox.control(packet);
  }

  sent(type: PacketTypeName): void {
    this.#handlers.onPacket("out", type);
  }

  ready(channel: Channel): void {
    this.#outbox.ready(channel);
  }

  held(channel: Channel): void {
    if (this.flowControl) return;
    if (channel.heldBytes > 2 * this.#options.connBufferBytes) this.#slow.block(channel);
    else if (channel.heldBytes <= this.#options.connBufferBytes) this.#slow.unblock(channel);
  }

  evicted(): void {
    this.#handlers.onSlowConsumerClosed();
  }

  remove(channel: Channel): void {
    if (this.#channels.get(channel.id) === channel) this.#channels.delete(channel.id);
    this.#outbox.remove(channel);
    this.#slow.unblock(channel);
  }

  #inbox({ side, handlers, clock }: MuxDeps): Inbox {
    const { flowControl, halfClose, reverse } = this;
    return new Inbox(
      {
        side,
        reverse,
        handlers,
        flowControl,
        halfClose,
        channels: this.#channels,
        dials: this.#dials,
        openChannel: (id, handlers) => this.#open(id, handlers),
        sendControl: (packet) => this.sendControl(packet),
      },
      clock,
    );
  }

  #open(id: TunnelId, handlers: ChannelHandlers): Channel {
    const channel = new Channel(id, this, handlers);
    this.#channels.set(id, channel);
    return channel;
  }

  #cancelDial(random: TunnelId, handlers: DialHandlers): void {
    if (this.#dials.giveUp(random, handlers)) this.sendControl({ type: "DIAL_CLS", random });
  }

  #close(fault: StreamFault | undefined): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#outbox.close();
    this.#slow.clear();
    for (const handlers of this.#dials.clear()) handlers.onLinkLost();
    for (const channel of this.#channels.values()) {
      channel.remove();
      channel.handlers.onLinkLost();
    }
    this.#handlers.onClosed(fault);
  }
}
