import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { ConfigError } from "#base/config";
import { nullLogger } from "#base/log";
import { isKubeError, KubeClient, type Lease, resources, staticConnection } from "#kube/client";
import { type FaultRule, startApiServer } from "#lab/api-server";
import { until } from "#test/lab";
import { LeaseCounter } from "./lease-counter.ts";
import { collectOnce } from "./lease-gc.ts";
import type { LeaseRequest } from "./metrics.ts";
import { leaseName, parseLabels, selectorOf, validUntil } from "./names.ts";
import { ServerLease } from "./server-lease.ts";

const NAMESPACE = "kube-system";
const LABELS = { "k8s-app": "konnectivity-server" };
const options = { signal: AbortSignal.timeout(60_000) };

async function kube(t: TestContext) {
  const server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger });
  const api = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }));
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

test("validUntil: renewTime, else acquireTime, plus the duration; undefined for a Lease that does not say", () => {
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

test("parseLabels: key=value pairs, which selectorOf puts together again", () => {
  assert.deepEqual(parseLabels("k8s-app=konnectivity-server"), LABELS);
  const two = { "example.com/tier": "", b: "2" };
  assert.deepEqual(parseLabels("example.com/tier=,b=2"), two);
  assert.equal(selectorOf(two), "example.com/tier=,b=2");
  for (const text of ["", "a", "=b", "a=b=c", "a=b,", "-a=b", "a=b c", "a/b/c=d"]) {
    assert.throws(() => parseLabels(text), { name: "ConfigError", message: /is no label/ }, text);
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

test("ServerLease: makes the Lease, renews it, makes it again when it was deleted, and removes it", async (t) => {
  const { api, get } = await kube(t);
  const clock = new FakeClock();
  const own = new ServerLease({ api, clock, log: nullLogger }, { serverID: "a", namespace: NAMESPACE, labels: LABELS });
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
  await assert.rejects(running, { name: "AbortError" });
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
  const own = new ServerLease({ api, clock, log }, { serverID: "a", namespace: NAMESPACE, labels: LABELS });
  const controller = new AbortController();
  const running = own.run(controller);
  await until("it has failed", () => warnings.length === 1 && clock.pending > 0);
  heal();
  await clock.advance(1500);
  await until("it is there", () =>
    get("a").then(
      () => true,
      () => false,
    ),
  );
  controller.abort();
  await assert.rejects(running, { name: "AbortError" });
});

test("collectOnce: deletes expired Leases of the label, never its own, and counts what it did", async (t) => {
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
  await collectOnce(deps, { ...where, labels: { other: "label" } }, options);
  assert.deepEqual(calls.splice(0), ["list 200"]);
  const heal = fault("delete", 409);
  await collectOnce(deps, where, options);
  assert.deepEqual(calls.splice(0), ["list 200", "delete 409 Conflict"]);
  heal();
  await collectOnce(deps, where, options);
  assert.deepEqual(calls.splice(0), ["list 200", "delete 200", "culled"]);
  await assert.rejects(get("dead"), { code: "not-found" });
  for (const id of ["own", "alive"]) assert.equal((await get(id)).spec?.holderIdentity, id);
  fault("list", 500);
  await collectOnce(deps, where, options);
  assert.deepEqual(calls, ["list 500 InternalError"]);
});

test("LeaseCounter: counts valid Leases as they come, expire and go; none is no reason to forget the last count", async (t) => {
  const { api } = await kube(t);
  const clock = new FakeClock();
  let changes = 0;
  const calls: string[] = [];
  const counter = new LeaseCounter(
    {
      api,
      clock,
      log: nullLogger,
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
  assert.equal(counter.count, 1, "b has expired");
  await clock.advance(20_000);
  assert.equal(counter.count, 1, "so has a, but one was the last good count");
  const renewal = {
    type: "merge",
    body: { spec: { renewTime: new Date(clock.now()).toISOString().replace("Z", "000Z") } },
  } as const;
  await api.patch(resources.leases, { namespace: NAMESPACE, name: leaseName("a") }, renewal, options);
  await lease(api, clock, "c", 0);
  await until("both count", () => counter.count === 2);
  assert.equal(changes, 3, "a renewal is no news");
  await api.delete(resources.leases, { namespace: NAMESPACE, name: leaseName("c") }, options);
  await until("one is left", () => counter.count === 1);
  assert.deepEqual(calls.slice(0, 2), ["list 200", "watch 200"]);
  controller.abort();
  await running;
});
