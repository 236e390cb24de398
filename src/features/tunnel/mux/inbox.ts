import type { Clock } from "#base/clock";
import type { DrainedMap } from "#base/collections";
import { assertNever } from "#base/errors";
import type {
  CloseResponse,
  ControlPacket,
  Data,
  DialResponse,
  Packet,
  TunnelId,
  WindowUpdate,
} from "#wire/konnectivity";
import type { Channel, ChannelHandlers } from "./channel.ts";
import { dialledByUs, type IdSpace } from "./id-space.ts";
import type { DialHandlers, LinkHandlers } from "./link-handlers.ts";
import { MAX_WINDOW_BYTES } from "./options.ts";
import type { PendingDials } from "./pending-dials.ts";
import { UnknownIdLimiter } from "./unknown-id-limiter.ts";

/** The parts of its link that the inbox needs. */
export interface InboxLink extends IdSpace {
  readonly handlers: LinkHandlers;
  readonly flowControl: boolean;
  readonly halfClose: boolean;
  readonly channels: Pick<DrainedMap<TunnelId, Channel>, "get" | "has">;
  readonly dials: PendingDials<DialHandlers>;
  openChannel(id: TunnelId, handlers: ChannelHandlers): Channel;
  sendControl(packet: ControlPacket): void;
}

/** Demultiplexes a link: passes each packet to the channel or dial that it names, or answers it (docs/spec/tunnel.md#5.2, #5.3). */
export class Inbox {
  readonly #link: InboxLink;
  readonly #unknown: UnknownIdLimiter;

  constructor(link: InboxLink, clock: Clock) {
    this.#link = link;
    this.#unknown = new UnknownIdLimiter(clock);
  }

  /** Handles the next packet. Synchronous: it never waits for a consumer. */
  receive(packet: Packet): void {
    this.#link.handlers.onPacket("in", packet.type);
    switch (packet.type) {
      case "DATA":
        this.#receiveData(packet);
        break;
      case "WINDOW":
        this.#receiveWindow(packet);
        break;
      case "FIN":
        if (this.#link.halfClose) this.#link.channels.get(packet.connectID)?.handlers.onFin();
        break;
      case "DIAL_REQ":
        this.#link.handlers.onDialRequest(packet);
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
        this.#link.handlers.onDrain();
        break;
      case "UNKNOWN":
        break;
      default:
        assertNever(packet);
    }
  }

  #receiveData(packet: Data): void {
    const channel = this.#link.channels.get(packet.connectID);
    if (channel === undefined) this.#receiveUnknown(packet.connectID);
    // A peer that sends beyond its credit loses only this connection.
    else if (!channel.receive(packet.pieces, packet.length)) {
      channel.handlers.onSlowConsumer();
      channel.remove();
    }
  }

  #receiveWindow({ connectID, credit }: WindowUpdate): void {
    if (!this.#link.flowControl || typeof credit !== "number" || credit <= 0) return;
    this.#link.channels.get(connectID)?.grant(Math.min(credit, 2 * MAX_WINDOW_BYTES));
  }

  #receiveUnknown(id: TunnelId): void {
    if (id === 0 || !this.#unknown.mayAnswer(id)) return;
    if (dialledByUs(this.#link, id)) this.#link.sendControl({ type: "CLOSE_REQ", connectID: id });
    else this.#link.sendControl({ type: "CLOSE_RSP", error: "unrecognized connectID", connectID: id });
  }

  #receiveDialResponse(response: DialResponse): void {
    const handlers = this.#link.dials.answer(response.random);
    const { connectID, error } = response;
    if (handlers === undefined) {
      this.#link.handlers.onUnmatchedDialResponse(response);
      if (error === "" && connectID !== 0) this.#link.sendControl({ type: "CLOSE_REQ", connectID });
    } else if (error !== "") {
      handlers.onRefused(error);
    } else if (connectID === 0 || !dialledByUs(this.#link, connectID) || this.#link.channels.has(connectID)) {
      handlers.onRefused(`the peer answered with connection id ${connectID}, which cannot be used`);
      this.#closeUnusable(connectID);
    } else {
      handlers.onAccepted(this.#link.openChannel(connectID, handlers));
    }
  }

  /** Closes a connection that the peer has opened under an id that cannot be used. */
  #closeUnusable(connectID: TunnelId): void {
    if (connectID === 0) return;
    this.#link.sendControl({ type: "CLOSE_REQ", connectID });
    // If the peer gave an id to two connections, their DATA cannot be distinguished: the connection that already has the id ends too.
    const channel = dialledByUs(this.#link, connectID) ? this.#link.channels.get(connectID) : undefined;
    channel?.remove();
    channel?.handlers.onCloseResponse("the peer used this connection's id for another connection");
  }

  #receiveDialClose(random: TunnelId): void {
    const handlers = this.#link.dials.answer(random);
    if (handlers === undefined) this.#link.handlers.onDialCancelled(random);
    else handlers.onDialAborted();
  }

  #receiveCloseRequest(id: TunnelId): void {
    const channel = this.#link.channels.get(id);
    if (channel !== undefined) channel.handlers.onCloseRequest();
    else this.#link.sendControl({ type: "CLOSE_RSP", error: "Unknown connectID", connectID: id });
  }

  #receiveCloseResponse({ connectID, error }: CloseResponse): void {
    const channel = this.#link.channels.get(connectID);
    if (channel === undefined) return;
    channel.remove();
    channel.handlers.onCloseResponse(error);
  }
}
