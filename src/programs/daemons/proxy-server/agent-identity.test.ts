import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { ConfigError } from "#base/config";
import { LOOK_MS } from "#base/file";
import { Cidr } from "#base/ip";
import { type Logger, nullLogger } from "#base/log";
import { parseIdentifiers } from "#wire/konnectivity";
import { type AgentIdentity, agentIdentity } from "./agent-identity.ts";

type Config = Parameters<typeof agentIdentity>[0];

const RULE = 'rules: [{name: a, certificate: {commonName: "{name}"}, hosts: ["{name}"]}]';

function fileOf(t: TestContext, content: string): string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-agent-identity-"));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "rules.yaml"), content);
  return join(folder, "rules.yaml");
}

function configOf(sources: readonly string[], overrides: Partial<Config> = {}): Config {
  return {
    identity: { sources, limits: { agents: 0, streams: 0 }, notNodes: undefined },
    agent: { address: { port: 8091 }, tls: { cert: "", key: "", clientCa: "ca.crt" } },
    strategies: ["destHost"],
    tokens: undefined,
    ...overrides,
  };
}

const QUIET = { log: nullLogger, clock: new FakeClock() };
const faultsOf = (config: Config): Promise<readonly string[]> =>
  agentIdentity(config, QUIET).then(
    () => [],
    (error: unknown) => {
      assert.ok(error instanceof ConfigError);
      return error.message.split("\n");
    },
  );

function admits(identity: AgentIdentity, commonName: string, identifiers = ""): boolean {
  const certificate = { commonNames: [commonName], organizations: [], dnsNames: [], uris: [] };
  const registration = { agentID: "x", identifiers: parseIdentifiers(identifiers, { unknownKeys: "ignore" }) };
  return identity.gate.admit({ certificate, token: undefined }, registration).kind === "admitted";
}

test("agentIdentity: without the flag there are no rules; faults name the flag, the file and what to do", async (t) => {
  assert.equal(await agentIdentity(configOf([], { identity: undefined }), QUIET), undefined);
  const file = fileOf(t, RULE);
  assert.deepEqual(await faultsOf(configOf([file, "kubelet"])), []);
  const cases: readonly (readonly [Config, RegExp])[] = [
    [configOf(["/none"]), /--agent-identity: cannot read \/none: ENOENT/],
    [configOf([fileOf(t, "rules: []")]), /--agent-identity: \S+:1: rules must have at least one rule/],
    [
      configOf([file], { strategies: ["default", "defaultRoute"] }),
      /no rule has "anyHost: true".*default,defaultRoute/,
    ],
    [
      configOf([file], { agent: { address: { port: 1 }, tls: { cert: "", key: "", clientCa: undefined } } }),
      /rule "a" is about certificates, which need --cluster-ca-cert/,
    ],
    [
      configOf([fileOf(t, 'rules: [{name: t, token: {node: "{name}"}}]')]),
      /rule "t" is about tokens, which need --authentication-audience/,
    ],
  ];
  for (const [config, message] of cases) assert.match((await faultsOf(config)).join("\n"), message);
  assert.deepEqual(await faultsOf(configOf(["kubelet"], { strategies: ["default"] })), []);
  assert.match(
    (await faultsOf(configOf(["node-addresses"]))).join("\n"),
    /rule "node-addresses" has nodeAddresses, which needs --pod-cidr and --service-cidr: a kubelet can write/,
  );
});

test("agentIdentity: node-addresses has the rules for what agents have, and Nodes are read for it alone", async () => {
  const limits = { agents: 0, streams: 0 };
  const withRanges = (source: string): Config =>
    configOf([], { identity: { sources: [source], limits, notNodes: [Cidr.parse("10.2.0.0/16")] } });
  const tokens = { namespace: "kube-system", serviceAccount: "a", audience: "b" };
  const agent = { address: { port: 1 }, tls: { cert: "", key: "", clientCa: undefined } };
  assert.deepEqual(await faultsOf(withRanges("node-addresses")), []);
  assert.deepEqual(await faultsOf({ ...withRanges("node-addresses"), agent, tokens }), []);
  assert.ok((await agentIdentity(withRanges("node-addresses"), QUIET))?.nodes !== undefined);
  assert.equal((await agentIdentity(withRanges("kubelet"), QUIET))?.nodes, undefined);
});

test("agentIdentity: a changed file is in force without a restart; one that cannot be used is logged and changes nothing", async (t) => {
  const file = fileOf(t, RULE);
  const clock = new FakeClock();
  const errors: unknown[] = [];
  const log: Logger = { ...nullLogger, error: (_message, fields) => errors.push(fields?.["reason"]) };
  const identity = await agentIdentity(configOf([file]), { log, clock });
  assert.ok(identity !== undefined);
  const stop = new AbortController();
  const following = identity.follow({ signal: stop.signal });
  const write = async (content: string): Promise<void> => {
    writeFileSync(file, content);
    await clock.advance(LOOK_MS);
  };
  assert.deepEqual([admits(identity, "n1", "host=n1"), admits(identity, "n1", "host=x")], [true, false]);
  await write('rules: [{name: a, certificate: {commonName: "{name}"}, hosts: [x]}]');
  assert.deepEqual([admits(identity, "n1", "host=n1"), admits(identity, "n1", "host=x")], [false, true]);
  await write("rules: nothing at all");
  assert.match(String(errors), /rules\.yaml:1: rules must be a list/);
  assert.equal(admits(identity, "n1", "host=x"), true);
  rmSync(file);
  await clock.advance(LOOK_MS);
  assert.equal(errors.length, 2);
  await write('rules: [{name: a, certificate: {commonName: "{name}"}, nodeAddresses: true}]');
  assert.match(String(errors[2]), /nodeAddresses, which needs --pod-cidr and --service-cidr/);
  assert.equal(admits(identity, "n1", "host=x"), true);
  stop.abort();
  await following;
});
