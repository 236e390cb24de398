import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { parseIdentifiers } from "#wire/konnectivity";
import { admit } from "./admit.ts";
import type { Credential } from "./credential.ts";
import { AgentRulesError } from "./errors.ts";
import { matchRules } from "./match.ts";
import { parseAgentRules, readAgentRules } from "./rule-file.ts";

const FILE = `
rules:
  - name: node
    certificate: { commonName: "agent:{name}", organization: agents }
    agentIDs: ["{name}", "{name}-*"]
    hosts: ["{name}", "{name}.example.com.", "10.9.0.9"]
    addresses: [10.1.0.0/16, "2001:db8::1"]
    cidrs: [10.2.0.0/16]
  - name: spiffe
    certificate: { uri: "spiffe://a/node/{name}", dnsName: "{name}.nodes" }
    hosts: ["{name}"]
    anyHost: true
  - name: token
    token: { node: "{name}", pod: "agent-*" }
    hosts: ["{name}"]
  - name: fleet
    certificate: { organization: fleet }
    hosts: ["*.fleet"]
    anyHost: true
`;
const RULES = parseAgentRules(FILE, "rules.yaml");

interface Names {
  readonly cn?: readonly string[];
  readonly o?: readonly string[];
  readonly dns?: readonly string[];
  readonly uri?: readonly string[];
}

function credential({ cn = [], o = [], dns = [], uri = [] }: Names): Credential {
  return { certificate: { commonNames: cn, organizations: o, dnsNames: dns, uris: uri }, token: undefined };
}

const token = (pod: string | undefined, node: string | undefined): Credential => ({
  certificate: undefined,
  token: { account: "kube-system/agent", pod, node },
});

test("matchRules: the first rule whose fields all match, with one name, decides whose credential it is", () => {
  const cases: readonly (readonly [Credential, string | undefined])[] = [
    [credential({ cn: ["agent:n1"], o: ["agents"] }), "node/agent:n1"],
    [credential({ cn: ["agent:n1"], o: ["others", "agents"] }), "node/agent:n1"],
    [credential({ cn: ["agent:n1"] }), undefined],
    [credential({ cn: ["agent:n1", "agent:n2"], o: ["agents"] }), undefined],
    [credential({ cn: ["agent:n1", "x"], o: ["agents"] }), undefined],
    [credential({ uri: ["spiffe://a/node/n1"], dns: ["n1.nodes"] }), "spiffe/spiffe://a/node/n1+n1.nodes"],
    [
      credential({ uri: ["spiffe://a/node/n1", "spiffe://a/node/n2"], dns: ["n2.nodes"] }),
      "spiffe/spiffe://a/node/n2+n2.nodes",
    ],
    [credential({ uri: ["spiffe://a/node/n1"], dns: ["n2.nodes"] }), undefined],
    [credential({ uri: ["spiffe://a/node/n1", "spiffe://a/node/n2"], dns: ["n1.nodes", "n2.nodes"] }), undefined],
    [credential({ uri: ["spiffe://a/node/n1"] }), undefined],
    [token("agent-x", "n1"), "token/n1+agent-x"],
    [token("agent-x", undefined), undefined],
    [token("other", "n1"), undefined],
    [credential({ cn: ["any"], o: ["fleet"] }), "fleet/any"],
    [credential({ o: ["fleet"] }), "fleet/"],
    [{ certificate: undefined, token: undefined }, undefined],
  ];
  for (const [given, expected] of cases) {
    assert.equal(matchRules(RULES, given)?.identity, expected, JSON.stringify(given));
  }
});

test("admit: an identity may claim what its rule says, by whatever key and in whatever form", () => {
  const node = credential({ cn: ["agent:N1"], o: ["agents"] });
  const fleet = credential({ cn: ["any"], o: ["fleet"] });
  const cases: readonly (readonly [Credential, string, string, RegExp | undefined])[] = [
    [node, "N1", "", undefined],
    [node, "N1-2", "host=n1&host=N1.Example.com&ipv4=10.1.2.3&ipv6=2001%3Adb8%3A%3A1&cidr=10.2.3.0%2F24", undefined],
    [node, "n1", "", /^node\/agent:N1 may not have the agentID "n1"$/],
    [node, "N12", "", /agentID "N12"/],
    [node, "N1", "host=n2", /may not claim "n2"/],
    [node, "N1", "host=10.1.2.3&ipv6=10.1.2.4&ipv4=%3A%3Affff%3A10.1.2.5", undefined],
    [node, "N1", "host=10.3.0.1.", /may not claim "10\.3\.0\.1"/],
    [node, "N1", "ipv4=10.3.0.1", /may not claim "10\.3\.0\.1"/],
    [node, "N1", "ipv4=n1", undefined],
    [node, "N1", "ipv4=10.9.0.9", undefined],
    [node, "N1", "ipv6=%3A%3Affff%3A10.3.0.1", /may not claim/],
    [node, "N1", "cidr=10.0.0.0%2F8", /may not claim "10\.0\.0\.0\/8"/],
    [node, "N1", "cidr=x", /may not claim "x"/],
    [node, "N1", "default-route=true", /may not claim default-route=true/],
    [node, "N1", "default-route=false", undefined],
    [fleet, "anything", "host=a.fleet&default-route=true", undefined],
    [fleet, "x", "host=.fleet", /may not claim/],
    [fleet, "x", `host=${"y".repeat(1000)}`, /may not claim "y{100}…"/],
  ];
  for (const [given, agentID, text, fault] of cases) {
    const match = matchRules(RULES, given);
    assert.ok(match !== undefined);
    const identifiers = parseIdentifiers(text, { unknownKeys: "ignore" });
    const verdict = admit(match, { agentID, identifiers });
    const found = verdict.kind === "fault" ? verdict.message : undefined;
    if (fault === undefined) assert.equal(found, undefined, text);
    else assert.match(found ?? "admitted", fault);
  }
});

test("admit: * of hosts stands for no address", () => {
  const rules = parseAgentRules('{rules: [{name: a, certificate: {organization: o}, hosts: ["*", "10.*"]}]}', "f");
  const match = matchRules(rules, credential({ o: ["o"] }));
  assert.ok(match !== undefined);
  for (const [text, isFault] of [
    ["host=any.name", false],
    ["ipv4=10.0.0.1", true],
    ["host=10.0.0.1.", true],
  ] as const) {
    const identifiers = parseIdentifiers(text, { unknownKeys: "ignore" });
    assert.equal(admit(match, { agentID: "x", identifiers }).kind === "fault", isFault, text);
  }
});

test("readAgentRules: kubelet admits certificates of kubelets alone: the name and the organisation", () => {
  const rules = readAgentRules(["kubelet"]);
  const identity = (names: Names): string | undefined => matchRules(rules, credential(names))?.identity;
  assert.equal(identity({ cn: ["system:node:n1"], o: ["system:nodes"] }), "kubelet/system:node:n1");
  assert.equal(identity({ cn: ["system:node:n1"] }), undefined);
  assert.equal(identity({ cn: ["system:node:n1"], o: ["system:masters"] }), undefined);
  assert.equal(identity({ cn: ["admin"], o: ["system:nodes"] }), undefined);
  assert.throws(() => readAgentRules(["kublet"]), /cannot read kublet: ENOENT.*; ready rules are kubelet/);
  assert.throws(() => readAgentRules(["kubelet", "kubelet"]), /two rules of kubelet, kubelet have the name "kubelet"/);
});

test("parseAgentRules: every fault is named with its line, its field and what would be right", () => {
  const faults = (text: string): string => {
    try {
      parseAgentRules(text, "f");
    } catch (error) {
      assert.ok(error instanceof AgentRulesError && error.code === "invalid");
      return error.message;
    }
    return "none";
  };
  const rule = (fields: string): string =>
    faults(`rules:\n  - name: a\n    certificate: {organization: o}\n    ${fields}\n`);
  const cases: readonly (readonly [string, RegExp])[] = [
    ["", /^f:1: the file must be a mapping of rules$/],
    ["[]", /^f:1: the file must be a mapping of rules$/],
    ["rules: []", /^f:1: rules must have at least one rule$/],
    ["rules: [{name: a}]", /^f:1: rules\[0\] matches everybody: give it a field of certificate or token$/],
    ["rules: [{certificate: {organization: o}}]", /^f:1: rules\[0\]\.name is missing$/],
    ["rules: [{name: a/b, token: {node: x}}]", /rules\[0\]\.name must have 1 to 63 characters, and no \//],
    ["rules: [x]", /^f:1: rules\[0\] must be a mapping of name, certificate, token/],
    ["a: [", /^f:/],
  ];
  for (const [text, message] of cases) assert.match(faults(text), message);
  assert.match(rule("host: [a]"), /^f:4: rules\[0\]\.host is not a known field; the fields are name, certificate, /);
  assert.match(rule("hosts: a"), /^f:4: rules\[0\]\.hosts must be a list$/);
  assert.match(rule('hosts: ["{name}"]'), /^f:4: rules\[0\]\.hosts\[0\] "\{name\}" has \{name\}, which no field/);
  assert.match(rule('agentIDs: ["{x}"]'), /agentIDs\[0\] "\{x\}" has a brace that is not of \{name\}$/);
  assert.match(rule("addresses: [10.0.0.0/33]"), /addresses\[0\] "10\.0\.0\.0\/33" is neither an address nor a range/);
  assert.match(rule('token: {node: "{name}*"}'), /token\.node "\{name\}\*" has more than one of \{name\} and \*$/);
  assert.match(rule("anyHost: yes please"), /anyHost must be true or false/);
});

test("docs/guides/tunnel.md: the example's rules are what the page says of them", () => {
  const guide = readFileSync(join(import.meta.dirname, "../../../../docs/guides/tunnel.md"), "utf8");
  const [, example = ""] = guide.split("```yaml\n# /etc/isthmus/tunnel/agents.yaml\n");
  const rules = parseAgentRules(example.split("```")[0] ?? "", "agents.yaml");
  const agent = (given: Credential, agentID: string, identifiers: string): string => {
    const match = matchRules(rules, given);
    if (match === undefined) return "no rule";
    const registration = { agentID, identifiers: parseIdentifiers(identifiers, { unknownKeys: "refuse" }) };
    const verdict = admit(match, registration);
    return verdict.kind === "fault" ? verdict.message : match.rule.name;
  };
  const node = credential({ cn: ["agent:n1"], o: ["agents"] });
  assert.equal(agent(node, "n1", "host=n1&default-route=true"), "node");
  const manifest = readFileSync(
    join(import.meta.dirname, "../../../../deploy/tunnel/proxy-agent.static-pod.yaml"),
    "utf8",
  );
  const [, claims = ""] = manifest.split("--agent-identifiers=");
  const identifiers = (claims.split("\n")[0] ?? "").replace("$(NODE_NAME)", "n1").replace("$(HOST_IP)", "192.0.2.1");
  assert.equal(identifiers, "host=n1&host=192.0.2.1");
  assert.equal(agent(node, "n1", identifiers), "node");
  const refused = agent(node, "n1", "host=n2");
  assert.ok(guide.includes(`the server refused (gRPC status 7): ${refused}\n`), refused);
  const spiffe = credential({ uri: ["spiffe://cluster.local/ns/kube-system/sa/agent/node/n1"] });
  assert.equal(agent(spiffe, "any", "host=n1"), "spiffe");
  assert.match(agent(spiffe, "any", "default-route=true"), /may not claim default-route=true/);
  assert.equal(agent(token("konnectivity-agent-x1", "n1"), "any", "host=n1"), "pods");
  assert.equal(agent(credential({ cn: ["agent:n1"] }), "n1", ""), "no rule");
});

test("parseAgentRules: only AgentRulesError escapes, whatever the file", () => {
  const parse = (text: string): void => {
    try {
      parseAgentRules(text, "f");
    } catch (error) {
      assert.ok(error instanceof AgentRulesError, String(error));
    }
  };
  fc.assert(fc.property(fc.string(), parse));
  fc.assert(fc.property(fc.jsonValue(), (value) => parse(JSON.stringify(value))));
  const leaf = fc.oneof(fc.constantFrom("{name}", "*", "a", "10.0.0.0/8"), fc.jsonValue());
  const fields = [
    "name",
    "certificate",
    "token",
    "agentIDs",
    "hosts",
    "addresses",
    "nodeAddresses",
    "cidrs",
    "anyHost",
  ] as const;
  const entry = fc.dictionary(
    fc.constantFrom(...fields),
    fc.oneof(leaf, fc.array(leaf), fc.dictionary(fc.constantFrom("uri", "node"), leaf)),
  );
  const files = fc.array(entry, { maxLength: 3 });
  fc.assert(
    fc.property(files, (rules) => parse(JSON.stringify({ rules }))),
    { numRuns: 50 },
  );
});
