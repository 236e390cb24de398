import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createAuthority, issueCertificate } from "#base/x509";
import { type ReviewedToken, startApiServer } from "#lab/api-server";
import { commandsOf, fenceOf } from "#test/guide";
import { until } from "#test/lab";
import { ProxyBed, type ProxyProcess } from "#test/proxies";

const NAMESPACE = "kube-system";
const AUDIENCE = "system:konnectivity-server";
const READY = 'server_ready_backends{proxy_strategy="default"}';

/** A cluster's API server and the programs beside it. */
async function cluster(t: TestContext, reviewedTokens: ReadonlyMap<string, ReviewedToken> = new Map()) {
  const api = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    log: nullLogger,
    reviewedTokens,
    clock: systemClock,
  });
  const bed = await ProxyBed.open();
  t.after(async () => {
    await bed[Symbol.asyncDispose]();
    await api.stop();
  });
  return { api, bed, kubeconfig: `--kubeconfig=${bed.write("kubeconfig", api.kubeconfig())}` };
}

const account = (name: string, ...audiences: string[]): ReviewedToken => ({
  user: { name, groups: [] },
  audiences: audiences.length === 0 ? [AUDIENCE] : audiences,
});

const refusals = (agent: ProxyProcess): string =>
  agent
    .said("cannot connect to a proxy server")
    .map(({ reason }) => String(reason))
    .join("\n");

test("proxy-server: tokens decide who is an agent", async (t) => {
  const tokens = new Map([
    ["good", account(`system:serviceaccount:${NAMESPACE}:agent`)],
    ["other-namespace", account("system:serviceaccount:default:agent")],
    ["other-account", account(`system:serviceaccount:${NAMESPACE}:stranger`)],
    ["other-audience", account(`system:serviceaccount:${NAMESPACE}:agent`, "https://kubernetes.default.svc")],
    ["a-user", account("alice")],
  ]);
  const { api, bed, kubeconfig } = await cluster(t, tokens);
  const server = await bed.server([
    ...["--cluster-ca-cert=", `--agent-namespace=${NAMESPACE}`, "--agent-service-account=agent", kubeconfig],
    ...[`--authentication-audience=${AUDIENCE}`, "--v=9"],
  ]);
  const agentWith = (token: string): Promise<ProxyProcess> => {
    const file = bed.write(`token-${token}`, `${token}\n`);
    return bed.agent([server], ["--agent-cert=", "--agent-key=", `--service-account-token-path=${file}`, "--v=9"]);
  };
  for (const name of ["other-namespace", "other-account", "other-audience", "a-user", "unknown"]) {
    const agent = await agentWith(name);
    await until("it is refused", () => refusals(agent) !== "", { seen: agent.running.said });
    assert.match(refusals(agent), /gRPC status 16.*authentication failed/, name);
    assert.equal((await agent.stop()).code, 0);
  }
  const none = await bed.agent([server], ["--agent-cert=", "--agent-key="]);
  await until("it is refused", () => refusals(none) !== "", { seen: none.running.said });
  await none.stop();
  assert.equal(await server.metric("server_ready_backend_connections"), 0);

  // The agent reads the file anew for each attempt.
  const agent = await agentWith("late");
  await until("it is refused", () => refusals(agent) !== "", { seen: agent.running.said });
  bed.write("token-late", "good\n");
  await until("it is let in", async () => (await server.metric(READY)) === 1, { seen: server.running.said });

  await api.stop();
  tokens.set("newcomer", account(`system:serviceaccount:${NAMESPACE}:agent`));
  const newcomer = await agentWith("newcomer");
  await until("nobody can judge", () => refusals(newcomer) !== "", { seen: newcomer.running.said });
  assert.match(refusals(newcomer), /gRPC status 14.*cannot authenticate now/);
  // The verdict on this one is remembered.
  await agentWith("good");
  await until("it is let in", async () => (await server.metric(READY)) === 2, { seen: server.running.said });

  // At the highest verbosity too.
  const logs = [server, agent, newcomer].map(({ running }) => running.said()).join("");
  for (const secret of ["good", "newcomer", "late"])
    assert.doesNotMatch(logs, new RegExp(`"[^"]*\\b${secret}\\b`), secret);
});

/** The flags that the guide gives to a server for rules, with files of the bed. */
function flagsOnPage(which: string, words: Readonly<Record<string, string>>): string[] {
  const blocks = commandsOf("tunnel.md", "Which agent is which node");
  const block = blocks.find((text) => text.includes(which)) ?? assert.fail(`no ${which}: ${blocks.join()}`);
  return (block.match(/--\S+=\S+/g) ?? []).map((flag) =>
    Object.entries(words).reduce((text, [word, other]) => text.replace(word, other), flag),
  );
}

const nodeOf = (name: string, ...addresses: string[]) => ({
  ...{ apiVersion: "v1", kind: "Node", metadata: { name } },
  status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
});

test("proxy-server: the guide's rules hold agents to their certificates, and changed ones end streams", async (t) => {
  const { api, bed } = await cluster(t);
  api.seed([nodeOf("n1", "192.0.2.1")]);
  const now = Date.now();
  const dates = { notBefore: now - 3_600_000, notAfter: now + 3_600_000 };
  const authority = createAuthority({ commonName: "agents", ...dates });
  // Agents have no tokens here.
  const [rules = ""] = fenceOf("guides/tunnel.md", "yaml").split("  # Tokens");
  const words = {
    "/etc/isthmus/tunnel/agents.yaml": bed.write("agents.yaml", rules),
    "/etc/isthmus/tunnel/kubeconfig": bed.write("kubeconfig", api.kubeconfig()),
  };
  const server = await bed.server([
    ...flagsOnPage("agents.yaml", words),
    `--cluster-ca-cert=${bed.write("agents-ca.crt", authority.cert)}`,
  ]);
  const agentOf = (commonName: string, ...flags: string[]): Promise<ProxyProcess> => {
    const names = { commonName, organization: "agents", hosts: [], usages: ["clientAuth"] as const, ...dates };
    const { cert, key } = issueCertificate(authority, names);
    const pair = [`--agent-cert=${bed.write("a.crt", cert)}`, `--agent-key=${bed.write("a.key", key)}`];
    return bed.agent([server], [...pair, ...flags]);
  };
  const hosts = (): Promise<number> => server.metric('server_ready_backends{proxy_strategy="destHost"}');
  await agentOf("agent:n1", "--agent-id=n1", "--agent-identifiers=host=n1&host=192.0.2.1");
  await until("its name and its address", async () => (await hosts()) === 2, { seen: server.running.said });
  const other = await agentOf("agent:n1", "--agent-id=n1", "--agent-identifiers=host=n2");
  await until("it is refused", () => refusals(other) !== "", { seen: other.running.said });
  const onPage = commandsOf("tunnel.md", "Which agent is which node").find((text) => text.includes("refused"));
  assert.equal(refusals(other).split("\n")[0], onPage?.trim());
  await other.stop();
  bed.write("agents.yaml", rules.replace("organization: agents", "organization: others"));
  await until("its stream has ended", async () => (await hosts()) === 0, { seen: server.running.said });
  bed.write("agents.yaml", "rules: []");
  const broken = "the rules about agents cannot be used; the old rules stay in force";
  await until("the fault is logged", () => server.said(broken).length === 1, { seen: server.running.said });
  assert.match(String(server.said(broken)[0]?.["reason"]), /agents\.yaml:1: rules must have at least one rule/);
  bed.write("agents.yaml", rules);
  await until("it has come again", async () => (await hosts()) === 2, { seen: server.running.said });
});

test("proxy-server: with node-addresses an agent has its own Node's name and addresses, by the node in its token, and no other's", async (t) => {
  const ofNode = (node: string): ReviewedToken => ({
    user: {
      name: `system:serviceaccount:${NAMESPACE}:agent`,
      groups: [],
      extra: { "authentication.kubernetes.io/node-name": [node], "authentication.kubernetes.io/pod-name": ["agent-x"] },
    },
    audiences: [AUDIENCE],
  });
  const unbound = account(`system:serviceaccount:${NAMESPACE}:agent`);
  const { api, bed } = await cluster(
    t,
    new Map([
      ["one", ofNode("n1")],
      ["two", ofNode("n2")],
      ["unbound", unbound],
    ]),
  );
  // The second one has written the pods' and the Services' ranges into its Node.
  api.seed([nodeOf("n1", "192.0.2.1"), nodeOf("n2", "192.0.2.2", "10.244.0.9", "10.96.0.1")]);
  const server = await bed.server([
    ...["--cluster-ca-cert=", `--agent-namespace=${NAMESPACE}`, "--agent-service-account=agent"],
    ...[`--authentication-audience=${AUDIENCE}`, "--proxy-strategies=destHost"],
    ...flagsOnPage("node-addresses", { "/etc/isthmus/tunnel/kubeconfig": bed.path("kubeconfig") }),
  ]);
  const agentWith = (token: string, identifiers: string): Promise<ProxyProcess> => {
    const file = bed.write(`token-${token}`, `${token}\n`);
    const flags = [`--service-account-token-path=${file}`, `--agent-identifiers=${identifiers}`];
    return bed.agent([server], ["--agent-cert=", "--agent-key=", ...flags]);
  };
  const hosts = (): Promise<number> => server.metric('server_ready_backends{proxy_strategy="destHost"}');
  await agentWith("one", "host=n1&ipv4=192.0.2.1");
  await until("its name and its address", async () => (await hosts()) === 2, { seen: server.running.said });
  await agentWith("two", "host=n2&ipv4=192.0.2.1&ipv4=192.0.2.2&host=10.244.0.9&host=10.96.0.1");
  await until("its own two of five", async () => (await hosts()) === 4, { seen: server.running.said });
  const [withheld] = server.said(
    "an agent does not get addresses that it claims: they are not, or not yet, its Node's",
  );
  assert.deepEqual(
    [withheld?.["identity"], withheld?.["addresses"]],
    ["node-addresses-token/n2", "192.0.2.1,10.244.0.9,10.96.0.1"],
  );
  for (const [token, message] of [
    ["two", /gRPC status 7\): node-addresses-token\/n2 may not claim "n1"/],
    ["unbound", /gRPC status 7\): no rule of --agent-identity matches/],
  ] as const) {
    const agent = await agentWith(token, "host=n1");
    await until("it is refused", () => refusals(agent) !== "", { seen: agent.running.said });
    assert.match(refusals(agent), message);
  }
  assert.equal(await hosts(), 4);
  assert.equal(await server.metric('server_identity_streams{identity="node-addresses-token/n2"}'), 1);
  assert.ok((await server.metric('server_agents_refused_total{reason="claim"}')) >= 1);
});

test("proxy-server and proxy-agent: Leases tell agents how many servers there are", async (t) => {
  const { api, bed, kubeconfig } = await cluster(t);
  const labels = "k8s-app=konnectivity-server,tier=tunnel";
  const leased = (id: string) =>
    bed.server([
      ...["--enable-lease-controller", `--server-id=${id}`, `--lease-label=${labels}`, kubeconfig],
      // What servers say of themselves is too low, on purpose.
      "--server-count=1",
    ]);
  const leaseOf = (id: string) =>
    api.get("coordination.k8s.io/v1", "Lease", NAMESPACE, `konnectivity-proxy-server-${id}`);
  const expired = new Date(Date.now() - 3_600_000).toISOString();
  api.seed([
    {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: {
        name: "konnectivity-proxy-server-dead",
        namespace: NAMESPACE,
        labels: { "k8s-app": "konnectivity-server", tier: "tunnel" },
      },
      spec: { holderIdentity: "dead", leaseDurationSeconds: 30, renewTime: expired },
    },
  ]);
  const one = await leased("one");
  const two = await leased("two");
  await until("both have Leases", () => leaseOf("one") !== undefined && leaseOf("two") !== undefined);
  const { spec, metadata } = leaseOf("one") as {
    spec: Record<string, unknown>;
    metadata: { labels: Record<string, string> };
  };
  assert.deepEqual([spec["holderIdentity"], spec["leaseDurationSeconds"]], ["one", 30]);
  assert.deepEqual(metadata.labels, { "k8s-app": "konnectivity-server", tier: "tunnel" });

  const agent = await bed.agent(
    [one, two],
    ["--count-server-leases", "--lease-label-selector=k8s-app in (konnectivity-server),tier", kubeconfig],
  );
  for (const server of [one, two]) {
    await until("it has the agent", async () => (await server.metric(READY)) === 1, { seen: agent.running.said });
  }
  assert.equal(await agent.metric("agent_known_server_count"), 2);
  assert.equal(await agent.metric("agent_open_server_connections"), 2);
  assert.equal(await agent.metric('agent_lease_lists_total{http_response_code="200",reason=""}'), 1);
  assert.equal(await agent.metric('agent_lease_watches_total{http_response_code="200",reason=""}'), 1);

  assert.equal((await two.stop()).code, 0);
  assert.equal(leaseOf("two"), undefined, "its Lease goes with it");
  await until("one server is known", async () => (await agent.metric("agent_known_server_count")) === 1);
  const three = await leased("three");
  const again = await bed.agent([one, three], ["--count-server-leases", kubeconfig]);
  await until("the new one has it", async () => (await three.metric(READY)) === 1, { seen: again.running.said });
  await until("the dead server's Lease is collected", () => leaseOf("dead") === undefined, { deadlineMs: 40_000 });
  const culled = (await one.metric("server_culled_leases_count")) + (await three.metric("server_culled_leases_count"));
  assert.equal(culled, 1);
  assert.ok(leaseOf("one") !== undefined && leaseOf("three") !== undefined);
});
