import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { addressBytes } from "../plan/index.ts";
import { Bed, type Reached } from "../testing/bed.ts";
import { addressesOf, endpoint, ruleOptions, SERVICE_PORT, servicePort, wantedOf } from "../testing/fixture.ts";
import { frontEndAddress, matrix, type Row } from "../testing/matrix.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-${process.pid}`);
});
after(() => bed[Symbol.asyncDispose]());

function stateOf(family: IpFamily, row: Pick<Row, "service" | "endpoints">): WantedState {
  const endpoints = row.endpoints.map((one) => (typeof one === "string" ? endpoint(family, one) : one));
  const { node, serviceCIDR } = addressesOf(family);
  return {
    services: wantedOf(family, [{ port: servicePort(family, row.service), endpoints }]),
    nodePortIPs: new Set([addressBytes(node)]),
    serviceCIDRs: [serviceCIDR],
  };
}

function planeFor(family: IpFamily, row: Pick<Row, "masqueradeAll" | "hasDetector">): DataPlane {
  const { nft, elements } = bed;
  const changes = {
    ...(row.masqueradeAll === true ? { masqueradeAll: true } : {}),
    ...(row.hasDetector === false ? { detector: undefined } : {}),
  };
  const options = { ...ruleOptions(family, changes), tableName: "kube-proxy" };
  return new DataPlane(
    { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    options,
  );
}

/** The row's own words, from what real connections came to. */
async function inShort(
  family: IpFamily,
  row: Row,
  { address, port }: { address: IpAddress; port: number },
): Promise<string> {
  const isEnd = row.expected === "drop" || row.expected === "reject";
  const servers = new Set<string>();
  const ends = new Set<string>();
  for (let tries = 0; tries < (isEnd ? 1 : 40); tries += 1) {
    const reached: Reached = await bed.connect(row.sender, address, port);
    if (reached.kind !== "delivered") return reached.kind === "dropped" ? "drop" : "reject";
    servers.add(reached.server);
    // The node's own connections have its outer address, and masqueraded ones that of the link to the endpoint.
    const isMasked =
      bed.nodeAddresses(family).some((own) => own.equals(reached.seen)) &&
      !(row.sender === "node" && reached.seen.equals(addressesOf(family).node));
    ends.add(isMasked ? "M" : "");
    if (servers.has("remote") && tries >= 3) break;
    if (row.expected.startsWith("L") && tries >= 8) break;
  }
  assert.equal(ends.size, 1, row.name);
  return `${servers.has("remote") ? "C" : "L"}${[...ends][0]}`;
}

for (const family of [4, 6] as const) {
  test(`DataPlane: real connections agree with the tracer in every row of the traffic matrix, IPv${family}`, async () => {
    for (const row of matrix(family)) {
      const plane = planeFor(family, row);
      const state = stateOf(family, row);
      await plane.sync(state);
      assert.equal(
        (await plane.sync(state, { full: true })).changes,
        0,
        `${row.name}: the second sync changed something`,
      );
      const found = await inShort(family, row, frontEndAddress(family, row.kind));
      assert.equal(found, row.expected, row.name);
    }
  });

  test(`DataPlane: an endpoint reaches itself through its Service, unused ports are rejected, unused addresses dropped, IPv${family}`, async () => {
    const plane = planeFor(family, {});
    await plane.sync(stateOf(family, { service: {}, endpoints: ["local"] }));
    const { clusterIP, serviceCIDR } = addressesOf(family);
    const hairpin = await bed.connect("local", clusterIP, SERVICE_PORT);
    assert.ok(hairpin.kind === "delivered" && bed.nodeAddresses(family).some((own) => own.equals(hairpin.seen)));
    for (const sender of ["pod", "external", "node"] as const) {
      assert.equal((await bed.connect(sender, clusterIP, 81)).kind, "rejected", sender);
      assert.equal((await bed.connect(sender, serviceCIDR.at(0x99), SERVICE_PORT)).kind, "dropped", sender);
    }
    assert.equal(await plane.remove(), true);
    assert.equal(await plane.remove(), false);
  });
}
