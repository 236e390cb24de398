import assert from "node:assert/strict";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import type { KubeApi } from "#kube/client";
import { type AddressBlock, COIL_FINALIZER, NODE_LABEL } from "#kube/coil";
import { KubeBlockSource } from "./kube-block-source.ts";

/** A source that is told of these blocks. */
function sourceOf(blocks: readonly object[]): KubeBlockSource {
  const api = {
    listAll: async () => ({ items: blocks as AddressBlock[], resourceVersion: "1", continueToken: undefined }),
  } as unknown as KubeApi;
  return new KubeBlockSource({ api, log: nullLogger }, { nodeName: "n" });
}

const metadata = (name: string): object => ({ name, uid: name, labels: { [NODE_LABEL]: "n" } });

for (const [what, content] of [
  ["no prefix", {}],
  ["null for prefixes", { ipv4: null, ipv6: null }],
  ["a prefix that is a number", { ipv4: 7 }],
  ["a prefix that is none", { ipv4: "10.0.0.0/33" }],
  ["null for one and nonsense for the other", { ipv4: null, ipv6: "fd00" }],
] as const) {
  test(`KubeBlockSource: a block of this node with ${what} is one that cannot be read, and others are`, async () => {
    const source = sourceOf([
      { metadata: metadata("bad"), index: 0, ...content },
      { metadata: metadata("good"), index: 1, ipv4: "10.0.0.0/30" },
    ]);
    const { blocks, unreadable } = await source.list({});
    assert.deepEqual([blocks.map(({ name }) => name), [...unreadable]], [["good"], ["bad"]]);
  });
}

test("KubeBlockSource: a block that is being deleted, and is another node's now, keeps its finalizer", async () => {
  const live = {
    metadata: {
      name: "b",
      uid: "b",
      resourceVersion: "2",
      deletionTimestamp: "2026-01-01T00:00:00Z",
      finalizers: [COIL_FINALIZER],
      labels: { [NODE_LABEL]: "other" },
    },
  };
  const written: unknown[] = [];
  const api = {
    get: async () => live,
    replace: async (_type: unknown, object: unknown) => written.push(object),
  } as unknown as KubeApi;
  const source = new KubeBlockSource({ api, log: nullLogger }, { nodeName: "n" });
  const block = { name: "b", uid: "b", pool: "default", index: 0, ipv4: undefined, ipv6: undefined };
  await source.release({ ...block, reserved: false, deleting: true }, {});
  assert.deepEqual(written, []);
});
