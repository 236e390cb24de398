import type { IpFamily } from "#base/ip";
import type { Expression, Verdict } from "#kernel/nft-elements";
import { PROTOCOL_NUMBERS, type Protocol } from "../model/index.ts";
import { affinityNodePortSet, affinitySet, SETS } from "./sets.ts";
import type { Action, Chain, KeyPart, Match, Rule } from "./types.ts";

/** `ct status confirmed`, which is every packet of a connection but the first, and `dnat` (include/uapi/linux/netfilter/nf_conntrack_common.h). */
const STATUS_CONFIRMED = 8;
const STATUS_DNAT = 32;
/** Offsets of the addresses in the header of either family, in bytes. */
const HEADER = {
  4: { saddr: 12, daddr: 16, length: 4 },
  6: { saddr: 8, daddr: 24, length: 16 },
} as const;

/**
 * True for chains that are written as kernel expressions instead of text: those that translate by a map, and those that record affinity.
 * libnftables 1.0.6 cannot compile the first kind once the map exists, and aborts the process for the second kind in IPv6. Either way
 * one transaction writes the whole chain.
 */
export function isCompiled({ rules }: Chain): boolean {
  return rules.some(({ actions }) =>
    actions.some(({ kind }) => kind === "dnat" || kind === "recall" || kind === "remember"),
  );
}

/** The expressions of a rule of a compiled chain. Throws an `Error` for a rule that such a chain cannot have: a bug. */
export function compileRule(rule: Rule, family: IpFamily): Expression[] {
  const [action] = rule.actions;
  const protocol = rule.matches.flatMap((match) => (match.kind === "protocol" ? match.protocols : []))[0];
  if (action?.kind === "dnat") return translate(action, family);
  if (action?.kind === "recall") return recall(action, family);
  if (action?.kind === "remember" && protocol !== undefined) return remember(action, protocol, family);
  if (action?.kind === "accept") return [...rule.matches.flatMap(status), verdict({ kind: "accept" })];
  const isPlain = rule.matches.length === 0 && rule.actions.length === 1;
  if (isPlain && action?.kind === "drop") return [verdict({ kind: "drop" })];
  if (isPlain && action?.kind === "goto") return [verdict(action)];
  throw new Error("this rule is written as text");
}

const verdict = (of: Verdict): Expression => ({ kind: "verdict", verdict: of });

/** Expressions that match the connection's status. Throws an `Error` for a match that an affinity chain cannot have: a bug. */
function status(match: Match): Expression[] {
  if (match.kind !== "first" && match.kind !== "dnat") throw new Error("this rule is written as text");
  const isNot = match.not === true;
  const load: Expression = { kind: "ct", key: "status", register: 0 };
  if (match.kind === "first")
    return [load, { kind: isNot ? "any-bit" : "no-bit", register: 0, mask: STATUS_CONFIRMED }];
  return [load, { kind: isNot ? "no-bit" : "any-bit", register: 0, mask: STATUS_DNAT }];
}

/**
 * Expressions that load the key, look it up in the map, and translate to the value. The protocol is part of every key, so it needs no
 * match.
 */
function translate({ map, key }: Action & { readonly kind: "dnat" }, family: IpFamily): Expression[] {
  const loads: Expression[] = [];
  let register = 0;
  for (const part of key) {
    loads.push(load(part, family, register));
    register += part === "saddr" || part === "daddr" ? wordsOf(family) : 1;
  }
  return [
    ...loads,
    { kind: "lookup", set: map, register: 0, into: register },
    { kind: "dnat", family: family === 4 ? "ip" : "ip6", address: register, port: register + wordsOf(family) },
  ];
}

/** The registers hold the client and the key of the service port, then the endpoint. */
function recall({ isNodePort }: Action & { readonly kind: "recall" }, family: IpFamily): Expression[] {
  const words = wordsOf(family);
  const [client, key, endpoint] = [0, words, 2 * words + 2];
  const frontEnd = isNodePort
    ? [load("protocol", family, key), load("dport", family, key + 1)]
    : [load("daddr", family, key), load("protocol", family, key + words), load("dport", family, key + words + 1)];
  return [
    ...fill(key, isNodePort, family),
    load("saddr", family, client),
    ...frontEnd,
    ...mapped(isNodePort, key, key),
    { kind: "lookup", set: SETS.affinity, register: client, into: endpoint },
    { kind: "dnat", family: family === 4 ? "ip" : "ip6", address: endpoint, port: endpoint + words },
  ];
}

/** The last register: no key or value has it. */
const SPARE = 15;

/** Loads the key of a front end's service port from a map, at the place `into` of the front end's address. */
function mapped(isNodePort: boolean, register: number, into: number): Expression[] {
  return [
    { kind: "lookup", set: isNodePort ? SETS.nodePortAffinityKeys : SETS.affinityKeys, register, into },
    { kind: "through-mark", register: into, spare: SPARE },
  ];
}

/**
 * Sets the registers of the key of a service port, which begins in `key`, that no part of the front end begins in: libnftables 1.0.6 takes the key for a
 * list of what began in its registers. Comes first.
 */
function fill(key: number, isNodePort: boolean, family: IpFamily): Expression[] {
  const words = wordsOf(family);
  const first = key + (isNodePort ? 2 : 1);
  const count = key + (isNodePort ? words + 2 : words) - first;
  return count === 0 ? [] : [{ kind: "zero", register: first, length: count * 4 }];
}

function load(part: KeyPart, family: IpFamily, register: number): Expression {
  if (typeof part === "object") return { kind: "random", modulus: part.slots, register };
  if (part === "protocol") return { kind: "meta", key: "l4proto", register };
  if (part === "dport") return { kind: "payload", base: "transport", offset: 2, length: 2, register };
  return { kind: "payload", base: "network", offset: HEADER[family][part], length: HEADER[family].length, register };
}

/** The registers hold the client and the front end before translation, then the key of the service port in its place, then the endpoint. */
function remember(
  { seconds, isNodePort }: Action & { readonly kind: "remember" },
  protocol: Protocol,
  family: IpFamily,
): Expression[] {
  const words = wordsOf(family);
  const [client, address, endpoint] = [0, words, 2 * words + 2];
  // A NodePort's key begins where the key of the service port does, so that nothing else is there when the map is looked up.
  const proto = isNodePort ? words : 2 * words;
  const port = proto + 1;
  const ip = family === 4 ? "ip" : "ip6";
  return [
    ...fill(address, isNodePort, family),
    { kind: "meta", key: "l4proto", register: proto },
    { kind: "equal", register: proto, value: String.fromCharCode(PROTOCOL_NUMBERS[protocol]) },
    { kind: "ct", key: `src-${ip}`, original: true, register: client },
    ...(isNodePort ? [] : [{ kind: "ct" as const, key: `dst-${ip}` as const, original: true, register: address }]),
    { kind: "ct", key: "proto-dst", original: true, register: port },
    {
      kind: "lookup",
      set: isNodePort ? affinityNodePortSet(seconds) : affinitySet(seconds),
      register: isNodePort ? proto : address,
    },
    ...mapped(isNodePort, isNodePort ? proto : address, address),
    load("daddr", family, endpoint),
    load("dport", family, endpoint + words),
    { kind: "update", set: SETS.affinity, key: client, data: endpoint, timeoutMs: seconds * 1000 },
  ];
}

/** Number of 4-byte registers that an address takes. */
function wordsOf(family: IpFamily): number {
  return family === 4 ? 1 : 4;
}
