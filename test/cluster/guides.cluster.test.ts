/** The operator's pages: their commands run as they stand, with Debian's kubectl, against an API server and our controller. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { resources } from "#kube/client";
import { blockRequestResult, coilCrds, coilResources } from "#kube/coil";
import { EtcdServer } from "#test/etcd-server";
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

/** The commands of a section: its indented blocks, one script each. */
function commandsOf(page: string, section: string): string[] {
  const text = readFileSync(join(root, "docs/guides", page), "utf8");
  const [, body = ""] = text.split(`\n## ${section}\n`);
  const lines = (body.split("\n## ")[0] ?? "").split("\n");
  const blocks: string[][] = [];
  let isInside = false;
  for (const [at, line] of lines.entries()) {
    // A block is indented by four columns more than its list item, and begins after an empty line.
    const isCode: boolean = line.startsWith("    ") && (isInside || lines[at - 1] === "");
    if (isCode && !isInside) blocks.push([]);
    if (isCode) blocks.at(-1)?.push(line);
    isInside = isCode;
  }
  return blocks.map((block) => {
    const indent = Math.min(...block.map((line) => line.length - line.trimStart().length));
    return block.map((line) => line.slice(indent)).join("\n");
  });
}

/** A shell of an operator, with kubectl, our programs and the checkout at hand. */
function shellOf(t: TestContext, bed: MigratorBed, variables: Readonly<Record<string, string>> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-guide-"));
  t.after(() => rmSync(folder, { recursive: true }));
  symlinkSync(join(root, "deploy"), join(folder, "deploy"));
  const path = [dirname(ISTHMUS), KUBECTL, process.env["PATH"]].join(delimiter);
  const env = { ...variables, PATH: path, KUBECONFIG: bed.kubeconfig, HOME: folder };
  return async (script: string): Promise<string> => {
    const { code, stdout, stderr } = await start(["sh", "-ec", `cd ${folder}; ${script}`], { env, timeoutMs: 120_000 })
      .ended;
    assert.equal(code, 0, `${script}\n${stdout}${stderr}`);
    return stdout;
  };
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
  /** A workload as Coil's kustomization makes it. */
  const workloadOf = (name: string, inits: readonly string[] = []) => {
    const own = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": name };
    const [initContainers, containers] = [inits, [name]].map((all) =>
      all.map((one) => ({ name: one, image: "coil:2", command: [one] })),
    );
    const template = { metadata: { labels: own }, spec: { containers, initContainers } };
    return {
      metadata: { namespace: "kube-system", name },
      spec: { selector: { matchLabels: own }, template },
    } as never;
  };
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

test("migrator: every claim of the design page has its test", () => {
  const { sections, missing } = claimsOf("docs/design/migrator.md");
  assert.deepEqual(missing, []);
  assert.equal(sections.size, 14);
});
