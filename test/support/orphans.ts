/**
 * The collection of blocks of Nodes that are gone, without its grace: `--node-gone-grace` has a minimum of 30 s, which tests of other things do not wait for.
 *
 * Owns: one collector on a clock that the test moves. Does not know: when the leader would collect (`test/cluster/ipam-orphans.cluster.test.ts`).
 *
 * ```ts
 * await api.delete(resources.nodes, { name: "lost" });
 * await collectOrphans(api);
 * ```
 */
import assert from "node:assert/strict";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { OrphanCollector } from "#features/ipam";
import { type KubeClient, resources } from "#kube/client";
import { coilResources } from "#kube/coil";

const GRACE_MS = 60_000;

/** Collects the blocks of Nodes that do not exist, as the leader does when neither they nor their pods were there for the grace. Fails if there are none. */
export async function collectOrphans(api: KubeClient): Promise<void> {
  const clock = new FakeClock();
  const known = async () => {
    const nodes = new Set((await api.listAll(resources.nodes)).items.map(({ metadata }) => metadata.name));
    return { blocks: (await api.listAll(coilResources.addressBlocks)).items, nodes };
  };
  const collector = new OrphanCollector({ api, known, log: nullLogger, clock }, { graceMs: GRACE_MS });
  assert.equal((await collector.collect({})).deleted, 0);
  await clock.advance(GRACE_MS);
  assert.notEqual((await collector.collect({})).deleted, 0);
}
