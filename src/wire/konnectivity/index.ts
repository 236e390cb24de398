/**
 * The wire format of Konnectivity: packets in gRPC messages, identifiers, metadata keys, and the capabilities by which
 * two peers negotiate extensions that a Konnectivity peer never sees (docs/spec/tunnel.md#2, #3, #7.2, #9.1). No sockets.
 *
 * ```ts
 * stream.write(frameControl({ type: "CLOSE_REQ", connectID: 1 }));
 * for (const piece of [frameData(1, bytes.length), bytes]) stream.write(piece);
 * const deframer = new GrpcDeframer({ maxBytes, onMessage: (pieces, length) => take(decodePacket(pieces, length)) });
 * ```
 */
export { type Capability, formatCapabilities, MetadataKey, sharedCapabilities } from "./capabilities.ts";
export { decodePacket, TunnelWireError } from "./decode.ts";
export { frameControl, frameData } from "./encode.ts";
export { type AgentIdentifiers, IdentifiersError, parseIdentifiers } from "./identifiers.ts";
export {
  type CloseResponse,
  type ControlPacket,
  type Data,
  type DialRequest,
  type DialResponse,
  type Packet,
  type PacketTypeName,
  type TunnelId,
  tunnelId,
  type WindowUpdate,
} from "./packet.ts";

/** gRPC method paths; neither proto file has a package. */
export const TUNNEL_METHODS = { proxy: "/ProxyService/Proxy", connect: "/AgentService/Connect" } as const;
