import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import type { NftElements } from "#kernel/nft-elements";
import { overridden } from "#test/overridden";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";
import { addressesOf, endpoint, NODE, ruleOptions, servicePort } from "../testing/fixture.ts";
import { oneNetNs } from "../testing/one-netns.ts";
import { DataPlane, GenerationTracker } from "./index.ts";

const SERVICES = 2000;
const ENDPOINTS = 20;
/** Less than a tenth of what a user namespace gets by default. */
const MAX_BYTES = 32 << 10;

const space = oneNetNs(`isp-small-${process.pid}`);
const { serviceCIDR, node, remoteEndpoint } = addressesOf(4);

test("DataPlane: where the kernel takes only small batches, thousands of Services are made, changed and removed in many", async () => {
  const { nft, elements } = space.tables;
  let batches = 0;
  let largest = 0;
  const commit: NftElements["commit"] = async (batch, options) => {
    batches += 1;
    largest = Math.max(largest, batch.byteLength);
    await elements.commit(batch, options);
  };
  const small = overridden(elements, { commit, maxBatchBytes: MAX_BYTES });
  const generations = new GenerationTracker(elements);
  const plane = new DataPlane(
    { nft, elements: small, generations, clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const services = new WantedTable();
  const sync = (full: boolean) =>
    plane.sync({ services, nodePortIPs: new Set([addressBytes(node)]), serviceCIDRs: [serviceCIDR] }, { full });
  const choose = (endpoints: number): void => {
    for (let at = 0; at < SERVICES; at += 1) {
      const one = {
        name: `s${at}`,
        clusterIP: serviceCIDR.at(at + 1),
        nodePort: 0,
        externalIPs: [],
        loadBalancerIPs: [],
      };
      const some = Array.from({ length: endpoints }, (_, nth) =>
        endpoint(4, "remote", { address: remoteEndpoint.plus(BigInt(at * ENDPOINTS + nth)) }),
      );
      const port = servicePort(4, one);
      services.set(`ns/s${at}`, endpoints === 0 ? undefined : planService([{ port, endpoints: some }], NODE, []));
    }
  };
  for (const [endpoints, slots] of [
    [ENDPOINTS, SERVICES * ENDPOINTS],
    [1, SERVICES],
    [0, 0],
  ] as const) {
    batches = 0;
    choose(endpoints);
    await sync(false);
    assert.ok(batches > 2 && largest <= MAX_BYTES, `${batches} batches, the largest of ${largest} bytes`);
    assert.equal(elements.list(plane.table, SETS.endpoints).length, slots);
    assert.equal(elements.list(plane.table, SETS.serviceIps).length, endpoints === 0 ? 0 : SERVICES);
    assert.equal(generations.hasForeignChanges, false);
    assert.equal((await sync(true)).changes, 0);
  }
});
