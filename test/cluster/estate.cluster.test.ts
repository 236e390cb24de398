/** The contract of estates: each program of a node starts with unusual numbers, is used and killed; then one `isthmus uninstall` without numbers leaves the namespace and the files as before. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { openKernel } from "#kernel/net";
import { resources } from "#kube/client";
import { coilResources, NODE_LABEL } from "#kube/coil";
import { CniNode } from "#test/cni-node";
import { ISTHMUS, type Outcome, type Running, start, until } from "#test/lab";

const COILD = ["--pod-table-id=200", "--pod-rule-prio=1234", "--export-table-id=219", "--protocol-id=77"];
const SERVICE_PROXY = [
  ...["--table-name=other-proxy", "--masquerade-bit=9", "--detect-local-mode=InterfaceNamePrefix"],
  ...["--pod-interface-name-prefix=veth", "--conntrack-max-per-core=0", "--conntrack-min=0", "--oom-score-adj=0"],
  "--hostname-override=cni-node",
];
const PROXY_AGENT = [
  ...["--bind-interface=other0", "--bind-address=10.99.0.1", "--target=6443:localhost:6443"],
  ...["--feature-gates=EnableClusterToMasterTraffic=true", "--proxy-server-host=127.0.0.1"],
];
const UPLINKS = {
  version: 1,
  uplinks: [{ name: "wan", interface: "eth0", addresses: ["198.51.100.2/24"], gateway4: "198.51.100.1" }],
  routing: { tableBase: 3000, rulePriority: 2101, kubeRulePriority: 2102, routeProtocol: 98 },
};
const UPLINK_PATHS = [
  "--control-socket=/run/isthmus/uplink-proxy/own/control.sock",
  "--run-dir=/run/isthmus/uplink-proxy/own",
  "--secrets-dir=/var/lib/isthmus/uplink-proxy/secrets",
];
const NIC_PATHS = ["--state-dir=/var/lib/isthmus/nic-agent/state", "--socket=/run/isthmus/nic-agent/nics.sock"];

/** The node's kernel state, line by line. */
function dumpOf(node: Pick<CniNode, "netns" | "ip">): readonly string[] {
  const sorted = (...args: readonly string[]): readonly string[] =>
    node
      .ip(...args)
      .split("\n")
      .toSorted();
  const nft = execFileSync("ip", ["netns", "exec", node.netns, "nft", "list", "ruleset"], { encoding: "utf8" });
  return [
    ...["link", "address"].flatMap((kind) => node.ip("-o", kind, "show").split("\n")),
    ...[4, 6].flatMap((family) => sorted(`-${family}`, "route", "show", "table", "all")),
    ...[4, 6].flatMap((family) => sorted(`-${family}`, "rule", "show")),
    ...nft.split("\n"),
  ].map((line) => line.trim());
}

/** The files of the node's /run and /var/lib. */
function filesOf({ folder }: Pick<CniNode, "folder">): readonly string[] {
  const all = ["run", "lib"].flatMap((name) => readdirSync(join(folder, "own", name), { recursive: true }).map(String));
  return all.filter((path) => !path.startsWith("netns"));
}

/** A node whose commands have /run and /var/lib of their own, but see the machine's network namespaces. */
async function openNode(t: TestContext) {
  const pod = `isthmus-estate-${process.pid}-pod`;
  openKernel().createNetNs(pod)[Symbol.dispose]();
  t.after(() => openKernel().deleteNetNs(pod));
  let before: readonly string[] = [];
  let filesBefore: readonly string[] = [];
  const node = await CniNode.open("estate", COILD, undefined, [], async (made) => {
    const [run, lib, script] = ["own/run", "own/lib", "own/enter"].map((name) => join(made.folder, name)) as [
      string,
      string,
      string,
    ];
    for (const folder of [join(run, "netns"), lib]) mkdirSync(folder, { recursive: true });
    const binds = [
      `mount --rbind /run/netns ${run}/netns`,
      `mount --rbind ${run} /run`,
      `mount --bind ${lib} /var/lib`,
    ];
    writeFileSync(script, `#!/bin/sh\nset -e\n${binds.join("\n")}\nexec "$@"\n`);
    chmodSync(script, 0o755);
    execFileSync("ip", ["netns", "exec", made.netns, "iptables-nft", "-P", "FORWARD", "DROP"]);
    await until("addresses are assigned", () => !made.ip("address", "show").includes("tentative"));
    before = dumpOf(made);
    made.prefix = ["env", "-u", "RUNTIME_DIRECTORY", "unshare", "--mount", "--propagation=slave", script];
    // mount(8) has files in /run itself.
    await start(made.inside("true")).ended;
    filesBefore = filesOf(made);
  });
  t.after(() => node[Symbol.asyncDispose]());
  return { node, pod, before, filesBefore };
}

/** Starts the programs of a node besides coild, and gives each something to do. */
async function useAll(t: TestContext, node: CniNode, pod: string): Promise<readonly Running[]> {
  const run = (program: string, ...flags: readonly string[]): Running => {
    const running = start(node.inside(ISTHMUS, program, ...flags), { env: { COIL_NODE_NAME: "cni-node" } });
    t.after(() => running.child.kill("SIGKILL"));
    return running;
  };
  await node.createPod("web");
  await node.call("Add", { containerId: "c".repeat(64), netns: pod, pod: "web" });
  const other = await node.api.create(resources.nodes, { metadata: { name: "other" } });
  const addresses = [{ type: "InternalIP" as const, address: "198.51.100.9" }];
  await node.api.replaceStatus(resources.nodes, { ...other, status: { addresses } });
  await node.api.create(coilResources.addressBlocks, {
    metadata: { name: "other-0", labels: { [NODE_LABEL]: "other", "coil.cybozu.com/pool": "default" } },
    ...{ index: 9, ipv4: "10.211.0.0/30" },
  });
  const settings = join(node.folder, "uplinks.json");
  writeFileSync(settings, JSON.stringify(UPLINKS));
  const admin = `--kubeconfig=${join(node.folder, "kubeconfig")}`;
  const started = [
    node.run("coil-router", "--protocol-id=78", "--metrics-addr=:0", "--health-addr=:0"),
    node.run("service-proxy", ...SERVICE_PROXY),
    run("proxy-agent", ...PROXY_AGENT),
    run("uplink-proxy", `--config=${settings}`, ...UPLINK_PATHS),
    run("nic-agent", admin, ...NIC_PATHS),
  ];
  const seen = (): string => `${dumpOf(node).join("\n")}\n${started.map(({ said }) => said()).join("\n")}`;
  const marks = {
    "coil-router": "proto 78",
    "service-proxy": "table ip other-proxy {",
    "proxy-agent": "10.99.0.1/32",
    "uplink-proxy": "lookup 30",
  };
  for (const [program, mark] of Object.entries(marks))
    await until(`${program} has made what it makes`, () => dumpOf(node).some((line) => line.includes(mark)), { seen });
  for (const program of ["nic-agent", "uplink-proxy", "coil-router", "service-proxy", "proxy-agent", "coild"]) {
    const path = join(node.folder, "own/run/isthmus", program, "estate.json");
    await until(`${program} has left its estate`, () => existsSync(path), { seen });
  }
  return started;
}

test("estate: what all programs of a node with unusual numbers have made is gone after they were killed, by one uninstall without numbers", async (t) => {
  const { node, pod, before, filesBefore } = await openNode(t);
  const started = await useAll(t, node, pod);
  for (const { child } of started) child.kill("SIGKILL");
  await Promise.all([...started.map(({ ended }) => ended), node.killCoild()]);
  const used = dumpOf(node);
  for (const mark of [
    "table 200",
    "table 219",
    "proto 77",
    "proto 78",
    "10.99.0.1/32",
    "other-proxy",
    "proto 98",
    "1234:",
  ])
    assert.ok(
      used.some((line) => line.includes(mark)),
      `${mark} is there: ${used.join("\n")}`,
    );
  const uninstall = (...flags: readonly string[]): Promise<Outcome> =>
    start(node.inside(ISTHMUS, "uninstall", "--cni-etc-dir=/nowhere", "--cni-bin-dir=/nowhere", ...flags)).ended;
  const done = await uninstall("--pods", "--restore-settings");
  assert.equal(done.code, 0, `${done.stdout}${done.stderr}`);
  assert.match(done.stdout, /the estates of .*coild/);
  assert.match(done.stdout, /nothing of the suite is left\n$/);
  assert.deepEqual(dumpOf(node), before);
  assert.deepEqual(filesOf(node), filesBefore);
});
