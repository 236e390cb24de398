/** Clients of one Service take affinity from no other: forged ones by real packets (docs/spec/service-proxy.md#2.7). */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { bindUdp } from "#kernel/socket";
import { DataPlane, GenerationTracker, type WantedState } from "../dataplane/index.ts";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, SERVICE_PORT, servicePort } from "../testing/fixture.ts";
import { AffinityFill, CROWDED_COUNT_MS } from "./index.ts";

/** Clients that the map takes. */
const ENTRIES = 2048;
const SHARE = ENTRIES / 2;
/** Forged sources; the kernel lets some more in than the size says. */
const FORGED = 2400;
const SOURCES = { 4: IpAddress.parse("198.18.0.1"), 6: IpAddress.parse("2001:db8:5::1") } as const;
const RANGES = { 4: "198.18.0.0/15", 6: "2001:db8:5::/64" } as const;
const ENDPOINTS = 5;
/** All of five endpoints at random are not one and the same so often in a row, but for one time in ten millions. */
const TRIES = 12;

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-share-${process.pid}`);
  for (const family of [4, 6] as const) {
    bed.ip("external", `-${family}`, "route", "add", "local", RANGES[family], "dev", "lo");
  }
});
after(() => bed[Symbol.asyncDispose]());

/** A datagram of each of these forged sources to a Service. */
async function flood(family: IpFamily, first: number, count: number): Promise<void> {
  const to = flooded(family).clusterIP;
  for (let at = first; at < first + count; at += 1) {
    const fd = bindUdp(SOURCES[family].plus(at), 0, { netns: bed.netns("external"), freebind: true });
    const socket = createSocket(family === 4 ? "udp4" : "udp6");
    socket.on("error", () => undefined);
    const listening = once(socket, "listening");
    socket.bind({ fd });
    await listening;
    await new Promise<void>((resolve) => socket.send("x", SERVICE_PORT, String(to), () => resolve()));
    socket.close();
  }
}

const flooded = (family: IpFamily) =>
  servicePort(family, {
    ...{ name: "flooded", protocol: "UDP", affinitySeconds: 10_800, nodePort: 0, externalIPs: [], loadBalancerIPs: [] },
    clusterIP: addressesOf(family).clusterIP.plus(1),
  });

function wanted(family: IpFamily, addresses: readonly IpAddress[]): WantedState {
  const services = new WantedTable();
  const endpoints = addresses.map((address) => endpoint(family, "remote", { address }));
  const nodes = [addressesOf(family).node];
  services.set("ns/flooded", planService([{ port: flooded(family), endpoints }], NODE, nodes));
  services.set(
    "ns/svc",
    planService([{ port: servicePort(family, { affinitySeconds: 10_800 }), endpoints }], NODE, nodes),
  );
  return { services, nodePortIPs: new Set([addressBytes(addressesOf(family).node)]), serviceCIDRs: [] };
}

for (const family of [4, 6] as const) {
  test(`affinity: a flood of forged clients to one Service takes affinity from no other, and its own newest clients stay, IPv${family}`, async (t) => {
    const { nft, elements } = bed;
    const plane = new DataPlane(
      { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
      { ...ruleOptions(family, { affinityEntries: ENTRIES }), tableName: "kube-proxy" },
    );
    const more = await bed.serveMore(family, ENDPOINTS);
    await plane.sync(wanted(family, more));
    const clock = new FakeClock();
    const trimmed: number[] = [];
    const fill = new AffinityFill({
      families: [{ family, isBusy: false, plane }],
      ...{ onCount: () => undefined, onTrim: (_, clients) => trimmed.push(clients), log: nullLogger, clock },
    });
    const remembered = (): readonly string[] => elements.list(plane.table, "affinity").map(({ key }) => key);
    /** Returns the number of a hundred forged clients that are remembered. Clients that came within one tick of the kernel have no order. */
    const ofForged = (from: number): number => {
      const keys = remembered();
      const clients = Array.from({ length: 100 }, (_, at) => addressBytes(SOURCES[family].plus(from + at)));
      return clients.filter((client) => keys.some((key) => key.startsWith(client))).length;
    };
    /** The number of endpoints that one client of the other Service gets. */
    const reached = async (): Promise<number> => {
      const seen = new Set<string>();
      for (let at = 0; at < TRIES; at += 1) {
        const one = await bed.connect("external", addressesOf(family).clusterIP, SERVICE_PORT, { droppedMs: 900 });
        if (one.kind === "delivered") seen.add(one.by);
      }
      return seen.size;
    };
    await flood(family, 0, FORGED);
    assert.ok(remembered().length >= ENTRIES, `${remembered().length} entries`);
    assert.ok((await reached()) > 1, "the map is full");
    const first = remembered().length;
    const stop = new AbortController();
    const running = fill.run({ signal: stop.signal });
    t.after(async () => {
      stop.abort();
      await running;
    });
    /** Moves the clock from one look to the next: the first one after a flood may come later, and one may leave what its listing lacked. */
    const settle = async (what: string, isTrue: () => boolean): Promise<void> => {
      for (const deadline = performance.now() + 30_000; !isTrue(); ) {
        assert.ok(performance.now() < deadline, `${what}: ${remembered().length} entries, ${trimmed.length} trims`);
        await clock.advance(CROWDED_COUNT_MS);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    };
    await settle("the flooded Service is at its share", () => trimmed.length > 0 && remembered().length <= SHARE);
    const [oldest, newest] = [ofForged(0), ofForged(first - 100)];
    // Half of each would stay if age did not count. A listing of a set that grows may miss some, and a busy machine makes more of these.
    assert.ok(oldest < 25 && newest > 75, `of the oldest ${oldest} stay, of the newest ${newest}`);
    assert.equal(await reached(), 1, "a new client of the other Service is remembered");
    await flood(family, FORGED, SHARE + 100);
    const before = trimmed.length;
    await settle("it is at its share again", () => trimmed.length > before);
    assert.equal(await reached(), 1, "and stays so in the next flood");
    await plane.remove();
  });
}
