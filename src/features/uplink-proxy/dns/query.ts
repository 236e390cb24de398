import { Resolver } from "node:dns";
import type { Clock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { DnsError } from "./errors.ts";

/** One address with the time for which it may be cached. */
export interface DnsRecord {
  readonly address: IpAddress;
  readonly ttlSeconds: number;
}

/** Servers and source addresses of a query. */
export interface QueryPath {
  /**
   * `address` or `address:port`; empty for the system's servers. If there are sources, servers of a family without a source are left out.
   */
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

/** A query without an answer is sent to the next server after this, in milliseconds. The first server may still answer. */
const AGAIN_MS = 400;
/** Maximum number of queries to a server that answers each with an error. */
const TRIES = 2;
/** Maximum number of queries for one name, as some may be lost; if there are many servers, the last ones get no query. */
const MAX_QUESTIONS = 6;
/** Maximum wait for the answer of the other family after one family was answered, in milliseconds. */
const OTHER_FAMILY_MS = 250;
/** Maximum number of records of one name that are used. */
const MAX_RECORDS = 32;

/**
 * {@link Query} by c-ares: bound to the sources, UDP with TCP where an answer is cut short. `timeoutMs` is for the name, and each question
 * may wait for the rest of this time: c-ares' own tries would each end too early. Each query has its own resolver, so that cancelling it
 * does not end another query.
 */
export const queryServers: Query = (name, families, path, { timeoutMs, signal, clock }) =>
  new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const { servers, isBound } = serversToAsk(path, systemServers());
    if (servers.length === 0)
      return reject(new DnsError("failed", "the uplink has no DNS server of its address family"));
    const questions = Array.from({ length: MAX_QUESTIONS }, (_, at) => servers[at % servers.length] ?? "");
    /** Errors that each server has answered with, one for each family. */
    const errors = new Map<string, number>();
    const hasTries = (server: string): boolean => (errors.get(server) ?? 0) < TRIES * families.length;
    const until = clock.monotonic() + timeoutMs;
    const resolvers: Resolver[] = [];
    const answers = new Answers(families);
    let failures: Error[] = [];
    let isOver = false;
    let cancelAgain: (() => void) | undefined;
    let cancelOther: (() => void) | undefined;
    const end = (settle: () => void): void => {
      if (isOver) return;
      isOver = true;
      signal.removeEventListener("abort", onAbort);
      cancelDeadline();
      cancelAgain?.();
      cancelOther?.();
      for (const resolver of resolvers) resolver.cancel();
      settle();
    };
    const finish = (): void =>
      end(() => {
        const { records } = answers;
        if (records.length > 0) resolve(records.slice(0, MAX_RECORDS));
        else if (answers.isDenied) reject(new DnsError("not-found", "no such host"));
        else reject(failureOf([...failures, ...answers.denials], timeoutMs));
      });
    const onAbort = (): void => end(() => reject(signal.reason));
    const cancelDeadline = clock.after(timeoutMs, finish);
    signal.addEventListener("abort", onAbort, { once: true });
    /** Queries without an answer. */
    let open = 0;
    const take = (
      server: string,
      family: IpFamily,
      error: Error | null,
      found: readonly { address: string; ttl: number }[] = [],
    ): void => {
      if (isOver) return;
      open -= 1;
      if (error === null || isDenial(error)) answers.take(family, error, found);
      else {
        failures = [...failures, error];
        errors.set(server, (errors.get(server) ?? 0) + 1);
      }
      if (answers.areComplete) finish();
      else if (answers.records.length > 0) cancelOther ??= clock.after(OTHER_FAMILY_MS, finish);
      else if (open === 0) ask();
    };
    const ask = (): void => {
      cancelAgain?.();
      let server = questions.shift();
      while (server !== undefined && !hasTries(server)) server = questions.shift();
      if (server === undefined) {
        if (open === 0) finish();
        return;
      }
      const resolver = openResolver(server, isBound ? path : {}, Math.max(1, Math.ceil(until - clock.monotonic())));
      resolvers.push(resolver);
      const missing = answers.missing;
      open += missing.length;
      cancelAgain = clock.after(AGAIN_MS, ask);
      for (const family of missing) {
        const done = (error: Error | null, found: readonly { address: string; ttl: number }[] | undefined): void =>
          take(server, family, error, found);
        if (family === 4) resolver.resolve4(name, { ttl: true }, done);
        else resolver.resolve6(name, { ttl: true }, done);
      }
    };
    ask();
  });

/** The answers for a name, by family; the first answer for a family counts. */
class Answers {
  readonly #families: readonly IpFamily[];
  readonly #answered = new Set<IpFamily>();
  readonly records: DnsRecord[] = [];
  /** The families for which the name was denied, as errors. */
  readonly denials: Error[] = [];

  constructor(families: readonly IpFamily[]) {
    this.#families = families;
  }

  get missing(): readonly IpFamily[] {
    return this.#families.filter((family) => !this.#answered.has(family));
  }

  get areComplete(): boolean {
    return this.missing.length === 0;
  }

  /** True if all families were answered, at least one, and no answer had an address. */
  get isDenied(): boolean {
    return this.areComplete && this.records.length === 0 && this.denials.length > 0;
  }

  /** `denial`: the name does not exist, or has no address of the family. */
  take(family: IpFamily, denial: Error | null, found: readonly { address: string; ttl: number }[]): void {
    if (this.#answered.has(family)) return;
    this.#answered.add(family);
    if (denial !== null) this.denials.push(denial);
    for (const { address, ttl } of found) {
      const parsed = IpAddress.tryParse(address);
      if (parsed !== undefined) this.records.push({ address: parsed, ttlSeconds: ttl });
    }
  }
}

function openResolver(server: string, { source4, source6 }: Partial<QueryPath>, timeoutMs: number): Resolver {
  const resolver = new Resolver({ timeout: timeoutMs, tries: 1 });
  resolver.setServers([server]);
  if (source4 !== undefined || source6 !== undefined)
    resolver.setLocalAddress(source4?.toString() ?? "0.0.0.0", source6?.toString() ?? "::0");
  return resolver;
}

/**
 * Pure: the servers to query, and whether the query is bound to the source addresses `source4` and `source6`. The main routing table
 * routes an unbound query, and may route it over an uplink that costs too much. So, if there are source addresses, a server is left out
 * if its family has none, and queries to `system` servers are bound to them too. `system` servers on loopback are queried unbound,
 * because they do not answer queries from other source addresses.
 */
export function serversToAsk(
  { servers, source4, source6 }: QueryPath,
  system: readonly string[],
): { readonly servers: readonly string[]; readonly isBound: boolean } {
  const isBound = source4 !== undefined || source6 !== undefined;
  const own = servers.length > 0 ? [] : onLoopback(system);
  if (own.length > 0) return { servers: own, isBound: false };
  const all = servers.length > 0 ? servers : system;
  const canAsk = (server: string): boolean => (isIPv6Server(server) ? source6 : source4) !== undefined;
  return { servers: isBound ? all.filter(canAsk) : all, isBound };
}

/** The servers of `/etc/resolv.conf`, as it is now. */
export function systemServers(): readonly string[] {
  return new Resolver().getServers();
}

/** Those of the system's servers that are on loopback; if there are any, only they are asked, unbound. */
export function onLoopback(system: readonly string[]): readonly string[] {
  return system.filter(isLoopback);
}

/** `2001:db8::1` or `[2001:db8::1]:53`. */
function isIPv6Server(server: string): boolean {
  return server.split(":").length > 2;
}

function isLoopback(server: string): boolean {
  return addressOfServer(server)?.isLoopback === true;
}

/** The address of a server that may have a port. */
export function addressOfServer(server: string): IpAddress | undefined {
  const host = isIPv6Server(server) ? server.replace(/^\[(.*)\](:\d+)?$/, "$1") : server.replace(/:\d+$/, "");
  return IpAddress.tryParse(host);
}

function codeOf(error: Error): string {
  return (error as NodeJS.ErrnoException).code ?? "";
}

/** An answer that the name does not exist or has no address. */
function isDenial(error: Error): boolean {
  return codeOf(error) === "ENOTFOUND" || codeOf(error) === "ENODATA";
}

/** c-ares' codes of answers that have neither records nor a denial: FORMERR, SERVFAIL, NOTIMP, REFUSED, and what it cannot read. */
const SERVER_ERRORS: ReadonlySet<string> = new Set(["EFORMERR", "ESERVFAIL", "ENOTIMP", "EREFUSED", "EBADRESP"]);

/** The failure of a name that was not denied for all families. It is `server-error` if any server sent an answer. */
function failureOf(failures: readonly Error[], timeoutMs: number): DnsError {
  const fault = failures.find((error) => SERVER_ERRORS.has(codeOf(error)));
  if (fault !== undefined) {
    return new DnsError("server-error", `DNS answered with an error: ${codeOf(fault)}`, { cause: fault });
  }
  if (failures.some(isDenial)) {
    return new DnsError("server-error", `DNS did not answer for all address families within ${timeoutMs} ms`);
  }
  const [first] = failures;
  const code = first === undefined ? "" : codeOf(first);
  if (code === "" || code === "ETIMEOUT" || code === "ECANCELLED") {
    return new DnsError("failed", `DNS did not answer within ${timeoutMs} ms`);
  }
  return new DnsError("failed", `DNS failed: ${code}`, { cause: first });
}
