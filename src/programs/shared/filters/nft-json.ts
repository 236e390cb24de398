import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { RulesetReader } from "#kernel/nft";
import {
  type Action,
  type FilteredPacket,
  type FilterRule,
  type Hook,
  type Match,
  nameMatches,
  type PacketFilter,
  type Passage,
  portMatches,
} from "./model.ts";

type Json = Readonly<Record<string, unknown>>;

const FAMILIES: Readonly<Record<string, readonly IpFamily[]>> = { ip: [4], ip6: [6], inet: [4, 6] };
/** Statements that let the packet go on to the next one. */
const NEUTRAL: ReadonlySet<string> = new Set([
  "counter",
  "log",
  "limit",
  "comment",
  "meter",
  "mangle",
  "notrack",
  "ct helper",
]);
/** States of connections beside that of a first packet. */
const FIRST = "new";

/**
 * The base chains at a hook by the JSON of a ruleset (libnftables-json(5)); of the families ip, ip6 and inet. What is not understood
 * cannot be judged, and is no fault. Pure; any value may be given.
 */
export function nftFilters(ruleset: unknown, at: Hook): readonly PacketFilter[] {
  const objects = asArray(asObject(ruleset)["nftables"]).map(asObject);
  const chains = objects.flatMap(({ chain }) => (chain === undefined ? [] : [asObject(chain)]));
  const rules = Map.groupBy(
    objects.flatMap(({ rule }) => (rule === undefined ? [] : [asObject(rule)])),
    ({ family, table, chain }) => `${family} ${table} ${chain}`,
  );
  return chains
    .filter(({ hook, family }) => hook === at && Object.hasOwn(FAMILIES, String(family)))
    .map(({ family, table, name, policy }): PacketFilter => {
      const own = chains.filter((one) => one["family"] === family && one["table"] === table);
      const chain = `${family} ${table} ${name}`;
      return {
        name: `nftables table ${family} ${table}, chain ${name}`,
        families: FAMILIES[String(family)] ?? [],
        policy: policy === "drop" ? "drop" : "accept",
        base: String(name),
        chains: new Map(
          own.map((one) => [
            String(one["name"]),
            (rules.get(`${family} ${table} ${one["name"]}`) ?? []).map((rule) => ruleOf(rule)),
          ]),
        ),
        allow: (passage) => `nft insert rule ${chain} ${conditionOf(passage)} accept`,
      };
    });
}

function conditionOf(passage: Passage): string {
  if ("port" in passage) return `tcp dport ${passage.port}`;
  const { direction, prefix, family } = passage;
  return `${family === 4 ? "ip" : "ip6"} ${direction === "from" ? "saddr" : "daddr"} ${prefix}`;
}

/** The most chains that are read, and the names that nft(8) can list. */
const MAX_CHAINS = 2000;
const NAME = /^[A-Za-z_][A-Za-z0-9_./-]*$/;

/**
 * The chains at a hook, and those to which their rules may jump, with their rules, as one ruleset. Others are not read: they can be large, and say nothing
 * of these packets. Throws errors of the reader.
 */
export function readChains(reader: Pick<RulesetReader, "chains" | "chain">, at: Hook): unknown {
  const all = asArray(asObject(reader.chains())["nftables"]).map((one) => asObject(asObject(one)["chain"]));
  const found: unknown[] = [];
  const seen = new Set<string>();
  const queue = all.filter(({ hook, family }) => hook === at && Object.hasOwn(FAMILIES, String(family)));
  for (const { family, table, name } of queue) {
    const key = `${family} ${table} ${name}`;
    if (seen.has(key) || seen.size >= MAX_CHAINS || ![table, name].every((one) => NAME.test(String(one)))) continue;
    seen.add(key);
    const objects = asArray(
      asObject(reader.chain({ family: family as "ip" | "ip6" | "inet", name: String(table) }, String(name)))[
        "nftables"
      ],
    );
    found.push(...objects);
    for (const target of objects.flatMap((one) => targetsOf(asObject(asObject(one)["rule"]))))
      queue.push({ family, table, name: target });
  }
  return { nftables: found };
}

/** The chains that a rule may jump to, also by a map of verdicts. */
function targetsOf({ expr }: Json): readonly string[] {
  return asArray(expr)
    .map(asObject)
    .flatMap((statement) => {
      const data = asArray(asObject(asObject(asObject(statement["vmap"])["data"]))["set"]);
      const verdicts = [statement, ...data.map((pair) => asObject(asArray(pair)[1]))];
      return verdicts.flatMap((one) => [one["jump"], one["goto"]]).flatMap((one) => asObject(one)["target"] ?? []);
    })
    .map(String);
}

function ruleOf({ expr, handle, chain }: Json): FilterRule {
  const matches: Match[] = [];
  const text = `the rule with handle ${handle} of chain ${chain}`;
  for (const statement of asArray(expr).map(asObject)) {
    const [kind = "", value] = Object.entries(statement)[0] ?? [];
    const action = actionOf(kind, value);
    if (action !== undefined) return { matches, action, text };
    if (kind === "match") matches.push(matchOf(asObject(value)));
    // What is not known may keep the packet from the rest of the rule.
    else if (!NEUTRAL.has(kind) && !isComment(kind, value)) matches.push(() => undefined);
    // A map of verdicts may accept.
    if (kind === "vmap") return { matches, action: { kind: "accept" }, text };
  }
  return { matches, action: { kind: "continue" }, text };
}

/** The comment of a rule of iptables. */
function isComment(kind: string, value: unknown): boolean {
  return kind === "xt" && asObject(value)["name"] === "comment";
}

function actionOf(kind: string, value: unknown): Action | undefined {
  switch (kind) {
    case "accept":
    case "drop":
    case "return":
      return { kind };
    case "reject":
      return { kind: "drop" };
    case "jump":
    case "goto":
      return { kind, chain: String(asObject(value)["target"]) };
    default:
      return undefined;
  }
}

function matchOf({ op, left, right }: Json): Match {
  const isNot = op === "!=";
  const find = finderOf(asObject(left), right);
  return (packet) => {
    if (op !== "==" && op !== "!=" && op !== "in") return undefined;
    const is = find(packet);
    return is === undefined ? undefined : is !== isNot;
  };
}

/** Returns true if the value of a packet is among those on the right; a set by name is not read. */
function finderOf(left: Json, right: unknown): Match {
  const values = valuesOf(right);
  const [meta, ct, payload] = [left["meta"], left["ct"], left["payload"]].map(asObject);
  const key = String(meta?.["key"] ?? "");
  if (key === "iifname" || key === "iif")
    return among(values, ({ iif }, value) => nameMatches(iif, String(value), "*"));
  if (key === "oifname" || key === "oif")
    return among(values, ({ oif }, value) => nameMatches(oif, String(value), "*"));
  if (key === "l4proto") return among(values, (_packet, value) => value === "tcp" || value === 6);
  if (key === "nfproto") return among(values, ({ family }, value) => value === (family === 4 ? "ipv4" : "ipv6"));
  if (ct?.["key"] === "state") return among(values, (_packet, value) => value === FIRST);
  // A packet from or to a pod's own address is not translated.
  if (ct?.["key"] === "status")
    return among(values, (_packet, value) => (value === "dnat" || value === "snat" ? false : undefined));
  const { protocol, field } = payload ?? {};
  if ((protocol === "tcp" || protocol === "th") && field === "dport")
    return among(values, ({ port }, value) => portIs(value, port));
  const family = protocol === "ip" ? 4 : protocol === "ip6" ? 6 : undefined;
  if (family === undefined) {
    // Of another protocol: its fields are those of no TCP packet.
    const isOther = typeof protocol === "string" && !["tcp", "th", "ether"].includes(protocol);
    return () => (isOther ? false : undefined);
  }
  if (field !== "saddr" && field !== "daddr") return (packet) => (packet.family === family ? undefined : false);
  const find = among(values, (packet, value) => {
    const address = field === "saddr" ? packet.source : packet.destination;
    return address === undefined ? undefined : holds(value, address);
  });
  return (packet) => (packet.family === family ? find(packet) : false);
}

type Values = readonly unknown[] | undefined;

function valuesOf(right: unknown): Values {
  if (typeof right === "string" && right.startsWith("@")) return undefined;
  const { set } = asObject(right);
  if (Array.isArray(set)) return set;
  return Array.isArray(right) ? right : [right];
}

function among(values: Values, holdsOne: (packet: FilteredPacket, value: unknown) => boolean | undefined): Match {
  return (packet) => {
    const answers = values?.map((value) => holdsOne(packet, value)) ?? [undefined];
    if (answers.includes(true)) return true;
    return answers.includes(undefined) ? undefined : false;
  };
}

/** Returns true if a port is one of a value: a number or a range. */
function portIs(value: unknown, port: number | undefined): boolean | undefined {
  if (typeof value === "number") return portMatches(port, value, value);
  const [from, to] = asArray(asObject(value)["range"]).map(Number);
  return from === undefined || to === undefined ? undefined : portMatches(port, from, to);
}

/** Returns true if an address is one of a value: an address, a prefix or a range. */
function holds(value: unknown, address: IpAddress): boolean | undefined {
  if (typeof value === "string") return IpAddress.tryParse(value)?.equals(address);
  const { prefix, range } = asObject(value);
  if (prefix !== undefined) {
    const { addr, len } = asObject(prefix);
    return Cidr.tryParse(`${addr}/${len}`)?.contains(address);
  }
  const [from, to] = asArray(range).map((one) => IpAddress.tryParse(String(one)));
  if (from === undefined || to === undefined || from.family !== address.family || to.family !== address.family)
    return undefined;
  return from.compare(address) <= 0 && address.compare(to) <= 0;
}

function asObject(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function asArray(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
