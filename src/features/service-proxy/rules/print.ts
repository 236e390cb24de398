import { assertNever } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { SETS } from "./sets.ts";
import type { Action, KeyPart, Match, Rule, RuleOptions } from "./types.ts";

const PROTOCOL_WORDS = { TCP: "tcp", UDP: "udp", SCTP: "sctp" } as const;

/** A rule in nft(8) syntax. */
export function printRule({ matches, actions }: Rule, { family, mark }: Pick<RuleOptions, "family" | "mark">): string {
  const words = [
    ...matches.map((match) => printMatch(match, { family, mark })),
    ...actions.map((action) => printAction(action, { family, mark })),
  ];
  return words.join(" ");
}

interface Context {
  readonly family: IpFamily;
  readonly mark: number;
}

function printMatch(match: Match, context: Context): string {
  const { mark } = context;
  switch (match.kind) {
    case "new":
      return "ct state new";
    case "first":
      return `ct status & confirmed ${match.not === true ? "!=" : "=="} 0`;
    case "dnat":
      return match.not === true ? "ct status & dnat == 0" : "ct status dnat";
    case "marked":
      return `meta mark & ${hex(mark)} == ${hex(mark)}`;
    case "protocol": {
      const words = match.protocols.map((protocol) => PROTOCOL_WORDS[protocol]);
      return `meta l4proto ${words.length === 1 ? words[0] : `{ ${words.join(", ")} }`}`;
    }
    case "local":
      return `fib ${match.part} type ${match.not === true ? "!= " : ""}local`;
    case "no-loopback":
      return context.family === 4 ? "ip daddr != 127.0.0.0/8" : "ip6 daddr != ::1";
    case "pod":
      return printDetector(match, context.family);
    case "in":
      return `${printKey(match.key, context)} ${match.not === true ? "!= " : ""}@${match.set}`;
    default:
      return assertNever(match);
  }
}

function printDetector({ detector, not }: Match & { readonly kind: "pod" }, family: IpFamily): string {
  const no = not === true ? "!= " : "";
  switch (detector.kind) {
    case "source":
      return `${ip(family)} saddr ${no}${detector.cidr}`;
    case "interface":
      return `iifname ${no}"${detector.name}"`;
    case "interface-prefix":
      return `iifname ${no}"${detector.prefix}*"`;
    default:
      return assertNever(detector);
  }
}

function printAction(action: Action, context: Context): string {
  const { family, mark } = context;
  switch (action.kind) {
    case "goto":
    case "jump":
      return `${action.kind} ${action.chain}`;
    case "map":
      return `${printKey(action.key, context)} vmap @${action.map}`;
    case "dnat":
      return `dnat ${ip(family)} to ${printKey(action.key, context)} map @${action.map}`;
    case "recall": {
      // Text for people, as below.
      const [set, parts] = action.isNodePort
        ? [SETS.nodePortAffinityKeys, "meta l4proto . th dport"]
        : [SETS.affinityKeys, `${ip(family)} daddr . meta l4proto . th dport`];
      return `dnat ${ip(family)} to ${ip(family)} saddr . ${parts} map @${set} map @${SETS.affinity}`;
    }
    case "mark":
      return `meta mark set meta mark | ${hex(mark)}`;
    case "unmark":
      return `meta mark set meta mark ^ ${hex(mark)}`;
    case "masquerade":
      return "masquerade fully-random";
    case "drop":
    case "accept":
      return action.kind;
    case "reject":
      return action.with === "tcp-reset" ? "reject with tcp reset" : "reject";
    case "remember": {
      // Text for people: the kernel gets the expressions of `compileRule`.
      const [set, parts] = action.isNodePort
        ? [SETS.nodePortAffinityKeys, "meta l4proto . ct original proto-dst"]
        : [SETS.affinityKeys, `ct original ${ip(family)} daddr . meta l4proto . ct original proto-dst`];
      const client = `ct original ${ip(family)} saddr . ${parts} map @${set}`;
      return `update @${SETS.affinity} { ${client} timeout ${action.seconds}s : ${ip(family)} daddr . th dport }`;
    }
    default:
      return assertNever(action);
  }
}

function printKey(key: readonly KeyPart[], { family }: Context): string {
  return key.map((part) => printPart(part, family)).join(" . ");
}

function printPart(part: KeyPart, family: IpFamily): string {
  if (typeof part === "object") return `numgen random mod ${part.slots}`;
  switch (part) {
    case "saddr":
    case "daddr":
      return `${ip(family)} ${part}`;
    case "protocol":
      return "meta l4proto";
    case "dport":
      return "th dport";
    default:
      return assertNever(part);
  }
}

const ip = (family: IpFamily): string => (family === 4 ? "ip" : "ip6");
const hex = (value: number): string => `0x${value.toString(16).padStart(8, "0")}`;
