import { Cidr, type IpFamily } from "#base/ip";
import { type FilterRule, type Hook, type Match, nameMatches, type PacketFilter, portMatches } from "./model.ts";

/** Names of TCP for `-p`. */
const TCP: ReadonlySet<string> = new Set(["tcp", "6", "all", "0"]);
const ENDS: Readonly<Record<string, "accept" | "drop" | "return">> = {
  ACCEPT: "accept",
  DROP: "drop",
  REJECT: "drop",
  RETURN: "return",
};
/** Options that say nothing of a packet, with the number of words after them. */
const NEUTRAL: Readonly<Record<string, number>> = { "-m": 1, "--comment": 1 };

/** The chain FORWARD or INPUT of iptables, by the text of `iptables -S`; `undefined` if the text has none. `variant` as `nf_tables`. Pure. */
export function iptablesFilter(
  text: string,
  { family, variant, hook }: { readonly family: IpFamily; readonly variant: string; readonly hook: Hook },
): PacketFilter | undefined {
  const base = hook === "forward" ? "FORWARD" : "INPUT";
  const command = family === 4 ? "iptables" : "ip6tables";
  const texts = text.split("\n");
  const lines = texts.map((line) => wordsOf(line));
  const names = new Set(lines.flatMap(([op, name = ""]) => (op === "-N" || op === "-P" ? name : [])));
  const chains = new Map<string, FilterRule[]>();
  for (const [at, [op, name = "", ...rest]] of lines.entries()) {
    if (op !== "-A") continue;
    const rules = chains.get(name) ?? [];
    rules.push(ruleOf(rest, names, `the rule ${texts[at] ?? ""}`));
    chains.set(name, rules);
  }
  const policy = lines.find(([op, name]) => op === "-P" && name === base)?.[2];
  if (policy === undefined) return undefined;
  return {
    name: `${command} (${variant}), chain ${base}`,
    families: [family],
    policy: policy === "DROP" ? "drop" : "accept",
    base,
    chains,
    // Before a last rule that drops everything.
    allow: (passage) => {
      const what =
        "port" in passage
          ? `-p tcp --dport ${passage.port}`
          : `${passage.direction === "from" ? "-s" : "-d"} ${passage.prefix}`;
      return `${command} -I ${base} ${what} -j ACCEPT`;
    },
  };
}

/** The words of a line; quotes hold a word together. */
function wordsOf(line: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let isQuoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const char = line[at] ?? "";
    if (char === "\\" && isQuoted) {
      at += 1;
      word = (word ?? "") + (line[at] ?? "");
    } else if (char === '"') {
      isQuoted = !isQuoted;
      word ??= "";
    } else if (char === " " && !isQuoted) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? "") + char;
  }
  if (word !== undefined) words.push(word);
  return words;
}

function ruleOf(words: readonly string[], chains: ReadonlySet<string>, text: string): FilterRule {
  const matches: Match[] = [];
  let isNot = false;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? "";
    const value = words[at + 1] ?? "";
    if (word === "-j" || word === "-g") {
      const kind = ENDS[value];
      if (kind !== undefined) return { matches, action: { kind }, text };
      if (!chains.has(value)) return { matches, action: { kind: "continue" }, text };
      return { matches, action: { kind: word === "-j" ? "jump" : "goto", chain: value }, text };
    }
    const skipped = Object.hasOwn(NEUTRAL, word) ? NEUTRAL[word] : undefined;
    if (word === "!") isNot = true;
    else if (skipped !== undefined) at += skipped;
    else if (word.startsWith("-")) {
      matches.push(isNot ? negated(matchOf(word, value)) : matchOf(word, value));
      isNot = false;
    }
  }
  return { matches, action: { kind: "continue" }, text };
}

/** The condition of one option. A value of an unknown option is passed over as a word without a dash. */
function matchOf(option: string, value: string): Match {
  const cidr = option === "-s" || option === "-d" ? Cidr.tryParse(value) : undefined;
  switch (option) {
    case "-s":
      return ({ source }) => (cidr === undefined ? undefined : cidr.contains(source));
    case "-d":
      return ({ destination }) => (cidr === undefined ? undefined : destination && cidr.contains(destination));
    case "-i":
      return ({ iif }) => nameMatches(iif, value, "+");
    case "-o":
      return ({ oif }) => nameMatches(oif, value, "+");
    case "-p":
      return () => TCP.has(value);
    case "--dport":
    case "--dports":
      return ({ port }) => portsMatch(value, port);
    case "--ctstate":
    case "--state":
      return () => value.split(",").includes("NEW");
    default:
      return () => undefined;
  }
}

/** `22`, `80:90` or `22,80:90`; the name of a service cannot be judged. */
function portsMatch(value: string, port: number | undefined): boolean | undefined {
  const answers = value.split(",").map((part) => {
    const [from = "", to = from] = part.split(":");
    return portMatches(port, decimal(from), decimal(to));
  });
  if (answers.includes(true)) return true;
  return answers.includes(undefined) ? undefined : false;
}

function decimal(text: string): number {
  return /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
}

function negated(match: Match): Match {
  return (packet) => {
    const is = match(packet);
    return is === undefined ? undefined : !is;
  };
}
