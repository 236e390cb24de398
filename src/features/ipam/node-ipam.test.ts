import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { IpamError } from "./errors.ts";
import { NodeIpam } from "./node-ipam.ts";
import { open, pod } from "./testing/fake-source.ts";

test("NodeIpam: both families have the same offset; an attachment keeps its addresses", async () => {
  const { ipam } = open(4);
  const first = await ipam.allocate("default", pod(1), {});
  assert.deepEqual([`${first.ipv4}`, `${first.ipv6}`], ["10.0.0.0", "fd00::"]);
  assert.deepEqual(await ipam.allocate("default", pod(1), {}), first);
  assert.deepEqual(await ipam.allocate("other", pod(1), {}), first);
});

test("NodeIpam: waiting ADDs share one request; blocks are requested until all have an address", async () => {
  const { ipam, source } = open(50);
  const all = await Promise.all(Array.from({ length: 40 }, (_, at) => ipam.allocate("default", pod(at), {})));
  assert.equal(new Set(all.map((one) => String(one.ipv4))).size, 40);
  assert.equal(source.requests, 20, "each block of two was asked for once");
});

test("NodeIpam: the time for which an ADD waits for a block is reported, also when it gets none; other ADDs report nothing", async () => {
  const waits: number[] = [];
  const { ipam } = open(1, 0, 0, (seconds) => waits.push(seconds));
  await ipam.allocate("default", pod(1), {});
  assert.equal(waits.length, 1);
  await ipam.allocate("default", pod(2), {});
  assert.equal(waits.length, 1);
  await assert.rejects(ipam.allocate("default", pod(3), {}), { code: "exhausted" });
  assert.equal(waits.length, 2);
  assert.ok(waits.every((seconds) => seconds >= 0));
});

test("NodeIpam: an exhausted pool fails at once and works again after a free", async () => {
  const { ipam } = open(1);
  await ipam.allocate("default", pod(1), {});
  await ipam.allocate("default", pod(2), {});
  await assert.rejects(ipam.allocate("default", pod(3), {}), { code: "exhausted" });
  ipam.free(pod(1));
  assert.equal(String((await ipam.allocate("default", pod(3), {})).ipv4), "10.0.0.0");
});

test("NodeIpam: a caller that gives up does not end the request that others wait for", async () => {
  const { ipam } = open(4);
  const controller = new AbortController();
  const impatient = ipam.allocate("default", pod(1), { signal: controller.signal });
  const patient = ipam.allocate("default", pod(2), {});
  controller.abort(new DOMException("gone", "AbortError"));
  await assert.rejects(impatient, { name: "AbortError" });
  assert.equal(String((await patient).ipv4), "10.0.0.0");
  assert.equal(ipam.assigned(pod(1)), undefined, "nothing leaks");
});

test("NodeIpam: restored attachments keep their addresses, and the most recent one decides the next address", async () => {
  const { ipam, source } = open(0);
  const block = source.add("default", { ipv4: Cidr.parse("10.9.0.0/30"), ipv6: undefined });
  const at = (offset: number): IpAddress[] => [block.ipv4?.at(offset) ?? assert.fail()];
  ipam.remember([
    { ...pod("b"), pool: "default", addresses: at(2), ifindex: 9 },
    { ...pod("a"), pool: "default", addresses: at(0), ifindex: 5 },
  ]);
  await ipam.collect({});
  assert.equal(String(ipam.assigned(pod("a"))?.ipv4), "10.9.0.0");
  assert.equal(String((await ipam.allocate("default", pod("c"), {})).ipv4), "10.9.0.3");
  assert.equal(String((await ipam.allocate("default", pod("d"), {})).ipv4), "10.9.0.1");
});

test("NodeIpam: an address in no block is counted, never handed out, and claimed once its block appears", async () => {
  const { ipam, source } = open(0);
  ipam.remember([{ ...pod("x"), pool: "default", addresses: [IpAddress.parse("10.0.0.1")], ifindex: 3 }]);
  await ipam.collect({});
  assert.equal(ipam.snapshot().unknown.length, 1);
  source.add("default", { ipv6: undefined });
  await ipam.collect({});
  assert.equal(ipam.snapshot().unknown.length, 0);
  assert.equal(String((await ipam.allocate("default", pod("y"), {})).ipv4), "10.0.0.0");
  await assert.rejects(ipam.allocate("default", pod("z"), {}), { code: "exhausted" });
});

test("NodeIpam: reserved, deleting and vanished blocks are not allocated from", async () => {
  const { ipam, source } = open(1);
  source.add("default", { reserved: true });
  const dying = source.add("default", { deleting: true });
  await ipam.collect({});
  const got = await ipam.allocate("default", pod(1), {});
  assert.equal(got.block, "default-2");
  source.owned.delete("uid-2");
  await ipam.collect({});
  const state = ipam.snapshot().blocks;
  assert.equal(state.find((block) => block.name === "default-2")?.missing, true, "in use: kept and marked");
  assert.equal(
    ipam.blocks.some((block) => block.name === "default-2"),
    false,
    "and not exported",
  );
  assert.equal(dying.deleting, true);
});

test("NodeIpam: a block whose release was done but not answered is not used again: it may be another node's", async () => {
  const { ipam, source } = open(3);
  await ipam.allocate("default", pod(1), {});
  ipam.free(pod(1));
  source.release = async (block) => {
    source.owned.delete(block.uid);
    throw new IpamError("api-unavailable", "the answer was lost");
  };
  await assert.rejects(ipam.collect({}), { code: "api-unavailable" });
  assert.equal((await ipam.allocate("default", pod(2), {})).block, "default-1");
});

test("NodeIpam: one block that cannot be given back does not keep the others", async () => {
  const { ipam, source } = open(3);
  for (const id of [1, 2, 3]) await ipam.allocate("default", pod(id), {});
  for (const id of [1, 2, 3]) ipam.free(pod(id));
  const release = source.release.bind(source);
  source.release = async (block) => {
    if (block.name === "default-0") throw new IpamError("api-unavailable", "injected");
    await release(block);
  };
  await assert.rejects(ipam.collect({}), { code: "api-unavailable" });
  assert.deepEqual(
    [...source.owned.values()].map((block) => block.name),
    ["default-0"],
  );
  source.release = release;
  assert.equal(await ipam.collect({}), 1);
});

test("NodeIpam: empty blocks go back; one whose release failed is used before another is requested; reserved ones stay", async () => {
  const { ipam, source } = open(2);
  source.add("default", { reserved: true });
  await ipam.allocate("default", pod(1), {});
  ipam.free(pod(1));
  source.failing = "release";
  for (const id of [2, 3, 4]) {
    await assert.rejects(ipam.collect({}), { code: "api-unavailable" });
    assert.equal((await ipam.allocate("default", pod(id), {})).block, "default-1");
    ipam.free(pod(id));
  }
  assert.equal(source.requests, 1, "writes that fail take no more blocks");
  source.failing = undefined;
  assert.equal(await ipam.collect({}), 1);
  assert.deepEqual(
    [...source.owned.values()].map((block) => block.name),
    ["default-0"],
  );
});

test("NodeIpam: while another machine may have pods in them no empty block goes back; when it may not, they go at once", async () => {
  let mayRelease = false;
  const { ipam, source, clock } = open(2, 0, 0, undefined, () => mayRelease);
  for (let at = 0; at < 3; at += 1) source.add("default");
  const stop = new AbortController();
  const running = ipam.run({ signal: stop.signal, health: new Health().part("ipam") });
  await clock.advance(600_000);
  assert.equal(source.owned.size, 3);
  assert.equal((await ipam.allocate("default", pod(1), {})).block, "default-0", "they can be used");
  mayRelease = true;
  ipam.noteMayRelease();
  await clock.advance(1);
  assert.equal(source.owned.size, 1);
  stop.abort();
  await running;
});

test("NodeIpam: a new block is not given back before the ADD that waits for it has its address", async () => {
  const { ipam, source } = open(4);
  const settled = Promise.withResolvers<void>();
  source.settle = () => settled.promise;
  const adding = ipam.allocate("default", pod(1), {});
  for (let turn = 0; ipam.blocks.length === 0 && turn < 100; turn += 1) await Promise.resolve();
  assert.equal(ipam.blocks.length, 1);
  // Meanwhile another pod has gone, and empty blocks are looked for.
  assert.equal(await ipam.collect({}), 0);
  settled.resolve();
  assert.equal(String((await adding).ipv4), "10.0.0.0");
  assert.equal(source.requests, 1);
  ipam.free(pod(1));
  assert.equal(await ipam.collect({}), 1);
});

test("NodeIpam: a block whose allotment was not answered is found without waiting for the next comparison", async () => {
  const { ipam, source, clock } = open(4);
  await ipam.collect({});
  const request = source.request.bind(source);
  source.request = async (pool) => {
    await request(pool);
    throw new IpamError("api-unavailable", "injected: the answer was lost");
  };
  await assert.rejects(ipam.allocate("default", pod(1), {}), { code: "api-unavailable" });
  assert.equal(source.owned.size, 1);
  const stop = new AbortController();
  const health = new Health({ clock }).part("ipam");
  const running = ipam.run({ signal: stop.signal, health });
  for (let turn = 0; ipam.blocks.length + source.owned.size > 0 && turn < 200; turn += 1) await Promise.resolve();
  assert.deepEqual([source.owned.size, ipam.blocks.length], [0, 0]);
  stop.abort();
  await running.catch((error: unknown) => assert.equal(error, stop.signal.reason));
});

test("NodeIpam: with a release delay an empty block stays for reuse", async () => {
  const { ipam, clock, source } = open(1, 60_000);
  await ipam.allocate("default", pod(1), {});
  ipam.free(pod(1));
  assert.equal(await ipam.collect({}), 0);
  await clock.advance(60_000);
  assert.equal(await ipam.collect({}), 1);
  assert.equal(source.owned.size, 0);
});

test("NodeIpam: the fullest block is used first", async () => {
  // With a release delay, for collecting would give the two empty blocks back.
  const { ipam, source } = open(0, 60_000);
  source.add("default", { ipv4: Cidr.parse("10.1.0.0/29"), ipv6: undefined });
  source.add("default", { ipv4: Cidr.parse("10.2.0.0/30"), ipv6: undefined });
  await ipam.collect({});
  const order: string[] = [];
  for (let at = 0; at < 5; at += 1) order.push((await ipam.allocate("default", pod(at), {})).block);
  // The fullest is the one with the fewest free addresses.
  assert.deepEqual(order, ["default-1", "default-1", "default-1", "default-1", "default-0"]);
});

test("NodeIpam: of equally full blocks the one with the lowest index is used, and a lightly used one drains", async () => {
  const { ipam, source } = open(0, 60_000);
  source.add("default");
  source.add("default");
  await ipam.collect({});
  const add = async (id: number): Promise<string> => (await ipam.allocate("default", pod(id), {})).block;
  assert.deepEqual([await add(0), await add(1), await add(2), await add(3)].toSorted(), [
    "default-0",
    "default-0",
    "default-1",
    "default-1",
  ]);
  for (const id of [0, 1, 2]) ipam.free(pod(id));
  assert.equal(await add(4), "default-1", "the block in use before the empty one");
  assert.equal(await add(5), "default-0");
});

test("NodeIpam: random ADD, DEL, collect, API faults and restarts never share or lose an address", async () => {
  const step = fc.record({
    op: fc.constantFrom("add", "del", "collect", "fail", "heal", "restart"),
    id: fc.nat(12),
    fault: fc.constantFrom("list" as const, "request" as const, "release" as const),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 80 }), async (steps) => {
      const { source } = open(5);
      const start = (): NodeIpam =>
        new NodeIpam(
          { source, log: nullLogger, clock: new FakeClock(), onBlocksChanged: () => undefined },
          { collectIntervalMs: 300_000, releaseDelayMs: 0, freedSoonMs: 0 },
        );
      let ipam = start();
      // What the kernel would have: the truth that survives a restart.
      const kernel = new Map<string, { pool: string; addresses: IpAddress[]; ifindex: number }>();
      let ifindex = 0;
      for (const { op, id, fault } of steps) {
        const attachment = pod(id);
        if (op === "fail") source.failing = fault;
        if (op === "heal") source.failing = undefined;
        if (op === "collect") await ipam.collect({}).catch(expected);
        if (op === "del") {
          kernel.delete(attachment.containerId);
          ipam.free(attachment);
        }
        if (op === "add") {
          const got = await ipam.allocate("default", attachment, {}).catch(expected);
          if (got !== undefined && !kernel.has(attachment.containerId)) {
            ifindex += 1;
            kernel.set(attachment.containerId, {
              pool: "default",
              addresses: [got.ipv4, got.ipv6].filter((ip) => ip !== undefined),
              ifindex,
            });
          }
        }
        if (op === "restart") {
          source.failing = undefined;
          ipam = start();
          ipam.remember([...kernel].map(([containerId, rest]) => ({ containerId, ifname: "eth0", ...rest })));
          await ipam.collect({});
        }
        const used = [...kernel.values()].flatMap(({ addresses }) => addresses.map(String));
        assert.equal(new Set(used).size, used.length, "no address twice");
        for (const [containerId, { addresses }] of kernel) {
          const own = ipam.assigned({ containerId, ifname: "eth0" });
          assert.deepEqual([own?.ipv4, own?.ipv6].filter((ip) => ip !== undefined).map(String), addresses.map(String));
        }
      }
      source.failing = undefined;
      for (const containerId of kernel.keys()) ipam.free({ containerId, ifname: "eth0" });
      await ipam.collect({});
      assert.equal(source.owned.size, 0, "every block went back");
      assert.deepEqual(ipam.snapshot().attachments, []);
    }),
    { numRuns: 60 },
  );
});

function expected(error: unknown): undefined {
  if (!(error instanceof IpamError)) throw error;
  return undefined;
}

test("NodeIpam: while a block is being given back, an ADD waits for that and requests another only then", async () => {
  const { ipam, source } = open(1);
  await ipam.allocate("default", pod(1), {});
  ipam.free(pod(1));
  const release = source.release.bind(source);
  const hold = Promise.withResolvers<void>();
  source.release = async (block) => {
    await hold.promise;
    await release(block);
  };
  const collecting = ipam.collect({});
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  const adding = ipam.allocate("default", pod(2), {});
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  assert.equal(source.requests, 1, "the pool's only block is on its way back");
  hold.resolve();
  assert.equal((await adding).block, "default-1");
  assert.equal(await collecting, 1);
});

/** A node of 20 empty blocks, whose returns take a second each: 20 pods have ended together. */
async function openEmpty() {
  const { ipam, source, clock } = open(0);
  for (let at = 0; at < 20; at += 1) source.add("default");
  const release = source.release.bind(source);
  source.release = async (block) => {
    await new Promise<void>((resolve) => void clock.after(1000, resolve));
    await release(block);
  };
  const controller = new AbortController();
  const health = new Health({ log: nullLogger }).part("ipam");
  const running = ipam.run({ signal: controller.signal, health });
  await clock.advance(1500);
  assert.equal(source.owned.size, 19, "the second one is on its way back");
  const end = async (): Promise<void> => {
    controller.abort();
    await clock.advance(1000);
    await running;
  };
  return { ipam, source, clock, end };
}

test("NodeIpam: while many blocks are given back, an ADD has an address of those that are there still, at once", async () => {
  const { ipam, source, clock, end } = await openEmpty();
  let got = "";
  const adding = ipam.allocate("default", pod(1), {}).then(({ block }) => {
    got = block;
  });
  await clock.advance(1);
  assert.match(got, /^default-/);
  await adding;
  assert.equal(source.requests, 0);
  await clock.advance(60_000);
  assert.deepEqual(
    [...source.owned.values()].map(({ name }) => name),
    [got],
    "the others go back",
  );
  await end();
});

test("NodeIpam: while many blocks are given back, a comparison that is due waits for one of them alone", async () => {
  const { ipam, source, clock, end } = await openEmpty();
  const list = source.list.bind(source);
  let lists = 0;
  source.list = (options) => {
    lists += 1;
    return list(options);
  };
  ipam.noteApiReturn();
  await clock.advance(1000);
  assert.equal(lists, 1);
  await clock.advance(60_000);
  assert.equal(source.owned.size, 0);
  await end();
});

test("NodeIpam: empty blocks are returned although answered requests cannot be removed, and these are tried again with the next comparison", async () => {
  const { ipam, source, clock } = open(5);
  source.add("default");
  let tries = 0;
  source.removeAnswered = async () => {
    tries += 1;
    throw new IpamError("api-unavailable", "injected: removeAnswered");
  };
  const told: string[] = [];
  const health = { ok: () => told.push("ok"), degraded: (error: unknown) => told.push(String(error)) };
  const controller = new AbortController();
  const running = ipam.run({ signal: controller.signal, health });
  await clock.advance(1);
  assert.equal(source.owned.size, 0);
  assert.match(told.join(), /^IpamError: injected: removeAnswered$/);
  for (let at = 0; at < 10; at += 1) {
    await ipam.allocate("default", pod(at), {});
    ipam.free(pod(at));
    await clock.advance(1000);
    assert.equal(source.owned.size, 0);
  }
  assert.equal(tries, 1, "the requests of all nodes are not listed after each DEL");
  await clock.advance(300_000);
  assert.equal(tries, 2);
  controller.abort();
  await running;
});

test("NodeIpam: in a full pool an ADD has the address that a DEL frees within 100 ms", async () => {
  const { ipam, clock } = open(1, 0, 100);
  await ipam.allocate("default", pod(1), {});
  const first = await ipam.allocate("default", pod(2), {});
  const adding = ipam.allocate("default", pod(3), {});
  await clock.advance(99);
  ipam.free(pod(2));
  assert.equal(String((await adding).ipv4), String(first.ipv4));
  const another = ipam.allocate("default", pod(4), {});
  another.catch(() => undefined);
  await clock.advance(100);
  await assert.rejects(another, { code: "exhausted" });
});

test("NodeIpam: an attachment whose link has gone without a DEL is freed after a grace; one whose ADD goes on is not", async () => {
  const { ipam, clock } = open(2, 60_000);
  await ipam.allocate("default", pod(1), {});
  const { ipv4 } = await ipam.allocate("default", pod(2), {});
  ipam.settle(pod(2));
  const kept = { ...pod(1), pool: "default", addresses: [], ifindex: 3 };
  ipam.remember([]);
  await clock.advance(60_000);
  ipam.remember([]);
  assert.equal(ipam.assigned(pod(2)), undefined);
  assert.notEqual(ipam.assigned(pod(1)), undefined, "its ADD has not ended");
  assert.equal(String((await ipam.allocate("default", pod(3), {})).ipv4), String(ipv4), "the one that was freed");
  ipam.settle(pod(1));
  ipam.remember([]);
  await clock.advance(4999);
  ipam.remember([kept]);
  await clock.advance(4999);
  ipam.remember([]);
  assert.notEqual(ipam.assigned(pod(1)), undefined, "its link was seen in between");
  await clock.advance(5000);
  ipam.remember([]);
  assert.equal(ipam.assigned(pod(1)), undefined);
});

test("NodeIpam: an attachment keeps its addresses while it has a link, though its pod took them off or its ADD was not undone", async () => {
  const { ipam, clock } = open(1);
  const had = await ipam.allocate("default", pod(1), {});
  ipam.settle(pod(1));
  ipam.remember([{ ...pod("x"), pool: "default", addresses: [IpAddress.parse("10.9.9.9")], ifindex: 3 }]);
  for (let look = 0; look < 3; look += 1) {
    ipam.remember([], [], [pod(1), pod("x")]);
    await clock.advance(60_000);
  }
  assert.deepEqual(ipam.assigned(pod(1)), had);
  assert.deepEqual(
    ipam.snapshot().unknown.map(({ addresses }) => addresses),
    [["10.9.9.9"]],
  );
  ipam.remember([]);
  await clock.advance(60_000);
  ipam.remember([]);
  assert.equal(ipam.assigned(pod(1)), undefined);
});

test("NodeIpam: an attachment whose ADD is repeated is not freed while its link is being made anew", async () => {
  const { ipam, clock } = open(1);
  const had = await ipam.allocate("default", pod(1), {});
  ipam.settle(pod(1));
  ipam.remember([]);
  assert.deepEqual(await ipam.allocate("default", pod(1), {}), had);
  await clock.advance(60_000);
  ipam.remember([]);
  assert.deepEqual(ipam.assigned(pod(1)), had);
});
