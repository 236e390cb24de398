import assert from "node:assert/strict";
import { test } from "node:test";
import { unlessAborted } from "#base/async";
import { nullLogger } from "#base/log";
import { type KubeApi, KubeConfigError, KubeError, type KubeObject, type ResourceType } from "#kube/client";
import { type AddressBlock, type BlockRequest, COIL_FINALIZER, NODE_LABEL } from "#kube/coil";
import { isAnswered, KubeBlockSource } from "./kube-block-source.ts";

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
  ["prefixes of two sizes", { ipv4: "10.0.0.0/30", ipv6: "fd00::/127" }],
  ["a prefix of the other family", { ipv4: "fd00::/126" }],
  ["each family's prefix in the place of the other", { ipv4: "fd00::/126", ipv6: "10.0.0.0/30" }],
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

test("KubeBlockSource: a call for which there are no credentials now fails as one that the API server does not answer", async () => {
  const fail = async (): Promise<never> => {
    throw new KubeConfigError("exec-failed", "the plugin failed: no network");
  };
  const api = { get: fail, listAll: fail } as unknown as KubeApi;
  const source = new KubeBlockSource({ api, log: nullLogger }, { nodeName: "n" });
  const failed = { name: "IpamError", code: "api-unavailable", message: /no network/ };
  await assert.rejects(source.list({}), failed);
  await assert.rejects(source.request("default", new Set(), {}), failed);
  await assert.rejects(source.removeAnswered(new Set<string>(), {}), failed);
});

interface WatchOptions {
  readonly fieldSelector?: string;
  readonly signal?: AbortSignal;
}

/** Waits for a state that needs no time, only other work of this process. */
async function until(isTrue: () => boolean): Promise<void> {
  for (let tries = 0; !isTrue(); tries += 1) {
    assert.ok(tries < 10_000, "it does not come");
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** An API server with nodes and requests alone. A request is answered when the test says so; until then its watch waits. */
function pausedApi(...nodes: string[]) {
  const stored = new Map<string, BlockRequest>();
  const deleted: string[] = [];
  const waiting: (() => void)[] = [];
  let made = 0;
  const absent = (name: string): KubeError => new KubeError("not-found", `${name} is not there`);
  const api = {
    get: async (type: ResourceType<KubeObject>, { name }: { readonly name: string }) => {
      if (type.plural === "nodes" && nodes.includes(name))
        return { metadata: { name, uid: `uid-of-${name}`, resourceVersion: "1" } };
      const found = type.plural === "blockrequests" ? stored.get(name) : undefined;
      if (found === undefined) throw absent(name);
      return found;
    },
    create: async (_type: unknown, draft: BlockRequest) => {
      const { name } = draft.metadata;
      if (stored.has(name)) throw new KubeError("already-exists", `${name} exists`);
      made += 1;
      const request = { ...draft, metadata: { ...draft.metadata, uid: `request-${made}`, resourceVersion: "1" } };
      stored.set(name, request);
      return request;
    },
    delete: async (
      _type: unknown,
      { name }: { readonly name: string },
      { preconditions }: { readonly preconditions?: { readonly uid?: string } },
    ) => {
      const found = stored.get(name);
      if (found === undefined) throw absent(name);
      if (preconditions?.uid !== undefined && preconditions.uid !== found.metadata.uid)
        throw new KubeError("conflict", "another UID");
      deleted.push(`${name} ${found.metadata.uid}`);
      stored.delete(name);
    },
    async *watch(_type: unknown, { fieldSelector = "", signal }: WatchOptions) {
      const name = fieldSelector.replace("metadata.name=", "");
      const before = stored.get(name);
      await unlessAborted(new Promise<void>((resolve) => waiting.push(resolve)), { signal });
      const now = stored.get(name);
      if (now?.metadata.uid !== before?.metadata.uid) yield { type: "DELETED", object: before };
      else yield { type: "MODIFIED", object: { ...now, status: COMPLETE } };
    },
  } as unknown as KubeApi;
  const source = (nodeName: string): KubeBlockSource => new KubeBlockSource({ api, log: nullLogger }, { nodeName });
  /** Waits until so many requests wait for an answer, and answers them. */
  const answer = async (count: number): Promise<void> => {
    await until(() => waiting.length >= count);
    for (const resolve of waiting.splice(0)) resolve();
  };
  return { stored, deleted, source, answer };
}

for (const order of [
  [
    ["default-gpu", "n1"],
    ["default", "gpu-n1"],
  ],
  [
    ["default", "gpu-n1"],
    ["default-gpu", "n1"],
  ],
] as const) {
  test(`KubeBlockSource: two nodes whose requests would have one name get a block each, and remove their own request alone (${order[0].join(" on ")} first)`, async () => {
    const { stored, deleted, source, answer } = pausedApi("n1", "gpu-n1");
    const sources = order.map(([pool, node]) => ({ pool, node, source: source(node) }));
    const requests: Promise<void>[] = [];
    for (const one of sources) {
      requests.push(one.source.request(one.pool, new Set(), {}));
      await until(() => stored.size === requests.length);
    }
    const wanted = [...stored.values()].map(({ spec }) => `${spec?.poolName} on ${spec?.nodeName}`);
    assert.deepEqual(
      wanted,
      order.map((one) => one.join(" on ")),
    );
    assert.equal([...stored.keys()][0], "req-default-gpu-n1");
    assert.match([...stored.keys()][1] ?? "", /^req-default-gpu-n1-[0-9a-f]{8}$/);
    await answer(2);
    await Promise.all(requests);
    assert.deepEqual(deleted, []);
    const [first, second] = sources;
    await second?.source.settle(second.pool, {});
    assert.deepEqual([...stored.keys()], ["req-default-gpu-n1"]);
    await second?.source.settle(second.pool, {});
    assert.equal(stored.size, 1, "what is settled is settled");
    await first?.source.settle(first.pool, {});
    assert.equal(stored.size, 0);
  });
}

test("KubeBlockSource: settle removes the request that was awaited, not a later one of that name", async () => {
  const { stored, deleted, source, answer } = pausedApi("n");
  const one = source("n");
  const request = one.request("default", new Set(), {});
  await answer(1);
  await request;
  const [[name, made] = assert.fail()] = [...stored];
  stored.set(name, { ...made, metadata: { ...made.metadata, uid: "later" } });
  await one.settle("default", {});
  assert.deepEqual([deleted, stored.size], [[], 1]);
});

test("KubeBlockSource: a request that waits under its second name is used again, whoever has the first name by now", async () => {
  const { stored, source, answer } = pausedApi("n1", "gpu-n1");
  const other = source("n1").request("default-gpu", new Set(), {});
  await until(() => stored.size === 1);
  const one = source("gpu-n1");
  const gone = new AbortController();
  const given = one.request("default", new Set(), { signal: gone.signal });
  await until(() => stored.size === 2);
  gone.abort(new Error("the caller went away"));
  await assert.rejects(given);
  stored.delete("req-default-gpu-n1");
  const again = one.request("default", new Set(), {});
  await answer(3);
  await again;
  await assert.rejects(other, { code: "api-unavailable" });
  assert.equal(stored.size, 1);
});

test("isAnswered: a failure says what helps: a full pool a subnet, one that is being deleted another pool", () => {
  const failed = (reason: string, message: string) => ({
    metadata: { name: "r", uid: "u" },
    status: {
      conditions: [
        { type: "Complete", status: "True", reason: "completed with failure", message: "completed with failure" },
        { type: "Failed", status: "True", reason, message },
      ],
    },
  });
  const refusal = (reason: string, message: string) => () =>
    isAnswered(failed(reason, message) as unknown as BlockRequest, "p", "node-uid");
  assert.throws(refusal("out of blocks", "pool p does not have free blocks"), {
    code: "exhausted",
    message: "pool p does not have free blocks: append a subnet to the AddressPool",
  });
  assert.throws(refusal("pool is being deleted", "pool p is being deleted and gives no more blocks"), {
    code: "pool-deleting",
    message: /^pool p is being deleted .*: set another pool in the namespace's annotation/,
  });
});
