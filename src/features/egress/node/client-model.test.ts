import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { FakeConntrack } from "#kernel/conntrack";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import { resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { DEADLINE_MS, failure, INTERNET, openClients, stateOf } from "#test/client-bed";
import { PRIVATE_RANGES, syncClient } from "../client/index.ts";
import { nftFilter } from "../filter/index.ts";
import { vxlanDriver } from "../tunnel/index.ts";

/** A change of the objects from which clients are planned. */
type Op =
  | { readonly op: "make" | "delete"; readonly what: "egress" | "service"; readonly at: number }
  | {
      readonly op: "edit";
      readonly at: number;
      readonly destinations: readonly string[];
      readonly only: boolean | null;
    }
  | { readonly op: "annotate"; readonly pod: number; readonly names: readonly number[] }
  | { readonly op: "restart" };

const at = fc.nat(2);

const ANY_OP: fc.Arbitrary<Op> = fc.oneof(
  fc.record({
    op: fc.constantFrom("make" as const, "delete" as const),
    what: fc.constantFrom("egress" as const, "service" as const),
    at,
  }),
  fc.record({
    op: fc.constant("edit" as const),
    at,
    destinations: fc.uniqueArray(fc.constantFrom("0.0.0.0/0", "8.8.8.0/24", "172.20.0.0/16", "203.0.113.0/24"), {
      minLength: 1,
    }),
    only: fc.constantFrom(true, false, null),
  }),
  fc.record({ op: fc.constant("annotate" as const), pod: fc.nat(1), names: fc.uniqueArray(at) }),
  fc.record({ op: fc.constant("restart" as const) }),
);

test("live: after any events in any order and any restarts, each pod has what a fresh start makes of the last state", async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(ANY_OP, { minLength: 4, maxLength: 16 }), async (ops) => {
      const bed = await openClients(t);
      const addresses = ["10.64.0.10", "10.64.0.11"];
      let coild = bed.begin();
      for (const [nth, address] of addresses.entries()) {
        bed.makeNetns(`p${nth}`, [address]);
        bed.addDefaultRoute(`p${nth}`);
        await bed.makePod(`p${nth}`, [address], "e0,e1");
      }
      const ref = (nth: number) => ({ namespace: INTERNET, name: `e${nth}` });
      const egresses = new Map<number, { destinations: readonly string[]; only: boolean | null }>();
      const services = new Map<number, IpAddress>();
      const named = addresses.map((): readonly number[] => [0, 1]);
      const makeService = async (nth: number): Promise<void> => {
        if (!services.has(nth)) services.set(nth, await bed.makeService(`e${nth}`));
      };
      for (const one of ops) {
        if (one.op === "restart") {
          await coild.stop();
          coild = bed.begin();
        } else if (one.op === "annotate") {
          named[one.pod] = one.names;
          await bed.annotate(`p${one.pod}`, one.names.length === 0 ? null : one.names.map((nth) => `e${nth}`).join());
        } else if (one.op === "edit") {
          const { destinations, only } = one;
          if (!egresses.has(one.at)) continue;
          egresses.set(one.at, { destinations, only });
          const body = { spec: { destinations, originatingOnly: only } };
          await bed.api.patch(coilResources.egresses, ref(one.at), { type: "merge", body });
        } else if (one.what === "service") {
          if (one.op === "make") await makeService(one.at);
          else if (services.delete(one.at)) await bed.api.delete(resources.services, ref(one.at));
        } else if (one.op === "make") {
          if (egresses.has(one.at)) continue;
          egresses.set(one.at, { destinations: ["203.0.113.0/24"], only: null });
          await bed.makeEgress(`e${one.at}`, ["203.0.113.0/24"]);
        } else if (egresses.delete(one.at)) await bed.api.delete(coilResources.egresses, ref(one.at));
      }
      // While an Egress is gone or has no Service its clients keep what they had, which is not a function of the last state.
      for (const nth of named.flat()) {
        if (egresses.has(nth)) continue;
        egresses.set(nth, { destinations: ["203.0.113.0/24"], only: null });
        await bed.makeEgress(`e${nth}`, ["203.0.113.0/24"]);
      }
      for (const nth of egresses.keys()) await makeService(nth);
      for (const [nth, address] of addresses.entries()) {
        const gateways = (named[nth] ?? []).flatMap((which) => {
          const [egress, service] = [egresses.get(which), services.get(which)];
          if (egress === undefined || service === undefined) return [];
          const destinations = egress.destinations.map((text) => Cidr.parse(text));
          const originatingOnly = egress.only ?? false;
          return [{ egress: ref(which), address: service, destinations, sourcePortAuto: false, originatingOnly }];
        });
        const fresh = new FakeKernel();
        using netns = fresh.createNetNs("fresh");
        using host = fresh.openStack(fresh.openNetNs("own"));
        host.links.create({ kind: "veth", name: "v", up: true, peer: { name: "eth0", netns, up: true } });
        using stack = fresh.openStack(netns);
        const linkIndex = stack.links.get({ name: "eth0" })?.index ?? assert.fail();
        stack.addresses.add({ linkIndex, address: IpAddress.parse(address) });
        stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), linkIndex, scope: "link" });
        const openFilter = () => ({ ...nftFilter(new FakeNft()), [Symbol.dispose]: () => undefined });
        const openConntrack = () => new FakeConntrack();
        const pod = { addresses: { 4: IpAddress.parse(address) }, ifname: "eth0", mtuBytes: 1500 };
        const options = { driver: vxlanDriver, port: 5555, inCluster: PRIVATE_RANGES, openFilter, openConntrack };
        await syncClient(stack, pod, gateways, options);
        const wanted = stateOf(fresh.dump({ name: "fresh" }));
        const seen = await poll(() => stateOf(bed.dump(`p${nth}`)), {
          until: (state) => isDeepStrictEqual(state, wanted),
          everyMs: 5,
          deadlineMs: DEADLINE_MS,
          clock: systemClock,
        });
        assert.deepEqual(seen, wanted, bed.lines.join(""));
      }
      await bed.close();
    }),
    { numRuns: 15 },
  );
});

test("live: 100 edits a second of an Egress of 50 pods, and 10,000 rubbish names, cost each pod five comparisons a second at most, and end in the last state", async (t) => {
  const bed = await openClients(t);
  await bed.makeEgress("nat", ["203.0.113.0/24"]);
  await bed.makeService("nat");
  const { clients } = bed.begin();
  const pods = Array.from({ length: 50 }, (_, nth) => ({ name: `p${nth}`, address: `10.64.1.${nth}` }));
  for (const { name, address } of pods) {
    bed.makeNetns(name, [address]);
    await bed.add(clients, await bed.makePod(name, [address], "nat"), name, address);
  }
  const names = Array.from({ length: 10_000 }, (_, nth) => `rubbish-${nth}`).join();
  bed.makeNetns("bomb", ["10.64.2.1"]);
  const bomb = await bed.makePod("bomb", ["10.64.2.1"], names);
  await assert.rejects(
    bed.add(clients, bomb, "bomb", "10.64.2.1"),
    failure("try-again", /"internet\/rubbish-0" does not exist/),
  );
  const body = (nth: number) => ({ spec: { destinations: [`198.51.${nth}.0/24`] } });
  const egress = { namespace: INTERNET, name: "nat" };
  const begunMs = systemClock.monotonic();
  for (let nth = 0; nth < 100; nth += 1)
    await bed.api.patch(coilResources.egresses, egress, { type: "merge", body: body(nth) });
  for (const { name } of pods) await bed.until(name, "198.51.99.0/24", "!198.51.98.0/24", "!203.0.113.0/24");
  const seconds = (systemClock.monotonic() - begunMs) / 1000;
  for (const { name } of pods) {
    const passes = bed.lines.filter((line) => line.includes(`"pod":"${name}","changes"`)).length;
    assert.ok(passes >= 1 && passes <= 5 * seconds + 2, `${name}: ${passes} in ${seconds} s`);
  }
  const lines = bed.lines.filter((line) => line.includes('"rubbish-') || line.includes("rubbish-0"));
  assert.equal(lines.length, 1, lines.join(""));
  assert.ok((lines[0] ?? "").length < 2000 && /and \d+ more/.test(lines[0] ?? ""));
});
