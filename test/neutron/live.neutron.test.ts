// Controller, agents and CNI executables on a live Neutron: two hosts with Open vSwitch, one of each firewall driver.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { LiveBed, type LivePod, skipWithoutNeutron } from "#test/live-neutron";
import { nicOf } from "#test/nic-bed";

describe("NICs on a live Neutron", { skip: skipWithoutNeutron }, () => {
  let bed: LiveBed;
  before(async () => {
    bed = await LiveBed.open("live");
  });
  after(() => bed?.[Symbol.asyncDispose]());

  test("T-30: pods of one host and of both reach each other, with direct and hybrid plug; DEL leaves nothing", async () => {
    const pods: LivePod[] = [];
    for (const [name, node] of [
      ["a", "node1"],
      ["b", "node1"],
      ["c", "node2"],
      ["d", "node2"],
    ] as const) {
      const startedMs = performance.now();
      const pod = await bed.start(name, node);
      console.log(name, ((performance.now() - startedMs) / 1000).toFixed(2));
      pods.push(pod);
      const claim = await bed.claim(pod);
      assert.deepEqual([claim.status?.phase, nicOf(claim).state], ["Active", "Ready"]);
    }
    for (const from of pods) {
      for (const to of pods) {
        if (from !== to) console.log(from.name, to.name, await bed.reaches(from, await bed.address(to)));
      }
    }
    console.log(bed.devices("node1"), bed.plugged("node1"), bed.devices("node2"), bed.plugged("node2"));
    for (const pod of pods) await bed.end(pod);
  });
});
