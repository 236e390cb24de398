import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { systemClock } from "#base/clock";
import { KubeClient, loadKubeConfig } from "#kube/client";
import { labPaths } from "#lab/host";
import {
  defaultScenario,
  type LabReport,
  observeCluster,
  type TunnelReport,
  tunnelWorks,
  verifyTunnel,
} from "#lab/scenario";
import { commandsOf, follow } from "#test/guide";
import { isthmus, leftOf, processesOf, removeLab, stateOf } from "#test/lab";

const LAB = "ct-tunnel";
const NAME = `--name=${LAB}`;
const SMALL = ["--json", NAME, "--nodes=2", "--pods=4"];
const TIMEOUT = { timeout: 120_000 };
/** From the end of a program of the tunnel until all is as before, in milliseconds. */
const BACK_MS = 15_000;

after(async () => removeLab(LAB));

/** Runs the example of the page, small. */
async function report(args: readonly string[]): Promise<LabReport> {
  const [page = ""] = commandsOf("tunnel.md", "(top)");
  const stdout = await follow([page], { words: { "--tunnel": ["--tunnel", ...SMALL, ...args].join(" ") } });
  return JSON.parse(stdout) as LabReport;
}

/** The number of reverse tries: by each bind address of a family that they have, one for each node and one for its pod with the most families. */
function reverseTriesOf({ cluster }: LabReport): number {
  const most = cluster.nodes.map(({ name, addresses }) => {
    const ofPods = cluster.pods.filter(({ node }) => node === name).map((pod) => pod.addresses.length);
    return addresses.length + Math.max(0, ...ofPods);
  });
  return most.reduce((sum, one) => sum + one, 0);
}

interface Wanted {
  readonly families: "dual" | "ipv4" | "ipv6";
  readonly podFamilies: readonly string[];
  /** Addresses that are tried without the tunnel. */
  readonly direct: number;
  readonly podAddresses: number;
}

/** Every connection used the tunnel, and none works without it. */
function assertThroughTunnel(found: LabReport, { families, podFamilies, direct, podAddresses }: Wanted): void {
  assert.equal(found.ok, true);
  assert.deepEqual(found.families, podFamilies);
  assert.equal(found.pings.answered, found.pings.sent);
  assert.deepEqual(found.audit.findings, []);
  assert.equal(found.routes.exported, found.routes.wanted);
  const { tunnel } = found;
  assert.ok(tunnel !== undefined, "a report with --tunnel tells of it");
  assert.deepEqual(tunnel.agents, { connected: 2, wanted: 2 });
  assert.deepEqual(tunnel.direct, { tried: direct, refused: direct, open: [] });
  const reverse = reverseTriesOf(found);
  const { connections: inward, ...reverseTries } = tunnel.reverse;
  assert.deepEqual(reverseTries, { tried: reverse, answered: reverse, failures: [] });
  // coild, coil-router and the kubelet of each node, and the controller.
  assert.deepEqual(tunnel.programs, { wanted: 7, connected: 7, missing: [] });
  assert.ok(inward >= 7 + reverse, `${inward} connections cannot be all`);
  assert.deepEqual(tunnel.forward.pods, { tried: podAddresses, answered: podAddresses, failures: [] });
  const ports = families === "dual" ? 16 : 8;
  assert.deepEqual(tunnel.forward.nodePorts, { tried: ports, answered: ports, failures: [] });
  assert.ok(tunnel.forward.connections >= podAddresses + ports);
  assert.ok(tunnel.seconds > 0);
}

for (const wanted of [
  { families: "ipv4", podFamilies: ["ipv4"], direct: 6, podAddresses: 4 },
  { families: "ipv6", podFamilies: ["ipv6"], direct: 6, podAddresses: 4 },
] as const) {
  test(
    `lab --tunnel --families=${wanted.families}: all connections use the tunnel, none works without it, and nothing is left`,
    TIMEOUT,
    async () => {
      assertThroughTunnel(await report([`--families=${wanted.families}`]), wanted);
      assert.deepEqual(leftOf(LAB), []);
    },
  );
}

/** Polls until everything works; the last result at the deadline. */
async function untilBack(deadlineMs: number): Promise<{ readonly tunnel: TunnelReport; readonly afterMs: number }> {
  const startedMs = performance.now();
  const paths = labPaths(LAB);
  await using api = new KubeClient(await loadKubeConfig({ path: paths.kubeconfig, clock: systemClock }), {
    clock: systemClock,
  });
  const cluster = await observeCluster(api, defaultScenario({ pods: 4, families: "dual" }, stateOf(LAB).identity), {});
  assert.equal(cluster.pods.length, 4);
  const connection = await loadKubeConfig({ path: paths.nodeKubeconfig, clock: systemClock });
  for (;;) {
    const state = stateOf(LAB);
    assert.ok(state.tunnel !== undefined);
    const tunnel = await verifyTunnel({ state, tunnel: state.tunnel, cluster, connection }, {});
    const afterMs = performance.now() - startedMs;
    if (tunnelWorks(tunnel) || afterMs > deadlineMs) return { tunnel, afterMs };
  }
}

interface RunningPod {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly status: { readonly podIP: string };
}

/** The page's commands for a node and for the control plane; how many pods the API server has reached by kubectl exec. */
async function followChecks(folder: string): Promise<number> {
  const paths = labPaths(LAB);
  const { tunnel, nodes } = stateOf(LAB);
  assert.ok(tunnel !== undefined);
  const [onNode = "", onControlPlane = ""] = commandsOf("tunnel.md", "Does it work?");
  const inside = (netns: string): readonly string[] => ["nsenter", `--net=/run/netns/${netns}`];
  const connection = await loadKubeConfig({ path: paths.nodeKubeconfig, clock: systemClock });
  const ca = join(folder, "ca.crt");
  writeFileSync(ca, (await connection.credentials()).ca ?? "");
  const { netns } = nodes[0] ?? assert.fail();
  const node = await follow([onNode], { wrap: inside(netns), words: { "/etc/kubernetes/pki/ca.crt": ca } });
  assert.match(node, /check passed[\s\S]*inet 10\.255\.255\.1\/32 scope host[\s\S]*"reason":"Unauthorized"/);
  const [metrics = "", exec = ""] = onControlPlane.split("\n");
  const counted = await follow([metrics], { wrap: inside(tunnel.netns) });
  assert.match(counted, /^konnectivity_network_proxy_server_ready_backends\{proxy_strategy="default"\} 2$/m);
  const { kubeconfig } = paths;
  const all = await follow(["kubectl get pods --all-namespaces --output=json"], { kubeconfig });
  const { items } = JSON.parse(all) as { readonly items: readonly RunningPod[] };
  for (const { metadata, status } of items) {
    const words = { NAMESPACE: metadata.namespace, POD: metadata.name, true: "ip -o address show eth0" };
    const said = await follow([exec], { kubeconfig, words });
    assert.ok(said.includes(` ${status.podIP}/`), `${metadata.name}: ${said}`);
  }
  return items.length;
}

function childOf(name: string): { readonly pid: number; readonly restarts: number } {
  const child = stateOf(LAB).children.find((one) => one.name === name);
  assert.ok(child !== undefined, `${name} is a program of the lab`);
  return child;
}

test(
  "lab --tunnel --families=dual: all connections use the tunnel, none works without it; an agent and the proxy server that are killed are back, with all that hung on them, within 15 s",
  TIMEOUT,
  async (t) => {
    // Nodes have both families, one half of the pods has both, the other IPv4.
    const podFamilies = ["ipv4", "ipv6"];
    const found = await report(["--keep", "--families=dual"]);
    assertThroughTunnel(found, { families: "dual", podFamilies, direct: 12, podAddresses: 6 });
    const known = processesOf(LAB);
    const paths = labPaths(LAB);
    for (const program of ["proxy-agent-node1", "proxy-server"]) {
      const before = childOf(program);
      process.kill(before.pid, "SIGKILL");
      const { tunnel, afterMs } = await untilBack(BACK_MS);
      assert.ok(
        tunnelWorks(tunnel) && afterMs <= BACK_MS,
        `${program}, ${afterMs} ms: ${JSON.stringify(tunnel, undefined, 1)}`,
      );
      t.diagnostic(`${program}: back after ${Math.round(afterMs)} ms`);
      const now = childOf(program);
      assert.notEqual(now.pid, before.pid);
      assert.equal(now.restarts, before.restarts + 1);
    }
    // kubectl exec: to the API server, which is behind the firewall, and from it through the tunnel to the node's kubelet.
    const folder = mkdtempSync(join(tmpdir(), "isthmus-lab-tunnel-"));
    t.after(() => rmSync(folder, { recursive: true }));
    assert.equal(await followChecks(folder), 4);

    const sockets = ["node1", "node2"].map((node) => `--socket=${paths.socketOf(node)}`);
    const audit = await isthmus(["audit", `--kubeconfig=${paths.kubeconfig}`, ...sockets]);
    assert.equal(audit.code, 0, audit.stdout + audit.stderr);

    const node = (name: string, ...argv: string[]): string =>
      execFileSync("ip", ["netns", "exec", `isthmus-${LAB}-${name}`, ...argv], { encoding: "utf8" });
    assert.match(node("cp", "nft", "list", "table", "inet", "isthmus-lab"), /hook input .* policy drop;/);
    assert.match(node("node1", "ip", "-o", "address", "show", "to", "10.255.255.1"), /10\.255\.255\.1\/32 scope host/);

    // The report would fail without the firewall.
    node("cp", "nft", "delete", "table", "inet", "isthmus-lab");
    const { tunnel: open } = await untilBack(0);
    assert.equal(tunnelWorks(open), false);
    assert.deepEqual([open.direct.refused, open.direct.open.length], [0, open.direct.tried]);

    const down = await isthmus(["lab", "down", NAME]);
    assert.deepEqual([down.code, down.stderr], [0, `lab ${LAB} removed\n`]);
    assert.deepEqual(leftOf(LAB, known), []);
  },
);
