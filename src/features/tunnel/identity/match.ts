import type { CertificateNames } from "./certificate-names.ts";
import type { Credential, TokenNames } from "./credential.ts";
import { matchPattern, type Pattern } from "./pattern.ts";
import type { AgentRule } from "./rule.ts";

/** The rule that decides about an agent, and for whom. */
export interface RuleMatch {
  readonly rule: AgentRule;
  /** The owner of the credential: the rule's name and the names that it matched. Caps, logs and metrics go by it. */
  readonly identity: string;
  /** `{name}` stands for this; absent if the rule has none. */
  readonly name: string | undefined;
}

/** The first rule that a credential matches. Pure. */
export function matchRules(rules: readonly AgentRule[], credential: Credential): RuleMatch | undefined {
  for (const rule of rules) {
    const match = matchRule(rule, credential);
    if (match !== undefined) return match;
  }
  return undefined;
}

function matchRule(rule: AgentRule, { certificate, token }: Credential): RuleMatch | undefined {
  const fields: readonly (readonly [Pattern | undefined, readonly string[]])[] = [
    // With several common names no program agrees with another which one counts.
    [rule.certificate?.commonName, certificate?.commonNames.length === 1 ? certificate.commonNames : []],
    [rule.certificate?.uri, certificate?.uris ?? []],
    [rule.certificate?.dnsName, certificate?.dnsNames ?? []],
    [rule.certificate?.organization, certificate?.organizations ?? []],
    [rule.token?.node, token?.node === undefined ? [] : [token.node]],
    [rule.token?.pod, token?.pod === undefined ? [] : [token.pod]],
  ];
  let names: ReadonlySet<string> | undefined;
  for (const [pattern, values] of fields) {
    if (pattern === undefined) continue;
    const matches = values.map((value) => matchPattern(pattern, value)).filter((match) => match.kind === "yes");
    if (matches.length === 0) return undefined;
    if (pattern.open === "name") names = both(names, new Set(matches.flatMap(({ name }) => name ?? [])));
  }
  // A certificate for several names is of none of them.
  if (names !== undefined && names.size !== 1) return undefined;
  const [name] = names ?? [];
  const matched = [0, 1, 2, 4, 5].flatMap((at) => firstMatch(fields[at], name));
  const subject = matched.length > 0 ? matched : nameOf(certificate, token);
  return { rule, identity: `${rule.name}/${subject.join("+")}`, name };
}

function both(one: ReadonlySet<string> | undefined, other: ReadonlySet<string>): ReadonlySet<string> {
  return one === undefined ? other : new Set([...one].filter((name) => other.has(name)));
}

function firstMatch(
  [pattern, values]: readonly [Pattern | undefined, readonly string[]] = [undefined, []],
  name: string | undefined,
): readonly string[] {
  if (pattern === undefined) return [];
  const found = values.find((value) => {
    const match = matchPattern(pattern, value);
    return match.kind === "yes" && (match.name === undefined || match.name === name);
  });
  return found === undefined ? [] : [found];
}

/** The name of a credential by whose organisation alone the rule goes. */
function nameOf(certificate: CertificateNames | undefined, token: TokenNames | undefined): readonly string[] {
  const { commonNames = [], uris = [], dnsNames = [] } = certificate ?? {};
  const [first] = [...commonNames, ...uris, ...dnsNames];
  return [...(first === undefined ? [] : [first]), ...(token?.node === undefined ? [] : [token.node])];
}
