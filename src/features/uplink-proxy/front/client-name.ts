import type { ByteStream } from "#base/byte-stream";

/** `address:port` of a client, as logs show it: brackets around IPv6, an IPv4-mapped address as IPv4. */
export function clientName({ remoteAddress, remotePort }: Pick<ByteStream, "remoteAddress" | "remotePort">): string {
  const address = remoteAddress.replace(/^::ffff:(?=\d+\.)/, "");
  return address.includes(":") ? `[${address}]:${remotePort}` : `${address}:${remotePort}`;
}
