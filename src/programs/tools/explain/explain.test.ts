import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { parseFlags } from "#base/config";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { ExplainError, type Explanation, explainPacket, explanationText, parseQuestion } from "#features/service-proxy";
import {
  type ConfigMap,
  type Draft,
  type KubeApi,
  KubeClient,
  KubeError,
  loadKubeConfig,
  resources,
} from "#kube/client";
import { type ApiServer, type SeedObject, startApiServer } from "#lab/api-server";
import { FROM_SOURCE } from "#test/from-source";
import { serviceProxyConfig, serviceProxyFlags } from "../../shared/service-proxy-config/index.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-explain-"));
const kubeconfig = join(folder, "kubeconfig");
let server: ApiServer;
let client: KubeClient;

before(async () => {
  server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    serviceRanges: {
      cidrs: [Cidr.parse("10.96.0.0/16"), Cidr.parse("fd00:96::/112")],
      nodePorts: { first: 30_000, last: 32_767 },
    },
    log: nullLogger,
    clock: systemClock,
  });
  writeFileSync(kubeconfig, server.kubeconfig());
  client = new KubeClient(await loadKubeConfig({ path: kubeconfig, clock: systemClock }), { clock: systemClock });
  server.seed(OBJECTS);
});
after(async () => {
  await client.close();
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

const node = (name: string, address: string): SeedObject => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name },
  status: { addresses: [{ type: "InternalIP", address }] },
});

const pod = (name: string, nodeName: string, ip: string, spec: object = {}): SeedObject => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "default" },
  spec: { nodeName, containers: [{ name: "main", image: "x" }], ...spec },
  status: { podIP: ip, podIPs: [{ ip }] },
});

const service = (name: string, clusterIP: string, spec: object = {}, status: object = {}): SeedObject => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name, namespace: "default" },
  spec: {
    clusterIP,
    clusterIPs: [clusterIP],
    ipFamilies: [clusterIP.includes(":") ? "IPv6" : "IPv4"],
    ports: [{ name: "http", port: 80, protocol: "TCP", targetPort: 8080 }],
    type: "ClusterIP",
    ...spec,
  },
  status,
});

const slice = (name: string, addresses: readonly (readonly [string, string, string])[]): SeedObject => ({
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { name: `${name}-1`, namespace: "default", labels: { "kubernetes.io/service-name": name } },
  addressType: addresses[0]?.[0].includes(":") === true ? "IPv6" : "IPv4",
  ports: [{ name: "http", port: 8080, protocol: "TCP" }],
  endpoints: addresses.map(([address, nodeName, name_]) => ({
    addresses: [address],
    nodeName,
    targetRef: { kind: "Pod", namespace: "default", name: name_ },
    conditions: { ready: true },
  })),
});

const many = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

const LOCAL = { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 32_000 };
const OBJECTS: readonly SeedObject[] = [
  node("node-a", "198.51.100.11"),
  node("node-b", "198.51.100.12"),
  pod("web-a", "node-a", "10.1.0.5"),
  pod("web-b", "node-b", "10.1.1.7"),
  pod("agent", "node-a", "198.51.100.11", { hostNetwork: true }),
  service("web", "10.96.0.10", {
    type: "NodePort",
    ports: [{ name: "http", port: 80, protocol: "TCP", targetPort: 8080, nodePort: 30_080 }],
  }),
  slice("web", [
    ["10.1.0.5", "node-a", "web-a"],
    ["10.1.1.7", "node-b", "web-b"],
  ]),
  service("empty", "10.96.0.20"),
  service("six", "fd00:96::10"),
  slice("six", [["fd00:1::5", "node-a", "web-a"]]),
  service(
    "front",
    "10.96.0.30",
    {
      ...LOCAL,
      loadBalancerSourceRanges: ["203.0.113.0/24"],
      ports: [{ name: "http", port: 80, protocol: "TCP", targetPort: 8080, nodePort: 30_081 }],
    },
    { loadBalancer: { ingress: [{ ip: "198.51.100.200" }] } },
  ),
  slice("front", [["10.1.0.5", "node-a", "web-a"]]),
  service("taker", "10.96.0.40", {
    externalIPs: ["10.1.1.7", "198.51.100.11", "198.51.100.12"],
    ports: [
      { name: "http", port: 81, protocol: "TCP", targetPort: 8080 },
      { name: "kubelet", port: 10_250, protocol: "TCP", targetPort: 8080 },
    ],
  }),
  slice("taker", [["10.1.0.5", "node-a", "web-a"]]),
  service("huge", "10.96.0.50", { externalIPs: many(2000).map((at) => `203.0.113.${at % 250}`) }),
  slice(
    "huge",
    many(1100).map((at) => [`10.1.${8 + (at >> 8)}.${at & 255}`, "node-b", `huge-${at}`]),
  ),
];

/** `flags` as the proxy's; the words are the question. */
async function ask(
  words: string,
  flags: readonly string[] = [],
  nodeName = "node-a",
  api: KubeApi = client,
): Promise<Explanation> {
  const values = parseFlags(serviceProxyFlags, ["--cluster-cidr=10.1.0.0/16", ...flags]).values;
  return explainPacket(api, parseQuestion(words.split(" ")), {
    config: serviceProxyConfig({ ...values, hostnameOverride: nodeName }),
    followsPod: true,
    localAddresses: [IpAddress.parse("198.51.100.99")],
    signal: AbortSignal.timeout(10_000),
  });
}

/** With what kube-proxy's role allows: no pods, and Services by lists alone. */
class ProxysClient extends KubeClient {
  override async get(...args: Parameters<KubeClient["get"]>): Promise<never> {
    throw new KubeError("forbidden", `cannot get ${args[0].plural}`);
  }
}

/** `10.1.0.5 M`: where it may arrive, with M where it is masqueraded. */
const arrivals = ({ arrivals: all }: Explanation): string[] =>
  all.map(({ address, masqueraded }) => `${address}${masqueraded ? " M" : ""}`).sort();

test("explain: a cluster IP goes to every endpoint, by the element of the Service; outside clients and the node are masqueraded, pods are not", async () => {
  const outside = await ask("outside 10.96.0.10 80");
  assert.deepEqual([outside.outcome, outside.service], ["translated", "default/web:http/TCP"]);
  assert.deepEqual(arrivals(outside), ["10.1.0.5 M", "10.1.1.7 M"]);
  assert.equal(outside.decidedBy?.set, "service-ips");
  assert.equal(outside.decidedBy?.element, "10.96.0.10 . tcp . 80 : goto lb-2");
  assert.match(outside.decidedBy?.rule ?? "", /dnat .* map @eps/);
  assert.deepEqual(
    outside.arrivals.map(({ node: at, pod: name }) => [at, name]),
    [
      ["node-a", "default/web-a"],
      ["node-b", "default/web-b"],
    ],
  );
  // A pod that draws itself is masqueraded: else it would answer itself.
  assert.deepEqual(arrivals(await ask("pod:default/web-a service:default/web 80/tcp")), ["10.1.0.5 M", "10.1.1.7"]);
  assert.deepEqual(arrivals(await ask("node 10.96.0.10 80")), ["10.1.0.5 M", "10.1.1.7 M"]);
});

test("explain: the default node is the sender's; for another node the answer has a note", async () => {
  assert.equal((await ask("pod:default/web-b 10.96.0.10 80")).node, "node-b");
  const pinned = await explainPacket(client, parseQuestion(["pod:default/web-b", "10.96.0.10", "80"]), {
    config: serviceProxyConfig({ ...parseFlags(serviceProxyFlags, []).values, hostnameOverride: "node-a" }),
    followsPod: false,
    localAddresses: [],
    signal: AbortSignal.timeout(10_000),
  });
  assert.equal(pinned.node, "node-a");
  assert.match(pinned.notes.join("\n"), /the pod is on node node-b/);
  assert.match(pinned.notes.join("\n"), /packets of pods cannot be recognized: pass the proxy's --cluster-cidr/);
});

test("explain: a pod in the node's network sends as the node", async () => {
  const { from, steps } = await ask("pod:default/agent 10.96.0.10 80");
  assert.equal(from, "pod default/agent in the node's network");
  assert.equal(steps[0]?.chain, "filter-output-pre-dnat");
});

test("explain: a Service without endpoints and an unused port are rejected, an unused address is dropped", async () => {
  const empty = await ask("outside 10.96.0.20 80");
  assert.deepEqual([empty.outcome, empty.service], ["rejected", "default/empty:http/TCP"]);
  assert.deepEqual([empty.decidedBy?.set, empty.decidedBy?.chain], ["noep", "reject-chain"]);
  assert.match(empty.notes.join("\n"), /default\/empty:http\/TCP has 0 endpoints/);
  const port = await ask("outside 10.96.0.10 81");
  assert.deepEqual(
    [port.outcome, port.decidedBy?.set, port.decidedBy?.element],
    ["rejected", "cluster-ips", "10.96.0.10"],
  );
  assert.match(port.notes.join("\n"), /Service default\/web has this cluster IP, and these ports: 80\/TCP/);
  const nobody = await ask("outside 10.96.0.99 80");
  assert.deepEqual(
    [nobody.outcome, nobody.decidedBy?.set, nobody.decidedBy?.element],
    ["dropped", "service-cidrs", "10.96.0.0/16"],
  );
});

test("explain: a NodePort works at the addresses of the proxy's flags, and the answer names them", async () => {
  assert.equal((await ask("outside 198.51.100.11 30080")).outcome, "translated");
  const elsewhere = await ask("outside 198.51.100.99 30080");
  assert.equal(elsewhere.outcome, "untouched");
  assert.match(
    elsewhere.notes.join("\n"),
    /30080 is a NodePort of default\/web:http\/TCP, accepted on 198\.51\.100\.11 \(/,
  );
  assert.equal(
    (await ask("outside 198.51.100.99 30080", ["--nodeport-addresses=198.51.100.0/24"])).outcome,
    "translated",
  );
  assert.equal((await ask("outside 198.51.100.99 30080", ["--nodeport-addresses=0.0.0.0/0"])).outcome, "translated");
});

test("explain: source ranges and policy Local decide by sender and node", async () => {
  const stranger = await ask("outside 198.51.100.200 80");
  assert.deepEqual([stranger.outcome, stranger.decidedBy?.chain], ["dropped", "firewall"]);
  assert.equal(stranger.service, "default/front:http/TCP");
  const client_ = await ask("203.0.113.9 198.51.100.200 80");
  assert.deepEqual(arrivals(client_), ["10.1.0.5"]);
  const other = await ask("203.0.113.9 198.51.100.200 80", [], "node-b");
  assert.deepEqual([other.outcome, other.decidedBy?.element], ["dropped", "198.51.100.200 . tcp . 80 : goto extl-0"]);
});

test("explain: the answer says why a Service does not get an address, and what depends on the node's sockets", async () => {
  const notes = async (words: string, ...flags: string[]): Promise<string> =>
    (await ask(words, flags)).notes.join("; ");
  assert.match(await notes("outside 10.1.1.7 81"), /default\/taker .*does not get it: .*the pods \(10\.1\.0\.0\/16\)/);
  assert.match(await notes("outside 198.51.100.12 10250"), /does not get it: .*node node-b, which keeps port 10250/);
  assert.match(await notes("outside 198.51.100.11 81"), /only if no socket of this node listens on this port/);
  assert.match(await notes("outside 198.51.100.11 81", "--service-addresses=strict"), /does not get it: .*this node/);
  assert.doesNotMatch(await notes("outside 10.1.1.7 81", "--service-addresses=kube-proxy"), /does not get it/);
});

test("explain: a Service that is too large for a table has no rules, and the answer says why at each of its addresses", async () => {
  for (const to of ["service:default/huge 80", "203.0.113.7 80"]) {
    const { outcome, notes } = await ask(`pod:default/web-a ${to}`);
    assert.notEqual(outcome, "translated", to);
    assert.deepEqual(
      notes.filter((note) => note.includes("huge")),
      [
        "Service default/huge has no rules: its ports, at all of its addresses, with all endpoints and source ranges, are up to 2203101 elements of the IPv4 table, more than 2097152 (Event ServiceTooLarge)",
      ],
      to,
    );
  }
  const other = await ask("pod:default/web-a service:default/web 80");
  assert.equal(other.outcome, "translated");
});

test("explain: IPv6 is its own table", async () => {
  const six = await ask("fd00:1::9 fd00:96::10 80");
  assert.deepEqual([six.table, arrivals(six)], ["ip6 kube-proxy", ["fd00:1::5"]]);
  assert.equal(six.decidedBy?.element, "fd00:96::10 . tcp . 80 : goto lb-1");
});

test("explain: pods are recognized by their links, as by the proxy", async () => {
  const flags = ["--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"];
  assert.deepEqual(arrivals(await ask("pod:default/web-a 10.96.0.10 80", flags)), ["10.1.0.5 M", "10.1.1.7"]);
  assert.deepEqual(arrivals(await ask("outside 10.96.0.10 80", flags)), ["10.1.0.5 M", "10.1.1.7 M"]);
});

test("explain: a missing object is named, with the existing ones", async () => {
  const rows: readonly (readonly [() => Promise<Explanation>, RegExp])[] = [
    [() => ask("outside 10.96.0.10 80", [], "node-z"), /no Node node-z \(--node\); the Nodes are node-a, node-b/],
    [() => ask("pod:default/none 10.96.0.10 80"), /no pod default\/none/],
    [() => ask("outside service:default/none 80"), /no Service default\/none/],
    [() => ask("fd00::1 service:default/web 80"), /Service default\/web has no cluster IP of IPv6/],
    [() => ask("pod:default/web-a fd00:96::10 80"), /pod default\/web-a has no IPv6 address/],
    [() => ask("node fd00:96::10 80"), /Node node-a has no IPv6 address/],
  ];
  for (const [answer, message] of rows) {
    await assert.rejects(answer(), (error) => error instanceof ExplainError && message.test(error.message));
  }
});

test("explain: with a proxy's credentials pods of a Service are found by their slices, others need an address", async () => {
  await using proxys = new ProxysClient(client.connection, { clock: systemClock });
  const limited = (words: string): Promise<Explanation> => ask(words, [], "node-a", proxys);
  const question = "pod:default/web-a service:default/web 80";
  assert.deepEqual(await limited(question), await ask(question));
  await assert.rejects(
    limited("pod:default/none service:default/web 80"),
    (error) => error instanceof ExplainError && /pass its address instead, or --kubeconfig/.test(error.message),
  );
});

test("explanationText: shows the destination, the deciding rule and the steps", async () => {
  const text = explanationText(await ask("pod:default/web-a service:default/web 80"));
  assert.equal(
    text,
    `pod default/web-a (10.1.0.5) to 10.96.0.10 port 80/TCP, on node node-a

goes to one of 2 endpoints, by default/web:http/TCP:
  10.1.0.5:8080  pod default/web-a on node-a; receives it with this node's address as the source
  10.1.1.7:8080  pod default/web-b on node-b; receives it with the sender's own address as the source

decided by chain lb-2 of table ip kube-proxy:
  meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @eps
by the element of set service-ips:
  10.96.0.10 . tcp . 80 : goto lb-2

on its way, with the first endpoint drawn:
  filter-prerouting  ct state new jump pre-dnat
  nat-prerouting     jump services
  services           ip daddr . meta l4proto . th dport vmap @service-ips
  lb-2               meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @eps
  filter-forward     ct state new jump cluster-ips-check
  nat-postrouting    jump masquerading
  masquerading       ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin masquerade fully-random
`,
  );
  const dropped = explanationText(await ask("outside 10.96.0.99 80"));
  assert.match(dropped, /^is dropped$/m);
  assert.match(dropped, /^note: outside stands for 192\.0\.2\.1/m);
  assert.match(
    explanationText(await ask("outside 10.96.0.20 80")),
    /^is rejected, by default\/empty:http\/TCP: the sender gets an error$/m,
  );
  const untouched = explanationText(await ask("outside 198.51.100.11 22"));
  assert.match(
    untouched,
    /^is not changed: no rule of table ip kube-proxy sends it to another address than 198\.51\.100\.11$/m,
  );
  assert.match(explanationText(await ask("fd00:1::9 fd00:96::10 80")), /^ {2}\[fd00:1::5\]:8080 /m);
});

/** The program from source; `code` is its exit code. */
function run(...argv: string[]): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [...FROM_SOURCE, "explain", ...argv], { timeout: 30_000 }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === "number" ? error.code : error === null ? 0 : -1, stdout, stderr });
    });
  });
}

test("isthmus explain: without flags of the proxy it takes the ConfigMap of the cluster's proxy, and says so", async () => {
  const about = [`--kubeconfig=${kubeconfig}`, "--node=node-a", "pod:default/web-b", "10.96.0.10", "80"];
  const map = { name: "isthmus-service-proxy", namespace: "kube-system" };
  const unknown = await run(...about);
  assert.match(unknown.stdout, /packets of pods cannot be recognized: pass the proxy's --cluster-cidr/);
  const text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.1.0.0/16\n";
  const draft: Draft<ConfigMap> = { metadata: map, data: { "config.conf": text } };
  await client.create(resources.configMaps, draft);
  try {
    const { code, stdout, stderr } = await run(...about);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^note: the proxy's configuration is that of ConfigMap kube-system\/isthmus-service-proxy$/m);
    assert.doesNotMatch(stdout, /cannot be recognized/);
    assert.doesNotMatch(
      (await run("--masquerade-all", ...about)).stdout,
      /ConfigMap/,
      "a flag of the proxy says what it has",
    );
  } finally {
    await client.delete(resources.configMaps, map);
  }
});

test("isthmus explain: exits with 0 for an answer, 1 for a missing object or no API server, 2 for an invalid question", async () => {
  const about = [`--kubeconfig=${kubeconfig}`, "--node=node-a"];
  const answered = await run(...about, "--json", "outside", "10.96.0.10", "80");
  assert.equal(answered.code, 0, answered.stderr);
  assert.equal((JSON.parse(answered.stdout) as Explanation).outcome, "translated");
  const unknown = await run(`--kubeconfig=${kubeconfig}`, "--node=node-z", "outside", "10.96.0.10", "80");
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /isthmus explain: there is no Node node-z/);
  const lost = join(folder, "lost");
  writeFileSync(lost, server.kubeconfig().replace(/127\.0\.0\.1:\d+/, "127.0.0.1:9"));
  const unreached = await run(`--kubeconfig=${lost}`, "--node=node-a", "outside", "10.96.0.10", "80");
  assert.equal(unreached.code, 1);
  assert.match(unreached.stderr, /127\.0\.0\.1:9/);
  const bad = await run(...about, "--cluster-cidr=10.0.0.0/33", "outside", "10.96.0.10", "80");
  assert.equal(bad.code, 2);
  assert.match(bad.stderr, /--cluster-cidr: "10\.0\.0\.0\/33" is not a CIDR/);
  const none = await run(...about, "outside");
  assert.equal(none.code, 2);
  assert.match(none.stderr, /SOURCE DESTINATION PORT\[\/PROTOCOL\], such as/);
});
