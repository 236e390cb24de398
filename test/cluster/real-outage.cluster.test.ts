// alone: it measures time or memory, which other work on the machine changes
/**
 * Informers and Kubernetes' own API server, which is killed and started again, with kube-proxy's rights (from ISTHMUS_PEERS). What counts is
 * the time from its first answer to us, with all roles known, to a change that was made then.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep, TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import { allSynced, createInformer } from "#kube/informer";
import { isthmus } from "#test/lab";
import { peersMissing, RealApiServer } from "#test/real-api-server";

const BUDGET_MS = 1500;
const OUTAGES_MS = process.env["ISTHMUS_SOAK"] === "full" ? [1000, 5000, 15_000, 35_000] : [12_000];
const skip = peersMissing("etcd", "kube-apiserver");

let server: RealApiServer | undefined;
before(async () => {
  if (skip === false) server = await RealApiServer.start();
});
after(() => server?.[Symbol.asyncDispose]());

test("informer: a change is seen within 1.5 s of the return of a real API server, without a list", {
  skip,
}, async (t) => {
  assert.ok(server !== undefined);
  const samples: string[] = [];
  const connection = await loadKubeConfig({ path: server.kubeconfigOf("system:kube-proxy"), clock: systemClock });
  await using client = new KubeClient(connection, { onRequest: ({ code }) => samples.push(code), clock: systemClock });
  const stop = new AbortController();
  const group = new TaskGroup(stop.signal);
  t.after(async () => {
    stop.abort();
    await group.wait();
  });
  const services = createInformer(client, resources.services, { clock: systemClock });
  const slices = createInformer(client, resources.endpointSlices, { clock: systemClock });
  const nodes = createInformer(client, resources.nodes, { clock: systemClock });
  const all = [services, slices, nodes] as const;
  for (const informer of all) group.spawn((signal) => informer.run({ signal }));
  await allSynced(all);
  for (const [round, outageMs] of OUTAGES_MS.entries()) {
    await server.down();
    await sleep(outageMs);
    await server.up();
    const startedAt = performance.now();
    const name = `late-${round}`;
    await server.client.create(resources.services, {
      metadata: { name, namespace: "default" },
      spec: { clusterIP: "None", ports: [{ port: 80 }] },
    });
    const ref = { name, namespace: "default" };
    await server.client.create(resources.endpointSlices, { metadata: ref, addressType: "IPv4", endpoints: [] });
    await server.client.create(resources.nodes, { metadata: { name } });
    const isSeen = (): boolean =>
      services.store.get(name, "default") !== undefined &&
      slices.store.get(name, "default") !== undefined &&
      nodes.store.get(name) !== undefined;
    while (!isSeen()) {
      assert.ok(performance.now() - startedAt < 60_000, "not seen at all");
      await sleep(5);
    }
    const tookMs = performance.now() - startedAt;
    t.diagnostic(
      `away for ${outageMs} ms: seen after ${tookMs.toFixed(0)} ms; answers: ${samples.splice(0).join(" ")}`,
    );
    assert.ok(tookMs < BUDGET_MS, `${tookMs.toFixed(0)} ms after an outage of ${outageMs} ms`);
  }
});

test("explain: answers with kube-proxy's rights on a real API server, also about a pod", { skip }, async () => {
  assert.ok(server !== undefined);
  const { client } = server;
  const status = { addresses: [{ type: "InternalIP", address: "192.0.2.7" }] };
  await client.create(resources.nodes, { metadata: { name: "node-a" } });
  await client.patch(
    resources.nodes,
    { name: "node-a" },
    { type: "merge", body: { status } },
    { subresource: "status" },
  );
  const namespace = "default";
  await client.create(resources.services, {
    metadata: { name: "web", namespace },
    spec: { clusterIP: "10.96.0.77", ports: [{ port: 80 }] },
  });
  await client.create(resources.endpointSlices, {
    metadata: { name: "web-1", namespace, labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "", port: 8080, protocol: "TCP" }],
    endpoints: [{ addresses: ["10.1.0.5"], nodeName: "node-a", targetRef: { kind: "Pod", name: "web-a", namespace } }],
  });
  const flags = ["--cluster-cidr=10.1.0.0/16", `--kubeconfig=${server.kubeconfigOf("system:kube-proxy")}`];
  const { code, stdout, stderr } = await isthmus([
    "explain",
    ...flags,
    "pod:default/web-a",
    "service:default/web",
    "80",
  ]);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /10\.1\.0\.5:8080/);
});
