import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Bed } from "../testing/bed.ts";
import { type Backend, Backends } from "./backends.ts";
import { type Candidate, choose, type Strategy } from "./strategies.ts";

const AGENTS = {
  four: "ipv4=10.0.0.1&host=Node1.example.",
  six: "ipv6=2001%3Adb8%3A%3A1",
  route: "default-route=true&cidr=10.0.0.0%2F8",
  plain: "",
};

/** Streams of agents with identifiers, each the backend that a server made of it. */
async function streams(bed: Bed, identifiers: Readonly<Record<string, string>>): Promise<Map<string, Backend>> {
  for (const [id, text] of Object.entries(identifiers)) await bed.agent(id, text);
  return new Map(bed.proxy.backends.all.map((backend) => [backend.agentID, backend]));
}

function backendsOf(strategies: readonly Strategy[], all: Iterable<Backend>, random?: () => number): Backends {
  const backends = new Backends(strategies, random === undefined ? {} : { random });
  for (const backend of all) backends.add(backend);
  return backends;
}

test("Backends: each strategy has its agents, and the next one is used if it has none; hosts are compared in one form", async () => {
  await using bed = await Bed.open();
  const all = [...(await streams(bed, AGENTS)).values()];
  const picked = (strategies: readonly Strategy[], address: string): string | undefined =>
    backendsOf(strategies, all).pick(address)?.agentID;
  const cases: readonly (readonly [string, string | undefined])[] = [
    ["10.0.0.1:10250", "four"],
    ["node1.example:443", "four"],
    ["NODE1.Example.:443", "four"],
    ["[2001:DB8:0:0::1]:10250", "six"],
    ["10.0.0.2:10250", undefined],
    ["[2001:db8::2]:1", undefined],
    ["node1:443", undefined],
    ["no address", undefined],
  ];
  for (const [address, agent] of cases) {
    assert.equal(picked(["destHost"], address), agent, address);
    assert.equal(picked(["destHost", "defaultRoute"], address), agent ?? "route", address);
  }
  assert.equal(picked(["defaultRoute"], "10.0.0.1:10250"), "route");
  const some = new Set(Array.from({ length: 200 }, () => picked(["default"], "10.0.0.2:1")));
  assert.deepEqual([...some].toSorted(), ["four", "plain", "route", "six"]);
  const counts = (["default", "destHost", "defaultRoute"] as const).map((one) => backendsOf([one], all).count(one));
  // An agent with an address and a name counts as two hosts.
  assert.deepEqual(counts, [4, 3, 1]);
  const withoutIdentifiers = all.filter(({ agentID }) => agentID === "plain");
  assert.equal(backendsOf(["destHost", "default"], withoutIdentifiers).isReady, false);
  assert.equal(backendsOf(["default", "destHost"], withoutIdentifiers).isReady, true);
});

test("Backends: an agent that drains gets dials only if its strategy has no other", async () => {
  await using bed = await Bed.open();
  const found = await streams(bed, { a: "host=x", b: "host=x", c: "default-route=true" });
  const backends = backendsOf(["destHost", "defaultRoute"], found.values());
  const picks = (): Set<string | undefined> => new Set(Array.from({ length: 50 }, () => backends.pick("x:1")?.agentID));
  const drain = (id: string): void => {
    const backend = found.get(id);
    assert.ok(backend !== undefined);
    backend.isDraining = true;
  };
  assert.deepEqual(picks(), new Set(["a", "b"]));
  drain("a");
  assert.deepEqual(picks(), new Set(["b"]));
  drain("b");
  assert.deepEqual(picks(), new Set(["a", "b"]), "not another strategy's agent, as in Konnectivity");
});

test("Backends: of several streams of an agent the oldest live one is used, and only the given one is removed", async () => {
  await using bed = await Bed.open();
  const links = [await bed.agent("a"), await bed.agent("a")];
  const [first, second] = bed.proxy.backends.all;
  assert.ok(first !== undefined && second !== undefined);
  const backends = backendsOf(["default"], [first, second]);
  assert.equal(backends.count("default"), 1, "an agent counts once");
  assert.equal(backends.pick("x:1"), first);
  first.isDraining = true;
  assert.equal(backends.pick("x:1"), second);
  first.isDraining = false;
  backends.remove(second);
  backends.remove(second);
  assert.equal(backends.pick("x:1"), first);
  backends.remove(first);
  assert.equal(backends.pick("x:1"), undefined);
  assert.equal(links.length, 2);
});

test("choose: the less loaded of two that are drawn, and none that drains while others do not", () => {
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const candidate = fc.record({ identifiers: fc.constant(identifiers), load: fc.nat(50), isDraining: fc.boolean() });
  fc.assert(
    fc.property(
      fc.array(candidate, { maxLength: 8 }),
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (all, at) => {
        const draws = [at, (at * 7919) % 1];
        const chosen: Candidate | undefined = choose(all, () => draws.shift() ?? 0);
        assert.equal(chosen === undefined, all.length === 0);
        if (chosen?.isDraining === true) assert.ok(all.every(({ isDraining }) => isDraining));
      },
    ),
  );
  const [idle, busy] = [0, 9].map((load) => ({ identifiers, load, isDraining: false }));
  assert.ok(idle !== undefined && busy !== undefined);
  for (const order of [
    [0, 0.9],
    [0.9, 0],
  ]) {
    const draws = [...order];
    assert.equal(
      choose([idle, busy], () => draws.shift() ?? 0),
      idle,
    );
  }
});
