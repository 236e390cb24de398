import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import type { DeletableLink } from "#kernel/link";
import { LinkDeletions, MAX_BATCH, MAX_BATCHES } from "./deletions.ts";

/** A port whose calls end when the test says so. */
class HeldPort {
  readonly calls: { readonly indexes: number[]; readonly result: Deferred<ReadonlyMap<number, KernelError>> }[] = [];

  deleteMany(links: readonly DeletableLink[]): Promise<ReadonlyMap<number, KernelError>> {
    const result = new Deferred<ReadonlyMap<number, KernelError>>();
    this.calls.push({ indexes: links.map(({ index }) => index), result });
    return result.promise;
  }

  /** Ends a call. */
  end(at: number, ...failures: (readonly [number, KernelError])[]): void {
    this.calls[at]?.result.resolve(new Map(failures));
  }

  get batches(): number[][] {
    return this.calls.map(({ indexes }) => indexes);
  }
}

const link = (index: number): DeletableLink => ({ index, kind: "veth" });
const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, at) => from + at);
/** Until everything that is ready has run. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Both places taken, by links 1 and 2. */
async function busy() {
  const port = new HeldPort();
  const deletions = new LinkDeletions(port);
  const ends: Promise<void>[] = [];
  for (const index of range(1, MAX_BATCHES)) {
    ends.push(deletions.delete(link(index)));
    await turn();
  }
  return { port, deletions, ends };
}

test("LinkDeletions: those of one tick go together, a lone one starts at once", async () => {
  const port = new HeldPort();
  const deletions = new LinkDeletions(port);
  const together = [1, 2, 3].map((index) => deletions.delete(link(index)));
  await turn();
  const alone = deletions.delete(link(4));
  await turn();
  assert.deepEqual(port.batches, [[1, 2, 3], [4]]);
  port.end(1);
  await alone;
  port.end(0);
  await Promise.all(together);
});

test("LinkDeletions: those that come while the kernel is busy go in batches of bounded size", async () => {
  const { port, deletions, ends } = await busy();
  const many = range(10, 2 * MAX_BATCH + 3).map((index) => deletions.delete(link(index)));
  await turn();
  assert.deepEqual(port.batches, [[1], [2]]);
  port.end(0);
  await ends[0];
  await turn();
  assert.deepEqual(port.batches.slice(2), [range(10, MAX_BATCH)]);
  port.end(1);
  await ends[1];
  await turn();
  port.end(2);
  port.end(3);
  await turn();
  assert.deepEqual(port.batches.slice(3), [range(10 + MAX_BATCH, MAX_BATCH), range(10 + 2 * MAX_BATCH, 3)]);
  port.end(4);
  await Promise.all(many);
});

test("LinkDeletions: a link that cannot be deleted fails alone", async () => {
  const port = new HeldPort();
  const deletions = new LinkDeletions(port);
  const ends = [1, 2, 3].map((index) => deletions.delete(link(index)));
  await turn();
  port.end(0, [2, new KernelError("no-device", "link 2 is not there")]);
  const [one, two, three] = await Promise.allSettled(ends);
  assert.deepEqual([one?.status, three?.status], ["fulfilled", "fulfilled"]);
  await assert.rejects(ends[1] ?? Promise.resolve(), { code: "no-device" });
  assert.equal(two?.status, "rejected");
});

test("LinkDeletions: a batch that is refused is tried link by link, each with its own outcome", async () => {
  const kernel = new FakeKernel();
  using ns = kernel.createNetNs("node");
  using stack = kernel.openStack(ns);
  const links = range(0, 4).map((at) => stack.links.create({ kind: "veth", name: `v${at}`, peer: { name: `p${at}` } }));
  kernel.fail("links.deleteMany", "busy");
  kernel.fail("links.delete", "not-permitted", { about: `link ${links[2]?.index}` });
  const deletions = new LinkDeletions(stack.links);
  const ends = await Promise.allSettled(links.map((one) => deletions.delete(one)));
  assert.deepEqual(
    ends.map(({ status }) => status),
    ["fulfilled", "fulfilled", "rejected", "fulfilled"],
  );
  assert.equal(ends[2]?.status === "rejected" && ends[2].reason.code, "not-permitted");
  assert.deepEqual(
    stack.links.list().map(({ name }) => name),
    ["lo", "v2", "p2"],
  );
});

test("LinkDeletions: an aborted one that waits is left out, and no other", async () => {
  const { port, deletions, ends } = await busy();
  const controller = new AbortController();
  const kept = deletions.delete(link(10));
  const given = deletions.delete(link(11), { signal: controller.signal });
  const other = deletions.delete(link(12), { signal: new AbortController().signal });
  controller.abort(new Error("no more"));
  await assert.rejects(given, /no more/);
  for (const at of ends.keys()) port.end(at);
  await Promise.all(ends);
  await turn();
  assert.deepEqual(port.batches.slice(MAX_BATCHES), [[10, 12]]);
  port.end(MAX_BATCHES);
  await Promise.all([kept, other]);
});

test("LinkDeletions: an abort after the request to the kernel changes nothing, one before sends none", async () => {
  const port = new HeldPort();
  const deletions = new LinkDeletions(port);
  const controller = new AbortController();
  const late = deletions.delete(link(1), { signal: controller.signal });
  await turn();
  controller.abort(new Error("no more"));
  port.end(0);
  await late;
  await assert.rejects(deletions.delete(link(2), { signal: controller.signal }), /no more/);
  await turn();
  assert.deepEqual(port.batches, [[1]]);
});

test("LinkDeletions: a bug in the port reaches all its callers, and later ones are served", async () => {
  const port = new HeldPort();
  const deletions = new LinkDeletions(port);
  const ends = [1, 2].map((index) => deletions.delete(link(index)));
  await turn();
  port.calls[0]?.result.reject(new TypeError("a bug"));
  for (const end of ends) await assert.rejects(end, TypeError);
  const after = deletions.delete(link(3));
  await turn();
  port.end(1);
  await after;
});

test("LinkDeletions: a deletion ends when the kernel says that the link is gone, the rest of its batch and its place later", async () => {
  const { port, deletions, ends } = await busy();
  const waiting = deletions.delete(link(10));
  deletions.gone(1);
  await ends[0];
  // Said of a link whose deletion has not begun, or of a stranger, it means nothing.
  deletions.gone(10);
  deletions.gone(99);
  await turn();
  assert.deepEqual(port.batches, [[1], [2]], "the kernel is still at work for both");
  let isOver = false;
  const watched = waiting.then(() => (isOver = true));
  port.end(0, [1, new KernelError("no-device", "link 1 is not there")]);
  port.end(1);
  await ends[1];
  await turn();
  assert.deepEqual([port.batches.slice(MAX_BATCHES), isOver], [[[10]], false]);
  port.end(MAX_BATCHES);
  await watched;
});

test("LinkDeletions: a link of a batch that is said to be gone is a success, though the kernel refuses the batch", async () => {
  const port = new HeldPort();
  const deletions = new LinkDeletions(port);
  const ends = [1, 2].map((index) => deletions.delete(link(index)));
  await turn();
  deletions.gone(2);
  await ends[1];
  port.calls[0]?.result.reject(new KernelError("busy", "no"));
  await turn();
  assert.deepEqual(port.batches.slice(1), [[1], [2]]);
  port.end(1);
  port.end(2, [2, new KernelError("no-device", "link 2 is not there")]);
  await Promise.all(ends);
});
