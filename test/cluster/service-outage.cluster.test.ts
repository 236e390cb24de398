// quiet: it measures time, and uses little of the processor
/** The shipped program and an API server that is away for longer than any back-off lasts (docs/spec/service-proxy.md#3.2: H7). */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { IpAddress, IpFamily } from "#base/ip";
import { type Running, until } from "#test/lab";
import { NODE_PORT, type ServiceBed } from "#test/service-bed";
import { askHealthPort, openServiceBed, setSlice, stop, untilHealthy } from "#test/service-objects";
import { TcpGate } from "#test/tcp-gate";
import { addressesOf, SERVICE_PORT } from "../../src/features/service-proxy/testing/fixture.ts";
import { endpointObject } from "../../src/features/service-proxy/testing/objects.ts";

const FAMILIES = [4, 6] as const;
const AWAY_MS = process.env["ISTHMUS_SOAK"] === "full" ? 40_000 : 12_000;
const BUDGET_MS = 1500;

let cluster: ServiceBed;
let gate: TcpGate;
let kubeconfig: string;
let more: Record<IpFamily, readonly IpAddress[]>;
before(async () => {
  cluster = await openServiceBed(`isp-out-${process.pid}`);
  more = { 4: await cluster.bed.serveMore(4, 2), 6: await cluster.bed.serveMore(6, 2) };
  const behind = /127\.0\.0\.1:(\d+)/.exec(cluster.server.kubeconfig())?.[1];
  gate = await TcpGate.open({ host: "127.0.0.1", port: Number(behind) });
  kubeconfig = join(cluster.folder, "gate");
  writeFileSync(kubeconfig, cluster.server.kubeconfig().replace(/127\.0\.0\.1:\d+/, `127.0.0.1:${gate.port}`));
});
after(async () => {
  await gate[Symbol.asyncDispose]();
  await cluster[Symbol.asyncDispose]();
});

/** The one endpoint, in both families. */
async function choose(at: number): Promise<void> {
  for (const family of FAMILIES) {
    const address = more[family][at];
    if (address !== undefined) await setSlice(cluster, family, [endpointObject(address, "elsewhere")]);
  }
}

async function answers(at: number, deadlineMs: number): Promise<void> {
  const isSo = async (family: IpFamily): Promise<boolean> => {
    const reached = await cluster.bed.connect("external", addressesOf(family).clusterIP, SERVICE_PORT);
    return reached.kind === "delivered" && reached.by.startsWith(`${more[family][at]} `);
  };
  const areAll = async (): Promise<boolean> => (await Promise.all(FAMILIES.map(isSo))).every(Boolean);
  await until(`endpoint ${at} answers`, areAll, { deadlineMs, everyMs: 20 });
}

function startProxy(t: { after(cleanUp: () => unknown): void }, ...flags: string[]): Running {
  const proxy = cluster.startProxyWith([`--kubeconfig=${kubeconfig}`, "--min-sync-period=0s", ...flags]);
  t.after(() => proxy.child.kill("SIGKILL"));
  return proxy;
}

test("API server: after a long outage changes from it are in force within 1.5 s of its return, without a list", async (t) => {
  await choose(0);
  const proxy = startProxy(t);
  await untilHealthy(cluster, proxy);
  await answers(0, 5000);
  await gate.shut();
  await choose(1);
  const awayUntil = performance.now() + AWAY_MS;
  while (performance.now() < awayUntil) {
    await answers(0, 1000);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const lists = cluster.server.faults.add({
    match: { verb: "list", userAgent: "service-proxy" },
    action: { latencyMs: 1 },
  });
  t.after(() => cluster.server.faults.clear());
  await gate.reopen();
  const returnedAt = performance.now();
  await answers(1, BUDGET_MS);
  t.diagnostic(`away for ${AWAY_MS} ms: in force after ${(performance.now() - returnedAt).toFixed(0)} ms`);
  assert.equal(cluster.server.faults.list().find(({ id }) => id === lists)?.hits, 0);
  await stop(proxy);
});

test("a start without the API server: NodePorts work if Services are read before the Node, and changes wait for it", async (t) => {
  await choose(0);
  const first = startProxy(t);
  await untilHealthy(cluster, first);
  await answers(0, 5000);
  await gate.shut();
  first.child.kill("SIGKILL");
  await first.ended;
  const second = startProxy(t);
  await untilHealthy(cluster, second);
  await choose(1);
  // The Node is known 3 s after all else.
  const { faults } = cluster.server;
  const match = { resource: "nodes", userAgent: "service-proxy" } as const;
  faults.add({ match, action: { latencyMs: 3000 } });
  t.after(() => faults.clear());
  await gate.reopen();
  const failed: string[] = [];
  const answered = new Set<string>();
  let connects = 0;
  const connectAll = async (family: IpFamily): Promise<void> => {
    const reached = await cluster.bed.connect("external", addressesOf(family).node, NODE_PORT, {
      droppedMs: 900,
      reset: true,
    });
    connects += 1;
    if (reached.kind !== "delivered") failed.push(`IPv${family} ${reached.kind}`);
    else answered.add(reached.by.split(" ")[0] ?? "");
  };
  const wanted = FAMILIES.map((family) => String(more[family][1]));
  const areNew = (): boolean => wanted.every((address) => answered.has(address));
  const startedAt = performance.now();
  while (!areNew() && performance.now() - startedAt < 20_000) await Promise.all(FAMILIES.map(connectAll));
  for (let round = 0; round < 200; round += 1) await Promise.all(FAMILIES.map(connectAll));
  assert.deepEqual(failed, []);
  assert.ok(areNew(), "the change is in force");
  assert.ok(connects > 500, `${connects}`);
  await stop(second);
});

test("/readyz: 503 with a line for each unreadable resource while the API server is down, 200 when it is back", async (t) => {
  const proxy = startProxy(t);
  await untilHealthy(cluster, proxy);
  const ask = (): Promise<{ readonly status: number; readonly body: string }> => askHealthPort(cluster, "/readyz");
  await until("it is ready", async () => (await ask()).status === 200, { seen: proxy.said });
  await gate.shut();
  await until("it is not", async () => {
    const { status, body } = await ask();
    return (
      status === 503 && /^-?\[-\]watch services degraded .*ECONN/m.test(body) && body.includes("[+]nftables IPv4 ok")
    );
  });
  await gate.reopen();
  await until("it is again", async () => (await ask()).status === 200, { deadlineMs: 5000 });
  await stop(proxy);
});
