/** The operator's pages: their commands run as they stand, with Debian's kubectl, against an API server and our controller. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { parse, parseAllDocuments, stringify } from "yaml";
import { addToEstate } from "#base/estate";
import { isKubeError, resources } from "#kube/client";
import { blockRequestResult, coilCrds, coilResources } from "#kube/coil";
import { EtcdServer } from "#test/etcd-server";
import { commandsOf, withFolders } from "#test/guide";
import { ISTHMUS, start, until } from "#test/lab";
import { API, API_PORT, AT, ManifestBed, NODE_PROXIER } from "#test/manifest-bed";
import { MigratorBed, V1_DATA } from "#test/migrator-bed";
import { collectOrphans } from "#test/orphans";
import { unruled } from "#test/unruled";

const root = join(import.meta.dirname, "../..");
const bootId = (): string => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
const KUBECTL = join(root, ".state/debian/usr/bin");
const labels = { app: "web" };
const deployment = {
  selector: { matchLabels: labels },
  template: { metadata: { labels }, spec: { containers: [{ name: "c", image: "none" }] } },
};

/**
 * A shell of an operator, with kubectl, our programs and the checkout at hand. `wrap` is a command that runs it, `bin` a folder of further
 * programs.
 */
function shellOf(
  t: TestContext,
  bed: { readonly kubeconfig: string },
  variables: Readonly<Record<string, string>> = {},
  { wrap = [], bin = "" }: { readonly wrap?: readonly string[]; readonly bin?: string } = {},
) {
  const folder = folderOf(t);
  symlinkSync(join(root, "deploy"), join(folder, "deploy"));
  const path = [bin, dirname(ISTHMUS), KUBECTL, process.env["PATH"]].join(delimiter);
  const env = { ...variables, PATH: path, KUBECONFIG: bed.kubeconfig, HOME: folder };
  return async (script: string): Promise<string> => {
    const { code, stdout, stderr } = await start([...wrap, "sh", "-ec", `cd ${folder}; ${script}`], {
      env,
      timeoutMs: 120_000,
    }).ended;
    assert.equal(code, 0, `${script}\n${stdout}${stderr}`);
    return stdout;
  };
}

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-guide-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** A workload of an installation; its containers have the image `old:1`. */
function workloadOf(name: string, inits: readonly string[] = []) {
  const own = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": name };
  const [initContainers, containers] = [inits, [name]].map((all) =>
    all.map((one) => ({ name: one, image: "old:1", command: [one] })),
  );
  const template = { metadata: { labels: own }, spec: { containers, initContainers } };
  return { metadata: { namespace: "kube-system", name }, spec: { selector: { matchLabels: own }, template } } as never;
}

/** A controller on its own port; its address. */
async function controllerOf(t: TestContext, bed: MigratorBed): Promise<string> {
  const args = ["--metrics-addr=127.0.0.1:19386", "--health-addr=127.0.0.1:19387", "--webhook-addr=none"];
  const running = start([join(dirname(ISTHMUS), "coil-ipam-controller"), ...args, `--kubeconfig=${bed.kubeconfig}`], {
    timeoutMs: 300_000,
  });
  t.after(async () => {
    running.child.kill("SIGTERM");
    await running.ended;
  });
  return "127.0.0.1:19386";
}

async function bedOf(t: TestContext): Promise<MigratorBed> {
  const bed = await MigratorBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  return bed;
}

/** Runs the scripts of a section, and compares their number, so that a new one gets its check here. */
async function follow(
  shell: (script: string) => Promise<string>,
  page: string,
  section: string,
  count: number,
): Promise<string[]> {
  const scripts = commandsOf(page, section);
  assert.equal(scripts.length, count, `${page}, ${section}: ${scripts.join("\n--\n")}`);
  const answers: string[] = [];
  for (const script of scripts) answers.push(await shell(script));
  return answers;
}

test("operate-pools, a full pool: the commands of the page run as they stand, and the appended subnet gives a block", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  const CONTROLLER = await controllerOf(t, bed);
  const spec = { blockSizeBits: 1, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await bed.client.create(coilResources.addressPools, { metadata: { name: "default" }, spec });
  const ask = async (node: string): Promise<string> => {
    await bed.client.create(coilResources.blockRequests, {
      metadata: { name: `req-default-${node}` },
      spec: { nodeName: node, poolName: "default" },
    });
    let state = "";
    await until(`the request of ${node} is answered`, async () => {
      const request = await bed.client.get(coilResources.blockRequests, { name: `req-default-${node}` });
      state = blockRequestResult(request).state;
      return state !== "in-progress";
    });
    return state;
  };
  for (const name of ["n3", "n4"]) await bed.client.create(resources.nodes, { metadata: { name } });
  await ask("node1");
  await ask("node2");
  const full = await ask("n3");
  const [requests = "", metrics = "", blocks = ""] = await follow(
    shellOf(t, bed, { CONTROLLER }),
    "operate-pools.md",
    "A pool runs full",
    4,
  );
  assert.match(requests, /req-default-n3 .*out of blocks/);
  assert.match(metrics, /coil_controller_max_blocks\{pool="default"\} 2/);
  assert.match(metrics, /coil_controller_allocated_blocks\{pool="default"\} 2/);
  assert.match(blocks, /default-0 .*\n.*default-1 /);
  assert.notEqual(await ask("n4"), full);
});

test("operate-pools, another pool: the commands of the page run as they stand, and pods are made anew", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  const spec = { blockSizeBits: 1, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await bed.client.create(coilResources.addressPools, { metadata: { name: "old" }, spec });
  await bed.client.create(resources.deployments, { metadata: { namespace: "web", name: "web" }, spec: deployment });
  await follow(shellOf(t, bed), "operate-pools.md", "Move a namespace to another pool", 3);
  const { metadata } = await bed.client.get(resources.namespaces, { name: "web" });
  assert.equal(metadata.annotations?.["coil.cybozu.com/pool"], "web");
  const restarted = await bed.client.get(resources.deployments, { namespace: "web", name: "web" });
  assert.match(JSON.stringify(restarted.spec?.template), /restartedAt/);
});

test("operate-pools, a node: the commands of the page run as they stand, and its blocks are collected", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  await controllerOf(t, bed);
  await bed.client.create(resources.nodes, { metadata: { name: "n9" } });
  await bed.block("default-7", "10.100.0.14/31", "n9", 7);
  await bed.pod("lost", "n9", "10.100.0.14");
  // A rule without an effect counts: the page's last command waits for the blocks.
  const match = { verb: "watch", resource: "addressblocks", userAgent: "kubectl" };
  bed.server.faults.add({ match, action: { latencyMs: 0 } });
  const isWaited = (): boolean => bed.server.faults.list().some(({ hits }) => hits > 0);
  const collected = until("kubectl waits for the blocks", isWaited).then(() => collectOrphans(bed.client));
  await Promise.all([collected, follow(shellOf(t, bed), "operate-pools.md", "A node is gone", 2)]);
  assert.deepEqual(await bed.blocks(), []);
  assert.deepEqual([...(await bed.pods()).keys()], []);
});

test("upgrade-from-coil, v1: the commands of the page run as they stand, and nothing of v1 is left", async (t) => {
  const bed = await bedOf(t);
  await using etcd = await EtcdServer.start({ tls: true });
  await etcd.put(V1_DATA);
  await bed.pod("a", "node1", "10.0.0.1");
  await bed.pod("c", "node2", "10.1.0.33");
  const shell = shellOf(t, bed, { ETCD: etcd.flags.join(" ") });
  const answers = await follow(shell, "upgrade-from-coil.md", "From v1", 4);
  assert.equal(answers.at(-1), "");
  assert.deepEqual(await bed.v1Objects(), []);
  assert.deepEqual([...(await bed.pods()).keys()], []);
  assert.deepEqual(await bed.blocks(), []);
});

test("upgrade-from-coil, v2: the commands of the page run as they stand, and pools and blocks stay", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  for (const crd of coilCrds) {
    const patch = { type: "apply", body: unruled(crd), fieldManager: "test", force: true } as const;
    await bed.client.patch(resources.customResourceDefinitions, { name: crd.metadata.name }, patch);
  }
  const spec = { blockSizeBits: 1, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await bed.client.create(coilResources.addressPools, { metadata: { name: "default" }, spec });
  await bed.block("default-0", "10.100.0.0/31", "node1", 0);
  await bed.client.create(resources.deployments, workloadOf("coil-ipam-controller"));
  const IMAGE = "registry.example/isthmus:1";
  const scripts = commandsOf("upgrade-from-coil.md", "From v2");
  assert.equal(scripts.length, 4);
  // No node runs pods here.
  for (const script of scripts) await shellOf(t, bed, { IMAGE })(script.replace(/^kubectl .* rollout status .*$/m, ""));
  assert.deepEqual(await bed.blocks(), ["default-0"]);
  const metadata = { namespace: "kube-system", name: "coil-ipam-controller" };
  const { spec: after } = await bed.client.get(resources.deployments, metadata);
  assert.equal(after?.template.spec?.containers?.[0]?.image, IMAGE, "the controller, which has Coil's name, goes on");
});

test("upgrade-from-coil, Egresses: the commands of the page run as they stand on Coil's objects, routers keep their rights, and deploy/pods-egress.yaml can be applied over Coil's", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  await bed.client.create(resources.namespaces, { metadata: { name: "internet" } });
  const spec = { destinations: ["0.0.0.0/0"], template: { spec: { containers: [{ name: "egress" }] } } };
  const coils = { metadata: { namespace: "internet", name: "nat" }, spec };
  const egress = await bed.client.create(coilResources.egresses, coils as never);
  const subjects = [{ kind: "ServiceAccount", name: "coil-egress", namespace: "internet" }];
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "coil-egress" };
  await bed.client.create(resources.clusterRoleBindings, { metadata: { name: "coil-egress" }, roleRef, subjects });
  await bed.client.create(resources.daemonSets, workloadOf("coild", ["coil-installer"]));
  for (const part of ["ipam", "egress"])
    await bed.client.create(resources.deployments, workloadOf(`coil-${part}-controller`));
  // doctor looks at all processes: those of other tests are none of this node's.
  const alone = { wrap: ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] };
  const shell = shellOf(t, bed, { IMAGE: "registry.example/isthmus:1" }, alone);
  const answers = await follow(shell, "upgrade-from-coil.md", "Egresses", 5);
  assert.match(answers.at(-1) ?? "", /^internetNAMESPACE +NAME +WANTED +READY\ninternet +nat +1 +<none>\n$/);
  const images = (kind: string, name: string): Promise<string> =>
    shell(`kubectl -n kube-system get ${kind} ${name} -o jsonpath='{..image}'`);
  assert.equal(await images("daemonset", "coild"), "registry.example/isthmus:1 registry.example/isthmus:1");
  assert.equal(await images("deployment", "coil-egress-controller"), "registry.example/isthmus:1");
  assert.deepEqual((await bed.client.get(coilResources.egresses, egress.metadata)).spec, egress.spec);
  // A second time, and with the workloads and webhooks: the selectors, which cannot be changed, are Coil's.
  await shell("kubectl apply -f deploy/pods/egress.yaml -f deploy/pods-egress.yaml");
  const binding = await bed.client.get(resources.clusterRoleBindings, { name: "coil-egress" });
  assert.deepEqual(
    binding.subjects?.map(({ namespace }) => namespace),
    ["internet"],
  );
  assert.match(await images("deployment", "coil-egress-controller"), /^isthmus:/);
});

/** Applied by those who want it (docs/security.md). */
const ON_DEMAND = ["isthmus-egress-templates"];

test("upgrade, Upgrade and Back: the commands of the page run as they stand, every workload gets the other image, and pools and blocks stay", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  const spec = { blockSizeBits: 1, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await bed.client.create(coilResources.addressPools, { metadata: { name: "default" }, spec });
  await bed.block("default-0", "10.100.0.0/31", "node1", 0);
  const inits: Readonly<Record<string, readonly string[]>> = {
    coild: ["coil-installer"],
    "nic-agent": ["install-vpc-plugins"],
  };
  const workloads = parseAllDocuments(
    ["all", "tunnel"].map((name) => readFileSync(join(root, `deploy/${name}.yaml`), "utf8")).join("---\n"),
  );
  const names = (kind: string): readonly string[] =>
    workloads.flatMap((one) => (one.toJS()?.kind === kind ? [one.toJS().metadata.name as string] : []));
  for (const name of new Set(names("DaemonSet")))
    await bed.client.create(resources.daemonSets, workloadOf(name, inits[name]));
  for (const name of new Set([...names("Deployment"), "coil-egress-controller"]))
    await bed.client.create(resources.deployments, workloadOf(name));
  const network = { namespace: "kube-system", name: "nic-agent-network" };
  const configured = async () => (await bed.client.get(resources.configMaps, network)).data?.["cni_netconf"];
  // A configuration has what a shell or JSON would change.
  const before = '{\n  "delegate": { "type": "coil", "note": "$(a) \\\\ \'b\'" }\n}\n';
  await bed.client.create(resources.configMaps, { metadata: network, data: { cni_netconf: before } });
  const run = shellOf(t, bed, { IMAGE: "isthmus:2", BEFORE: "old:1" });
  // No node runs pods here.
  const shell = (script: string): Promise<string> => run(script.replaceAll(/^kubectl .* rollout status .*$/gm, ""));
  const images = async (): Promise<readonly string[]> => {
    const all = await shell("kubectl -n kube-system get daemonsets,deployments -o jsonpath='{..image}'");
    return [...new Set(all.split(" "))].filter((image) => image !== "none");
  };
  assert.deepEqual(await images(), ["old:1"]);
  await follow(shell, "upgrade.md", "Upgrade", 10);
  assert.deepEqual(await images(), ["isthmus:2"]);
  // Each right and each rule of admission is that of the new release.
  for (const file of globSync("deploy/{pods,nics,service-proxy}/*.yaml", {
    cwd: root,
    exclude: ["**/rbac-chained.yaml"],
  }))
    for (const document of parseAllDocuments(readFileSync(join(root, file), "utf8"))) {
      const { kind, metadata, rules, spec } = (document.toJS() ?? {}) as {
        kind?: string;
        metadata?: { name: string; namespace?: string };
        rules?: object;
        spec?: { validations?: object };
      };
      if (!/^(Cluster)?Role$|^ValidatingAdmissionPolicy$/.test(kind ?? "") || ON_DEMAND.includes(metadata?.name ?? ""))
        continue;
      const namespace = metadata?.namespace ?? "kube-system";
      const stored = JSON.parse(await run(`kubectl -n ${namespace} get ${kind} ${metadata?.name} -o json`));
      assert.deepEqual(
        stored.rules ?? stored.spec.validations,
        rules ?? spec?.validations,
        `${file}: ${metadata?.name}`,
      );
    }
  assert.deepEqual(await bed.blocks(), ["default-0"]);
  const after = { data: { cni_netconf: '{ "delegate": { "plugins": [] } }' } };
  await bed.client.patch(resources.configMaps, network, { type: "merge", body: after });
  const [first = "", ...others] = commandsOf("upgrade.md", "Back");
  await shell(first);
  // The network is that of before while programs are still the new ones.
  assert.equal(await configured(), before);
  assert.deepEqual(await images(), ["isthmus:2"]);
  for (const name of ["nic-agent", "coild"]) {
    const { spec } = await bed.client.get(resources.daemonSets, { namespace: "kube-system", name });
    assert.ok(spec?.template.metadata?.annotations?.["kubectl.kubernetes.io/restartedAt"] !== undefined, name);
  }
  assert.equal(others.length, 2);
  for (const script of others) await shell(script);
  assert.deepEqual(await images(), ["old:1"]);
  assert.equal(await configured(), before);
  assert.deepEqual(await bed.blocks(), ["default-0"]);
});

test("upgrade, Remove the cluster's objects: the commands of the page run as they stand, and no type, pool, block or workload is left", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  const finalizers = ["coil.cybozu.com"];
  const spec = { blockSizeBits: 1, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await bed.client.create(coilResources.addressPools, { metadata: { name: "default", finalizers }, spec });
  await bed.client.create(resources.daemonSets, workloadOf("coild", ["coil-installer"]));
  const shell = shellOf(t, bed);
  const [said = ""] = await follow(shell, "upgrade.md", "Remove the cluster's objects", 1);
  assert.match(
    said,
    /would delete AddressPool default [\s\S]*done: delete AddressPool default [\s\S]*nothing of the suite is left\n$/,
  );
  const { items } = await bed.client.listAll(resources.customResourceDefinitions);
  assert.ok(!items.some(({ metadata }) => metadata.name.endsWith(".coil.cybozu.com")));
});

test("upgrade, Remove it from a node: the commands of the page run as they stand, and what is left of the suite is gone", async (t) => {
  const folder = folderOf(t);
  const parts = { "/etc": "etc", "/opt": "opt", "/run": "run", "/var/lib": "lib" };
  const places = Object.fromEntries(Object.entries(parts).map(([place, name]) => [place, join(folder, name)]));
  cpSync("/etc", join(folder, "etc"), { recursive: true, verbatimSymlinks: true });
  for (const part of ["etc/cni/net.d", "opt/cni/bin", "run", "lib/uplink-proxy"])
    mkdirSync(join(folder, part), { recursive: true });
  writeFileSync(join(folder, "etc/cni/net.d/10-coil.conflist"), '{"name":"x","plugins":[{"type":"coil"}]}');
  writeFileSync(join(folder, "run/coild.lock"), "");
  // What coild has left as its estate, with its default numbers; the network namespace is that of the shell.
  addToEstate(join(folder, "lib/isthmus/coild"), "coild", { boot: bootId(), netns: "0", kernel: [], files: [] });
  const wrap = ["unshare", "--net", ...withFolders(places)];
  const left =
    `sed -i 's/"netns": *"0"/"netns":"'$(stat -Lc %i /proc/self/ns/net)'"/' /var/lib/isthmus/coild/estate.json && ` +
    "ip link add veth1 type bridge && ip link set veth1 alias COIL:default:c:eth0 && ip rule add lookup 116 priority 2000";
  const [script = ""] = commandsOf("upgrade.md", "Remove it from a node");
  const shell = shellOf(t, { kubeconfig: "none" }, {}, { wrap });
  // The namespace is that of one shell.
  const said = await shell(`${left}; ${script}; ip link show veth1 2>&1 || true; ip rule`);
  assert.match(
    said,
    /done: delete link veth1 [\s\S]*done: delete IPv4 rule 2000: lookup 116 [\s\S]*nothing of the suite is left\n/,
  );
  assert.match(said, /does not exist/);
  assert.doesNotMatch(said.split("nothing of the suite is left").at(-1) ?? "", /lookup 116/);
  for (const path of ["etc/cni/net.d/10-coil.conflist", "run/coild.lock", "lib/uplink-proxy", "lib/isthmus/coild"])
    assert.ok(!existsSync(join(folder, path)), path);
});

/** The manifests of Kubernetes' documentation, in which our programs take Konnectivity's place. */
const KONNECTIVITY = {
  server: [
    "--logtostderr=true",
    "--uds-name=/etc/kubernetes/konnectivity-server/konnectivity-server.socket",
    "--delete-existing-uds-file",
    "--cluster-cert=/etc/kubernetes/pki/apiserver.crt",
    "--cluster-key=/etc/kubernetes/pki/apiserver.key",
    "--mode=grpc",
    "--server-port=0",
    "--agent-port=8132",
    "--admin-port=8133",
    "--health-port=8134",
    "--agent-namespace=kube-system",
    "--agent-service-account=konnectivity-agent",
    "--kubeconfig=/etc/kubernetes/konnectivity-server.conf",
    "--authentication-audience=system:konnectivity-server",
  ],
  agent: [
    "--logtostderr=true",
    "--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
    "--proxy-server-host=192.0.2.7",
    "--proxy-server-port=8132",
    "--admin-server-port=8133",
    "--health-server-port=8134",
    "--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token",
  ],
} as const;

test("tunnel, From Konnectivity: the commands of the page run as they stand, both programs take the flags that are there, and the way back restores the manifests", async (t) => {
  const bed = await bedOf(t);
  const folder = folderOf(t);
  cpSync("/etc", join(folder, "etc"), { recursive: true, verbatimSymlinks: true });
  for (const part of ["etc/kubernetes/manifests", "root"]) mkdirSync(join(folder, part), { recursive: true });
  const old = (name: string): string => `registry.k8s.io/kas-network-proxy/proxy-${name}:v0.34.0`;
  const container = { name: "konnectivity-server-container", image: old("server"), command: ["/proxy-server"] };
  const manifest = join(folder, "etc/kubernetes/manifests/konnectivity-server.yaml");
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "konnectivity-server", namespace: "kube-system" },
    spec: { hostNetwork: true, containers: [{ ...container, args: KONNECTIVITY.server }] },
  };
  writeFileSync(manifest, stringify(pod));
  const labels = { "k8s-app": "konnectivity-agent" };
  const agent = {
    name: "konnectivity-agent",
    image: old("agent"),
    command: ["/proxy-agent"],
    args: KONNECTIVITY.agent,
  };
  const template = { metadata: { labels }, spec: { containers: [agent] } };
  const metadata = { name: "konnectivity-agent", namespace: "kube-system" };
  await bed.client.create(resources.daemonSets, {
    metadata,
    spec: { selector: { matchLabels: labels }, template },
  } as never);
  const wrap = withFolders({ "/etc": join(folder, "etc"), "/root": join(folder, "root") });
  const shell = shellOf(t, bed, { IMAGE: "registry.example/isthmus:2", BEFORE: old("agent") }, { wrap });
  const imageOf = async (): Promise<readonly unknown[]> => {
    const { spec } = await bed.client.get(resources.daemonSets, metadata);
    const server = parse(readFileSync(manifest, "utf8")) as typeof pod;
    return [spec?.template?.spec?.containers?.[0]?.image, server.spec.containers[0]?.image];
  };
  const scripts = commandsOf("tunnel.md", "From Konnectivity");
  assert.equal(scripts.length, 3, scripts.join("\n--\n"));
  const before = readFileSync(manifest, "utf8");
  assert.equal(await shell(scripts[0] ?? ""), `${old("agent")}daemonset.apps/konnectivity-agent image updated\n`);
  await shell(scripts[1] ?? "");
  assert.deepEqual(await imageOf(), ["registry.example/isthmus:2", "registry.example/isthmus:2"]);
  // The image has both programs under these names; the build's links are the same programs.
  for (const [name, args] of [
    ["proxy-server", KONNECTIVITY.server],
    ["proxy-agent", KONNECTIVITY.agent],
  ] as const) {
    const { code, stderr } = await start([join(dirname(ISTHMUS), name), ...args, "--version"]).ended;
    assert.equal(code, 0, stderr);
  }
  await shell(scripts[2] ?? "");
  assert.deepEqual(await imageOf(), [old("agent"), old("server")]);
  assert.equal(readFileSync(manifest, "utf8"), before);
});

/** Rules as kube-proxy's modes iptables and ipvs have them, of kubelet, of Docker, and of kube-router, whose chains begin as kube-proxy's do. */
const IPTABLES = `*filter
:KUBE-FORWARD - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-ROUTER-FORWARD - [0:0]
:KUBE-POD-FW-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-NWPLCY-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kube-router netpol" -j KUBE-ROUTER-FORWARD
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-ROUTER-FORWARD -d 10.210.0.9/32 -j KUBE-POD-FW-ABCDEFGHIJKLMNOP
-A KUBE-POD-FW-ABCDEFGHIJKLMNOP -j KUBE-NWPLCY-ABCDEFGHIJKLMNOP
-A KUBE-NWPLCY-ABCDEFGHIJKLMNOP -j RETURN
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
COMMIT
*nat
:DOCKER - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SEP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-EXT-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SERVICES -d 10.96.10.11/32 -p tcp -m comment --comment "default/old cluster IP" -m tcp --dport 80 -j KUBE-SVC-ABCDEFGHIJKLMNOP
-A KUBE-SVC-ABCDEFGHIJKLMNOP -j KUBE-SEP-ABCDEFGHIJKLMNOP
-A KUBE-SEP-ABCDEFGHIJKLMNOP -p tcp -m tcp -j DNAT --to-destination 10.210.0.9:8080
COMMIT
`;
/** The chains of kube-proxy and docker that stay. */
const KEPT = "(DOCKER|KUBE-(FIREWALL|KUBELET-CANARY|MARK-MASQ|POSTROUTING|ROUTER-FORWARD|POD-FW-\\w+|NWPLCY-\\w+))";
const OF_OTHERS = new RegExp(`^:${KEPT} |^-A \\S+ .*-j ${KEPT}$|^-A ${KEPT} `);

test("service-proxy: on a node of kubeadm, whose kube-proxy has a kubeconfig for pods alone, the commands of the page run as they stand, as a DaemonSet, as a unit, and back", async (t) => {
  const bed = await ManifestBed.open(t, "guide-sp");
  const { api } = bed;
  const SERVICE = "10.96.10.10";
  const [folder, netns] = [folderOf(t), bed.netns("node")];
  const [lib, bin] = [join(folder, "lib"), join(folder, "bin")];
  for (const path of [join(lib, "kube-proxy"), bin]) mkdirSync(path, { recursive: true });
  // systemd does not run here: its commands start and end what the unit says.
  const unit = readFileSync(join(root, "deploy/service-proxy/service-proxy.service"), "utf8");
  const [, command = ""] = /^ExecStart=\/usr\/local\/bin\/(isthmus .*)$/m.exec(unit) ?? [];
  const [pid, log] = [join(folder, "pid"), join(folder, "log")];
  const stub = (name: string, body: string): void =>
    writeFileSync(join(bin, name), `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  stub(
    "systemctl",
    `[ "$*" = "enable --now service-proxy" ]; setsid ${command.replace("%H", "node")} >${log} 2>&1 </dev/null & echo $! >${pid}`,
  );
  stub("journalctl", `until curl -sf http://127.0.0.1:10256/healthz >/dev/null; do sleep 0.05; done; cat ${log}`);
  // It is not at hand: that it is called is what is seen.
  stub("ipvsadm", 'echo "ipvsadm $*"');
  const end = async (): Promise<void> => {
    if (!existsSync(pid)) return;
    process.kill(Number(readFileSync(pid, "utf8")));
    rmSync(pid);
    await until("the program has ended", async () => (await bed.seen(netns, "127.0.0.1", 10_256)) === "none");
  };
  t.after(end);
  const kubeconfig = join(folder, "kubeconfig");
  const text = readFileSync(join(bed.folder, "kubeconfig"), "utf8");
  writeFileSync(kubeconfig, text.replace(/https:\/\/127\.0\.0\.1:\d+/, `https://${API}:${API_PORT}`));
  const wrap = ["ip", "netns", "exec", netns, ...withFolders({ "/var/lib": lib })];
  const run = shellOf(t, { kubeconfig }, {}, { wrap, bin });
  const shell = (script: string): Promise<string> => run(script.replaceAll("node-a", "node"));
  const answers = async (): Promise<void> => {
    await until("the Service answers", async () => (await bed.seen(netns, SERVICE, 80)) === AT.node[4], {
      seen: () => bed.said(),
    });
  };
  const nft = (): string =>
    execFileSync("ip", ["netns", "exec", netns, "nft", "list", "ruleset"], { encoding: "utf8" });

  // As the pod network has it.
  for (const key of ["ipv4.ip_forward", "ipv6.conf.all.forwarding"])
    execFileSync("ip", ["netns", "exec", netns, "sysctl", "-qw", `net.${key}=1`]);

  // kubeadm's kube-proxy; its part is taken by ours, which has the same name, kubeconfig and table.
  await bed.applyText("role.yaml", NODE_PROXIER);
  const kubeadm = readFileSync(join(root, "test/data/manifests/kube-proxy.yaml"), "utf8");
  await bed.applyText("kube-proxy.yaml", kubeadm.replace("CONTROL_PLANE_ENDPOINT", `${API}:${API_PORT}`));
  await bed.ready("kube-proxy");
  await bed.serve(bed.netns("outside"), AT.outside[4], 8000);
  await bed.makeService("web", { clusterIP: SERVICE, port: 80 }, { address: AT.outside[4], port: 8000 });
  await answers();
  const [before = ""] = await follow(shell, "service-proxy.md", "Before", 1);
  assert.match(before, /kernel .*\n[\s\S]*mode: /);

  await follow(shell, "service-proxy.md", "Once, for all nodes", 2);
  assert.ok(
    !bed
      .node()
      .ready()
      .some((name) => name.startsWith("service-proxy")),
    "no node has the label yet",
  );
  const [start = "", iptables = "", ipvs = "", check = "", ...more] = commandsOf("service-proxy.md", "One node");
  assert.equal(more.length, 0);
  /** Deletes pods of a DaemonSet as a kubelet does. */
  const leave = async (name: string): Promise<void> => {
    const pods = async () =>
      (await api.listAll(resources.pods)).items.filter(({ metadata }) => metadata.name.startsWith(`${name}-`));
    await until(`pods of ${name} are deleted`, async () =>
      (await pods()).every(({ metadata }) => metadata.deletionTimestamp !== undefined),
    );
    await bed.node().end(`${name}-`);
    const options = { gracePeriodSeconds: 0 };
    for (const { metadata } of await pods())
      await api.delete(resources.pods, { namespace: "kube-system", name: metadata.name }, options);
  };
  await Promise.all([shell(start), leave("kube-proxy")]);
  await bed.ready("service-proxy");
  await answers();
  execFileSync("ip", ["netns", "exec", netns, "iptables-restore", "--noflush"], { input: IPTABLES });
  const own = (): string =>
    execFileSync("ip", ["netns", "exec", netns, "nft", "list", "table", "ip", "kube-proxy"], {
      encoding: "utf8",
    }).replaceAll(/expires \w+/g, "");
  const table = own();
  await shell(iptables);
  const left = execFileSync("ip", ["netns", "exec", netns, "iptables-save"], { encoding: "utf8" });
  const wanted = IPTABLES.split("\n").filter((line) => OF_OTHERS.test(line));
  assert.deepEqual(
    left
      .split("\n")
      .filter((line) => /KUBE-|DOCKER/.test(line))
      .sort(),
    wanted.sort(),
  );
  assert.equal(own(), table);
  await shell(iptables);
  execFileSync("ip", ["-n", netns, "link", "add", "kube-ipvs0", "type", "bridge"]);
  assert.equal(await shell(ipvs), "ipvsadm --clear\n");
  await answers();
  await api.create(resources.pods, {
    metadata: { namespace: "default", name: "web-a" },
    spec: {
      nodeName: "node",
      hostNetwork: true,
      containers: [{ name: "c", image: "none", command: ["sleep", "300"] }],
    },
  } as never);
  await bed.ready("web-a");
  assert.match(await shell(check), /sync_proxy_rules_last[\s\S]*contested[\s\S]* 0\n[\s\S]*web-a/);
  await follow(shell, "service-proxy.md", "Back", 1);
  await leave("service-proxy");
  await bed.ready("kube-proxy");
  await answers();

  const [make = "", begin = "", ...others] = commandsOf("service-proxy.md", "One node, without a container");
  assert.equal(others.length, 0);
  // What Kubernetes' controller puts into a Secret of this type.
  const secret = { namespace: "kube-system", name: "isthmus-service-proxy" };
  const filled = until("the Secret has its token", async () => {
    const base64 = (one: string): string => Buffer.from(one).toString("base64");
    const body = { data: { token: base64("kube-system/isthmus-service-proxy/node/"), "ca.crt": base64(bed.ca) } };
    try {
      await api.patch(resources.secrets, secret, { type: "merge", body });
      return true;
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      throw error;
    }
  });
  const files = join(lib, "kube-proxy");
  await Promise.all([filled, shell(`cd ${files}; ${make.replaceAll("deploy/", `${root}/deploy/`)}`)]);
  await shell(
    "kubectl -n kube-system delete daemonset service-proxy; kubectl label node node isthmus.example/service-proxy=true",
  );
  await leave("kube-proxy");
  await until("their ports are free", async () => (await bed.seen(netns, "127.0.0.1", 10_256)) === "none");
  // A table as another program has it.
  const other = "delete table ip kube-proxy; add table ip kube-proxy; add chain ip kube-proxy services";
  execFileSync("ip", ["netns", "exec", netns, "nft", other]);
  assert.match(await shell(begin), /is replaced; connections continue/);
  await answers();
  assert.match(
    await shell(
      "isthmus explain --node=node --config=/var/lib/kube-proxy/config.conf 10.210.0.9 service:default/web 80",
    ),
    /198\.51\.100\.1:8000/,
  );
  assert.match(nft(), /isthmus-layout-1/);
  await end();
});

test("pods.md: types, rights and a pool are applied as the page says, and the file for pods with an image of one's own", async (t) => {
  const bed = await bedOf(t);
  const shell = shellOf(t, bed);
  const [file = "", , rights = "", pool = "", ...rest] = commandsOf("pods.md", "(top)");
  // The commands between are Helm's, and a daemon's.
  assert.equal(rest.length, 1);
  await shell(rights);
  await until("the type is served", async () => {
    await shell("kubectl get addresspools");
    return true;
  });
  await shell(pool);
  assert.match(await shell("kubectl get addresspool default -o jsonpath='{.spec.subnets}'"), /10\.100\.0\.0\/16/);
  await shell(file);
  const image = await shell(
    "kubectl -n kube-system get daemonset coild -o jsonpath='{.spec.template.spec.containers[0].image}'",
  );
  assert.equal(image, "registry.example/isthmus:0.2.0");
});

test("nics.md: the programs are applied with an image of one's own, a Node gets its name at the cloud, and a file without NICs is made", async (t) => {
  const bed = await bedOf(t);
  const peers = process.env["ISTHMUS_PEERS"] ?? "/nonexistent";
  const bin = existsSync(join(peers, "helm")) ? peers : folderOf(t);
  if (bin !== peers) {
    const script = `#!/bin/sh\nexec ${process.execPath} ${join(root, "test/support/helm-page.ts")} "$@"\n`;
    writeFileSync(join(bin, "helm"), script, { mode: 0o755 });
  }
  const shell = shellOf(t, bed, {}, { bin });
  // The doctor is asked beside a Neutron, by nicctl.neutron.
  const [file = "", node = "", ...rest] = commandsOf("nics.md", "Install");
  assert.equal(rest.length, 1);
  await shell(file);
  const image =
    "kubectl -n kube-system get daemonset nic-agent -o jsonpath='{.spec.template.spec.containers[0].image}'";
  assert.equal(await shell(image), "registry.example/isthmus:0.2.0");
  await bed.client.create(resources.nodes, { metadata: { name: "n1" } });
  await shell(node.replace("NODE", "n1").replace("HOST", "compute-1"));
  const { metadata } = await bed.client.get(resources.nodes, { name: "n1" });
  assert.equal(metadata.annotations?.["isthmus.dev/provider-host"], "compute-1");
  const [policy = ""] = commandsOf("nics.md", "Open a VPC to a namespace");
  const [pod = ""] = commandsOf("nics.md", "A pod with NICs");
  await until("the types are served", async () => {
    await shell("kubectl get nicpolicies");
    return true;
  });
  await shell(`${policy}\n${pod}`);
  assert.equal(await shell("kubectl get nicpolicy default -o jsonpath='{.spec.vpcBindings[0].projectID}'"), "PROJECT");
  const [template = "", ...more] = commandsOf("nics.md", "Nodes without a cloud");
  assert.deepEqual(more, []);
  const kinds = await shell(`${template}; kubectl apply --dry-run=client -f all-without-nics.yaml`);
  assert.match(kinds, /^daemonset\.apps\/coild created/m);
  assert.doesNotMatch(kinds, /nic-/);
});

test("pods.md, What a cluster has besides: the commands of the page look at routes, translate pods' addresses, and find kube-proxy's range and the account's rights", async (t) => {
  const bed = await ManifestBed.open(t, "guide-pods");
  const netns = bed.netns("node");
  const folder = folderOf(t);
  const kubeconfig = join(folder, "kubeconfig");
  const text = readFileSync(join(bed.folder, "kubeconfig"), "utf8");
  writeFileSync(kubeconfig, text.replace(/https:\/\/127\.0\.0\.1:\d+/, `https://${API}:${API_PORT}`));
  writeFileSync(join(folder, "coild.kubeconfig"), bed.kubeconfigOf("system:serviceaccount:kube-system:coild"));
  await bed.applyCrds();
  await bed.applyText("rbac.yaml", readFileSync(join(root, "deploy/pods/rbac.yaml"), "utf8"));
  const data = { "config.conf": "kind: KubeProxyConfiguration\nclusterCIDR: 10.100.0.0/16\n" };
  await bed.api.create(resources.configMaps, { metadata: { namespace: "kube-system", name: "kube-proxy" }, data });
  const run = shellOf(t, { kubeconfig }, {}, { wrap: ["ip", "netns", "exec", netns] });
  const shell = (script: string): Promise<string> => run(script.replaceAll("/etc/isthmus", folder));
  const answers = await follow(shell, "pods.md", "What a cluster has besides", 4);
  assert.doesNotMatch(answers[0] ?? "", / via /);
  assert.match(answers[2] ?? "", /clusterCIDR: 10\.100\.0\.0\/16/);
  assert.match(answers[3] ?? "", /node\/node/);
  // A pod's packet to the world leaves with the node's address, one to the inside as it is.
  bed.ip("node", "address", "add", "10.100.0.7/32", "dev", "lo");
  bed.ip("outside", "address", "add", "203.0.113.77/32", "dev", "lo");
  bed.ip("outside", "address", "add", "192.168.7.7/32", "dev", "lo");
  bed.ip("outside", "route", "add", "10.100.0.7/32", "via", AT.node[4]);
  for (const address of ["203.0.113.77", "192.168.7.7"]) {
    await bed.serve(bed.netns("outside"), address, 8000);
    const seen = await run(`curl -s --http0.9 --interface 10.100.0.7 http://${address}:8000/`);
    assert.equal(seen, address === "203.0.113.77" ? AT.node[4] : "10.100.0.7");
  }
  assert.match(await run("nft list chain ip pods-to-world post"), /counter packets 1 /);
});

test("egress.md: the controller's rights are applied, and an Egress is scaled and rolled out by the commands of the page", async (t) => {
  const bed = await bedOf(t);
  const shell = shellOf(t, bed);
  for (const command of commandsOf("egress.md", "The controller")) await shell(command);
  await until("the type is served", async () => {
    await shell("kubectl get egresses -A");
    return true;
  });
  const where = { namespace: "internet", name: "nat" };
  await bed.client.create(resources.namespaces, { metadata: { name: where.namespace } });
  await bed.client.create(coilResources.egresses, {
    metadata: where,
    spec: { destinations: ["0.0.0.0/0"], template: { spec: { containers: [{ name: "egress" }] } } },
  } as never);
  await bed.client.create(resources.deployments, { metadata: where, spec: deployment } as never);
  // The second one makes a HorizontalPodAutoscaler, a type that the embedded API server does not have.
  const [byHand = "", byLoad = ""] = commandsOf("egress.md", "From day to day");
  assert.match(byLoad, /^kubectl -n internet autoscale egress nat /);
  await shell(byHand);
  assert.equal((await bed.client.get(coilResources.egresses, where)).spec?.replicas, 3);
  const { spec } = await bed.client.get(resources.deployments, where);
  assert.ok(spec?.template.metadata?.annotations?.["kubectl.kubernetes.io/restartedAt"] !== undefined);
});
