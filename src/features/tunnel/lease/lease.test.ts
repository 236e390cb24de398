import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { ConfigError } from "#base/config";
import { Health } from "#base/health";
import { nullLogger } from "#base/log";
import { isKubeError, KubeClient, type Lease, resources, staticConnection } from "#kube/client";
import { type FaultRule, startApiServer } from "#lab/api-server";
import { until } from "#test/lab";
import { LeaseCollector } from "./lease-collector.ts";
import { LeaseCounter } from "./lease-counter.ts";
import type { LeaseRequest } from "./metrics.ts";
import { LEASE_DURATION_MS, leaseName, parseLabels, selectorOf, validUntil } from "./names.ts";
import { ServerLease } from "./server-lease.ts";

const NAMESPACE = "kube-system";
const LABELS = { "k8s-app": "konnectivity-server" };
const options = { signal: AbortSignal.timeout(60_000) };

async function kube(t: TestContext) {
  const server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock });
  const api = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  t.after(async () => {
    await api.close();
    await server.stop();
  });
  const get = (id: string): Promise<Lease> =>
    api.get(resources.leases, { namespace: NAMESPACE, name: leaseName(id) }, options);
  const fault = (verb: string, status: 409 | 500): (() => void) => {
    const rule: FaultRule = { match: { verb, resource: "leases" }, action: { status } };
    server.faults.add(rule);
    return () => server.faults.clear();
  };
  return { api, get, fault };
}

/** A Lease that was renewed so long ago. */
async function lease(api: KubeClient, clock: FakeClock, id: string, renewedAgoMs: number): Promise<void> {
  await api.create(
    resources.leases,
    {
      metadata: { name: leaseName(id), namespace: NAMESPACE, labels: LABELS },
      spec: {
        holderIdentity: id,
        leaseDurationSeconds: 30,
        renewTime: new Date(clock.now() - renewedAgoMs).toISOString().replace("Z", "000Z"),
      },
    },
    options,
  );
}

/** Renews it as its server would. */
async function renew(api: KubeClient, clock: FakeClock, id: string): Promise<void> {
  const renewTime = new Date(clock.now()).toISOString().replace("Z", "000Z");
  const renewal = { type: "merge", body: { spec: { renewTime } } } as const;
  await api.patch(resources.leases, { namespace: NAMESPACE, name: leaseName(id) }, renewal, options);
}

test("validUntil: renewTime, else acquireTime, plus the duration; undefined for a Lease without them", () => {
  const at = (second: number): string => new Date(second * 1000).toISOString().replace("Z", "000Z");
  const cases = [
    [{ renewTime: at(10), acquireTime: at(1), leaseDurationSeconds: 30 }, 40_000],
    [{ acquireTime: at(1), leaseDurationSeconds: 30 }, 31_000],
    [{ renewTime: at(10) }, undefined],
    [{ leaseDurationSeconds: 30 }, undefined],
    [{ renewTime: "yesterday", leaseDurationSeconds: 30 }, undefined],
  ] as const;
  for (const [spec, expected] of cases) assert.equal(validUntil({ spec }), expected, JSON.stringify(spec));
  assert.equal(validUntil({}), undefined);
});

test("parseLabels: key=value pairs, which selectorOf joins again", () => {
  assert.deepEqual(parseLabels("k8s-app=konnectivity-server"), LABELS);
  const two = { "example.com/tier": "", b: "2" };
  assert.deepEqual(parseLabels("example.com/tier=,b=2"), two);
  assert.equal(selectorOf(two), "example.com/tier=,b=2");
  for (const text of ["", "a", "=b", "a=b=c", "a=b,", "-a=b", "a=b c", "a/b/c=d"]) {
    assert.throws(() => parseLabels(text), { name: "ConfigError", message: /is not a label/ }, text);
  }
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        parseLabels(text);
      } catch (error) {
        assert.ok(error instanceof ConfigError, String(error));
      }
    }),
  );
});

test("leaseName: refuses ids that cannot be part of a name", () => {
  assert.equal(leaseName("a-1.b"), "konnectivity-proxy-server-a-1.b");
  for (const id of ["", "A", "a_b", "a/b", "a-", "x".repeat(300)]) {
    assert.throws(() => leaseName(id), { name: "ConfigError", message: /cannot be part of the name of a Lease/ }, id);
  }
});

test("ServerLease: creates the Lease, renews it, creates it again after a deletion, and removes it", async (t) => {
  const { api, get } = await kube(t);
  const clock = new FakeClock();
  const own = new ServerLease(
    { api, clock, log: nullLogger, health: new Health().part("lease") },
    { serverID: "a", namespace: NAMESPACE, labels: LABELS },
  );
  const controller = new AbortController();
  const running = own.run(controller);
  const renewed = async (): Promise<number> => Date.parse((await get("a")).spec?.renewTime ?? "");
  const exists = async (): Promise<boolean> => {
    try {
      return (await renewed()) === clock.now();
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      throw error;
    }
  };
  await until("it is there", exists);
  const { spec, metadata } = await get("a");
  assert.deepEqual([spec?.holderIdentity, spec?.leaseDurationSeconds, metadata.labels], ["a", 30, LABELS]);
  const acquired = spec?.acquireTime;
  await until("it waits", () => clock.pending > 0);
  await clock.advance(15_000);
  await until("it is renewed", exists);
  assert.equal((await get("a")).spec?.acquireTime, acquired);
  await api.delete(resources.leases, { namespace: NAMESPACE, name: leaseName("a") }, options);
  await until("it waits", () => clock.pending > 0);
  await clock.advance(15_000);
  await until("it is there again", exists);
  controller.abort();
  await running;
  await own.remove(options);
  await assert.rejects(get("a"), { code: "not-found" });
  await own.remove(options);
});

test("ServerLease: failures of the API are tried again sooner than the next renewal", async (t) => {
  const { api, get, fault } = await kube(t);
  const clock = new FakeClock();
  const heal = fault("create", 500);
  const warnings: string[] = [];
  const log = { ...nullLogger, warn: (message: string) => void warnings.push(message) };
  const health = new Health();
  const lease = health.part("lease");
  const own = new ServerLease(
    { api, clock, log, health: lease },
    { serverID: "a", namespace: NAMESPACE, labels: LABELS },
  );
  const controller = new AbortController();
  const running = own.run(controller);
  await until("it has failed", () => warnings.length === 1 && clock.pending > 0);
  assert.equal(health.unready.length, 1);
  heal();
  await clock.advance(1500);
  await until("it is there", () =>
    get("a").then(
      () => true,
      () => false,
    ),
  );
  controller.abort();
  await running;
});

test("LeaseCollector: deletes expired Leases of the label, never its own, and counts what it did", async (t) => {
  const { api, get, fault } = await kube(t);
  const clock = new FakeClock();
  for (const [id, ago] of [
    ["own", 99_000],
    ["dead", 30_000],
    ["alive", 29_999],
  ] as const) {
    await lease(api, clock, id, ago);
  }
  const calls: string[] = [];
  const note =
    (what: string) =>
    ({ code, reason }: Omit<LeaseRequest, "seconds">): void =>
      void calls.push(`${what} ${code} ${reason}`.trim());
  const deps = {
    api,
    clock,
    log: nullLogger,
    metrics: { listed: note("list"), deleted: note("delete"), culled: () => void calls.push("culled") },
  };
  const where = { serverID: "own", namespace: NAMESPACE, labels: LABELS };
  await new LeaseCollector(deps, { ...where, labels: { other: "label" } }).collectOnce(options);
  assert.deepEqual(calls.splice(0), ["list 200"]);
  const collector = new LeaseCollector(deps, where);
  await collector.collectOnce(options);
  assert.deepEqual(calls.splice(0), ["list 200"], "it has not looked on for as long as a Lease lasts");
  await clock.advance(LEASE_DURATION_MS);
  // Renewed in time.
  await renew(api, clock, "alive");
  const heal = fault("delete", 409);
  await collector.collectOnce(options);
  assert.deepEqual(calls.splice(0), ["list 200", "delete 409 Conflict"]);
  heal();
  await collector.collectOnce(options);
  assert.deepEqual(calls.splice(0), ["list 200", "delete 200", "culled"]);
  await assert.rejects(get("dead"), { code: "not-found" });
  for (const id of ["own", "alive"]) assert.equal((await get(id)).spec?.holderIdentity, id);
  fault("list", 500);
  await collector.collectOnce(options);
  assert.deepEqual(calls, ["list 500 InternalError"]);
});

test("LeaseCollector, ServerLease: clocks that jump or differ by an hour delete no live server's Lease", async (t) => {
  const { api, get } = await kube(t);
  // Their monotonic clocks agree, their wall clocks do not.
  const [ahead, right] = [new FakeClock(), new FakeClock()];
  const noMetrics = { listed: () => undefined, deleted: () => undefined, culled: () => undefined };
  const collector = new LeaseCollector(
    { api, clock: ahead, log: nullLogger, metrics: noMetrics },
    { serverID: "collector", namespace: NAMESPACE, labels: LABELS },
  );
  const living = new ServerLease(
    { api, clock: right, log: nullLogger, health: new Health().part("lease") },
    { serverID: "living", namespace: NAMESPACE, labels: LABELS },
  );
  const stop = new AbortController();
  const running = living.run(stop);
  const version = async (): Promise<string | undefined> =>
    get("living").then(
      ({ metadata }) => metadata.resourceVersion,
      () => undefined,
    );
  await until("its Lease is there", async () => (await version()) !== undefined && right.pending > 0);
  const { uid } = (await get("living")).metadata;
  for (const jumpMs of [0, 3_600_000, 0, -7_200_000, 3_600_000, 0, 0, 0]) {
    ahead.jumpWall(jumpMs);
    const before = await version();
    await Promise.all([ahead.advance(15_000), right.advance(15_000)]);
    await until("it is renewed", async () => (await version()) !== before && right.pending > 0);
    await collector.collectOnce(options);
  }
  assert.equal((await get("living")).metadata.uid, uid, "it was never deleted and made again");

  // It has ended. The collector detects this with a right clock and with a wrong one.
  stop.abort();
  await running;
  ahead.jumpWall(7_200_000);
  for (let pass = 0; pass < 3; pass += 1) {
    await ahead.advance(15_000);
    await collector.collectOnce(options);
  }
  await assert.rejects(get("living"), { code: "not-found" });
});

/** A counter whose metrics and changes nobody looks at. */
function quietCounter(api: KubeClient, clock: FakeClock): LeaseCounter {
  const ignored = { listed: () => undefined, watched: () => undefined };
  return new LeaseCounter(
    {
      ...{ api, clock, log: nullLogger, metrics: ignored, onChange: () => undefined },
      health: new Health().part("leases"),
    },
    { namespace: NAMESPACE, labelSelector: "k8s-app=konnectivity-server" },
  );
}

test("LeaseCounter: a clock that jumps leaves the count as it was, or as high", async (t) => {
  const { api } = await kube(t);
  const clock = new FakeClock();
  const counter = quietCounter(api, clock);
  const controller = new AbortController();
  const running = counter.run(controller);
  for (const id of ["a", "b", "c"]) await lease(api, clock, id, 0);
  await until("all count", () => counter.count === 3);
  for (const jumpMs of [3_600_000, -7_200_000, 86_400_000, -86_400_000]) {
    clock.jumpWall(jumpMs);
    assert.equal(counter.count, 3, `after a jump by ${jumpMs} ms`);
  }
  controller.abort();
  await running;
});

test("LeaseCounter: an API server that is not heard of ends no Lease", async (t) => {
  const { api } = await kube(t);
  const clock = new FakeClock();
  const counter = quietCounter(api, clock);
  const controller = new AbortController();
  const running = counter.run(controller);
  // Three servers, each of which renews its Lease every 15 s.
  for (const id of ["a", "b", "c"]) {
    await lease(api, clock, id, 0);
    await until(`${id} counts`, () => counter.count === ["a", "b", "c"].indexOf(id) + 1);
    await clock.advance(5000);
  }
  // Nothing comes from here on, as where all packets are dropped.
  for (let seconds = 0; seconds < 120; seconds += 5) {
    await clock.advance(5000);
    assert.equal(counter.count, 3, `after ${seconds} s`);
  }
  controller.abort();
  await running;
});

test("LeaseCounter: counts valid Leases as they come, expire and go; with none it keeps the last count", async (t) => {
  const { api } = await kube(t);
  const clock = new FakeClock();
  let changes = 0;
  const calls: string[] = [];
  const counter = new LeaseCounter(
    {
      api,
      clock,
      log: nullLogger,
      health: new Health().part("leases"),
      metrics: {
        listed: ({ code }) => void calls.push(`list ${code}`),
        watched: ({ code }) => void calls.push(`watch ${code}`),
      },
      onChange: () => {
        changes += 1;
      },
    },
    { namespace: NAMESPACE, labelSelector: "k8s-app in (konnectivity-server)" },
  );
  assert.equal(counter.count, undefined);
  const controller = new AbortController();
  const running = counter.run(controller);
  await until("it watches", () => calls.includes("watch 200"));
  assert.equal(counter.count, undefined, "there never was one");
  await lease(api, clock, "a", 0);
  await lease(api, clock, "b", 10_000);
  await until("both count", () => counter.count === 2);
  assert.equal(changes, 2);
  await clock.advance(20_000);
  assert.equal(counter.count, 2, "nothing was heard since");
  await renew(api, clock, "a");
  await until("b has expired", () => counter.count === 1);
  assert.equal(changes, 3);
  await clock.advance(40_000);
  assert.equal(counter.count, 1, "a has expired too, but one was the last good count");
  await renew(api, clock, "a");
  await lease(api, clock, "c", 0);
  await until("both count", () => counter.count === 2);
  assert.equal(changes, 4, "a renewal is nothing new");
  await api.delete(resources.leases, { namespace: NAMESPACE, name: leaseName("c") }, options);
  await until("one is left", () => counter.count === 1);
  assert.deepEqual(calls.slice(0, 2), ["list 200", "watch 200"]);
  controller.abort();
  await running;
});
