import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep } from "#base/async";
import { systemClock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, SERVICE_PORT, servicePort } from "../testing/fixture.ts";
import { DataPlane, GenerationTracker } from "./index.ts";

/** The time for which connections are made, in milliseconds; and how many endpoints there are, all alive all the time. */
const LOAD_MS = process.env["ISTHMUS_SOAK"] === "full" ? 60_000 : 2500;
const ENDPOINTS = 12;
const CHURN_PAUSE_MS = 20;

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-ll-${process.pid}`);
});
after(() => bed[Symbol.asyncDispose]());

/** Makes the Service have other endpoints again and again; every now and then a new plane takes the table over, as a restart does. */
async function churn(
  family: IpFamily,
  addresses: readonly IpAddress[],
  { counts, signal }: { readonly counts: Counts; readonly signal: AbortSignal },
): Promise<void> {
  const { nft, elements } = bed;
  const options = { ...ruleOptions(family), tableName: "kube-proxy" };
  const open = (): DataPlane =>
    new DataPlane(
      { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
      options,
    );
  const services = new WantedTable();
  const wanted = {
    services,
    nodePortIPs: new Set([addressBytes(addressesOf(family).node)]),
    serviceCIDRs: [addressesOf(family).serviceCIDR],
  };
  let plane = open();
  while (!signal.aborted) {
    const count = 1 + Math.floor(Math.random() * addresses.length);
    const chosen = [...addresses].sort(() => Math.random() - 0.5).slice(0, count);
    const endpoints = chosen.map((address) => endpoint(family, "remote", { address }));
    const ports = (["TCP", "UDP"] as const).map((protocol) => ({
      port: servicePort(family, { protocol, portName: protocol }),
      endpoints,
    }));
    services.set("ns/svc", planService(ports, NODE, []));
    await plane.sync(wanted);
    counts.updates += 1;
    if (counts.updates % 10 === 0) plane = open();
    if (counts.updates === 1) started.resolve();
    await sleep(CHURN_PAUSE_MS, { signal }).catch(() => undefined);
  }
}

/** The load counts these, and goes on until there are enough of each, however slow the machine is. */
type Counts = { tcp: number; udp: number; updates: number };
const LEAST: Counts = { tcp: LOAD_MS / 10, udp: LOAD_MS / 50, updates: LOAD_MS / 250 };

let started = Promise.withResolvers<void>();

for (const family of [4, 6] as const) {
  test(`DataPlane: no connection and no datagram is lost while endpoints come and go and planes are taken over, IPv${family}`, async () => {
    started = Promise.withResolvers();
    const { clusterIP, loadBalancerIP } = addressesOf(family);
    const addresses = await bed.serveMore(family, ENDPOINTS);
    const stop = new AbortController();
    const counts = { tcp: 0, udp: 0, updates: 0 };
    const churning = churn(family, addresses, { counts, signal: stop.signal });
    await started.promise;
    const failures: string[] = [];
    const until = performance.now() + LOAD_MS;
    const isEnough = (): boolean =>
      performance.now() >= until && (["tcp", "udp", "updates"] as const).every((kind) => counts[kind] > LEAST[kind]);
    const load = async (ask: () => Promise<string | undefined>, kind: "tcp" | "udp"): Promise<void> => {
      while (!isEnough()) {
        const failure = await ask();
        counts[kind] += 1;
        if (failure !== undefined) failures.push(`${kind}: ${failure}`);
      }
    };
    const tcp = (sender: "external" | "pod", address: IpAddress) => async (): Promise<string | undefined> => {
      // More connections than there are ports: each is to be free again at once.
      // A lost first packet is sent again after a second: an earlier answer means that none was lost.
      const { kind } = await bed.connect(sender, address, SERVICE_PORT, { droppedMs: 900, reset: true });
      return kind === "delivered" ? undefined : kind;
    };
    const udp = async (): Promise<string | undefined> => {
      const isAnswered = await bed.askUdp("external", clusterIP, SERVICE_PORT);
      return isAnswered ? undefined : "no answer";
    };
    await Promise.all([
      load(tcp("external", clusterIP), "tcp"),
      load(tcp("pod", loadBalancerIP), "tcp"),
      load(tcp("external", loadBalancerIP), "tcp"),
      load(udp, "udp"),
    ]).finally(() => stop.abort());
    await churning;
    assert.deepEqual(failures, []);
    assert.ok(isEnough());
  });
}
