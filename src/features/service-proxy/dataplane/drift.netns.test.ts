import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import type { Nft } from "#kernel/nft";
import { NftError } from "#kernel/nft";
import { overridden } from "#test/overridden";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, SERVICE_PORT, servicePort } from "../testing/fixture.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

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

const wanted = (nodePortIPs = [addressesOf(4).node]): WantedState => ({
  services,
  nodePortIPs: new Set(nodePortIPs.map(addressBytes)),
  serviceCIDRs: [addressesOf(4).serviceCIDR],
});

function open(nft: Nft = bed.nft): DataPlane {
  const { elements } = bed;
  return new DataPlane(
    { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: NAME },
  );
}

test("DataPlane: a repair tells drift from changes that were requested meanwhile, also across a failed sync", async () => {
  let refuse = false;
  const run = (changes: Parameters<Nft["run"]>[0]): void => {
    if (refuse) throw new NftError("busy", "refused by the test", { script: "" });
    bed.nft.run(changes);
  };
  const plane = open(overridden(bed.nft, { run }));
  choose(2);
  await plane.sync(wanted());
  for (const count of [5, 0, 3]) {
    choose(count);
    plane.distrust();
    const { changes, drift } = await plane.sync(wanted());
    assert.ok(changes > 0);
    assert.equal(drift, 0, `${count} endpoints`);
  }
  choose(4);
  plane.distrust();
  refuse = true;
  await assert.rejects(() => plane.sync(wanted()), NftError);
  refuse = false;
  const late = await plane.sync(wanted());
  assert.deepEqual([late.changes > 0, late.drift], [true, 0]);
  plane.distrust();
  const moved = await plane.sync(wanted([addressesOf(4).node, addressesOf(4).external]));
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
  const repaired = await plane.sync(wanted([addressesOf(4).node]));
  // The element of the map, the address that stays; the one that goes was asked for, and is gone already.
  assert.deepEqual([repaired.changes, repaired.drift], [2, 2]);
});

test("DataPlane: rules that another program removes at any moment of a sync are found as damage, and the next sync repairs them", async () => {
  /** Flushes a chain behind the back of the plane, after so many of its transactions. */
  let left = Number.POSITIVE_INFINITY;
  const meddle = (): void => {
    left -= 1;
    if (left === 0) bed.nft.run([{ op: "flush", kind: "chain", table, chain: "services" }]);
  };
  const { elements } = bed;
  const generations = new GenerationTracker(elements);
  const deps = {
    nft: overridden(bed.nft, {
      run: (changes: Parameters<Nft["run"]>[0]) => {
        bed.nft.run(changes);
        meddle();
      },
    }),
    elements: overridden(elements, {
      commit: async (...args: Parameters<typeof elements.commit>) => {
        await elements.commit(...args);
        meddle();
      },
    }),
    generations,
    clock: systemClock,
    log: nullLogger,
  };
  const plane = new DataPlane(deps, { ...ruleOptions(4), tableName: NAME });
  const { table } = plane;
  choose(3);
  await plane.sync(wanted());
  const rules = (): number => elements.ruleHandles(table).filter((line) => line.startsWith("services ")).length;
  const sound = rules();
  const moments = { full: 0, partial: 0 };
  let endpoints = 3;
  for (const kind of ["full", "partial"] as const) {
    for (let at = 1; ; at += 1) {
      // Other chains than before: so a partial sync writes rules too, and renews the seal.
      endpoints += 1;
      choose(endpoints);
      if (kind === "full") {
        bed.nft.run([{ op: "flush", kind: "chain", table, chain: "services" }]);
        generations.settle();
        plane.distrust();
      }
      left = at;
      const report = await plane.sync(wanted());
      assert.equal(report.kind, kind);
      if (left > 0) break;
      if (rules() < sound) {
        moments[kind] += 1;
        assert.ok(plane.isDamaged() && plane.isBroken(), `${kind}, moment ${at}: the damage does not show`);
      }
      left = Number.POSITIVE_INFINITY;
      generations.settle();
      plane.distrust();
      await plane.sync(wanted());
      assert.equal(plane.isDamaged(), false, `${kind}, moment ${at}`);
      assert.equal(rules(), sound, `${kind}, moment ${at}: the chain is still empty`);
    }
    left = Number.POSITIVE_INFINITY;
  }
  assert.ok(moments.full > 0 && moments.partial > 2, JSON.stringify(moments));
});

test("DataPlane: a table that cannot be listed for a while is adopted afterwards, and not replaced", async () => {
  choose(3);
  await open().sync(wanted());
  let isBusy = true;
  const { elements } = bed;
  const listInSlices = (...args: Parameters<typeof elements.listInSlices>): ReturnType<typeof elements.listInSlices> =>
    isBusy
      ? Promise.reject(new KernelError("interrupted", "cannot list: the list changed while it was read, 6 times"))
      : elements.listInSlices(...args);
  const busy = overridden(elements, { listInSlices });
  const plane = new DataPlane(
    { nft: bed.nft, elements: busy, generations: new GenerationTracker(busy), clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: NAME },
  );
  const structure = elements.structure(plane.table);
  for (let tries = 0; tries < 4; tries += 1) await assert.rejects(() => plane.sync(wanted()), KernelError);
  isBusy = false;
  const { changes, transactions } = await plane.sync(wanted());
  assert.deepEqual({ changes, transactions }, { changes: 0, transactions: 0 });
  assert.deepEqual(elements.structure(plane.table), structure);
});
