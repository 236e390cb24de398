/** Pools that the IPAM controller carves: no two blocks share an address, and a pool outlives its blocks. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr } from "#base/ip";
import { nullLogger } from "#base/log";
import { BlockRequestReconciler, PoolManager, reconcilePool } from "#features/ipam";
import {
  findObject,
  type KubeApi,
  type KubeClient,
  KubeError,
  type KubeObject,
  type ListOptions,
  type ResourceType,
} from "#kube/client";
import { COIL_FINALIZER, coilResources } from "#kube/coil";
import { conditionsOf, IpamWorld, NO_FAULTS, persist } from "#test/ipam-world";

const { addressBlocks, addressPools, blockRequests } = coilResources;
const log = nullLogger;
const options = { signal: AbortSignal.timeout(300_000) };
const world = await IpamWorld.open(options);
after(() => world[Symbol.asyncDispose]());

test("pool: blocks that another made are stepped over, and two controllers at once make no block twice", async (t) => {
  const subnets = [{ ipv4: "10.2.0.0/28" }];
  const { pool, pools, nodeOf, blocks } = await world.scene(t, { blockSizeBits: 0, subnets });
  await pools.sync(pool, options);
  const other = new PoolManager({ api: world.client, log, clock: systemClock }, { allocation: "first-fit" });
  const first = await other.carve(pool, nodeOf("b"), "other", options);
  assert.equal(first.kind, "block");
  // The first manager's index is stale now; both go on at once.
  const carved = await Promise.all(
    Array.from({ length: 14 }, (_, at) => (at % 2 === 0 ? pools : other).carve(pool, nodeOf("a"), `r${at}`, options)),
  );
  assert.deepEqual([...new Set(carved.map(({ kind }) => kind))], ["block"]);
  assert.deepEqual(
    (await blocks()).map(({ index }) => index),
    Array.from({ length: 15 }, (_, index) => index),
  );
  assert.equal((await pools.carve(pool, nodeOf("a"), "last", options)).kind, "block");
  assert.equal((await other.carve(pool, nodeOf("a"), "none", options)).kind, "exhausted");
});

test("pool: no block overlaps one of another pool, however many are carved at once, and the overlapping block is named", async (t) => {
  const wide = await world.scene(t, { blockSizeBits: 2, subnets: [{ ipv4: "10.4.0.0/27" }] });
  const narrow = await world.scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.4.0.0/27" }] });
  const { pools } = wide;
  const carved = await Promise.all(
    Array.from({ length: 40 }, (_, at) =>
      at % 4 === 0
        ? pools.carve(wide.pool, wide.nodeOf("a"), `w${at}`, options)
        : pools.carve(narrow.pool, narrow.nodeOf("a"), `n${at}`, options),
    ),
  );
  const all = [...(await wide.blocks()), ...(await narrow.blocks())].map(({ ipv4 = "" }) => Cidr.parse(ipv4));
  for (const [at, one] of all.entries()) {
    assert.deepEqual(
      all.slice(at + 1).filter((other) => other.overlaps(one)),
      [],
    );
  }
  assert.equal(carved.filter(({ kind }) => kind === "block").length, all.length);
  assert.equal(
    all.reduce((sum, cidr) => sum + Number(cidr.size), 0),
    32,
    "and nothing is left unused",
  );
  const name = await wide.ask("b");
  await wide.reconciler.reconcile(name, options);
  const [, failed = ""] = conditionsOf(await world.request(name));
  assert.match(
    failed,
    /^Failed out of blocks: pool \S+ does not have free blocks: its remaining addresses overlap block \S+-pool-\d+ \(10\.4\./,
  );

  // A deleted block of the other pool frees its prefix; the memory of another controller does not matter.
  const mine = await wide.blocks();
  const theirs = await narrow.blocks();
  for (const block of theirs) {
    await world.client.replace(addressBlocks, { ...block, metadata: { ...block.metadata, finalizers: [] } }, options);
    await world.client.delete(addressBlocks, { name: block.metadata.name }, options);
  }
  await pools.sync(narrow.pool, options);
  const room = 8 - mine.length;
  for (let at = 0; at < room; at += 1) {
    assert.equal((await pools.carve(wide.pool, wide.nodeOf("b"), `again${at}`, options)).kind, "block");
  }
  assert.equal((await pools.carve(wide.pool, wide.nodeOf("b"), "full", options)).kind, "exhausted");
  const fresh = new PoolManager({ api: world.client, log, clock: systemClock }, { allocation: "first-fit" });
  assert.equal((await fresh.carve(narrow.pool, narrow.nodeOf("b"), "late", options)).kind, "exhausted");
});

test("pool: millions of blocks that another one covers are stepped over at once", { timeout: 20_000 }, async (t) => {
  const wide = await world.scene(t, { blockSizeBits: 24, subnets: [{ ipv4: "11.0.0.0/8", ipv6: "fd11::/104" }] });
  const subnets = [{ ipv4: "11.0.0.0/8" }, { ipv4: "12.0.0.0/24" }];
  const narrow = await world.scene(t, { blockSizeBits: 0, subnets });
  assert.equal((await wide.pools.carve(wide.pool, wide.nodeOf("a"), "w", options)).kind, "block");
  assert.equal((await wide.pools.carve(narrow.pool, narrow.nodeOf("a"), "n", options)).kind, "block");
  assert.deepEqual(
    (await narrow.blocks()).map(({ index, ipv4 }) => `${index} ${ipv4}`),
    [`${2 ** 24} 12.0.0.0/32`],
  );
});

test("pool: a block size that was changed under use, before the CRD forbade it, makes no block that overlaps an older one", async (t) => {
  const subnets = [{ ipv4: "10.5.0.0/28" }];
  const { pool, nodeOf, blocks, change, changeUnruled } = await world.scene(t, { blockSizeBits: 2, subnets });
  const before = new PoolManager({ api: world.client, log, clock: systemClock }, { allocation: "first-fit" });
  for (const at of [0, 1]) await before.carve(pool, nodeOf("a"), `r${at}`, options);
  await assert.rejects(change({ blockSizeBits: 1, subnets }), {
    code: "invalid",
    message: /spec\.blockSizeBits: Forbidden: unchangeable/,
  });
  await changeUnruled({ blockSizeBits: 1, subnets });
  const after = new PoolManager({ api: world.client, log, clock: systemClock }, { allocation: "first-fit" });
  for (const pools of [before, after]) await pools.carve(pool, nodeOf("b"), "more", options);
  assert.deepEqual(
    (await blocks()).map(({ index, ipv4 }) => `${index} ${ipv4}`),
    ["0 10.5.0.0/30", "1 10.5.0.4/30", "4 10.5.0.8/31", "5 10.5.0.10/31"],
  );
});

test("pool and request: without a spec, as an older schema let them be stored, they are refused and delay no other", async (t) => {
  const { pool, nodeOf } = await world.scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/29" }] });
  const lacking = `${pool}-none`;
  for (const type of [addressPools, blockRequests] as const) {
    await assert.rejects(
      world.client.create(type as ResourceType<KubeObject>, { metadata: { name: lacking } }, options),
      {
        code: "invalid",
        message: /spec/,
      },
    );
  }
  /** The API with one object as it would have been stored. */
  const api: KubeApi = Object.assign(Object.create(world.client) as KubeClient, {
    get: async (type: ResourceType<KubeObject>, ref: { readonly name: string }) => {
      if (ref.name !== lacking) return world.client.get(type, ref, options);
      return { metadata: { name: lacking, uid: "u", resourceVersion: "1" } };
    },
    listAll: (type: ResourceType<KubeObject>, list: ListOptions) => world.client.listAll(type, list),
    replaceStatus: async () => Promise.reject(new KubeError("invalid", "spec: Required value")),
  });
  const pools = new PoolManager({ api, log, clock: systemClock }, { allocation: "first-fit" });
  assert.deepEqual(await pools.carve(lacking, nodeOf("a"), "r", options), {
    kind: "invalid",
    fault: "spec: Required value: the pool's subnets",
  });
  assert.equal(await pools.sync(lacking, options), 0);
  await new BlockRequestReconciler({ api, pools, clock: systemClock, log }).reconcile(lacking, options);
});

test("pool: one that is being deleted gives no block, and goes with its last block, not before", async (t) => {
  const { pool, pools, reconciler, ask, blocks } = await world.scene(t, {
    blockSizeBits: 0,
    subnets: [{ ipv4: "10.2.0.0/29" }],
  });
  const deps = { api: world.client, pools, log };
  for (const node of ["a", "b"]) await reconciler.reconcile(await ask(node), options);
  await reconcilePool(deps, pool, options);
  await world.client.delete(addressPools, { name: pool }, options);
  const late = await ask("a", `${pool}-late`);
  await reconciler.reconcile(late, options);
  assert.deepEqual(
    conditionsOf(await world.request(late))[1],
    `Failed pool is being deleted: pool ${pool} is being deleted and gives no more blocks`,
  );
  for (const block of await blocks()) {
    await reconcilePool(deps, pool, options);
    const { metadata } = await world.client.get(addressPools, { name: pool }, options);
    assert.deepEqual(metadata.finalizers, [COIL_FINALIZER], "a pool with blocks is held");
    await world.client.replace(addressBlocks, { ...block, metadata: { ...block.metadata, finalizers: [] } }, options);
    await world.client.delete(addressBlocks, { name: block.metadata.name }, options);
  }
  if (world.server !== undefined) world.inject({ verb: "update", resource: "addresspools" }, { status: 409 });
  assert.equal(await persist(() => reconcilePool(deps, pool, options)), world.server === undefined ? 0 : 1);
  assert.equal(await findObject(world.client, addressPools, { name: pool }, options), undefined);
  await reconcilePool(deps, pool, options);
  assert.deepEqual(pools.stats, [], "a pool that is gone is forgotten");
});

test("pool: the answer to its release may be lost", { skip: NO_FAULTS }, async (t) => {
  const { pool, pools } = await world.scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/29" }] });
  await world.client.delete(addressPools, { name: pool }, options);
  world.inject({ verb: "update", resource: "addresspools" }, { cut: "lost-response" });
  assert.equal(await persist(() => reconcilePool({ api: world.client, pools, log }, pool, options)), 1);
  assert.equal(await findObject(world.client, addressPools, { name: pool }, options), undefined);
});
