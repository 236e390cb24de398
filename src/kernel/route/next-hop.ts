import { IpAddress, type IpFamily } from "#base/ip";
import { AF, Attributes, familyNumber, MessageWriter, malformed } from "#kernel/netlink";
import { RTA, RTNH_F } from "./constants.ts";
import { decodeEncap, encodeEncap } from "./encap.ts";
import type { NextHop } from "./types.ts";

/** Length of `struct rtnexthop`. */
const HOP_LENGTH = 8;

/** RTA_GATEWAY, or RTA_VIA (`struct rtvia`) when the gateway is of the other family. */
export function writeGateway(writer: MessageWriter, family: IpFamily, gateway: IpAddress): void {
  if (gateway.family === family) {
    writer.address(RTA.GATEWAY, gateway);
    return;
  }
  const via = Buffer.alloc(2 + gateway.bits / 8);
  via.writeUInt16LE(familyNumber(gateway.family), 0);
  via.set(gateway.toBytes(), 2);
  writer.attribute(RTA.VIA, via);
}

/** The address in RTA_VIA; `undefined` if there is none, or it is not IP. */
export function decodeVia(via: Buffer | undefined): IpAddress | undefined {
  if (via === undefined || via.length < 2) return undefined;
  const length = via.readUInt16LE(0) === AF.INET ? 4 : via.readUInt16LE(0) === AF.INET6 ? 16 : 0;
  return length > 0 && via.length >= 2 + length ? IpAddress.fromBytes(via.subarray(2, 2 + length)) : undefined;
}

/** The payload of RTA_MULTIPATH. */
export function encodeMultipath(family: IpFamily, hops: readonly NextHop[]): Uint8Array {
  const all = new MessageWriter();
  for (const hop of hops) {
    const attributes = new MessageWriter();
    if (hop.gateway !== undefined) writeGateway(attributes, family, hop.gateway);
    if (hop.encap !== undefined) encodeEncap(attributes, hop.encap);
    const header = Buffer.alloc(HOP_LENGTH);
    header.writeUInt16LE(HOP_LENGTH + attributes.bytes.length, 0);
    header.writeUInt8(hop.onlink === true ? RTNH_F.ONLINK : 0, 2);
    header.writeUInt8(hop.weight - 1, 3);
    header.writeInt32LE(hop.linkIndex ?? 0, 4);
    all.raw(header).raw(attributes.bytes);
  }
  return all.bytes;
}

/** Decodes the payload of RTA_MULTIPATH. Throws {@link KernelError} `invalid` when a length does not fit. */
export function decodeMultipath(payload: Buffer): NextHop[] {
  const hops: NextHop[] = [];
  for (let at = 0; at + HOP_LENGTH <= payload.length; ) {
    const length = payload.readUInt16LE(at);
    if (length < HOP_LENGTH || at + length > payload.length) throw malformed(`a next hop of length ${length}`);
    hops.push(decodeHop(payload.subarray(at, at + length)));
    at += (length + 3) & ~3;
  }
  return hops;
}

function decodeHop(bytes: Buffer): NextHop {
  const attributes = Attributes.parse(bytes.subarray(HOP_LENGTH));
  const linkIndex = bytes.readInt32LE(4);
  const gateway = attributes.address(RTA.GATEWAY) ?? decodeVia(attributes.bytes(RTA.VIA));
  const encap = decodeEncap(attributes);
  return {
    ...(linkIndex === 0 ? {} : { linkIndex }),
    ...(gateway === undefined ? {} : { gateway }),
    ...((bytes.readUInt8(2) & RTNH_F.ONLINK) === 0 ? {} : { onlink: true }),
    weight: bytes.readUInt8(3) + 1,
    ...(encap === undefined ? {} : { encap }),
  };
}
