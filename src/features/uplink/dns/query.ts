import { Resolver } from "node:dns";
import type { Clock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { DnsError } from "./errors.ts";

/** One address with the time it may be kept. */
export interface DnsRecord {
  readonly address: IpAddress;
  readonly ttlSeconds: number;
}

/** Whom to ask, and from where. */
export interface QueryPath {
  /** `address` or `address:port`; those of the system when empty. Those of a family without a source are left out, where there is one. */
  readonly servers: readonly string[];
  readonly source4?: IpAddress | undefined;
  readonly source6?: IpAddress | undefined;
}

/** Asks servers for the addresses of one exact name. Rejects with {@link DnsError}, or with the signal's reason. */
export type Query = (
  name: string,
  families: readonly IpFamily[],
  path: QueryPath,
  options: { readonly timeoutMs: number; readonly signal: AbortSignal; readonly clock: Clock },
) => Promise<readonly DnsRecord[]>;

/** Of one try of one server; c-ares takes up to twice as long, milliseconds. */
const TRY_MS = 400;
/** Each server so often. */
const TRIES = 2;
/** Once one family has answered the other may take so much longer, milliseconds. */
const OTHER_FAMILY_MS = 250;
/** More of one name are not looked at. */
const MAX_RECORDS = 32;

/** {@link Query} by c-ares: bound to the sources, UDP with TCP where an answer is cut short. One resolver for each query, so that cancelling it ends nobody else's. */
export const queryServers: Query = (name, families, path, { timeoutMs, signal, clock }) =>
  new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const resolver = openResolver(path);
    if (resolver === undefined) return reject(new DnsError("failed", "no DNS server of the uplink's address family"));
    const records: DnsRecord[] = [];
    const failures: Error[] = [];
    let open = families.length;
    const finish = (): void => {
      signal.removeEventListener("abort", onAbort);
      cancelDeadline();
      cancelOther?.();
      if (open > 0) resolver.cancel();
      open = -1;
      if (records.length > 0) resolve(records.slice(0, MAX_RECORDS));
      else reject(failureOf(failures, timeoutMs));
    };
    const onAbort = (): void => {
      open = -1;
      cancelDeadline();
      cancelOther?.();
      resolver.cancel();
      reject(signal.reason);
    };
    const cancelDeadline = clock.after(timeoutMs, finish);
    let cancelOther: (() => void) | undefined;
    signal.addEventListener("abort", onAbort, { once: true });
    const take = (error: Error | null, found: readonly { address: string; ttl: number }[] | undefined): void => {
      if (open < 0) return;
      open -= 1;
      if (error !== null) failures.push(error);
      for (const { address, ttl } of found ?? []) {
        const parsed = IpAddress.tryParse(address);
        if (parsed !== undefined) records.push({ address: parsed, ttlSeconds: ttl });
      }
      if (open === 0) finish();
      else if (records.length > 0) cancelOther ??= clock.after(OTHER_FAMILY_MS, finish);
    };
    for (const family of families) {
      if (family === 4) resolver.resolve4(name, { ttl: true }, take);
      else resolver.resolve6(name, { ttl: true }, take);
    }
  });

/** `undefined` when nobody can be asked from the sources. */
function openResolver(path: QueryPath): Resolver | undefined {
  const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES });
  const { servers, isBound } = serversToAsk(path, resolver.getServers());
  if (servers.length === 0) return undefined;
  resolver.setServers([...servers]);
  const { source4, source6 } = path;
  if (isBound) resolver.setLocalAddress(source4?.toString() ?? "0.0.0.0", source6?.toString() ?? "::0");
  return resolver;
}

/**
 * Pure: whom to ask, and whether from the sources. A question that is bound to no source takes whatever way the main table names, which
 * may be an uplink that costs too much: so a server of a family without a source is not asked, and `system` servers are asked from
 * the sources too. Only those on this host are asked as they are; they answer nobody else.
 */
export function serversToAsk(
  { servers, source4, source6 }: QueryPath,
  system: readonly string[],
): { readonly servers: readonly string[]; readonly isBound: boolean } {
  const isBound = source4 !== undefined || source6 !== undefined;
  const own = servers.length > 0 ? [] : system.filter(isLoopback);
  if (own.length > 0) return { servers: own, isBound: false };
  const all = servers.length > 0 ? servers : system;
  const canAsk = (server: string): boolean => (isIPv6Server(server) ? source6 : source4) !== undefined;
  return { servers: isBound ? all.filter(canAsk) : all, isBound };
}

/** `2001:db8::1` or `[2001:db8::1]:53`. */
function isIPv6Server(server: string): boolean {
  return server.split(":").length > 2;
}

function isLoopback(server: string): boolean {
  const host = isIPv6Server(server) ? server.replace(/^\[(.*)\](:\d+)?$/, "$1") : server.replace(/:\d+$/, "");
  return IpAddress.tryParse(host)?.isLoopback === true;
}

/** A name that does not exist, or has no address, is an answer; all else is none. */
function failureOf(failures: readonly Error[], timeoutMs: number): DnsError {
  const codes = failures.map((error) => (error as NodeJS.ErrnoException).code ?? "");
  const isAnswer = codes.length > 0 && codes.every((code) => code === "ENOTFOUND" || code === "ENODATA");
  if (isAnswer) return new DnsError("not-found", "no such host");
  const [code = ""] = codes;
  if (code === "" || code === "ETIMEOUT" || code === "ECANCELLED") {
    return new DnsError("failed", `no answer from DNS within ${timeoutMs} ms`);
  }
  return new DnsError("failed", `DNS failed: ${code}`, { cause: failures[0] });
}
