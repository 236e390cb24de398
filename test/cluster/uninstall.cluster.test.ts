/** `isthmus uninstall`: a node and a cluster without the suite are as they were before it, and what belongs to others stays. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { openKernel } from "#kernel/net";
import { type Draft, type Pod, resources } from "#kube/client";
import { coilCrds, coilResources } from "#kube/coil";
import { CniNode, OUTSIDE_IPV4 } from "#test/cni-node";
import { ISTHMUS, type Outcome, type Running, start, until } from "#test/lab";
import { MigratorBed } from "#test/migrator-bed";

const CONFLIST = JSON.stringify({ cniVersion: "1.0.0", name: "k8s-pod-network", plugins: [{ type: "coil" }] });
const FOREIGN_CONFLIST = JSON.stringify({ cniVersion: "1.0.0", name: "other", plugins: [{ type: "bridge" }] });
/** The programs on nodes, each with flags that leave the machine as it is. */
const SERVICE_PROXY = [
  "--detect-local-mode=InterfaceNamePrefix",
  "--pod-interface-name-prefix=veth",
  "--conntrack-max-per-core=0",
  "--conntrack-min=0",
  "--oom-score-adj=0",
  "--hostname-override=cni-node",
];

/** Objects of somebody else, beside each kind of ours. */
const FOREIGN: readonly string[] = [
  "link add foreign0 type bridge",
  "link set foreign0 alias COILED",
  "address add 203.0.113.5/24 dev foreign0",
  "link set foreign0 up",
  "route add 192.0.2.0/28 dev foreign0 table 119 proto static",
  "route add 192.0.2.16/28 dev foreign0 table 116 proto 40",
  "route add 192.0.2.32/28 dev foreign0 proto static",
  "route add unreachable 192.0.2.48/28 table 500 proto 186",
  "rule add from 192.0.2.1 lookup 116 priority 1999",
  "rule add from 192.0.2.2 lookup 50 priority 2001",
];
/** Kernel objects of programs that are not run here, with their marks. */
const OURS: readonly string[] = [
  "link add knode0 type bridge",
  "link set knode0 alias ISTHMUS:bind",
  "route add unreachable default table 502 metric 4294967295 proto 186",
  `rule add from ${OUTSIDE_IPV4} lookup 502 priority 15000 protocol 186`,
];

/** The node's kernel state, line by line, without what differs from one listing to the next. */
function dumpOf(node: Pick<CniNode, "netns" | "ip">): readonly string[] {
  const routes = [4, 6].flatMap((family) => node.ip(`-${family}`, "route", "show", "table", "all").split("\n"));
  const rules = [4, 6].flatMap((family) => node.ip(`-${family}`, "rule", "show").split("\n"));
  const nft = execFileSync("ip", ["netns", "exec", node.netns, "nft", "list", "ruleset"], { encoding: "utf8" });
  return [
    ...node.ip("-o", "link", "show").split("\n"),
    ...node.ip("-o", "address", "show").split("\n"),
    ...routes.toSorted(),
    ...rules,
    ...nft.split("\n"),
  ].map((line) => line.trim());
}

/** The files that an installation may change. */
function filesOf(folder: string): readonly string[] {
  const all = ["etc", "bin", "var", "run", "."].flatMap((part) => {
    const path = join(folder, part);
    return existsSync(path) ? readdirSync(path, { recursive: part !== "." }).map((name) => `${part}/${name}`) : [];
  });
  return all.filter((name) => !name.endsWith("kubeconfig"));
}

/** A node on which the suite was installed, ran with a pod, and has ended. */
async function installed(t: TestContext) {
  let before: readonly string[] = [];
  let filesBefore: readonly string[] = [];
  const node = await CniNode.open("uninstall", [], undefined, [], async (made) => {
    for (const line of FOREIGN) made.ip(...line.split(" "));
    const tables = "table ip foreign { chain c { type filter hook input priority 0; policy accept; }\n }";
    execFileSync("ip", ["netns", "exec", made.netns, "nft", tables]);
    // As docker sets it: coild has rules there meanwhile.
    execFileSync("ip", ["netns", "exec", made.netns, "iptables-nft", "-P", "FORWARD", "DROP"]);
    for (const folder of ["etc", "bin", "run", "var/lib"]) mkdirSync(join(made.folder, folder), { recursive: true });
    writeFileSync(join(made.folder, "etc/20-other.conflist"), FOREIGN_CONFLIST);
    writeFileSync(join(made.folder, "bin/bridge"), "theirs");
    await until("addresses are assigned", () => !made.ip("address", "show").includes("tentative"));
    before = dumpOf(made);
    filesBefore = filesOf(made.folder);
  });
  t.after(() => node[Symbol.asyncDispose]());
  const env = {
    CNI_ETC_DIR: join(node.folder, "etc"),
    CNI_BIN_DIR: join(node.folder, "bin"),
    COIL_PATH: node.plugin,
    CNI_NETCONF: CONFLIST,
  };
  const installer = await start([join(ISTHMUS, "../coil-installer"), "--rescan-wait=0"], { env }).ended;
  assert.equal(installer.code, 0, installer.stderr);
  for (const line of OURS) node.ip(...line.split(" "));
  execFileSync("ip", ["netns", "exec", node.netns, "nft", "add table inet uplink_guard"]);
  for (const folder of ["var/lib/isthmus/claims", "var/lib/uplink-proxy", "run/uplink-proxy"])
    mkdirSync(join(node.folder, folder), { recursive: true });
  const pod = `${node.netns}-pod`;
  openKernel().createNetNs(pod)[Symbol.dispose]();
  t.after(() => openKernel().deleteNetNs(pod));
  await node.createPod("web");
  await node.call("Add", { containerId: "c".repeat(64), netns: pod, pod: "web" });
  const proxy = node.run("service-proxy", ...SERVICE_PROXY);
  await until("service-proxy has its table", () => dumpOf(node).some((line) => line === "table ip kube-proxy {"), {
    seen: proxy.said,
  });
  const uninstall = (...flags: readonly string[]) =>
    start(
      node.inside(
        ISTHMUS,
        "uninstall",
        `--root=${node.folder}`,
        "--cni-etc-dir=/etc",
        "--cni-bin-dir=/bin",
        "--socket=/coild.sock",
        ...flags,
      ),
    );
  return {
    node,
    before,
    filesBefore,
    files: () => filesOf(node.folder),
    uninstall,
    run: (...flags: readonly string[]): Promise<Outcome> => uninstall(...flags).ended,
    end: async (): Promise<void> => {
      proxy.child.kill("SIGTERM");
      await Promise.all([proxy.ended, node.endCoild()]);
    },
  };
}

test("uninstall: it refuses while programs run and pods have links, a dry run changes nothing, and one that is killed is finished by the next", async (t) => {
  const { node, before, filesBefore, files, uninstall, run, end } = await installed(t);
  await until("packets of pods pass", () => dumpOf(node).some((line) => line.startsWith('iifname "veth*" ip saddr')));
  const used = dumpOf(node);
  const busy = await run("--pods");
  assert.equal(busy.code, 1, busy.stderr);
  assert.match(busy.stdout, /refused: coild \(process \d+\) runs on this node/);
  assert.match(busy.stdout, /refused: service-proxy \(process \d+\) runs/);
  assert.match(busy.stdout, /coild \(it holds \/coild\.lock\)/);
  assert.match(busy.stdout, /nothing was removed/);
  await end();
  const withPods = await run();
  assert.equal(withPods.code, 1);
  assert.match(
    withPods.stdout,
    /refused: 1 pods have links of this suite \(veth\w+\): delete the pods, or cut them off with --pods/,
  );
  const usedFiles = files();
  const dry = await run("--dry-run", "--pods", "--restore-settings");
  assert.equal(dry.code, 0, dry.stderr);
  for (const what of [
    /would remove \S*\/etc\/10-coil\.conflist /,
    /would rename \S*\/etc\/20-other\.conflist\.coil-disabled back to/,
    /would remove \S*\/bin\/coil /,
    /would remove \S*\/bin\/coil-standalone /,
    /would delete link veth\w+ .*COIL:default:c{64}:eth0/,
    /would delete link knode0 /,
    /would delete IPv4 rule 2000: lookup 116/,
    /would delete route 10\.210\.0\.\d+\/32 of table 116/,
    /would delete route 10\.210\.0\.0\/30 of table 119/,
    /would delete nftables tables inet source-guard and arp source-guard /,
    /would delete nftables table ip kube-proxy /,
    /would delete nftables table inet uplink_guard; 1 rules of uplinks; 1 routes of uplinks/,
    /would remove \S*\/coild\.lock /,
    /would remove \S*\/var\/lib\/isthmus /,
    /nothing was changed/,
  ])
    assert.match(dry.stdout, what);
  assert.deepEqual(
    dumpOf(node).filter((line) => !used.includes(line)),
    [],
    "a dry run adds nothing",
  );
  assert.deepEqual(files(), usedFiles);
  // Killed after some removals.
  const killed = uninstall("--pods", "--restore-settings");
  await until(
    "it has removed something",
    () => killed.printed().includes("done: delete link") || killed.child.exitCode !== null,
  );
  killed.child.kill("SIGKILL");
  await killed.ended;
  const last = await run("--pods", "--restore-settings");
  assert.equal(last.code, 0, `${last.stdout}${last.stderr}`);
  assert.match(last.stdout, /nothing of the suite is left\n$/);
  assert.deepEqual(dumpOf(node), before);
  assert.deepEqual(files(), filesBefore);
  assert.equal(readFileSync(join(node.folder, "etc/20-other.conflist"), "utf8"), FOREIGN_CONFLIST);
  // kube-proxy's own table has the same name.
  execFileSync("ip", ["netns", "exec", node.netns, "nft", "add table ip kube-proxy; add chain ip kube-proxy services"]);
  const again = await run("--json");
  const { scope, ...rest } = JSON.parse(again.stdout) as { readonly scope: string };
  assert.match(scope, /no program has left an estate .*--help.*of coild: table 116, protocol 30; .*priority 2000/);
  assert.deepEqual(rest, {
    ...{
      removals: [],
      refused: [],
      kept: [],
      warned: [],
      unfinished: [],
      ok: true,
      dryRun: false,
      failures: [],
      left: [],
    },
  });
  // What a coild with --pod-table-id=200 and --export-table-id=219 left.
  node.ip("rule", "add", "lookup", "200", "priority", "2000");
  node.ip("route", "add", "unreachable", "198.18.0.0/24", "table", "219", "proto", "30");
  const others = await run();
  assert.deepEqual([others.code, others.stdout.includes("nothing of the suite is left")], [1, false], others.stdout);
  assert.match(others.stdout, /left: IPv4 rule 2000: lookup 200: if it was coild's, give --pod-table-id=200 /);
  assert.match(
    others.stdout,
    /left: 1 routes of table 219 and protocol 30: if they were coild's, give --export-table-id=219/,
  );
  const numbered = await run("--pod-table-id=200", "--export-table-id=219");
  assert.equal(numbered.code, 0, numbered.stdout);
  assert.doesNotMatch(`${node.ip("rule", "show")}${node.ip("route", "show", "table", "all")}`, /lookup 200|198\.18/);
});

test("uninstall --cluster: objects and types are removed in order, with finalizers that nobody would take off, and those of others stay; --keep-pools keeps pools", async (t) => {
  const bed = await MigratorBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  const { client } = bed;
  const begin = (...flags: readonly string[]): Running =>
    start([ISTHMUS, "uninstall", "--cluster", `--kubeconfig=${bed.kubeconfig}`, ...flags], { timeoutMs: 120_000 });
  const run = (...flags: readonly string[]): Promise<Outcome> => begin(...flags).ended;
  await bed.installCrds();
  const finalizers = ["coil.cybozu.com"];
  const spec = { blockSizeBits: 1, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await client.create(coilResources.addressPools, { metadata: { name: "default", finalizers }, spec });
  await bed.block("default-0", "10.100.0.0/31", "node1", 0);
  const labels = { app: "coild" };
  const template = { metadata: { labels }, spec: { containers: [{ name: "coild", image: "isthmus:1" }] } };
  const workload = { selector: { matchLabels: labels }, template };
  const metadata = { namespace: "kube-system", name: "coild" };
  await client.create(resources.daemonSets, { metadata, spec: workload });
  await client.create(resources.daemonSets, { metadata: { ...metadata, name: "theirs" }, spec: workload });
  await client.create(resources.serviceAccounts, { metadata });
  // The routers of an Egress, one of a namespace that has none any more, and one that is ending.
  for (const namespace of ["internet", "former"]) {
    await client.create(resources.namespaces, { metadata: { name: namespace } });
    await client.create(resources.serviceAccounts, { metadata: { namespace, name: "coil-egress" } });
  }
  const router = { namespace: "internet", name: "nat-0" };
  const routerLabels = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "egress" };
  await client.create(resources.pods, {
    metadata: { ...router, labels: routerLabels },
    spec: { containers: [{ name: "egress", image: "isthmus:1" }] },
  } as unknown as Draft<Pod>);
  await client.create(resources.clusterRoles, { metadata: { name: "coild" }, rules: [] });
  await client.create(resources.clusterRoles, { metadata: { name: "theirs" }, rules: [] });
  const names = async (): Promise<readonly string[]> => {
    const lists = [resources.daemonSets, resources.serviceAccounts, resources.clusterRoles] as const;
    const all = await Promise.all(lists.map((type) => client.listAll(type as never)));
    return all
      .flatMap(({ items }) => items.map((item: { metadata: { name: string } }) => item.metadata.name))
      .toSorted();
  };
  const all = await names();
  const dry = await run("--dry-run");
  assert.equal(dry.code, 0, dry.stderr);
  assert.match(
    dry.stdout,
    /would delete DaemonSet kube-system\/coild .*\n(.*\n)*.*ClusterRole coild .*\n(.*\n)*.*AddressBlock default-0 .*\n.*AddressPool default .*\n.*CustomResourceDefinition/,
  );
  assert.deepEqual(await names(), all);
  const running = begin("--keep-pools");
  await until("it waits for the router", () => running.printed().includes("waiting for the end of 1 pods of routers"), {
    seen: running.printed,
  });
  assert.deepEqual(await names(), all, "coild serves the router's DEL");
  await client.delete(resources.pods, router);
  const kept = await running.ended;
  assert.equal(kept.code, 0, kept.stdout);
  assert.match(
    kept.stdout,
    /pods of routers of Egresses \(internet\/nat-0\)\n(.*\n)*done: delete DaemonSet kube-system\/coild /,
  );
  assert.match(kept.stdout, /kept: AddressPool default: --keep-pools/);
  assert.deepEqual(await bed.blocks(), ["default-0"]);
  assert.deepEqual(
    // The account of deploy/pods/egress-one-controller.yaml has a name that v1 of Coil used too.
    all.filter((name) => !["coild", "coil-controller", "coil-egress"].includes(name)),
    await names(),
  );
  const whole = await run();
  assert.equal(whole.code, 0, `${whole.stdout}${whole.stderr}`);
  assert.match(whole.stdout, /nothing of the suite is left\n$/);
  const types = await client.listAll(resources.customResourceDefinitions);
  for (const crd of coilCrds) assert.ok(!types.items.some((one) => one.metadata.name === crd.metadata.name));
});
