import * as v from "valibot";
import { FileError, readBounded } from "#base/file";
import { Cidr, IpAddress, unmappedCidr } from "#base/ip";
import { faultAt, faultsText, parseYaml, type YamlDocument, YamlError, type YamlFault } from "#base/yaml";
import { AgentRulesError } from "./errors.ts";
import { type Pattern, type PatternFault, parsePattern, parseTemplate } from "./pattern.ts";
import { type AgentRule, READY_RULES, readyRules } from "./rule.ts";

/** Maximum of rules in a file, and of entries of each list. */
const MAX_RULES = 256;
const MAX_ENTRIES = 256;
/** Maximum length of a rule's name, in characters. */
const MAX_NAME_LENGTH = 63;

const text = v.string("must be a text");

const pattern = v.pipe(
  text,
  v.rawTransform(({ dataset, addIssue, NEVER }): Pattern => {
    const parsed = parsePattern(dataset.value);
    if (!("fault" in parsed)) return parsed;
    addIssue({ message: parsed.fault });
    return NEVER;
  }),
);

const range = v.pipe(
  text,
  v.rawTransform(({ dataset, addIssue, NEVER }): Cidr => {
    const address = IpAddress.tryParse(dataset.value);
    const parsed = address === undefined ? Cidr.tryParse(dataset.value) : Cidr.host(address);
    if (parsed !== undefined) return unmappedCidr(parsed);
    addIssue({ message: `"${dataset.value}" is neither an address nor a range, such as 10.0.0.0/16` });
    return NEVER;
  }),
);

const listOf = <const Item extends v.GenericSchema>(item: Item) =>
  v.optional(v.pipe(v.array(item, "must be a list"), v.maxLength(MAX_ENTRIES, `has more than ${MAX_ENTRIES} entries`)));

/** A mapping with these fields and no others. */
function mapping<const Entries extends v.ObjectEntries>(entries: Entries) {
  const fields = Object.keys(entries).join(", ");
  return v.pipe(
    v.unknown(),
    // The schema accepts a list as an object, so lists are refused here.
    v.check((value) => !Array.isArray(value), `must be a mapping of ${fields}`),
    v.strictObject(entries, ({ expected }) => {
      if (expected === "never") return `is not a known field; the fields are ${fields}`;
      return expected === "Object" ? `must be a mapping of ${fields}` : "is missing";
    }),
  );
}

const name = v.pipe(
  text,
  v.check(
    (value) => value.length > 0 && value.length <= MAX_NAME_LENGTH && !value.includes("/"),
    `must have 1 to ${MAX_NAME_LENGTH} characters, and no /`,
  ),
);

const rule = mapping({
  name,
  certificate: v.optional(
    mapping({
      commonName: v.optional(pattern),
      organization: v.optional(pattern),
      dnsName: v.optional(pattern),
      uri: v.optional(pattern),
    }),
  ),
  token: v.optional(mapping({ node: v.optional(pattern), pod: v.optional(pattern) })),
  agentIDs: listOf(text),
  hosts: listOf(text),
  addresses: listOf(range),
  nodeAddresses: v.optional(v.boolean("must be true or false"), false),
  cidrs: listOf(range),
  anyHost: v.optional(v.boolean("must be true or false"), false),
});

const ruleFile = mapping({
  rules: v.pipe(
    v.array(rule, "must be a list"),
    v.minLength(1, "must have at least one rule"),
    v.maxLength(MAX_RULES, `has more than ${MAX_RULES} rules`),
  ),
});

type RuleEntry = v.InferOutput<typeof rule>;

/** Reads the values of `--agent-identity`: names of ready rules, and paths of files. Throws {@link AgentRulesError}. */
export function readAgentRules(sources: readonly string[]): readonly AgentRule[] {
  const rules = sources.flatMap((source) => {
    const ready = READY_RULES.find((known) => known === source);
    return ready === undefined ? readFile(source) : readyRules(ready);
  });
  const names = rules.map((one) => one.name);
  const twice = names.find((one, at) => names.indexOf(one) !== at);
  if (twice === undefined) return rules;
  throw new AgentRulesError("invalid", `two rules of ${sources.join(", ")} have the name "${twice}": rename one`);
}

/** The files of these values, which are followed. */
export function ruleFiles(sources: readonly string[]): readonly string[] {
  return sources.filter((source) => !READY_RULES.some((known) => known === source));
}

function readFile(path: string): readonly AgentRule[] {
  let content: string;
  try {
    content = readBounded(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    const hint = `; ready rules are ${READY_RULES.join(", ")}`;
    throw new AgentRulesError("unreadable", `${error.message}${path.includes("/") ? "" : hint}`, { cause: error });
  }
  return parseAgentRules(content, path);
}

/**
 * Reads the text of a file of rules, in YAML or JSON; `file` is its name in messages. Pure. Throws {@link AgentRulesError} `invalid`.
 *
 * ```yaml
 * rules:
 *   - name: node
 *     certificate: { commonName: "agent:{name}", organization: agents }
 *     agentIDs: ["{name}"]
 *     hosts: ["{name}", "{name}.example.com"]
 *     addresses: [10.1.0.0/16]
 *     anyHost: true # default false
 * ```
 */
export function parseAgentRules(content: string, file: string): readonly AgentRule[] {
  const document = documentOf(content, file);
  const result = v.safeParse(ruleFile, document.value);
  const faults: YamlFault[] = (result.issues ?? []).map(({ path = [], message }) =>
    faultAt(
      path.map(({ key }) => key),
      message,
      document,
    ),
  );
  if (!result.success) throw refused(faults, file);
  const rules = result.output.rules.map((entry, at): AgentRule => {
    const report = (keys: readonly unknown[], message: string): void =>
      void faults.push(faultAt(["rules", at, ...keys], message, document));
    checkRule(entry, report);
    return ruleOf(entry);
  });
  if (faults.length > 0) throw refused(faults, file);
  return rules;
}

/** The faults that several fields together show. */
function checkRule(entry: RuleEntry, report: (keys: readonly unknown[], message: string) => void): void {
  const patterns: readonly (Pattern | undefined)[] = [
    ...Object.values(entry.certificate ?? {}),
    ...Object.values(entry.token ?? {}),
  ];
  if (patterns.length === 0) report([], "matches everybody: give it a field of certificate or token");
  const hasName = patterns.some((one) => one?.open === "name");
  if (entry.nodeAddresses && !hasName) {
    report(["nodeAddresses"], "needs {name}, the name of the Node, in a field of certificate or token");
  }
  for (const field of ["agentIDs", "hosts"] as const) {
    for (const [at, template] of (entry[field] ?? []).entries()) {
      const parsed: string | PatternFault = parseTemplate(template, { hasName });
      if (typeof parsed !== "string") report([field, at], parsed.fault);
    }
  }
}

function ruleOf(entry: RuleEntry): AgentRule {
  const { certificate, token, agentIDs, hosts = [], addresses = [], nodeAddresses, cidrs = [], anyHost } = entry;
  return {
    name: entry.name,
    certificate:
      certificate === undefined
        ? undefined
        : {
            commonName: certificate.commonName,
            organization: certificate.organization,
            dnsName: certificate.dnsName,
            uri: certificate.uri,
          },
    token: token === undefined ? undefined : { node: token.node, pod: token.pod },
    agentIDs,
    hosts,
    addresses,
    nodeAddresses,
    cidrs,
    anyHost,
    isOptional: false,
  };
}

function documentOf(content: string, file: string): YamlDocument {
  try {
    return parseYaml(content);
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    throw refused(error.faults, file);
  }
}

function refused(faults: readonly YamlFault[], file: string): AgentRulesError {
  return new AgentRulesError("invalid", faultsText(faults, file));
}
