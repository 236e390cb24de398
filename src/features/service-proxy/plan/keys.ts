import { type Cidr, IpAddress } from "#base/ip";
import type { ByteString } from "#kernel/nft-elements";
import { flatText, PROTOCOL_NUMBERS, type Protocol } from "../model/index.ts";

/** Length of protocol and port in a key. */
const PORT_BYTES = 8;

/** The address as 4 or 16 bytes. */
export function addressBytes(address: IpAddress): ByteString {
  return String.fromCharCode(...address.toBytes());
}

/** Protocol and port, each padded to 4 bytes, as parts of a concatenation are in the kernel. */
export function portBytes(protocol: Protocol, port: number): ByteString {
  return String.fromCharCode(PROTOCOL_NUMBERS[protocol], 0, 0, 0, port >> 8, port & 255, 0, 0);
}

/** Key of `service-ips` and its like: address . protocol . port. */
export function addressKey(address: IpAddress, protocol: Protocol, port: number): ByteString {
  return flatText(addressBytes(address), portBytes(protocol, port));
}

/**
 * The key of a service port in `affinity`: its cluster IP, protocol and port. `isExternal`: of those of its front ends that have other endpoints
 * than its cluster IP, because a policy is Local; the second byte of the protocol, which is padding elsewhere, tells the two apart.
 */
export function affinityKey(clusterIP: IpAddress, protocol: Protocol, port: number, isExternal: boolean): ByteString {
  const variant = isExternal ? 1 : 0;
  const rest = String.fromCharCode(PROTOCOL_NUMBERS[protocol], variant, 0, 0, port >> 8, port & 255, 0, 0);
  return flatText(addressBytes(clusterIP), rest);
}

/** The identity of a front end: a key of `service-ips`, or of `service-nodeports`. */
export interface FrontEndKey {
  readonly key: ByteString;
  readonly isNodePort: boolean;
}

/** Reads the key of a front end. `address` is absent for a NodePort; `protocol` is an IP protocol number. Pure. */
export function readFrontEndKey({ key, isNodePort }: FrontEndKey): {
  readonly address?: IpAddress;
  readonly protocol: number;
  readonly port: number;
} {
  const at = key.length - PORT_BYTES;
  const protocol = key.charCodeAt(at);
  const port = (key.charCodeAt(at + 4) << 8) | key.charCodeAt(at + 5);
  if (isNodePort) return { protocol, port };
  return { address: IpAddress.fromBytes(Buffer.from(key.slice(0, at), "latin1")), protocol, port };
}

/** A key of either kind as text: `203.0.113.9:80/TCP`, or `NodePort 30080/TCP`. */
export function frontEndText(frontEnd: FrontEndKey): string {
  const { address, protocol: number, port } = readFrontEndKey(frontEnd);
  const protocol = Object.entries(PROTOCOL_NUMBERS).find(([, one]) => one === number)?.[0] ?? `protocol ${number}`;
  if (address === undefined) return `NodePort ${port}/${protocol}`;
  return `${address.family === 6 ? `[${address}]` : address}:${port}/${protocol}`;
}

/** Value of the endpoint maps: address . port. */
export function endpointValue(address: IpAddress, port: number): ByteString {
  return flatText(addressBytes(address), String.fromCharCode(port >> 8, port & 255, 0, 0));
}

/** Key of `hairpin`, for an endpoint that reaches itself: address . address . protocol . port. */
export function hairpinKey(address: IpAddress, protocol: Protocol, port: number): ByteString {
  const bytes = addressBytes(address);
  return flatText(bytes, bytes, portBytes(protocol, port));
}

const SLOTS: string[] = [];

/** A slot number in host byte order, as `numgen` returns it; x86-64 and arm64 are little-endian. */
export function slotBytes(slot: number): ByteString {
  SLOTS[slot] ??= String.fromCharCode(slot & 255, (slot >> 8) & 255, (slot >> 16) & 255, slot >>> 24);
  return SLOTS[slot] ?? "";
}

/** The number in the last 4 bytes of an endpoint map's key. */
export function slotOf(key: ByteString): number {
  const at = key.length - 4;
  return (
    key.charCodeAt(at) | (key.charCodeAt(at + 1) << 8) | (key.charCodeAt(at + 2) << 16) | (key.charCodeAt(at + 3) << 24)
  );
}

/** First and last key of `fw-allow`: address . protocol . port . source. */
export function allowKeys(frontEnd: ByteString, source: Cidr): readonly [first: ByteString, last: ByteString] {
  return [frontEnd + addressBytes(source.base), frontEnd + addressBytes(source.last)];
}
