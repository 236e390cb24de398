import type { IpAddress } from "#base/ip";
import type { GuardElement } from "./plan.ts";

/** An element whose key is an address. */
export function addressElement(address: IpAddress): GuardElement {
  return { text: [String(address)], key: bytesOf(address) };
}

/** An element whose key is an address as it stands in the packet, read as a number: nft(8) has no type for it. */
export function rawElement(address: IpAddress): GuardElement {
  return { text: [hexOf(address.toBytes())], key: bytesOf(address) };
}

/** An element whose key is an address, the values of parts of the packet, and the same address as it stands behind them. */
export function wrappedElement(address: IpAddress, fixed: readonly { readonly value: Uint8Array }[]): GuardElement {
  const inner = rawElement(address);
  return {
    text: [String(address), ...fixed.map(({ value }) => hexOf(value)), ...inner.text],
    key: [inner.key, ...fixed.map(({ value }) => padded(value)), inner.key].join(""),
  };
}

/** Bytes of a packet as a number of nft(8). */
export function hexOf(bytes: Uint8Array): string {
  return `0x${Buffer.from(bytes).toString("hex")}`;
}

const bytesOf = (address: IpAddress): string => Buffer.from(address.toBytes()).toString("latin1");
/** Each part of a key takes whole words of 4 bytes. */
const padded = (bytes: Uint8Array): string =>
  Buffer.concat([bytes, new Uint8Array(-bytes.length & 3)]).toString("latin1");
