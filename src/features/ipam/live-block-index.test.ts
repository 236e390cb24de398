import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { Cidr } from "#base/ip";
import { type KubeApi, KubeError, type ListOptions } from "#kube/client";
import { NODE_LABEL, POOL_LABEL, REQUEST_LABEL } from "#kube/coil";
import { type KnownBlock, LiveBlockIndex } from "./live-block-index.ts";

const signal = AbortSignal.timeout(60_000);
const block = (index: number, uid = `uid-${index}`): KnownBlock => ({
  metadata: {
    name: `default-${index}`,
    uid,
    resourceVersion: "1",
    labels: { [POOL_LABEL]: "default", [NODE_LABEL]: "n", [REQUEST_LABEL]: `request-${index}` },
  },
  index,
  ipv4: `10.0.0.${index * 2}/31`,
});

/** An API server whose lists the test answers. */
function fakeApi() {
  const lists: { readonly options: ListOptions; readonly answer: Deferred<readonly KnownBlock[]> }[] = [];
  const listAll = async (_type: unknown, options: ListOptions) => {
    const answer = new Deferred<readonly KnownBlock[]>();
    lists.push({ options, answer });
    return { items: await answer.promise };
  };
  return { lists, index: new LiveBlockIndex({ listAll } as unknown as KubeApi) };
}

test("LiveBlockIndex: takes over the blocks of a cache without a list", async () => {
  const { lists, index } = fakeApi();
  index.adopt([block(0), block(1)]);
  await index.refresh({ signal });
  assert.deepEqual(
    [lists.length, index.index.indexesOf("default"), index.index.madeFor("request-1")],
    [0, [0, 1], "default-1"],
  );
  assert.equal(index.index.overlapping([Cidr.parse("10.0.0.3/32")])?.name, "default-1");
});

test("LiveBlockIndex: a block that goes while blocks are listed stays gone, though the list has it", async () => {
  const { lists, index } = fakeApi();
  const refreshed = index.refresh({ signal });
  const listed = index.listPool("default", { signal });
  assert.deepEqual(
    lists.map(({ options }) => options.labelSelector),
    [undefined, `${POOL_LABEL}=default`],
  );
  assert.equal(index.noteGone("default-1", "uid-1"), true);
  for (const { answer } of lists) answer.resolve([block(0), block(1), block(2)]);
  await refreshed;
  assert.deepEqual(await listed, [0, 2]);
  assert.deepEqual(index.index.indexesOf("default"), [0, 2]);
  // The same block in a later list is a fact.
  const later = index.listPool("default", { signal });
  lists[2]?.answer.resolve([block(1)]);
  assert.deepEqual(await later, [1]);
});

test("LiveBlockIndex: the deletion of an older block leaves a newer one of its name", async () => {
  const { index } = fakeApi();
  index.adopt([block(0, "newer")]);
  assert.equal(index.noteGone("default-0", "uid-0"), false);
  assert.deepEqual(index.index.indexesOf("default"), [0]);
});

test("LiveBlockIndex: a list that fails is made again at the next use", async () => {
  const { lists, index } = fakeApi();
  const failed = index.refresh({ signal });
  lists[0]?.answer.reject(new KubeError("server", "injected"));
  await assert.rejects(failed, { message: "injected" });
  const again = index.refresh({ signal });
  lists[1]?.answer.resolve([block(3)]);
  await again;
  assert.deepEqual(index.index.indexesOf("default"), [3]);
});
