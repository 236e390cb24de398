/** The IPAM controller collects blocks of deleted nodes. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { OrphanCollector } from "#features/ipam";
import { type KubeApi, type KubeObject, type ListOptions, type ResourceType, resources } from "#kube/client";
import { coilResources, NODE_LABEL, RESERVED_LABEL } from "#kube/coil";
import { IpamWorld, NO_FAULTS } from "#test/ipam-world";

const { addressBlocks } = coilResources;
const log = nullLogger;
const GRACE_MS = 60_000;
const options = { signal: AbortSignal.timeout(300_000) };
const world = await IpamWorld.open(options);
after(() => world[Symbol.asyncDispose]());

/** Blocks of nodes a, b and c, one of c's reserved; then a and b are deleted. */
async function orphans(t: TestContext) {
  const made = await world.scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/28" }] }, ["a", "b", "c"]);
  const { pool, pools, nodeOf } = made;
  for (const [at, node] of ["a", "b", "c", "c"].entries()) await pools.carve(pool, nodeOf(node), `r${at}`, options);
  const reserved = { metadata: { labels: { [RESERVED_LABEL]: "true" } } };
  await world.client.patch(addressBlocks, { name: `${pool}-3` }, { type: "merge", body: reserved }, options);
  for (const node of ["a", "b"]) await world.client.delete(resources.nodes, { name: nodeOf(node) }, options);
  const clock = new FakeClock();
  const collector = new OrphanCollector(
    { api: world.client, known: () => world.known(), log, clock },
    { graceMs: GRACE_MS },
  );
  return {
    ...made,
    clock,
    collector,
    /** One pass; how many blocks it deleted. */
    collect: async () => (await collector.collect(options)).deleted,
    /** Notices the deleted nodes, and lets the grace pass. */
    outwait: async () => {
      assert.equal((await collector.collect(options)).deleted, 0);
      await clock.advance(GRACE_MS);
    },
    indexes: async () => (await made.blocks()).map(({ index }) => index),
  };
}

/** A pod that is bound to a node, as a scheduler or kubelet would have it. */
async function boundPod(t: TestContext, node: string): Promise<{ readonly remove: () => Promise<void> }> {
  const name = `${node}-pod`;
  const spec = { nodeName: node, containers: [{ name: "c", image: "none" }] };
  await world.client.create(resources.pods, { metadata: { namespace: "default", name }, spec }, options);
  let there = true;
  const remove = async (): Promise<void> => {
    if (!there) return;
    there = false;
    await world.client.delete(resources.pods, { namespace: "default", name }, { ...options, gracePeriodSeconds: 0 });
  };
  t.after(remove);
  return { remove };
}

test("orphans: blocks of deleted nodes are deleted, others stay, reserved ones too", async (t) => {
  const { indexes, collect, outwait } = await orphans(t);
  await outwait();
  assert.equal(await collect(), 2);
  assert.deepEqual(await indexes(), [2, 3]);
  assert.equal(await collect(), 0);
});

test("orphans: a block whose node comes back while they are collected stays", async (t) => {
  const { indexes, collect, outwait, nodeOf } = await orphans(t);
  await outwait();
  world.client.onNodesListed = () => world.client.create(resources.nodes, { metadata: { name: nodeOf("a") } }, options);
  assert.equal(await collect(), 1);
  assert.deepEqual(await indexes(), [0, 2, 3]);
});

test("orphans: a block that was given to another node, or made anew, meanwhile stays", async (t) => {
  const { indexes, collect, outwait, nodeOf, pool, pools } = await orphans(t);
  await outwait();
  world.client.onNodesListed = async () => {
    const labels = { [NODE_LABEL]: nodeOf("c") };
    await world.client.patch(
      addressBlocks,
      { name: `${pool}-0` },
      { type: "merge", body: { metadata: { labels } } },
      options,
    );
    await world.removeAll(addressBlocks as ResourceType<KubeObject>, `${pool}-1`);
    await pools.sync(pool, options);
    await pools.carve(pool, nodeOf("c"), "anew", options);
  };
  await collect();
  assert.deepEqual(await indexes(), [0, 1, 2, 3]);
});

test("orphans: one block that cannot be deleted does not stop the others, and the next pass deletes it", {
  skip: NO_FAULTS,
}, async (t) => {
  const { indexes, collect, outwait, pool } = await orphans(t);
  await outwait();
  world.inject({ verb: "update", resource: "addressblocks", name: `${pool}-0` }, { status: 500 });
  await assert.rejects(collect(), {
    code: "api-unavailable",
    message: "1 orphan blocks could not be deleted",
  });
  assert.deepEqual(await indexes(), [0, 2, 3]);
  assert.equal(await collect(), 1);
  assert.deepEqual(await indexes(), [2, 3]);
});

test("orphans: conflicts are overcome at once, and a lost answer by the next pass", {
  skip: NO_FAULTS,
}, async (t) => {
  const { indexes, collect, outwait, pool } = await orphans(t);
  await outwait();
  world.inject({ verb: "update", resource: "addressblocks", name: `${pool}-0` }, { status: 409 });
  world.inject({ verb: "delete", resource: "addressblocks", name: `${pool}-0` }, { status: 409 });
  world.inject({ verb: "delete", resource: "addressblocks", name: `${pool}-1` }, { cut: "lost-response" });
  await assert.rejects(collect(), { code: "api-unavailable" });
  assert.deepEqual(world.server?.faults.list(), []);
  assert.deepEqual(await indexes(), [1, 2, 3], "its deletion has begun, and the finalizer holds it");
  assert.equal(await collect(), 1);
  assert.deepEqual(await indexes(), [2, 3]);
  assert.equal(await collect(), 0);
});

test("orphans: a block is kept for the grace after its Node was missed first", async (t) => {
  const { indexes, collector, clock } = await orphans(t);
  assert.deepEqual(await collector.collect(options), { deleted: 0, nextPassInMs: 10_000 });
  await clock.advance(GRACE_MS - 1);
  assert.deepEqual(await collector.collect(options), { deleted: 0, nextPassInMs: 250 });
  assert.deepEqual(await indexes(), [0, 1, 2, 3]);
  await clock.advance(1);
  assert.equal((await collector.collect(options)).deleted, 2);
  assert.equal((await collector.collect(options)).nextPassInMs, undefined, "nothing waits any more");
});

test("orphans: passes that follow each other look for a Node and its pods once in 10 s, and at the end of its grace", async (t) => {
  const { clock } = await orphans(t);
  const looks: (string | undefined)[] = [];
  const { client } = world;
  const api = {
    get: client.get.bind(client),
    delete: client.delete.bind(client),
    replace: client.replace.bind(client),
    list: async (type: ResourceType<KubeObject>, list: ListOptions) => {
      if (type.plural === resources.pods.plural) looks.push(list.resourceVersion);
      return client.list(type, list);
    },
  } as unknown as KubeApi;
  const collector = new OrphanCollector({ api, known: () => world.known(), log, clock }, { graceMs: GRACE_MS });
  const pass = async (): Promise<(string | undefined)[]> => {
    await collector.collect(options);
    return looks.splice(0);
  };
  assert.deepEqual(await pass(), ["0", "0"], "of both Nodes, in what the API server has at hand");
  assert.deepEqual(await pass(), []);
  await clock.advance(9999);
  assert.deepEqual(await pass(), []);
  await clock.advance(1);
  assert.deepEqual(await pass(), ["0", "0"]);
  await clock.advance(GRACE_MS - 10_000);
  assert.deepEqual(
    await pass(),
    [...["0", undefined, undefined], ...["0", undefined, undefined]],
    "and live before each step",
  );
});

test("orphans: a block is kept while a pod is bound to its Node's name, and for the grace after that", async (t) => {
  const { indexes, collect, outwait, clock, nodeOf } = await orphans(t);
  const pod = await boundPod(t, nodeOf("a"));
  await outwait();
  assert.equal(await collect(), 1, "the other node's");
  await clock.advance(100 * GRACE_MS);
  assert.equal(await collect(), 0);
  await pod.remove();
  await clock.advance(GRACE_MS - 1);
  assert.equal(await collect(), 0, "the pod was seen so long ago");
  assert.deepEqual(await indexes(), [0, 2, 3]);
  await clock.advance(1);
  assert.equal(await collect(), 1);
});

test("orphans: a Node that registers again and is deleted again has a whole grace again", async (t) => {
  const { indexes, collect, collector, outwait, clock, nodeOf } = await orphans(t);
  await outwait();
  // It exists for less than a pass; the watch has its events.
  collector.noteNode(nodeOf("a"));
  assert.equal(await collect(), 1, "the other node's");
  assert.deepEqual(await indexes(), [0, 2, 3]);
  await clock.advance(GRACE_MS);
  await world.client.create(resources.nodes, { metadata: { name: nodeOf("a") } }, options);
  assert.equal(await collect(), 0);
  await world.client.delete(resources.nodes, { name: nodeOf("a") }, options);
  assert.equal(await collect(), 0, "it was there at the last pass");
  await clock.advance(GRACE_MS);
  assert.equal(await collect(), 1);
});

test("orphans: a pod that is bound while the blocks are listed keeps them", async (t) => {
  const { indexes, collect, outwait, nodeOf } = await orphans(t);
  await outwait();
  world.client.onNodesListed = async () => {
    world.client.onNodesListed = async () => undefined;
    await boundPod(t, nodeOf("b"));
  };
  assert.equal(await collect(), 1);
  assert.deepEqual(await indexes(), [1, 2, 3]);
});

test("orphans: a Node that comes back while a block of it is being deleted keeps it, and its pods keep their addresses", async (t) => {
  const { blocks, collect, outwait, nodeOf, pool } = await orphans(t);
  await outwait();
  const node = nodeOf("a");
  const remove = world.client.delete.bind(world.client);
  t.after(() => {
    world.client.delete = remove;
  });
  world.client.delete = async (type, ref, how) => {
    const result = await remove(type, ref, how);
    if (ref.name === `${pool}-0`) await world.client.create(resources.nodes, { metadata: { name: node } }, options);
    return result;
  };
  assert.equal(await collect(), 1, "the other node's");
  const held = (await blocks()).map(({ index, metadata }) => [index, metadata.deletionTimestamp !== undefined]);
  assert.deepEqual(held, [
    [0, true],
    [2, false],
    [3, false],
  ]);
});
