/** The fate of addresses in use when blocks vanish, come back or overlap, and when links cannot be read. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { OwnedBlock } from "./block-source.ts";
import { IpamError } from "./errors.ts";
import { NodeIpam } from "./node-ipam.ts";
import { FakeSource, open, pod } from "./testing/fake-source.ts";

const ip = (text: string): IpAddress => IpAddress.parse(text);

/** The block is deleted and made anew, as when its Node was deleted and is back. */
function reincarnate(source: FakeSource, name: string, uid: string): OwnedBlock {
  const old = [...source.owned.values()].find((block) => block.name === name) ?? assert.fail(name);
  source.owned.delete(old.uid);
  const block = { ...old, uid };
  source.owned.set(uid, block);
  return block;
}

test("NodeIpam: a block that comes back under another UID gives out nothing that its pods have", async () => {
  const { ipam, source, clock } = open(0, 60_000);
  source.add("default", { ipv4: Cidr.parse("10.9.0.0/30"), ipv6: undefined });
  await ipam.collect({});
  const had = [await ipam.allocate("default", pod(1), {}), await ipam.allocate("default", pod(2), {})];
  const old = [...source.owned.values()];
  source.owned.clear();
  await ipam.collect({});
  assert.equal(ipam.snapshot().stranded, 2);
  for (const block of old) source.owned.set("anew", { ...block, uid: "anew" });
  await ipam.collect({});
  const after = [await ipam.allocate("default", pod(3), {}), await ipam.allocate("default", pod(4), {})];
  assert.deepEqual([...had, ...after].map((one) => String(one.ipv4)).toSorted(), [
    "10.9.0.0",
    "10.9.0.1",
    "10.9.0.2",
    "10.9.0.3",
  ]);
  assert.equal(ipam.snapshot().stranded, 0, "its pods have moved to it");
  assert.deepEqual(
    ipam.snapshot().blocks.map(({ uid, missing, used }) => [uid, missing, used]),
    [["anew", false, 4]],
  );
  for (const id of [1, 2, 3, 4]) ipam.free(pod(id));
  await clock.advance(60_000);
  assert.equal(await ipam.collect({}), 1);
});

test("NodeIpam: a new block whose addresses are all in use is kept, and another one is requested", async () => {
  const { ipam, source } = open(1, 60_000);
  const block = source.add("default");
  await ipam.collect({});
  for (const id of [1, 2]) await ipam.allocate("default", pod(id), {});
  const request = source.request.bind(source);
  source.owned.clear();
  await ipam.collect({});
  source.request = async (pool) => {
    if (!source.owned.has("anew")) source.owned.set("anew", { ...block, uid: "anew", name: "default-0b" });
    else await request(pool);
  };
  const got = await ipam.allocate("default", pod(3), {});
  assert.equal(got.block, "default-1");
  assert.equal(source.requests, 1);
});

test("NodeIpam: two blocks that overlap give out no address twice", async () => {
  const { ipam, source } = open(0, 60_000);
  source.add("default", { ipv4: Cidr.parse("10.9.0.0/30"), ipv6: undefined });
  source.add("default", { ipv4: Cidr.parse("10.9.0.0/31"), ipv6: undefined });
  source.add("other", { ipv4: Cidr.parse("10.9.0.2/31"), ipv6: undefined });
  await ipam.collect({});
  const got = new Set<string>();
  for (const id of [1, 2]) got.add(String((await ipam.allocate("other", pod(`o${id}`), {})).ipv4));
  for (const id of [1, 2]) got.add(String((await ipam.allocate("default", pod(id), {})).ipv4));
  assert.equal(got.size, 4);
  await assert.rejects(ipam.allocate("default", pod(3), {}), { code: "exhausted" });
  ipam.free(pod("o1"));
  assert.equal(String((await ipam.allocate("default", pod(3), {})).ipv4), "10.9.0.2");
});

test("NodeIpam: nothing of a pool is handed out or given back while addresses of a link cannot be read", async () => {
  const { ipam, source } = open(4);
  source.add("default");
  const unread = { ...pod("x"), pool: "default", addresses: [], ifindex: 7, hostName: "veth7" };
  ipam.remember([unread]);
  assert.equal(await ipam.collect({}), 0, "the block stays, empty as it looks");
  await assert.rejects(ipam.allocate("default", pod(1), {}), {
    code: "unreadable",
    message: /link veth7 of container cx/,
  });
  assert.equal((await ipam.allocate("other", pod(2), {})).pool, "other");
  assert.match(ipam.degradedReason ?? "", /pool default.*veth7/);
  ipam.remember([{ ...unread, addresses: [ip("10.0.0.1")] }]);
  assert.equal(ipam.degradedReason, undefined, "it can be read now");
  assert.equal(String((await ipam.allocate("default", pod(1), {})).ipv4), "10.0.0.0");
  ipam.remember([{ ...pod("y"), pool: "default", addresses: [], ifindex: 8 }]);
  ipam.free(pod("y"));
  assert.equal(ipam.degradedReason, undefined, "and this one was deleted");
});

test("NodeIpam: an address of an unowned link is not handed out before the link is gone", async () => {
  const { ipam, source } = open(0, 60_000);
  source.add("default", { ipv4: Cidr.parse("10.9.0.0/31"), ipv6: undefined });
  ipam.remember([], [{ ifindex: 5, addresses: [ip("10.9.0.0")] }]);
  await ipam.collect({});
  assert.equal(String((await ipam.allocate("default", pod(1), {})).ipv4), "10.9.0.1");
  await assert.rejects(ipam.allocate("default", pod(2), {}), { code: "exhausted" });
  ipam.remember([]);
  assert.equal(String((await ipam.allocate("default", pod(2), {})).ipv4), "10.9.0.0");
});

test("NodeIpam: where two links have one alias the addresses of both are taken", async () => {
  const { ipam, source } = open(0);
  source.add("default", { ipv4: Cidr.parse("10.9.0.0/30"), ipv6: undefined });
  const at = (last: number, ifindex: number) => ({
    ...pod("x"),
    pool: "default",
    addresses: [ip(`10.9.0.${last}`)],
    ifindex,
  });
  ipam.remember([at(0, 5), at(1, 6)]);
  await ipam.collect({});
  ipam.free(pod("x"));
  const got = [1, 2, 3].map(async (id) => String((await ipam.allocate("default", pod(id), {})).ipv4));
  assert.deepEqual((await Promise.all(got)).toSorted(), ["10.9.0.0", "10.9.0.2", "10.9.0.3"]);
  assert.deepEqual(
    ipam.snapshot().strays.map(({ ifindex }) => ifindex),
    [6],
  );
});

test("NodeIpam: an attachment whose block is not known keeps its addresses when it is added again", async () => {
  const { ipam } = open(4);
  ipam.remember([{ ...pod("x"), pool: "default", addresses: [ip("10.7.0.9"), ip("fd07::9")], ifindex: 3 }]);
  const got = await ipam.allocate("default", pod("x"), {});
  assert.deepEqual([String(got.ipv4), String(got.ipv6), got.block], ["10.7.0.9", "fd07::9", ""]);
});

test("NodeIpam: nothing is allocated while the Node is gone, and attachments keep their addresses", async () => {
  const { ipam } = open(4);
  const had = await ipam.allocate("default", pod(1), {});
  ipam.noteNode(false);
  assert.match(ipam.degradedReason ?? "", /Node is not in the cluster/);
  await assert.rejects(ipam.allocate("default", pod(2), {}), { code: "node-not-found" });
  assert.deepEqual(await ipam.allocate("default", pod(1), {}), had);
  ipam.noteNode(true);
  assert.equal((await ipam.allocate("default", pod(2), {})).block, had.block);
});

test("NodeIpam: a block that a watch says is gone is not used any more, and the blocks are compared at once", async () => {
  const { ipam, source, clock } = open(4);
  const had = await ipam.allocate("default", pod(1), {});
  const stop = new AbortController();
  const health = new Health({ clock });
  const running = ipam.run({ signal: stop.signal, health: health.part("ipam") });
  await clock.advance(0);
  const [block] = [...source.owned.values()];
  source.owned.clear();
  ipam.noteBlockGone(block?.uid ?? "");
  const next = await ipam.allocate("default", pod(2), {});
  assert.notEqual(next.block, had.block);
  for (let turn = 0; ipam.snapshot().stranded === 0 && turn < 200; turn += 1) await Promise.resolve();
  await clock.advance(0);
  assert.equal(ipam.snapshot().stranded, 1);
  const [part] = health.parts;
  assert.deepEqual(
    [part?.status, part?.reason],
    ["degraded", "the addresses of 1 attachments are in no block of this node"],
  );
  const anew = reincarnate(source, next.block, "anew");
  ipam.noteBlock(anew);
  for (let turn = 0; !ipam.blocks.some(({ uid }) => uid === "anew") && turn < 200; turn += 1) await Promise.resolve();
  assert.ok(ipam.blocks.some(({ uid }) => uid === "anew"));
  stop.abort();
  await running;
});

test("NodeIpam: a watch's events of this node's own writes cause no comparison", async () => {
  const { ipam, source } = open(4);
  let lists = 0;
  const list = source.list.bind(source);
  source.list = async (options) => {
    lists += 1;
    return list(options);
  };
  const clock = new FakeClock();
  const request = source.request.bind(source);
  source.request = async (pool) => {
    await request(pool);
    for (const block of source.owned.values()) ipam.noteBlock(block);
  };
  const release = source.release.bind(source);
  source.release = async (block) => {
    ipam.noteBlock({ ...block, deleting: true });
    await release(block);
    ipam.noteBlockGone(block.uid);
  };
  const stop = new AbortController();
  const running = ipam.run({ signal: stop.signal, health: new Health({ clock }).part("ipam") });
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 100; turn += 1) await Promise.resolve();
  };
  await turns();
  await ipam.allocate("default", pod(1), {});
  for (const block of source.owned.values()) ipam.noteBlock(block);
  await turns();
  assert.equal(lists, 2, "one at the start, one for the new block");
  ipam.free(pod(1));
  await turns();
  assert.equal(source.owned.size, 0);
  assert.equal(lists, 2);
  stop.abort();
  await running;
});

test("NodeIpam: blocks lost, replaced, shrunk and found again, and links misread, never put an address on two pods", async () => {
  const step = fc.record({
    op: fc.constantFrom("add", "add", "add", "del", "lose", "anew", "split", "collect", "restart", "survey", "hide"),
    id: fc.nat(9),
    at: fc.nat(9),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 80 }), async (steps) => {
      const source = new FakeSource(12);
      const clock = new FakeClock();
      const start = (): NodeIpam =>
        new NodeIpam(
          { source, log: nullLogger, clock, onBlocksChanged: () => undefined },
          { collectIntervalMs: 300_000, releaseDelayMs: 0 },
        );
      let ipam = start();
      let serial = 0;
      // The truth: what pods have. A hidden link lost its route, and the pod cannot be read either.
      const kernel = new Map<string, { addresses: IpAddress[]; ifindex: number; hidden: boolean }>();
      const lost: OwnedBlock[] = [];
      const survey = (): void =>
        ipam.remember(
          [...kernel].map(([containerId, { addresses, ifindex, hidden }]) => ({
            containerId,
            ifname: "eth0",
            pool: "default",
            addresses: hidden ? [] : addresses,
            ifindex,
          })),
        );
      for (const { op, id, at } of steps) {
        serial += 1;
        const { containerId } = pod(id);
        const block = [...source.owned.values()][at];
        if (op === "add") {
          const got = await ipam.allocate("default", pod(id), {}).catch(expected);
          const addresses = [got?.ipv4, got?.ipv6].filter((one) => one !== undefined);
          if (got !== undefined && !kernel.has(containerId)) {
            kernel.set(containerId, { addresses, ifindex: serial, hidden: false });
          }
        }
        if (op === "del") {
          kernel.delete(containerId);
          ipam.free(pod(id));
        }
        if (op === "lose" && block !== undefined) {
          source.owned.delete(block.uid);
          lost.push(block);
          if (at % 2 === 0) ipam.noteBlockGone(block.uid);
        }
        if (op === "anew") {
          const back = lost.pop();
          if (back !== undefined) source.owned.set(`u${serial}`, { ...back, uid: `u${serial}` });
        }
        if (op === "split") {
          const back = lost.pop();
          if (back?.ipv4 !== undefined) {
            const half = {
              ...back,
              ipv4: back.ipv4.subnet(32, at % Number(back.ipv4.size)),
              ipv6: undefined,
              uid: `u${serial}`,
            };
            source.owned.set(half.uid, half);
          }
        }
        if (op === "hide") for (const one of kernel.values()) one.hidden = id < 3 && !one.hidden;
        if (op === "survey") survey();
        if (op === "collect") await ipam.collect({});
        if (op === "restart") {
          ipam = start();
          survey();
          await ipam.collect({});
        }
        const used = [...kernel.values()].flatMap(({ addresses }) => addresses.map(String));
        assert.equal(new Set(used).size, used.length, `${op}: an address is on two pods: ${used.toSorted().join(" ")}`);
      }
      for (const containerId of kernel.keys()) ipam.free({ containerId, ifname: "eth0" });
      ipam.remember([]);
      await ipam.collect({});
      assert.equal(source.owned.size, 0, "every block went back");
      assert.deepEqual([ipam.snapshot().attachments, ipam.snapshot().stranded], [[], 0]);
    }),
    { numRuns: 150 },
  );
});

function expected(error: unknown): undefined {
  if (!(error instanceof IpamError)) throw error;
  return undefined;
}

test("NodeIpam: attachments of a block that is another node's are lost, and not any more once it is back", async () => {
  const { ipam, source } = open(1);
  assert.deepEqual(ipam.lost, []);
  const { ipv4, ipv6, block } = await ipam.allocate("default", pod(1), {});
  const [taken] = [...source.owned.values()];
  assert.ok(taken !== undefined);
  source.failing = "list";
  source.owned.clear();
  await assert.rejects(ipam.collect({}));
  assert.deepEqual(ipam.lost, [], "what cannot be asked is not concluded");
  source.failing = undefined;
  await ipam.collect({});
  assert.deepEqual(ipam.lost, [{ ...pod(1), block, addresses: [ipv4, ipv6] }]);
  source.owned.set(taken.uid, taken);
  await ipam.collect({});
  assert.deepEqual(ipam.lost, []);
});

test("NodeIpam: attachments found at the start are lost when no block of this node has their addresses, but not before all blocks were listed", async () => {
  const { ipam, source } = open(1);
  source.add("default");
  const addresses = [ip("10.9.9.9")];
  ipam.remember([
    { ...pod("x"), pool: "default", addresses, ifindex: 3 },
    { ...pod("y"), pool: "default", addresses: [ip("10.0.0.1")], ifindex: 4 },
    { ...pod("unreadable"), pool: "other", addresses: [], ifindex: 5 },
  ]);
  assert.deepEqual(ipam.lost, [], "blocks are not known yet");
  const isLost = (): (boolean | undefined)[] => ["x", "y", "unreadable"].map((id) => ipam.isLost(pod(id)));
  assert.deepEqual(isLost(), [undefined, undefined, undefined], "so what is cut off stays so");
  source.unreadable.add("default-0");
  await ipam.collect({});
  assert.deepEqual(isLost(), [undefined, undefined, undefined], "a block that cannot be read may be theirs");
  source.unreadable.clear();
  await ipam.collect({});
  assert.deepEqual(ipam.lost, [{ ...pod("x"), block: undefined, addresses }]);
  assert.deepEqual(isLost(), [true, false, undefined]);
});

test("NodeIpam: an edited, unreadable block of this node is not lost, and nothing is handed out of it", async () => {
  const { ipam, source } = open(1);
  await ipam.allocate("default", pod(1), {});
  source.unreadable.add("default-0");
  await ipam.collect({});
  ipam.remember([{ ...pod("x"), pool: "default", addresses: [ip("10.9.9.9")], ifindex: 3 }]);
  assert.deepEqual(ipam.lost, []);
  await assert.rejects(ipam.allocate("default", pod(2), {}), { code: "exhausted" });
  source.unreadable.clear();
  await ipam.collect({});
  assert.equal((await ipam.allocate("default", pod(2), {})).block, "default-0");
});

test("NodeIpam: a block whose pool's label was edited is this node's still, and its pods are not lost", async () => {
  const { ipam, source } = open(1);
  const { block } = await ipam.allocate("default", pod(1), {});
  await ipam.allocate("default", pod(2), {});
  const [before] = [...source.owned.values()];
  assert.ok(before !== undefined);
  source.owned.set(before.uid, { ...before, pool: "edited" });
  source.free = 1;
  assert.notEqual((await ipam.allocate("default", pod(3), {})).block, block, "which lists blocks once more");
  assert.deepEqual(ipam.lost, []);
  assert.deepEqual([ipam.isLost(pod(1)), ipam.isLost(pod(2))], [false, false]);
});

for (const isGone of [true, false]) {
  const what = isGone ? "gone" : "there again";
  test(`NodeIpam: an older list that ends after a newer one changes nothing: the block is ${what}`, async () => {
    const { ipam, source } = open(1);
    await ipam.allocate("default", pod(1), {});
    const [block] = [...source.owned.values()];
    assert.ok(block !== undefined);
    const slow = new Deferred();
    const list = source.list.bind(source);
    source.list = async (options) => {
      source.list = list;
      const found = await list(options);
      await slow.promise;
      return found;
    };
    if (!isGone) source.owned.clear();
    const older = ipam.collect({});
    for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
    if (isGone) source.owned.clear();
    else source.owned.set(block.uid, block);
    await ipam.collect({});
    slow.resolve();
    await older;
    assert.deepEqual([ipam.isLost(pod(1)), ipam.blocks.length], isGone ? [true, 0] : [false, 1]);
  });
}

test("NodeIpam: an empty block that is gone by a newer list does not come back by an older one", async () => {
  const { ipam, source } = open(0, 60_000);
  source.add("default");
  await ipam.collect({});
  const slow = new Deferred();
  const list = source.list.bind(source);
  source.list = async (options) => {
    source.list = list;
    const found = await list(options);
    await slow.promise;
    return found;
  };
  const older = ipam.collect({});
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  source.owned.clear();
  await ipam.collect({});
  slow.resolve();
  await older;
  assert.deepEqual(ipam.blocks, []);
});

test("NodeIpam: a repeated ADD of an attachment that is lost gets no address, and its addresses stay taken", async () => {
  const { ipam, source } = open(1);
  await ipam.allocate("default", pod(1), {});
  const had = [...source.owned.values()];
  source.owned.clear();
  await ipam.collect({});
  await assert.rejects(ipam.allocate("default", pod(1), {}), { code: "lost", message: /container c1.*10\.0\.0\.0/ });
  assert.equal(ipam.lost.length, 1);
  for (const block of had) source.owned.set(block.uid, block);
  await ipam.collect({});
  assert.equal(String((await ipam.allocate("default", pod(1), {})).ipv4), "10.0.0.0");
});

for (const { what, pass } of [
  { what: "30 s without a comparison", pass: (clock: FakeClock) => clock.advance(30_000) },
  { what: "ten minutes in which the machine was suspended", pass: async (clock: FakeClock) => clock.jumpWall(600_000) },
]) {
  test(`NodeIpam: after ${what} an ADD gets no address before the blocks were compared`, async () => {
    const { ipam, source, clock } = open(2);
    const first = await ipam.allocate("default", pod(1), {});
    const [block] = source.owned.values();
    assert.ok(block !== undefined);
    // It went to another node, and no watch has told it yet.
    source.owned.delete(block.uid);
    const early = await ipam.allocate("default", pod(2), {});
    assert.ok(block.ipv4?.contains(early.ipv4 ?? assert.fail()), "nothing shows it yet");
    ipam.free(pod(2));
    await pass(clock);
    source.failing = "list";
    await assert.rejects(ipam.allocate("default", pod(3), {}), { code: "api-unavailable" });
    source.failing = undefined;
    const late = await ipam.allocate("default", pod(3), {});
    assert.ok(!block.ipv4?.contains(late.ipv4 ?? assert.fail()), String(late.ipv4));
    assert.ok(block.ipv4?.contains(first.ipv4 ?? assert.fail()));
    // Once it is known nothing is compared again.
    source.failing = "list";
    await ipam.allocate("default", pod(4), {});
  });
}

test("NodeIpam: the wall clock may be set back, or by a few seconds, and costs no comparison", async () => {
  const { ipam, source, clock } = open(2);
  await ipam.allocate("default", pod(1), {});
  source.failing = "list";
  clock.jumpWall(4000);
  await ipam.allocate("default", pod(2), {});
  ipam.free(pod(2));
  clock.jumpWall(-600_000);
  await ipam.allocate("default", pod(3), {});
});

test("NodeIpam: a comparison that began before the machine was suspended does not count after it", async () => {
  const { ipam, source, clock } = open(2);
  await ipam.allocate("default", pod(1), {});
  const [block] = source.owned.values();
  await clock.advance(30_000);
  const before = await source.list({});
  const answer = Promise.withResolvers<void>();
  const list = source.list.bind(source);
  source.list = async () => {
    source.list = list;
    await answer.promise;
    return before;
  };
  const waiting = ipam.allocate("default", pod(2), {});
  source.owned.clear();
  clock.jumpWall(600_000);
  answer.resolve();
  const { ipv4 } = await waiting;
  assert.ok(!block?.ipv4?.contains(ipv4 ?? assert.fail()), String(ipv4));
});
