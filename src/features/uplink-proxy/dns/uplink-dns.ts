import { type AbortSignalLike, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { keepNewest } from "#base/collections";
import type { IpAddress, IpFamily } from "#base/ip";
import { HostsFile } from "#base/names";
import type { DnsSettings } from "#base/uplink-model";
import { DnsCache } from "./cache.ts";
import { DnsError } from "./errors.ts";
import { addressOfServer, type DnsRecord, onLoopback, type Query, queryServers, systemServers } from "./query.ts";

/** Groups of servers that are remembered: two for each uplink, at most 64 uplinks of settings and some that are gone. The oldest is dropped first. */
const MAX_GROUPS = 256;

/** Servers that did not answer are passed over for this time, milliseconds, so that a dead resolver delays only one request. */
const SILENT_MS = 5000;

/** The fields of an uplink that resolving needs. */
export interface DnsUplink {
  readonly name: string;
  readonly servers: readonly string[];
  readonly searchDomains: readonly string[];
  /** Usable sources; of one family or both. */
  readonly sources: readonly IpAddress[];
}

/** The addresses of a name. */
export interface DnsAnswer {
  /** At least one. */
  readonly addresses: readonly IpAddress[];
  /** The servers that answered: an uplink's name, `hosts`, or `system`. */
  readonly via: string;
  /** True if the answer has expired; it is used because the servers do not answer, or answer with an error. */
  readonly isStale: boolean;
}

/** Dependencies of the resolver. */
export interface UplinkDnsDeps {
  readonly clock: Clock;
  readonly settings: () => DnsSettings;
  /** Default: c-ares. */
  readonly query?: Query;
  /** Default: `/etc/hosts`. */
  readonly hostsPath?: string;
  /** The servers that `query` asks if it is given none. Default: those of `/etc/resolv.conf`. */
  readonly systemServers?: () => readonly string[];
}

/** Returns true if policy allows all addresses of an answer. */
export type Accepts = (addresses: readonly IpAddress[]) => boolean;

/** Options for resolving a name. */
export interface ResolveOptions extends AnswerOptions {
  /** Uplinks whose servers are queried when the uplink's own do not answer, or answer with an error, cheapest first. */
  readonly others: readonly DnsUplink[];
  /** Least time for the uplink's own servers, in milliseconds: the uplink may be slow. Default: `timeoutMs` of the settings. */
  readonly ownMs?: number;
}

/** Options for resolving a name without an uplink. */
export interface NearOptions extends AnswerOptions {
  /** Returns true if a server is this host's, or reached without an uplink. */
  readonly isNear: (server: IpAddress) => boolean;
}

interface AnswerOptions {
  /** If it rejects an answer, the answer is not used, and the next servers are queried. Default: accepts all answers. */
  readonly accepts?: Accepts;
  readonly signal: AbortSignalLike;
}

const BOTH: readonly IpFamily[] = [4, 6];
/** The key of the servers that are near. No name of an uplink has a NUL. */
const NEAR_KEY = "near\0";

/**
 * Resolves names to addresses, for each uplink with its own servers and from its own addresses (docs/spec/uplink-proxy.md#6.3). An answer
 * of one uplink's servers is used for another uplink only if the other uplink's servers have none, not even a denial.
 */
export class UplinkDns {
  readonly #clock: Clock;
  readonly #settings: () => DnsSettings;
  readonly #query: Query;
  readonly #hosts: HostsFile;
  readonly #systemServers: () => readonly string[];
  /** The known servers, by the key of the group. */
  readonly #known = new Map<string, KnownServers>();
  readonly #running = new Map<string, Promise<readonly IpAddress[]>>();
  /** Expired answers that were served. */
  staleAnswers = 0;

  constructor(deps: UplinkDnsDeps) {
    this.#clock = deps.clock;
    this.#settings = deps.settings;
    this.#query = deps.query ?? queryServers;
    this.#hosts = new HostsFile(deps.hostsPath ?? "/etc/hosts", deps.clock);
    this.#systemServers = deps.systemServers ?? systemServers;
  }

  /** The addresses of a name in `/etc/hosts`; empty if the file does not have the name. */
  hosts(name: string): Promise<readonly IpAddress[]> {
    return this.#hosts.lookup(name);
  }

  /** A cached answer, without a query or a round of the event loop. */
  cached(name: string, uplink: DnsUplink): DnsAnswer | undefined {
    return this.#cached(name, ownServers(uplink));
  }

  #cached(name: string, group: ServerGroup): DnsAnswer | undefined {
    for (const each of namesToTry(name, group)) {
      const found = this.#known.get(group.key)?.cache.fresh(each);
      if (found === undefined) return undefined;
      if (found.addresses.length > 0) return { addresses: found.addresses, via: group.name, isStale: false };
    }
    return undefined;
  }

  /**
   * Resolves a name for an uplink: by its own servers, then from their expired answer, then by the servers of the `others` (cheapest
   * first), then by the system's servers. An answer that `accepts` rejects is not used. A name that the uplink's own servers deny is not
   * queried elsewhere. Servers that were silent a moment ago are passed over; if nobody else has a usable answer, the first of them are
   * asked after all. Rejects with {@link DnsError}, or with the signal's reason.
   */
  resolve(name: string, uplink: DnsUplink, options: ResolveOptions): Promise<DnsAnswer> {
    return this.#resolveBy(name, this.#groupsFor(uplink, options.others, options.ownMs), options);
  }

  /**
   * Resolves a name without an uplink: by those of the system's servers to which no uplink leads (`isNear`). They are asked unbound. Rejects
   * as {@link resolve}.
   */
  resolveNear(name: string, { isNear, ...options }: NearOptions): Promise<DnsAnswer> {
    const servers = this.#systemServers().filter((server) => {
      const address = addressOfServer(server);
      return address !== undefined && isNear(address);
    });
    const group = { key: NEAR_KEY, name: "system", servers, searchDomains: [], sources: [], isSystem: true };
    return this.#resolveBy(name, servers.length === 0 ? [] : [group], options);
  }

  async #resolveBy(name: string, groups: Iterable<ServerGroup>, options: AnswerOptions): Promise<DnsAnswer> {
    const failures: DnsError[] = [];
    let passedOver: ServerGroup | undefined;
    for (const group of groups) {
      const isPassedOver = this.#isSilent(group) && this.#cached(name, group) === undefined;
      if (isPassedOver) passedOver ??= group;
      const found = isPassedOver
        ? this.#stale(name, group, options.accepts)
        : await this.#answerOf(name, group, { ...options, failures, isLast: passedOver === undefined });
      if (found !== undefined) return found;
    }
    // One name that nobody can resolve makes its servers look silent. Other names must not fail for it.
    if (passedOver !== undefined) {
      const found = await this.#answerOf(name, passedOver, { ...options, failures, isLast: true });
      if (found !== undefined) return found;
    }
    const denial = failures.find(isDenied) ?? failures.find(({ code }) => code === "not-found");
    throw denial ?? failures[0] ?? new DnsError("failed", "the uplink has no DNS servers");
  }

  /**
   * A usable answer of these servers, else their expired one. `undefined`: there is none, and the reason was added to `failures`. Rejects
   * with {@link DnsError} `not-found` if the servers deny the name, no earlier answer was forbidden, and no servers that come first were passed
   * over (`isLast`), or with the signal's reason.
   */
  async #answerOf(
    name: string,
    group: ServerGroup,
    {
      accepts = () => true,
      signal,
      failures,
      isLast,
    }: AnswerOptions & { readonly failures: DnsError[]; readonly isLast: boolean },
  ): Promise<DnsAnswer | undefined> {
    try {
      const addresses = await this.#ask(name, group, signal);
      if (accepts(addresses)) return { addresses, via: group.name, isStale: false };
      failures.push(new DnsError("denied", "the DNS answer has an address that is not allowed"));
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof DnsError)) throw error;
      if (error.code === "not-found" && isLast && !failures.some(isDenied)) throw error;
      failures.push(error);
      return error.code === "not-found" ? undefined : this.#stale(name, group, accepts);
    }
  }

  /** In the order of use; groups without servers are left out. */
  *#groupsFor(uplink: DnsUplink, others: readonly DnsUplink[], ownMs = 0): Iterable<ServerGroup> {
    if (uplink.servers.length > 0) yield { ...ownServers(uplink), leastMs: ownMs };
    for (const each of others) if (each.name !== uplink.name && each.servers.length > 0) yield ownServers(each);
    yield systemGroup(uplink, this.#systemServers());
  }

  #isSilent({ key }: ServerGroup): boolean {
    return (this.#known.get(key)?.silentUntil ?? 0) > this.#clock.monotonic();
  }

  async #ask(name: string, group: ServerGroup, signal: AbortSignalLike): Promise<readonly IpAddress[]> {
    let last: DnsError | undefined;
    const began = this.#clock.monotonic();
    const time: QueryTime = { began, until: began + Math.max(this.#settings().timeoutMs, group.leastMs ?? 0) };
    for (const each of namesToTry(name, group)) {
      try {
        return await this.#askExact(each, group, time, signal);
      } catch (error) {
        if (!(error instanceof DnsError) || error.code !== "not-found") throw error;
        last = error;
      }
    }
    throw last ?? new DnsError("not-found", "no such host");
  }

  async #askExact(
    name: string,
    group: ServerGroup,
    time: QueryTime,
    signal: AbortSignalLike,
  ): Promise<readonly IpAddress[]> {
    const cached = this.#knownOf(group.key).cache.fresh(name);
    if (cached !== undefined) {
      if (cached.addresses.length === 0) throw new DnsError("not-found", "no such host");
      return cached.addresses;
    }
    const id = `${group.key}\0${name}`;
    // Many tunnels to one registry may begin at once; they share one query. If one caller aborts, the query continues for the others.
    const running = this.#running.get(id) ?? this.#start(id, name, group, time);
    return await unlessAborted(running, { signal });
  }

  #start(id: string, name: string, group: ServerGroup, time: QueryTime): Promise<readonly IpAddress[]> {
    const started = this.#fetch(name, group, time).finally(() => this.#running.delete(id));
    // When the query fails, all callers may have aborted, and the rejection would be unhandled.
    started.catch(() => undefined);
    this.#running.set(id, started);
    return started;
  }

  async #fetch(name: string, group: ServerGroup, { began, until }: QueryTime): Promise<readonly IpAddress[]> {
    const timeoutMs = Math.max(1, until - this.#clock.monotonic());
    const sourceOf = (family: IpFamily): IpAddress | undefined => group.sources.find((each) => each.family === family);
    const path = { servers: group.servers, source4: sourceOf(4), source6: sourceOf(6) };
    const families = group.isSystem === true ? BOTH : BOTH.filter((family) => sourceOf(family) !== undefined);
    let records: readonly DnsRecord[] = [];
    try {
      const options = { timeoutMs, signal: new AbortController().signal, clock: this.#clock };
      records = await this.#query(name, families, path, options);
    } catch (error) {
      if (!(error instanceof DnsError)) throw error;
      if (error.code === "failed") this.#noteSilence(group, began);
      else this.#noteAnswer(group);
      if (error.code === "not-found") this.#knownOf(group.key).cache.store(name, []);
      throw error;
    }
    this.#noteAnswer(group);
    this.#knownOf(group.key).cache.store(name, records);
    return records.map(({ address }) => address);
  }

  #noteAnswer({ key }: ServerGroup): void {
    const known = this.#knownOf(key);
    known.answeredAt = this.#clock.monotonic();
    known.silentUntil = 0;
  }

  /**
   * A query that began at `began` got no answer. The servers are silent only if they answered no other name since: a recursor is slow for a
   * name whose own servers are dead. A silence that has begun is not prolonged, so that such a name cannot keep the servers silent.
   */
  #noteSilence(group: ServerGroup, began: number): void {
    const known = this.#knownOf(group.key);
    if (known.answeredAt < began && !this.#isSilent(group)) known.silentUntil = this.#clock.monotonic() + SILENT_MS;
  }

  #stale(name: string, group: ServerGroup, accepts: Accepts = () => true): DnsAnswer | undefined {
    for (const each of namesToTry(name, group)) {
      const found = this.#knownOf(group.key).cache.stale(each);
      if (found === undefined || !accepts(found.addresses)) continue;
      this.staleAnswers += 1;
      return { addresses: found.addresses, via: group.name, isStale: true };
    }
    return undefined;
  }

  #knownOf(key: string): KnownServers {
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const made: KnownServers = {
      cache: new DnsCache(this.#clock, this.#settings),
      silentUntil: 0,
      answeredAt: Number.NEGATIVE_INFINITY,
    };
    this.#known.set(key, made);
    keepNewest(this.#known, MAX_GROUPS);
    return made;
  }
}

function isDenied({ code }: DnsError): boolean {
  return code === "denied";
}

/** The servers of an uplink, or those of the system. `name` is what is told of them. */
interface ServerGroup extends DnsUplink {
  /** The key of the cache, the silence and the running queries. */
  readonly key: string;
  readonly isSystem?: boolean;
  /** Least time for all queries of a name, in milliseconds. */
  readonly leastMs?: number;
}

/** The state of a group of servers. Times are monotonic milliseconds. */
interface KnownServers {
  readonly cache: DnsCache;
  /** The servers are passed over until this time. */
  silentUntil: number;
  /** When they last answered, with addresses, a denial or an error. */
  answeredAt: number;
}

/** The time of the queries for one name, monotonic milliseconds. */
interface QueryTime {
  readonly began: number;
  readonly until: number;
}

function ownServers(uplink: DnsUplink): ServerGroup {
  return { ...uplink, key: uplink.name };
}

/**
 * The servers of /etc/resolv.conf, as an uplink asks them. Queries are bound to the uplink, and use no other uplink: its way may be dead, or
 * have answers of its own, so the group is the uplink's. Servers on loopback are asked unbound and answer the same for all uplinks.
 */
function systemGroup({ name, sources }: DnsUplink, servers: readonly string[]): ServerGroup {
  // No name of an uplink has a NUL.
  const key = onLoopback(servers).length > 0 ? "system\0" : `system\0${name}`;
  return { key, name: "system", servers: [], searchDomains: [], sources, isSystem: true };
}

/** A name without a dot is tried in the search domains first. */
function namesToTry(name: string, { searchDomains }: DnsUplink): string[] {
  return name.includes(".") ? [name] : [...searchDomains.map((domain) => `${name}.${domain}`), name];
}
