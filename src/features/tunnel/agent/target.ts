import { ConfigError } from "#base/config";
import { type Cidr, IpAddress } from "#base/ip";
import { formatHostPort, type HostPort, parseHostPort } from "#wire/http-connect";

/** A local port and its destination on the control plane's side (docs/spec/tunnel.md#9.3). */
export interface Target {
  readonly localPort: number;
  readonly destination: HostPort;
  /** The destination as `host:port`, as it is written in the server's allow-list. */
  readonly address: string;
}

/** Reads `local_port:dst_host:dst_port`. Throws `ConfigError` that quotes the text. */
export function parseTarget(text: string): Target {
  const match = /^(\d{1,5}):(.+)$/.exec(text);
  const localPort = Number(match?.[1]);
  const destination = parseHostPort(match?.[2] ?? "");
  if (destination === undefined || !(localPort >= 1 && localPort <= 65_535)) {
    const example = "6443:localhost:6443 or 6443:[2001:db8::1]:6443";
    throw new ConfigError("invalid-value", [
      `${JSON.stringify(text)} is not local_port:dst_host:dst_port; an example is ${example}`,
    ]);
  }
  return { localPort, destination, address: formatHostPort(destination) };
}

/** Returns one fault for each local port that is given a second time. */
export function duplicateTargets(targets: readonly Target[]): string[] {
  const seen = new Set<number>();
  return targets.flatMap(({ localPort, address }) => {
    if (!seen.has(localPort)) {
      seen.add(localPort);
      return [];
    }
    return [`"${localPort}:${address}": local port ${localPort} is given twice`];
  });
}

/**
 * Reads one address of `--bind-address`. Kubernetes forbids loopback and link-local addresses in endpoints, so they are
 * refused, as are unspecified and multicast ones. Throws `ConfigError` that quotes the text.
 */
export function parseBindAddress(text: string): IpAddress {
  const address = IpAddress.tryParse(text);
  const why = address === undefined ? "is not an IP address" : unusable(address);
  if (address === undefined || why !== undefined) {
    throw new ConfigError("invalid-value", [
      `${JSON.stringify(text)} ${why}; use a private address that no interface has, such as 10.255.255.1`,
    ]);
  }
  return address;
}

/** Returns true if an address is private (RFC 1918, RFC 4193). An address that is not private causes a warning. */
export function isPrivate(address: IpAddress, ranges: readonly Cidr[]): boolean {
  return ranges.some((range) => range.contains(address));
}

function unusable(address: IpAddress): string | undefined {
  const text = address.toString();
  if (address.family === 4) {
    const [first = 0, second = 0] = text.split(".").map(Number);
    if (first === 0) return "is unspecified";
    if (first === 127) return "is a loopback address";
    if (first === 169 && second === 254) return "is link-local";
    return first >= 224 ? "is multicast or reserved" : undefined;
  }
  if (text === "::") return "is unspecified";
  if (text === "::1") return "is a loopback address";
  if (/^fe[89ab]/i.test(text)) return "is link-local";
  return /^ff/i.test(text) ? "is multicast" : undefined;
}
