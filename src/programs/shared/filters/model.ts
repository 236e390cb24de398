import type { IpAddress, IpFamily } from "#base/ip";

/** The first packet of a TCP connection that the node forwards, or that is for the node. */
export interface FilteredPacket {
  readonly family: IpFamily;
  readonly iif: string;
  /** Absent for a packet to the node. */
  readonly oif?: string;
  readonly source: IpAddress;
  /** Absent: some address of the node. */
  readonly destination?: IpAddress;
  /** Absent: some port. */
  readonly port?: number;
}

/** Returns true if a packet meets a condition; `undefined`: it cannot be told, as of ports, marks and sets. */
export type Match = (packet: FilteredPacket) => boolean | undefined;

/** The action of a rule on a packet that meets all of its conditions. */
export type Action =
  | { readonly kind: "accept" | "drop" | "return" | "continue" }
  | { readonly kind: "jump" | "goto"; readonly chain: string };

/** A rule of a packet filter, with its text for people. */
export interface FilterRule {
  readonly matches: readonly Match[];
  readonly action: Action;
  readonly text: string;
}

/** The hooks that are followed: of packets that the node forwards, and of packets to the node. */
export type Hook = "forward" | "input";

/** The packets that should pass a filter: packets from or to a prefix, or packets to a TCP port. */
export type Passage =
  | { readonly direction: "from" | "to"; readonly prefix: string; readonly family: IpFamily }
  | { readonly port: number };

/** A base chain at a hook, with the chains that its rules may jump to. */
export interface PacketFilter {
  /** As `nftables table inet filter, chain forward`. */
  readonly name: string;
  readonly families: readonly IpFamily[];
  readonly policy: "accept" | "drop";
  readonly base: string;
  readonly chains: ReadonlyMap<string, readonly FilterRule[]>;
  /** The command that lets packets pass. */
  readonly allow: (passage: Passage) => string;
}

/** The fate of a packet in one filter. `maybe`: a rule that cannot be judged may accept it; else it is dropped. */
export interface Outcome {
  readonly kind: "accepted" | "dropped" | "maybe";
  /** The policy, or the rule, as text. */
  readonly by: string;
}

/** The most rules that one packet is compared with, and the deepest jumps, as in the kernel (NFT_JUMP_STACK_SIZE). */
const MAX_STEPS = 20_000;
const MAX_DEPTH = 16;

/** Follows a packet through a filter. A rule that cannot be judged is passed over, and remembered if it may accept. Pure. */
export function follow(filter: PacketFilter, packet: FilteredPacket): Outcome {
  let steps = 0;
  let mayPass = false;
  const through = (chain: string, depth: number, isCertain: boolean): Outcome | "return" => {
    for (const { matches, action, text } of filter.chains.get(chain) ?? []) {
      steps += 1;
      if (steps > MAX_STEPS || depth > MAX_DEPTH)
        return { kind: "maybe", by: "rules that were not followed to their end" };
      const answers = matches.map((match) => match(packet));
      if (answers.includes(false)) continue;
      const isSure = isCertain && !answers.includes(undefined);
      if (action.kind === "accept" && !isSure) mayPass = true;
      if (action.kind === "accept" && isSure) return { kind: "accepted", by: text };
      if (action.kind === "drop" && isSure) return { kind: "dropped", by: text };
      if (action.kind === "return" && isSure) return "return";
      if (action.kind === "jump" || action.kind === "goto") {
        const result = through(action.chain, depth + 1, isSure);
        if (isSure && result !== "return") return result;
        if (isSure && action.kind === "goto") return "return";
      }
    }
    return "return";
  };
  const result = through(filter.base, 0, true);
  const end: Outcome =
    result === "return"
      ? { kind: filter.policy === "drop" ? "dropped" : "accepted", by: `its policy ${filter.policy}` }
      : result;
  return end.kind === "dropped" && mayPass ? { ...end, kind: "maybe" } : end;
}

/** Returns true if a name fits a pattern with a wildcard at its end; no name fits none but the wildcard alone. Pure. */
export function nameMatches(name: string | undefined, pattern: string, wildcard: "*" | "+"): boolean {
  if (name === undefined) return pattern === wildcard;
  return pattern.endsWith(wildcard) ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** Returns true if a port is one of `from` to `to`; `undefined` for a packet whose port is not known. Pure. */
export function portMatches(port: number | undefined, from: number, to: number): boolean | undefined {
  if (port === undefined || Number.isNaN(from) || Number.isNaN(to)) return undefined;
  return port >= from && port <= to;
}
