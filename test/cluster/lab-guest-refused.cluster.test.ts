/** What a lab refuses on a cluster of somebody else, naming the object and the fix, and what of the owner's it uses and leaves. */
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { type CustomResourceDefinition, type Draft, type KubeObject, type Lease, resources } from "#kube/client";
import { type AddressPool, COIL_FINALIZER, coilCrds, coilResources } from "#kube/coil";
import { labPaths } from "#lab/host";
import { RUN_LABEL } from "#lab/ownership";
import type { LabReport } from "#lab/scenario";
import {
  differences,
  type EmbeddedCluster,
  embeddedCluster,
  type ForeignCluster,
  grantRights,
  realCluster,
  snapshotOf,
} from "#test/foreign-cluster";
import { ISTHMUS, isthmus, leftOf, type Outcome, removeLab, start, stateOf, until } from "#test/lab";
import { peersMissing } from "#test/real-api-server";

const LAB = "ct-refused";
const PREFIX = `isthmus-${LAB}-`;
const TIMEOUT = { timeout: 180_000 };

async function open(t: TestContext): Promise<EmbeddedCluster> {
  const cluster = await embeddedCluster();
  t.after(async () => {
    try {
      await removeLab(LAB);
    } finally {
      await cluster[Symbol.asyncDispose]();
    }
  });
  return cluster;
}

const lab = (kubeconfig: string, ...more: readonly string[]): Promise<Outcome> =>
  isthmus(["lab", "--json", `--name=${LAB}`, "--nodes=2", "--pods=4", `--kubeconfig=${kubeconfig}`, ...more], {
    timeoutMs: 150_000,
  });

/** Runs a lab that must be refused with such words, and must have changed nothing. */
async function assertRefused(cluster: ForeignCluster, words: RegExp, kubeconfig = cluster.kubeconfig): Promise<void> {
  const before = await snapshotOf(cluster, PREFIX);
  const { code, stdout, stderr } = await lab(kubeconfig);
  assert.deepEqual([code, stdout], [1, ""], stderr);
  assert.match(stderr, words);
  assert.doesNotMatch(stderr, /this is a bug/);
  await assertAsItWas(cluster, before);
}

async function assertAsItWas(cluster: ForeignCluster, before: ReadonlyMap<string, string>): Promise<void> {
  let left: readonly string[] = [];
  const look = async (): Promise<boolean> => {
    left = differences(before, await snapshotOf(cluster, PREFIX));
    return left.length === 0;
  };
  await until("the cluster is as it was", look, { deadlineMs: 60_000, seen: () => left.join("\n") });
  assert.deepEqual(leftOf(LAB), []);
}

function assertWorks({ code, stdout, stderr }: Outcome): void {
  assert.equal(code, 0, stderr + stdout);
  const report = JSON.parse(stdout) as LabReport;
  assert.deepEqual([report.ok, report.nodes, report.pods, report.audit.findings], [true, 2, 4, []]);
}

async function addCrds({ client }: EmbeddedCluster): Promise<void> {
  for (const crd of coilCrds)
    await client.create(resources.customResourceDefinitions, crd as unknown as Draft<CustomResourceDefinition>);
  const isEstablished = ({ status }: CustomResourceDefinition): boolean =>
    status?.conditions?.some(({ type, status: is }) => type === "Established" && is === "True") === true;
  await until("the types are served", async () =>
    (await client.listAll(resources.customResourceDefinitions)).items.every(isEstablished),
  );
}

const addPool = ({ client }: EmbeddedCluster, name: string, ipv4: string): Promise<AddressPool> =>
  client.create(coilResources.addressPools, {
    metadata: { name, finalizers: [COIL_FINALIZER] },
    spec: { blockSizeBits: 5, subnets: [{ ipv4 }] },
  });

/** The cluster's own `coil-ipam-controller`; ends with the test. */
async function ownController(t: TestContext, { client, kubeconfig }: EmbeddedCluster): Promise<void> {
  const nowhere = ["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"];
  const program = start([ISTHMUS, "coil-ipam-controller", `--kubeconfig=${kubeconfig}`, ...nowhere], {
    timeoutMs: 170_000,
  });
  t.after(async () => {
    program.child.kill("SIGTERM");
    await program.ended;
  });
  const ref = { namespace: "kube-system", name: "coil-ipam-leader" };
  const leads = async (): Promise<boolean> => {
    const { items } = await client.listAll(resources.leases, { namespace: ref.namespace });
    return items.some(({ metadata, spec }) => metadata.name === ref.name && (spec?.holderIdentity ?? "") !== "");
  };
  await until("the cluster's controller leads", leads, { seen: program.said });
}

test("lab: a pool of others without a controller that leads is not to be managed by the lab's", TIMEOUT, async (t) => {
  const cluster = await open(t);
  await addCrds(cluster);
  await addPool(cluster, "default", "10.3.0.0/24");
  await assertRefused(cluster, /AddressPool default is on the cluster, and no coil-ipam-controller leads there/);
});

test("lab: a controller's Lease that nobody renews is not taken", TIMEOUT, async (t) => {
  const cluster = await open(t);
  const lease: Draft<Lease> = {
    metadata: { name: "coil-ipam-leader", namespace: "kube-system" },
    spec: { holderIdentity: "who-was", leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z" },
  };
  await cluster.client.create(resources.leases, lease);
  await assertRefused(cluster, /Lease kube-system\/coil-ipam-leader is on the cluster, and nobody renews it/);
});

test("lab: a definition of others that it cannot work with is named, with why", TIMEOUT, async (t) => {
  const cluster = await open(t);
  const [pools] = structuredClone(coilCrds) as unknown as [{ spec: { versions: [{ name: string }] } }];
  pools.spec.versions[0].name = "v1";
  await cluster.client.create(resources.customResourceDefinitions, pools as unknown as Draft<CustomResourceDefinition>);
  await assertRefused(
    cluster,
    /CustomResourceDefinition addresspools\.coil\.cybozu\.com is on the cluster.*does not serve version v2.*deploy\/crds/,
  );
});

test("lab: a pool of others with addresses of the lab's is named", TIMEOUT, async (t) => {
  const cluster = await open(t);
  await addCrds(cluster);
  await addPool(cluster, "default", "10.100.0.0/24");
  await ownController(t, cluster);
  await assertRefused(cluster, /AddressPool default is on the cluster and has addresses of the lab's subnets/);
});

test(
  "lab: definitions, controller and pools of the cluster are used or let be, and left as they were",
  TIMEOUT,
  async (t) => {
    const cluster = await open(t);
    await addCrds(cluster);
    await addPool(cluster, "default", "10.3.0.0/24");
    await ownController(t, cluster);
    const before = await snapshotOf(cluster, PREFIX);
    const outcome = await lab(cluster.kubeconfig);
    assertWorks(outcome);
    assert.match(outcome.stderr, /^the cluster's own coil-ipam-controller carves the blocks$/m);
    await assertAsItWas(cluster, before);
  },
);

test("lab: a definition of which others have made an object meanwhile stays, and is theirs", TIMEOUT, async (t) => {
  const cluster = await open(t);
  assertWorks(await lab(cluster.kubeconfig, "--keep"));
  await addPool(cluster, "blue", "10.3.0.0/24");
  const down = await isthmus(["lab", "down", `--name=${LAB}`], { timeoutMs: 150_000 });
  assert.equal(down.code, 0, down.stderr);
  const names = async (type: Parameters<typeof cluster.client.listAll<KubeObject>>[0]): Promise<string[]> =>
    (await cluster.client.listAll(type)).items.map(({ metadata }) => metadata.name);
  assert.deepEqual(await names(resources.customResourceDefinitions), ["addresspools.coil.cybozu.com"]);
  assert.deepEqual(await names(coilResources.addressPools), ["blue"]);
  const [kept] = (await cluster.client.listAll(resources.customResourceDefinitions)).items;
  assert.equal(kept?.metadata.labels?.[RUN_LABEL], undefined);
  assert.deepEqual(leftOf(LAB), []);
});

test("lab: what it left on a cluster that is away stays known, and the machine is clean", TIMEOUT, async (t) => {
  const cluster = await open(t);
  const args = ["lab", `--name=${LAB}`, "--nodes=1", "--pods=1", `--kubeconfig=${cluster.kubeconfig}`];
  const running = start([ISTHMUS, ...args], { timeoutMs: 100_000 });
  await until("pods run", () => /^pinging/m.test(running.said()), { seen: running.said });
  process.kill(stateOf(LAB).pid, "SIGKILL");
  running.child.kill("SIGKILL");
  await running.ended;
  const { run } = stateOf(LAB).identity;
  // The port takes no connections any more; the next test's lab starts without this one's files.
  await cluster.server.stop();
  try {
    for (const argv of [["lab", "down", `--name=${LAB}`], args]) {
      const { code, stderr } = await isthmus(argv, { timeoutMs: 100_000 });
      assert.equal(code, 1, stderr);
      assert.match(stderr, new RegExp(`run ${run} of lab ${LAB} still has objects on its cluster: .*127\\.0\\.0\\.1`));
      assert.doesNotMatch(stderr, /this is a bug/);
    }
    assert.deepEqual(leftOf(LAB), [`folder ${labPaths(LAB).dir}`]);
  } finally {
    rmSync(labPaths(LAB).dir, { recursive: true, force: true });
  }
});

for (const { bed, openBed, skip } of [
  { bed: "embedded", openBed: () => embeddedCluster(), skip: false as const },
  {
    bed: "Kubernetes",
    openBed: realCluster,
    skip: peersMissing("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
  },
] as const) {
  test(`lab on ${bed}: the rights of deploy/lab/rbac.yaml are enough; each that is missing is named before anything is made`, {
    skip,
    timeout: 300_000,
  }, async (t) => {
    const cluster = await openBed();
    t.after(async () => {
      try {
        await removeLab(LAB);
      } finally {
        await cluster[Symbol.asyncDispose]();
      }
    });
    const { guestKubeconfig } = cluster;
    const words = /its user may not get, list, watch, create, patch, delete nodes; .*deploy\/lab\/rbac\.yaml/;
    await assertRefused(cluster, words, guestKubeconfig);
    await grantRights(cluster);
    const before = await snapshotOf(cluster, PREFIX);
    assertWorks(await lab(guestKubeconfig, "--services"));
    await assertAsItWas(cluster, before);
  });
}
