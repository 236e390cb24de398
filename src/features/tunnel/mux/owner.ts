import type { Clock } from "#base/clock";
import type { Capability, DialRequest, DialResponse, PacketTypeName, TunnelId } from "#wire/konnectivity";
import type { StreamFault } from "../link/packet-stream.ts";
import type { BufferBudget } from "./budget.ts";
import type { Channel, ChannelHandlers } from "./channel.ts";

/** Connections that a server accepts from an agent have ids from here on, so an id tells its direction (docs/spec/tunnel.md#3). */
export const FIRST_REVERSE_ID = 2 ** 40;

/** Which end of a link we are: decides whose ids are whose. */
export type Side = "server" | "agent";

/** Which connections are ours by their ids. */
export interface IdSpace {
  readonly side: Side;
  /** Agents dial too (`reverse/1`): only then does the range of an id say anything. Else an agent may choose any int64. */
  readonly reverse: boolean;
}

/** Whether a connection of that id was dialled by this side. */
export function dialledByUs({ side, reverse }: IdSpace, id: TunnelId): boolean {
  const isReverse = reverse && id >= FIRST_REVERSE_ID;
  return side === "agent" ? isReverse : !isReverse;
}

/** Who dials and is told what came of it; then the owner of the channel. */
export interface DialHandlers extends ChannelHandlers {
  onAccepted(channel: Channel): void;
  onRefused(error: string): void;
  /** The peer gave the dial up (DIAL_CLS). */
  onDialAborted(): void;
}

/** What the owner of a link is told. */
export interface MuxOwner {
  /** The peer wants us to connect. Answer with `LinkMux.accept` or `LinkMux.refuse`. */
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
  /** One of them has held the stream up for all of its grace, and ends. */
  onSlowConsumerClosed(): void;
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
  readonly side: Side;
  readonly capabilities: ReadonlySet<Capability>;
}
