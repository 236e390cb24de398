import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { type KubeApi, KubeError, type KubeObject, type ResourceType } from "#kube/client";
import { type AddressBlock, NODE_LABEL } from "#kube/coil";
import { OrphanCollector } from "./orphan-collector.ts";

test("OrphanCollector: a block that another program's finalizer holds is looked at every 10 s, and is not called deleted", async () => {
  const block: AddressBlock = {
    metadata: {
      name: "p-0",
      uid: "u",
      resourceVersion: "1",
      labels: { [NODE_LABEL]: "gone" },
      finalizers: ["example.com/other"],
      deletionTimestamp: "2026-01-01T00:00:00Z",
    },
    index: 0,
    ipv4: "10.0.0.0/32",
  };
  let requests = 0;
  const api = {
    get: async ({ plural }: ResourceType<KubeObject>) => {
      requests += 1;
      if (plural === "nodes") throw new KubeError("not-found", "gone");
      return block;
    },
    list: async () => {
      requests += 1;
      return { items: [] };
    },
  } as unknown as KubeApi;
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  const clock = new FakeClock();
  const known = async () => ({ blocks: [block], nodes: new Set<string>() });
  const collector = new OrphanCollector({ api, known, log, clock }, { graceMs: 60_000 });
  await collector.collect({});
  await clock.advance(60_000);
  requests = 0;
  const start = clock.monotonic();
  let passes = 0;
  for (; clock.monotonic() - start < 60_000; passes += 1) {
    const { deleted, nextPassInMs } = await collector.collect({});
    assert.equal(deleted, 0);
    await clock.advance(nextPassInMs ?? 60_000);
  }
  assert.ok(passes >= 6 && passes <= 12, `${passes} passes in a minute`);
  assert.ok(requests <= 60, `${requests} requests in a minute`);
  assert.ok(!lines.some((line) => line.includes("deleted an orphan block")));
});
