import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { createAuthority } from "#base/x509";
import { coilCrds } from "#kube/coil";
import { judgeSuiteCluster } from "./cluster.ts";
import type { ClusterFacts } from "./cluster-facts.ts";
import { lackingFields } from "./cluster-objects.ts";
import { FAULTS, type FaultCheck } from "./faults.ts";
import { judgeSuiteNode } from "./node.ts";
import type { NodeFacts } from "./node-facts.ts";
import { NEEDED_RIGHTS, type NeededRight, neededRights } from "./rights.ts";

const root = join(import.meta.dirname, "../../../..");
const NOW = Date.parse("2026-11-25T00:00:00Z");
const DAY = 86_400_000;

const NOTHING: NodeFacts = {
  marks: undefined,
  now: NOW,
  processes: [],
  cniDir: "/etc/cni/net.d",
  cni: { fault: "the folder does not exist" },
  notMounted: [],
  cniBinDir: "/opt/cni/bin",
  executables: [],
  sockets: [],
  forwarding: { ipv4: false, ipv6: false },
  rules: [],
  podDefaults: { tableId: 116, rulePriority: 2000 },
  networkd: undefined,
  rivals: [],
  serviceRanges: { value: [] },
  routesLocalnet: false,
  forward: undefined,
  input: { value: [] },
  guard: undefined,
  conntrack: undefined,
  translated: { value: [] },
  sourcePorts: { routers: 0, crowded: { value: [] } },
  uplinks: [],
  podLinks: [],
  ports: [],
  folders: [],
  lacking: ["nftables", "fou", "fou6", "ip6tnl"],
  certificates: [],
  clock: undefined,
};

const bad = (checks: readonly FaultCheck[]): readonly string[] =>
  checks.filter(({ state }) => state !== "ok").map(({ name, state, text }) => `${name} ${state}: ${text}`);

test("judgeSuiteNode: a machine without the suite has no findings, whatever its settings are", () => {
  assert.deepEqual(judgeSuiteNode({ ...NOTHING, conntrack: { count: 99, max: 100 }, routesLocalnet: true }), []);
});

test("judgeSuiteNode: a range of Services without a route, and a sysctl that another proxy has left, are named with the command", () => {
  const facts: NodeFacts = {
    ...NOTHING,
    processes: [{ program: "service-proxy", flags: [] }],
    forwarding: { ipv4: true, ipv6: undefined },
    lacking: [],
    serviceRanges: { value: [{ range: "10.96.0.0/12" }, { range: "fd00:96::/112", fault: "Network is unreachable" }] },
    routesLocalnet: true,
  };
  const checks = judgeSuiteNode(facts).filter(({ state }) => state !== "ok");
  assert.deepEqual(
    checks.map(({ name, state, subject }) => `${name} ${state} ${subject}`),
    ["service-route wrong fd00:96::/112", "route-localnet warning net.ipv4.conf.all.route_localnet"],
  );
  assert.match(
    checks[0]?.remedy ?? "",
    /^ip -6 route add default via GATEWAY, or ip -6 route add fd00:96::\/112 dev UPLINK/,
  );
  assert.match(checks[1]?.remedy ?? "", /^sysctl -w net\.ipv4\.conf\.all\.route_localnet=0/);
  assert.deepEqual(bad(judgeSuiteNode({ ...facts, serviceRanges: { fault: "busy" }, routesLocalnet: false })), [
    "service-route unknown: busy",
  ]);
});

test("judgeSuiteNode: without a configuration of the suite, pods get no network; coild behind another plugin needs no rule", () => {
  const facts = {
    ...NOTHING,
    processes: [{ program: "coild", flags: ["--enable-ipam=false"] }],
    forwarding: { ipv4: true, ipv6: undefined },
  };
  assert.deepEqual(bad(judgeSuiteNode({ ...facts, cni: { value: [{ file: "a.conf", plugins: [] }] } })), [
    "cni-order wrong: no configuration names a plugin of the suite: pods get no network of it; the runtime uses a.conf (no plugin)",
  ]);
  const cilium = { file: "05-cilium.conflist", plugins: [{ type: "cilium-cni", socket: undefined }] };
  assert.match(
    bad(judgeSuiteNode({ ...facts, cni: { value: [cilium] } }))[0] ?? "",
    /uses 05-cilium\.conflist \(cilium-cni\)$/,
  );
  assert.deepEqual(bad(judgeSuiteNode(facts)), ["cni-order warning: cannot be read: the folder does not exist"]);
});

test("judgeSuiteNode: what the pod of the command does not mount is unknown, and no fault of the node", () => {
  const processes = [{ program: "coild", flags: ["--enable-ipam=false"] }];
  const notMounted = ["/etc/cni/net.d", "/opt/cni/bin"];
  const found = judgeSuiteNode({ ...NOTHING, processes, notMounted, forwarding: { ipv4: true, ipv6: true } });
  assert.deepEqual(
    found.filter(({ state }) => state !== "ok").map(({ name, state, subject }) => `${state} ${name} ${subject}`),
    ["unknown cni-order /etc/cni/net.d", "unknown cni-executable /opt/cni/bin"],
  );
});

test("judgeSuiteNode: a filter that drops what is forwarded for pods is named with the line to add; one that cannot be judged is unknown", () => {
  const finding = (direction: "from" | "to", outcome: "accepted" | "dropped" | "maybe", filter = "f") => ({
    ...{ filter, family: 4 as const, direction, outcome, by: "its policy drop" },
    allow: `allow ${direction}`,
  });
  const found = (...value: readonly ReturnType<typeof finding>[]) =>
    judgeSuiteNode({ ...NOTHING, forward: { value } }).map(
      ({ name, state, subject, text, remedy = "" }) => `${name} ${state}: ${subject} ${text} | ${remedy}`,
    );
  assert.deepEqual(found(finding("from", "accepted")), [
    "forward-filter ok: filters of forwarded packets let packets of pods pass | ",
  ]);
  assert.match(
    found(finding("from", "dropped"), finding("to", "dropped"))[0] ?? "",
    /^forward-filter wrong: f drops packets from and to pods \(IPv4\) by its policy drop \| allow from; allow to; for all blocks/,
  );
  assert.deepEqual(
    found(finding("to", "maybe"), finding("from", "dropped", "g")).map((text) => text.slice(0, 24)),
    ["forward-filter unknown: ", "forward-filter wrong: g "],
  );
  const [broken] = judgeSuiteNode({ ...NOTHING, forward: { fault: "no nft" } });
  assert.deepEqual([broken?.state, broken?.text], ["unknown", "cannot be read: no nft"]);
});

test("judgeSuiteNode: an MTU below that of IPv6 is named, of the uplink or of the setting", () => {
  const found = (flags: readonly string[], mtu: number) =>
    judgeSuiteNode({ ...NOTHING, processes: [{ program: "coild", flags }], uplinks: [{ name: "eth0", mtu }] })
      .filter(({ name }) => name === "mtu")
      .map(({ state, subject, text, remedy }) => `${state}: ${subject} ${text} | ${remedy}`);
  assert.match(
    found([], 1200)[0] ?? "",
    /^warning: uplink eth0 is 1200, and IPv6 needs at least 1280: .* \| ip link set eth0 mtu 1280; or coild --mtu=1280$/,
  );
  assert.match(found(["--mtu=1270"], 1500)[0] ?? "", /^warning: --mtu of coild is 1270.* \| coild --mtu=1280$/);
  for (const flags of [[], ["--mtu=0"], ["--mtu=1280"]]) assert.deepEqual(found(flags, 1280), []);
  assert.deepEqual(found(["--enable-ipam=false"], 1200), []);
});

test("judgeSuiteNode: a systemd-networkd that removes rules or routes of others is named where programs have some", () => {
  const found = (networkd: NodeFacts["networkd"], ...programs: readonly string[]) =>
    judgeSuiteNode({ ...NOTHING, networkd, processes: programs.map((program) => ({ program, flags: [] })) })
      .filter(({ name }) => name === "networkd")
      .map(({ state, text, remedy = "" }) => `${state}: ${text} | ${remedy}`);
  const both = { value: { rules: true, routes: true } };
  assert.deepEqual(found(both, "service-proxy", "proxy-agent"), []);
  assert.deepEqual(found(undefined, "coild"), []);
  assert.deepEqual(found({ value: { rules: false, routes: false } }, "coild"), [
    "ok: leaves rules and routes of others alone | ",
  ]);
  assert.match(
    found(both, "coild", "coil-router", "uplink-proxy")[0] ?? "",
    /^warning: removes rules and routes of others .* those of coil-router, coild, uplink-proxy too.*\\nManageForeignRoutingPolicyRules=no\\nManageForeignRoutes=no\\n/,
  );
  const [routes = ""] = found({ value: { rules: false, routes: true } }, "coil-router");
  assert.match(routes, /^warning: removes routes of others/);
  assert.doesNotMatch(routes, /PolicyRules/);
  assert.deepEqual(found({ fault: "may not be read" }, "coild"), ["unknown: may not be read | "]);
});

test("judgeSuiteNode: who checks the sources of pods, and which pods have packets that are refused", () => {
  const found = (flags: readonly string[], rest: Partial<Parameters<typeof judgeSuiteNode>[0]> = {}) =>
    judgeSuiteNode({ ...NOTHING, processes: [{ program: "coild", flags }], ...rest })
      .filter(({ name }) => name === "source-guard")
      .map(({ state, subject, text }) => `${state}: ${subject} ${text}`);
  const behind = (type: string) => ({
    cni: { value: [{ file: "10.conflist", plugins: [type, "coil"].map((one) => ({ type: one, socket: undefined })) }] },
  });
  assert.deepEqual(found(["--enable-ipam=false"], behind("ptp")), [
    "warning: sources of pods are checked by nobody: coild is behind ptp, which lets pods send with any source",
  ]);
  assert.match(found(["--enable-ipam=false"], behind("calico"))[0] ?? "", /^unknown: .*are up to calico/);
  assert.match(found(["--source-guard=off"])[0] ?? "", /^warning: .*are not checked \(--source-guard=off\)/);
  const tables = ["inet", "arp"];
  assert.match(
    found([], { guard: { value: { tables: ["inet"], refusals: [] } } })[0] ?? "",
    /^wrong: .*tables .* are missing/,
  );
  assert.deepEqual(found([], { guard: { value: { tables, refusals: [] } } }), ["ok: sources of pods are checked"]);
  assert.deepEqual(found([], { guard: { fault: "no" } }), ["unknown: sources of pods cannot be read: no"]);
  const refusals = [
    { reason: "source", source: "10.9.9.9", link: "veth1", pod: ["10.1.0.2"] },
    { reason: "outside", source: "10.1.0.2", link: "eth0", pod: [] },
    { reason: "link-local", source: "fe80::1", link: "veth1", pod: ["10.1.0.2"] },
  ];
  assert.deepEqual(found([], { guard: { value: { tables, refusals } } }), [
    "warning: veth1 (pod 10.1.0.2) packets with the source 10.9.9.9 (source), which is not the pod's, are dropped",
    "warning: eth0 packets with the source 10.1.0.2 of a pod of this node come in by this link: they are dropped",
    "warning: veth1 (pod 10.1.0.2) link-local packets of IPv6 from fe80::1 are dropped",
  ]);
  assert.match(
    found(["--source-guard=count"], { guard: { value: { tables, refusals } } })[0] ?? "",
    /would be dropped/,
  );
});

test("judgeSuiteNode: another network that comes first is wrong; what Multus calls is not known", () => {
  const first = (type: string) =>
    judgeSuiteNode({
      ...NOTHING,
      forwarding: { ipv4: true, ipv6: undefined },
      cni: {
        value: [
          { file: "00-a.conf", plugins: [{ type, socket: undefined }] },
          { file: "10-coil.conflist", plugins: [{ type: "coil", socket: undefined }] },
        ],
      },
    }).find(({ name }) => name === "cni-order")?.state;
  assert.deepEqual(["bridge", "multus", "multus-shim", "coil"].map(first), ["wrong", "unknown", "unknown", "ok"]);
});

test("judgeSuiteNode: IPv6 forwarding that is off is wrong where coild sets it, and a warning where a cluster may have IPv4 alone", () => {
  const of = (program: string, ...flags: readonly string[]) =>
    bad(
      judgeSuiteNode({
        ...NOTHING,
        cni: { value: [{ file: "a.conf", plugins: [{ type: "coil", socket: undefined }] }] },
        rules: [{ family: 4, priority: 2000, table: 116, action: "lookup" }],
        lacking: [],
        processes: [{ program, flags }],
        forwarding: { ipv4: true, ipv6: false },
      }),
    );
  assert.deepEqual(of("coild"), ["forwarding wrong: is off: the node drops packets of pods"]);
  for (const found of [of("coild", "--enable-ipam=false"), of("service-proxy")])
    assert.match(found.join("\n"), /^forwarding warning: is off: .*right where no pod has it$/);
});

test("judgeSuiteNode: what the kernel lacks is named for programs that need it", () => {
  const flags = ["--tunnel-driver=fou"];
  const facts = {
    ...NOTHING,
    forwarding: { ipv4: true, ipv6: true },
    cni: { value: [{ file: "a.conf", plugins: [{ type: "coil", socket: undefined }] }] },
  };
  const rules = [{ family: 4 as const, priority: 2000, table: 116, action: "lookup" as const }];
  const coild = judgeSuiteNode({ ...facts, rules, processes: [{ program: "coild", flags }] });
  assert.deepEqual(bad(coild), ["kernel wrong: the kernel lacks fou, fou6, ip6tnl"]);
  assert.match(coild.find(({ name }) => name === "kernel")?.remedy ?? "", /^modprobe -a fou fou6 ip6_tunnel; or/);
  const proxy = judgeSuiteNode({ ...facts, processes: [{ program: "service-proxy", flags: [] }] });
  assert.deepEqual(bad(proxy), ["kernel wrong: the kernel lacks nftables"]);
});

test("judgeSuiteNode: rules before that of the pods are wrong only if they take all packets", () => {
  const rule = { family: 4 as const, table: 200, action: "lookup" as const };
  const own = { ...rule, priority: 2000, table: 116 };
  const facts = {
    ...NOTHING,
    cni: { value: [{ file: "a", plugins: [{ type: "coil", socket: undefined }] }] },
    forwarding: { ipv4: true, ipv6: undefined },
  };
  const of = (...rules: NodeFacts["rules"]) =>
    bad(judgeSuiteNode({ ...facts, rules, processes: [{ program: "coild", flags: [] }] }));
  assert.deepEqual(
    of(
      { ...rule, priority: 0, table: 255 },
      { ...rule, priority: 5, fwmark: 1 },
      { ...rule, priority: 6, action: "nop" },
      { ...rule, priority: 7, table: 0 },
      own,
    ),
    [],
  );
  assert.deepEqual(of({ ...rule, priority: 5, action: "blackhole", table: 0 }, own), [
    "rule-order wrong: rule 5 is blackhole for all packets, before rule 2000 of the pods",
  ]);
  assert.match(
    of({ ...rule, priority: 3000 })[0] ?? "",
    /^rule-order wrong: there is no rule 2000 that looks up table 116/,
  );
});

test("judgeSuiteNode: certificates by their time; a clock far apart is wrong, one a little apart a warning", () => {
  const cert = (from: number, to: number): string =>
    createAuthority({ commonName: "x", notBefore: NOW + from * DAY, notAfter: NOW + to * DAY }).cert;
  const of = (pem: string) =>
    bad(
      judgeSuiteNode({ ...NOTHING, certificates: [{ program: "proxy-agent", path: "/c", pem: { value: pem } }] }),
    )[0]?.split(" at ")[0];
  assert.equal(of(cert(-2, 30)), undefined);
  assert.equal(of(cert(-2, -1)), "certificate wrong: expired");
  assert.equal(of(cert(-2, 3)), "certificate warning: ends in 3 days,");
  assert.match(of(cert(1, 30)) ?? "", /^certificate wrong: is not valid before/);
  assert.equal(of("x"), "certificate wrong: is not a certificate in PEM");
  const clock = (value: number) => bad(judgeSuiteNode({ ...NOTHING, clock: { value } }));
  assert.deepEqual(
    [clock(2000), clock(-8000), clock(60_000)],
    [[], ["clock warning: is 8 s behind the API server's"], ["clock wrong: is 60 s ahead of the API server's"]],
  );
});

const NO_CLUSTER: ClusterFacts = {
  now: NOW,
  instances: { value: [] },
  nodes: { value: [] },
  crds: { value: [] },
  webhooks: { value: [] },
  pools: { value: undefined },
  blocks: { value: undefined },
  requests: { value: undefined },
  egresses: { value: undefined },
  routers: { value: [] },
  leases: { value: [] },
  refusedClients: { value: [] },
  sourceRanges: { value: [] },
  policies: { value: { policies: 0, enforcers: [], k3sNodes: 0 } },
  lackedRights: { value: [] },
};

test("judgeSuiteCluster: a cluster without the suite has no findings; what may not be read is unknown", () => {
  assert.deepEqual(judgeSuiteCluster(NO_CLUSTER, coilCrds), []);
  const forbidden = { fault: 'nodes is forbidden: User "bob" cannot list resource "nodes"' };
  const [first] = judgeSuiteCluster({ ...NO_CLUSTER, nodes: forbidden, blocks: { value: [] } }, coilCrds);
  assert.deepEqual(
    [first?.name, first?.state, first?.text],
    ["stray-block", "unknown", `the Nodes cannot be read: ${forbidden.fault}`],
  );
});

test("judgeSuiteCluster: pods that an Egress refuses are named, and why; without an Egress nothing is said", () => {
  const egresses = { value: [{ metadata: { name: "nat", namespace: "internet" }, status: { replicas: 1 } } as never] };
  const refusedClients = { value: [{ pod: "tenant/web", why: "ask those who manage Egress internet/nat" }] };
  const [found] = judgeSuiteCluster({ ...NO_CLUSTER, egresses, refusedClients }, coilCrds).filter(
    ({ name }) => name === "egress-refused",
  );
  assert.deepEqual(
    [found?.state, found?.text, found?.remedy],
    [
      "warning",
      "1 may not use an Egress that they name: tenant/web",
      "tenant/web: ask those who manage Egress internet/nat",
    ],
  );
  assert.deepEqual(judgeSuiteCluster({ ...NO_CLUSTER, refusedClients }, coilCrds), []);
});

test("judgeSuiteCluster: lists of sources of one family, and those that cannot be read, are named where service-proxy runs", () => {
  const fault = (service: string, isOpen: boolean) => ({ service, note: "add a range", isOpen });
  const sourceRanges = { value: [fault("a/web", true), fault("a/api", false), fault("b/web", true)] };
  const found = (facts: object) =>
    judgeSuiteCluster({ ...NO_CLUSTER, ...facts }, coilCrds)
      .filter(({ name }) => name === "source-ranges")
      .map(({ state, text, remedy = "" }) => `${state}: ${text} | ${remedy}`);
  const instances = { value: [{ program: "service-proxy", isReady: true } as never] };
  assert.deepEqual(found({ sourceRanges }), []);
  assert.deepEqual(found({ instances }), ["ok: each list of sources is what it seems to be | "]);
  assert.deepEqual(found({ instances, sourceRanges }), [
    "warning: 2 let in everybody of the family that has no range: a/web, b/web | a/web: add a range",
    "warning: 1 have an entry that cannot be read and allows nobody: a/api | a/api: add a range",
  ]);
  assert.deepEqual(found({ instances, sourceRanges: { fault: "services is forbidden" } }), [
    "unknown: cannot be read: services is forbidden | ",
  ]);
});

test("judgeSuiteCluster: NetworkPolicies that nobody enforces are a warning where coild makes the pods' network", () => {
  const policies = { value: { policies: 2, enforcers: [], k3sNodes: 0 } };
  const instances = { value: [{ program: "coild", isReady: true } as never] };
  const found = (facts: object) =>
    judgeSuiteCluster({ ...NO_CLUSTER, ...facts }, coilCrds)
      .filter(({ name }) => name === "network-policy")
      .map(({ state, text }) => `${state}: ${text}`);
  assert.deepEqual(found({ policies }), []);
  assert.deepEqual(found({ instances }), ["ok: there are none"]);
  assert.match(found({ instances, policies })[0] ?? "", /^warning: 2 are there, and nobody enforces them/);
  assert.match(found({ instances, policies: { fault: "forbidden" } })[0] ?? "", /^unknown: cannot be read: forbidden/);
});

test("judgeSuiteCluster: a type that is missing, and one that is older; the schemas of this version lack nothing", () => {
  for (const { spec } of coilCrds) {
    const schema = spec.versions[0]?.schema.openAPIV3Schema ?? assert.fail();
    assert.deepEqual(lackingFields(schema, schema), []);
  }
  const [first] = coilCrds;
  const crds = { value: [first as never] };
  const names = bad(judgeSuiteCluster({ ...NO_CLUSTER, crds }, coilCrds));
  assert.deepEqual(names, ["crd wrong: is missing", "crd wrong: is missing", "crd wrong: is missing"]);
});

test("judgeSuiteCluster: a pool and a type that are being deleted are wrong, however many blocks are free", () => {
  const deletionTimestamp = "2026-11-24T00:00:00Z";
  const pool = {
    metadata: { name: "default", uid: "u", deletionTimestamp },
    spec: { blockSizeBits: 5, subnets: [{ ipv4: "10.0.0.0/16" }] },
  } as never;
  const [first, ...others] = coilCrds;
  const status = { conditions: [{ type: "Terminating", status: "True" }] };
  const crds = { value: [{ ...first, metadata: { ...first?.metadata }, status }, ...others] as never };
  const found = judgeSuiteCluster(
    { ...NO_CLUSTER, crds, pools: { value: [pool] }, blocks: { value: [] }, requests: { value: [] } },
    coilCrds,
  );
  assert.deepEqual(bad(found), [
    "crd wrong: is being deleted (Terminating): its objects go, and no new ones can be made",
    "pool wrong: is being deleted: it gives no more blocks, and goes with the last of 0",
  ]);
});

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames?: readonly string[];
  readonly verbs: readonly string[];
}

test("neededRights: the manifests of rights give every one of them", () => {
  const rules = new Map<string, readonly Rule[]>();
  const electionRoles = [
    "coil-leader-election",
    "coil-ipam-leader",
    "coil-egress-leader",
    "nic-controller-leader-election",
  ];
  const files = ["pods/rbac.yaml", "pods/egress.yaml", "service-proxy/rbac.yaml", "nics/rbac.yaml", "nics/agent.yaml"];
  for (const file of files)
    for (const document of parseAllDocuments(readFileSync(join(root, "deploy", file), "utf8"))) {
      const { kind, metadata, rules: own } = document.toJS();
      if (kind === "ClusterRole" || kind === "Role") rules.set(metadata.name, own);
    }
  const gives = (role: string, { group, resource, verb, name }: NeededRight): boolean =>
    (rules.get(role) ?? []).some(
      (rule) =>
        rule.apiGroups.includes(group) &&
        rule.resources.includes(resource) &&
        rule.verbs.includes(verb) &&
        (rule.resourceNames === undefined || (name !== undefined && rule.resourceNames.includes(name))),
    );
  const roles: Readonly<Record<string, string>> = { "service-proxy": "isthmus-service-proxy" };
  for (const [program, rights] of Object.entries(NEEDED_RIGHTS))
    for (const right of rights)
      assert.ok(
        right.namespace === undefined
          ? gives(roles[program] ?? program, right)
          : electionRoles.some((role) => gives(role, right)),
        `${program}: ${JSON.stringify(right)}`,
      );
  assert.equal(neededRights({ program: "coild", flags: ["--enable-ipam=false"] }).length, 3);
});

test("FAULTS: docs/guides/doctor.md has a section for each fault, with what is seen and the fix, and no other", () => {
  const page = readFileSync(join(root, "docs/guides/doctor.md"), "utf8");
  const sections = page.split(/^### /m).slice(1);
  assert.deepEqual(
    sections.map((text) => text.split("\n")[0]),
    FAULTS.map(({ name }) => name),
  );
  for (const [at, { name, title, sees, fix }] of FAULTS.entries()) {
    const text = (sections[at] ?? "").replaceAll(/\s+/g, " ");
    for (const part of [title, sees, fix]) assert.ok(text.includes(part), `${name}: ${part}`);
    assert.match(text, /`+text /, `${name}: an example of what doctor prints`);
  }
});

test("judgeSuiteNode: a filter before a port that others must reach is named, with the port, who needs it, and the line to add", () => {
  const processes = [
    { program: "service-proxy", flags: [] },
    { program: "proxy-server", flags: ["--uds-name=/run/konnectivity.sock", "--agent-port", "8191"] },
    { program: "coil-egress-controller", flags: ["--webhook-addr=127.0.0.1:9444"] },
    { program: "coil-ipam-controller", flags: ["--webhook-addr=none"] },
  ];
  const at = { filter: "nftables table inet filter, chain input", by: "its policy drop" } as const;
  const line = (port: number) => `nft insert rule inet filter input tcp dport ${port} accept`;
  const finding = (port: number, family: 4 | 6, outcome: "accepted" | "dropped" | "maybe") => {
    return { ...at, port, family, outcome, allow: line(port) };
  };
  const judge = (...value: readonly ReturnType<typeof finding>[]) =>
    judgeSuiteNode({ ...NOTHING, processes, input: { value } }).filter(({ name }) => name === "input-filter");
  const [health, agents, ...more] = judge(
    finding(10_256, 4, "dropped"),
    finding(10_256, 6, "dropped"),
    finding(8191, 4, "maybe"),
    finding(8191, 6, "accepted"),
  );
  assert.equal(more.length, 0);
  assert.equal(health?.state, "warning");
  assert.match(
    String(health?.text),
    /TCP port 10256 of service-proxy \(IPv4 and IPv6\) by its policy drop: load balancers ask/,
  );
  assert.ok(health !== undefined && "remedy" in health && String(health.remedy).startsWith(line(10_256)));
  assert.equal(agents?.state, "unknown");
  assert.deepEqual(
    judge().map(({ state, text }) => [state, text]),
    [["ok", "let packets to 10256, 8191 pass"]],
  );
  assert.deepEqual(
    judgeSuiteNode(NOTHING).filter(({ name }) => name === "input-filter"),
    [],
  );
});

test("judgeSuiteNode: a router without common source ports to a destination is named with the busiest clients, where there is a router", () => {
  const crowded = [
    { egress: "internet/nat", destination: "tcp 203.0.113.9:443", clients: ["10.64.1.5 (32760)", "10.64.1.7 (504)"] },
  ];
  const of = (sourcePorts: NodeFacts["sourcePorts"]): string[] =>
    judgeSuiteNode({ ...NOTHING, sourcePorts })
      .filter(({ name }) => name === "egress-ports")
      .map(({ state, text }) => `${state} ${text}`);
  assert.deepEqual(of({ routers: 2, crowded: { value: crowded } }), [
    "warning has no common source port left to tcp 203.0.113.9:443; most flows have 10.64.1.5 (32760), 10.64.1.7 (504)",
  ]);
  assert.deepEqual(of({ routers: 2, crowded: { value: [] } }), ["ok the common source ports of 2 suffice"]);
  assert.match(of({ routers: 1, crowded: { fault: "not permitted" } })[0] ?? "", /^unknown /);
  assert.deepEqual(of({ routers: 0, crowded: { value: [] } }), []);
});

test("judgeSuiteNode: packets of clients that leave with another source are named with both addresses, where coild runs", () => {
  const translated = { value: [{ source: "10.64.0.7", leavesAs: "192.0.2.1" }] };
  const found = judgeSuiteNode({ ...NOTHING, processes: [{ program: "coild", flags: [] }], translated });
  const of = found.filter(({ name }) => name === "egress-translated").map(({ state, text }) => `${state} ${text}`);
  assert.deepEqual(of, [
    "wrong packets of 1 leave with another source, so no router takes them: those of 10.64.0.7 as 192.0.2.1",
  ]);
  const well = judgeSuiteNode({ ...NOTHING, processes: [{ program: "coild", flags: [] }] });
  assert.equal(well.find(({ name }) => name === "egress-translated")?.state, "ok");
  assert.ok(judgeSuiteNode({ ...NOTHING, translated }).every(({ name }) => name !== "egress-translated"));
});
