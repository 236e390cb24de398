import type { Clock } from "#base/clock";
import type { Capability, DialRequest, DialResponse, PacketTypeName, TunnelId } from "#wire/konnectivity";
import type { StreamFault } from "../link/packet-stream.ts";
import type { BufferBudget } from "./budget.ts";
import type { Channel, ChannelHandlers } from "./channel.ts";
import type { LinkSide } from "./id-space.ts";

/** The events of a dial and then of its channel, for the dialling side. */
export interface DialHandlers extends ChannelHandlers {
  onAccepted(channel: Channel): void;
  onRefused(error: string): void;
  /** The peer gave the dial up (DIAL_CLS). */
  onDialAborted(): void;
}

/** The events of a link, for its owner. */
export interface LinkHandlers {
  /** The peer dials. To be answered by `LinkMux.accept` or `LinkMux.refuse`. */
  onDialRequest(request: DialRequest): void;
  /** The peer gave up its own dial (DIAL_CLS). */
  onDialCancelled(random: TunnelId): void;
  /** A DIAL_RSP without a pending dial. The link closes a success by itself. */
  onUnmatchedDialResponse(response: DialResponse): void;
  onDrain(): void;
  /** Each packet, for metrics. */
  onPacket(direction: "in" | "out", type: PacketTypeName | "UNKNOWN"): void;
  /** The number of slow consumers that stop the stream now. */
  onBlocked(channels: number): void;
  /** The grace of a slow consumer has passed; its connection ends. */
  onSlowConsumerClosed(): void;
  /** The peer has ended its sending side in order. */
  onEnd(): void;
  /** The link is gone. Its channels and dials were notified before. */
  onClosed(fault: StreamFault | undefined): void;
}

/** A dial without an answer yet. */
export interface PendingDial {
  readonly random: TunnelId;
  /** Sends DIAL_CLS and leaves a tombstone, so that a late success is closed. Idempotent. */
  cancel(): void;
}

export interface MuxDeps {
  readonly handlers: LinkHandlers;
  readonly clock: Clock;
  readonly budget: BufferBudget;
  readonly side: LinkSide;
  readonly capabilities: ReadonlySet<Capability>;
}
