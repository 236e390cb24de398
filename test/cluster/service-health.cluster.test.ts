import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { IpAddress, type IpFamily } from "#base/ip";
import { resources } from "#kube/client";
import { connectInside, InsideError, request } from "#lab/inside";
import { type Running, until } from "#test/lab";
import { NODE, NODE_PORT, ServiceBed } from "#test/service-bed";
import { addressesOf, SERVICE_PORT } from "../../src/features/service-proxy/testing/fixture.ts";

const PREFIX = `isp-hlth-${process.pid}`;
const CA_TAINT = { key: "ToBeDeletedByClusterAutoscaler", value: "1", effect: "NoSchedule" };
const HEALTH_PORT = 10_256;
let cluster: ServiceBed;
let proxy: Running;

before(async () => {
  const clusterIP = addressesOf(4).clusterIP.toString();
  const policy = { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 32_000 };
  const service = { clusterIP, clusterIPs: [clusterIP], ...policy };
  cluster = await ServiceBed.open(PREFIX, { finalizers: ["test.isthmus.dev/held"], service });
  await setEndpoints(true);
  proxy = cluster.startProxy();
  await until("it is healthy", async () => (await probe("/healthz")).startsWith("200"));
});

after(async () => {
  proxy.child.kill("SIGKILL");
  await proxy.ended;
  await cluster[Symbol.asyncDispose]();
});

function setEndpoints(ready: boolean): Promise<void> {
  const conditions = { ready, serving: true, terminating: !ready };
  const addresses = [addressesOf(4).localEndpoint.toString()];
  return cluster.setEndpoints(4, [{ addresses, nodeName: NODE, conditions }]);
}

/** Returns the answer that a load balancer outside, or a kubelet on the node, gets: `CODE BODY`; `-` where nobody answers. */
async function probe(
  path: string,
  port = HEALTH_PORT,
  family: IpFamily = 4,
  from: "external" | "node" = "external",
): Promise<string> {
  const address = port === 10_249 ? IpAddress.parse("127.0.0.1") : addressesOf(family).node;
  try {
    const socket = await connectInside({ name: cluster.netnsName(from) }, { address, port }, { timeoutMs: 1000 });
    const { status, body } = await request(socket, { path, host: "node" }, { timeoutMs: 1000 });
    return `${status} ${body}`;
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return "-";
  }
}

const code = async (path: string): Promise<string> => (await probe(path)).slice(0, 3);
const setTaints = (taints: readonly object[]): Promise<unknown> =>
  cluster.client.patch(resources.nodes, { name: NODE }, { type: "merge", body: { spec: { taints } } });

/** Milliseconds from a change until a check says so. */
async function until503(change: () => Promise<unknown>, wanted: string): Promise<number> {
  await change();
  const startedAt = performance.now();
  await until(`/healthz says ${wanted}`, async () => (await code("/healthz")) === wanted, { everyMs: 5 });
  return performance.now() - startedAt;
}

test("drain: the autoscaler's taint takes the node out at once and its removal brings it back; /livez is flat", async () => {
  assert.ok((await until503(() => setTaints([CA_TAINT]), "503")) < 300);
  const body = JSON.parse((await probe("/healthz")).slice(4)) as { nodeEligible: boolean; healthy: boolean };
  assert.deepEqual([body.nodeEligible, body.healthy], [false, true]);
  assert.equal(await code("/livez"), "200");
  assert.equal((await cluster.bed.connect("pod", addressesOf(4).clusterIP, SERVICE_PORT)).kind, "delivered");
  await until503(() => setTaints([]), "200");
  assert.equal(await code("/livez"), "200");
});

test("drain: cordoning, other taints and a Node that is not ready are no signals", async () => {
  await cluster.client.patch(
    resources.nodes,
    { name: NODE },
    { type: "merge", body: { spec: { unschedulable: true } } },
  );
  await setTaints([{ key: "node.kubernetes.io/not-ready", effect: "NoExecute" }]);
  await until("the Node's change has come", async () =>
    /"node.kubernetes.io\/not-ready"/.test(JSON.stringify(await cluster.client.get(resources.nodes, { name: NODE }))),
  );
  for (let at = 0; at < 20; at += 1) assert.equal(await code("/healthz"), "200");
  await cluster.client.patch(
    resources.nodes,
    { name: NODE },
    { type: "merge", body: { spec: { unschedulable: null, taints: [] } } },
  );
});

test("drain: both families and unknown paths are answered as a load balancer expects", async () => {
  assert.match(
    await probe("/healthz", HEALTH_PORT, 6),
    /^200 \{"lastUpdated":"[^"]+","currentTime":"[^"]+","nodeEligible":true,"healthy":true,"status":\{"IPv4"/,
  );
  assert.match(await probe("/other"), /^404/);
});

test("health check of a Service: counts endpoints of this node, is 503 while all terminate, and traffic still flows", async () => {
  assert.match(
    await probe("/", 32_000),
    /^200 \{\n\t"service": \{\n\t\t"namespace": "default",\n\t\t"name": "web"\n\t\},\n\t"localEndpoints": 1,\n\t"serviceProxyHealthy": true\n\}$/,
  );
  await setEndpoints(false);
  await until("no endpoint is ready", async () => (await probe("/", 32_000)).startsWith("503"));
  assert.equal((await cluster.bed.connect("external", addressesOf(4).node, NODE_PORT)).kind, "delivered");
  await setEndpoints(true);
  await until("it is back", async () => (await probe("/", 32_000)).startsWith("200"));
});

test("metrics: healthz and livez are counted by code; a draining node shows as healthz 503 with livez flat", async () => {
  const metric = async (line: RegExp): Promise<number> =>
    Number(line.exec(await probe("/metrics", 10_249, 4, "node"))?.[1] ?? Number.NaN);
  const before503 = await metric(/^kubeproxy_proxy_healthz_total\{code="503"\} (\d+)$/m);
  await until503(() => setTaints([CA_TAINT]), "503");
  await code("/livez");
  assert.ok((await metric(/^kubeproxy_proxy_healthz_total\{code="503"\} (\d+)$/m)) > before503);
  assert.equal(await metric(/^kubeproxy_proxy_livez_total\{code="503"\} (\d+)$/m), 0);
  assert.equal(await metric(/^kubeproxy_node_eligible (\d)$/m), 0);
  assert.ok((await metric(/^kubeproxy_sync_proxy_rules_duration_seconds_count\{ip_family="IPv4"\} (\d+)$/m)) > 0);
  assert.equal(await probe("/proxyMode", 10_249, 4, "node"), "200 nftables");
  await until503(() => setTaints([]), "200");
});

test("drain: without the API server nothing changes, and the last state of the Node holds", async () => {
  for (const taints of [[], [CA_TAINT]]) {
    const wanted = taints.length === 0 ? "200" : "503";
    await until503(() => setTaints(taints), wanted);
    const rule = cluster.server.faults.add({ action: { status: 503 } });
    cluster.server.faults.dropWatches();
    for (let at = 0; at < 20; at += 1) {
      assert.equal(await code("/healthz"), wanted);
      assert.equal(await code("/livez"), "200");
    }
    cluster.server.faults.remove(rule);
  }
  await until503(() => setTaints([]), "200");
});

test("drain: a restart with complete tables is 200 while lists take their time, and if the API server cannot be reached", async () => {
  proxy.child.kill("SIGTERM");
  await proxy.ended;
  const slow = cluster.server.faults.add({
    match: { verb: "list", resource: "services" },
    action: { latencyMs: 5000 },
  });
  const early = cluster.startProxy();
  await until("it is in service", async () => (await probe("/healthz")).startsWith("200"));
  assert.match(await probe("/readyz"), /^503/, "it has not read the Services");
  cluster.server.faults.remove(slow);
  early.child.kill("SIGTERM");
  assert.equal((await early.ended).code, 0, early.said());
  // Without the ranges of Services there is no first sync yet.
  const ranges = cluster.server.faults.add({
    match: { verb: "list", resource: "servicecidrs" },
    action: { latencyMs: 5000 },
  });
  const listed = cluster.startProxy();
  await until("the Service's health port answers", async () => (await probe("/", 32_000)).startsWith("200"));
  assert.match(
    await probe("/metrics", 10_249, 4, "node"),
    /^kubeproxy_sync_proxy_rules_duration_seconds_count\{ip_family="IPv4"\} 0$/m,
  );
  cluster.server.faults.remove(ranges);
  listed.child.kill("SIGTERM");
  assert.equal((await listed.ended).code, 0, listed.said());
  const away = cluster.startProxy(`--kubeconfig=${cluster.lostKubeconfig()}`);
  await until("the earlier table is adopted", async () => (await probe("/healthz")).startsWith("200"));
  const adopted = JSON.parse((await probe("/healthz")).slice(4)) as { startup?: string };
  assert.equal(await code("/livez"), "200");
  assert.ok(adopted.startup === undefined || adopted.startup === "adopted");
  away.child.kill("SIGTERM");
  assert.equal((await away.ended).code, 0, away.said());
  proxy = cluster.startProxy();
  await until("it is healthy again", async () => (await probe("/healthz")).startsWith("200"));
});

test("drain: a Node that is being deleted is taken out, and stays out when it is gone", async () => {
  await until503(() => cluster.client.delete(resources.nodes, { name: NODE }), "503");
  assert.equal(await code("/livez"), "200");
  await cluster.client.patch(
    resources.nodes,
    { name: NODE },
    { type: "merge", body: { metadata: { finalizers: null } } },
  );
  await until("the Node is gone", async () => cluster.server.get("v1", "Node", "", NODE) === undefined);
  for (let at = 0; at < 10; at += 1) assert.equal(await code("/healthz"), "503");
  assert.equal((await cluster.bed.connect("pod", addressesOf(4).clusterIP, SERVICE_PORT)).kind, "delivered");
});
