import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { connectServer } from "../agent/connect-server.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { Bed } from "../testing/bed.ts";
import { FakePulse } from "../testing/fake-pulse.ts";
import { Backend, Backends } from "./backends.ts";
import { type Candidate, choose, rankOf, type Strategy } from "./strategies.ts";

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
    ["[::ffff:10.0.0.1]:10250", "four"],
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

test("Backends: 100 agents that claim a host later get none of 40 dials to it while its first agent serves", async () => {
  await using bed = await Bed.open();
  const late = Array.from({ length: 100 }, (_, index) => [`late${index}`, "ipv4=10.0.0.1"] as const);
  const all = [...(await streams(bed, { good: "ipv4=10.0.0.1", ...Object.fromEntries(late) })).values()];
  const backends = backendsOf(["destHost", "default"], all);
  const picked = Array.from({ length: 40 }, () => backends.pick("10.0.0.1:10250")?.agentID);
  assert.deepEqual(new Set(picked), new Set(["good"]));
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
  assert.deepEqual(picks(), new Set(["a"]));
  drain("a");
  assert.deepEqual(picks(), new Set(["b"]));
  drain("b");
  assert.deepEqual(picks(), new Set(["a"]), "not another strategy's agent, as in Konnectivity");
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

test("serveAgentStream: a further stream of an agent that lives for a second makes the server ask its earlier one, and no other does", async () => {
  const clock = new FakeClock();
  await using bed = await Bed.open({ clock });
  await bed.agent("a");
  const [first] = bed.proxy.backends.all;
  assert.ok(first !== undefined);
  await clock.advance(10_000);
  const before = first.pulse.bytesRead;
  // An agent that meets a server for the second time ends the stream at once.
  const second = await bed.agent("a");
  second.mux.destroy({ code: 1, message: "it has one" });
  while (bed.proxy.backends.streamsOf("a") > 1) await new Promise((resolve) => setImmediate(resolve));
  await bed.agent("b");
  await clock.advance(10_000);
  assert.deepEqual([first.isInDoubt, first.pulse.bytesRead], [false, before]);
  await bed.agent("a");
  await clock.advance(999);
  assert.equal(first.isInDoubt, false);
  await clock.advance(1);
  while (first.isInDoubt) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(first.pulse.bytesRead > before, "it has answered a PING");
});

test("choose: the less loaded of two that are drawn, and none that drains or is in doubt while others are not", () => {
  const candidate = fc.record({ load: fc.nat(50), isDraining: fc.boolean(), isInDoubt: fc.boolean() });
  fc.assert(
    fc.property(
      fc.array(candidate, { maxLength: 8 }),
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (all, at) => {
        const draws = [at, (at * 7919) % 1];
        const chosen: Candidate | undefined = choose(all, () => draws.shift() ?? 0);
        assert.equal(chosen === undefined, all.length === 0);
        if (chosen !== undefined) assert.ok(all.every((each) => rankOf(each) >= rankOf(chosen)));
      },
    ),
  );
  const [idle, busy] = [0, 9].map((load) => ({ load, isDraining: false, isInDoubt: false }));
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

/** A stream of an agent; `reads` counts how often its load or state was looked at. */
function fakeBackend(
  agentID: string,
  identifiers: Partial<Backend["identifiers"]>,
  state: { isClosed: boolean; reads: number } = { isClosed: false, reads: 0 },
  admission?: ConstructorParameters<typeof Backend>[0]["admission"],
): Backend {
  const mux = {
    get connections(): number {
      state.reads += 1;
      return 0;
    },
    pendingDials: 0,
    get isClosed(): boolean {
      state.reads += 1;
      return state.isClosed;
    },
  };
  const none = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const pulse = new FakePulse();
  const said = { agentID, identifiers: { ...none, ...identifiers } };
  return new Backend({ ...said, mux: mux as unknown as LinkMux, pulse, admission });
}

/** The agents that a strategy allows, as docs/spec/tunnel.md#7.1 says it: by looking at all. */
function allowed(streams: readonly Backend[], strategy: Strategy, host: string): Backend[] {
  const ids = [...new Set(streams.map(({ agentID }) => agentID))];
  const live = ids.flatMap((id) => {
    const usable = streams.filter(({ agentID, mux }) => agentID === id && !mux.isClosed);
    const ranked = [0, 1, 2].map((rank) => usable.find((stream) => rankOf(stream) === rank));
    return ranked.find((stream) => stream !== undefined) ?? [];
  });
  if (strategy === "default") return live;
  return live.filter(({ identifiers: { defaultRoute }, hosts }) =>
    strategy === "defaultRoute" ? defaultRoute : hosts.has(host),
  );
}

test("Backends: whatever comes, drains, is in doubt, closes and goes, the choice is one of those that a look at all finds", () => {
  const hosts = ["a", "b", "10.0.0.1"];
  const kind = fc.constantFrom(
    "add",
    "add",
    "add",
    "remove",
    "drain",
    "doubt",
    "close",
    "hosts",
    "pick",
    "pick",
    "pick",
  );
  const step = fc.record({ kind, id: fc.nat(4), at: fc.nat(50), host: fc.constantFrom(...hosts), flag: fc.boolean() });
  const strategies = fc.uniqueArray(fc.constantFrom<Strategy>("default", "destHost", "defaultRoute"), { minLength: 1 });
  fc.assert(
    fc.property(
      strategies,
      fc.array(step, { maxLength: 60 }),
      fc.integer({ min: 1, max: 1e6 }),
      (order, steps, seed) => {
        let state = seed;
        const random = (): number => {
          state = (state * 48_271) % 2_147_483_647;
          return state / 2_147_483_647;
        };
        const backends = new Backends(order, { random });
        const streams: Backend[] = [];
        const states = new Map<Backend, { isClosed: boolean; reads: number }>();
        for (const { kind: what, id, at, host, flag } of steps) {
          const one = streams[at % Math.max(1, streams.length)];
          if (what === "add") {
            const open = { isClosed: false, reads: 0 };
            const names = host === "10.0.0.1" ? { ipv4: [host] } : { host: [host] };
            const backend = fakeBackend(`agent-${id}`, { ...(at % 3 === 0 ? {} : names), defaultRoute: flag }, open);
            states.set(backend, open);
            streams.push(backend);
            backends.add(backend);
          } else if (what === "pick") {
            const except = flag && one !== undefined ? [one] : [];
            const picked = backends.pick(`${host}:443`, except);
            const sets = order.map((strategy) =>
              allowed(streams, strategy, host).filter((each) => !except.includes(each)),
            );
            const expected = sets.find((set) => set.length > 0) ?? [];
            assert.equal(picked === undefined, expected.length === 0);
            if (picked !== undefined) assert.ok(expected.includes(picked));
            if (picked !== undefined) assert.ok(expected.every((each) => rankOf(each) >= rankOf(picked)));
          } else if (one !== undefined && what === "remove") {
            streams.splice(streams.indexOf(one), 1);
            backends.remove(one);
          } else if (one !== undefined && what === "hosts") {
            backends.setHosts(one, new Set(flag ? [host, "a"] : []));
          } else if (one !== undefined && what === "drain") {
            one.isDraining = true;
          } else if (one !== undefined && what === "doubt") {
            if (flag) one.pulse.probe();
            else (one.pulse as FakePulse).beat();
          } else if (one !== undefined) {
            const open = states.get(one);
            if (open !== undefined) open.isClosed = true;
          }
          for (const strategy of ["default", "defaultRoute"] as const) {
            assert.equal(backends.count(strategy), allowed(streams, strategy, "").length);
          }
          const [first = "default"] = order;
          assert.equal(backends.isReady, backends.count(first) > 0);
        }
        assert.deepEqual(new Set(backends.all), new Set(streams));
        for (const stream of streams) backends.remove(stream);
        assert.deepEqual([backends.all.length, backends.pick("a:1"), backends.count("destHost")], [0, undefined, 0]);
      },
    ),
  );
});

/** An agent that owes answers to dials to as many hosts. */
function owe(backends: Backends, backend: Backend, hosts: number): void {
  const { mark } = backend.health;
  for (let host = 0; host < hosts; host += 1) backends.overdue(backend, `10.9.0.${host}`, mark);
}

test("Backends: an agent that owes answers to dials to three hosts gets one dial of 64, until it answers one", () => {
  for (const strategy of ["default", "destHost", "defaultRoute"] as const) {
    let state = 7;
    const random = (): number => {
      state = (state * 48_271) % 2_147_483_647;
      return state / 2_147_483_647;
    };
    const backends = new Backends([strategy], { random });
    const [silent, good] = ["silent", "good"].map((id) => fakeBackend(id, { host: ["x"], defaultRoute: true }));
    assert.ok(silent !== undefined && good !== undefined);
    for (const backend of [silent, good]) backends.add(backend);
    const share = (): number =>
      Array.from({ length: 6400 }, () => backends.pick("x:1")).filter((backend) => backend === silent).length / 6400;
    owe(backends, silent, 2);
    assert.ok(share() > 0.3, `${strategy}: two hosts may be away`);
    owe(backends, silent, 3);
    const trials = share();
    assert.ok(trials > 1 / 128 && trials < 1 / 32, `${strategy}: ${trials}`);
    good.isDraining = true;
    assert.ok(share() < 1 / 32, "one that drains answers");
    good.isDraining = false;
    backends.answered(silent);
    assert.ok(share() > 0.3, `${strategy}: it has answered`);
    owe(backends, silent, 3);
    backends.remove(silent);
    backends.overdue(silent, "late", silent.health.mark);
    assert.equal(share(), 0);
    backends.add(silent);
    backends.remove(good);
    assert.equal(share(), 1, "there is no other");
  }
});

test("Backends: of silent agents each gets its trials in turn", () => {
  const backends = new Backends(["default"], { random: () => 0 });
  const all = ["a", "b", "c"].map((id) => fakeBackend(id, {}));
  for (const backend of all) backends.add(backend);
  for (const backend of all) owe(backends, backend, 3);
  assert.deepEqual(
    Array.from({ length: 6 }, () => backends.pick("x:1")?.agentID),
    ["a", "b", "c", "a", "b", "c"],
  );
});

test("Backends: with rules further attempts go to other identities than those that were tried, while a strategy has one", () => {
  const of = (identity: string, agentID: string): Backend =>
    fakeBackend(agentID, {}, undefined, { identity, anyHost: true, hosts: new Set(["x"]) });
  const evil = [of("evil", "1"), of("evil", "2"), of("evil", "3")];
  const [good, alone] = [of("good", "1"), of("alone", "9")];
  const tried = evil.slice(0, 1);
  for (const strategies of [["destHost"], ["default"], ["destHost", "default"]] as const) {
    const backends = new Backends(strategies);
    for (const backend of evil) backends.add(backend);
    assert.equal(backends.pickSecond("x:1", tried), undefined);
    assert.ok(evil.slice(1).includes(backends.pick("x:1", tried) ?? alone), "there is no other");
    backends.add(good);
    for (let times = 0; times < 20; times += 1) {
      assert.equal(backends.pickSecond("x:1", tried), good);
      assert.equal(backends.pick("x:1", tried), good);
    }
    assert.equal(backends.streamsOf(good.key), 1, "the agentID is evil's too");
  }
});

test("Backends: an agent without anyHost is a candidate for its own hosts alone", () => {
  const own = fakeBackend("own", { defaultRoute: true }, undefined, {
    ...{ identity: "own", anyHost: false, hosts: new Set(["x"]) },
  });
  const backends = new Backends(["destHost", "defaultRoute", "default"]);
  backends.add(own);
  assert.deepEqual([backends.pick("x:1"), backends.pick("y:1")], [own, undefined]);
  assert.deepEqual([backends.count("default"), backends.count("defaultRoute"), backends.count("destHost")], [0, 0, 1]);
});

test("Backends: a second try goes to another agent, by strategies, answers and age", () => {
  const first = fakeBackend("first", { host: ["x"] });
  const same = fakeBackend("first", { host: ["x"] });
  const [early, late] = ["early", "late"].map((id) => fakeBackend(id, { host: ["x"] }));
  const [route, other] = [fakeBackend("route", { defaultRoute: true }), fakeBackend("other", {})];
  assert.ok(early !== undefined && late !== undefined);
  const backends = new Backends(["destHost", "defaultRoute", "default"]);
  const second = (): string | undefined => backends.pickSecond("x:1", [first])?.agentID;
  for (const backend of [first, same]) backends.add(backend);
  assert.equal(second(), undefined, "another stream of the agent is no other agent");
  backends.add(other);
  assert.equal(second(), "other");
  backends.add(route);
  assert.equal(second(), "route");
  for (const backend of [early, late]) backends.add(backend);
  assert.equal(second(), "early", "another agent of the host");
  backends.answered(late);
  assert.equal(second(), "late", "it is known to answer");
  backends.answered(early);
  assert.equal(second(), "early");
  owe(backends, early, 3);
  assert.equal(second(), "late");
  owe(backends, late, 3);
  assert.equal(second(), "route", "better than one that answers nothing");
  for (const backend of [route, other]) backends.remove(backend);
  assert.equal(second(), "early", "there is no other");
});

test("serveAgentStream: an agent's answer is late 2 s after its --dial-timeout, which it names, 5 s else and a minute at most", async () => {
  await using bed = await Bed.open();
  const clock = systemClock;
  const agent = async (agentID: string, fields: { readonly dialTimeoutMs?: number }): Promise<number | undefined> => {
    const tls = { identifiers: "", tokenFile: undefined, tls: undefined };
    const options = {
      ...tls,
      ...fields,
      agentID,
      capabilities: new Set<never>(),
      timeoutMs: 5000,
      keepAliveMs: 0,
      clock,
    };
    const server = { host: "127.0.0.1", port: bed.agentPort };
    await connectServer(server, options, { signal: AbortSignal.timeout(5000) });
    return bed.proxy.backends.all.find((backend) => backend.agentID === agentID)?.answerMs;
  };
  assert.equal(await agent("upstream", {}), 7000);
  assert.equal(await agent("patient", { dialTimeoutMs: 19_999.5 }), 22_000);
  assert.equal(await agent("endless", { dialTimeoutMs: 3_600_000 }), 62_000);
  assert.equal(await agent("odd", { dialTimeoutMs: Number.POSITIVE_INFINITY }), 7000);
});

test("Backends: a choice among 5,000 agents looks at a few of them, with each strategy", () => {
  for (const strategy of ["default", "destHost", "defaultRoute"] as const) {
    const state = { isClosed: false, reads: 0 };
    const backends = new Backends([strategy]);
    for (let at = 0; at < 5000; at += 1) {
      const ipv4 = [`10.0.${at >> 8}.${at & 255}`];
      backends.add(fakeBackend(`agent-${at}`, { ipv4, defaultRoute: true }, state));
    }
    state.reads = 0;
    const picked = backends.pick("10.0.3.7:10250")?.agentID;
    if (strategy === "destHost") assert.equal(picked, "agent-775");
    else assert.match(picked ?? "none", /^agent-/);
    assert.ok(state.reads < 20, `${strategy}: ${state.reads} looks`);
  }
});

test("Backends: hundreds of streams of one agent, each with hosts of its own, come and go in time that grows with their number alone", () => {
  const STREAMS = 2560;
  const once = (count: number): number => {
    const backends = new Backends(["destHost"]);
    const all = Array.from({ length: count }, (_, stream) => {
      const host = Array.from({ length: 200 }, (_, at) => (at === 0 ? "shared" : `host-${stream}-${at}`));
      const identifiers = { ipv4: [], ipv6: [], cidr: [], host, defaultRoute: false };
      const mux = { isClosed: false, connections: 0, pendingDials: 0 } as unknown as LinkMux;
      return new Backend({ agentID: "one", identifiers, mux, pulse: new FakePulse() });
    });
    for (const backend of all) backends.add(backend);
    const before = process.threadCpuUsage();
    for (const [at, backend] of all.entries()) {
      assert.equal(backends.pick("shared:1"), backend, "the oldest stream of the agent");
      assert.equal(backends.pick(`host-${at}-7:1`), backend);
      backends.remove(backend);
      assert.equal(backends.pick(`host-${at}-7:1`), undefined);
    }
    assert.equal(backends.isEmpty, true);
    // The thread's own time: with other work on the machine the least of five runs on the clock was twenty times as long.
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1000 / count;
  };
  // The kernel counts a thread's time in ticks of some milliseconds, so each of both has as many streams in all.
  const [few = 0, many = 0] = [40, 640].map((count) => {
    const rounds = Array.from({ length: STREAMS / count }, () => once(count));
    return rounds.reduce((sum, one) => sum + one, 0) / rounds.length;
  });
  // Work that grows with the number of streams would take 16 times as long; what no cache of the processor holds takes 5 times as long.
  assert.ok(many < 10 * few, `${few} ms a stream of few, ${many} ms of many`);
});

test("serveAgentStream: an agent that names too many hosts is refused, and so is one with too many streams", async () => {
  await using bed = await Bed.open();
  const hosts = (count: number): string => Array.from({ length: count }, (_, at) => `host=h${at}`).join("&");
  await bed.agent("modest", `${hosts(252)}&ipv4=10.0.0.1&ipv6=%3A%3A1&cidr=10.0.0.0%2F8&cidr=10.0.0.0%2F9`);
  for (const text of [hosts(257), `${hosts(255)}&ipv4=10.0.0.1&cidr=10.0.0.0%2F8`]) {
    await assert.rejects(bed.agent("greedy", text), /gRPC status 3\): .*at most 256/);
  }
  const links = [];
  for (let stream = 0; stream < 64; stream += 1) links.push(await bed.agent("many"));
  await assert.rejects(bed.agent("many"), /gRPC status 8\): .*64 streams/);
  await bed.agent("other");
  links[0]?.mux.end();
  await bed.agent("many").catch(() => new Promise((resolve) => setTimeout(resolve, 200)).then(() => bed.agent("many")));
});

test("serveAgentStream: the answer to identifiers that cannot be read is short", async () => {
  await using bed = await Bed.open();
  await assert.rejects(bed.agent("evil", `host=${"x".repeat(50_000)}%`), (error: Error) => {
    assert.match(error.message, /gRPC status 3\): agent identifiers "host=xxx/);
    assert.ok(error.message.length < 1000, `${error.message.length} characters`);
    return true;
  });
});
