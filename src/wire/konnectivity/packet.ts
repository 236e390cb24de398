/** `PacketType` of konnectivity-client's proto, and our extensions far from its next numbers (docs/spec/tunnel.md#2, #9.1). */
export const PacketType = {
  DIAL_REQ: 0,
  DIAL_RSP: 1,
  CLOSE_REQ: 2,
  CLOSE_RSP: 3,
  DATA: 4,
  DIAL_CLS: 5,
  DRAIN: 6,
  WINDOW: 64,
  FIN: 65,
} as const;
export type PacketTypeName = keyof typeof PacketType;

/**
 * An int64 in canonical form: a number if it is a safe integer, else a bigint. Equal ids are equal keys of a `Map`, and usual ids need no
 * bigint. Made by {@link tunnelId}.
 */
export type TunnelId = number | bigint;

/** The canonical form of an int64. */
export function tunnelId(value: bigint | number): TunnelId {
  if (typeof value === "number") return value;
  return value >= -BigInt(Number.MAX_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

/** Asks the accepting side to connect. Field 2 of the payload oneof. */
export interface DialRequest {
  readonly type: "DIAL_REQ";
  /** "tcp". */
  readonly protocol: string;
  /** host:port. */
  readonly address: string;
  readonly random: TunnelId;
}

/** The result of a dial: an error, or the connection's id. Field 3. */
export interface DialResponse {
  readonly type: "DIAL_RSP";
  /** Empty: connected. */
  readonly error: string;
  readonly connectID: TunnelId;
  readonly random: TunnelId;
}

/** Bytes of a connection. Field 4. */
export interface Data {
  readonly type: "DATA";
  readonly connectID: TunnelId;
  /** The pieces in order, as views of the received bytes. */
  readonly pieces: readonly Uint8Array[];
  /** The total length of the pieces, in bytes. */
  readonly length: number;
}

/** The dialling side ends a connection. Field 5. */
export interface CloseRequest {
  readonly type: "CLOSE_REQ";
  readonly connectID: TunnelId;
}

/** The accepting side ended a connection, or confirms its end. Field 6. */
export interface CloseResponse {
  readonly type: "CLOSE_RSP";
  readonly error: string;
  readonly connectID: TunnelId;
}

/** A dial is cancelled. Field 7. */
export interface CloseDial {
  readonly type: "DIAL_CLS";
  readonly random: TunnelId;
}

/** The agent is terminating. Field 8. */
export interface Drain {
  readonly type: "DRAIN";
}

/** The sender of this packet accepts this number of further bytes of a connection (extension `flow-control/1`). */
export interface WindowUpdate {
  readonly type: "WINDOW";
  readonly connectID: TunnelId;
  /** Bytes, positive. */
  readonly credit: TunnelId;
}

/** No more DATA from the sender for this connection (extension `half-close/1`). */
export interface Fin {
  readonly type: "FIN";
  readonly connectID: TunnelId;
}

/** A packet of an unknown type, to be ignored and counted. */
export interface UnknownPacket {
  readonly type: "UNKNOWN";
  readonly value: number;
}

/** A decoded `Packet`. `type` decides: with a payload of another type all fields have their defaults. */
export type Packet =
  | DialRequest
  | DialResponse
  | Data
  | CloseRequest
  | CloseResponse
  | CloseDial
  | Drain
  | WindowUpdate
  | Fin
  | UnknownPacket;

/** The packets of {@link frameControl}. DATA is framed by `frameData`, which does not copy. */
export type ControlPacket = Exclude<Packet, Data | UnknownPacket>;
