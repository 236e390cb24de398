/** docs/spec/tunnel.md#10.1: rules about who may be which agent. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import { FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createAuthority, issueCertificate } from "#base/x509";
import { freePort } from "#test/ports";
import { MetadataKey, type Packet, TUNNEL_METHODS } from "#wire/konnectivity";
import { type AgentGate, RuleGate } from "../identity/agent-gate.ts";
import { parseAgentRules, readAgentRules } from "../identity/rule-file.ts";
import { LinkError, openStream } from "../link/outgoing.ts";
import { Bed, endpointOn } from "../testing/bed.ts";
import { TunnelClient } from "../testing/client.ts";
import { listenForAgents } from "./listeners.ts";
import type { Strategy } from "./strategies.ts";

const [SECOND_MS, LATE_MS] = [2000, 7000];
const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
const CLAIMS = HOSTS.map((host) => `ipv4=${host}`).join("&");

const RULES = `
rules:
  - name: good
    certificate: { commonName: good }
    addresses: [127.0.0.0/8]
    anyHost: true
  - name: evil
    certificate: { commonName: evil }
    EVIL
`;

/** Agents whose ids begin with `good` or `evil` have the certificate of this name: all of the latter the same one. */
function gateOf(evil: string, limits = { agents: 16, streams: 64 }): AgentGate {
  const gate = new RuleGate(parseAgentRules(RULES.replace("EVIL", evil), "rules"), limits);
  return {
    admit: (_none, registration) => {
      const commonNames = [registration.agentID.slice(0, 4)];
      const certificate = { commonNames, organizations: [], dnsNames: [], uris: [] };
      return gate.admit({ certificate, token: undefined }, registration);
    },
  };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

const dialsOf = ({ packets }: TunnelClient): (Packet & { readonly type: "DIAL_REQ" })[] =>
  packets.filter((packet) => packet.type === "DIAL_REQ");

type Behaviour = "answer nothing" | "end their streams" | "answer with errors";

/** Agents of the evil certificate treat the dials that they have got in one of these ways. */
function treat(agents: readonly TunnelClient[], behaviour: Behaviour): void {
  if (behaviour === "answer nothing") return;
  for (const agent of agents.filter(({ isEnded }) => !isEnded)) {
    const [dial] = dialsOf(agent);
    if (dial === undefined) continue;
    if (behaviour === "answer with errors") {
      agent.send({ type: "DIAL_RSP", error: "connection refused", connectID: 0, random: dial.random });
    }
    agent.destroy();
  }
}

const STRATEGIES: readonly (readonly Strategy[])[] = [
  ["default"],
  ["destHost"],
  ["defaultRoute"],
  ["destHost", "defaultRoute", "default"],
];
/** The evil certificate's rule allows these, by what it then does. A rule that lets it be asked for any host has it answer these as it likes. */
const EVIL: Readonly<Record<Behaviour, string>> = {
  "answer nothing": "addresses: [127.0.0.3]\n    anyHost: true",
  "end their streams": "addresses: [127.0.0.3]\n    anyHost: true",
  "answer with errors": "addresses: [127.0.0.9]",
};
const CASES = STRATEGIES.flatMap((strategies) => [
  { strategies, isFirst: true, behaviour: "answer nothing" as const },
  { strategies, isFirst: false, behaviour: "answer nothing" as const },
  { strategies, isFirst: true, behaviour: "end their streams" as const },
  { strategies, isFirst: true, behaviour: "answer with errors" as const },
]);
for (const { strategies, isFirst, behaviour } of CASES) {
  test(`ProxyServer: with rules, 100 agents of one certificate that come ${isFirst ? "first" : "later"}, claim a good agent's hosts and ${behaviour} lose 0 of 40 dials, with ${strategies}`, async () => {
    const clock = new FakeClock();
    await using bed = await Bed.open({ strategies, clock, gate: gateOf(EVIL[behaviour]) });
    const mayAny = EVIL[behaviour].includes("anyHost");
    const good = () => bed.agent("good", `${CLAIMS}&default-route=true`);
    const evil = async (from: number, claims: string): Promise<TunnelClient[]> => {
      const all = Array.from({ length: 50 }, (_none, at) => bed.rawAgent(`evil${from + at}`, [], claims));
      return (await Promise.allSettled(all)).flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    };
    if (!isFirst) await good();
    assert.deepEqual(await evil(0, CLAIMS), []);
    const admitted = await evil(50, mayAny ? "ipv4=127.0.0.3&default-route=true" : "ipv4=127.0.0.9");
    if (isFirst) await good();
    const counts = ["claim", "limit"].map((reason) => bed.serverCounts.get(`agentRefused ${reason}`));
    assert.deepEqual([admitted.length, ...counts], [16, 50, 34]);
    const addresses = await Promise.all(HOSTS.map((host) => endpointOn(bed, host)));
    const clients = await Promise.all(
      Array.from({ length: 40 }, async () => TunnelClient.open(await bed.socket(bed.frontendPort))),
    );
    const outcomes = new Map<number, string>();
    for (const [at, one] of clients.entries()) {
      void one.dial(addresses[at % addresses.length] ?? "").then(({ kind }) => outcomes.set(at, kind));
    }
    await until(() => {
      treat(admitted, behaviour);
      return bed.serverCounts.get("to_agent DIAL_REQ") >= 40;
    });
    if (behaviour === "answer nothing") await clock.advance(SECOND_MS);
    await until(() => {
      treat(admitted, behaviour);
      return outcomes.size === 40;
    });
    assert.deepEqual(new Set(outcomes.values()), new Set(["open"]));
    for (const one of clients) one.destroy();
    await clock.advance(LATE_MS);
    assert.deepEqual(bed.bugs, []);
  });
}

/** A TLS port of a server that admits certificates of kubelets alone, and a client of it. */
async function kubeletPort() {
  const bed = await Bed.open({ gate: new RuleGate(readAgentRules(["kubelet"]), { agents: 16, streams: 64 }) });
  const now = Date.now();
  const dates = { notBefore: now - 3_600_000, notAfter: now + 3_600_000 };
  const authority = createAuthority({ commonName: "cluster", ...dates });
  const folder = mkdtempSync(join(tmpdir(), "isthmus-identity-"));
  const write = (name: string, content: string): string => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const server = issueCertificate(authority, {
    commonName: "s",
    hosts: ["127.0.0.1"],
    usages: ["serverAuth"],
    ...dates,
  });
  const port = await freePort();
  const listener = await listenForAgents(
    { proxy: bed.proxy, log: nullLogger, clock: systemClock, onBug: (error) => bed.bugs.push(error) },
    {
      address: { host: "127.0.0.1", port },
      tls: {
        cert: write("s.crt", server.cert),
        key: write("s.key", server.key),
        clientCa: write("ca.crt", authority.cert),
      },
    },
    { cipherSuites: [], tlsMinVersion: "" },
  );
  /** Connects with a certificate for these names. Resolves with the headers of the server, or rejects with its status. */
  const connect = async (names: { commonName: string; organization?: string }, identifiers: string, t: AbortSignal) => {
    const client = issueCertificate(authority, { ...names, hosts: [], usages: ["clientAuth"], ...dates });
    const socket = connectTls({ port, host: "127.0.0.1", ca: authority.cert, ...client, ALPNProtocols: ["h2"] });
    socket.on("error", () => undefined);
    await new Promise((resolve) => socket.once("secureConnect", resolve));
    const metadata = { [MetadataKey.agentID]: "any", [MetadataKey.agentIdentifiers]: identifiers };
    return await openStream(
      {
        socket,
        path: TUNNEL_METHODS.connect,
        authority: "localhost",
        metadata,
        timeoutMs: 5000,
        keepAliveMs: 0,
        clock: systemClock,
      },
      { signal: t },
    );
  };
  return {
    bed,
    connect,
    async [Symbol.asyncDispose]() {
      await listener[Symbol.asyncDispose]();
      await bed[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}

test("ProxyServer: over TLS a kubelet's certificate is its node's agent, and other certificates of the same authority are refused by a gRPC status", async (t) => {
  await using port = await kubeletPort();
  const { connect, bed } = port;
  const kubelet = { commonName: "system:node:n1", organization: "system:nodes" };
  await connect(kubelet, "host=n1&default-route=true", t.signal);
  assert.deepEqual(
    bed.proxy.backends.all.map(({ agentID, identity, hosts }) => [agentID, identity, ...hosts]),
    [["any", "kubelet/system:node:n1", "n1"]],
  );
  const refused = [
    [kubelet, "host=n2", /kubelet\/system:node:n1 may not claim "n2"/],
    [{ commonName: "system:node:n1" }, "", /no rule of --agent-identity matches/],
    [{ commonName: "admin", organization: "system:masters" }, "", /no rule of --agent-identity matches/],
  ] as const;
  for (const [names, identifiers, message] of refused) {
    await assert.rejects(connect(names, identifiers, t.signal), (error) => {
      assert.ok(error instanceof LinkError && error.code === "refused");
      assert.match(error.message, message);
      return true;
    });
  }
  assert.deepEqual(bed.proxy.backends.all.length, 1);
  assert.deepEqual(bed.bugs, []);
});

test("ProxyServer: an agentID that another identity has is another agent, and takes neither dials nor streams from it", async () => {
  let identity = "evil";
  const gate: AgentGate = {
    admit: (_none, { identifiers }) => ({
      ...{ kind: "admitted", identity, anyHost: true, hosts: new Set(identifiers.ipv4), withheld: new Set() },
      ...{ observe: () => undefined, release: () => undefined },
    }),
  };
  await using bed = await Bed.open({ strategies: ["destHost"], gate });
  // As many as one agent may have.
  for (let at = 0; at < 64; at += 1) await bed.rawAgent("good");
  await assert.rejects(bed.rawAgent("good"), /the agent has 64 streams already/);
  identity = "good";
  await bed.agent("good", CLAIMS);
  for (const host of HOSTS) assert.equal(bed.proxy.backends.pick(`${host}:1`)?.identity, "good");
});

test("ProxyServer: an agent gets dials to an address from when it is its Node's until it is not, and loses its stream with its rule", async () => {
  const owned = new Set<string>();
  const nodes = { isOwner: (_node: string, address: string) => owned.has(address), confirm: () => false };
  const rules = 'rules: [{name: r, certificate: {commonName: "{name}"}, nodeAddresses: true}]';
  const gate = new RuleGate(parseAgentRules(rules, "rules"), { agents: 0, streams: 0 }, nodes);
  const withCertificate: AgentGate = {
    admit: (_none, registration) => {
      const certificate = { commonNames: [registration.agentID], organizations: [], dnsNames: [], uris: [] };
      return gate.admit({ certificate, token: undefined }, registration);
    },
  };
  await using bed = await Bed.open({ strategies: ["destHost"], gate: withCertificate });
  const agent = await bed.rawAgent("n1", [], "ipv4=192.0.2.1");
  const picked = (): string | undefined => bed.proxy.backends.pick("192.0.2.1:10250")?.identity;
  assert.deepEqual([picked(), bed.proxy.backends.isReady], [undefined, false]);
  owned.add("192.0.2.1");
  gate.addressesChanged(new Set(["192.0.2.1"]));
  assert.deepEqual([picked(), bed.proxy.backends.isReady], ["r/n1", true]);
  owned.clear();
  gate.addressesChanged(new Set(["192.0.2.1"]));
  assert.deepEqual([picked(), agent.isEnded], [undefined, false]);
  gate.replace(parseAgentRules("rules: [{name: r, certificate: {commonName: n2}}]", "rules"));
  await until(() => agent.isEnded);
  assert.deepEqual([bed.proxy.backends.all, gate.streams.size], [[], 0]);
  assert.equal(bed.serverCounts.get("agentRefused no-rule"), 1);
  assert.deepEqual(bed.bugs, []);
});
