/** Changes by operators and other programs to nftables on a node, and to the ranges of Services, beside the shipped program. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { after, before, type TestContext, test } from "node:test";
import { type Running, until } from "#test/lab";
import { DualStackBed, stopProxy } from "#test/service-dual-stack";
import { serviceCIDRs } from "../../src/features/service-proxy/inputs/index.ts";

const TABLE = "kube-proxy";

let cluster: DualStackBed;
before(async () => {
  cluster = await DualStackBed.open(`isp-att-${process.pid}`);
});
after(() => cluster[Symbol.asyncDispose]());

function started(t: TestContext, ...flags: string[]): Running {
  const proxy = cluster.startProxy(...flags);
  t.after(() => proxy.child.kill("SIGKILL"));
  return proxy;
}

/** A program that holds a table which nobody else may change, for as long as it runs. */
async function owning(t: TestContext): Promise<ChildProcess> {
  const owner = spawn("ip", ["netns", "exec", cluster.inner.netnsName("node"), "nft", "-i"], {
    stdio: ["pipe", "ignore", "ignore"],
  });
  t.after(() => owner.kill("SIGKILL"));
  owner.stdin?.write(`add table ip ${TABLE} { flags owner; }\nadd chain ip ${TABLE} theirs\n`);
  await until("the table is owned", () => cluster.nft("list", "tables").includes(`table ip ${TABLE}`));
  return owner;
}

test("service-proxy: a table that another program owns is reported, a replacement table serves, --cleanup removes the rest, and the table is ours when that program ends", async (t) => {
  const owner = await owning(t);
  const proxy = started(t);
  await until("it is logged", () =>
    /Cannot change table ip kube-proxy: another program owns it; stop that/.test(proxy.said()),
  );
  // Through the replacement table, which needs nothing of the owned one.
  await cluster.untilReached();
  await stopProxy(proxy);
  const cleanup = cluster.inner.startProxyWith(["--cleanup"]);
  assert.equal((await cleanup.ended).code, 1);
  assert.match(cleanup.said(), /cannot remove a table table=ip kube-proxy error=Cannot change table ip kube-proxy/);
  assert.equal(cluster.nft("list", "tables").trim(), `table ip ${TABLE}`);
  const next = started(t);
  await cluster.untilReached();
  owner.kill("SIGKILL");
  await until("the table is ours", () => {
    const tables = cluster.nft("list", "tables", "ip");
    return !tables.includes("takeover") && cluster.nft("list", "chains", "ip").includes("isthmus-complete");
  });
  await cluster.untilReached();
  await stopProxy(next);
});

test("service-proxy: overlapping ServiceCIDRs, as when a range is widened, stop no sync", async (t) => {
  const proxy = started(t);
  await cluster.untilReached();
  const ranges = [["172.30.0.0/16"], ["172.30.4.0/24", "fd00:10:172::/64"], ["172.24.0.0/13", "fd00:10:172::/48"]];
  for (const [at, cidrs] of ranges.entries())
    await cluster.inner.client.create(serviceCIDRs, { metadata: { name: `range-${at}` }, spec: { cidrs } });
  await until("the widest is in the kernel", () =>
    cluster.nft("list", "set", "ip", TABLE, "service-cidrs").includes("172.24.0.0/13"),
  );
  await cluster.setEndpoints((all) => all.slice(0, 3));
  await until("changes go on", () => cluster.nft("list", "map", "ip", TABLE, "service-ips").includes("goto lb-3"));
  await cluster.untilReached();
  assert.doesNotMatch(proxy.said(), /sync failed/);
  await stopProxy(proxy);
});
