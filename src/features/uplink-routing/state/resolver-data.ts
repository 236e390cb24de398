import { readdirSync, readFileSync, statSync } from "node:fs";
import { IpAddress } from "#base/ip";
import type { ResolverData } from "./snapshot.ts";

/** Maximum length of a resolver's file, in bytes. A longer file is not a resolver's file. */
const MAX_BYTES = 65_536;
const MAX_SERVERS = 16;
const MAX_DOMAINS = 16;

/** Files with the DNS data of an interface, written by the software that configures it, the most specific first. */
function filesOf(ifName: string, ifIndex: number): readonly string[] {
  return [
    `/run/systemd/netif/links/${ifIndex}`,
    `/run/systemd/resolve/netif/${ifIndex}`,
    ...inFolder("/run/resolvconf/interface", ifName),
    ...inFolder("/run/resolvconf/interfaces", ifName),
  ];
}

/** Servers and search domains of an interface: systemd-networkd, systemd-resolved, resolvconf. Empty if they have none. */
export function readResolverData(ifName: string, ifIndex: number): ResolverData {
  const all = filesOf(ifName, ifIndex).map((path) => parseResolverData(readSmall(path)));
  return all.find(({ dnsServers }) => dnsServers.length > 0) ?? { dnsServers: [], searchDomains: [] };
}

/**
 * Pure: `nameserver` and `search` lines of resolv.conf(5), and the `DNS=`, `SERVERS=` and `DOMAINS=` lines of systemd's files.
 * Words that are not a plain address, for example with a zone or a port, are skipped.
 */
export function parseResolverData(text: string): ResolverData {
  const servers: IpAddress[] = [];
  const domains: string[] = [];
  for (const line of text.split("\n")) {
    const found = /^(?:(nameserver|DNS=|SERVERS=)|(search|domain|DOMAINS=))(.*)$/s.exec(line.trim());
    const words = (found?.[3] ?? "").split(/\s+/).filter((word) => word !== "");
    if (found?.[1] !== undefined) servers.push(...words.flatMap(serverOf));
    if (found?.[2] !== undefined) domains.push(...words.filter((word) => /^[A-Za-z0-9_.-]{1,253}$/.test(word)));
  }
  return { dnsServers: servers.slice(0, MAX_SERVERS), searchDomains: domains.slice(0, MAX_DOMAINS) };
}

function serverOf(word: string): IpAddress[] {
  // systemd adds a server name for TLS after "#".
  const address = IpAddress.tryParse(word.split("#", 1)[0] ?? "");
  return address === undefined || address.isUnspecified || address.isLoopback ? [] : [address];
}

function inFolder(folder: string, ifName: string): string[] {
  return attempt(() => readdirSync(folder), [])
    .filter((name) => name === ifName || name.startsWith(`${ifName}.`))
    .map((name) => `${folder}/${name}`);
}

function readSmall(path: string): string {
  return attempt(() => (statSync(path).size > MAX_BYTES ? "" : readFileSync(path, "utf8")), "");
}

/** A file that is missing or not readable counts as empty. */
function attempt<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof Error && "syscall" in error) return otherwise;
    throw error;
  }
}
