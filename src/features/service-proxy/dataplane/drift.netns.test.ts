import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Nft } from "#kernel/nft";
import { NftError } from "#kernel/nft";
import { overridden } from "#test/overridden";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, SERVICE_PORT, servicePort } from "../testing/fixture.ts";
import { DataPlane, type Desired, GenerationTracker } from "./index.ts";

const NAME = `isp-dr-${process.pid}`;

let bed: Bed;
before(async () => {
  bed = await Bed.open(NAME);
});
after(() => bed[Symbol.asyncDispose]());

const services = new WantedTable();

/** A Service with so many endpoints, one of them on this node. */
function choose(endpoints: number): void {
  const all = Array.from({ length: endpoints }, (_, at) => {
    const [where, address] =
      at === 0
        ? (["local", addressesOf(4).pod] as const)
        : (["remote", addressesOf(4).clusterIP.plus(BigInt(at))] as const);
    return endpoint(4, where, { address });
  });
  services.set("ns/svc", planService([{ port: servicePort(4), endpoints: all }], NODE, []));
}

const desired = (nodePortIPs = [addressesOf(4).node]): Desired => ({
  services,
  nodePortIPs: new Set(nodePortIPs.map(addressBytes)),
  serviceCIDRs: [addressesOf(4).serviceCIDR],
});

function open(nft: Nft = bed.nft): DataPlane {
  const { elements } = bed;
  return new DataPlane(
    { nft, elements, generations: new GenerationTracker(elements) },
    { ...ruleOptions(4), tableName: NAME },
  );
}

test("DataPlane: a repair tells what somebody changed from what was asked for meanwhile, also across a sync that failed", async () => {
  let refuse = false;
  const run = (changes: Parameters<Nft["run"]>[0]): void => {
    if (refuse) throw new NftError("busy", "refused by the test", { script: "" });
    bed.nft.run(changes);
  };
  const plane = open(overridden(bed.nft, { run }));
  choose(2);
  await plane.sync(desired());
  for (const count of [5, 0, 3]) {
    choose(count);
    plane.distrust();
    const { changes, drift } = await plane.sync(desired());
    assert.ok(changes > 0);
    assert.equal(drift, 0, `${count} endpoints`);
  }
  choose(4);
  plane.distrust();
  refuse = true;
  await assert.rejects(() => plane.sync(desired()), NftError);
  refuse = false;
  const late = await plane.sync(desired());
  assert.deepEqual([late.changes > 0, late.drift], [true, 0]);
  plane.distrust();
  const moved = await plane.sync(desired([addressesOf(4).node, addressesOf(4).external]));
  assert.deepEqual([moved.changes, moved.drift], [1, 0]);
  const { clusterIP } = addressesOf(4);
  bed.nft.run([
    {
      op: "delete",
      kind: "element",
      table: plane.table,
      set: "service-ips",
      elements: [{ key: [`${clusterIP}`, "tcp", `${SERVICE_PORT}`] }],
    },
    { op: "flush", kind: "set", table: plane.table, set: "nodeport-ips" },
  ]);
  plane.distrust();
  const repaired = await plane.sync(desired([addressesOf(4).node]));
  // The element of the map, the address that stays; the one that goes was asked for, and is gone already.
  assert.deepEqual([repaired.changes, repaired.drift], [2, 2]);
});
