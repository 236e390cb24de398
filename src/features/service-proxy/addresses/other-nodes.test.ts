import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { type KubeApi, KubeError, type Node } from "#kube/client";
import { MAX_NODES, type OtherNodes, OtherNodesReader, READ_MS, RETRY_MS } from "./other-nodes.ts";

function node(at: number): Node {
  const addresses = [{ type: "InternalIP", address: `10.0.${at >> 8}.${at & 255}` }];
  return {
    metadata: { name: `node-${at}` },
    spec: { podCIDRs: [`10.${100 + (at % 100)}.0.0/24`] },
    status: { addresses },
  } as Node;
}

function setUp(t: { after: (end: () => Promise<void>) => void }, count: number) {
  const clock = new FakeClock();
  const state = { lists: 0, pages: 0, isFailing: false };
  const lines: number[] = [];
  const found: OtherNodes[] = [];
  async function* listPages() {
    state.lists += 1;
    if (state.isFailing) throw new KubeError("forbidden", "nodes: forbidden");
    const all = Array.from({ length: count }, (_, at) => node(at));
    for (let at = 0; at < count; at += 250) {
      state.pages += 1;
      yield { items: all.slice(at, at + 250), resourceVersion: "1", continueToken: undefined, remainingItemCount: 0 };
    }
  }
  const api = { listPages } as unknown as Pick<KubeApi, "listPages">;
  const log = createLogger({ name: "t", write: () => lines.push(1) });
  const reader = new OtherNodesReader(
    { api, onNodes: (one) => found.push(one), log, clock, random: () => 1 },
    "node-0",
  );
  const stop = new AbortController();
  const running = reader.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running.catch((error: unknown) => {
      if (!stop.signal.aborted) throw error;
    });
  });
  return { clock, reader, state, found, lines };
}

test("OtherNodesReader: Nodes are read in pages once a Service claims an external address, and then every ten minutes with jitter", async (t) => {
  const { clock, reader, state, found } = setUp(t, 600);
  await clock.advance(READ_MS);
  assert.equal(state.lists, 0);
  reader.need();
  await clock.advance(1);
  assert.deepEqual([state.lists, state.pages], [1, 3]);
  assert.equal(found[0]?.nodes.get("10.0.0.1"), "node-1");
  assert.equal(found[0]?.nodes.has("10.0.0.0"), false, "this node's own");
  assert.equal(found[0]?.podCIDRs.length, 599);
  await clock.advance(1.2 * READ_MS - 10);
  assert.equal(state.lists, 1);
  await clock.advance(20);
  assert.equal(state.lists, 2);
});

test("OtherNodesReader: above a thousand Nodes none is kept, and one line says so; after a failure it tries again", async (t) => {
  const { clock, reader, state, found, lines } = setUp(t, MAX_NODES + 1);
  state.isFailing = true;
  reader.need();
  await clock.advance(1);
  assert.deepEqual([state.lists, found.length, lines.length], [1, 0, 1]);
  state.isFailing = false;
  await clock.advance(1.2 * RETRY_MS + 1);
  assert.equal(found.at(-1)?.nodes.size, 0);
  await clock.advance(1.2 * READ_MS + 1);
  assert.deepEqual([found.length, lines.length], [2, 2]);
});
