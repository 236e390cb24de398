import { basename } from "node:path";

/** An endpoint of a program: a port, and where its command line can have another one. */
interface EndpointTraits {
  readonly port: number;
  /** The flag with the port: an address such as `:9385`, or the port alone. */
  readonly flag: string;
  /** The flag with the host part, where the port has a flag of its own. */
  readonly hostFlag?: string;
  /** The host part without a flag. Default: all addresses. */
  readonly host?: string;
}

/** A program whose endpoints can be asked. */
export interface ProgramTraits {
  /** `/readyz?verbose`. */
  readonly health: EndpointTraits;
  /** `/metrics`. */
  readonly metrics: EndpointTraits;
}

const ports = (metrics: number): ProgramTraits => ({
  metrics: { port: metrics, flag: "metrics-addr" },
  health: { port: metrics + 1, flag: "health-addr" },
});
const one = (endpoint: EndpointTraits): ProgramTraits => ({ health: endpoint, metrics: endpoint });

/** The programs of the suite that serve endpoints, with their defaults (docs/reference). */
export const SUITE_PROGRAMS: Readonly<Record<string, ProgramTraits>> = {
  coild: ports(9384),
  "coil-router": ports(9388),
  "coil-egress": ports(8080),
  "coil-ipam-controller": ports(9386),
  "coil-egress-controller": ports(9396),
  "coil-controller": ports(9386),
  "service-proxy": {
    health: { port: 10_256, flag: "healthz-bind-address" },
    metrics: { port: 10_249, flag: "metrics-bind-address", host: "127.0.0.1" },
  },
  "proxy-agent": one({ port: 8093, flag: "health-server-port", hostFlag: "health-server-host" }),
  "proxy-server": one({ port: 8092, flag: "health-port", hostFlag: "health-bind-address" }),
  "sni-router": ports(9398),
  "nic-controller": ports(9406),
  "nic-agent": ports(9394),
  node: ports(9390),
  "uplink-proxy": one({ port: 5443, flag: "listen", host: "127.0.0.1" }),
};

/** The values of the label `app.kubernetes.io/name` that pods of the suite have. */
export const POD_NAMES: readonly string[] = ["coil", "isthmus", ...Object.keys(SUITE_PROGRAMS)];

/** The host and port of an endpoint; the host is empty where the program listens on all addresses. */
export interface EndpointPlace {
  readonly host: string;
  readonly port: number;
}

/** A command line that runs a program of the suite. */
export interface SuiteCommand {
  readonly program: string;
  readonly flags: readonly string[];
}

/** The file that runs any program: the launcher, the bundle, or its source. */
export const BUNDLE = /^isthmus(\.mjs|\.ts)?$/;
/** The program comes after Node, a few options of it, and the bundle. */
const MAX_WORDS = 12;

/**
 * The program that a command line runs: by its own name, by `isthmus NAME`, or by Node with the bundle. `undefined` for any other command. Pure.
 */
export function suiteCommand(words: readonly string[]): SuiteCommand | undefined {
  let isOurs = false;
  for (const [at, word] of words.slice(0, MAX_WORDS).entries()) {
    // An option of Node, which runs the bundle.
    if (word.startsWith("-")) continue;
    const name = basename(word);
    // The first `node` is Node itself; after `isthmus` it is our program.
    if (Object.hasOwn(SUITE_PROGRAMS, name) && (isOurs || name !== "node"))
      return { program: name, flags: words.slice(at + 1) };
    if (BUNDLE.test(name)) isOurs = true;
    else if (name !== "node") return undefined;
  }
  return undefined;
}

/**
 * The programs that a command line runs: one, or `node` and its parts, each with its flags (`isthmus node PROGRAM [FLAGS] -- PROGRAM [FLAGS]`). Empty for any
 * other command. Pure.
 */
export function suiteCommands(words: readonly string[]): readonly SuiteCommand[] {
  const first = suiteCommand(words);
  if (first?.program !== "node") return first === undefined ? [] : [first];
  const start = first.flags.findIndex((word) => Object.hasOwn(SUITE_PROGRAMS, word));
  if (start < 0) return [first];
  const parts: { readonly program: string; readonly flags: string[] }[] = [];
  let isName = true;
  for (const word of first.flags.slice(start)) {
    if (isName) parts.push({ program: word, flags: [] });
    else if (word !== "--") parts.at(-1)?.flags.push(word);
    isName = word === "--";
  }
  return [{ program: "node", flags: first.flags.slice(0, start) }, ...parts];
}

/** The value of a flag on a command line: the last of `--name=value`, `-name value`. Pure. */
export function flagOf(flags: readonly string[], name: string): string | undefined {
  let found: string | undefined;
  for (const [at, word] of flags.entries()) {
    const [, flag, value] = /^--?([^=]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (flag === name) found = value ?? flags[at + 1];
  }
  return found;
}

/** Returns the addresses at which a program serves `/readyz` and `/metrics`, by its command line; `undefined` for one that it does not serve. Pure. */
export function endpointsOf({ program, flags }: SuiteCommand): {
  readonly health: EndpointPlace | undefined;
  readonly metrics: EndpointPlace | undefined;
} {
  const traits = SUITE_PROGRAMS[program];
  if (traits === undefined) return { health: undefined, metrics: undefined };
  return { health: placeOf(traits.health, flags), metrics: placeOf(traits.metrics, flags) };
}

function placeOf(traits: EndpointTraits, flags: readonly string[]): EndpointPlace | undefined {
  const given = flagOf(flags, traits.flag);
  const ownHost = traits.hostFlag === undefined ? undefined : flagOf(flags, traits.hostFlag);
  if (given === undefined) return { host: ownHost ?? traits.host ?? "", port: traits.port };
  const [, host = "", port] = /^(?:\[?([^\]]*)\]?:)?(\d{1,5})$/.exec(given) ?? [];
  if (port === undefined || Number(port) === 0) return undefined;
  return { host: ownHost ?? host, port: Number(port) };
}
