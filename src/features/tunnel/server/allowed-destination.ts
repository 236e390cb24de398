import { readFileSync } from "node:fs";
import { ConfigError } from "#base/config";
import { IpAddress } from "#base/ip";
import { type HostPort, parseHostPort } from "#wire/http-connect";
import { canonicalHost } from "../identity/hosts.ts";

/** One entry of the allow-list of the reverse direction (docs/spec/tunnel.md#9.5). */
export interface AllowedDestination extends HostPort {
  /** If set, the entry is only for agents whose ClientHello has this server name. */
  readonly sni: string | undefined;
  /** If set, the entry is only for agents whose client certificate has this common name. */
  readonly agents: string | undefined;
}

/**
 * Reads `[sni=NAME,][agents=CN,]host:port`. Wildcards, CIDRs and port ranges are not accepted. Throws `ConfigError` that quotes the text.
 */
export function parseAllowedDestination(text: string): AllowedDestination {
  const refuse = (why: string): ConfigError =>
    new ConfigError("invalid-value", [
      `${JSON.stringify(text)} ${why}; expected host:port, for example localhost:6443, or sni=NAME,host:port`,
    ]);
  const parts = text.split(",");
  const target = parseHostPort(parts.pop() ?? "");
  if (target === undefined) throw refuse("has no host and port");
  let sni: string | undefined;
  let agents: string | undefined;
  for (const part of parts) {
    const [key, value = ""] = part.split("=", 2);
    if (value === "") throw refuse(`has an empty restriction ${JSON.stringify(part)}`);
    if (key === "sni" && sni === undefined) sni = value.toLowerCase().replace(/\.$/, "");
    else if (key === "agents" && agents === undefined) agents = value;
    else throw refuse(`has an unknown or repeated restriction ${JSON.stringify(part)}`);
  }
  return { ...target, sni, agents };
}

/** The destinations of a file: one destination on each line; `#` begins a comment. Throws `ConfigError`, or an error of the file system. */
export function readDestinations(path: string): AllowedDestination[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .map((line) => line.replace(/#.*/, "").trim())
    .filter((line) => line !== "")
    .map(parseAllowedDestination);
}

/** The first entry that allows the destination to the agent. */
export function findDestination(
  list: readonly AllowedDestination[],
  wanted: HostPort,
  agent: { readonly serverName: string | undefined; readonly commonName: string | undefined },
): AllowedDestination | undefined {
  const host = comparable(wanted.host);
  return list.find(
    (entry) =>
      entry.port === wanted.port &&
      comparable(entry.host) === host &&
      (entry.sni === undefined || entry.sni === agent.serverName?.toLowerCase()) &&
      (entry.agents === undefined || entry.agents === agent.commonName),
  );
}

/** The canonical form of a host; an IPv4-mapped IPv6 address becomes the IPv4 address. */
function comparable(host: string): string {
  const canonical = canonicalHost(host);
  const mapped = /^::ffff:(.+)$/i.exec(canonical)?.[1];
  if (mapped === undefined) return canonical;
  const dotted = IpAddress.tryParse(mapped);
  if (dotted !== undefined) return dotted.toString();
  const [high = "", low = ""] = mapped.split(":");
  const bits = Number.parseInt(high, 16) * 65_536 + Number.parseInt(low, 16);
  return [24, 16, 8, 0].map((shift) => Math.floor(bits / 2 ** shift) % 256).join(".");
}
