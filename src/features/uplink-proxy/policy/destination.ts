import { IpAddress } from "#base/ip";
import { formatHostPort, type HostPort } from "#wire/http-connect";
import { unmapped } from "./embedded.ts";

/** A destination as all parts after the parser see it: each destination has one spelling (docs/spec/uplink-proxy.md#5.2). */
export interface Destination {
  /** Lower case, without a trailing dot; the canonical text of an address. */
  readonly host: string;
  readonly port: number;
  /** Present when the host is an address; never an IPv4-mapped one. */
  readonly address?: IpAddress;
  /** `host:port`, with brackets around IPv6: the key of penalties, and the text in logs. */
  readonly text: string;
}

/** The destination that a client named. */
export function destinationOf({ host, port }: HostPort): Destination {
  const address = IpAddress.tryParse(host);
  if (address !== undefined) return addressDestination(address, port);
  const name = host.toLowerCase().replace(/\.$/, "");
  return { host: name, port, text: `${name}:${port}` };
}

/** The destination that an address is. */
export function addressDestination(address: IpAddress, port: number): Destination {
  const plain = address.family === 4 ? address : unmapped(address);
  const host = plain.toString();
  return { host, port, address: plain, text: formatHostPort({ host, port }) };
}
