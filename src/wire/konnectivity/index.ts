/**
 * The wire format of Konnectivity: packets in gRPC messages, identifiers, metadata keys, and the capabilities by which
 * two peers of ours agree on extensions that an upstream peer never sees (docs/spec/tunnel.md#2, #3, #7.2, #9.1). No sockets.
 *
 * ```ts
 * stream.write(frameControl({ type: "CLOSE_REQ", connectID: 1 }));
 * for (const piece of [frameData(1, bytes.length), bytes]) stream.write(piece);
 * const deframer = new GrpcDeframer({ maxBytes, onMessage: (pieces, length) => take(decodePacket(pieces, length)) });
 * ```
 */
export {
  CAPABILITIES,
  type Capability,
  formatCapabilities,
  MetadataKey,
  sharedCapabilities,
} from "./capabilities.ts";
export { decodePacket, TunnelWireError, type TunnelWireErrorCode } from "./decode.ts";
export { frameControl, frameData } from "./encode.ts";
export {
  type AgentIdentifiers,
  IDENTIFIER_KEYS,
  type IdentifierKey,
  IdentifiersError,
  type IdentifiersErrorCode,
  parseIdentifiers,
} from "./identifiers.ts";
export {
  type CloseDial,
  type CloseRequest,
  type CloseResponse,
  type ControlPacket,
  type Data,
  type DialRequest,
  type DialResponse,
  type Drain,
  type Fin,
  type Packet,
  PacketType,
  type PacketTypeName,
  type TunnelId,
  tunnelId,
  type UnknownPacket,
  type WindowUpdate,
} from "./packet.ts";

/** gRPC method paths; neither proto file has a package. */
export const TUNNEL_METHODS = { proxy: "/ProxyService/Proxy", connect: "/AgentService/Connect" } as const;
