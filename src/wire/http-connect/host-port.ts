import { isIPv6 } from "node:net";
import { IpAddress } from "#base/ip";

/** A TCP destination. An IPv6 host has no brackets. */
export interface HostPort {
  readonly host: string;
  /** 1 to 65535. */
  readonly port: number;
}

/** Labels of letters, digits, hyphens and underscores, as RFC 1035 has them and clusters use them; one trailing dot. */
const NAME = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?$/;
/** RFC 1035 section 2.3.4, without the trailing dot. */
const MAX_NAME_LENGTH = 253;
/** Texts that resolvers take for an IPv4 address: 127.1, 0x7f.1, 0177.0.0.1, 2130706433. Here only the strict form is an address. */
const NUMERIC = /^(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}\.?$/i;

/**
 * Reads `host:port`, `1.2.3.4:port` or `[IPv6]:port`, strictly: no user, no path, no zone, no spaces, no port 0, no
 * address in octal, hexadecimal or short form. The host stays as it is written. `undefined` for any other text.
 */
export function parseHostPort(text: string): HostPort | undefined {
  const match = /^(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,254})):(\d{1,5})$/.exec(text);
  if (match === null) return undefined;
  const [, six, other = ""] = match;
  const port = Number(match[3]);
  if (port < 1 || port > 65_535) return undefined;
  if (six !== undefined) return isIPv6(six) ? { host: six, port } : undefined;
  return isIPv4(other) || isName(other) ? { host: other, port } : undefined;
}

/** `host:port`, with brackets around IPv6. */
export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function isIPv4(text: string): boolean {
  return IpAddress.tryParse(text)?.family === 4;
}

function isName(text: string): boolean {
  const length = text.endsWith(".") ? text.length - 1 : text.length;
  return length <= MAX_NAME_LENGTH && NAME.test(text) && !NUMERIC.test(text);
}
