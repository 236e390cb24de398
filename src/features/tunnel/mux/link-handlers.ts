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
  /** The peer cancelled the dial (DIAL_CLS). */
  onDialAborted(): void;
}

/** The events of a link, for its owner. */
export interface LinkHandlers {
  /** The peer dials. The owner has to answer with `LinkMux.accept` or `LinkMux.refuse`. */
  onDialRequest(request: DialRequest): void;
  /** The peer cancelled its own dial (DIAL_CLS). */
  onDialCancelled(random: TunnelId): void;
  /** A DIAL_RSP came for which no dial is pending. If it reports a success, the link closes that connection by itself. */
  onUnmatchedDialResponse(response: DialResponse): void;
  onDrain(): void;
  /** Called for each packet, for metrics. */
  onPacket(direction: "in" | "out", type: PacketTypeName | "UNKNOWN"): void;
  /** Reports the number of slow consumers that stop the stream now. */
  onBlocked(channels: number): void;
  /** The grace of a slow consumer has passed, or it stood still while the process held too many bytes; its connection ends. */
  onSlowConsumerClosed(): void;
  /** The peer has ended its sending side in order. */
  onEnd(): void;
  /** The link has ended. Its channels and dials were notified before this call. */
  onClosed(fault: StreamFault | undefined): void;
}

/** A dial that has no answer yet. */
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
