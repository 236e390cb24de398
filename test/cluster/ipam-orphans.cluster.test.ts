/** Blocks of nodes that are gone, as the IPAM controller collects them. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { nullLogger } from "#base/log";
import { collectOrphans } from "#features/ipam";
import { type KubeObject, type ResourceType, resources } from "#kube/client";
import { coilResources, NODE_LABEL, RESERVED_LABEL } from "#kube/coil";
import { IpamWorld, NO_FAULTS } from "#test/ipam-world";

const { addressBlocks } = coilResources;
const log = nullLogger;
const options = { signal: AbortSignal.timeout(300_000) };
const world = await IpamWorld.open(options);
after(() => world[Symbol.asyncDispose]());

/** Blocks of nodes a, b and c, one of c's reserved; then a and b are gone. */
async function orphans(t: TestContext) {
  const made = await world.scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/28" }] }, ["a", "b", "c"]);
  const { pool, pools, nodeOf } = made;
  for (const [at, node] of ["a", "b", "c", "c"].entries()) await pools.carve(pool, nodeOf(node), `r${at}`, options);
  const reserved = { metadata: { labels: { [RESERVED_LABEL]: "true" } } };
  await world.client.patch(addressBlocks, { name: `${pool}-3` }, { type: "merge", body: reserved }, options);
  for (const node of ["a", "b"]) await world.client.delete(resources.nodes, { name: nodeOf(node) }, options);
  return { ...made, indexes: async () => (await made.blocks()).map(({ index }) => index) };
}

test("orphans: blocks of nodes that are gone are deleted, those of others stay, reserved ones too", async (t) => {
  const { indexes } = await orphans(t);
  assert.equal(await collectOrphans({ api: world.client, log }, options), 2);
  assert.deepEqual(await indexes(), [2, 3]);
  assert.equal(await collectOrphans({ api: world.client, log }, options), 0);
});

test("orphans: a block whose node comes back while they are collected stays", async (t) => {
  const { indexes, nodeOf } = await orphans(t);
  world.client.onNodesListed = () => world.client.create(resources.nodes, { metadata: { name: nodeOf("a") } }, options);
  assert.equal(await collectOrphans({ api: world.client, log }, options), 1);
  assert.deepEqual(await indexes(), [0, 2, 3]);
});

test("orphans: a block that was given to another node, or made anew, meanwhile stays", async (t) => {
  const { indexes, nodeOf, pool, pools } = await orphans(t);
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
  await collectOrphans({ api: world.client, log }, options);
  assert.deepEqual(await indexes(), [0, 1, 2, 3]);
});

test("orphans: one block that cannot be deleted does not stop the others, and the next pass deletes it", {
  skip: NO_FAULTS,
}, async (t) => {
  const { indexes, pool } = await orphans(t);
  world.inject({ verb: "update", resource: "addressblocks", name: `${pool}-0` }, { status: 500 });
  await assert.rejects(collectOrphans({ api: world.client, log }, options), {
    code: "api-unavailable",
    message: "1 orphan blocks could not be deleted",
  });
  assert.deepEqual(await indexes(), [0, 2, 3]);
  assert.equal(await collectOrphans({ api: world.client, log }, options), 1);
  assert.deepEqual(await indexes(), [2, 3]);
});

test("orphans: conflicts are overcome at once, and an answer that is lost by the next pass", {
  skip: NO_FAULTS,
}, async (t) => {
  const { indexes, pool } = await orphans(t);
  world.inject({ verb: "update", resource: "addressblocks", name: `${pool}-0` }, { status: 409 });
  world.inject({ verb: "delete", resource: "addressblocks", name: `${pool}-0` }, { status: 409 });
  world.inject({ verb: "delete", resource: "addressblocks", name: `${pool}-1` }, { cut: "lost-response" });
  await assert.rejects(collectOrphans({ api: world.client, log }, options), { code: "api-unavailable" });
  assert.deepEqual(world.server?.faults.list(), []);
  assert.deepEqual(await indexes(), [2, 3]);
  assert.equal(await collectOrphans({ api: world.client, log }, options), 0);
});
