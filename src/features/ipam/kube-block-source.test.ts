import assert from "node:assert/strict";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import type { KubeApi } from "#kube/client";
import { type AddressBlock, NODE_LABEL } from "#kube/coil";
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
