import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Clock, systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { parseShape } from "../rules/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, SERVICE_PORT, servicePort } from "../testing/fixture.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";
import { UNUSED_MS } from "./shape-uses.ts";

/** Endpoints of the Service that grows and shrinks. */
const MOST = 12;

let bed: Bed;
/** Added to the system's clock. */
let aheadMs = 0;
const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs };
before(async () => {
  bed = await Bed.open(`isp-unused-${process.pid}`);
});
after(() => bed[Symbol.asyncDispose]());

function open(family: IpFamily): DataPlane {
  const { nft, elements } = bed;
  const generations = new GenerationTracker(elements);
  return new DataPlane(
    { nft, elements, generations, clock, log: nullLogger },
    { ...ruleOptions(family), tableName: "kube-proxy" },
  );
}

/** A Service with every kind of front end and this number of endpoints; the first one answers. */
function wanted(services: WantedTable, family: IpFamily, count: number): WantedState {
  const { node, remoteEndpoint } = addressesOf(family);
  const others = Array.from({ length: count - 1 }, (_, at) =>
    endpoint(family, "local", { address: IpAddress.fromValue(family, remoteEndpoint.value + 100n + BigInt(at)) }),
  );
  const port = servicePort(family, { externalTrafficPolicy: "Local", affinitySeconds: 60 });
  services.set("ns/web", planService([{ port, endpoints: [endpoint(family, "remote"), ...others] }], NODE, [node]));
  return { services, nodePortIPs: new Set([addressBytes(node)]), serviceCIDRs: [] };
}

const tableOf = (family: IpFamily) => ({ family: family === 4 ? "ip" : "ip6", name: "kube-proxy" }) as const;
const shapes = (family: IpFamily): readonly string[] =>
  (bed.elements.names(tableOf(family))?.chains ?? []).filter((name) => parseShape(name) !== undefined).sort();

for (const family of [4, 6] as const) {
  test(`DataPlane: chains for numbers of endpoints that no Service has any more go after a minute, also after a restart, IPv${family}`, async () => {
    const plane = open(family);
    await plane.remove();
    const services = new WantedTable();
    await plane.sync(wanted(services, family, 1));
    const needed = shapes(family);
    for (let count = 2; count <= MOST; count += 1) await plane.sync(wanted(services, family, count));
    await plane.sync(wanted(services, family, 1));
    const kept = shapes(family);
    assert.ok(kept.length > needed.length * 5, "numbers of endpoints go to and fro: chains wait");
    assert.equal((await open(family).sync(wanted(services, family, 1))).transactions, 0, "a restart changes nothing");

    aheadMs += UNUSED_MS - 1000;
    await plane.sync(wanted(services, family, 1));
    assert.deepEqual(shapes(family), kept);
    aheadMs += 2000;
    assert.ok((plane.nextCleanupAt ?? Number.POSITIVE_INFINITY) <= clock.monotonic());
    await plane.sync(wanted(services, family, 1));
    assert.deepEqual(shapes(family), needed);
    assert.equal(plane.nextCleanupAt, undefined);
    assert.equal(plane.isDamaged(), false);

    await plane.sync(wanted(services, family, 3));
    await plane.sync(wanted(services, family, 1));
    const restarted = open(family);
    assert.equal((await restarted.sync(wanted(services, family, 1))).transactions, 0, "the rules are sealed");
    aheadMs += UNUSED_MS;
    await restarted.sync(wanted(services, family, 1));
    assert.deepEqual(shapes(family), needed);
    const { kind } = await bed.connect("pod", addressesOf(family).clusterIP, SERVICE_PORT);
    assert.equal(kind, "delivered");
  });

  test(`DataPlane: an unused chain that a Service needs again stays, and one that is needed later is made again, IPv${family}`, async () => {
    const plane = open(family);
    await plane.remove();
    const services = new WantedTable();
    for (const count of [1, 2, 1]) await plane.sync(wanted(services, family, count));
    aheadMs += UNUSED_MS / 2;
    await plane.sync(wanted(services, family, 2));
    const needed = shapes(family).filter((name) => name.endsWith("-2"));
    aheadMs += UNUSED_MS;
    await plane.sync(wanted(services, family, 2));
    assert.deepEqual(
      shapes(family).filter((name) => name.endsWith("-2")),
      needed,
    );
    await plane.sync(wanted(services, family, 1));
    aheadMs += UNUSED_MS;
    await plane.sync(wanted(services, family, 1));
    assert.ok(!shapes(family).some((name) => name === "aff-lb-2"));
    await plane.sync(wanted(services, family, 2));
    assert.ok(shapes(family).includes("aff-lb-2"));
    services.set("ns/web", undefined);
    await plane.sync({ services, nodePortIPs: new Set(), serviceCIDRs: [] });
    aheadMs += UNUSED_MS;
    await plane.sync({ services, nodePortIPs: new Set(), serviceCIDRs: [] });
    assert.deepEqual(shapes(family), []);
  });
}
