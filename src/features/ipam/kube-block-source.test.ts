import assert from "node:assert/strict";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import { type KubeApi, KubeError, type KubeObject, type ResourceType } from "#kube/client";
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

const NODE = { metadata: { name: "n", uid: "node-uid", resourceVersion: "1" } };
const COMPLETE = { addressBlockName: "default-7", conditions: [{ type: "Complete", status: "True" }] };
const requestOf = (uid: string, status?: object) => ({
  metadata: {
    name: "req-default-n",
    uid,
    resourceVersion: "2",
    ownerReferences: [{ apiVersion: "v1", kind: "Node", name: "n", uid: "node-uid" }],
  },
  spec: { nodeName: "n", poolName: "default" },
  ...(status === undefined ? {} : { status }),
});

/** An API server with at most one request, which is answered when it is watched; records the calls. */
function requestApi(stored?: ReturnType<typeof requestOf>) {
  const calls: string[] = [];
  let request = stored;
  const note = (verb: string, { plural }: ResourceType<KubeObject>): void => void calls.push(`${verb} ${plural}`);
  const api = {
    get: async (type: ResourceType<KubeObject>) => {
      note("get", type);
      if (type.plural === "nodes") return NODE;
      if (type.plural !== "blockrequests" || request === undefined) throw new KubeError("not-found", "it is gone");
      return request;
    },
    create: async (type: ResourceType<KubeObject>) => {
      note("create", type);
      if (request !== undefined) throw new KubeError("already-exists", "it exists");
      request = requestOf("new");
      return request;
    },
    delete: async (type: ResourceType<KubeObject>) => {
      note("delete", type);
      request = undefined;
    },
    async *watch(type: ResourceType<KubeObject>) {
      note("watch", type);
      yield { type: "MODIFIED", object: { ...request, status: COMPLETE } };
    },
  } as unknown as KubeApi;
  return { calls, source: new KubeBlockSource({ api, log: nullLogger }, { nodeName: "n" }) };
}

test("KubeBlockSource: a request for a block takes three calls", async () => {
  const { calls, source } = requestApi();
  await source.request("default", new Set(), {});
  assert.deepEqual(calls, ["get nodes", "create blockrequests", "watch blockrequests"]);
});

test("KubeBlockSource: a request that waits already is adopted; one whose block is known or gone is replaced", async () => {
  const waiting = requestApi(requestOf("old"));
  await waiting.source.request("default", new Set(), {});
  assert.deepEqual(waiting.calls.slice(1), ["create blockrequests", "get blockrequests", "watch blockrequests"]);
  const known = requestApi(requestOf("old", COMPLETE));
  await known.source.request("default", new Set(["default-7"]), {});
  assert.deepEqual(known.calls.slice(3), [
    "delete blockrequests",
    "get nodes",
    "create blockrequests",
    "watch blockrequests",
  ]);
  const gone = requestApi(requestOf("old", COMPLETE));
  await gone.source.request("default", new Set(), {});
  assert.deepEqual(gone.calls.slice(3, 5), ["get addressblocks", "delete blockrequests"]);
});

test("KubeBlockSource: answered requests are looked for in what the API server has at hand", async () => {
  const options: unknown[] = [];
  const deleted: unknown[] = [];
  const api = {
    listAll: async (_type: unknown, list: { readonly resourceVersion?: string }) => {
      options.push(list.resourceVersion);
      return { items: [requestOf("old", COMPLETE), { ...requestOf("other"), spec: { nodeName: "o", poolName: "p" } }] };
    },
    delete: async (_type: unknown, _ref: unknown, { preconditions }: { readonly preconditions: unknown }) =>
      deleted.push(preconditions),
  } as unknown as KubeApi;
  const source = new KubeBlockSource({ api, log: nullLogger }, { nodeName: "n" });
  assert.equal(await source.removeAnswered(new Set<string>(), {}), 1);
  assert.deepEqual([options, deleted], [["0"], [{ uid: "old" }]]);
});
