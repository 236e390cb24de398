import { ConfigError } from "#base/config";
import { Cidr, unmapped } from "#base/ip";
import type { AddressFilter } from "../local/dial-tcp.ts";

/** Endpoints that servers may reach through an agent. */
export interface ForwardDestination {
  readonly range: Cidr;
  /** Absent: any port. */
  readonly port: number | undefined;
}

/** Reads `CIDR[:port]`, such as `10.0.0.0/8`, `10.1.2.3/32:10250` or `fd00::/8:443`. Throws `ConfigError` that quotes the text. */
export function parseForwardDestination(text: string): ForwardDestination {
  const [, cidr = "", portText] = /^([^/]+\/\d{1,3})(?::(\d{1,5}))?$/.exec(text) ?? [];
  const range = Cidr.tryParse(cidr);
  const port = portText === undefined ? undefined : Number(portText);
  if (range === undefined || port === 0 || (port ?? 1) > 65_535) {
    throw new ConfigError("invalid-value", [
      `${JSON.stringify(text)} is not CIDR[:port]; an example is 10.0.0.0/8:10250`,
    ]);
  }
  return { range, port };
}

/** A filter that allows the endpoints of the list; `undefined`, which allows all, if the list is empty. */
export function forwardFilter(list: readonly ForwardDestination[]): AddressFilter | undefined {
  if (list.length === 0) return undefined;
  return (address, port) => {
    // A connection to an IPv4-mapped address reaches the IPv4 endpoint.
    const plain = unmapped(address);
    return list.some(({ range, port: only }) => range.contains(plain) && (only === undefined || only === port));
  };
}
