/** The operator's pages: their commands run as they stand, with Debian's kubectl, against an API server and our controller. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { parse, stringify } from "yaml";
import { resources } from "#kube/client";
import { blockRequestResult, coilCrds, coilResources } from "#kube/coil";
import { CniNode, NODE } from "#test/cni-node";
import { EtcdServer } from "#test/etcd-server";
import { commandsOf, withFolders } from "#test/guide";
import { ISTHMUS, start, until } from "#test/lab";
import { MigratorBed, V1_DATA } from "#test/migrator-bed";
import { unruled } from "#test/unruled";
import { claimsOf } from "#test/what-shows-it";

const root = join(import.meta.dirname, "../..");
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
  const running = start(
    [join(dirname(ISTHMUS), "coil-ipam-controller"), ...args, "--node-gone-grace=1s", `--kubeconfig=${bed.kubeconfig}`],
    { timeoutMs: 300_000 },
  );
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
  await follow(shellOf(t, bed), "operate-pools.md", "A node is gone", 2);
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
  await follow(shellOf(t, bed), "upgrade-from-coil.md", "From v2", 3);
  assert.deepEqual(await bed.blocks(), ["default-0"]);
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
  const shell = shellOf(t, bed, { IMAGE: "registry.example/isthmus:1" });
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

test("upgrade, Upgrade and Back: the commands of the page run as they stand, every workload gets the other image, and pools and blocks stay", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  const spec = { blockSizeBits: 1, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await bed.client.create(coilResources.addressPools, { metadata: { name: "default" }, spec });
  await bed.block("default-0", "10.100.0.0/31", "node1", 0);
  await bed.client.create(resources.daemonSets, workloadOf("coild", ["coil-installer"]));
  await bed.client.create(resources.daemonSets, workloadOf("coil-router"));
  for (const part of ["ipam", "egress"])
    await bed.client.create(resources.deployments, workloadOf(`coil-${part}-controller`));
  const shell = shellOf(t, bed, { IMAGE: "isthmus:2", BEFORE: "old:1" });
  const images = async (): Promise<readonly string[]> => {
    const all = await shell("kubectl -n kube-system get daemonsets,deployments -o jsonpath='{..image}'");
    return [...new Set(all.split(" "))].filter((image) => image !== "none");
  };
  assert.deepEqual(await images(), ["old:1"]);
  await follow(shell, "upgrade.md", "Upgrade", 6);
  assert.deepEqual(await images(), ["isthmus:2"]);
  assert.deepEqual(await bed.blocks(), ["default-0"]);
  await follow(shell, "upgrade.md", "Back", 1);
  assert.deepEqual(await images(), ["old:1"]);
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
  const wrap = ["unshare", "--net", ...withFolders(places)];
  const left =
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
  for (const path of ["etc/cni/net.d/10-coil.conflist", "run/coild.lock", "lib/uplink-proxy"])
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

test("service-proxy, One node and Back: the commands of the page run as they stand, a table of kube-proxy is replaced, and the proxy answers", async (t) => {
  const node = await CniNode.open("guide-sp");
  t.after(() => node[Symbol.asyncDispose]());
  const { api } = node;
  const folder = folderOf(t);
  const [lib, bin] = [join(folder, "lib"), join(folder, "bin")];
  for (const path of [join(lib, "kube-proxy"), bin]) mkdirSync(path, { recursive: true });
  const config = {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: "nftables",
    clusterCIDR: "10.210.0.0/26",
    clientConnection: { kubeconfig: "/var/lib/kube-proxy/kubeconfig.conf" },
    conntrack: { maxPerCore: 0, min: 0 },
    oomScoreAdj: 0,
  };
  writeFileSync(join(lib, "kube-proxy/config.conf"), stringify(config));
  cpSync(join(node.folder, "kubeconfig"), join(lib, "kube-proxy/kubeconfig.conf"));
  // systemd does not run here: its commands start and end what the unit says.
  const unit = readFileSync(join(root, "deploy/service-proxy/service-proxy.service"), "utf8");
  const [, command = ""] = /^ExecStart=\/usr\/local\/bin\/(isthmus .*)$/m.exec(unit) ?? [];
  const started = command.replace("%H", NODE);
  const [pid, log] = [join(folder, "pid"), join(folder, "log")];
  const stub = (name: string, body: string): void =>
    writeFileSync(join(bin, name), `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  stub(
    "systemctl",
    `case "$*" in
"enable --now service-proxy") setsid ${started} >${log} 2>&1 </dev/null & echo $! >${pid} ;;
"disable --now service-proxy") kill "$(cat ${pid})"; while curl -s http://127.0.0.1:10256/healthz >/dev/null; do sleep 0.05; done; rm ${pid} ;;
*) exit 1 ;; esac`,
  );
  stub("journalctl", `until curl -sf http://127.0.0.1:10256/healthz >/dev/null; do sleep 0.05; done; cat ${log}`);
  // The release that ran here is not at hand: that it is called is what is seen.
  stub("kube-proxy", 'echo "kube-proxy $*"');
  t.after(() => {
    if (existsSync(pid)) process.kill(Number(readFileSync(pid, "utf8")));
  });
  await api.create(resources.nodes, { metadata: { name: "node-a" } });
  const labels = { app: "kube-proxy" };
  const template = { metadata: { labels }, spec: { containers: [{ name: "kube-proxy", image: "kube-proxy:1" }] } };
  const metadata = { namespace: "kube-system", name: "kube-proxy" };
  await api.create(resources.daemonSets, { metadata, spec: { selector: { matchLabels: labels }, template } });
  await api.create(resources.configMaps, { metadata, data: { "config.conf": stringify(config) } });
  await node.createPod("web-a");
  const status = { phase: "Running", podIPs: [{ ip: "10.210.0.9" }], podIP: "10.210.0.9" };
  await api.patch(
    resources.pods,
    { namespace: "default", name: "web-a" },
    { type: "merge", body: { status } },
    { subresource: "status" },
  );
  const ports = [{ name: "http", port: 80, targetPort: 8080 }];
  await api.create(resources.services, { metadata: { namespace: "default", name: "web" }, spec: { ports } } as never);
  await api.create(resources.endpointSlices, {
    metadata: { namespace: "default", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: [
      {
        addresses: ["10.210.0.9"],
        conditions: { ready: true },
        nodeName: NODE,
        targetRef: { kind: "Pod", namespace: "default", name: "web-a" },
      },
    ],
  } as never);
  const nft = (...words: readonly string[]): string =>
    execFileSync("ip", ["netns", "exec", node.netns, "nft", ...words], { encoding: "utf8" });
  nft("add table ip kube-proxy; add chain ip kube-proxy services");
  const wrap = node.inside(...withFolders({ "/var/lib": lib }));
  const shell = shellOf(t, { kubeconfig: join(node.folder, "kubeconfig") }, {}, { wrap, bin });
  const [before = ""] = await follow(shell, "service-proxy.md", "Before", 1);
  assert.match(before, /kernel .*\n[\s\S]*mode: nftables/);
  const answers = await follow(shell, "service-proxy.md", "One node", 4);
  assert.match(answers[1] ?? "", /is replaced; connections continue/);
  assert.equal(answers[2], "kube-proxy --cleanup\n");
  assert.match(answers[3] ?? "", /sync_proxy_rules_last[\s\S]*contested[\s\S]* 0\n/);
  assert.match(answers[3] ?? "", /web-a/);
  const patched = await api.get(resources.daemonSets, metadata);
  assert.match(JSON.stringify(patched.spec?.template), /isthmus\.example\/service-proxy/);
  assert.match(nft("list", "table", "ip", "kube-proxy"), /isthmus-layout-1/);
  await follow(shell, "service-proxy.md", "Back", 1);
  assert.ok(!existsSync(pid));
  assert.match(nft("list", "table", "ip", "kube-proxy"), /isthmus-layout-1/);
  const { metadata: unlabelled } = await api.get(resources.nodes, { name: "node-a" });
  assert.equal(unlabelled.labels?.["isthmus.example/service-proxy"], undefined);
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

test("migrator: every claim of the design page has its test", () => {
  const { sections, missing } = claimsOf("docs/design/migrator.md");
  assert.deepEqual(missing, []);
  assert.equal(sections.size, 14);
});
