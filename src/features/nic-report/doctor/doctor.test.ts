import assert from "node:assert/strict";
import { test } from "node:test";
import { type DoctorCheck, doctorText, type Fact } from "#base/diagnosis";
import { createAuthority, issueServerCertificate } from "#base/x509";
import type { ProviderAgent } from "#cloud/vpc";
import type { EndpointSlice, Lease, Pod, Secret } from "#kube/client";
import type { NicNode } from "../audit/state.ts";
import { READY_NIC, testClaim } from "../testing.ts";
import { judgeAgents, judgeClaims, judgeClusterId, judgeLease, judgePolicy, judgeWebhooks } from "./cluster.ts";
import { judgeNode, type NodeReport } from "./node.ts";
import { judgeHosts, judgeProvider, type ProviderReport } from "./provider.ts";

const NOW = Date.parse("2026-01-01T00:10:00Z");
const texts = (checks: readonly DoctorCheck[]): string[] => checks.map(({ state, text }) => `${state}: ${text}`);
const isOfAnyProject = (_policy: object, { vpc, projectID }: { readonly vpc: string; readonly projectID?: string }) =>
  projectID === undefined && vpc === "v";
const agent = (host: string, isAlive = true, kind = "Open vSwitch agent"): ProviderAgent => ({ host, isAlive, kind });

test("judgeHosts: the agent of each node's host: alive, dead, missing, or on a host whose name is like the node's", () => {
  const agents = [
    agent("node-1"),
    agent("node-2", false),
    agent("node-3.example"),
    agent("node-4", true, "DHCP agent"),
    agent("cloud-5"),
  ];
  const node = (name: string, providerHost?: string, isUsed = false) => ({ name, providerHost, isUsed });
  const nodes = [
    ...[node("node-1"), node("node-2"), node("node-3"), node("node-4"), node("node-5", "cloud-5")],
    ...[node("node-6", "wrong", true), node("cloud-5", "node-9")],
  ];
  const checks = judgeHosts("neutron", { value: agents }, nodes);
  assert.deepEqual(
    checks.map(({ state }) => state),
    ["ok", "wrong", "wrong", "warning", "ok", "wrong", "wrong"],
  );
  assert.match(checks[1]?.text ?? "", /on host node-2 is not alive/);
  assert.match(
    checks[2]?.remedy ?? "",
    /annotate node node-3 --overwrite isthmus\.dev\/provider-host=node-3\.example$/,
  );
  assert.match(
    checks[5]?.text ?? "",
    /no agent on host wrong, as its annotation says; hosts with agents: cloud-5, node-1/,
  );
  const [away] = judgeHosts("neutron", { fault: "403" }, nodes);
  assert.deepEqual([away?.state, away?.remedy], ["unknown", "give the role of these credentials the right get_agent"]);
});

test("judgeProvider: credentials, an answer, extensions, VPCs and quotas", () => {
  const all = new Set(["binding", "standard-attr-tag", "standard-attr-timestamp", "revision-if-match"]);
  const whole: ProviderReport = {
    name: "n",
    type: "neutron",
    opened: { value: undefined },
    extensions: { value: all },
    vpcs: [{ vpc: "v", found: { value: { projectId: "p", subnets: 1 } }, quota: { value: { limit: 500, used: 3 } } }],
  };
  const quota = (limit: number | undefined, used: number): ProviderReport => ({
    ...whole,
    vpcs: [{ vpc: "v", found: { value: { projectId: "p", subnets: 1 } }, quota: { value: { limit, used } } }],
  });
  const rows: readonly (readonly [report: ProviderReport, wanted: readonly string[]])[] = [
    [whole, ["ok: answers by these credentials, with 4 extensions", "ok: project p uses 3 ports of 500"]],
    [{ ...whole, opened: { fault: "no file" } }, ["wrong: no file"]],
    [{ ...whole, extensions: { fault: "401" } }, ["wrong: does not answer as it should: 401"]],
    [
      { ...whole, extensions: { value: new Set(["binding"]) }, vpcs: [] },
      [
        "ok: answers by these credentials, with 1 extensions",
        "warning: lacks the extension standard-attr-tag: ports get no tags, so an orphan whose owner was cleared is not found",
        "warning: lacks the extension standard-attr-timestamp: ports have no time of creation, so orphans are never old enough to be deleted",
        "warning: lacks the extension revision-if-match: a user's port may be changed by somebody else at the same time",
      ],
    ],
    [{ ...whole, type: "alcor", extensions: { value: new Set() }, vpcs: [] }, ["ok: answers by these credentials"]],
    [quota(10, 9), ["ok: answers by these credentials, with 4 extensions", "warning: project p uses 9 ports of 10"]],
    [quota(10, 10), ["ok: answers by these credentials, with 4 extensions", "wrong: project p uses 10 ports of 10"]],
    [
      quota(undefined, 10),
      ["ok: answers by these credentials, with 4 extensions", "ok: project p uses 10 ports of any number"],
    ],
    [
      {
        ...whole,
        vpcs: [
          { vpc: "v", found: { fault: "there is no network v" } },
          { vpc: "w", found: { value: { projectId: "p", subnets: 0 } }, quota: { fault: "404" } },
        ],
      },
      [
        "ok: answers by these credentials, with 4 extensions",
        "wrong: VPC v: there is no network v",
        "wrong: VPC w has no subnet, so its ports get no address",
        "unknown: the quota of project p cannot be read: 404",
      ],
    ],
  ];
  for (const [report, wanted] of rows) assert.deepEqual(texts(judgeProvider(report)), wanted);
});

test("judgePolicy, judgeLease: none, one that is broken, one that holds", () => {
  const neutron = { name: "a", type: "neutron" } as const;
  assert.deepEqual(
    [
      judgePolicy({ fault: "x" }, isOfAnyProject),
      judgePolicy({ value: undefined }, isOfAnyProject),
      judgePolicy({ value: { providers: [neutron, { ...neutron, name: "b" }] } }, isOfAnyProject),
      judgePolicy({ value: { providers: [neutron], vpcBindings: [{ vpc: "v", provider: "c" }] } }, isOfAnyProject),
      judgePolicy({ value: { providers: [neutron] } }, isOfAnyProject),
      judgePolicy({ value: { providers: [neutron], allowUnboundVPCs: true } }, isOfAnyProject),
      judgePolicy(
        { value: { allowUnboundVPCs: true, vpcBindings: [{ vpc: "v", namespaces: ["n"] }] } },
        isOfAnyProject,
      ),
      judgePolicy({ value: { vpcBindings: [{ vpc: "v", namespaces: ["n"] }] } }, isOfAnyProject),
      judgePolicy({ value: { vpcBindings: [{ vpc: "v", projectID: "p", namespaces: ["n"] }] } }, isOfAnyProject),
      judgePolicy({ value: { vpcBindings: [{ vpc: "a2815656-76f7-46d4-9d11-057063db1a14" }] } }, isOfAnyProject),
    ].map(({ state }) => state),
    ["wrong", "wrong", "wrong", "wrong", "wrong", "warning", "warning", "wrong", "ok", "ok"],
  );
  const lease = (renewTime: string | undefined): Fact<Lease | undefined> => ({
    value: { metadata: {}, spec: { holderIdentity: "one", leaseDurationSeconds: 15, renewTime } } as unknown as Lease,
  });
  assert.deepEqual(
    texts([
      judgeLease({ fault: "x" }, NOW),
      judgeLease({ value: undefined }, NOW),
      judgeLease(lease("2026-01-01T00:09:00.000000Z"), NOW),
      judgeLease(lease(undefined), NOW),
      judgeLease(lease("2026-01-01T00:09:50.000000Z"), NOW),
    ]),
    [
      "unknown: its Lease cannot be read: x",
      "wrong: no replica leads: it has no Lease",
      "wrong: no replica leads: one has renewed its Lease 60 s ago, and it lasts 15 s",
      "wrong: no replica leads: one has renewed its Lease never, and it lasts 15 s",
      "ok: one leads",
    ],
  );
});

test("judgeWebhooks: configurations, authority, certificate and endpoints", () => {
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const pairOf = (notBefore: string, notAfter: string) => {
    const times = { notBefore: Date.parse(notBefore), notAfter: Date.parse(notAfter) };
    const authority = createAuthority({ commonName: "ca", organization: "o", ...times });
    const server = issueServerCertificate(authority, { hosts: ["h"], organization: "o", ...times });
    return { authority: base64(authority.cert), cert: base64(server.cert) };
  };
  const good = pairOf("2025-12-01T00:00:00Z", "2026-12-01T00:00:00Z");
  const old = pairOf("2025-11-01T00:00:00Z", "2025-12-01T00:00:00Z");
  const soon = pairOf("2025-12-01T00:00:00Z", "2026-01-04T00:00:00Z");
  const ready = [
    { endpoints: [{ addresses: ["10.0.0.1"], conditions: { ready: true } }] },
  ] as unknown as readonly EndpointSlice[];
  const judge = (init: {
    bundle?: string;
    cert?: string | undefined;
    slices?: readonly EndpointSlice[];
    isThere?: boolean;
  }): string[] => {
    const { bundle = good.authority, cert, slices = ready, isThere = true } = init;
    const value = isThere
      ? { metadata: { name: "m" }, webhooks: [{ name: "w", clientConfig: { caBundle: bundle } }] }
      : undefined;
    const secret = { metadata: {}, data: cert === undefined ? {} : { "tls.crt": cert } } as unknown as Secret;
    return texts(
      judgeWebhooks({
        configurations: new Map([["m", { value }]]),
        endpoints: { value: slices },
        secret: { value: secret },
        now: NOW,
      }),
    );
  };
  assert.deepEqual(judge({ cert: good.cert }), [
    "ok: 1 configurations are there",
    "ok: nic-webhook-service has 1 ready endpoints",
    "ok: their certificate ends in 333 days, and the caBundles have signed it",
  ]);
  assert.match(judge({ isThere: false }).join(), /^warning: there is no m: pods with faulty NICs are stored/);
  assert.match(judge({ bundle: "", cert: good.cert })[0] ?? "", /^wrong: w of m has no caBundle/);
  assert.match(judge({ cert: good.cert, slices: [] })[0] ?? "", /^wrong: nic-webhook-service has no ready endpoint/);
  assert.match(judge({}).at(-1) ?? "", /^warning: their Secret has no certificate/);
  assert.match(judge({ cert: base64("x") }).at(-1) ?? "", /^wrong: tls\.crt of their Secret is not a certificate/);
  assert.match(
    judge({ cert: old.cert, bundle: old.authority }).at(-1) ?? "",
    /^wrong: their certificate is valid from/,
  );
  assert.match(
    judge({ cert: soon.cert, bundle: soon.authority }).at(-1) ?? "",
    /^warning: their certificate ends in 2 days/,
  );
  assert.match(
    judge({ cert: good.cert, bundle: old.authority }).at(-1) ?? "",
    /^wrong: the caBundle .* has not signed/,
  );
});

test("judgeClusterId: claims with an id that is not the cluster's uid, and how to move", () => {
  const claim = (id: string) => {
    const made = testClaim([READY_NIC]);
    return { ...made, metadata: { ...made.metadata, labels: { "isthmus.dev/cluster": id } } };
  };
  const uid = { value: "0b6f" };
  assert.equal(judgeClusterId({ value: [] }, uid).state, "ok");
  assert.equal(judgeClusterId({ value: [claim("0b6f")] }, uid).state, "ok");
  assert.equal(judgeClusterId({ value: [] }, { fault: "forbidden" }).state, "unknown");
  const moved = judgeClusterId({ value: [claim("0b6f"), claim("cluster-1")] }, uid);
  assert.match(moved.text, /^1 of 2 NicClaims have cluster-1, which another cluster can have too/);
  assert.match(
    moved.remedy ?? "",
    /^run nic-controller with --cluster-id=0b6f until .* nicctl gc --cluster-id=cluster-1 /,
  );
});

test("judgeAgents, judgeClaims: nodes without a nic-agent that is ready, and claims that wait too long", () => {
  const pod = (nodeName: string, isReady: boolean): Pod =>
    ({
      metadata: { name: `agent-${nodeName}` },
      spec: { nodeName, containers: [{ name: "c", command: ["/usr/bin/nic-agent"] }] },
      status: { conditions: [{ type: "Ready", status: isReady ? "True" : "False" }] },
    }) as unknown as Pod;
  const nodes = ["one", "two", "three", "four"].map((name) => ({ name, isUsed: name === "three" }));
  assert.deepEqual(texts(judgeAgents({ value: [pod("one", true), pod("two", false)] }, nodes)), [
    "ok: nic-agent is ready",
    "wrong: nic-agent is not ready, so no pod gets NICs",
    "wrong: no nic-agent runs there, and pods with NICs do",
    "warning: no nic-agent runs there",
  ]);
  assert.deepEqual(
    [judgeAgents({ value: [] }, nodes)[0]?.state, judgeAgents({ fault: "x" }, nodes)[0]?.state],
    ["warning", "unknown"],
  );
  const waiting = testClaim([{ name: "eth0", state: "Failed", reason: "IpInUse" }], { phase: "Failed" });
  assert.deepEqual(texts(judgeClaims({ value: [testClaim([READY_NIC]), waiting] }, NOW)), [
    "wrong: 1 of 2 are not active after two minutes: 1 IpInUse",
  ]);
  assert.deepEqual(texts(judgeClaims({ value: [testClaim([READY_NIC])] }, NOW)), [
    "ok: 1, none of which has waited for two minutes",
  ]);
});

test("judgeNode: nic-agent, database, bridge, the provider's agent, and the node's name at the provider", () => {
  const state: NicNode = { node: "n", claims: [], sandboxes: [], devices: [], switches: [] };
  const bridge = (isConnected: boolean) => ({
    name: "br-int",
    datapath: "system",
    controllers: [{ target: "tcp:127.0.0.1:6633", isConnected }],
  });
  const ovn = { "ovn-remote": "tcp:192.0.2.1:6642" };
  const whole: NodeReport = {
    agent: { value: state },
    ovsdb: "/db.sock",
    bridges: { value: [bridge(true)] },
    switchIds: {},
    flows: new Map([["br-int", { value: 62 }]]),
    integrationBridge: "br-int",
    host: { value: { node: "n", providerHost: "n.example" } },
    machine: ["n.example", "n"],
    claims: { value: [] },
  };
  const rows: readonly (readonly [change: Partial<NodeReport>, states: string, text: RegExp])[] = [
    [{}, "ok ok ok ok", /n\.example, is a name of this machine/],
    [{ agent: { fault: "no socket" } }, "wrong ok ok ok", /does not answer: no socket/],
    // A node without a switch is ready as long as no pod of it needs one, and then doctor only warns.
    [
      { bridges: { fault: "no server" } },
      "ok warning ok",
      /does not answer: no server; no pod here has or awaits NICs/,
    ],
    [{ bridges: { value: [] } }, "ok ok warning ok", /there is no integration bridge br-int; it has none; no pod here/],
    [
      { bridges: { fault: "no server" }, claims: { value: [testClaim([READY_NIC])] } },
      "ok wrong ok",
      /its database at \/db\.sock does not answer: no server remedy/m,
    ],
    [
      { bridges: { value: [] }, agent: { value: { ...state, claims: ["c"] } }, claims: { fault: "403" } },
      "ok ok wrong ok",
      /there is no integration bridge br-int; it has none remedy/m,
    ],
    [
      { bridges: { fault: "no server" }, agent: { fault: "no socket" } },
      "wrong wrong ok",
      /its database at \/db\.sock does not answer: no server remedy/m,
    ],
    [
      { bridges: { value: [bridge(false)] } },
      "ok ok wrong ok",
      /the provider's agent is dead: nobody answers at tcp:127\.0\.0\.1:6633/,
    ],
    [{ bridges: { value: [{ ...bridge(true), controllers: [] }] } }, "ok ok warning ok", /has no controller/],
    // OVN's controller uses the bridge's own socket, and makes the bridge itself.
    [
      { switchIds: ovn, bridges: { value: [{ ...bridge(true), controllers: [] }] } },
      "ok ok ok ok",
      /bridge br-int is set up for OVN/,
    ],
    [
      {
        switchIds: ovn,
        bridges: { value: [{ ...bridge(true), controllers: [] }] },
        flows: new Map([["br-int", { value: 0 }]]),
      },
      "ok ok ok wrong ok",
      /bridge br-int has no flows, .* remedy: start ovn-controller \(service ovn-host\), and look at its log: .*southbound/,
    ],
    [
      { switchIds: ovn, bridges: { value: [] } },
      "ok ok warning ok",
      /no integration bridge br-int; .* remedy: start the provider's agent \(ovn-controller\), which makes it/,
    ],
    [
      { switchIds: ovn, machine: ["other"] },
      "ok ok ok warning",
      /is not a name of this machine .* remedy: .*external_ids:hostname of table Open_vSwitch/,
    ],
    [
      { flows: new Map([["br-int", { value: 0 }]]) },
      "ok ok ok wrong ok",
      /bridge br-int has no flows, .* the provider's agent has made none since the switch started/,
    ],
    [
      { flows: new Map([["br-int", { fault: "nobody" }]]) },
      "ok ok ok unknown ok",
      /flows of bridge br-int cannot be counted: nobody/,
    ],
    [{ flows: new Map() }, "ok ok ok ok", /^/],
    [{ machine: ["other"] }, "ok ok ok warning", /n\.example, is not a name of this machine \(other\)/],
    [{ host: { fault: "403" } }, "ok ok ok unknown", /the Node cannot be read: 403/],
    [{ host: undefined }, "ok ok ok", /^/],
    [
      { machine: ["other"], claims: { value: [testClaim([{ ...READY_NIC, host: "n.example" }])] } },
      "ok ok ok ok",
      /ports are bound to the annotation .*, n\.example, and active/,
    ],
    [
      {
        claims: {
          value: [
            testClaim([{ ...READY_NIC, state: "InProgress", reason: "BindingFailed", message: "there is no agent" }]),
          ],
        },
      },
      "ok ok ok wrong",
      /the provider does not bind ports to the annotation isthmus\.dev\/provider-host, n\.example: there is no agent/,
    ],
  ];
  for (const [change, states, text] of rows) {
    const checks = judgeNode({ ...whole, ...change });
    assert.equal(checks.map((check) => check.state).join(" "), states, String(text));
    const told = checks.map(({ text: one, remedy }) => (remedy === undefined ? one : `${one} remedy: ${remedy}`));
    assert.match(told.join("\n"), text);
  }
});

test("doctorText: a line for each check with its remedy, and the sum", () => {
  assert.equal(
    doctorText([
      { state: "ok", subject: "a", text: "is well" },
      { state: "wrong", subject: "node b", text: "is not", remedy: "mend it" },
    ]),
    [
      "ok       a       is well",
      "wrong    node b  is not",
      "                 remedy: mend it",
      "2 checks: 1 ok, 1 wrong, 0 warnings, 0 unknown",
      "",
    ].join("\n"),
  );
});
