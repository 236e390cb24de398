/** Many Services with long names, and many changes for long (docs/spec/service-proxy.md#3.2: R9, R10). */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { EndpointSlice, Service } from "#kube/client";
import { Bed } from "../testing/bed.ts";
import { addressesOf, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const NAMESPACES = 100;
const SERVICES = 100;
/** The most that a namespace, a Service and its port can have (RFC 1123 labels). */
const NAME_LENGTH = 63;
/** Nothing is measured before all that grows once has grown: code, pools, chains of every shape. */
const WARM_UP_ROUNDS = 50;
const ROUNDS = process.env["ISTHMUS_SOAK"] === "full" ? 4000 : 200;
const SERVICES_AT_ONCE = 50;

const prefix = `isp-scale-${process.pid}`;
let bed: Bed;
before(async () => {
  bed = await Bed.open(prefix);
});
after(() => bed[Symbol.asyncDispose]());

const longName = (kind: string, at: number): string => `${kind}${at}-`.padEnd(NAME_LENGTH, "x");

/** A Service and its slice; `at` tells its address. */
function objects(namespace: string, name: string, at: number, portName = "http"): readonly [Service, EndpointSlice] {
  const { serviceCIDR, remoteEndpoint } = addressesOf(4);
  const clusterIP = String(serviceCIDR.at(at + 1000));
  const service = serviceObject(4, {
    clusterIP,
    clusterIPs: [clusterIP],
    ports: [{ name: portName, port: SERVICE_PORT }],
  });
  const slice = sliceObject(4, [endpointObject(remoteEndpoint, "elsewhere")], {
    service: name,
    ports: [{ name: portName, port: TARGET_PORT }],
  });
  return [
    { ...service, metadata: { ...service.metadata, namespace, name } },
    { ...slice, metadata: { ...slice.metadata, namespace, name } },
  ];
}

test(`names: ${NAMESPACES} namespaces of ${SERVICES} Services with the longest names are programmed, adopted by a restart, and removed`, async () => {
  const all = Array.from({ length: NAMESPACES * SERVICES }, (_, at) =>
    objects(
      longName("ns", Math.floor(at / SERVICES)),
      longName("svc", at % SERVICES),
      at,
      longName("port", at % SERVICES),
    ),
  );
  const services = all.map(([service]) => service);
  const slices = all.map(([, slice]) => slice);
  const proxy = await NodeProxy.open(bed);
  await proxy.setSlices(...slices);
  await proxy.set(...services);
  for (const at of [0, 4567, all.length - 1]) {
    const address = addressesOf(4).serviceCIDR.at(at + 1000);
    assert.equal((await bed.connect("external", address, SERVICE_PORT, { droppedMs: 900 })).kind, "delivered");
  }
  await proxy[Symbol.asyncDispose]();

  const second = await NodeProxy.startAgain(bed, services, slices);
  assert.equal(second.changes, 0, "a restart finds all as it is");
  const argv = ["netns", "exec", `${prefix}-node`, "nft", "list", "map", "ip", "kube-proxy", "service-ips"];
  const listing = execFileSync("ip", argv, { encoding: "utf8", maxBuffer: 1 << 26 });
  const comments = [...listing.matchAll(/comment "([^"]+)"/g)].map(([, comment = ""]) => comment);
  assert.equal(comments.length, all.length);
  const names = new Set(services.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`));
  assert.deepEqual(new Set(comments.map((text) => text.slice(0, 2 * NAME_LENGTH + 1))), names);
  const keys = [...names];
  await second.remove(...keys);
  await second.removeSlices(...keys);
  await second[Symbol.asyncDispose]();
  assert.doesNotMatch(execFileSync("ip", argv, { encoding: "utf8" }), /comment/);
});

/** Bytes in use when nothing that could go is left. */
function usedBytes(gc: () => void): number {
  gc();
  gc();
  const { heapUsed, external, arrayBuffers } = process.memoryUsage();
  return heapUsed + external + arrayBuffers;
}

test(`memory: as much after ${ROUNDS * 2 * SERVICES_AT_ONCE} changes to Services with ever new names as before`, async () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  const proxy = await NodeProxy.open(bed);
  let former: readonly string[] = [];
  const churn = async (round: number): Promise<void> => {
    const all = Array.from({ length: SERVICES_AT_ONCE }, (_, at) => objects("ns", `r${round}-${at}`, at + (round % 7)));
    await Promise.all([
      proxy.remove(...former),
      proxy.removeSlices(...former),
      proxy.setSlices(...all.map(([, slice]) => slice)),
      proxy.set(...all.map(([service]) => service)),
    ]);
    former = all.map(([service]) => service.metadata.name);
  };
  for (let round = 0; round < WARM_UP_ROUNDS; round += 1) await churn(round);
  const before_ = usedBytes(gc);
  for (let round = 0; round < ROUNDS; round += 1) await churn(WARM_UP_ROUNDS + round);
  const after_ = usedBytes(gc);
  await proxy[Symbol.asyncDispose]();
  assert.ok(after_ < before_ * 1.1, `${before_} bytes before, ${after_} after`);
});
