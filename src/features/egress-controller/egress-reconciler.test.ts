import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Cidr } from "#base/ip";
import { nullLogger } from "#base/log";
import { type KubeApi, KubeError } from "#kube/client";
import { type AddressPool, type Egress, egressLabels, egressPoolName } from "#kube/coil";
import { EgressReconciler } from "./egress-reconciler.ts";

const EGRESS = {
  metadata: { name: "nat", namespace: "internet", uid: "u", resourceVersion: "1" },
  spec: {
    destinations: ["192.0.2.0/24"],
    podDisruptionBudget: { maxUnavailable: 1 },
    template: { spec: { containers: [{ name: "egress" }] } },
  },
} as unknown as Egress;
const SETTINGS = {
  image: "i",
  backend: "nftables",
  tunnelDriver: "vxlan",
  port: 5555,
  inCluster: [],
  metricsFrom: [],
} as const;

/** A reconciler whose API server answers only when it is told, and the requests that wait for an answer. */
function open(hasAccount: boolean) {
  const waiting: { readonly text: string; readonly answer: () => void }[] = [];
  const method =
    (verb: string) =>
    (type: { readonly kind: string }, ...rest: readonly unknown[]): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const { body } = (rest[1] ?? {}) as { readonly body?: object };
        const answer = (): void =>
          verb === "get" ? reject(new KubeError("not-found", "it is not there")) : resolve({ metadata: {}, ...body });
        waiting.push({ text: `${verb} ${type.kind}`, answer });
      });
  const api = { get: method("get"), patch: method("patch"), create: method("create") } as unknown as KubeApi;
  const caches = {
    egress: () => EGRESS,
    deployment: () => undefined,
    service: () => undefined,
    budget: () => undefined,
    pool: () => undefined,
    account: () => (hasAccount ? ({ metadata: { name: "coil-egress" } } as never) : undefined),
    clients: () => undefined,
  };
  const reconciler = new EgressReconciler({
    api,
    caches,
    router: async () => SETTINGS,
    addressRanges: [],
    log: nullLogger,
  });
  /** Lets all requests be answered that wait now; returns them. */
  const answerAll = async (): Promise<readonly string[]> => {
    await setImmediate();
    const now = waiting.splice(0);
    for (const { answer } of now) answer();
    await setImmediate();
    return now.map(({ text }) => text).sort();
  };
  return { reconciler, answerAll };
}

test("EgressReconciler: the objects of a new Egress take two answers of the API server, and its namespace's account one before", async () => {
  const { reconciler, answerAll } = open(false);
  const done = reconciler.reconcile("internet/nat", { signal: new AbortController().signal });
  assert.deepEqual(await answerAll(), ["create ServiceAccount"]);
  assert.deepEqual(await answerAll(), ["get Deployment", "get PodDisruptionBudget", "get Service", "patch Egress"]);
  assert.deepEqual(await answerAll(), ["patch Deployment", "patch PodDisruptionBudget", "patch Service"]);
  await done;
});

test("EgressReconciler: an Egress of a namespace that has one already takes two answers", async () => {
  const { reconciler, answerAll } = open(true);
  const done = reconciler.reconcile("internet/nat", { signal: new AbortController().signal });
  const all = [await answerAll(), await answerAll()];
  await done;
  assert.deepEqual(
    all.map(({ length }) => length),
    [4, 3],
  );
});

/** A reconciler of one Egress, whose writes are noted, and the pool that is stored. */
function withPool(
  spec: object,
  pool: object | undefined,
  ranges: readonly string[] = ["203.0.113.0/24"],
  deploymentRefusal?: string,
) {
  const writes: string[] = [];
  const egress = { ...EGRESS, spec: { ...EGRESS.spec, ...spec } } as Egress;
  const note =
    (verb: string) => async (type: { readonly kind: string }, ref: { readonly name: string }, patch?: object) => {
      writes.push(`${verb} ${type.kind} ${ref.name}`);
      if (type.kind === "Deployment" && deploymentRefusal !== undefined)
        throw new KubeError("server", deploymentRefusal, { httpStatus: 500 });
      return { metadata: {}, ...(patch as { readonly body?: object } | undefined)?.body };
    };
  const get = async (type: { readonly kind: string }) => {
    if (type.kind === "AddressPool" && pool !== undefined) return pool;
    throw new KubeError("not-found", "it is not there");
  };
  const api = { get, patch: note("patch"), create: note("create"), delete: note("delete") } as unknown as KubeApi;
  const reconciler = new EgressReconciler({
    api,
    caches: {
      egress: (key: string) => (key === "internet/nat" ? egress : undefined),
      deployment: () => undefined,
      service: () => undefined,
      budget: () => undefined,
      pool: () =>
        (pool as { readonly isSeen?: boolean } | undefined)?.isSeen === true ? (pool as AddressPool) : undefined,
      account: () => ({ metadata: { name: "coil-egress" } }) as never,
      clients: () => undefined,
    },
    router: async () => SETTINGS,
    addressRanges: ranges.map((text) => Cidr.parse(text)),
    log: nullLogger,
  });
  const run = (key = "internet/nat") => reconciler.reconcile(key, { signal: new AbortController().signal });
  return { writes, run, pools: () => writes.filter((text) => text.includes("AddressPool")) };
}

const ADDRESSES = { addresses: [{ ipv4: "203.0.113.8/32" }] };
const NAME = egressPoolName({ namespace: "internet", name: "nat" });
const OWN = {
  metadata: {
    name: NAME,
    uid: "p",
    labels: { ...egressLabels("nat"), "coil.cybozu.com/egress-namespace": "internet" },
  },
  spec: { blockSizeBits: 0, subnets: ADDRESSES.addresses },
  isSeen: true,
};

test("EgressReconciler: addresses become a pool, once; without them, or without the Egress, it is deleted", async () => {
  const made = withPool(ADDRESSES, undefined);
  await made.run();
  assert.deepEqual(made.pools(), [`patch AddressPool ${NAME}`]);
  const removed = withPool({}, OWN);
  await removed.run();
  assert.deepEqual(removed.pools(), [`delete AddressPool ${NAME}`]);
  const gone = withPool({}, OWN);
  await gone.run("internet/gone");
  assert.deepEqual(gone.writes, [`delete AddressPool ${NAME}`]);
  const leaving = withPool({}, { ...OWN, metadata: { ...OWN.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } });
  await leaving.run();
  assert.deepEqual(leaving.pools(), []);
});

for (const [what, ranges] of [
  ["another range", ["198.51.100.0/24"]],
  ["no range any more", []],
] as const) {
  test(`EgressReconciler: with ${what} the pool that routers have addresses of stays as it is, and the Egress is told`, async () => {
    const { run, pools, writes } = withPool(ADDRESSES, OWN, ranges);
    await assert.rejects(run(), { code: "invalid" });
    assert.deepEqual(pools(), []);
    assert.ok(writes.includes("patch Deployment nat"), writes.join());
  });
}

test("EgressReconciler: a template that the API server cannot apply is told as such, and costs the Egress nothing else", async () => {
  const refusal =
    'failed to create typed patch object (internet/nat; apps/v1, Kind=Deployment): .spec.template.spec.containers[name="s"].ports: duplicate entries for key [containerPort=80,protocol="TCP"]';
  const { run, writes } = withPool({}, undefined, [], refusal);
  await assert.rejects(run(), {
    code: "invalid",
    message:
      /^Egress internet\/nat cannot have its Deployment: .*ports: duplicate entries .*; take out repeated entries/,
  });
  assert.ok(writes.includes("patch Service nat"), writes.join());
});

for (const [what, spec, pool, ranges, code, message] of [
  [
    "outside of the ranges",
    { addresses: [{ ipv4: "198.51.100.1/32" }] },
    undefined,
    undefined,
    "invalid",
    /spec\.addresses\[0\]\.ipv4: .*not inside a range/,
  ],
  ["without a range", ADDRESSES, undefined, [], "invalid", /without --egress-address-range/],
  [
    "whose pool is somebody else's",
    ADDRESSES,
    { metadata: { name: NAME } },
    undefined,
    "taken",
    /AddressPool: egress-\w+ is not of it/,
  ],
  [
    "whose former pool is not gone",
    ADDRESSES,
    { ...OWN, metadata: { ...OWN.metadata, deletionTimestamp: "x" } },
    undefined,
    "leaving",
    /ends with the last pod/,
  ],
] as const) {
  test(`EgressReconciler: addresses ${what} make no pool, are named, and cost the Egress nothing else`, async () => {
    const { run, pools, writes } = withPool(spec, pool, ranges);
    await assert.rejects(run(), { code, message });
    assert.deepEqual(pools(), []);
    assert.ok(writes.includes("patch Deployment nat"), writes.join());
  });
}

test("EgressReconciler: an Egress without a spec is refused, and nothing is written", async () => {
  const { metadata } = EGRESS;
  const nothing = () => assert.fail("a request");
  const reconciler = new EgressReconciler({
    api: { get: nothing, patch: nothing, create: nothing, delete: nothing } as unknown as KubeApi,
    caches: {
      egress: () => ({ metadata }) as Egress,
      deployment: () => undefined,
      service: () => undefined,
      budget: () => undefined,
      pool: () => undefined,
      account: () => undefined,
      clients: () => undefined,
    },
    router: async () => SETTINGS,
    addressRanges: [],
    log: nullLogger,
  });
  await assert.rejects(reconciler.reconcile("internet/nat", { signal: new AbortController().signal }), {
    name: "EgressError",
    code: "invalid",
    message: /Egress internet\/nat cannot be had: spec: /,
  });
});
