import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { ElementBatch } from "#kernel/nft-elements";
import { until } from "#test/lab";
import type { Endpoint, ServicePort } from "../model/index.ts";
import { addressBytes, addressKey, endpointValue, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import {
  addressesOf,
  endpoint,
  NODE,
  NODE_PORT,
  ruleOptions,
  SERVICE_PORT,
  servicePort,
  TARGET_PORT,
} from "../testing/fixture.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

/** A busy node's, within the timeout. */
const CLIENTS = 60_000;
/** No more of them go between two turns of the event loop. */
const DELETED_AT_ONCE = 500;

let bed: Bed;
let more: Record<IpFamily, readonly IpAddress[]>;
before(async () => {
  bed = await Bed.open(`isp-aff-${process.pid}`);
  more = { 4: await bed.serveMore(4, 4), 6: await bed.serveMore(6, 4) };
});
after(() => bed[Symbol.asyncDispose]());

function open(family: IpFamily): DataPlane {
  const { nft, elements } = bed;
  return new DataPlane(
    { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    { ...ruleOptions(family), tableName: "kube-proxy" },
  );
}

function wanted(family: IpFamily, port: Partial<ServicePort>, addresses: readonly IpAddress[]): WantedState {
  const services = new WantedTable();
  const endpoints = addresses.map((address) => endpoint(family, "remote", { address }));
  services.set(
    "ns/svc",
    planService([{ port: servicePort(family, port), endpoints }], NODE, [addressesOf(family).node]),
  );
  return { services, nodePortIPs: new Set([addressBytes(addressesOf(family).node)]), serviceCIDRs: [] };
}

/** Which endpoints a sender's connections reach, by what the affinity map has of them and by who answers. */
async function reached(family: IpFamily, address: IpAddress, port: number, tries: number): Promise<number> {
  for (let at = 0; at < tries; at += 1) {
    const { kind } = await bed.connect("external", address, port, { droppedMs: 900 });
    assert.equal(kind, "delivered");
  }
  const table = { family: family === 4 ? "ip" : "ip6", name: "kube-proxy" } as const;
  return new Set(bed.elements.list(table, "affinity").map(({ value }) => value)).size;
}

for (const family of [4, 6] as const) {
  test(`affinity: a client stays with its endpoint, by cluster IP and by NodePort, until the endpoint is gone or the timeout is over, IPv${family}`, async () => {
    const { clusterIP, node } = addressesOf(family);
    const plane = open(family);
    await plane.remove();
    const port = { affinitySeconds: 2 } as const;
    await plane.sync(wanted(family, port, more[family]));
    assert.equal(await reached(family, clusterIP, SERVICE_PORT, 12), 1);
    assert.equal(await reached(family, node, NODE_PORT, 12), 1, "the NodePort is of the same service port");

    // The endpoint that was remembered goes: the client gets another, at once.
    const table = { family: family === 4 ? "ip" : "ip6", name: "kube-proxy" } as const;
    const remembered = new Set(bed.elements.list(table, "affinity").map(({ value }) => value));
    const others = more[family].filter(
      (address) => ![...remembered].some((value) => String(value).startsWith(addressBytes(address))),
    );
    await plane.sync(wanted(family, port, others));
    assert.equal(bed.elements.list(table, "affinity").length, 0, "clients of lost endpoints are forgotten");
    assert.equal(await reached(family, clusterIP, SERVICE_PORT, 8), 1);
    const second = open(family);
    assert.equal((await second.sync(wanted(family, port, others), { full: true })).changes, 0, "a restart keeps it");
    assert.equal(bed.elements.list(table, "affinity").length, 1);

    await until("what is remembered expires", () => bed.elements.list(table, "affinity").length === 0, {
      deadlineMs: 6000,
    });
  });

  test(`affinity: when the policy becomes Local, clients from outside leave endpoints elsewhere, IPv${family}`, async () => {
    const plane = open(family);
    const { loadBalancerIP, node } = addressesOf(family);
    const remote = endpoint(family, "remote", { address: more[family][0] ?? loadBalancerIP });
    const local = endpoint(family, "local");
    const sync = async (externalTrafficPolicy: "Cluster" | "Local", endpoints: readonly Endpoint[]): Promise<void> => {
      const services = new WantedTable();
      const port = servicePort(family, { affinitySeconds: 60, externalTrafficPolicy });
      services.set("ns/svc", planService([{ port, endpoints }], NODE, [node]));
      await plane.sync({ services, nodePortIPs: new Set([addressBytes(node)]), serviceCIDRs: [] });
    };
    const by = async (address: IpAddress, port: number): Promise<string> => {
      const reached = await bed.connect("external", address, port, { droppedMs: 900 });
      return reached.kind === "delivered" ? reached.by : reached.kind;
    };
    const kinds = [[loadBalancerIP, SERVICE_PORT] as const, [node, NODE_PORT] as const];
    await sync("Cluster", [remote]);
    for (const [address, port] of kinds) assert.ok((await by(address, port)).startsWith(`${remote.address} `));
    await sync("Cluster", [remote, local]);
    for (const [address, port] of kinds)
      assert.ok((await by(address, port)).startsWith(`${remote.address} `), "it stays");
    await sync("Local", [remote, local]);
    for (const [address, port] of kinds) assert.ok((await by(address, port)).startsWith(`${local.address} `));
    await plane.remove();
  });

  test(`affinity: tens of thousands of entries are deleted while the event loop continues, IPv${family}`, async () => {
    const plane = open(family);
    await plane.remove();
    const port = { affinitySeconds: 600 } as const;
    const [first, second] = more[family];
    assert.ok(first !== undefined && second !== undefined);
    await plane.sync(wanted(family, port, [first, second]));
    const { clusterIP } = addressesOf(family);
    const front = addressKey(clusterIP, "TCP", SERVICE_PORT);
    const table = { family: family === 4 ? "ip" : "ip6", name: "kube-proxy" } as const;
    for (let at = 0; at < CLIENTS; at += 10_000) {
      const batch = new ElementBatch(table, { record: bed.elements.wantsRecords });
      for (let client = at; client < at + 10_000; client += 1) {
        const bytes = Buffer.alloc(family === 4 ? 4 : 16, 10);
        bytes.writeUInt32BE(client, bytes.length - 4);
        batch.add("affinity", bytes.toString("latin1") + front, endpointValue(first, TARGET_PORT));
      }
      await bed.elements.commit(batch);
    }
    let turns = 0;
    let next = setImmediate(function turn() {
      turns += 1;
      next = setImmediate(turn);
    });
    await plane.sync(wanted(family, port, [second]));
    clearImmediate(next);
    assert.equal(bed.elements.list(table, "affinity").length, 0);
    assert.ok(turns >= CLIENTS / DELETED_AT_ONCE, `the event loop turned ${turns} times`);
    await plane.remove();
  });

  test(`source ranges: a source in none is dropped at the load balancer's address, and the ranges follow the Service, IPv${family}`, async () => {
    const { external, pod, loadBalancerIP, clusterIP } = addressesOf(family);
    const plane = open(family);
    const at = async (
      sourceRanges: readonly Cidr[] | undefined,
      sender: "external" | "pod",
      address: IpAddress,
    ): Promise<string> => {
      await plane.sync(wanted(family, { sourceRanges }, more[family]));
      assert.equal((await plane.sync(wanted(family, { sourceRanges }, more[family]), { full: true })).changes, 0);
      return (await bed.connect(sender, address, SERVICE_PORT)).kind;
    };
    const [outside, pods] = [Cidr.host(external), Cidr.of(pod, family === 4 ? 24 : 64)];
    assert.equal(await at([outside], "external", loadBalancerIP), "delivered");
    assert.equal(await at([outside], "pod", loadBalancerIP), "dropped");
    assert.equal(await at([pods], "external", loadBalancerIP), "dropped");
    assert.equal(await at([pods], "external", clusterIP), "delivered");
    assert.equal(await at([pods, outside], "external", loadBalancerIP), "delivered");
    assert.equal(
      await at([Cidr.of(external, family === 4 ? 24 : 64), outside], "external", loadBalancerIP),
      "delivered",
    );
    assert.equal(await at([], "external", loadBalancerIP), "dropped", "a list of which no entry could be read");
    assert.equal(await at(undefined, "pod", loadBalancerIP), "delivered");
  });
}
