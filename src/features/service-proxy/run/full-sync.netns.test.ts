/** Full comparisons with the kernel that are due by time alone (docs/spec/service-proxy.md#2.9). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createLogger } from "#base/log";
import { ElementBatch } from "#kernel/nft-elements";
import { until } from "#test/lab";
import { Bed } from "../testing/bed.ts";
import { addressesOf, SERVICE_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const FULL_SYNC_MS = 400;

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-full-${process.pid}`);
});
after(() => bed[Symbol.asyncDispose]());

test("full comparison: elements that nobody noticed to be gone are back after it, and that is logged", async () => {
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  await using proxy = await NodeProxy.open(bed, { fullSyncMs: FULL_SYNC_MS, log });
  for (const family of [4, 6] as const) {
    const { clusterIP, localEndpoint } = addressesOf(family);
    const slice = sliceObject(family, [endpointObject(localEndpoint, "here")]);
    await proxy.setBoth(serviceObject(family), slice);
    const table = { family: family === 4 ? "ip" : "ip6", name: "kube-proxy" } as const;
    const listed = (name: string): readonly string[] =>
      bed.elements
        .list(table, name)
        .map(({ key }) => key)
        .sort();
    for (const name of ["eps", "service-ips", "cluster-ips"]) {
      const before = listed(name);
      assert.ok(before.length > 0, name);
      const batch = new ElementBatch(table);
      for (const key of before) batch.delete(name, key);
      await bed.elements.commit(batch);
      assert.deepEqual(listed(name), []);
      await until(`the elements of ${name} are back`, () => listed(name).length > 0, { deadlineMs: 20 * FULL_SYNC_MS });
      assert.deepEqual(listed(name), before);
    }
    assert.equal((await bed.connect("external", clusterIP, SERVICE_PORT, { droppedMs: 900 })).kind, "delivered");
    await proxy.remove("web");
  }
  assert.ok(
    lines.some((line) => line.includes("differed from what was written")),
    lines.join(""),
  );
});
