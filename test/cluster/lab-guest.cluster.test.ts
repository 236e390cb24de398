/**
 * Labs on a cluster of somebody else, on the embedded API server and on Kubernetes' own control plane (from ISTHMUS_PEERS). Everything runs,
 * no object of the owner changes, and afterwards every object of every type is as it was, however the lab ended.
 *
 * Embedded servers are cheap: each test has its own, and several labs are up at a time. They wait more than they compute. Services, the tunnel
 * and the rights of such a lab are in lab-guest-services.
 */
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { after, suite, test } from "node:test";
import { type KubeObject, type ResourceType, resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { labPaths } from "#lab/host";
import { LAB_LABEL, RUN_LABEL } from "#lab/ownership";
import {
  differences,
  embeddedCluster,
  OWNERS_DAEMON_SET,
  OWNERS_DEPLOYMENT,
  OWNERS_NODE,
  realCluster,
  snapshotOf,
} from "#test/foreign-cluster";
import {
  argsOf,
  assertAsItWas,
  assertReport,
  followPage,
  type GuestBed,
  openGuestBed,
  PAGE_COMMANDS,
  prefixOf,
} from "#test/guest-bed";
import { ISTHMUS, isthmus, leftOf, nameOfGuest, processesOf, type Running, start, stateOf, until } from "#test/lab";
import { peersMissing } from "#test/real-api-server";

const RUN_MS = 150_000;
/** Labs on embedded servers that are up at the same time. */
const AT_ONCE = 2;
/** For claims about objects of a lab that ends: each kind of them is there with one node. */
const ONE_NODE = "--nodes=1";

/** Starts a lab and waits until it has printed a line. */
async function started(bed: GuestBed, line: RegExp, ...more: readonly string[]): Promise<Running> {
  const running = start([ISTHMUS, ...argsOf(bed, ...more)], { timeoutMs: RUN_MS });
  await until(`the lab prints ${line}`, () => line.test(running.said()) || running.child.exitCode !== null, {
    deadlineMs: 90_000,
  });
  assert.equal(running.child.exitCode, null, `the lab ended early: ${running.said()}`);
  return running;
}

/** Kills both processes that could remove the lab. */
async function killAll({ lab }: GuestBed, running: Running): Promise<void> {
  process.kill(stateOf(lab).pid, "SIGKILL");
  running.child.kill("SIGKILL");
  await running.ended;
}

type Claims = Readonly<Record<string, (bed: GuestBed) => Promise<void>>>;

const CLAIMS: Claims = {
  "one that is kept has its own names and labels alone, the owner's pods are not scheduled there, down removes it":
    async (bed) => {
      const { cluster, lab } = bed;
      const [, , keep, exec, remove] = PAGE_COMMANDS;
      assertReport(await followPage(bed, keep));
      const { run, prefix } = stateOf(lab).identity;
      const { client } = cluster;
      const nodes = (await client.listAll(resources.nodes)).items.filter(
        ({ metadata }) => metadata.name !== OWNERS_NODE,
      );
      assert.equal(nodes.length, 2);
      for (const { metadata, status } of nodes) {
        assert.ok(metadata.name.startsWith(prefix), metadata.name);
        assert.deepEqual([metadata.labels?.[LAB_LABEL], metadata.labels?.[RUN_LABEL]], [lab, run]);
        for (const quantity of ["cpu", "memory", "pods", "ephemeral-storage"])
          assert.match(status?.allocatable?.[quantity] ?? "", /^[1-9]/, quantity);
        const lease = await client.get(resources.leases, { name: metadata.name, namespace: "kube-node-lease" });
        assert.equal(lease.spec?.holderIdentity, metadata.name);
      }
      const made: ResourceType<KubeObject>[] = [
        coilResources.addressPools,
        resources.namespaces,
        resources.customResourceDefinitions,
      ];
      for (const type of made)
        for (const { metadata } of (await client.listAll(type, { labelSelector: LAB_LABEL })).items)
          assert.equal(metadata.labels?.[RUN_LABEL], run, metadata.name);
      // Pods of a DaemonSet that tolerates everything are scheduled there and wait with a reason; others are not scheduled there.
      const strangers = async () =>
        (await client.listAll(resources.pods, { namespace: "dual" })).items.filter(({ spec }) =>
          spec?.nodeName?.startsWith(prefix),
        );
      await until("each Node has a pod of the DaemonSet, which waits", async () => {
        const pods = await strangers();
        return pods.length === 2 && pods.every(({ status }) => status?.reason === "NotForLab");
      });
      for (const pod of await strangers()) assert.equal(pod.metadata.labels?.["app"], OWNERS_DAEMON_SET);
      const shop = { name: OWNERS_DEPLOYMENT, namespace: "dual" };
      const scale = async (replicas: number): Promise<void> => {
        await client.patch(resources.deployments, shop, { type: "merge", body: { spec: { replicas } } });
        await until("the owner's pods are bound", async () => {
          const { items } = await client.listAll(resources.pods, { namespace: "dual", labelSelector: "app=shop" });
          const alive = items.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
          return alive.length === replicas && alive.every(({ spec }) => spec?.nodeName === OWNERS_NODE);
        });
      };
      await scale(7);
      assert.match(await followPage(bed, exec), /^10\.100\.\S+ via \S+ dev eth0 proto 31 /m);
      await followPage(bed, remove);
      // Changes of the owner meanwhile stay.
      const { spec } = await client.get(resources.deployments, shop);
      assert.equal(spec?.replicas, 7);
      const pods = await client.listAll(resources.pods, { namespace: "dual" });
      assert.equal(pods.items.filter((pod) => pod.metadata.labels?.["app"] === "shop").length, 7);
      bed.asItWas = await snapshotOf(cluster, "nothing");
      assert.deepEqual(
        [...bed.asItWas.keys()].filter((key) => key.includes(prefix)),
        [],
      );
    },
  "a failure in the middle leaves the cluster as it was": async (bed) => {
    const { code, stdout, stderr } = await isthmus(argsOf(bed, ONE_NODE, "--timeout=1ms"), { timeoutMs: RUN_MS });
    assert.deepEqual([code, stdout], [1, ""], stderr);
    assert.match(stderr, /isthmus lab: \d of 6 pods run after/);
    await assertAsItWas(bed);
  },
  "Ctrl-C leaves the cluster as it was": async (bed) => {
    const { lab } = bed;
    const running = await started(bed, /^([1-9]|1\d) of 20 pods run/m, ONE_NODE, "--pods=20");
    const known = processesOf(lab);
    running.child.kill("SIGINT");
    const { code } = await running.ended;
    assert.notEqual(code, 0);
    assert.deepEqual(leftOf(lab, known), []);
    await assertAsItWas(bed);
  },
  "after kill -9, down leaves the cluster as it was": async (bed) => {
    const { cluster, lab } = bed;
    await killAll(bed, await started(bed, /^([1-9]|1\d) of 20 pods run/m, ONE_NODE, "--pods=20"));
    assert.notEqual(differences(bed.asItWas, await snapshotOf(cluster, prefixOf(lab))).length, 0);
    const down = await isthmus(["lab", "down", `--name=${lab}`], { timeoutMs: RUN_MS });
    assert.equal(down.code, 0, down.stderr);
    await assertAsItWas(bed);
  },
  "after kill -9, the next start removes what there was; all pods run and reach each other, and the cluster is as it was":
    async (bed) => {
      const { lab } = bed;
      await killAll(bed, await started(bed, /^starting 6 pods/m, ONE_NODE));
      const { run } = stateOf(lab).identity;
      const [again] = PAGE_COMMANDS;
      const report = await followPage(bed, again);
      assertReport(report);
      assert.ok(!report.includes(run), "another run has other names");
      await assertAsItWas(bed);
    },
  "when its files are lost too, another lab is refused, and down --kubeconfig leaves the cluster as it was": async (
    bed,
  ) => {
    const { cluster, lab } = bed;
    await killAll(bed, await started(bed, /^pinging/m, ONE_NODE));
    // As a restart of the machine does it.
    rmSync(labPaths(lab).dir, { recursive: true });
    const refused = await isthmus(["lab", "--name=ct-guest-x", "--nodes=1", `--kubeconfig=${cluster.kubeconfig}`]);
    assert.equal(refused.code, 1);
    assert.match(
      refused.stderr,
      new RegExp(`lab ${lab} \\(run \\w+\\) has objects on the cluster.*isthmus lab down --name=${lab}`),
    );
    const down = await isthmus(["lab", "down", `--name=${lab}`, `--kubeconfig=${cluster.kubeconfig}`], {
      timeoutMs: RUN_MS,
    });
    assert.equal(down.code, 0, down.stderr);
    assert.match(down.stderr, /removed the objects that run \w+ of lab/);
    await assertAsItWas(bed);
  },
};

suite("labs on embedded API servers", { concurrency: AT_ONCE }, () => {
  for (const [number, [claim, run]] of Object.entries(CLAIMS).entries()) {
    test(`lab on embedded: ${claim}`, { timeout: 300_000 }, async () => {
      await using bed = await openGuestBed(embeddedCluster, nameOfGuest(`ct-guest-em${number}`));
      await run(bed);
    });
  }
});

suite("labs on Kubernetes", { concurrency: 1 }, () => {
  const skip = peersMissing("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler");
  let opening: Promise<GuestBed> | undefined;
  after(async () => {
    await (await opening)?.[Symbol.asyncDispose]();
  });
  for (const [claim, run] of Object.entries(CLAIMS)) {
    test(`lab on Kubernetes: ${claim}`, { skip, timeout: 300_000 }, async () => {
      opening ??= openGuestBed(realCluster, nameOfGuest("ct-ku"));
      await run(await opening);
    });
  }
});
