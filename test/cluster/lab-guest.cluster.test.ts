/**
 * Labs on a cluster of somebody else, on the embedded API server and on Kubernetes' own control plane (from ISTHMUS_PEERS): all runs, what is
 * the owner's is not touched, and afterwards every object of every type is as it was, however the lab ended.
 */
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { after, before, test } from "node:test";
import { type KubeObject, type ResourceType, resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { labPaths } from "#lab/host";
import { LAB_LABEL, RUN_LABEL } from "#lab/ownership";
import type { LabReport } from "#lab/scenario";
import {
  differences,
  embeddedCluster,
  type ForeignCluster,
  OWNERS_DAEMON_SET,
  OWNERS_DEPLOYMENT,
  OWNERS_NODE,
  populate,
  realCluster,
  snapshotOf,
} from "#test/foreign-cluster";
import { ISTHMUS, isthmus, leftOf, processesOf, type Running, removeLab, start, stateOf, until } from "#test/lab";
import { peersMissing } from "#test/real-api-server";

const BEDS = [
  { bed: "embedded", open: () => embeddedCluster(), skip: false as const },
  {
    bed: "Kubernetes",
    open: realCluster,
    skip: peersMissing("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
  },
] as const;

const RUN_MS = 150_000;
/** What a cluster's own controllers do about what has gone takes a while. */
const SETTLE_MS = 60_000;

for (const { bed, open, skip } of BEDS) {
  const LAB = `ct-guest-${bed.slice(0, 2).toLowerCase()}`;
  const PREFIX = `isthmus-${LAB}-`;
  const name = `--name=${LAB}`;
  const options = { skip, timeout: 300_000 };
  let cluster: ForeignCluster;
  const opened = new AsyncDisposableStack();
  let asItWas: ReadonlyMap<string, string>;

  before(async () => {
    if (skip !== false) return;
    cluster = opened.use(await open());
    opened.use(await populate(cluster));
    asItWas = await snapshotOf(cluster, PREFIX);
  });
  after(async () => {
    if (skip !== false) return;
    try {
      await removeLab(LAB);
    } finally {
      await opened.disposeAsync();
    }
  });

  const args = (...more: readonly string[]): string[] => [
    "lab",
    "--json",
    name,
    `--kubeconfig=${cluster.kubeconfig}`,
    "--nodes=2",
    "--pods=6",
    ...more,
  ];

  const assertAsItWas = async (): Promise<void> => {
    let left: readonly string[] = [];
    const look = async (): Promise<boolean> => {
      left = differences(asItWas, await snapshotOf(cluster, PREFIX));
      return left.length === 0;
    };
    await until("the cluster is as it was", look, { deadlineMs: SETTLE_MS, everyMs: 500, seen: () => left.join("\n") });
    assert.deepEqual(leftOf(LAB), []);
  };

  /** Starts a lab and waits until it has said something. */
  const started = async (said: RegExp, ...more: readonly string[]): Promise<Running> => {
    const running = start([ISTHMUS, ...args(...more)], { timeoutMs: RUN_MS });
    await until(`the lab says ${said}`, () => said.test(running.said()) || running.child.exitCode !== null, {
      deadlineMs: 90_000,
    });
    assert.equal(running.child.exitCode, null, `the lab ended early: ${running.said()}`);
    return running;
  };

  /** Kills all that could tidy up. */
  const killAll = async (running: Running): Promise<void> => {
    process.kill(stateOf(LAB).pid, "SIGKILL");
    running.child.kill("SIGKILL");
    await running.ended;
  };

  const assertWorks = (code: number | null, stdout: string, stderr: string): LabReport => {
    assert.equal(code, 0, stderr + stdout);
    const report = JSON.parse(stdout) as LabReport;
    assert.deepEqual([report.ok, report.nodes, report.pods, report.audit.findings], [true, 2, 6, []]);
    assert.ok(report.pings.sent > 0 && report.pings.answered === report.pings.sent);
    return report;
  };

  test(`lab on ${bed}: all pods run and reach each other, and the cluster is as it was`, options, async () => {
    const { code, stdout, stderr } = await isthmus(args(), { timeoutMs: RUN_MS });
    assertWorks(code, stdout, stderr);
    await assertAsItWas();
  });

  test(
    `lab on ${bed}: the tunnel, Services and a drain under load work, and the cluster is as it was`,
    options,
    async () => {
      const { code, stdout, stderr } = await isthmus(args("--services", "--tunnel"), { timeoutMs: 240_000 });
      const { services } = assertWorks(code, stdout, stderr);
      assert.ok(services !== undefined && services.tries.length > 0);
      assert.deepEqual(services.drain.failed, []);
      await assertAsItWas();
    },
  );

  test(
    `lab on ${bed}: one that is kept has its own names and labels alone, the owner's pods keep off, down removes it`,
    options,
    async () => {
      const { code, stdout, stderr } = await isthmus(args("--keep"), { timeoutMs: RUN_MS });
      assertWorks(code, stdout, stderr);
      const { run, prefix } = stateOf(LAB).identity;
      const { client } = cluster;
      const nodes = (await client.listAll(resources.nodes)).items.filter(
        ({ metadata }) => metadata.name !== OWNERS_NODE,
      );
      assert.equal(nodes.length, 2);
      for (const { metadata, status } of nodes) {
        assert.ok(metadata.name.startsWith(prefix), metadata.name);
        assert.deepEqual([metadata.labels?.[LAB_LABEL], metadata.labels?.[RUN_LABEL]], [LAB, run]);
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
      // Pods of a DaemonSet that tolerates everything come, wait and say why; others do not come.
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
      const inside = await isthmus(["lab", "exec", name, "node2", "--", "ip", "route"]);
      assert.equal(inside.code, 0, inside.stderr);
      const down = await isthmus(["lab", "down", name], { timeoutMs: RUN_MS });
      assert.equal(down.code, 0, down.stderr);
      // What the owner has done meanwhile stays done.
      const { spec } = await client.get(resources.deployments, shop);
      assert.equal(spec?.replicas, 7);
      const pods = await client.listAll(resources.pods, { namespace: "dual" });
      assert.equal(pods.items.filter((pod) => pod.metadata.labels?.["app"] === "shop").length, 7);
      asItWas = await snapshotOf(cluster, "nothing");
      assert.deepEqual(
        [...asItWas.keys()].filter((key) => key.includes(prefix)),
        [],
      );
    },
  );

  test(`lab on ${bed}: a failure in the middle leaves the cluster as it was`, options, async () => {
    const { code, stdout, stderr } = await isthmus(args("--timeout=1ms"), { timeoutMs: RUN_MS });
    assert.deepEqual([code, stdout], [1, ""], stderr);
    assert.match(stderr, /isthmus lab: \d of 6 pods run after/);
    await assertAsItWas();
  });

  test(`lab on ${bed}: Ctrl-C leaves the cluster as it was`, options, async () => {
    const running = await started(/^([1-9]|[123]\d) of 40 pods run/m, "--pods=40");
    const known = processesOf(LAB);
    running.child.kill("SIGINT");
    const { code } = await running.ended;
    assert.notEqual(code, 0);
    assert.deepEqual(leftOf(LAB, known), []);
    await assertAsItWas();
  });

  test(`lab on ${bed}: after kill -9, down leaves the cluster as it was`, options, async () => {
    await killAll(await started(/^([1-9]|[123]\d) of 40 pods run/m, "--pods=40"));
    assert.notEqual(differences(asItWas, await snapshotOf(cluster, PREFIX)).length, 0);
    const down = await isthmus(["lab", "down", name], { timeoutMs: RUN_MS });
    assert.equal(down.code, 0, down.stderr);
    await assertAsItWas();
  });

  test(
    `lab on ${bed}: after kill -9, the next start removes what there was, and leaves the cluster as it was`,
    options,
    async () => {
      await killAll(await started(/^starting 6 pods/m));
      const { run } = stateOf(LAB).identity;
      const { code, stdout, stderr } = await isthmus(args(), { timeoutMs: RUN_MS });
      assertWorks(code, stdout, stderr);
      assert.ok(!stdout.includes(run), "another run has other names");
      await assertAsItWas();
    },
  );

  test(
    `lab on ${bed}: when its files are lost too, another lab is refused, and down --kubeconfig leaves the cluster as it was`,
    options,
    async () => {
      await killAll(await started(/^pinging/m));
      // As a restart of the machine does it.
      rmSync(labPaths(LAB).dir, { recursive: true });
      const refused = await isthmus(["lab", "--name=ct-guest-x", "--nodes=1", `--kubeconfig=${cluster.kubeconfig}`]);
      assert.equal(refused.code, 1);
      assert.match(
        refused.stderr,
        new RegExp(`lab ${LAB} \\(run \\w+\\) has objects on the cluster.*isthmus lab down --name=${LAB}`),
      );
      const down = await isthmus(["lab", "down", name, `--kubeconfig=${cluster.kubeconfig}`], { timeoutMs: RUN_MS });
      assert.equal(down.code, 0, down.stderr);
      assert.match(down.stderr, /removed what run \w+ of lab/);
      await assertAsItWas();
    },
  );
}
