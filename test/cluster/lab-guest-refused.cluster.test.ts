/**
 * On a cluster of somebody else a lab refuses some objects, and names the object and the fix. It uses others of the owner and leaves them as
 * they are. Each test has its own cluster and its own lab; they wait more than they compute, so several run at a time.
 */
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { suite, type TestContext, test } from "node:test";
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
  snapshotOf,
} from "#test/foreign-cluster";
import { ISTHMUS, isthmus, leftOf, nameOfGuest, type Outcome, removeLab, start, stateOf, until } from "#test/lab";

const TIMEOUT = { timeout: 180_000 };
/** Tests that run at the same time. */
const AT_ONCE = 2;

/** A cluster and the name of the lab that is a guest there. */
interface Bed<T extends ForeignCluster = EmbeddedCluster> {
  readonly cluster: T;
  readonly name: string;
}

let beds = 0;

/** The lab and the cluster end with the test. */
async function openBed<T extends ForeignCluster>(t: TestContext, open: () => Promise<T>): Promise<Bed<T>> {
  beds += 1;
  const name = nameOfGuest(`ct-refused${beds}`);
  const cluster = await open();
  t.after(async () => {
    try {
      await removeLab(name);
    } finally {
      await cluster[Symbol.asyncDispose]();
    }
  });
  return { cluster, name };
}

const open = (t: TestContext): Promise<Bed> => openBed(t, embeddedCluster);

const snapshot = ({ cluster, name }: Bed<ForeignCluster>): Promise<ReadonlyMap<string, string>> =>
  snapshotOf(cluster, `isthmus-${name}-`);

const runLab = (
  { cluster, name }: Bed<ForeignCluster>,
  { kubeconfig = cluster.kubeconfig, flags = [] }: { readonly kubeconfig?: string; readonly flags?: string[] } = {},
): Promise<Outcome> =>
  isthmus(["lab", "--json", `--name=${name}`, "--nodes=1", "--pods=4", `--kubeconfig=${kubeconfig}`, ...flags], {
    timeoutMs: 150_000,
  });

/** Runs a lab that must be refused with this message, and must have changed nothing. */
async function assertRefused(
  bed: Bed<ForeignCluster>,
  words: RegExp,
  kubeconfig = bed.cluster.kubeconfig,
): Promise<void> {
  const before = await snapshot(bed);
  const { code, stdout, stderr } = await runLab(bed, { kubeconfig });
  assert.deepEqual([code, stdout], [1, ""], stderr);
  assert.match(stderr, words);
  assert.doesNotMatch(stderr, /this is a bug/);
  await assertAsItWas(bed, before);
}

async function assertAsItWas(bed: Bed<ForeignCluster>, before: ReadonlyMap<string, string>): Promise<void> {
  let left: readonly string[] = [];
  const isAsItWas = async (): Promise<boolean> => {
    left = differences(before, await snapshot(bed));
    return left.length === 0;
  };
  await until("the cluster is as it was", isAsItWas, { deadlineMs: 60_000, seen: () => left.join("\n") });
  assert.deepEqual(leftOf(bed.name), []);
}

function assertWorks({ code, stdout, stderr }: Outcome): void {
  assert.equal(code, 0, stderr + stdout);
  const report = JSON.parse(stdout) as LabReport;
  assert.deepEqual([report.ok, report.nodes, report.pods, report.audit.findings], [true, 1, 4, []]);
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
  const nowhere = ["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0", "--webhook-addr=none"];
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

suite("labs on clusters of somebody else", { concurrency: AT_ONCE }, () => {
  test(
    "lab: a pool of others without a controller that leads is not to be managed by the lab's",
    TIMEOUT,
    async (t) => {
      const bed = await open(t);
      const { cluster } = bed;
      await addCrds(cluster);
      await addPool(cluster, "default", "10.3.0.0/24");
      await assertRefused(bed, /AddressPool default is on the cluster, and no coil-ipam-controller leads there/);
    },
  );

  test("lab: a controller's Lease that is not renewed is not taken over", TIMEOUT, async (t) => {
    const bed = await open(t);
    const { cluster } = bed;
    const lease: Draft<Lease> = {
      metadata: { name: "coil-ipam-leader", namespace: "kube-system" },
      spec: { holderIdentity: "who-was", leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z" },
    };
    await cluster.client.create(resources.leases, lease);
    await assertRefused(bed, /Lease kube-system\/coil-ipam-leader is on the cluster, and no controller renews it/);
  });

  test("lab: a definition of others that it cannot work with is named, with why", TIMEOUT, async (t) => {
    const bed = await open(t);
    const { cluster } = bed;
    const [pools] = structuredClone(coilCrds) as unknown as [{ spec: { versions: [{ name: string }] } }];
    pools.spec.versions[0].name = "v1";
    await cluster.client.create(
      resources.customResourceDefinitions,
      pools as unknown as Draft<CustomResourceDefinition>,
    );
    await assertRefused(
      bed,
      /CustomResourceDefinition addresspools\.coil\.cybozu\.com is on the cluster.*does not serve version v2.*deploy\/crds/,
    );
  });

  test("lab: a pool of others with addresses of the lab's is named", TIMEOUT, async (t) => {
    const bed = await open(t);
    const { cluster } = bed;
    await addCrds(cluster);
    await addPool(cluster, "default", "10.100.0.0/24");
    await ownController(t, cluster);
    await assertRefused(bed, /AddressPool default is on the cluster and has addresses of the lab's subnets/);
  });

  test(
    "lab: definitions, controller and pools of the cluster are used or let be, and left as they were",
    TIMEOUT,
    async (t) => {
      const bed = await open(t);
      const { cluster } = bed;
      await addCrds(cluster);
      await addPool(cluster, "default", "10.3.0.0/24");
      await ownController(t, cluster);
      const before = await snapshot(bed);
      const outcome = await runLab(bed);
      assertWorks(outcome);
      assert.match(outcome.stderr, /^the cluster's own coil-ipam-controller carves the blocks$/m);
      await assertAsItWas(bed, before);
    },
  );

  test("lab: a definition of which others have made an object meanwhile stays, and is theirs", TIMEOUT, async (t) => {
    const bed = await open(t);
    const { cluster, name } = bed;
    assertWorks(await runLab(bed, { flags: ["--keep"] }));
    await addPool(cluster, "blue", "10.3.0.0/24");
    const down = await isthmus(["lab", "down", `--name=${name}`], { timeoutMs: 150_000 });
    assert.equal(down.code, 0, down.stderr);
    const names = async (type: Parameters<typeof cluster.client.listAll<KubeObject>>[0]): Promise<string[]> =>
      (await cluster.client.listAll(type)).items.map(({ metadata }) => metadata.name);
    assert.deepEqual(await names(resources.customResourceDefinitions), ["addresspools.coil.cybozu.com"]);
    assert.deepEqual(await names(coilResources.addressPools), ["blue"]);
    const [kept] = (await cluster.client.listAll(resources.customResourceDefinitions)).items;
    assert.equal(kept?.metadata.labels?.[RUN_LABEL], undefined);
    assert.deepEqual(leftOf(name), []);
  });

  test("lab: objects on an unreachable cluster stay recorded, and the machine is clean", TIMEOUT, async (t) => {
    const bed = await open(t);
    const { cluster, name } = bed;
    const args = ["lab", `--name=${name}`, "--nodes=1", "--pods=1", `--kubeconfig=${cluster.kubeconfig}`];
    const running = start([ISTHMUS, ...args], { timeoutMs: 100_000 });
    await until("pods run", () => /^pinging/m.test(running.said()), { seen: running.said });
    process.kill(stateOf(name).pid, "SIGKILL");
    running.child.kill("SIGKILL");
    await running.ended;
    const { run } = stateOf(name).identity;
    // The port takes no connections any more; the next test's lab starts without this one's files.
    await cluster.server.stop();
    try {
      for (const argv of [["lab", "down", `--name=${name}`], args]) {
        const { code, stderr } = await isthmus(argv, { timeoutMs: 100_000 });
        assert.equal(code, 1, stderr);
        assert.match(
          stderr,
          new RegExp(`run ${run} of lab ${name} still has objects on its cluster: .*127\\.0\\.0\\.1`),
        );
        assert.doesNotMatch(stderr, /this is a bug/);
      }
      assert.deepEqual(leftOf(name), [`folder ${labPaths(name).dir}`]);
    } finally {
      rmSync(labPaths(name).dir, { recursive: true, force: true });
    }
  });
});
