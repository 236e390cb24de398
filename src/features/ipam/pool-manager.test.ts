import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { type KubeApi, KubeError } from "#kube/client";
import type { AddressBlock } from "#kube/coil";
import { PoolManager } from "./pool-manager.ts";

const signal = AbortSignal.timeout(60_000);

/** An API server with one pool of two blocks; it counts the lists of blocks. */
function fakeApi() {
  const blocks = new Map<string, AddressBlock>();
  const seen = { lists: 0 };
  const api = {
    get: async () => ({ metadata: { name: "p" }, spec: { blockSizeBits: 0, subnets: [{ ipv4: "10.0.0.0/31" }] } }),
    create: async (_type: unknown, draft: AddressBlock) => {
      const { name } = draft.metadata;
      if (blocks.has(name)) throw new KubeError("already-exists", name);
      const made = { ...draft, metadata: { ...draft.metadata, uid: `uid of ${name}`, resourceVersion: "1" } };
      blocks.set(name, made);
      return made;
    },
    listAll: async () => {
      seen.lists += 1;
      return { items: [...blocks.values()] };
    },
  };
  return { api: api as unknown as KubeApi, blocks, seen };
}

test("PoolManager: blocks that came and went while the watch was away are found free when the pool seems exhausted, with a list in 10 s at most", async () => {
  const { api, blocks, seen } = fakeApi();
  const clock = new FakeClock();
  const pools = new PoolManager({ api, log: nullLogger, clock }, { allocation: "first-fit" });
  pools.adopt([]);
  const carve = (request: string) => pools.carve("p", "n", request, { signal });
  assert.deepEqual(
    [await carve("1"), await carve("2")],
    [
      { kind: "block", name: "p-0" },
      { kind: "block", name: "p-1" },
    ],
  );
  assert.equal(seen.lists, 0);
  blocks.clear();
  assert.deepEqual(await carve("3"), { kind: "block", name: "p-0" });
  assert.deepEqual([await carve("4"), seen.lists], [{ kind: "block", name: "p-1" }, 1]);
  blocks.clear();
  assert.deepEqual([(await carve("5")).kind, seen.lists], ["exhausted", 1]);
  await clock.advance(10_000);
  assert.deepEqual([await carve("6"), seen.lists], [{ kind: "block", name: "p-0" }, 2]);
});

test("PoolManager: a pool that is being deleted is not full, but gives no more blocks", async () => {
  const metadata = { name: "p", deletionTimestamp: "2026-01-01T00:00:00Z" };
  const api = { get: async () => ({ metadata, spec: { blockSizeBits: 0, subnets: [{ ipv4: "10.0.0.0/31" }] } }) };
  const deps = { api: api as unknown as KubeApi, log: nullLogger, clock: new FakeClock() };
  const pools = new PoolManager(deps, { allocation: "first-fit" });
  pools.adopt([]);
  assert.deepEqual(await pools.carve("p", "n", "1", { signal }), { kind: "deleting" });
});
