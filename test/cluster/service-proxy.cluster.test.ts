import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { IpAddress, IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import { type ApiServer, startApiServer } from "#lab/api-server";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { Bed } from "../../src/features/service-proxy/testing/bed.ts";
import { addressesOf, SERVICE_PORT, TARGET_PORT } from "../../src/features/service-proxy/testing/fixture.ts";

const PREFIX = `isp-prog-${process.pid}`;
const NODE = "node-a";
const FAMILIES = [4, 6] as const;
const folder = mkdtempSync(join(tmpdir(), "isthmus-service-proxy-"));
let server: ApiServer;
let client: KubeClient;
let bed: Bed;
let more: Record<IpFamily, readonly IpAddress[]>;

before(async () => {
  const cidrs = ([4, 6] as const).map((family) => addressesOf(family).serviceCIDR);
  const serviceRanges = { cidrs, nodePorts: { first: 30_000, last: 32_767 } };
  server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, serviceRanges, log: nullLogger });
  writeFileSync(join(folder, "kubeconfig"), server.kubeconfig());
  client = new KubeClient(await loadKubeConfig({ path: join(folder, "kubeconfig") }));
  bed = await Bed.open(PREFIX);
  more = { 4: await bed.serveMore(4, 6), 6: await bed.serveMore(6, 6) };
  await client.create(resources.nodes, { metadata: { name: NODE } });
  const addresses = FAMILIES.map((family) => ({ type: "InternalIP", address: addressesOf(family).node.toString() }));
  await client.patch(
    resources.nodes,
    { name: NODE },
    { type: "merge", body: { status: { addresses } } },
    { subresource: "status" },
  );
  await client.create(resources.services, {
    metadata: { name: "web", namespace: "default" },
    spec: {
      clusterIP: addressesOf(4).clusterIP.toString(),
      clusterIPs: FAMILIES.map((family) => addressesOf(family).clusterIP.toString()),
      ipFamilies: ["IPv4", "IPv6"],
      ipFamilyPolicy: "RequireDualStack",
      ports: [{ name: "http", port: SERVICE_PORT, protocol: "TCP", targetPort: TARGET_PORT, nodePort: 30_080 }],
      type: "NodePort",
    },
  });
  await setEndpoints((addresses_) => addresses_);
});

after(async () => {
  await client.close();
  await bed[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

/** Chooses the endpoints of the Service, in both families. */
async function setEndpoints(choose: (addresses: readonly IpAddress[]) => readonly IpAddress[]): Promise<void> {
  for (const family of FAMILIES) {
    const name = `web-${family}`;
    const body = {
      metadata: { name, namespace: "default", labels: { "kubernetes.io/service-name": "web" } },
      addressType: `IPv${family}`,
      ports: [{ name: "http", port: TARGET_PORT, protocol: "TCP" }],
      endpoints: choose(more[family]).map((address) => ({
        addresses: [address.toString()],
        conditions: { ready: true },
      })),
    };
    const ref = { name, namespace: "default" };
    await client.patch(resources.endpointSlices, ref, { type: "apply", body, fieldManager: "test", force: true });
  }
}

function startProxy(...flags: string[]): Running {
  const argv = [ISTHMUS, "service-proxy", `--kubeconfig=${join(folder, "kubeconfig")}`, `--hostname-override=${NODE}`];
  const places = [`--netns=/run/netns/${PREFIX}-node`];
  return start([...argv, ...places, "--min-sync-period=0s", "--cluster-cidr=10.180.0.0/16,fd00:10:180::/48", ...flags]);
}

async function stop(proxy: Running, signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
  proxy.child.kill(signal);
  return (await proxy.ended).code;
}

const nft = (...words: string[]): string =>
  execFileSync("ip", ["netns", "exec", `${PREFIX}-node`, "nft", ...words], { encoding: "utf8" });
const reach = async (family: IpFamily) =>
  (await bed.connect("external", addressesOf(family).clusterIP, SERVICE_PORT)).kind;
const untilReached = (): Promise<void> =>
  until(
    "the Service answers in both families",
    async () => (await reach(4)) === "delivered" && (await reach(6)) === "delivered",
  );

test("service-proxy: programs Services, keeps them when it ends, and removes nothing but its own at --cleanup", async (t) => {
  nft("add", "table", "ip", "foreign");
  const proxy = startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await untilReached();
  assert.equal((await bed.connect("external", addressesOf(4).node, 30_080)).kind, "delivered");
  assert.equal(await stop(proxy), 0, proxy.said());
  assert.equal(await reach(4), "delivered");
  const cleaned = await startProxy("--cleanup").ended;
  assert.deepEqual([cleaned.code, cleaned.stdout], [0, "removed table ip kube-proxy\nremoved table ip6 kube-proxy\n"]);
  assert.equal(nft("list", "tables").trim(), "table ip foreign");
  assert.equal(
    (await startProxy("--cleanup").ended).stdout,
    "there is no table ip kube-proxy\nthere is no table ip6 kube-proxy\n",
  );
});

test("service-proxy: is killed and started again under load while endpoints change, and no connection fails", async (t) => {
  let proxy = startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await untilReached();
  const failures: string[] = [];
  let connections = 0;
  let isDone = false;
  const load = async (family: IpFamily): Promise<void> => {
    while (!isDone) {
      const kind = await reach(family);
      connections += 1;
      if (kind !== "delivered") failures.push(`IPv${family} ${kind}`);
    }
  };
  const loads = FAMILIES.map(load);
  for (let round = 0; round < 6; round += 1) {
    await setEndpoints((all) => all.slice(round % 3, 2 + (round % 4)));
    if (round % 2 === 1) {
      await stop(proxy, "SIGKILL");
      proxy = startProxy();
    }
    await setEndpoints((all) => all.slice(0, 1 + round));
    const wanted = 1 + round;
    await until("the change is in the kernel", () =>
      nft("list", "map", "ip", "kube-proxy", "service-ips").includes(`goto lb-${wanted}`),
    );
  }
  isDone = true;
  await Promise.all(loads);
  assert.deepEqual(failures, []);
  assert.ok(connections > 200, `only ${connections}`);
  await stop(proxy);
});

test("service-proxy: what somebody flushes is back within two seconds, and other tables are never touched", async (t) => {
  const proxy = startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await untilReached();
  for (const breakIt of [
    ["flush", "ruleset"],
    ["delete", "table", "ip", "kube-proxy"],
    ["flush", "chain", "ip6", "kube-proxy", "services"],
  ]) {
    const startedAt = performance.now();
    nft(...breakIt);
    nft("add", "table", "ip", "foreign");
    await untilReached();
    assert.ok(performance.now() - startedAt < 2500, `${breakIt.join(" ")}: ${performance.now() - startedAt} ms`);
    assert.match(nft("list", "tables"), /table ip foreign/);
  }
  await stop(proxy);
});

test("service-proxy: started while the API server is away it touches nothing, and goes on when that is back", async (t) => {
  const first = startProxy();
  t.after(() => first.child.kill("SIGKILL"));
  await untilReached();
  await stop(first);
  const before_ = nft("list", "table", "ip", "kube-proxy");
  const lost = join(folder, "lost");
  writeFileSync(lost, server.kubeconfig().replace(/127\.0\.0\.1:\d+/, "127.0.0.1:9"));
  const second = startProxy(`--kubeconfig=${lost}`);
  t.after(() => second.child.kill("SIGKILL"));
  await until(
    "it says that the API server is away",
    () => /watch failed|started|going on without|ECONNREFUSED/.test(second.said()),
    {
      deadlineMs: 40_000,
    },
  );
  assert.equal(await reach(4), "delivered");
  assert.equal(nft("list", "table", "ip", "kube-proxy"), before_);
  await stop(second);
});

test("service-proxy: what is wrong with its flags and file is said, all of it, and nothing is touched", async () => {
  const file = join(folder, "bad.yaml");
  writeFileSync(
    file,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nnftables: {masqueradeBit: 40}\n",
  );
  const byFile = await startProxy(`--config=${file}`).ended;
  assert.equal(byFile.code, 2);
  assert.match(byFile.stderr, /bad\.yaml: mode: must be "nftables" or empty/);
  assert.match(byFile.stderr, /nftables\.masqueradeBit/);
  const byFlags = await startProxy(
    "--min-sync-period=1m",
    "--cluster-cidr=10.0.0.0/33",
    "--detect-local-mode=BridgeInterface",
  ).ended;
  assert.equal(byFlags.code, 2);
  assert.equal(byFlags.stderr.trim().split("\n").length, 4, byFlags.stderr);
});
