import assert from "node:assert/strict";
import { test } from "node:test";
import { parseIdentifiers } from "#wire/konnectivity";
import { type Admission, type AgentRefusal, RuleGate } from "./agent-gate.ts";
import { parseAgentRules } from "./rule-file.ts";

const rulesOf = (fields: string) =>
  parseAgentRules(`{rules: [{name: r, certificate: {commonName: "{name}"}, ${fields}}]}`, "f");

function admit(gate: RuleGate, name: string, agentID: string, identifiers = ""): Admission | AgentRefusal {
  const certificate = { commonNames: [name], organizations: [], dnsNames: [], uris: [] };
  const registration = { agentID, identifiers: parseIdentifiers(identifiers, { unknownKeys: "ignore" }) };
  return gate.admit({ certificate, token: undefined }, registration);
}

const outcome = (verdict: Admission | AgentRefusal): string =>
  verdict.kind === "admitted" ? verdict.identity : verdict.reason;

test("RuleGate: an identity has so many agents and streams at once, and its end makes room; others are not concerned", () => {
  const gate = new RuleGate(rulesOf("anyHost: true"), { agents: 2, streams: 3 });
  const first = admit(gate, "a", "1");
  assert.deepEqual(
    ["2", "3", "2", "1"].map((id) => outcome(admit(gate, "a", id))),
    ["r/a", "limit", "r/a", "limit"],
  );
  assert.equal(outcome(admit(gate, "b", "1")), "r/b");
  assert.deepEqual(Object.fromEntries(gate.streams), { "r/a": 3, "r/b": 1 });
  assert.ok(first.kind === "admitted");
  first.release();
  first.release();
  assert.equal(outcome(admit(gate, "a", "3")), "r/a");
  assert.deepEqual(gate.streams.get("r/a"), 3);
  const open = new RuleGate(rulesOf("anyHost: true"), { agents: 0, streams: 0 });
  const all = Array.from({ length: 100 }, (_, at) => admit(open, "a", `${at}`));
  assert.deepEqual(new Set(all.map(outcome)), new Set(["r/a"]));
  for (const one of all) if (one.kind === "admitted") one.release();
  assert.equal(open.streams.size, 0, "nothing is kept of identities without a stream");
});

test("RuleGate: changed rules end the streams that they do not admit in the same way, and no others", () => {
  const gate = new RuleGate(rulesOf('hosts: ["{name}", x]'), { agents: 0, streams: 0 });
  const ended: string[] = [];
  const open = (name: string, identifiers: string): void => {
    const one = admit(gate, name, name, identifiers);
    assert.ok(one.kind === "admitted");
    one.observe({
      onGranted: () => assert.fail("nothing is withheld"),
      onRevoked: ({ message }) => {
        ended.push(`${name}: ${message}`);
        one.release();
      },
    });
  };
  open("a", "host=a");
  open("b", "host=x");
  gate.replace(rulesOf('hosts: ["{name}"]'));
  assert.deepEqual(ended.splice(0), ['b: r/b may not claim "x"']);
  gate.replace(rulesOf('hosts: ["{name}"]'));
  assert.deepEqual(ended, []);
  gate.replace(rulesOf('hosts: ["{name}"], anyHost: true'));
  assert.deepEqual(ended.splice(0), ["a: the rules have changed; connect again"]);
  assert.equal(gate.streams.size, 0);
});

test("RuleGate: a Node's change is judged for the streams that claim one of its addresses, in whatever form, and for no others", () => {
  const asked: string[] = [];
  const isOwner = (node: string): boolean => {
    asked.push(node);
    return true;
  };
  const gate = new RuleGate(
    rulesOf("nodeAddresses: true"),
    { agents: 0, streams: 0 },
    { isOwner, confirm: () => false },
  );
  for (let at = 0; at < 100; at += 1) admit(gate, `n${at}`, "1", `ipv4=10.1.0.${at}`);
  admit(gate, "mapped", "1", "host=::ffff:10.1.0.7");
  asked.splice(0);
  gate.addressesChanged(new Set(["10.1.0.7", "192.0.2.1"]));
  assert.deepEqual(asked, ["n7", "mapped"]);
});
