/** Which endpoints of several a node uses, by slices, hints and families, by packets (docs/spec/service-proxy.md#3.2: S19, S20, S21). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { IpAddress, IpFamily } from "#base/ip";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const OTHER_TARGET = 9090;
/** Each of three endpoints is met by so many connections, but for some times in ten millions. */
const TRIES = 40;
const FAMILIES = [4, 6] as const;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-topo-${process.pid}`);
  for (const family of FAMILIES) await bed.listen("remote", addressesOf(family).remoteEndpoint, OTHER_TARGET);
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

/** The `address port` of all that answer a pod, sorted; or what becomes of its connections instead. */
async function reached(address: IpAddress, tries = TRIES): Promise<readonly string[]> {
  const seen = new Set<string>();
  for (let at = 0; at < tries; at += 1) {
    const one = await bed.connect("pod", address, SERVICE_PORT, { droppedMs: 900 });
    if (one.kind !== "delivered") return [one.kind];
    seen.add(one.by);
  }
  return [...seen].sort();
}

const zones = (...names: readonly string[]): object => ({ forZones: names.map((name) => ({ name })) });
const nodes = (...names: readonly string[]): object => ({ forNodes: names.map((name) => ({ name })) });

for (const family of FAMILIES) {
  const { clusterIP, localEndpoint, remoteEndpoint } = addressesOf(family);
  const here = `${localEndpoint} ${TARGET_PORT}`;
  const there = `${remoteEndpoint} ${TARGET_PORT}`;

  test(`a named target port has the number of each slice, IPv${family}`, async () => {
    const slices = [
      sliceObject(family, [endpointObject(localEndpoint, "here")], { name: "old-pods" }),
      sliceObject(family, [endpointObject(remoteEndpoint, "elsewhere")], {
        name: "new-pods",
        ports: [{ name: "http", port: OTHER_TARGET }],
      }),
    ];
    await proxy.setBoth(serviceObject(family), ...slices);
    assert.deepEqual(await reached(clusterIP), [here, `${remoteEndpoint} ${OTHER_TARGET}`].sort());
    // The pod elsewhere is found by its old number too, until its slice goes.
    await proxy.setSlices(sliceObject(family, [endpointObject(remoteEndpoint, "elsewhere")], { name: "third" }));
    assert.deepEqual(await reached(clusterIP), [here, there, `${remoteEndpoint} ${OTHER_TARGET}`].sort());
    await proxy.removeSlices("old-pods", "third");
    assert.deepEqual(await reached(clusterIP), [`${remoteEndpoint} ${OTHER_TARGET}`]);
    await proxy.removeSlices("new-pods");
    assert.deepEqual(await reached(clusterIP), ["rejected"]);
  });

  test(`hints: of zone and node, missing from one endpoint, and with a node that changes its zone, IPv${family}`, async (t) => {
    t.after(() => proxy.setZone(undefined));
    await proxy.set(serviceObject(family));
    const hint = (local: object, remote: object): Promise<void> =>
      proxy.setSlices(
        sliceObject(family, [
          endpointObject(localEndpoint, "here", { hints: local }),
          endpointObject(remoteEndpoint, "elsewhere", { hints: remote }),
        ]),
      );
    const both = [here, there].sort();
    await hint(zones("a"), zones("b"));
    assert.deepEqual(await reached(clusterIP), both, "the node has no zone");
    await proxy.setZone("a");
    assert.deepEqual(await reached(clusterIP), [here]);
    await proxy.setZone("b");
    assert.deepEqual(await reached(clusterIP), [there]);
    await hint(zones("a"), {});
    assert.deepEqual(await reached(clusterIP), both, "one has lost its hint");
    await hint(zones("a", "b"), zones("b", "c"));
    assert.deepEqual(await reached(clusterIP), both, "both are for the zone");
    await proxy.setZone("c");
    assert.deepEqual(await reached(clusterIP), [there]);
    await hint({ ...zones("a"), ...nodes(NODE.name) }, { ...zones("c"), ...nodes("node-b") });
    assert.deepEqual(await reached(clusterIP), [here], "its node counts before the zone");
    await hint({ ...zones("a"), ...nodes("node-c") }, { ...zones("c"), ...nodes("node-b") });
    assert.deepEqual(await reached(clusterIP), [there], "hints for other nodes: the zone counts");
    await proxy.setZone(undefined);
    assert.deepEqual(await reached(clusterIP), both);
  });
}

test("dual stack: both families in either order, one of them alone, and back", async () => {
  const addresses = (order: readonly IpFamily[]): Record<string, unknown> => {
    const clusterIPs = order.map((family) => String(addressesOf(family).clusterIP));
    return { clusterIP: clusterIPs[0], clusterIPs, ipFamilies: order.map((family) => `IPv${family}`) };
  };
  const slices = FAMILIES.map((family) =>
    sliceObject(family, [endpointObject(addressesOf(family).remoteEndpoint, "elsewhere")]),
  );
  await proxy.setSlices(...slices);
  const found = async (order: readonly IpFamily[]): Promise<readonly string[]> => {
    await proxy.set(serviceObject(order[0] ?? 4, addresses(order)));
    const each = await Promise.all(FAMILIES.map((family) => reached(addressesOf(family).clusterIP, 2)));
    return each.flat();
  };
  const [four, six] = FAMILIES.map((family) => `${addressesOf(family).remoteEndpoint} ${TARGET_PORT}`);
  assert.deepEqual(await found([4, 6]), [four, six]);
  assert.deepEqual(await found([6, 4]), [four, six]);
  assert.deepEqual(await found([6]), ["dropped", six]);
  assert.deepEqual(await found([6, 4]), [four, six]);
  assert.deepEqual(await found([4]), [four, "dropped"]);
});
