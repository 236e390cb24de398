import type { AbortOptions } from "#base/async";
import { IpAddress, type IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { NftSetSpec } from "#kernel/nft";
import type { ElementTable, NftElements, RawElement } from "#kernel/nft-elements";
import { addressElement } from "./elements.ts";
import type { GuardChain, GuardElement, GuardRule, GuardSet } from "./plan.ts";

/** The source ports of a router, as input of {@link planPorts}. */
export interface SourcePorts {
  /** The interface to the outside. */
  readonly ifname: string;
  /** The share of each client, 0 to `count - 1`, by its addresses. */
  readonly shares: ReadonlyMap<string, number>;
  /** Default: {@link SOURCE_PORTS}. */
  readonly range?: PortRange | undefined;
}

/** Both ends are in it. */
export interface PortRange {
  readonly from: number;
  readonly to: number;
  /** The number of shares of the half that is divided. */
  readonly count: number;
}

/** A destination to which the common ports of a router have run out. */
export interface CrowdedDestination {
  readonly protocol: string;
  readonly address: IpAddress;
  readonly port: number;
}

/** The ports that the kernel chooses for flows whose source port is not below 1024; 64 shares of 504 ports. */
export const SOURCE_PORTS: PortRange = { from: 1024, to: 65_535, count: 64 };

/** The numbers of source ports that a router has for one protocol to one address and port outside: in all, in common, and of one share. */
export const SOURCE_PORT_COUNTS = countsOf(SOURCE_PORTS);

const FAMILIES: readonly IpFamily[] = [4, 6];
const IP = { 4: "ip", 6: "ip6" } as const;
const ADDRESS = { 4: "ipv4_addr", 6: "ipv6_addr" } as const;
const ADDRESS_BYTES = { 4: 4, 6: 16 } as const;
/** Bytes of a part of a key that is shorter. */
const WORD = 4;
const PROTOCOLS = { 6: "tcp", 17: "udp" } as const;
const PORTED = "meta l4proto { tcp, udp }";
/**
 * A segment from the middle of a connection, as of one that another router had. The kernel forgets such a flow with the reset that answers it, so the next segment looks like
 * a first packet that comes again.
 */
const MIDDLE = "tcp flags & (fin | syn | rst | ack) != syn";
/** Before the rules that masquerade everything else. */
const PRIORITY = "srcnat - 10";
/** New flows of one client that are looked for a second time. Of more a part is: one that fails is enough. */
const TRIES_LIMIT = "limit rate 200/second burst 200 packets";
/** The time for which a destination is crowded since the last flow that found no common port, seconds. */
const CROWDED_SECONDS = 30;
/** The time for which a client is refused at a destination since the last flow that found no port of its share, seconds. */
const SPENT_SECONDS = 5;
/**
 * A first packet that comes again within this time has not become a flow, seconds. TCP sends the second and the third one 1 s and 3 s after the first, resolvers ask again after 5 s; the
 * kernel keeps a flow of UDP without an answer for 30 s.
 */
const TRIES_SECONDS = 8;
const byRules = (key: string, timeoutSeconds: number, size: number): NftSetSpec => {
  return { key, flags: ["dynamic", "timeout"], timeoutSeconds, size };
};

/** Pure: the ports that all clients have in common: the upper half, in which the ports are that systems choose first. */
export function commonPorts({ from, to }: PortRange): Pick<PortRange, "from" | "to"> {
  return { from: to + 1 - Math.floor((to + 1 - from) / 2), to };
}

/** Pure: the ports of one share of the lower half. */
export function sharePorts(range: PortRange, share: number): Pick<PortRange, "from" | "to"> {
  const size = Math.floor((commonPorts(range).from - range.from) / range.count);
  const from = range.from + share * size;
  return { from, to: from + size - 1 };
}

function countsOf(range: PortRange): { readonly all: number; readonly common: number; readonly share: number } {
  const size = ({ from, to }: Pick<PortRange, "from" | "to">): number => to + 1 - from;
  return { all: size(range), common: size(commonPorts(range)), share: size(sharePorts(range, 0)) };
}

/** A client, as {@link planShares} needs it. */
interface ShareClient {
  readonly metadata: { readonly namespace?: string; readonly name: string };
  readonly addresses: readonly IpAddress[];
}

/**
 * Pure: the share of each client, by its addresses. A namespace has up to a sixteenth of the shares, and none that another one has; within it the clients take turns. A client stays in the
 * share that it has by `before`, so that whoever comes gives nobody a share that others have filled. With more namespaces than a quarter of the shares each has fewer, and with more than
 * shares some have one in common.
 */
export function planShares(
  clients: Iterable<ShareClient>,
  { count }: Pick<PortRange, "count"> = SOURCE_PORTS,
  before: ReadonlyMap<string, number> = new Map(),
): Map<string, number> {
  const spaces = [...Map.groupBy(clients, ({ metadata }) => metadata.namespace ?? "")].toSorted(([a], [b]) =>
    a < b ? -1 : 1,
  );
  const most = Math.max(1, Math.floor(count / Math.max(spaces.length, Math.ceil(count / 4))));
  /** The clients of each share, by namespace. */
  const used = new Map<number, Map<string, number>>();
  const shares = new Map<string, number>();
  const give = (namespace: string, { addresses }: ShareClient, share: number): void => {
    const of = used.get(share) ?? new Map<string, number>();
    used.set(share, of.set(namespace, (of.get(namespace) ?? 0) + 1));
    for (const address of addresses) shares.set(String(address), share);
  };
  const ownOf = (namespace: string): number[] =>
    [...used.keys()].filter((one) => used.get(one)?.has(namespace)).sort(byNumber);
  const left: [namespace: string, client: ShareClient][] = [];
  for (const [namespace, pods] of spaces)
    for (const pod of pods.toSorted((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))) {
      const had = pod.addresses.flatMap((address) => before.get(String(address)) ?? []).find((one) => one < count);
      const own = ownOf(namespace);
      const isOthers = had !== undefined && used.has(had) && !own.includes(had);
      if (had === undefined || isOthers || (own.length >= most && !own.includes(had))) left.push([namespace, pod]);
      else give(namespace, pod, had);
    }
  const holders = new Set(spaces.flatMap(([namespace]) => (ownOf(namespace).length > 0 ? [namespace] : [])));
  const firsts = new Set(
    left.filter(([namespace]) => {
      const isFirst = !holders.has(namespace);
      holders.add(namespace);
      return isFirst;
    }),
  );
  // Each namespace has one before any has another one.
  for (const [namespace, pod] of [...firsts, ...left.filter((one) => !firsts.has(one))]) {
    const own = ownOf(namespace);
    const free = own.length < most ? range(count).find((one) => !used.has(one)) : undefined;
    give(namespace, pod, free ?? leastUsed(own.length > 0 ? own : range(count), used));
  }
  return shares;
}

const byNumber = (a: number, b: number): number => a - b;
const range = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

/** The share with the fewest namespaces, and of these the one with the fewest clients. */
function leastUsed(among: readonly number[], used: ReadonlyMap<number, ReadonlyMap<string, number>>): number {
  const loadOf = (share: number): [spaces: number, clients: number] => {
    const of = used.get(share);
    return [of?.size ?? 0, [...(of?.values() ?? [])].reduce((sum, one) => sum + one, 0)];
  };
  const [best = 0] = among.toSorted((a, b) => {
    const [[spacesA, clientsA], [spacesB, clientsB]] = [loadOf(a), loadOf(b)];
    return spacesA - spacesB || clientsA - clientsB || a - b;
  });
  return best;
}

/** The shares that the kernel has from before, by the clients' addresses; none without the table. Throws `KernelError`. */
export function sharesInKernel(
  elements: Pick<NftElements, "list" | "names">,
  table: ElementTable,
): Map<string, number> {
  const sets = new Set(elements.names(table)?.sets);
  const found = FAMILIES.filter((family) => sets.has(`shares${family}`)).flatMap((family) =>
    elements.list(table, `shares${family}`).flatMap(({ key, value }): [string, number][] => {
      const share =
        typeof value === "object" && value.kind === "goto" ? /^share-(\d{1,4})$/.exec(value.chain)?.[1] : undefined;
      return share === undefined
        ? []
        : [[String(IpAddress.fromBytes(Buffer.from(key, "latin1").subarray(0, family === 4 ? 4 : 16))), Number(share)]];
    }),
  );
  return new Map(found);
}

/** Pure: the sets of the source ports. The kernel fills all but the map of the shares. */
export function portSets({ shares }: SourcePorts): GuardSet[] {
  return FAMILIES.flatMap((family) => {
    const address = ADDRESS[family];
    const to = `inet_proto . ${address} . inet_service`;
    const flow = `inet_proto . ${address} . inet_service . ${address} . inet_service`;
    return [
      { name: `shares${family}`, spec: { key: address, value: "verdict" }, elements: shareElements(family, shares) },
      { name: `rates${family}`, spec: byRules(address, 10, 65_535), elements: "by-rules" },
      { name: `tries${family}`, spec: byRules(flow, TRIES_SECONDS, 131_072), elements: "by-rules" },
      { name: `share-tries${family}`, spec: byRules(flow, TRIES_SECONDS, 131_072), elements: "by-rules" },
      { name: crowdedSet(family), spec: byRules(to, CROWDED_SECONDS, 1024), elements: "by-rules" },
      { name: spentSet(family), spec: byRules(`${address} . ${to}`, SPENT_SECONDS, 65_535), elements: "by-rules" },
    ] satisfies GuardSet[];
  });
}

/** The set of destinations to which the common ports have run out. */
const crowdedSet = (family: IpFamily): string => `crowded${family}`;

/** The set of clients whose share of the ports to a destination has run out. */
const spentSet = (family: IpFamily): string => `spent${family}`;

const shareChain = (share: number): string => `share-${share}`;

function shareElements(family: IpFamily, shares: ReadonlyMap<string, number>): GuardElement[] {
  return [...shares].flatMap(([text, share]) => {
    const address = IpAddress.parse(text);
    if (address.family !== family) return [];
    const chain = shareChain(share);
    const value = { text: [`goto ${chain}`], raw: { kind: "goto", chain } } as const;
    return [{ ...addressElement(address), value }];
  });
}

/**
 * Pure: the chains that choose the source port of a flow. The kernel asks them once for each flow; a first packet that comes again has found no free port before, or it would have
 * become a flow. So the kernel itself tells when the common ports to a destination have run out, without a count. Of TCP only the packets that open a connection tell it.
 */
export function portChains({ ifname, range = SOURCE_PORTS }: SourcePorts): GuardChain[] {
  const of = (family: IpFamily): { readonly [part in "flow" | "back" | "to" | "spent" | "source"]: string } => {
    const [source, target] = [`${IP[family]} saddr`, `${IP[family]} daddr`];
    const to = `meta l4proto . ${target} . th dport`;
    return {
      flow: `meta l4proto . ${source} . th sport . ${target} . th dport`,
      // The same flow, by a packet to the client.
      back: `meta l4proto . ${target} . th dport . ${source} . th sport`,
      to,
      spent: `${source} . ${to}`,
      source,
    };
  };
  const common = commonPorts(range);
  return [
    {
      name: "source-ports",
      base: { type: "nat", hook: "postrouting", priority: PRIORITY, policy: "accept" },
      rules: FAMILIES.map((family) => ({
        rule: `oifname "${ifname}" ${PORTED} th sport 1024-65535 ${of(family).source} @clients${family} goto ports${family}`,
      })),
    },
    ...(["ended", "answered"] as const).map(
      (name): GuardChain => ({
        name,
        rules: FAMILIES.flatMap((family) => {
          const { flow, back } = of(family);
          const key = name === "ended" ? flow : back;
          return [`tries${family}`, `share-tries${family}`].map((set) => ({ rule: `delete @${set} { ${key} }` }));
        }),
      }),
    ),
    ...FAMILIES.flatMap((family): GuardChain[] => {
      const { flow, to, spent, source } = of(family);
      return [
        {
          name: `ports${family}`,
          rules: [
            { rule: `${MIDDLE} goto middle${family}` },
            { rule: `${flow} @tries${family} goto again${family}` },
            { rule: `${to} @${crowdedSet(family)} goto share${family}` },
            { rule: `update @rates${family} { ${source} ${TRIES_LIMIT} } add @tries${family} { ${flow} }` },
            { rule: `${PORTED} counter masquerade to :${common.from}-${common.to}`, reason: masqueraded(family) },
          ],
        },
        {
          name: `again${family}`,
          rules: [
            { rule: `update @${crowdedSet(family)} { ${to} } goto share${family}` },
            // Where the set of crowded destinations is full, a flow that found no common port still comes to its share.
            { rule: `goto share${family}` },
          ],
        },
        {
          name: `middle${family}`,
          rules: [
            {
              rule: `${to} @${crowdedSet(family)} counter ${source} vmap @shares${family}`,
              reason: masqueraded(family),
            },
            { rule: `${PORTED} counter masquerade to :${common.from}-${common.to}`, reason: masqueraded(family) },
          ],
        },
        {
          name: `share${family}`,
          rules: [
            { rule: `${flow} @share-tries${family} update @${spentSet(family)} { ${spent} }` },
            { rule: `update @rates${family} { ${source} ${TRIES_LIMIT} } add @share-tries${family} { ${flow} }` },
            { rule: `counter ${source} vmap @shares${family}`, reason: masqueraded(family) },
          ],
        },
      ];
    }),
    ...Array.from({ length: range.count }, (_, share): GuardChain => {
      const { from, to } = sharePorts(range, share);
      const rules = ["tcp", "udp"].map((name) => ({ rule: `meta l4proto ${name} masquerade to :${from}-${to}` }));
      return { name: shareChain(share), rules };
    }),
  ];
}

/** The label under which packets of flows that got a source port are counted. */
export const masqueraded = (family: IpFamily): string => `masqueraded${family}`;

/**
 * Pure: the chain that ends the look for flows. A flow that is answered, or that its client gives up, had its port: what has its addresses and ports later is another flow, also within the
 * time in which a first packet may come again. The kernel forgets flows that are reset before they are answered; it does so ahead of this chain, and drops packets without hops left
 * only behind it. `links`: those from which packets of clients come.
 */
export function settleChain(ifname: string, links: readonly string[]): GuardChain {
  return {
    name: "settle-ports",
    base: { type: "filter", hook: "prerouting", priority: "dstnat + 1", policy: "accept" },
    rules: [
      ...links.map((link) => ({ rule: `iifname "${link}" tcp flags & rst != 0x0 jump ended` })),
      { rule: `iifname "${ifname}" tcp flags & (syn | rst) != 0x0 jump answered` },
    ],
  };
}

/**
 * Pure: the rule that refuses new flows of a client whose share of ports to their destination has run out. The answer is an error of ICMP: one of TCP would have the destination's
 * address as its source, which no pod may send.
 */
export function refuseSpent(family: IpFamily): GuardRule {
  const key = `${IP[family]} saddr . meta l4proto . ${IP[family]} daddr . th dport`;
  return {
    rule: `ct status ! confirmed ${PORTED} th sport 1024-65535 ${key} @${spentSet(family)} counter reject with icmpx admin-prohibited`,
    reason: "ports",
  };
}

/** The destinations to which the common ports of a router have run out lately; none if the table has no such sets. Throws `KernelError`. */
export function listCrowded(
  elements: Pick<NftElements, "list" | "names">,
  table: ElementTable,
): readonly CrowdedDestination[] {
  const sets = new Set(elements.names(table)?.sets);
  return FAMILIES.filter((family) => sets.has(crowdedSet(family))).flatMap((family) =>
    elements.list(table, crowdedSet(family)).map((one) => crowdedOf(family, one)),
  );
}

/** Pure: a destination in words: `tcp 203.0.113.9:443`. */
export function crowdedText({ protocol, address, port }: CrowdedDestination): string {
  return `${protocol} ${address.family === 6 ? `[${address}]` : address}:${port}`;
}

/** A client whose new flows to a destination a router refuses: no common source port is free, and none of the client's share. */
export interface RefusedClient extends CrowdedDestination {
  readonly client: IpAddress;
}

/**
 * The clients that a router refuses, at most `limit`: those of the last 5 s. None if the table has no such sets. The namespace may be somebody else's, who has named a table and
 * sets of his like ours: no more than `limit` elements are read, and keys of another length are left out. Rejects with `KernelError`, and when the signal aborts.
 */
export async function listRefused(
  elements: Pick<NftElements, "listInSlices">,
  table: ElementTable,
  { limit, ...options }: AbortOptions & { readonly limit: number },
): Promise<readonly RefusedClient[]> {
  const found: RefusedClient[] = [];
  for (const family of FAMILIES) {
    const listed = await unlessAbsent(() => elements.listInSlices(table, spentSet(family), { ...options, limit }));
    found.push(...listed.flatMap((one) => refusedOf(family, one)));
  }
  return found.slice(0, limit);
}

async function unlessAbsent(list: () => Promise<RawElement[]>): Promise<RawElement[]> {
  try {
    return await list();
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    return [];
  }
}

/** Pure: none for a key of another length. */
function refusedOf(family: IpFamily, { key }: RawElement): RefusedClient[] {
  const bytes = Buffer.from(key, "latin1");
  const length = ADDRESS_BYTES[family];
  if (bytes.length !== length + WORD + length + WORD) return [];
  return [{ client: IpAddress.fromBytes(bytes.subarray(0, length)), ...destinationOf(family, bytes.subarray(length)) }];
}

/** Pure: a destination of the set, as the kernel lists it. */
function crowdedOf(family: IpFamily, { key }: RawElement): CrowdedDestination {
  return destinationOf(family, Buffer.from(key, "latin1"));
}

/** Pure: each part of a key takes whole words of 4 bytes. */
function destinationOf(family: IpFamily, bytes: Buffer): CrowdedDestination {
  const length = ADDRESS_BYTES[family];
  const protocol = bytes[0] ?? 0;
  return {
    protocol: protocol === 6 || protocol === 17 ? PROTOCOLS[protocol] : String(protocol),
    address: IpAddress.fromBytes(bytes.subarray(WORD, WORD + length)),
    port: bytes.readUInt16BE(WORD + length),
  };
}
