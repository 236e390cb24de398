/** Random events, and what packets meet in the real table as against a model made from nothing (docs/spec/service-proxy.md#3.2: R5). */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import type { EndpointSlice, Service } from "#kube/client";
import { DataPlane, GenerationTracker } from "../dataplane/index.ts";
import type { Protocol } from "../model/index.ts";
import { SETS } from "../rules/index.ts";
import { addressesOf, packetOf, ruleOptions, tableOf } from "../testing/fixture.ts";
import { oneNetNs } from "../testing/one-netns.ts";
import { randomService, randomSlice } from "../testing/random-objects.ts";
import { TrackedObjects } from "../testing/tracked-objects.ts";
import { type Packet, type TraceContext, traceAll, traceContext } from "../trace/index.ts";

const EVENTS = process.env["ISTHMUS_SOAK"] === "full" ? 20_000 : 1000;
/** The table is looked at after so many. */
const EVERY = 5;
/** Packets to used and unused addresses and ports. */
const STRAY_PACKETS = 20;
const SENDERS = ["pod", "node", "external"] as const;
const NAME = `isp-churn-${process.pid}`;

const own = oneNetNs(NAME);

type Event = (objects: Objects) => void;

/** The API's objects as they are now. */
interface Objects {
  readonly services: Map<string, Service>;
  readonly slices: Map<string, EndpointSlice>;
  zone: string | undefined;
}

const anEvent: fc.Arbitrary<Event> = fc.oneof(
  {
    weight: 4,
    arbitrary: randomService.map(
      (one): Event =>
        ({ services }) =>
          void services.set(one.metadata.name, one),
    ),
  },
  {
    weight: 10,
    arbitrary: randomSlice.map(
      (one): Event =>
        ({ slices }) =>
          void slices.set(one.metadata.name, one),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom("a", "b", "c").map(
      (name): Event =>
        ({ services }) =>
          void services.delete(name),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom("s1", "s2", "s3").map(
      (name): Event =>
        ({ slices }) =>
          void slices.delete(name),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom("z1", "z2", undefined).map(
      (zone): Event =>
        (objects) => {
          objects.zone = zone;
        },
    ),
  },
);

/** A packet to somewhere that Services may be. */
function aPacket(family: IpFamily): fc.Arbitrary<Packet> {
  const last = fc.integer({ min: 1, max: 6 });
  const prefixes = family === 4 ? ["172.30.0.", "203.0.113."] : ["fd00:172:30::", "2001:db8:113::"];
  const addresses = fc.oneof(
    fc.tuple(fc.constantFrom(...prefixes), last).map(([prefix, at]) => IpAddress.parse(`${prefix}${at}`)),
    fc.constant(addressesOf(family).node),
  );
  return fc
    .tuple(
      fc.constantFrom(...SENDERS),
      addresses,
      fc.constantFrom(80, 81, 82, 83, 30_080, 30_081, 30_082, 30_083),
      fc.constantFrom<Protocol>("TCP", "TCP", "UDP", "SCTP"),
    )
    .map(([sender, address, port, protocol]) => packetOf(family, sender, address, port, protocol));
}

/** Packets of everybody to every front end of these Services. */
function packetsTo({ family, tracker }: TrackedObjects): Packet[] {
  const ports = [...tracker.services.values()].flat();
  const kinds = ports.flatMap(({ protocol, port, nodePort, clusterIP, externalIPs, loadBalancerIPs }) => [
    ...[clusterIP, ...externalIPs, ...loadBalancerIPs].map((address) => ({ address, port, protocol })),
    { address: addressesOf(family).node, port: nodePort, protocol },
  ]);
  return kinds.flatMap(({ address, port, protocol }) =>
    SENDERS.map((sender) => packetOf(family, sender, address, port, protocol)),
  );
}

/** All that may become of a packet. */
function ends(packet: Packet, context: TraceContext): readonly string[] {
  const texts = traceAll(packet, context).map(({ outcome }) => JSON.stringify(outcome));
  return [...new Set(texts)].sort();
}

for (const family of [4, 6] as const) {
  test(`DataPlane: after random events packets go the same way as in a table made from nothing, IPv${family}`, async () => {
    const options = ruleOptions(family);
    const open = (): DataPlane =>
      new DataPlane(
        { clock: systemClock, log: nullLogger, ...own.tables, generations: new GenerationTracker(own.tables.elements) },
        { ...options, tableName: NAME },
      );
    const local = [addressesOf(family).node];
    const tracked = new TrackedObjects(family);
    const objects: Objects = { services: new Map(), slices: new Map(), zone: undefined };
    const plane = open();
    let delivered = 0;
    for (let events = 0; events < EVENTS; events += EVERY) {
      for (const change of fc.sample(anEvent, EVERY)) {
        const before_ = { services: new Map(objects.services), slices: new Map(objects.slices) };
        change(objects);
        for (const name of before_.services.keys()) if (!objects.services.has(name)) tracked.service(name, undefined);
        for (const name of before_.slices.keys()) if (!objects.slices.has(name)) tracked.slice(name, undefined);
        tracked.objects([...objects.services.values()], [...objects.slices.values()]).zone(objects.zone);
      }
      await plane.sync(tracked.state);
      // One that knows nothing reads the kernel, and finds nothing to do.
      const reader = open();
      assert.equal((await reader.sync(tracked.state, { full: true })).changes, 0);
      const keys = (set: string): Set<string> =>
        new Set(own.tables.elements.list(reader.table, set).map(({ key }) => key));
      const { serviceCIDR } = addressesOf(family);
      const real = traceContext(
        {
          frontEnds: reader.frontEnds,
          clusterIPs: keys(SETS.clusterIps),
          hairpinEndpoints: keys(SETS.hairpin),
          nodePortIPs: keys(SETS.nodePortIps),
          serviceCIDRs: [serviceCIDR],
        },
        options,
        local,
      );
      const fresh = new TrackedObjects(family);
      fresh.zone(objects.zone);
      fresh.objects([...objects.services.values()], [...objects.slices.values()]).plan();
      const model = traceContext(tableOf(family, fresh.wanted), options, local);
      for (const packet of [...packetsTo(fresh), ...fc.sample(aPacket(family), STRAY_PACKETS)]) {
        const found = ends(packet, real);
        const { source, destination, port, protocol } = packet;
        assert.deepEqual(found, ends(packet, model), `${source} to ${destination} ${port}/${protocol}`);
        if (found.some((text) => text.includes('"isTranslated":true'))) delivered += 1;
      }
    }
    assert.ok(delivered > EVENTS / 4, `only ${delivered} packets met an endpoint: these objects test nothing`);
  });
}
