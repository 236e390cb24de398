import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { IpFamily } from "#base/ip";
import { type Running, until } from "#test/lab";
import { ConnectLoad, DualStackBed, FAMILIES, stopProxy } from "#test/service-dual-stack";
import { layoutR } from "#test/service-layout-r";
import { addressesOf, SERVICE_PORT, TARGET_PORT } from "../../src/features/service-proxy/testing/fixture.ts";

let cluster: DualStackBed;
before(async () => {
  cluster = await DualStackBed.open(`isp-rival-${process.pid}`);
});
after(() => cluster[Symbol.asyncDispose]());

test("service-proxy: takes over kube-proxy's table, and no connection fails", async (t) => {
  const layout = { port: SERVICE_PORT, targetPort: TARGET_PORT };
  for (const family of FAMILIES) {
    const web = {
      ...layout,
      name: "default/web",
      address: addressesOf(family).clusterIP,
      endpoints: cluster.endpoints[family],
    };
    const others = Array.from({ length: 500 }, (_, at) => ({ ...web, name: `default/svc-${at}`, port: 1000 + at }));
    cluster.inner.nft(["-f", "-"], layoutR({ family, services: [web, ...others] }));
  }
  const load = new ConnectLoad(cluster, { each: 2 });
  await load.more(100);
  const proxy = cluster.startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await until("the tables are ours", () => FAMILIES.every((family) => isOurs(family)));
  await load.more(100);
  await load.stop();
  assert.deepEqual(load.failures, []);
  assert.match(proxy.said(), /a table of another program or of another layout is replaced; connections continue/);
  assert.equal(
    cluster.nft("list", "tables").trim().split("\n").sort().join(", "),
    "table ip kube-proxy, table ip6 kube-proxy",
  );
  await stopProxy(proxy);
});

test("service-proxy: another program that keeps changing its tables is logged once, shown by a gauge, and repairs slow down", async (t) => {
  const proxy = cluster.startProxy();
  t.after(() => proxy.child.kill("SIGKILL"));
  await cluster.untilReached();
  let disturbances = 0;
  await until(
    "it has noticed",
    () => {
      // As kube-proxy does, whose chains have the same names.
      cluster.nft("flush", "chain", "ip", "kube-proxy", "services");
      disturbances += 1;
      return proxy.said().includes("another program repeatedly changes the proxy's nftables");
    },
    { everyMs: 100 },
  );
  assert.match(await cluster.metrics(), /^kubeproxy_nftables_contested 1$/m);
  const repairs = Number(/^kubeproxy_drift_repairs_total (\d+)$/m.exec(await cluster.metrics())?.[1]);
  assert.ok(repairs < disturbances, `${repairs} repairs after ${disturbances} disturbances`);
  assert.equal(proxy.said().match(/another program repeatedly changes/g)?.length, 1);
  await cluster.untilReached();
  await stopProxy(proxy);
});

test("service-proxy: two proxies on one table detect each other, slow down, and connections continue", async (t) => {
  const proxies = [cluster.startProxy(), cluster.startProxy("--healthz-bind-address=", "--metrics-bind-address=")];
  t.after(() => proxies.map((proxy) => proxy.child.kill("SIGKILL")));
  await cluster.untilReached();
  const told = (proxy: Running): number => proxy.said().match(/another program repeatedly changes/g)?.length ?? 0;
  // As long as nothing changes they write nothing: a table that is right is right for both.
  let changes = 0;
  await until(
    "both have noticed",
    async () => {
      changes += 1;
      await cluster.setEndpoints((all) => all.slice(0, 1 + (changes % 3)));
      return proxies.every((proxy) => told(proxy) > 0);
    },
    { everyMs: 500, seen: () => proxies.map((proxy) => proxy.said()).join("\n--\n") },
  );
  await cluster.setEndpoints((all) => all.slice(0, 2));
  await until("a change is in the kernel", () =>
    cluster.nft("list", "map", "ip", "kube-proxy", "service-ips").includes("goto lb-2"),
  );
  for (const family of FAMILIES) assert.equal(await cluster.reach(family), "delivered");
  assert.deepEqual(proxies.map(told), [1, 1]);
  await Promise.all(proxies.map((proxy) => stopProxy(proxy)));
});

/** Returns true if the table of a family is ours alone. */
function isOurs(family: IpFamily): boolean {
  const ip = family === 4 ? "ip" : "ip6";
  const tables = cluster.nft("list", "tables", ip);
  return !tables.includes("takeover") && cluster.nft("list", "chains", ip).includes("isthmus-complete");
}
