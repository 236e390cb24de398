/**
 * `isthmus doctor` on a node of a lab and on its cluster: nothing is named where all is well, and each planted fault is named with its fix. A fault that a
 * daemon would mend at once is planted while coild is stopped; those of files and mounts are in a mount namespace of the doctor alone.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { addToEstate } from "#base/estate";
import { createAuthority, issueCertificate, issueServerCertificate } from "#base/x509";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import { coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { labPaths } from "#lab/host";
import { commandsOf, follow, withFolders } from "#test/guide";
import { ISTHMUS, isthmus, type Outcome, processesOf, type Running, removeLab, start, stateOf, until } from "#test/lab";

const LAB = "ct-doctor";
const TIMEOUT = { timeout: 120_000 };
const folder = mkdtempSync(join(tmpdir(), "doctor-"));
const [confDir, binDir] = [join(folder, "net.d"), join(folder, "bin")];
const paths = labPaths(LAB);
const DAY = 86_400_000;
let api: KubeClient;

interface Check {
  readonly name: string;
  readonly state: "ok" | "warning" | "wrong" | "unknown";
  readonly subject: string;
  readonly text: string;
  readonly remedy?: string;
}

before(async () => {
  const { code, stderr } = await isthmus(["lab", "--keep", `--name=${LAB}`, "--nodes=2", "--pods=2"]);
  assert.equal(code, 0, stderr);
  mkdirSync(confDir);
  cpSync(join(dirname(ISTHMUS), "cni"), binDir, { recursive: true });
  const plugins = [{ type: "coil", socket: paths.socketOf("node1") }];
  writeFileSync(join(confDir, "10-coil.conflist"), JSON.stringify({ cniVersion: "1.0.0", name: "k8s", plugins }));
  // A namespace has the settings of conntrack once something uses it.
  sh(
    "nft",
    "add table ip probe; add chain ip probe c { type filter hook input priority 0; }; add rule ip probe c ct state new",
  );
  sh("nft", "delete table ip probe");
  const connection = await loadKubeConfig({ path: paths.kubeconfig, clock: systemClock });
  api = new KubeClient(connection, { clock: systemClock });
}, TIMEOUT);

after(async () => {
  await api?.close();
  await removeLab(LAB);
  rmSync(folder, { recursive: true });
});

/** A command in the network namespace of node1. */
function onNode(...argv: readonly string[]): readonly string[] {
  const netns = stateOf(LAB).nodes.find(({ name }) => name === "node1")?.netns ?? assert.fail("there is no node1");
  return ["ip", "netns", "exec", netns, ...argv];
}

function sh(...argv: readonly string[]): string {
  const [file = "", ...args] = onNode(...argv);
  return execFileSync(file, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

/** Runs the doctor on node1, after commands in its own mount namespace. */
async function doctor(prepare = "true", kubeconfig = paths.nodeKubeconfig): Promise<Outcome> {
  const flags = [`--cni-conf-dir=${confDir}`, `--cni-bin-dir=${binDir}`, `--kubeconfig=${kubeconfig}`, "--json"];
  return start(onNode("unshare", "-m", "sh", "-c", `${prepare}; exec "$@"`, "sh", ISTHMUS, "doctor", ...flags)).ended;
}

function checksOf({ stdout, stderr }: Outcome): readonly Check[] {
  assert.equal(stderr, "");
  return (JSON.parse(stdout) as { readonly checks: readonly Check[] }).checks;
}

/** Those that are not ok, one line each: name, text and remedy. */
function named(checks: readonly Check[]): readonly string[] {
  return checks
    .filter(({ state }) => state !== "ok")
    .map(({ name, subject, text, remedy }) => `${name}: ${subject} ${text} | ${remedy}`);
}

interface Planted {
  readonly name: string;
  readonly plant?: () => unknown;
  readonly undo?: () => unknown;
  readonly prepare?: string;
  readonly kubeconfig?: () => Promise<string>;
  readonly pattern: RegExp;
}

/** The process of the coild of a node. */
function coildOf(node: string): number {
  const words = `--socket=${paths.socketOf(node)}`;
  return processesOf(LAB).find(({ command }) => command.includes(words))?.pid ?? assert.fail("there is no coild");
}

const conflist = join(confDir, "10-coil.conflist");
const coil = join(binDir, "coil-standalone");

const ESTATES = ["coild", "uplink-proxy"] as const;

const ON_NODE: readonly Planted[] = [
  {
    name: "cni-order",
    plant: () => writeFileSync(join(confDir, "05-other.conflist"), '{"name":"o","plugins":[{"type":"bridge"}]}'),
    undo: () => rmSync(join(confDir, "05-other.conflist")),
    pattern: /05-other\.conflist comes before 10-coil\.conflist.* \| mv \S+05-other\.conflist \S+\.disabled$/,
  },
  {
    name: "cni-executable",
    plant: () => renameSync(coil, `${coil}.away`),
    undo: () => renameSync(`${coil}.away`, coil),
    pattern: /coil-standalone is missing \| run coil-installer$/,
  },
  {
    name: "cni-executable",
    plant: () => chmodSync(join(binDir, "coil"), 0o644),
    undo: () => chmodSync(join(binDir, "coil"), 0o755),
    pattern: /bin\/coil has no right to be executed/,
  },
  {
    name: "daemon-socket",
    plant: () =>
      copyFileSync(conflist, join(folder, "kept")) ??
      writeFileSync(conflist, '{"name":"k","plugins":[{"type":"coil","socket":"/run/none.sock"}]}'),
    undo: () => copyFileSync(join(folder, "kept"), conflist),
    pattern:
      /coild at \/run\/none\.sock does not answer: coild listens at \S+ \| start it with --socket=\/run\/none\.sock/,
  },
  {
    name: "rule-order",
    plant: () => sh("ip", "rule", "add", "priority", "100", "lookup", "200"),
    undo: () => sh("ip", "rule", "del", "priority", "100"),
    pattern: /rule 100 looks up table 200 for all packets, before rule 2000 of the pods \| ip rule delete priority 100/,
  },
  {
    name: "mtu",
    plant: () => sh("ip", "link", "set", "eth0", "mtu", "1400"),
    undo: () => sh("ip", "link", "set", "eth0", "mtu", "1500"),
    pattern: /uplink eth0 has MTU 1400, and 1 pods have more: \S+ has 1500 \| ip link set eth0 mtu 1500/,
  },
  {
    name: "conntrack",
    prepare:
      "echo 262000 >/tmp/count-$$; mount --bind /tmp/count-$$ /proc/sys/net/netfilter/nf_conntrack_count; rm /tmp/count-$$",
    pattern: /has 262000 of \d+ entries \| sysctl -w net\.netfilter\.nf_conntrack_max=/,
  },
  {
    name: "marks",
    prepare: `mkdir -p /run/isthmus/marks; mount --bind ${folder}/marks /run/isthmus/marks; ${ESTATES.map((name) => `mkdir -p /run/isthmus/${name}; mount --bind /run/isthmus/marks/${name} /run/isthmus/${name}`).join("; ")}`,
    plant: () => writeEstates(),
    undo: () => rmSync("/run/isthmus/marks", { recursive: true }),
    pattern: /coild has table 600, protocol 30, and uplink-proxy tables 501 and on, protocol 30 \| give one of the two/,
  },
  {
    name: "folder",
    prepare: `mount --bind ${confDir} ${confDir}; mount -o remount,bind,ro ${confDir}`,
    pattern: /net\.d is mounted read-only \| mount -o remount,rw/,
  },
  {
    name: "folder",
    // A block of 4 KiB is the file, none is left.
    prepare: `mkdir ${folder}/keep-$$; cp ${conflist} ${folder}/keep-$$; mount -t tmpfs -o size=8k tmpfs ${confDir}; cp ${folder}/keep-$$/* ${confDir}; rm -r ${folder}/keep-$$; dd if=/dev/zero of=${confDir}/full bs=4k count=4 2>/dev/null || true`,
    pattern: /net\.d is full: 0\.0% of its space is free/,
  },
  {
    name: "clock",
    kubeconfig: async () => kubeconfigOfClock(),
    pattern: /is 36\d\d s ahead of the API server's \| systemctl start chrony/,
  },
];

/** Writes the estates of two programs that have one number, as those of node1. */
function writeEstates(): void {
  const netns = sh("stat", "-Lc", "%i", "/proc/self/ns/net").trim();
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  const claims = {
    coild: { id: "export-routes", kind: "routes", table: 600, protocol: 30 },
    "uplink-proxy": { id: "uplink-routes", kind: "routes", table: [501, 0xffff_ffff], protocol: 30 },
  } as const;
  for (const name of ESTATES)
    addToEstate(join(folder, "marks", name), name, { boot, netns, kernel: [claims[name]], files: [] });
}

let lateNode: Running | undefined;

/** Starts an API server whose clock is an hour behind, in the namespace of the node; answers with a kubeconfig for it. */
async function kubeconfigOfClock(): Promise<string> {
  const script = `require("node:http").createServer((_q, r) => { r.writeHead(200, { date: new Date(Date.now() - 3600000).toUTCString() }); r.end("{}"); }).listen(18080, "127.0.0.1", () => console.log("up"))`;
  lateNode = start(onNode(process.execPath, "-e", script), { timeoutMs: 100_000 });
  await until("the server listens", () => lateNode?.printed().includes("up"));
  const path = join(folder, "late");
  writeFileSync(
    path,
    JSON.stringify({
      "current-context": "c",
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      clusters: [{ name: "c", cluster: { server: "http://127.0.0.1:18080" } }],
      users: [{ name: "u", user: {} }],
    }),
  );
  return path;
}

test(
  "doctor on a node: nothing is named where all is well; each planted fault is named alone, with its fix, and gone with it",
  TIMEOUT,
  async () => {
    const well = await doctor();
    assert.deepEqual([well.code, named(checksOf(well))], [0, []]);
    for (const { name, plant, undo, prepare, kubeconfig, pattern } of ON_NODE) {
      await plant?.();
      const found = await doctor(prepare, await kubeconfig?.());
      await undo?.();
      const lines = named(checksOf(found));
      assert.deepEqual(
        [found.code, lines.map((line) => line.split(":")[0])],
        [1, [name]],
        `${name}: ${lines.join("\n")}`,
      );
      assert.match(lines[0] ?? "", pattern);
    }
    lateNode?.child.kill("SIGKILL");
    await lateNode?.ended;
    assert.deepEqual(named(checksOf(await doctor())), []);
  },
);

test(
  "status on a node: a filter that drops what pods send and get is named as the doctor names it, until the commands that it prints are run",
  TIMEOUT,
  async () => {
    const status = async (...flags: readonly string[]): Promise<Outcome> =>
      start(onNode(ISTHMUS, "status", `--kubeconfig=${paths.nodeKubeconfig}`, ...flags)).ended;
    interface Drop {
      readonly filter: string;
      readonly directions: readonly string[];
      readonly allow: readonly string[];
    }
    const dropsOf = ({ stdout, stderr }: Outcome): readonly Drop[] => {
      const { forwardDrops } = JSON.parse(stdout) as { readonly forwardDrops?: { readonly rows: readonly Drop[] } };
      return forwardDrops?.rows ?? assert.fail(`${stdout}${stderr}`);
    };
    const well = await status("--json");
    assert.deepEqual([well.code, dropsOf(well)], [0, []]);
    sh(
      "nft",
      "add table inet wall; add chain inet wall passing { type filter hook forward priority 10; policy accept; }",
    );
    sh("nft", "add rule inet wall passing ct state established,related accept; add rule inet wall passing drop");
    try {
      const found = await status("--json");
      const name = "nftables table inet wall, chain passing";
      const drops = dropsOf(found);
      assert.ok(drops.length > 0);
      for (const { filter, directions } of drops) assert.deepEqual([filter, directions], [name, ["from", "to"]]);
      assert.equal(found.code, 0, "it is no readiness of a program");
      const { stdout } = await status();
      const commands = drops.flatMap(({ allow }) => allow);
      for (const command of commands) assert.ok(stdout.includes(`\n  ${command}\n`), `${command}\n${stdout}`);
      const doctors = named(checksOf(await doctor()));
      assert.equal(doctors.length, drops.length, doctors.join("\n"));
      for (const { allow } of drops)
        assert.ok(doctors.some((line) => allow.every((command) => line.includes(command))));
      for (const command of commands) sh("sh", "-c", command);
      assert.deepEqual(dropsOf(await status("--json")), []);
    } finally {
      sh("nft", "delete table inet wall");
    }
  },
);

test(
  "doctor on a node: a coild that cannot start, since its port is taken, and what it would have mended",
  TIMEOUT,
  async () => {
    const script = `const s = require("node:http").createServer((_q, r) => r.end("hello")); const go = () => s.listen(9385); s.on("error", () => setTimeout(go, 2)).once("error", () => console.log("tries")); s.on("listening", () => console.log("up")); go();`;
    const thief = start(onNode(process.execPath, "-e", script), { timeoutMs: 100_000 });
    // Before that the next coild could be first.
    await until("the port is tried for", () => thief.printed().includes("tries"));
    process.kill(coildOf("node1"), "SIGKILL");
    await until("the port is taken", () => thief.printed().includes("up"));
    await until(
      "coild has ended",
      () => !processesOf(LAB).some(({ command }) => command.includes(paths.socketOf("node1"))),
    );
    sh("sysctl", "-qw", "net.ipv4.ip_forward=0");
    // A coild that starts and fails is a process for a moment; this one is held in that moment.
    let held = 0;
    const isHeld = (): boolean => {
      held = holdCoild("node1");
      return held !== 0;
    };
    await until("the next coild is held", isHeld, { everyMs: 2 });
    let lines = named(checksOf(await doctor()));
    const text = lines.join("\n");
    assert.match(
      text,
      /^port-taken: port 9385 of coild process \d+ \(\S+\) listens at it, and not coild \| end that process/m,
    );
    assert.match(
      text,
      /^daemon-socket: coild at \S+coild\.sock (does not answer, and does not run here|runs and does not answer).* \| /m,
    );
    assert.match(text, /^forwarding: net\.ipv4\.ip_forward is off.* \| sysctl -w net\.ipv4\.ip_forward=1/m);
    thief.child.kill("SIGKILL");
    await thief.ended;
    process.kill(held, "SIGCONT");
    await until(
      "coild has mended it",
      async () => {
        lines = named(checksOf(await doctor()));
        return lines.length === 0;
      },
      { seen: () => lines.join("\n") },
    );
  },
);

test(
  "doctor on a node: rules of kube-proxy beside service-proxy, and certificates of the tunnel",
  TIMEOUT,
  async () => {
    const now = Date.now();
    const authority = createAuthority({ commonName: "ca", notBefore: now - DAY, notAfter: now + 30 * DAY });
    const agent = issueCertificate(authority, {
      commonName: "agent",
      hosts: ["agent"],
      usages: ["clientAuth"],
      notBefore: now - 2 * DAY,
      notAfter: now - DAY,
    });
    writeFileSync(join(folder, "ca.crt"), authority.cert);
    writeFileSync(join(folder, "agent.crt"), agent.cert);
    writeFileSync(join(folder, "agent.key"), agent.key);
    const programs = [
      start(onNode(ISTHMUS, "service-proxy", `--kubeconfig=${paths.nodeKubeconfig}`, "--hostname-override=node1"), {
        timeoutMs: 100_000,
      }),
      start(
        onNode(
          ISTHMUS,
          "proxy-agent",
          "--proxy-server-host=127.0.0.1",
          `--ca-cert=${folder}/ca.crt`,
          `--agent-cert=${folder}/agent.crt`,
          `--agent-key=${folder}/agent.key`,
        ),
        { timeoutMs: 100_000 },
      ),
    ];
    sh("nft", "add table ip nat; add chain ip nat KUBE-SERVICES; add chain ip nat KUBE-SVC-1");
    let lines: readonly string[] = [];
    await until(
      "both are named",
      async () => {
        lines = named(checksOf(await doctor()));
        return (
          lines.some((line) => line.startsWith("certificate")) && lines.some((line) => line.startsWith("rival-proxy"))
        );
      },
      { seen: () => `${lines.join("\n")} ${programs.map((one) => one.said()).join("\n")}` },
    );
    const text = lines.join("\n");
    assert.match(text, /^certificate: \S+agent\.crt of proxy-agent expired at .* \| renew \S+agent\.crt/m);
    assert.match(
      text,
      /^rival-proxy: Services table ip nat has 2 chains of kube-proxy's iptables mode \| remove the DaemonSet kube-proxy from the node, then: the iptables commands of docs\/guides\/service-proxy\.md/m,
    );
    assert.equal(lines.length, 2, text);
    const [route = ""] = sh("ip", "route", "show", "default").split("\n");
    assert.match(route, /^default via /);
    sh("ip", "route", "delete", ...route.trim().split(" "));
    sh("sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1");
    const more = checksOf(await doctor()).filter(({ name }) => name === "service-route" || name === "route-localnet");
    assert.deepEqual(more.map(({ name, state }) => `${name} ${state}`).sort(), [
      "route-localnet warning",
      "service-route ok",
      "service-route wrong",
    ]);
    sh("ip", "route", "add", ...route.trim().split(" "));
    sh("sysctl", "-qw", "net.ipv4.conf.all.route_localnet=0");
    for (const one of programs) one.child.kill("SIGKILL");
    await Promise.all(programs.map((one) => one.ended));
  },
);

test(
  "doctor.md, debug-a-pod.md: the commands of the pages find nothing wrong on a node and its cluster; status asks the programs that run as processes on the node directly",
  TIMEOUT,
  async () => {
    const [etc, opt] = [join(folder, "etc"), join(folder, "opt")];
    cpSync("/etc", etc, { recursive: true, verbatimSymlinks: true });
    cpSync(confDir, join(etc, "cni/net.d"), { recursive: true });
    mkdirSync(join(opt, "cni"), { recursive: true });
    symlinkSync(binDir, join(opt, "cni/bin"));
    const onThisNode = { kubeconfig: paths.nodeKubeconfig, wrap: onNode(...withFolders({ "/etc": etc, "/opt": opt })) };
    const shown = await follow(
      [...commandsOf("doctor.md", "(top)"), ...commandsOf("debug-a-pod.md", "What can this kernel do?")],
      onThisNode,
    );
    assert.match(shown, /^ok +cni-order: \/etc\/cni\/net\.d /m);
    assert.match(shown, /^ok +leader: Lease coil-ipam-leader /m, "of the cluster");
    assert.match(shown, /^coild +\d+\.\d+\.\d+\S* +1\/1 +0 +0 +1\/1$/m);
    assert.match(shown, /^default +\d+ of \d+ +\d+ +\d+$/m, "coild tells the use of its addresses");
  },
);

/** Runs the doctor of the cluster. A node without coild keeps its blocks. */
async function ofCluster(): Promise<{ readonly code: number | null; readonly lines: readonly string[] }> {
  const found = await isthmus(["doctor", "--cluster", `--kubeconfig=${paths.kubeconfig}`, "--json"]);
  return { code: found.code, lines: named(checksOf(found)) };
}

test(
  "doctor --cluster: nothing is named where all is well; nine faults that are planted together are each named with the fix",
  TIMEOUT,
  async () => {
    assert.deepEqual(await ofCluster(), { code: 0, lines: [] });
    const now = Date.now();
    // crd: a field of this version is missing.
    await api.patch(
      resources.customResourceDefinitions,
      { name: "egresses.coil.cybozu.com" },
      {
        type: "json",
        operations: [
          { op: "remove", path: "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/addresses" },
        ],
      },
    );
    // pool: two blocks, both taken; a request for a third one has failed.
    await api.create(coilResources.addressPools, {
      metadata: { name: "tiny" },
      spec: { blockSizeBits: 0, subnets: [{ ipv4: "10.99.0.0/31" }] },
    });
    for (const [index, node] of [
      [0, "twin"],
      [1, "gone"],
    ] as const)
      await api.create(coilResources.addressBlocks, {
        metadata: {
          name: `tiny-${index}`,
          labels: { [POOL_LABEL]: "tiny", [NODE_LABEL]: node },
          finalizers: ["coil.cybozu.com"],
        },
        index,
        ipv4: `10.99.0.${index}/32`,
      });
    await api.create(coilResources.blockRequests, {
      metadata: { name: "req-tiny-node1" },
      spec: { nodeName: "node1", poolName: "tiny" },
    });
    // node-address: one that is of node1.
    const node1 = await api.get(resources.nodes, { name: "node1" });
    await api.create(resources.nodes, { metadata: { name: "twin" } });
    await api.patch(
      resources.nodes,
      { name: "twin" },
      { type: "merge", body: { status: { addresses: node1.status?.addresses } } },
      { subresource: "status" },
    );
    // versions, not-ready, rights.
    for (const [name, image, ready] of [
      ["a", "isthmus:0.1.0", true],
      ["b", "isthmus:0.2.0", false],
    ] as const) {
      const containers = [{ name: "coil-router", image, command: ["coil-router"] }];
      const labels = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "coil-router" };
      await api.create(resources.pods, {
        metadata: { namespace: "kube-system", name, labels },
        spec: { nodeName: "elsewhere", serviceAccountName: "stranger", containers },
      });
      const state = { name: "coil-router", ready, restartCount: 0, image, imageID: "", state: { running: {} } };
      await api.patch(
        resources.pods,
        { namespace: "kube-system", name },
        { type: "merge", body: { status: { phase: "Running", containerStatuses: [state] } } },
        { subresource: "status" },
      );
    }
    // egress-routers: no controller of Egresses runs.
    await api.create(coilResources.egresses, {
      metadata: { namespace: "default", name: "nat" },
      spec: { destinations: ["0.0.0.0/0"] },
    });
    // leader.
    await api.create(resources.leases, {
      metadata: { namespace: "kube-system", name: "coil-egress-leader" },
      spec: {
        holderIdentity: "old",
        leaseDurationSeconds: 15,
        renewTime: new Date(now - 90_000).toISOString().replace("Z", "000Z") as never,
      },
    });
    // webhook: the certificate is of another authority.
    const validity = { notBefore: now - DAY, notAfter: now + 90 * DAY };
    const [first, other] = [
      createAuthority({ commonName: "a", ...validity }),
      createAuthority({ commonName: "b", ...validity }),
    ];
    const pair = issueServerCertificate(other, { hosts: ["x.kube-system.svc"], organization: "coil", ...validity });
    const base64 = (text: string): string => Buffer.from(text).toString("base64");
    await api.create(resources.secrets, {
      metadata: { namespace: "kube-system", name: "coilv2-ipam-webhook-server-cert" },
      data: { "tls.crt": base64(pair.cert) },
    });
    await api.create(resources.endpointSlices, {
      metadata: {
        namespace: "kube-system",
        name: "w",
        labels: { "kubernetes.io/service-name": "coilv2-ipam-webhook-service" },
      },
      addressType: "IPv4",
      endpoints: [{ addresses: ["10.0.0.1"], conditions: { ready: true } }],
    });
    const webhook = (name: string, service: string) => ({
      name,
      admissionReviewVersions: ["v1"],
      sideEffects: "None",
      clientConfig: { caBundle: base64(first.cert), service: { namespace: "kube-system", name: service } },
      rules: [],
    });
    await api.create(resources.validatingWebhookConfigurations, {
      metadata: { name: "coilv2-validating-ipam-webhook-configuration" },
      webhooks: [webhook("vaddresspool.kb.io", "coilv2-ipam-webhook-service")],
    });
    await api.create(resources.mutatingWebhookConfigurations, {
      metadata: { name: "coilv2-mutating-egress-webhook-configuration" },
      webhooks: [webhook("megress.kb.io", "coilv2-egress-webhook-service")],
    });
    let found: Awaited<ReturnType<typeof ofCluster>> | undefined;
    await until(
      "the request has failed",
      async () => {
        found = await ofCluster();
        return found.lines.some((line) => /^pool: .*wait for one/.test(line));
      },
      { seen: () => found?.lines.join("\n") ?? "" },
    );
    const text = found?.lines.join("\n") ?? "";
    assert.equal(found?.code, 1);
    for (const pattern of [
      /^crd: egresses\.coil\.cybozu\.com is older than this program: it lacks spec\.addresses \| kubectl apply -f deploy\/crds\/coil\.cybozu\.com_egresses\.yaml$/m,
      /^webhook: vaddresspool\.kb\.io of \S+ the caBundle has not signed the certificate of Secret kube-system\/coilv2-ipam-webhook-server-cert \| run its controller with --enable-cert-rotation=true/m,
      /^webhook: megress\.kb\.io of \S+ Service kube-system\/coilv2-egress-webhook-service has no ready endpoint \| kubectl describe service -n kube-system coilv2-egress-webhook-service/m,
      /^pool: pool tiny 2 of 2 blocks are taken, and these nodes wait for one: node1 \| kubectl edit addresspool tiny: append to spec\.subnets$/m,
      /^stray-block: AddressBlocks 1 belong to Nodes that are gone: tiny-1 of gone \| look whether coil-ipam-controller runs/m,
      /^node-address: address \S+ is the InternalIP of node1, twin \| start their kubelets with --node-ip/m,
      /^versions: coil-router runs in several versions: 1 of 0\.1\.0, 1 of 0\.2\.0; .* \| kubectl rollout status/m,
      /^not-ready: coil-router 1 of 2 are not ready: kube-system\/b \(the readiness probe fails\) \| kubectl logs -n kube-system b -c coil-router$/m,
      /^egress-routers: Egress default\/nat has no Deployment: no controller has made it \| look at coil-egress-controller/m,
      /^leader: Lease coil-egress-leader old has renewed it \d+ s ago, and it lasts 15 s.* \| kubectl get pods/m,
      /^rights: coil-router \(kube-system\/stranger\) may not list nodes, watch nodes, list addressblocks\.coil\.cybozu\.com.* \| kubectl apply -f deploy\/pods\/rbac\.yaml$/m,
    ])
      assert.match(text, pattern);
  },
);

test("doctor --cluster: an API server that is away is an error in bounded time", async () => {
  const path = join(folder, "nobody");
  writeFileSync(
    path,
    '{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"u","user":{}}]}',
  );
  const started = performance.now();
  const { code, stderr } = await isthmus(["doctor", "--cluster", `--kubeconfig=${path}`]);
  assert.equal(code, 1);
  assert.match(stderr, /^isthmus doctor: Cannot GET \/version: 127\.0\.0\.1:1 did not answer: .*ECONNREFUSED/);
  assert.ok(performance.now() - started < 5000);
});

/** Stops the coild of a node that has just started; its process id, or 0 if there is none. */
function holdCoild(node: string): number {
  // The launcher is no coild yet.
  const isCoild = (command: string): boolean => command.includes(".mjs") && command.includes(paths.socketOf(node));
  const found = processesOf(LAB).find(({ command }) => isCoild(command));
  if (found === undefined) return 0;
  try {
    process.kill(found.pid, "SIGSTOP");
    // It may have ended meanwhile, and be about to be waited for.
    const stat = readFileSync(`/proc/${found.pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).startsWith("Z") ? 0 : found.pid;
  } catch (error) {
    if (["ESRCH", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) return 0;
    throw error;
  }
}
