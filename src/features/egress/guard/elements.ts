import type { IpAddress } from "#base/ip";
import type { GuardElement } from "./plan.ts";

/** An element whose key is an address. */
export function addressElement(address: IpAddress): GuardElement {
  return { text: [String(address)], key: bytesOf(address) };
}

/** An element whose key is an address as it stands in the packet, read as a number: nft(8) has no type for it. */
export function rawElement(address: IpAddress): GuardElement {
  return { text: [hexOf(address)], key: bytesOf(address) };
}

/** An element whose key is an address and the same address as it stands behind other headers. */
export function pairElement(address: IpAddress): GuardElement {
  return { text: [String(address), hexOf(address)], key: bytesOf(address) + bytesOf(address) };
}

const bytesOf = (address: IpAddress): string => Buffer.from(address.toBytes()).toString("latin1");
const hexOf = (address: IpAddress): string => `0x${Buffer.from(address.toBytes()).toString("hex")}`;
