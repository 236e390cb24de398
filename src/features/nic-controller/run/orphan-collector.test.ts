import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeError } from "#kube/client";
import { NicControllerError } from "../errors.ts";
import { portIdentity } from "../plan/identity.ts";
import { FakeVpc } from "../testing/fake-vpc.ts";
import { OrphanCollector, type OrphanOptions } from "./orphan-collector.ts";

const UID = "6f0e1c1a-0000-4000-8000-000000000001";

/** A collector of a cluster that has nothing, and the number of the orphans that it has deleted. */
function open(clock: FakeClock, more: Partial<OrphanOptions> = {}) {
  const nothing = async (): Promise<never> => {
    throw new KubeError("not-found", "there is none");
  };
  const counted = { orphans: 0 };
  const collector = new OrphanCollector(
    {
      api: { get: nothing, create: nothing, patch: nothing, delete: nothing },
      cluster: {
        claim: () => undefined,
        claims: () => [],
        pod: () => undefined,
        namespace: () => undefined,
        node: () => undefined,
        policy: () => ({}),
      },
      observer: {
        event: () => undefined,
        created: () => undefined,
        duplicates: () => undefined,
        active: () => undefined,
        orphans: (count) => {
          counted.orphans += count;
        },
      },
      log: nullLogger,
      clock,
    },
    { clusterId: "c1", minAgeMs: 900_000, isDryRun: false, ...more },
  );
  return { collector, counted };
}

/** A port that the controller has made for a pod that is gone; returns its id. */
function addOrphan(vpc: FakeVpc): string {
  const identity = portIdentity(UID, { cluster: "c1", namespace: "default", pod: "p", nic: "eth0" });
  return vpc.change(vpc.addUserPort(), { ...identity, createdAt: new Date(0).toISOString() }).id;
}

test("OrphanCollector: one that cannot be deleted holds up no other, and does not count for the limit of a pass", async () => {
  const clock = new FakeClock(1_000_000_000);
  const vpc = new FakeVpc(clock);
  // The order of ports is the same in each pass.
  const held = Array.from({ length: 60 }, () => addOrphan(vpc));
  for (const id of held) vpc.held.add(id);
  const free = Array.from({ length: 2 }, () => addOrphan(vpc));
  const { collector, counted } = open(clock);
  const pass = async () => {
    const passing = collector.pass(vpc, { signal: AbortSignal.timeout(60_000) });
    await clock.advance(10_000);
    return passing;
  };
  assert.deepEqual([await pass(), vpc.ports.size], [[], 62]);
  const ends = await pass();
  assert.deepEqual([...vpc.ports.keys()], held);
  assert.deepEqual(
    ends.flatMap(({ port, error }) => (error === undefined ? [port.id] : [])),
    free,
  );
  assert.deepEqual(new Set(ends.map(({ error }) => error?.code)), new Set(["DeleteConflict", undefined]));
  assert.equal(counted.orphans, 2);
  vpc.held.clear();
  await pass();
  assert.deepEqual([vpc.ports.size, counted.orphans], [10, 52]);
});

test("OrphanCollector: many that cannot be deleted cost a pass a hundred requests at most, and those that were not tried come first", async () => {
  const clock = new FakeClock(1_000_000_000);
  const vpc = new FakeVpc(clock);
  for (let at = 0; at < 250; at += 1) vpc.held.add(addOrphan(vpc));
  const free = addOrphan(vpc);
  const { collector } = open(clock);
  const tries: number[] = [];
  for (let passes = 0; passes < 5; passes += 1) {
    const before = vpc.calls["delete"] ?? 0;
    const passing = collector.pass(vpc, { signal: AbortSignal.timeout(60_000) });
    await clock.advance(10_000);
    await passing;
    tries.push((vpc.calls["delete"] ?? 0) - before);
    assert.equal(vpc.ports.has(free), passes < 3, `after pass ${passes}`);
  }
  assert.deepEqual(tries, [0, 100, 100, 101, 100]);
});

test("OrphanCollector: a provider that is away, and one that cannot be opened, hold up no other", async () => {
  const clock = new FakeClock(1_000_000_000);
  const [away, well] = [new FakeVpc(clock), new FakeVpc(clock)];
  away.isAway = true;
  addOrphan(well);
  const { collector, counted } = open(clock);
  const providers = {
    names: () => ["away", "gone", "well"],
    get: (name: string) => {
      if (name === "gone") throw new NicControllerError("unknown-provider", "gone cannot be opened");
      return name === "away" ? away : well;
    },
  };
  for (const left of [1, 0]) {
    const passing = collector.passAll(providers, { signal: AbortSignal.timeout(60_000) });
    await clock.advance(1000);
    await passing;
    assert.equal(well.ports.size, left);
  }
  assert.equal(counted.orphans, 1);
});

test("OrphanCollector: under the cluster's own uid a young port goes in the first pass, and under another id it does not", async () => {
  for (const isUnique of [true, false]) {
    const clock = new FakeClock(1_000_000_000);
    const vpc = new FakeVpc(clock);
    const young = addOrphan(vpc);
    vpc.change(young, { createdAt: new Date(clock.now()).toISOString() });
    // A pod with a name that its port has no room for cannot be asked for.
    const nameless = addOrphan(vpc);
    const owner = { cluster: "c1", namespace: "default", pod: "p".repeat(250), nic: "eth0" };
    vpc.change(nameless, { ...portIdentity(UID, owner), createdAt: new Date(clock.now()).toISOString() });
    const { collector } = open(clock, { isUnique });
    const passing = collector.pass(vpc, { signal: AbortSignal.timeout(60_000) });
    await clock.advance(1000);
    await passing;
    assert.deepEqual([...vpc.ports.keys()], isUnique ? [nameless] : [young, nameless]);
  }
});

test("OrphanCollector: a port that is in use is left, unless this controller has had its claim", async () => {
  for (const had of [true, false]) {
    const clock = new FakeClock(1_000_000_000);
    const vpc = new FakeVpc(clock);
    const used = addOrphan(vpc);
    vpc.change(used, { status: "ACTIVE", binding: { host: "node-1", vifType: "ovs" } });
    const { collector, counted } = open(clock, { isUnique: true, wasOwn: (_namespace, uid) => had && uid === UID });
    const passing = collector.pass(vpc, { signal: AbortSignal.timeout(60_000) });
    await clock.advance(1000);
    const [end] = await passing;
    assert.deepEqual([vpc.ports.size, counted.orphans], had ? [0, 1] : [1, 0]);
    if (had) continue;
    assert.match(end?.left ?? "", /^it is ACTIVE on host node-1, .*another cluster with this id may use it$/);
    vpc.change(used, { status: "DOWN" });
    const again = collector.pass(vpc, { signal: AbortSignal.timeout(60_000) });
    await clock.advance(1000);
    await again;
    assert.equal(vpc.ports.size, 0, "once nothing has it plugged");
  }
});
