import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { findObject, isKubeError, KubeClient, loadKubeConfig, resources } from "#kube/client";
import { coilCrds, coilResources, POOL_ANNOTATION } from "#kube/coil";
import type { CrdManifest } from "#kube/crd";
import { labPaths } from "#lab/host";
import { ISTHMUS, isthmus, leftOf, type Outcome, removeLab, start, until } from "#test/lab";
import { unruled } from "#test/unruled";

/** A lab for all tests that need an API server. */
const LAB = "ct-bad";
/** Never comes up. */
const REFUSED = "ct-bad-refused";
const folder = mkdtempSync(join(tmpdir(), "isthmus-bad-input-"));
const missing = join(folder, "no-such-kubeconfig");
let api: KubeClient;

before(async () => {
  const { code, stderr } = await isthmus(["lab", "--json", "--keep", `--name=${LAB}`, "--nodes=1", "--pods=1"]);
  assert.equal(code, 0, stderr);
  api = new KubeClient(await loadKubeConfig({ path: labPaths(LAB).kubeconfig, clock: systemClock }), {
    userAgent: "bad-input-test",
    clock: systemClock,
  });
});

after(async () => {
  await api?.close();
  rmSync(folder, { recursive: true });
  await removeLab(LAB);
});

/** The fault: one line that begins with the called program, without the pointer to `--help`. */
function faultOf({ code, stdout, stderr }: Outcome, wanted: { readonly code: number; readonly title: string }): string {
  assert.equal(code, wanted.code, stderr);
  assert.equal(stdout, "");
  const lines = stderr.split("\n").filter((line) => line !== "" && line !== `${wanted.title} --help lists the flags`);
  assert.equal(lines.length, 1, `not one line: ${stderr}`);
  assert.doesNotMatch(stderr, /this is a bug|\n {4}at /);
  const [line = ""] = lines;
  assert.ok(line.startsWith(`${wanted.title}: `), line);
  return line;
}

const FLAGS = [
  { args: ["lab", "--nodez=3"], says: /--nodez.*did you mean --nodes\?/ },
  { args: ["lab", "--nodes=many"], says: /--nodes: "many" is not a whole number from 1 to 200/ },
  { args: ["lab", "--nodes=0"], says: /--nodes: .*0.*1 to 200/ },
  { args: ["lab", "--families=ipv5"], says: /--families: .*ipv5.*dual, ipv4.*ipv6/ },
  {
    args: ["lab", "--name=Not_A_Name"],
    says: /--name: "Not_A_Name".*at most 16 lower-case letters, digits and hyphens/,
  },
  { args: ["lab", `--name=${REFUSED}`, "fly"], says: /unexpected "fly"/ },
  { args: ["lab", "exec", "node1"], says: /exec needs a pod and a command: isthmus lab exec POD -- COMMAND/ },
  { args: ["audit", "--jsn"], says: /--jsn.*did you mean --json\?/ },
  { args: ["labb"], says: /there is no program "labb" \(did you mean lab\?\); isthmus --help lists them/ },
  { args: ["coidl"], says: /there is no program "coidl" \(did you mean coild\?\); isthmus --help lists them/ },
  { args: ["help", "coidl"], says: /there is no program "coidl" \(did you mean coild\?\); isthmus --help lists them/ },
  { args: ["kubectl"], says: /there is no program "kubectl"; isthmus --help lists them/ },
];

for (const { args, says } of FLAGS) {
  test(`isthmus: ${args.join(" ")} ends with 2 and names the fault`, async () => {
    const title = says.source.startsWith("there is no program") ? "isthmus" : `isthmus ${args[0]}`;
    assert.match(faultOf(await isthmus(args), { code: 2, title }), says);
    assert.deepEqual(leftOf(REFUSED), []);
  });
}

test("isthmus: help PROGRAM, PROGRAM -h and PROGRAM --help are the same text", async () => {
  const { code, stdout } = await isthmus(["coild", "--help"]);
  assert.equal(code, 0);
  assert.match(stdout, /^usage: isthmus coild \[FLAGS\]\n/);
  for (const args of [
    ["help", "coild"],
    ["coild", "-h"],
  ])
    assert.deepEqual(await isthmus(args), { code: 0, stdout, stderr: "" });
});

test("isthmus: a kubeconfig that cannot be read is named", async () => {
  for (const args of [["audit"], ["lab", `--name=${REFUSED}`], ["coil-ipam-controller"]]) {
    const title = `isthmus ${args[0]}`;
    const line = faultOf(await isthmus([...args, `--kubeconfig=${missing}`]), { code: 1, title });
    assert.ok(line.includes(missing) && /cannot (be )?read/i.test(line), line);
  }
  assert.deepEqual(leftOf(REFUSED), []);
});

test("isthmus: a kubeconfig that is none is named", async () => {
  const broken = join(folder, "broken");
  writeFileSync(broken, "clusters: [\n");
  const title = "isthmus audit";
  const line = faultOf(await isthmus(["audit", `--kubeconfig=${broken}`]), { code: 1, title });
  assert.ok(line.includes(`kubeconfig ${broken} is not YAML`), line);
  assert.equal(line.match(/\bline \d/g)?.length, 1, `once, and where: ${line}`);
  writeFileSync(broken, "apiVersion: v1\nkind: Config\ncurrent-context: absent\n");
  const context = faultOf(await isthmus(["audit", `--kubeconfig=${broken}`]), { code: 1, title });
  assert.ok(context.includes(broken) && context.includes("absent"), context);
});

test("audit: a coild that does not answer is named", async () => {
  const socket = join(folder, "no.sock");
  const { kubeconfig } = labPaths(LAB);
  const args = ["audit", `--kubeconfig=${kubeconfig}`, `--socket=${socket}`];
  const line = faultOf(await isthmus(args), { code: 1, title: "isthmus audit" });
  assert.ok(line.includes(`cannot reach coild at ${socket}`), line);
});

for (const [who, setpriv] of [["root without capabilities", ["--bounding-set=-all", "--inh-caps=-all"]]] as const) {
  test(`lab: ${who} gets the name of the missing privilege, and nothing is made`, async () => {
    const { ended } = start(["setpriv", ...setpriv, ISTHMUS, "lab", `--name=${REFUSED}`]);
    const line = faultOf(await ended, { code: 1, title: "isthmus lab" });
    assert.match(line, /lacks CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN: run it as root/);
    assert.deepEqual(leftOf(REFUSED), []);
  });
}

test("coild: without COIL_NODE_NAME the error names the variable", async () => {
  const { ended } = start([join(ISTHMUS, "../coild")], { env: { COIL_NODE_NAME: undefined } });
  const line = faultOf(await ended, { code: 2, title: "coild" });
  assert.match(line, /^coild: the environment variable COIL_NODE_NAME is missing; set it to the name of this node$/);
});

test("pod: a pod whose namespace names a missing pool reports its name, and runs once the pool exists", async () => {
  const namespace = "astray";
  const ref = { name: "p", namespace };
  await api.create(resources.namespaces, {
    metadata: { name: namespace, annotations: { [POOL_ANNOTATION]: "no-such-pool" } },
  });
  await api.create(resources.pods, {
    metadata: ref,
    spec: { terminationGracePeriodSeconds: 0, containers: [{ name: "main", image: "lab.isthmus.dev/pause" }] },
  });
  let message = "";
  await until("the pod says why it waits", async () => {
    message = (await api.get(resources.pods, ref)).status?.message ?? "";
    return message !== "";
  });
  assert.match(
    message,
    /pool no-such-pool does not exist: create the AddressPool, or set another pool in the namespace's annotation/,
  );
  assert.doesNotMatch(message, /\n/);
  const spec = { blockSizeBits: 0, subnets: [{ ipv4: "10.77.0.0/30" }] };
  await api.create(coilResources.addressPools, { metadata: { name: "no-such-pool" }, spec });
  await until("the pod runs", async () => {
    const { status } = await api.get(resources.pods, ref);
    return status?.phase === "Running" && status.message === undefined && status.podIP?.startsWith("10.77.0.");
  });
  await api.delete(resources.pods, ref);
  await until("the pod is gone and its block given back", async () => {
    const { items } = await api.listAll(coilResources.addressBlocks);
    return items.every(({ metadata }) => !metadata.name.startsWith("no-such-pool-"));
  });
});

/** Makes the API server have a CRD's versions as they are given, with rules or none. */
async function serve({ metadata, spec: { versions } }: CrdManifest): Promise<void> {
  const body = { type: "merge", body: { spec: { versions } } } as const;
  await api.patch(resources.customResourceDefinitions, { name: metadata.name }, body);
}

test("pool: an old pool whose subnet is no CIDR is named by the waiting pod, with the field; the pod runs with a new pool", async () => {
  const ref = { name: "p", namespace: "crooked" };
  const pool = { name: "crooked" };
  const crooked = { metadata: pool, spec: { subnets: [{ ipv4: "10.0.0.0/99" }] } };
  for (const crd of coilCrds) await serve(unruled(crd));
  await api.create(coilResources.addressPools, crooked);
  for (const crd of coilCrds) await serve(crd);
  await api.create(resources.namespaces, {
    metadata: { name: ref.namespace, annotations: { [POOL_ANNOTATION]: pool.name } },
  });
  await api.create(resources.pods, {
    metadata: ref,
    spec: { terminationGracePeriodSeconds: 0, containers: [{ name: "main", image: "lab.isthmus.dev/pause" }] },
  });
  let message = "";
  await until("the pod says why it waits", async () => {
    message = (await api.get(resources.pods, ref)).status?.message ?? "";
    return message !== "";
  });
  assert.match(
    message,
    /pool crooked: spec\.subnets\[0\]\.ipv4: Invalid value: "10\.0\.0\.0\/99": must be an IPv4 CIDR/,
  );
  assert.match(message, /correct the AddressPool/);
  assert.doesNotMatch(message, /\n/);
  const spec = { blockSizeBits: 0, subnets: [{ ipv4: "10.78.0.0/30" }] };
  const stored = await api.get(coilResources.addressPools, pool);
  await assert.rejects(
    api.replace(coilResources.addressPools, { ...stored, spec }),
    (error) => isKubeError(error, "invalid") && error.message.includes("existing subnets cannot be changed or removed"),
  );
  await api.delete(coilResources.addressPools, pool);
  await until("the pool is gone", async () => {
    return (await findObject(api, coilResources.addressPools, pool)) === undefined;
  });
  await api.create(coilResources.addressPools, { metadata: pool, spec });
  await until("the pod runs", async () => {
    const { status } = await api.get(resources.pods, ref);
    return status?.phase === "Running" && status.podIP?.startsWith("10.78.0.");
  });
  await api.delete(resources.pods, ref);
  await until("the pod is gone and its block given back", async () => {
    const { items } = await api.listAll(coilResources.addressBlocks);
    return items.every(({ metadata }) => !metadata.name.startsWith("crooked-"));
  });
});

const POOLS = [
  { why: "has no subnet", name: "bad-a", spec: { subnets: [] }, field: "subnets" },
  {
    why: "has block bits that are not a number",
    name: "bad-b",
    spec: { blockSizeBits: "x", subnets: [{ ipv4: "10.9.0.0/24" }] },
    field: "blockSizeBits",
  },
  {
    why: "has a subnet that is not a CIDR",
    name: "bad-c",
    spec: { subnets: [{ ipv4: "10.9.0.0" }] },
    field: "subnets[0].ipv4",
  },
  {
    why: "has a subnet that is smaller than a block",
    name: "bad-d",
    spec: { subnets: [{ ipv4: "10.9.0.0/29" }] },
    field: "subnets",
  },
  {
    why: "has a name that is not a name",
    name: "Bad_Name",
    spec: { subnets: [{ ipv4: "10.9.0.0/24" }] },
    field: "metadata.name",
  },
];

for (const { why, name, spec, field } of POOLS) {
  test(`pool: one that ${why} is refused, and ${field} named`, async () => {
    const refused = api.create(coilResources.addressPools, { metadata: { name }, spec } as never);
    await assert.rejects(refused, (error) => isKubeError(error, "invalid") && error.message.includes(field));
    const { items } = await api.listAll(coilResources.addressPools);
    assert.ok(items.every(({ metadata }) => metadata.name !== name));
  });
}
