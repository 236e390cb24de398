import { isIP } from "node:net";
import { withoutEnd } from "#base/text";

/** The maximum number of servers, as in glibc; further servers are not queried. */
const MAX_SERVERS = 3;
const MAX_SEARCH = 32;
const MAX_NDOTS = 15;
const MAX_ATTEMPTS = 5;

/** The part of resolv.conf(5) that is used. */
export interface ResolvConf {
  /** Addresses of the servers, with the port if it is not 53. At least one. */
  readonly servers: readonly string[];
  /** Domains that are appended to a name, without a dot at the end. */
  readonly search: readonly string[];
  /** A name with at least this many dots is tried unchanged first. */
  readonly ndots: number;
  /** The number of queries to each server. */
  readonly attempts: number;
}

/** Parses resolv.conf(5). If no line gives a domain, the domain of `hostname` is used. Ignores invalid lines, as resolvers do. */
export function parseResolvConf(text: string, hostname: string): ResolvConf {
  const servers: string[] = [];
  const dot = hostname.indexOf(".");
  let search: readonly string[] = dot < 0 ? [] : [hostname.slice(dot + 1)];
  let [ndots, attempts] = [1, 2];
  for (const line of text.split("\n")) {
    const [keyword = "", ...words] = line
      .replace(/[#;].*$/s, "")
      .split(/\s+/)
      .filter((word) => word !== "");
    if (keyword === "nameserver" && isServer(words[0] ?? "")) servers.push(words[0] ?? "");
    else if (keyword === "search") search = words;
    else if (keyword === "domain") search = words.slice(0, 1);
    else if (keyword === "options") {
      ndots = option(words, "ndots", ndots, MAX_NDOTS);
      attempts = Math.max(1, option(words, "attempts", attempts, MAX_ATTEMPTS));
    }
  }
  return {
    servers: servers.length === 0 ? ["127.0.0.1"] : servers.slice(0, MAX_SERVERS),
    search: search
      .map((domain) => withoutEnd(domain.replace(/^\.+/, ""), "."))
      .filter((domain) => domain !== "")
      .slice(0, MAX_SEARCH),
    ndots,
    attempts,
  };
}

/** The names to query, in order. A name that ends with a dot is used unchanged. */
export function candidatesOf(name: string, { search, ndots }: Pick<ResolvConf, "search" | "ndots">): readonly string[] {
  if (name.endsWith(".")) return [name.slice(0, -1)];
  const dots = name.split(".").length - 1;
  const longer = search.map((domain) => `${name}.${domain}`);
  return dots >= ndots ? [name, ...longer] : [...longer, name];
}

function isServer(text: string): boolean {
  const address = /^\[(.+)\]:\d{1,5}$/.exec(text)?.[1] ?? /^([\d.]+):\d{1,5}$/.exec(text)?.[1] ?? text;
  return isIP(address) !== 0;
}

function option(words: readonly string[], name: string, before: number, most: number): number {
  const values = words.filter((word) => word.startsWith(`${name}:`)).map((word) => word.slice(name.length + 1));
  const value = values.findLast((text) => /^\d{1,6}$/.test(text));
  return value === undefined ? before : Math.min(Number(value), most);
}
