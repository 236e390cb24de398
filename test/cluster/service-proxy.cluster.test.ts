import assert from "node:assert/strict";
import { mkdirSync, renameSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { resources } from "#kube/client";
import { until } from "#test/lab";
import { NODE_PORT } from "#test/service-bed";
import { ConnectLoad, DualStackBed, PODS, stopProxy } from "#test/service-dual-stack";
import { untilHealthy } from "#test/service-objects";
import { addressesOf } from "../../src/features/service-proxy/testing/fixture.ts";

let cluster: DualStackBed;
before(async () => {
  cluster = await DualStackBed.open(`isp-prog-${process.pid}`);
});
after(() => cluster[Symbol.asyncDispose]());

test("service-proxy: programs Services, keeps them when it ends, and removes only its own tables at --cleanup", async (t) => {
  cluster.nft("add", "table", "ip", "foreign");
  const proxy = cluster.startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await cluster.untilReached();
  assert.equal((await cluster.inner.bed.connect("external", addressesOf(4).node, NODE_PORT)).kind, "delivered");
  assert.equal(await stopProxy(proxy), 0, proxy.said());
  assert.equal(await cluster.reach(4), "delivered");
  const cleaned = await cluster.startProxy("--cleanup").ended;
  assert.deepEqual([cleaned.code, cleaned.stdout], [0, "removed table ip kube-proxy\nremoved table ip6 kube-proxy\n"]);
  assert.equal(cluster.nft("list", "tables").trim(), "table ip foreign");
  assert.equal(
    (await cluster.startProxy("--cleanup").ended).stdout,
    "there is no table ip kube-proxy\nthere is no table ip6 kube-proxy\n",
  );
});

test("service-proxy: --cluster-cidr of the family that is not the Node's primary one is a warning on a machine with both", async (t) => {
  const proxy = cluster.inner.startProxy("--cluster-cidr=fd00::/48");
  t.after(() => proxy.child.kill("SIGKILL"));
  await cluster.untilReached();
  assert.match(proxy.said(), /--cluster-cidr .* has no range of the node's primary family/);
  assert.equal(await stopProxy(proxy), 0, proxy.said());
});

test("service-proxy: is killed and started again under load while endpoints change, and no connection fails", async (t) => {
  let proxy = cluster.startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await cluster.untilReached();
  const load = new ConnectLoad(cluster);
  for (let round = 0; round < 6; round += 1) {
    await cluster.setEndpoints((all) => all.slice(round % 3, 2 + (round % 4)));
    if (round % 2 === 1) {
      await stopProxy(proxy, "SIGKILL");
      proxy = cluster.startProxy();
    }
    await cluster.setEndpoints((all) => all.slice(0, 1 + round));
    const wanted = 1 + round;
    await until("the change is in the kernel", () =>
      cluster.nft("list", "map", "ip", "kube-proxy", "service-ips").includes(`goto lb-${wanted}`),
    );
  }
  await load.stop();
  assert.deepEqual(load.failures, []);
  assert.ok(load.connections > 200, `only ${load.connections}`);
  await stopProxy(proxy);
});

test("service-proxy: killed and started again without a change, it makes no transaction", async (t) => {
  let proxy = cluster.startProxy("--min-sync-period=1s");
  t.after(() => proxy.child.kill("SIGKILL"));
  await untilHealthy(cluster.inner, proxy);
  await cluster.untilReached();
  await stopProxy(proxy, "SIGKILL");
  const { elements } = cluster.inner.bed;
  const before_ = elements.generation();
  for (let start = 1; start <= 3; start += 1) {
    proxy = cluster.startProxy();
    await untilHealthy(cluster.inner, proxy);
    // A look for what others change, or a sync that was asked for meanwhile, would come within this.
    const looked = performance.now() + 1200;
    await until("polls have passed", () => performance.now() > looked);
    assert.equal(elements.generation(), before_, `start ${start}: ${proxy.said()}`);
    await stopProxy(proxy, "SIGKILL");
  }
});

test("service-proxy: flushed tables are back within two seconds, and other tables are never touched", async (t) => {
  const proxy = cluster.startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await cluster.untilReached();
  for (const breakIt of [
    ["flush", "ruleset"],
    ["delete", "table", "ip", "kube-proxy"],
    ["flush", "chain", "ip6", "kube-proxy", "services"],
  ]) {
    const startedAt = performance.now();
    cluster.nft(...breakIt);
    cluster.nft("add", "table", "ip", "foreign");
    await cluster.untilReached();
    assert.ok(performance.now() - startedAt < 2500, `${breakIt.join(" ")}: ${performance.now() - startedAt} ms`);
    assert.match(cluster.nft("list", "tables"), /table ip foreign/);
  }
  await stopProxy(proxy);
});

test("service-proxy: a start without the API server writes nothing, and continues when the server is back", async (t) => {
  const first = cluster.startProxy();
  t.after(() => first.child.kill("SIGKILL"));
  await cluster.untilReached();
  await stopProxy(first);
  const before_ = cluster.nft("list", "table", "ip", "kube-proxy");
  const second = cluster.startProxy(`--kubeconfig=${cluster.inner.lostKubeconfig()}`);
  t.after(() => second.child.kill("SIGKILL"));
  await until(
    "it says that the API server is away",
    () => /watching the API server failed|started|continuing without|ECONNREFUSED/.test(second.said()),
    {
      deadlineMs: 40_000,
    },
  );
  assert.equal(await cluster.reach(4), "delivered");
  assert.equal(cluster.nft("list", "table", "ip", "kube-proxy"), before_);
  await stopProxy(second);
});

test("service-proxy: all faults of flags and file are reported, and nothing is written", async () => {
  const file = join(cluster.inner.folder, "bad.yaml");
  writeFileSync(
    file,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nnftables: {masqueradeBit: 40}\n",
  );
  const byFile = await cluster.startProxy(`--config=${file}`).ended;
  assert.equal(byFile.code, 2);
  assert.match(byFile.stderr, /bad\.yaml: mode: must be "nftables" or empty/);
  assert.match(byFile.stderr, /nftables\.masqueradeBit/);
  const byFlags = await cluster.startProxy(
    "--min-sync-period=1m",
    "--cluster-cidr=10.0.0.0/33",
    "--detect-local-mode=BridgeInterface",
  ).ended;
  assert.equal(byFlags.code, 2);
  assert.equal(byFlags.stderr.trim().split("\n").length, 4, byFlags.stderr);
});

test("service-proxy: ends with code 1 if its file's content changes, not if a ConfigMap is published again unchanged", async (t) => {
  const folder = join(cluster.inner.folder, "config");
  const publish = (version: string, content: string): void => {
    mkdirSync(join(folder, version), { recursive: true });
    writeFileSync(join(folder, version, "config.conf"), content);
    symlinkSync(version, join(folder, "..data_tmp"));
    renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
  };
  const content = [
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1",
    "kind: KubeProxyConfiguration",
    `clientConnection: {kubeconfig: ${join(cluster.inner.folder, "kubeconfig")}}`,
    `clusterCIDR: "${PODS}"`,
    "",
  ].join("\n");
  publish("..1", content);
  symlinkSync(join("..data", "config.conf"), join(folder, "config.conf"));
  const proxy = cluster.inner.startProxyWith([`--config=${join(folder, "config.conf")}`]);
  t.after(() => proxy.child.kill("SIGKILL"));
  await cluster.untilReached();
  publish("..2", content);
  utimesSync(join(folder, "config.conf"), 1, 1);
  const unharmed = performance.now() + 1500;
  await until("polls have passed", () => proxy.child.exitCode !== null || performance.now() > unharmed);
  assert.equal(proxy.child.exitCode, null, proxy.said());
  publish("..3", `${content}nftables: {minSyncPeriod: 2s}\n`);
  const ended = await proxy.ended;
  assert.equal(ended.code, 1);
  assert.match(
    ended.stderr,
    /^isthmus service-proxy: the configuration file .*config\.conf has changed; the program ends/m,
  );
  assert.equal(await cluster.reach(4), "delivered");
});

test("service-proxy: a Service that requests an older Service's address is reported in the log and by an Event", async (t) => {
  const proxy = cluster.startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  const ports = [{ name: "http", port: 81, protocol: "TCP" }];
  for (const name of ["older", "younger"]) {
    const spec = { externalIPs: ["203.0.113.77"], ports };
    const { metadata } = await cluster.inner.client.create(resources.services, {
      metadata: { name, namespace: "default" },
      spec,
    });
    const createdAt = metadata.creationTimestamp;
    // Times of objects have whole seconds.
    await until("the next is younger", () => Date.now() - Date.parse(createdAt ?? "") >= 1000);
  }
  await until("it is in the log", () =>
    proxy.said().includes("another Service has the address that this one requests"),
  );
  const line = proxy
    .said()
    .split("\n")
    .find((text) => text.includes("another Service has"));
  assert.match(line ?? "", /default\/younger.*default\/older.*203\.0\.113\.77:81\/TCP/);
  await until("there is an Event", async () => {
    const { items } = await cluster.inner.client.list(resources.events, { namespace: "default" });
    return items.some(({ reason, regarding }) => reason === "ExternalAddressInUse" && regarding?.name === "younger");
  });
  await stopProxy(proxy);
});

test("service-proxy: of a node's address a Service gets no port that nodes keep, an Event says why, and a restart gives nothing that is taken back", async (t) => {
  let proxy = cluster.startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  const { node } = addressesOf(4);
  const ports = [10_250, 8088].map((port) => ({ name: `p${port}`, port, protocol: "TCP" }));
  await cluster.inner.client.create(resources.services, {
    ...{ metadata: { name: "claims", namespace: "default" }, spec: { externalIPs: [String(node)], ports } },
  });
  const events = async () => {
    const { items } = await cluster.inner.client.list(resources.events, { namespace: "default" });
    return items.filter(({ regarding }) => regarding?.name === "claims");
  };
  await until("there is an Event", async () => (await events()).length > 0);
  const told = (await events()).map(({ reason, note }) => `${reason} ${note}`);
  assert.equal(told.length, 1, told.join("\n"));
  assert.match(told[0] ?? "", /^ExternalAddressRefused .*:10250\/TCP .*this node, which keeps port 10250/);
  const given = (): readonly number[] =>
    [10_250, 8088].flatMap((port) =>
      cluster.nft("list", "table", "ip", "kube-proxy").includes(`${node} . tcp . ${port} `) ? port : [],
    );
  const isGiven = (): boolean => String(given()) === "8088";
  await until("the other port is given", isGiven);
  await stopProxy(proxy, "SIGKILL");
  proxy = cluster.startProxy();
  await until("it has judged", () => {
    assert.equal(isGiven(), true);
    return proxy.said().includes("it cannot have");
  });
  assert.equal(isGiven(), true);
  await stopProxy(proxy);
});
