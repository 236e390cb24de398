import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import type { Nft } from "#kernel/nft";
import { NftError } from "#kernel/nft";
import { overridden } from "#test/overridden";
import { layoutR } from "#test/service-layout-r";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import {
  addressesOf,
  endpoint,
  NODE,
  ruleOptions,
  SERVICE_PORT,
  servicePort,
  TARGET_PORT,
} from "../testing/fixture.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

const NAME = `isp-to-${process.pid}`;
const ENDPOINTS = 4;
/** Services beside the one that is connected to, so that a takeover has something to move. */
const OTHERS = 300;
/** More refusals than a takeover has transactions. */
const MAX_STEPS = 60;

let bed: Bed;
before(async () => {
  bed = await Bed.open(NAME);
});
after(() => bed[Symbol.asyncDispose]());

/** Refuses the transaction of this number. */
function refusing(nft: Nft, refused: number): Nft {
  let calls = 0;
  const run = (changes: Parameters<Nft["run"]>[0]): void => {
    calls += 1;
    if (calls === refused) throw new NftError("busy", "refused by the test", { script: "" });
    nft.run(changes);
  };
  return overridden(nft, { run });
}

/** The table of kube-proxy, where it was not: as it is found on a node that ran it. */
function load(family: IpFamily, endpoints: readonly IpAddress[]): void {
  const { clusterIP } = addressesOf(family);
  const service = { port: SERVICE_PORT, endpoints, targetPort: TARGET_PORT };
  const services = Array.from({ length: OTHERS }, (_, at) => ({
    ...service,
    name: `ns/svc-${at}`,
    address: clusterIP,
    port: 1000 + at,
  }));
  const script = layoutR({ family, services: [{ ...service, name: "ns/svc", address: clusterIP }, ...services] });
  execFileSync("ip", ["netns", "exec", `${NAME}-node`, "nft", "-f", "-"], { input: script });
}

function wantedOf(family: IpFamily, endpoints: readonly IpAddress[]): WantedState {
  const services = new WantedTable();
  const ports = Array.from({ length: OTHERS + 1 }, (_, at) => ({
    port: servicePort(family, { portName: `${at}`, port: at === 0 ? SERVICE_PORT : 999 + at }),
    endpoints: endpoints.map((address) => endpoint(family, "remote", { address })),
  }));
  services.set("ns/svc", planService(ports, NODE, []));
  return {
    services,
    nodePortIPs: new Set([addressBytes(addressesOf(family).node)]),
    serviceCIDRs: [addressesOf(family).serviceCIDR],
  };
}

/** Connects without a pause until it is stopped; what failed. */
function connecting(family: IpFamily) {
  const { clusterIP } = addressesOf(family);
  const failures: string[] = [];
  const counts = { connections: 0 };
  let isDone = false;
  const one = async (sender: "external" | "pod"): Promise<void> => {
    while (!isDone) {
      const { kind } = await bed.connect(sender, clusterIP, SERVICE_PORT, { droppedMs: 900 });
      counts.connections += 1;
      if (kind !== "delivered") failures.push(kind);
    }
  };
  const all = Promise.all([one("external"), one("external"), one("pod"), one("pod")]);
  const stop = async (): Promise<void> => {
    isDone = true;
    await all;
  };
  return { failures, counts, stop };
}

for (const family of [4, 6] as const) {
  test(`DataPlane: kube-proxy's table is taken over under load, again and again and with every transaction refused once, and no connection fails, IPv${family}`, async () => {
    const { nft, elements } = bed;
    const options = { ...ruleOptions(family), tableName: "kube-proxy" };
    const endpoints = await bed.serveMore(family, ENDPOINTS);
    const wanted = wantedOf(family, endpoints);
    load(family, endpoints);
    const load_ = connecting(family);
    let refused = 0;
    for (let at = 1; at < MAX_STEPS; at += 1) {
      const open = (port: Nft): DataPlane =>
        new DataPlane(
          { nft: port, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
          options,
        );
      const plane = open(refusing(nft, at));
      const failed = await plane.sync(wanted).then(
        () => false,
        (error: unknown) => error instanceof NftError,
      );
      refused += failed ? 1 : 0;
      // Another process goes on where that one was ended.
      if (failed) await open(nft).sync(wanted);
      const tables = nft.listTables(family === 4 ? "ip" : "ip6").map(({ name }) => name);
      assert.deepEqual(tables, ["kube-proxy"], `after transaction ${at} was refused`);
      assert.equal((await open(nft).sync(wanted)).changes, 0);
      if (!failed) break;
      // A table of another layout under the name once more, as lossless: ours is one, without its mark.
      nft.run([{ op: "delete", kind: "chain", table: plane.table, chain: "isthmus-layout-1" }]);
    }
    await load_.stop();
    assert.deepEqual(load_.failures, []);
    assert.ok(refused >= 8 && load_.counts.connections > 100, JSON.stringify({ refused, ...load_.counts }));
  });
}
