/** The IPAM controller's answers to block requests: after each call that fails, and for blocks that do not exist. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { BlockRequestReconciler, KubeBlockSource, NodeIpam, PoolManager, reconcilePool } from "#features/ipam";
import { type BlockRequest, COIL_FINALIZER, coilResources, NODE_LABEL, POOL_LABEL, REQUEST_LABEL } from "#kube/coil";
import type { FaultAction, FaultMatch } from "#lab/api-server";
import { conditionsOf, FAILED, IpamWorld, NO_FAULTS, persist } from "#test/ipam-world";

const { addressBlocks, addressPools, blockRequests } = coilResources;
const log = nullLogger;
const options = { signal: AbortSignal.timeout(300_000) };
const world = await IpamWorld.open(options);
after(() => world[Symbol.asyncDispose]());

test("request: answered with the lowest free block, which bears labels, finalizer and owner", async (t) => {
  const { pool, reconciler, ask, blocks, nodeOf } = await world.scene(t, {
    blockSizeBits: 1,
    subnets: [
      { ipv4: "10.2.0.0/30", ipv6: "fd02::/126" },
      { ipv4: "10.3.0.0/30", ipv6: "fd03::/126" },
    ],
  });
  const uids: string[] = [];
  for (const [at, node] of ["a", "b", "a"].entries()) {
    const name = await ask(node, `req-${pool}-${at}`);
    await reconciler.reconcile(name, options);
    const request = await world.request(name);
    uids.push(request.metadata.uid);
    assert.equal(request.status?.addressBlockName, `${pool}-${at}`);
    assert.deepEqual(conditionsOf(request), [`Complete allocated: allocated ${pool}-${at}`]);
    assert.match(request.status?.conditions?.[0]?.lastProbeTime ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  }
  const made = await blocks();
  assert.deepEqual(
    made.map(({ metadata: { name }, index, ipv4, ipv6 }) => [name, index, ipv4, ipv6]),
    [
      [`${pool}-0`, 0, "10.2.0.0/31", "fd02::/127"],
      [`${pool}-1`, 1, "10.2.0.2/31", "fd02::2/127"],
      [`${pool}-2`, 2, "10.3.0.0/31", "fd03::/127"],
    ],
  );
  const { uid } = (await world.client.get(addressPools, { name: pool }, options)).metadata;
  const [first] = made;
  assert.deepEqual(first?.metadata.labels, {
    [POOL_LABEL]: pool,
    [NODE_LABEL]: nodeOf("a"),
    [REQUEST_LABEL]: uids[0],
  });
  assert.deepEqual(first?.metadata.finalizers, [COIL_FINALIZER]);
  assert.deepEqual(first?.metadata.ownerReferences, [
    {
      apiVersion: "coil.cybozu.com/v2",
      kind: "AddressPool",
      name: pool,
      uid,
      controller: true,
      blockOwnerDeletion: true,
    },
  ]);
});

test("request: one that is answered, replaced or gone makes no block", async (t) => {
  const { reconciler, ask, blocks } = await world.scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/28" }] });
  const name = await ask("a");
  await reconciler.reconcile(name, options);
  const { resourceVersion } = (await world.request(name)).metadata;
  await reconciler.reconcile(name, options);
  assert.equal((await world.request(name)).metadata.resourceVersion, resourceVersion, "an answer is not written twice");
  await world.client.delete(blockRequests, { name }, options);
  await reconciler.reconcile(name, options);
  assert.equal((await blocks()).length, 1);
  await ask("a");
  await reconciler.reconcile(name, options);
  assert.equal((await blocks()).length, 2, "a request of the same name is another one");
});

const ACTIONS: readonly { readonly says: string; readonly action: FaultAction }[] = [
  { says: "a conflict", action: { status: 409 } },
  { says: "an internal error", action: { status: 500 } },
  { says: "503", action: { status: 503, retryAfterSeconds: 0 } },
  { says: "a cut connection", action: { cut: "drop-connection" } },
  { says: "a lost answer", action: { cut: "lost-response" } },
];
/** Every call that answering a request makes. */
const CALLS: readonly FaultMatch[] = [
  { verb: "get", resource: "blockrequests" },
  { verb: "list", resource: "addressblocks" },
  { verb: "get", resource: "nodes" },
  { verb: "get", resource: "addresspools" },
  { verb: "create", resource: "addressblocks" },
  { verb: "update", resource: "blockrequests", subresource: "status" },
];

for (const { says, action } of ACTIONS) {
  test(`request: ${says} at any step ends in one block, and the request names it`, { skip: NO_FAULTS }, async (t) => {
    for (const [at, call] of CALLS.entries()) {
      const where = `${call.verb} ${call.resource}`;
      const { pool, reconciler, ask, blocks } = await world.scene(t, {
        blockSizeBits: 0,
        subnets: [{ ipv4: `10.2.${at}.0/29` }],
      });
      const name = await ask("a");
      world.inject(call, action);
      await persist(() => reconciler.reconcile(name, options));
      assert.deepEqual(world.server?.faults.list(), [], `the fault at ${where} did not come to pass`);
      const [block, ...more] = await blocks();
      assert.deepEqual(more, [], `${where}: a second block`);
      const request = await world.request(name);
      assert.equal(request.status?.addressBlockName, block?.metadata.name, where);
      assert.deepEqual(conditionsOf(request), [`Complete allocated: allocated ${pool}-0`], where);
    }
  });
}

test("request: when the answer to its block's creation is lost the block is found, also by a new leader", {
  skip: NO_FAULTS,
}, async (t) => {
  const { pool, reconciler, ask, blocks } = await world.scene(t, {
    blockSizeBits: 0,
    subnets: [{ ipv4: "10.2.0.0/29" }],
  });
  const name = await ask("a");
  world.inject({ verb: "create", resource: "addressblocks" }, { cut: "lost-response" });
  await assert.rejects(reconciler.reconcile(name, options), { code: "unreachable" });
  assert.deepEqual(conditionsOf(await world.request(name)), []);
  assert.equal((await blocks()).length, 1);
  const pools = new PoolManager({ api: world.client, log, clock: systemClock }, { allocation: "first-fit" });
  await new BlockRequestReconciler({ api: world.client, pools, clock: systemClock, log }).reconcile(name, options);
  assert.equal((await world.request(name)).status?.addressBlockName, `${pool}-0`);
  assert.equal((await blocks()).length, 1);
});

test("request: of a pool or node that does not exist fails with that reason", async (t) => {
  const missing = await world.scene(t, undefined);
  const astray = await missing.ask("a");
  await missing.reconciler.reconcile(astray, options);
  assert.deepEqual(conditionsOf(await world.request(astray)), [
    FAILED,
    `Failed pool not found: pool ${missing.pool} does not exist`,
  ]);
  const { reconciler, ask, blocks, nodeOf } = await world.scene(t, {
    blockSizeBits: 0,
    subnets: [{ ipv4: "10.2.0.0/29" }],
  });
  const name = await ask("nobody");
  await reconciler.reconcile(name, options);
  assert.deepEqual(conditionsOf(await world.request(name)), [
    FAILED,
    `Failed node not found: node ${nodeOf("nobody")} does not exist`,
  ]);
  assert.deepEqual(await blocks(), []);
});

test("request: of a pool that cannot be used, from before the CRD had rules, fails with the field; corrected, the next is answered", async (t) => {
  const lawful = { subnets: [{ ipv4: "10.0.0.0/24" }] };
  const { pool, pools, reconciler, ask, blocks, changeUnruled } = await world.scene(t, lawful);
  await changeUnruled({ subnets: [{ ipv4: "10.0.0.0/99" }] });
  assert.equal(await pools.sync(pool, options), 0);
  assert.deepEqual(pools.stats, [{ pool, maxBlocks: 0, allocatedBlocks: 0 }]);
  const name = await ask("a");
  await reconciler.reconcile(name, options);
  const [complete, failed = ""] = conditionsOf(await world.request(name));
  assert.equal(complete, FAILED);
  assert.ok(failed.startsWith(`Failed invalid pool: pool ${pool}: spec.subnets[0].ipv4: Invalid value: "10.0.0.0/99"`));
  assert.deepEqual(await blocks(), []);
  await changeUnruled({ blockSizeBits: 0, subnets: [{ ipv4: "10.0.0.0/29" }] });
  const next = await ask("b");
  await reconciler.reconcile(next, options);
  assert.equal((await world.request(next)).status?.addressBlockName, `${pool}-0`);
  assert.deepEqual(pools.stats, [{ pool, maxBlocks: 8, allocatedBlocks: 1 }]);
});

test("request: of an exhausted pool fails; an appended subnet or a block given back answers the next", async (t) => {
  const spec = { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/32" }] };
  const { pool, pools, reconciler, ask, blocks, change } = await world.scene(t, spec);
  const answer = async (node: string, name?: string): Promise<BlockRequest> => {
    const asked = await ask(node, name);
    await reconciler.reconcile(asked, options);
    return world.request(asked);
  };
  assert.equal((await answer("a")).status?.addressBlockName, `${pool}-0`);
  const refused = await answer("b");
  assert.equal(refused.status?.addressBlockName, undefined);
  assert.deepEqual(conditionsOf(refused), [FAILED, `Failed out of blocks: pool ${pool} does not have free blocks`]);
  await change({ blockSizeBits: 0, subnets: [...spec.subnets, { ipv4: "10.3.0.0/32" }] });
  assert.equal((await answer("b", `${pool}-again`)).status?.addressBlockName, `${pool}-1`);
  const [first] = await blocks();
  assert.ok(first !== undefined);
  await world.client.replace(addressBlocks, { ...first, metadata: { ...first.metadata, finalizers: [] } }, options);
  await world.client.delete(addressBlocks, { name: first.metadata.name }, options);
  await reconcilePool({ api: world.client, pools, log }, pool, options);
  assert.equal((await answer("b", `${pool}-third`)).status?.addressBlockName, `${pool}-0`);
});

test("request: without a controller ADDs fail and name it; when it is back they have one block, whatever they requested meanwhile", async (t) => {
  const { pool, reconciler, nodeOf, blocks } = await world.scene(t, {
    blockSizeBits: 1,
    subnets: [{ ipv4: "10.2.0.0/29" }],
  });
  const source = new KubeBlockSource({ api: world.client, log }, { nodeName: nodeOf("a"), requestTimeoutMs: 100 });
  const deps = { source, log, clock: systemClock, onBlocksChanged: () => undefined };
  const ipam = new NodeIpam(deps, { collectIntervalMs: 60_000, releaseDelayMs: 0 });
  await ipam.collect(options);
  const allocate = (containerId: string) => ipam.allocate(pool, { containerId, ifname: "eth0" }, options);
  for (const containerId of ["one", "two"]) {
    await assert.rejects(allocate(containerId), {
      code: "block-timeout",
      message: /is coil-ipam-controller running\?/,
    });
  }
  await reconciler.reconcile(`req-${pool}-${nodeOf("a")}`, options);
  const got = [await allocate("one"), await allocate("two")];
  assert.deepEqual(
    got.map(({ ipv4 }) => String(ipv4)),
    ["10.2.0.0", "10.2.0.1"],
  );
  assert.equal((await blocks()).length, 1);
});
