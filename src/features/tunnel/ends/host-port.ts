import { isIPv6 } from "node:net";
import { IpAddress } from "#base/ip";

/** A TCP destination. An IPv6 host stands without brackets. */
export interface HostPort {
  readonly host: string;
  /** 1 to 65535. */
  readonly port: number;
}

/** A host name: letters, digits, hyphens, underscores and dots, at most 253 bytes (RFC 1035, and what clusters use). */
const NAME = /^(?=.{1,254}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?$/;

/**
 * Reads `host:port`, `1.2.3.4:port` or `[IPv6]:port`, strictly: no user, no path, no zone, no spaces, no port 0.
 * `undefined` for anything else.
 */
export function parseHostPort(text: string): HostPort | undefined {
  const match = /^(?:\[([0-9A-Fa-f:.]{2,45})\]|([^\s:/@[\]%?#\\]{1,254})):(\d{1,5})$/.exec(text);
  if (match === null) return undefined;
  const port = Number(match[3]);
  if (port < 1 || port > 65_535) return undefined;
  const [, six, other] = match;
  if (six !== undefined) return isIPv6(six) ? { host: six, port } : undefined;
  if (other === undefined) return undefined;
  const isNumeric = /^[\d.]+$/.test(other);
  if (isNumeric ? IpAddress.tryParse(other)?.family !== 4 : !NAME.test(other)) return undefined;
  return { host: other, port };
}

/** `host:port`, with brackets around IPv6. */
export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
