import { Cidr, IpAddress, unmapped, unmappedCidr } from "#base/ip";
import type { AgentIdentifiers } from "#wire/konnectivity";
import { canonicalHost, hostsOf } from "./hosts.ts";
import type { RuleMatch } from "./match.ts";
import { fillTemplate, matchPattern } from "./pattern.ts";

/** An agent says this of itself, or the server sees it. */
export interface Registration {
  readonly agentID: string;
  readonly identifiers: AgentIdentifiers;
  /** The address from which it connects; absent if that is not known. */
  readonly from?: IpAddress | undefined;
}

/** The owners of the addresses of Nodes. */
export interface AddressBook {
  isOwner(node: string, address: string): boolean;
}

/** A registration is refused for this reason, which the agent and logs are told. */
export interface ClaimFault {
  readonly kind: "fault";
  readonly what: "agent-id" | "claim";
  readonly message: string;
}

/** An agent gets these of what it claims. */
export interface Granted {
  readonly kind: "granted";
  /** In canonical form. */
  readonly hosts: ReadonlySet<string>;
  /** Addresses that are not the agent's Node's, or not now: Nodes change, and agents cannot know it. */
  readonly withheld: ReadonlySet<string>;
}

/** Maximum of the characters of a claim that a message quotes. */
const MAX_QUOTED = 100;

/** Decides whether an identity may register so: returns the hosts that it gets, or the first claim that it may not make. Pure but for the book. */
export function admit(
  { rule, identity, name }: RuleMatch,
  { agentID, identifiers }: Registration,
  book?: AddressBook,
): Granted | ClaimFault {
  if (rule.agentIDs !== undefined && !fits(rule.agentIDs, name, agentID)) {
    return { kind: "fault", what: "agent-id", message: `${identity} may not have the agentID ${quoted(agentID)}` };
  }
  const { cidr, defaultRoute } = identifiers;
  const claim = (text: string): ClaimFault => ({
    ...{ kind: "fault", what: "claim", message: `${identity} may not claim ${text}` },
  });
  const hosts = new Set<string>();
  const withheld = new Set<string>();
  for (const host of hostsOf(identifiers)) {
    const verdict = judgeHost({ rule, name }, host, book);
    if (verdict === "no") return claim(quoted(host));
    (verdict === "yes" ? hosts : withheld).add(host);
  }
  for (const one of cidr) {
    const range = Cidr.tryParse(one);
    const isAllowed = range !== undefined && rule.cidrs.some((allowed) => allowed.contains(unmappedCidr(range)));
    if (!isAllowed) return claim(quoted(one));
  }
  if (defaultRoute && !rule.anyHost) return claim("default-route=true");
  return { kind: "granted", hosts, withheld };
}

/** `host` in canonical form: a text that is an address counts as one, by whatever key it was claimed. */
function judgeHost(
  { rule, name }: Pick<RuleMatch, "rule" | "name">,
  host: string,
  book: AddressBook | undefined,
): "yes" | "withheld" | "no" {
  const address = IpAddress.tryParse(host);
  if (address === undefined) return fits(rule.hosts.map(canonicalHost), name?.toLowerCase(), host) ? "yes" : "no";
  const plain = unmapped(address);
  if (rule.addresses.some((range) => range.contains(plain))) return "yes";
  // A node may be named by its address. `*` stands for names alone.
  const isName = rule.hosts.some((template) => {
    const pattern = fillTemplate(template, name);
    return pattern.open === undefined && canonicalHost(pattern.prefix) === plain.toString();
  });
  if (isName) return "yes";
  if (!rule.nodeAddresses || name === undefined) return "no";
  return book?.isOwner(name, plain.toString()) === true ? "yes" : "withheld";
}

function fits(templates: readonly string[], name: string | undefined, text: string): boolean {
  return templates.some((template) => matchPattern(fillTemplate(template, name), text).kind === "yes");
}

function quoted(text: string): string {
  return JSON.stringify(text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED)}…` : text);
}
