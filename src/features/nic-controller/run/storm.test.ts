import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { seeded } from "#test/seeded";
import { FakeCluster } from "../testing/fake-cluster.ts";
import { FakeVpc, type Fate } from "../testing/fake-vpc.ts";
import type { WantedNics } from "../world.ts";

/** Kills of the controller in one storm. */
const KILLS = 60;
/** Pods that exist at a time. */
const SLOTS = 9;
/** Half of the provider's writes are lost or late. */
const FATES: readonly Fate[] = ["done", "done", "done", "request-lost", "answer-lost", "late"];
const SEEDS = process.env["ISTHMUS_SOAK"] === "full" ? 100 : 2;

/** The NICs of the pod in a slot: that of a third has a fixed address, which its successor wants too. */
function wishOf(slot: number): WantedNics {
  const fixed = { name: "eth0", subnet: "subnet-1", ip: `10.250.0.${slot + 10}` };
  return { kind: "wanted", vpc: "vpc-1", nics: slot % 3 === 0 ? [fixed] : [{ name: "eth0" }, { name: "eth1" }] };
}

/** Ports that are not those of NICs, and NICs without a port that exists. */
function differences({ claims, pods }: FakeCluster, { ports }: FakeVpc): readonly string[] {
  const nics = [...pods.keys()].flatMap((uid) => {
    const { spec, status } = claims.get(uid) ?? {};
    return (spec?.nics ?? [{ name: "claim" }]).map(({ name }) => ({
      of: `${uid} ${name}`,
      portID: status?.nics?.find((nic) => nic.name === name)?.portID,
      reason: status?.nics?.find((nic) => nic.name === name)?.reason,
    }));
  });
  const recorded = new Set(nics.map(({ portID }) => portID));
  return [
    ...nics.flatMap(({ of, portID, reason }) => (ports.has(portID ?? "") ? [] : [`${of} has no port: ${reason}`])),
    ...Array.from(ports.values()).flatMap(({ id, name }) => (recorded.has(id) ? [] : [`${id} ${name} is of no NIC`])),
  ];
}

for (let seed = 1; seed <= SEEDS; seed += 1) {
  test(`storm ${seed}: after ${KILLS} kills with answers lost and late, ports are as NICs within 10 s, and none is left of pods`, async () => {
    const clock = new FakeClock(1_000_000_000);
    const vpc = new FakeVpc(clock);
    const cluster = new FakeCluster(clock, vpc);
    const random = seeded(seed);
    const pick = (count: number): number => Math.floor(random() * count);
    vpc.fate = () => FATES[pick(FATES.length)] ?? "done";
    const slots = new Map<number, string>();
    let count = 0;
    let running = cluster.start();
    for (let kills = 0; kills < KILLS; kills += 1) {
      for (let changes = 0; changes < 4; changes += 1) {
        const slot = pick(SLOTS);
        const uid = slots.get(slot);
        if (uid === undefined) {
          count += 1;
          const made = `6f0e1c1a-0000-4000-8000-${count.toString(16).padStart(12, "0")}`;
          slots.set(slot, made);
          cluster.addPod(made, wishOf(slot), random() < 0.5 ? "node-1" : undefined);
        } else {
          slots.delete(slot);
          cluster.deletePod(uid);
        }
        await clock.advance(pick(500));
      }
      running[Symbol.dispose]();
      await clock.advance(pick(200));
      running = cluster.start();
    }
    vpc.fate = () => "done";
    await clock.advance(10_000);
    assert.deepEqual(differences(cluster, vpc), [], "10 s after the storm");
    // And again, with pods that end while requests of theirs are under way.
    vpc.fate = () => FATES[pick(FATES.length)] ?? "done";
    for (const slot of Array.from({ length: SLOTS }, (_, at) => at).filter((at) => !slots.has(at))) {
      count += 1;
      cluster.addPod(`6f0e1c1a-0000-4000-8000-${count.toString(16).padStart(12, "0")}`, wishOf(slot));
    }
    await clock.advance(pick(1000));
    running[Symbol.dispose]();
    for (const uid of [...cluster.pods.keys()]) cluster.deletePod(uid);
    vpc.fate = () => "done";
    using _ = cluster.start();
    await clock.advance(60_000);
    assert.deepEqual(
      Array.from(vpc.ports.values(), ({ name }) => name),
      [],
      "60 s after the pods",
    );
    await clock.advance(60_000);
    assert.equal(cluster.claims.size, 0, "no claim waits for ever");
  });
}
