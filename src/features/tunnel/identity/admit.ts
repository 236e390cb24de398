import { Cidr, IpAddress, unmapped, unmappedCidr } from "#base/ip";
import type { AgentIdentifiers } from "#wire/konnectivity";
import { canonicalHost } from "../server/strategies.ts";
import type { RuleMatch } from "./match.ts";
import { fillTemplate, matchPattern } from "./pattern.ts";

/** What an agent says of itself. */
export interface Registration {
  readonly agentID: string;
  readonly identifiers: AgentIdentifiers;
}

/** Why a registration is refused, for the agent and for logs. */
export interface ClaimFault {
  readonly what: "agent-id" | "claim";
  readonly message: string;
}

/** Maximum of the characters of a claim that a message quotes. */
const MAX_QUOTED = 100;

/** Whether an identity may register so. Pure. Returns the first claim that it may not make. */
export function admit(
  { rule, identity, name }: RuleMatch,
  { agentID, identifiers }: Registration,
): ClaimFault | undefined {
  if (rule.agentIDs !== undefined && !fits(rule.agentIDs, name, agentID)) {
    return { what: "agent-id", message: `${identity} may not have the agentID ${quoted(agentID)}` };
  }
  const { ipv4, ipv6, host, cidr, defaultRoute } = identifiers;
  const claim = (text: string): ClaimFault => ({ what: "claim", message: `${identity} may not claim ${text}` });
  for (const one of [...ipv4, ...ipv6, ...host]) {
    if (!mayClaimHost({ rule, name }, canonicalHost(one))) return claim(quoted(one));
  }
  for (const one of cidr) {
    const range = Cidr.tryParse(one);
    const isAllowed = range !== undefined && rule.cidrs.some((allowed) => allowed.contains(unmappedCidr(range)));
    if (!isAllowed) return claim(quoted(one));
  }
  if (defaultRoute && !rule.anyHost) return claim("default-route=true");
  return undefined;
}

/** `host` in canonical form: a text that is an address counts as one, by whatever key it was claimed. */
function mayClaimHost({ rule, name }: Pick<RuleMatch, "rule" | "name">, host: string): boolean {
  const address = IpAddress.tryParse(host);
  if (address === undefined) return fits(rule.hosts.map(canonicalHost), name?.toLowerCase(), host);
  const plain = unmapped(address);
  if (rule.addresses.some((range) => range.contains(plain))) return true;
  // A node may be named by its address. `*` stands for names alone.
  return rule.hosts.some((template) => {
    const pattern = fillTemplate(template, name);
    return pattern.open === undefined && canonicalHost(pattern.prefix) === plain.toString();
  });
}

function fits(templates: readonly string[], name: string | undefined, text: string): boolean {
  return templates.some((template) => matchPattern(fillTemplate(template, name), text).kind === "yes");
}

function quoted(text: string): string {
  return JSON.stringify(text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED)}…` : text);
}
