/** The promises of a driver, as tests that run wherever the kernel has it: the netns tier for VXLAN, the vm tier for FoU. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { closeSync } from "node:fs";
import { test } from "node:test";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { openConntrack } from "#kernel/conntrack";
import type { NetNs } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { bindUdp } from "#kernel/socket";
import type { Pod, Service } from "#kube/client";
import { type Egress, egressLabels } from "#kube/coil";
import { auditEgress, decodeNode, type EgressNode, encodeNode, observeSpace, type PodSpace } from "../audit/index.ts";
import { clientScope, type Gateway, PRIVATE_RANGES, planClient, syncClient as syncWhole } from "../client/index.ts";
import { diffMarks, listMarks } from "../client/origin.ts";
import { commandRunner, type FilterBackend, iptablesFilter, nftFilter, openFilters } from "../filter/index.ts";
import { syncNet } from "../net-plan/index.ts";
import { planRouter, planRules, routerRules, routerScope } from "../router/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";
import { AT, EgressBed, MTU_BYTES, SILENCE_MS, TUNNEL_PORT } from "./bed.ts";

const EGRESS = { namespace: "internet", name: "nat" };
const DESTINATIONS = { 4: ["0.0.0.0/0"], 6: ["::/0"] } as const;
const FAMILIES = [4, 6] as const;
const BULK_BYTES = 1 << 20;
/** A stream that stands still as long is one that does not go on. */
const STALL_MS = 20_000;

function gatewayOf(family: IpFamily, destinations: readonly string[], sourcePortAuto = false): Gateway {
  const cidrs = destinations.map((text) => Cidr.parse(text));
  return { egress: EGRESS, address: AT.service[family], destinations: cidrs, sourcePortAuto, originatingOnly: false };
}

async function syncClient(bed: EgressBed, driver: TunnelDriver, gateways: readonly Gateway[]): Promise<number> {
  const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
  const { plan } = planClient(pod, gateways, { driver, port: TUNNEL_PORT, inCluster: PRIVATE_RANGES });
  return syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT));
}

async function syncRouter(bed: EgressBed, driver: TunnelDriver, sourcePortAuto: boolean): Promise<number> {
  const pod = { egress: EGRESS, addresses: AT.router, ifname: "eth0", mtuBytes: MTU_BYTES };
  const clients = [AT.client[4], AT.client[6]];
  const plan = planRouter(pod, clients, { driver, port: TUNNEL_PORT, sourcePortAuto });
  return syncNet(bed.stack("router"), plan, routerScope(TUNNEL_PORT));
}

async function masquerade(bed: EgressBed): Promise<void> {
  using nft = openNft(bed.netns("router"));
  await routerRules(nftFilter(nft)).sync(planRules({ addresses: AT.router, ifname: "eth0" }));
}

async function withBed(work: (bed: EgressBed) => Promise<void>): Promise<void> {
  using bed = new EgressBed();
  for (const family of [4, 6] as const) await bed.serve(family, 8000);
  await work(bed);
}

/** All claims of one driver. */
export function driverClaims(driver: TunnelDriver): void {
  const name = driver.name;
  for (const sourcePortAuto of name === "fou" ? [false, true] : [true]) {
    const port = sourcePortAuto ? "chosen by the flow" : "fixed";
    test(`${name}, source port ${port}: the outside sees the router's address, in both families, and 1 MiB comes back whole`, () =>
      withBed(async (bed) => {
        await masquerade(bed);
        assert.equal((await syncRouter(bed, driver, sourcePortAuto)) > 0, true);
        await syncClient(
          bed,
          driver,
          ([4, 6] as const).map((family) => gatewayOf(family, DESTINATIONS[family], sourcePortAuto)),
        );
        for (const family of [4, 6] as const) {
          assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
          const socket = await bed.connect(family, 8000);
          await echoed(socket, BULK_BYTES);
          socket.destroy();
        }
        assert.equal(await syncRouter(bed, driver, sourcePortAuto), 0);
      }));
  }

  test(`${name}: a destination is added and removed while a stream to another runs on; without gateways the pod is as before`, () =>
    withBed(async (bed) => {
      await masquerade(bed);
      await syncRouter(bed, driver, false);
      assert.equal(await bed.sourceSeen(4, 8000, SILENCE_MS), "no answer");
      const auto = name === "vxlan";
      await syncClient(bed, driver, [gatewayOf(4, ["203.0.113.9/32"], auto)]);
      const stream = await bed.connect(4, 8000);
      assert.equal(await bed.sourceSeen(6, 8000, SILENCE_MS), "no answer");
      await syncClient(bed, driver, [
        gatewayOf(4, ["203.0.113.9/32", "198.51.100.0/24"], auto),
        gatewayOf(6, ["::/0"], auto),
      ]);
      await echoed(stream, 1000);
      assert.equal(await bed.sourceSeen(6, 8000), String(AT.router[6]));
      await syncClient(bed, driver, [gatewayOf(4, ["203.0.113.9/32"], auto)]);
      await echoed(stream, 1000);
      stream.destroy();
      await syncClient(bed, driver, []);
      assert.equal(await bed.sourceSeen(4, 8000, SILENCE_MS), "no answer");
      assert.deepEqual(
        bed
          .stack("client")
          .links.list()
          .map((link) => link.name)
          .filter((one) => /^(fou|nat_|coil_)/.test(one)),
        [],
      );
      assert.equal(await syncClient(bed, driver, []), 0);
    }));
}

/** Pods of one family, whose Service has one address. */
export function familyClaims(driver: TunnelDriver): void {
  for (const family of FAMILIES) {
    test(`${driver.name}: a client of a pod with IPv${family} only leaves as a router of that family, and neither has anything of the other family`, () =>
      withBed(async (bed) => {
        const other = family === 4 ? 6 : 4;
        const has = (member: "client" | "router"): number => {
          const { rules, routes } = bed.stack(member);
          const tables = [117, 118].flatMap((table) => routes.list({ family: other, table }));
          return rules.list(other).length + tables.length;
        };
        const before = [has("client"), has("router")];
        using nft = openNft(bed.netns("router"));
        const addresses = (member: "client" | "router") => ({ [family]: AT[member][family] });
        await routerRules(nftFilter(nft)).sync(planRules({ addresses: addresses("router"), ifname: "eth0" }));
        const router = { egress: EGRESS, addresses: addresses("router"), ifname: "eth0", mtuBytes: MTU_BYTES };
        const options = { driver, port: TUNNEL_PORT, sourcePortAuto: true };
        await syncNet(bed.stack("router"), planRouter(router, [AT.client[family]], options), routerScope(TUNNEL_PORT));
        const pod = { addresses: addresses("client"), ifname: "eth0", mtuBytes: MTU_BYTES };
        const clientOptions = { driver, port: TUNNEL_PORT, inCluster: PRIVATE_RANGES };
        const { plan } = planClient(pod, [gatewayOf(family, DESTINATIONS[family], true)], clientOptions);
        await syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT));
        assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
        assert.deepEqual([has("client"), has("router")], before);
      }));
  }
}

/** The promises about MTUs that do not depend on messages of ICMP, which many networks drop. */
export function mtuClaims(driver: TunnelDriver): void {
  test(`${driver.name}: 1 MiB comes back whole, in both families, from a host that hears of no packet that is too long`, () =>
    withBed(async (bed) => {
      const run = commandRunner(bed.netns("outside"));
      await run("iptables", ["-w", "-A", "INPUT", "-p", "icmp", "-j", "DROP"]);
      const type = ["--icmpv6-type", "packet-too-big"];
      await run("ip6tables", ["-w", "-A", "INPUT", "-p", "icmpv6", ...type, "-j", "DROP"]);
      await masquerade(bed);
      await syncRouter(bed, driver, true);
      await syncClient(bed, driver, [gatewayOf(4, DESTINATIONS[4], true), gatewayOf(6, DESTINATIONS[6], true)]);
      for (const family of FAMILIES) {
        const socket = await bed.connect(family, 8000);
        await echoed(socket, BULK_BYTES);
        socket.destroy();
      }
    }));

  test(`${driver.name}: a router of IPv4 alone does with an MTU at which there can be no IPv6`, () =>
    withBed(async (bed) => {
      const router = { egress: EGRESS, addresses: { 4: AT.router[4] }, ifname: "eth0", mtuBytes: 1280 };
      const options = { driver, port: TUNNEL_PORT, sourcePortAuto: true };
      await masquerade(bed);
      const plan = planRouter(router, [AT.client[4]], options);
      await syncNet(bed.stack("router"), plan, routerScope(TUNNEL_PORT));
      await syncClient(bed, driver, [gatewayOf(4, DESTINATIONS[4], true)]);
      assert.equal(await bed.sourceSeen(4, 8000), String(AT.router[4]));
      assert.equal(await syncNet(bed.stack("router"), plan, routerScope(TUNNEL_PORT)), 0);
    }));
}

/** An interface of which a tunnel cannot carry IPv6. */
export function smallMtuClaims(driver: TunnelDriver): void {
  test(`${driver.name}: with an MTU of 1300 bytes a client of both families leaves as the router in IPv4, and not at all in IPv6`, () =>
    withBed(async (bed) => {
      bed.letOutsideKnowClient();
      await masquerade(bed);
      await syncRouter(bed, driver, true);
      const { links } = bed.stack("client");
      links.set(links.get({ name: "eth0" })?.index ?? assert.fail(), { mtu: 1300 });
      const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: 1300 };
      const gateways = FAMILIES.map((family) => gatewayOf(family, DESTINATIONS[family], true));
      const { plan } = planClient(pod, gateways, { driver, port: TUNNEL_PORT, inCluster: PRIVATE_RANGES });
      await syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT));
      assert.equal(await syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT)), 0);
      assert.equal(await bed.sourceSeen(4, 8000), String(AT.router[4]));
      await assert.rejects(bed.sourceSeen(6, 8000), { code: /^(EHOSTUNREACH|ENETUNREACH)$/ });
    }));
}

/** IPv6 that settings of a pod switch off, which come after its ADD. */
export function ipv6OffClaims(driver: TunnelDriver): void {
  test(`${driver.name}: IPv6 that is switched off in a pod with a client stops nothing of IPv4, is told, and is there again when it is on`, () =>
    withBed(async (bed) => {
      await masquerade(bed);
      await syncRouter(bed, driver, true);
      const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
      const unused = (): never => assert.fail("no Egress is originatingOnly");
      const ports = { openFilter: unused, openConntrack: unused };
      const sync = (...destinations: readonly string[]) =>
        syncWhole(bed.stack("client"), pod, [gatewayOf(4, destinations, true), gatewayOf(6, DESTINATIONS[6], true)], {
          driver,
          port: TUNNEL_PORT,
          inCluster: PRIVATE_RANGES,
          ...ports,
        });
      const { sysctl, addresses, links } = bed.stack("client");
      const turn = (value: 0 | 1): void => {
        for (const name of ["default", "all"]) sysctl.set(`net.ipv6.conf.${name}.disable_ipv6`, value);
      };
      await sync("198.51.100.0/24");
      turn(1);
      const { skipped } = await sync(...DESTINATIONS[4]);
      assert.deepEqual(
        skipped.map(({ egress, why }) => [egress.name, why]),
        [["nat", "no-address-of-family"]],
      );
      assert.equal(await bed.sourceSeen(4, 8000), String(AT.router[4]));
      assert.doesNotMatch(await commandRunner(bed.netns("client"))("ip", ["route", "show", "table", "118"]), /198\.51/);
      assert.equal((await sync(...DESTINATIONS[4])).changes, 0);
      assert.deepEqual(await audited(bed, driver, true), []);
      turn(0);
      // The kernel forgets it.
      const linkIndex = links.get({ name: "eth0" })?.index ?? assert.fail();
      addresses.add({ linkIndex, address: AT.client[6], noDad: true });
      await sync(...DESTINATIONS[4]);
      const has = bed.stack("client").routes.list({ family: 6, table: 118 });
      assert.ok(has.some(({ type }) => type === "unicast"));
    }));
}

/** Much data, one connection after the other. */
export function bulkClaims(driver: TunnelDriver, count: number): void {
  for (const sourcePortAuto of driver.name === "fou" ? [false, true] : [true]) {
    const port = sourcePortAuto ? "chosen by the flow" : "fixed";
    test(`${driver.name}, source port ${port}: 1 MiB comes back whole, ${count} times`, () =>
      withBed(async (bed) => {
        await masquerade(bed);
        await syncRouter(bed, driver, sourcePortAuto);
        const gateways = FAMILIES.map((family) => gatewayOf(family, DESTINATIONS[family], sourcePortAuto));
        await syncClient(bed, driver, gateways);
        for (let turn = 0; turn < count; turn += 1) {
          const socket = await bed.connect(turn % 2 === 0 ? 4 : 6, 8000);
          await echoed(socket, BULK_BYTES);
          socket.destroy();
        }
      }));
  }
}

/** The source port of tunnels that runs has a meaning with FoU alone. */
export function sourcePortClaims(driver: TunnelDriver): void {
  test(`${driver.name}: the source port of a live tunnel is switched to each kind; its stream runs on, and nothing leaves without NAT`, () =>
    withBed(async (bed) => {
      bed.letOutsideKnowClient();
      await masquerade(bed);
      await syncRouter(bed, driver, false);
      const gateways = (auto: boolean): Gateway[] => [gatewayOf(4, ["0.0.0.0/0"], auto), gatewayOf(6, ["::/0"], auto)];
      await syncClient(bed, driver, gateways(false));
      const streams = [await bed.connect(4, 8000), await bed.connect(6, 8000)];
      for (const auto of [true, false, true]) {
        assert.ok((await syncClient(bed, driver, gateways(auto))) > 0);
        assert.equal(await syncClient(bed, driver, gateways(auto)), 0);
        for (const stream of streams) await echoed(stream, 1000);
        for (const family of FAMILIES) assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
      }
      for (const stream of streams) stream.destroy();
    }));
}

async function echoed(socket: Awaited<ReturnType<EgressBed["connect"]>>, bytes: number): Promise<void> {
  let left = bytes;
  const whole = new Promise<void>((resolve) => {
    socket.on("data", (chunk: Buffer) => {
      left -= chunk.length;
      if (left === 0) resolve();
    });
  });
  socket.setTimeout(STALL_MS, () => socket.destroy());
  socket.write(Buffer.alloc(bytes, 7));
  await Promise.race([
    whole,
    once(socket, "close").then(() => Promise.reject(new Error(`closed with ${left} bytes to come`))),
  ]);
  socket.removeAllListeners("data");
  socket.setTimeout(0);
}

/** Each packet filter in a namespace of the bed. */
const FILTERS: Readonly<Record<string, (netns: NetNs) => FilterBackend & Disposable>> = {
  nftables: (netns) => {
    const nft = openNft(netns);
    return { ...nftFilter(nft), [Symbol.dispose]: () => nft[Symbol.dispose]() };
  },
  iptables: (netns) => ({ ...iptablesFilter(commandRunner(netns)), [Symbol.dispose]: () => undefined }),
};

/** Returns the findings of `isthmus audit` in the namespaces of the bed, after a round trip through JSON. */
async function audited(bed: EgressBed, driver: TunnelDriver, sourcePortAuto: boolean): Promise<string[]> {
  const members = { client: AT.client, router: AT.router } as const;
  const spaces: PodSpace[] = [];
  for (const member of ["client", "router"] as const) {
    const netns = bed.netns(member);
    const place = { path: member, ifname: "eth0", addresses: Object.values(members[member]) };
    const space = await observeSpace(bed.stack(member), place, {
      port: TUNNEL_PORT,
      openMarks: () => assert.fail("there is no rule for marks"),
      openFilters: () => openFilters(netns),
      openConntrack: () => openConntrack(netns),
    });
    if (space !== undefined) spaces.push(space);
  }
  const settings = { fault: "", port: TUNNEL_PORT, inCluster: PRIVATE_RANGES, originatingOnly: false };
  const state: EgressNode = { node: "n", clients: { ...settings, driver: driver.name }, spaces, clean: [], failed: [] };
  const node = decodeNode(JSON.parse(JSON.stringify(encodeNode(state))));
  const pod = (member: keyof typeof members, metadata: object): Pod =>
    ({
      metadata: { name: member, namespace: EGRESS.namespace, uid: member, ...metadata },
      spec: { nodeName: "n" },
      status: { phase: "Running", podIPs: Object.values(members[member]).map((ip) => ({ ip: String(ip) })) },
    }) as unknown as Pod;
  const labels = egressLabels(EGRESS.name);
  const spec = { destinations: [DESTINATIONS[4][0], DESTINATIONS[6][0]], fouSourcePortAuto: sourcePortAuto };
  const clusterIPs = Object.values(AT.service).map(String);
  const { findings } = auditEgress({
    namespaces: [],
    pods: [
      pod("client", { annotations: { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: EGRESS.name } }),
      pod("router", { labels }),
    ],
    egresses: [{ metadata: { ...EGRESS, uid: "e", resourceVersion: "1" }, spec } as unknown as Egress],
    services: [
      { metadata: { ...EGRESS, labels }, spec: { clusterIPs, ports: [{ port: TUNNEL_PORT, protocol: "UDP" }] } },
    ] as unknown as Service[],
    ...{ deployments: undefined, slices: undefined, bindings: undefined },
    nodes: [node],
  });
  return findings.map(({ kind, text }) => `${kind} ${text}`);
}

/** The promises of the audit about a driver's objects on the real kernel. */
export function auditClaims(driver: TunnelDriver): void {
  for (const auto of driver.name === "fou" ? [false, true] : [true]) {
    test(`${driver.name}, source port ${auto ? "chosen by the flow" : "fixed"}: the audit finds nothing while packets pass, and names a tunnel of the client and a way of the router that are gone`, () =>
      withBed(async (bed) => {
        await masquerade(bed);
        await syncRouter(bed, driver, auto);
        const sync = () =>
          syncClient(
            bed,
            driver,
            FAMILIES.map((family) => gatewayOf(family, DESTINATIONS[family], auto)),
          );
        await sync();
        for (const family of FAMILIES) assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
        assert.deepEqual(await audited(bed, driver, auto), []);
        const { links } = bed.stack("client");
        const [tunnel = assert.fail()] = links.list().filter(({ name }) => /^(nat_04|fou4_)/.test(name));
        links.delete(tunnel.index);
        bed.stack("router").routes.delete({ dst: Cidr.host(AT.client[6]), table: 118 });
        const [lacks = "", noWay = "", ...more] = await audited(bed, driver, auto);
        assert.match(
          lacks,
          new RegExp(`^client-lacks pod internet/client lacks link ${tunnel.name} to ${AT.service[4]}`),
        );
        assert.equal(
          noWay,
          `router-no-way router internet/router has no way to ${AT.client[6]} of pod internet/client`,
        );
        assert.deepEqual(more, []);
        await sync();
        await syncRouter(bed, driver, auto);
        assert.deepEqual(await audited(bed, driver, auto), []);
      }));
  }
}

/** A program in a pod that has the tunnels' port. */
export function portClaims(driver: TunnelDriver): void {
  test(`${driver.name}: a port that another program has is named, and the sync succeeds when it is free`, () =>
    withBed(async (bed) => {
      const gateways = [gatewayOf(4, DESTINATIONS[4], true)];
      const taken = bindUdp(IpAddress.parse("0.0.0.0"), TUNNEL_PORT, { netns: bed.netns("client") });
      try {
        await assert.rejects(syncClient(bed, driver, gateways), {
          name: "NetPlanError",
          message: /: another program has UDP port 5555 in this network namespace: /,
        });
      } finally {
        closeSync(taken);
      }
      await syncClient(bed, driver, gateways);
      assert.equal(await syncClient(bed, driver, gateways), 0);
    }));
}

/** The nodes' and routers' flag is changed while a pod runs. Both drivers use one UDP port. */
export function driverChangeClaims(drivers: readonly [TunnelDriver, TunnelDriver]): void {
  for (const [from, to] of [drivers, drivers.toReversed()] as [TunnelDriver, TunnelDriver][])
    test(`${from.name} to ${to.name}: a client and a router that have tunnels of the one get those of the other, and nothing leaves without NAT meanwhile`, () =>
      withBed(async (bed) => {
        const gateways = ([4, 6] as const).map((family) => gatewayOf(family, DESTINATIONS[family], true));
        await masquerade(bed);
        await syncRouter(bed, from, true);
        await syncClient(bed, from, gateways);
        for (const family of FAMILIES) assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
        bed.letOutsideKnowClient();
        await syncClient(bed, to, gateways);
        for (const family of FAMILIES) assert.equal(await bed.sourceSeen(family, 8000, SILENCE_MS), "no answer");
        await syncRouter(bed, to, true);
        for (const family of FAMILIES) assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
        assert.equal((await syncClient(bed, to, gateways)) + (await syncRouter(bed, to, true)), 0);
      }));
}

/** The promises of a router's rules with either backend. */
export function ruleClaims(driver: TunnelDriver): void {
  for (const [name, open] of Object.entries(FILTERS)) {
    test(`${name}: without its rules the outside sees clients, with them the router; they count, and a second sync is empty`, () =>
      withBed(async (bed) => {
        using filter = open(bed.netns("router"));
        const backend = routerRules(filter);
        await backend.sync([]);
        await syncRouter(bed, driver, true);
        await syncClient(bed, driver, [gatewayOf(4, DESTINATIONS[4], true), gatewayOf(6, DESTINATIONS[6], true)]);
        assert.equal(await bed.sourceSeen(4, 8000, SILENCE_MS), "no answer");
        const plan = planRules({ addresses: AT.router, ifname: "eth0" });
        assert.equal(await backend.sync(plan), 4);
        assert.equal(await backend.sync(plan), 0);
        for (const family of [4, 6] as const)
          assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
        const counters = await backend.counters();
        assert.deepEqual(
          counters.map(({ family, kind, packets, bytes }) => [family, kind, packets > 0, bytes >= 40 * packets]),
          [
            [4, "masquerade", true, true],
            [4, "invalid", false, true],
            [6, "masquerade", true, true],
            [6, "invalid", false, true],
          ],
        );
      }));

    test(`${name}: a packet of no connection is dropped and counted, and a new connection passes`, () =>
      withBed(async (bed) => {
        bed.letOutsideKnowClient();
        using filter = open(bed.netns("router"));
        using conntrack = openConntrack(bed.netns("router"));
        const backend = routerRules(filter);
        await backend.sync(planRules({ addresses: AT.router, ifname: "eth0" }));
        await syncRouter(bed, driver, true);
        await syncClient(bed, driver, [gatewayOf(4, DESTINATIONS[4], true), gatewayOf(6, DESTINATIONS[6], true)]);
        const streams = await Promise.all(FAMILIES.map((family) => bed.connect(family, 8000)));
        const invalid = async (): Promise<number> =>
          (await backend.counters()).filter((one) => one.kind === "invalid" && one.packets > 0).length;
        assert.equal(await invalid(), 0);
        // The router does not know the connections any more, and does not guess: their packets would leave with the client's address.
        bed.stack("router").sysctl.set("net.netfilter.nf_conntrack_tcp_loose", 0);
        for (const family of FAMILIES) assert.ok((await conntrack.delete({ family, protocol: 6 })) > 0);
        let echoes = 0;
        for (const stream of streams) {
          stream.on("data", () => {
            echoes += 1;
          });
          stream.write("of no connection");
        }
        const deadline = performance.now() + 15_000;
        while ((await invalid()) < 2 && performance.now() < deadline) await new Promise((done) => setTimeout(done, 20));
        assert.equal(await invalid(), 2);
        assert.equal(echoes, 0);
        for (const stream of streams) stream.destroy();
        for (const family of FAMILIES) assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
      }));

    test(`${name}: another address replaces the rule, rules of others stay, and off means gone`, () =>
      withBed(async (bed) => {
        using filter = open(bed.netns("router"));
        const backend = routerRules(filter);
        await backend.sync(planRules({ addresses: AT.router, ifname: "eth0" }));
        await commandRunner(bed.netns("router"))("iptables", [
          "-w",
          "-t",
          "nat",
          "-I",
          "POSTROUTING",
          "1",
          "-m",
          "comment",
          "--comment",
          "foreign",
        ]);
        // Of IPv4 one rule for another, of IPv6 both go.
        assert.equal(await backend.sync(planRules({ addresses: { 4: AT.client[4] }, ifname: "eth0" })), 4);
        assert.equal(await backend.sync([]), 2);
        assert.deepEqual(await backend.counters(), []);
        const left = await commandRunner(bed.netns("router"))("iptables", ["-w", "-t", "nat", "-S", "POSTROUTING"]);
        assert.match(left, /^-P POSTROUTING ACCEPT\n-A POSTROUTING -m comment --comment foreign\n$/);
      }));
  }
}

/** The promises of `originatingOnly` with either backend. */
export function originClaims(driver: TunnelDriver): void {
  for (const [name, open] of Object.entries(FILTERS)) {
    test(`originatingOnly, ${name}: connections that come in are answered by their way, those of the client leave as the router; off means gone`, () =>
      withBed(async (bed) => {
        bed.letOutsideKnowClient();
        for (const family of FAMILIES) await bed.serveInClient(family, 7000);
        await syncRouter(bed, driver, true);
        await masquerade(bed);
        const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
        const openFilter = (): FilterBackend & Disposable => open(bed.netns("client"));
        const options = {
          driver,
          port: TUNNEL_PORT,
          inCluster: PRIVATE_RANGES,
          openFilter,
          openConntrack: () => openConntrack(bed.netns("client")),
        };
        const sync = async (originatingOnly: boolean, families: readonly IpFamily[] = FAMILIES): Promise<number> => {
          const gateways = families.map((family) => ({
            ...gatewayOf(family, DESTINATIONS[family], true),
            originatingOnly,
          }));
          return (await syncWhole(bed.stack("client"), pod, gateways, options)).changes;
        };
        const run = commandRunner(bed.netns("client"));
        const state = async (): Promise<string> =>
          `${await run("ip", ["rule"])}${await run("ip", ["-6", "rule"])}${await run("nft", ["list", "ruleset"])}`;
        await sync(false);
        for (const family of FAMILIES) assert.equal(await bed.isClientReached(family, 7000, SILENCE_MS), false);
        assert.ok((await sync(true)) > 0);
        assert.equal(await sync(true), 0);
        for (const family of FAMILIES) {
          assert.equal(await bed.isClientReached(family, 7000), true);
          assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
        }
        await run("iptables", ["-w", "-t", "mangle", "-I", "INPUT", "-m", "comment", "--comment", "foreign"]);
        assert.ok((await sync(true, [4])) > 0);
        assert.equal(await bed.isClientReached(4, 7000), true);
        assert.ok((await sync(false)) > 0);
        assert.doesNotMatch(await state(), /coil-|^1000:/m);
        assert.match(await run("iptables", ["-w", "-t", "mangle", "-S", "INPUT"]), /foreign/);
        for (const family of FAMILIES) assert.equal(await bed.isClientReached(family, 7000, SILENCE_MS), false);
        await sync(true);
        await sync(true, []);
        assert.doesNotMatch(await state(), /coil-|^(1000|1900):/m);
        assert.equal((await run("ip", ["route", "show", "table", "all"])).match(/table 1\d{3}/)?.[0], undefined);
      }));
  }
}

/** The packet filter of a client that has run with the other one. */
export function otherFilterClaims(driver: TunnelDriver): void {
  for (const [name, open] of Object.entries(FILTERS)) {
    const [before = assert.fail()] = Object.entries(FILTERS).filter(([other]) => other !== name);
    test(`originatingOnly, ${name} after ${before[0]}: the marks of the other packet filter go, and off means gone in both`, () =>
      withBed(async (bed) => {
        bed.letOutsideKnowClient();
        for (const family of FAMILIES) await bed.serveInClient(family, 7000);
        await syncRouter(bed, driver, true);
        await masquerade(bed);
        const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
        const tracking = () => openConntrack(bed.netns("client"));
        const options = { driver, port: TUNNEL_PORT, inCluster: PRIVATE_RANGES, openConntrack: tracking };
        const of = (one: (typeof FILTERS)[string]) => () => one(bed.netns("client"));
        const earlier = { openFilter: of(before[1]), openOther: of(open) };
        const now = { openFilter: of(open), openOther: of(before[1]) };
        const sync = (filters: typeof now, originatingOnly: boolean) => {
          const gateways = FAMILIES.map((family) => ({
            ...gatewayOf(family, DESTINATIONS[family], true),
            originatingOnly,
          }));
          return syncWhole(bed.stack("client"), pod, gateways, { ...options, ...filters });
        };
        const run = commandRunner(bed.netns("client"));
        const marks = async (): Promise<readonly number[]> => {
          const texts = await Promise.all([
            run("nft", ["list", "ruleset"]),
            run("iptables", ["-w", "-t", "mangle", "-S"]),
          ]);
          return texts.map((text) => text.match(/coil-(in|out)put-/g)?.length ?? 0);
        };
        await sync(earlier, true);
        assert.ok((await sync(now, true)).isOtherClean);
        const clean = await sync(now, true);
        assert.deepEqual([clean.changes, clean.isOtherClean, clean.faults], [0, true, []]);
        for (const family of FAMILIES) {
          assert.equal(await bed.isClientReached(family, 7000), true);
          assert.equal(await bed.sourceSeen(family, 8000), String(AT.router[family]));
        }
        using left = before[1](bed.netns("client"));
        const { missing, stale } = diffMarks([], await listMarks(left));
        assert.deepEqual([missing, stale], [[], []]);
        await sync(earlier, true);
        await sync(now, false);
        assert.deepEqual(await marks(), [0, 0]);
        for (const family of FAMILIES) assert.equal(await bed.isClientReached(family, 7000, SILENCE_MS), false);
      }));
  }
}

/** The promises of `originatingOnly` for flows of UDP, whose ports may stay the same for years. */
export function flowClaims(driver: TunnelDriver): void {
  for (const [name, open] of Object.entries(FILTERS)) {
    test(`originatingOnly, ${name}: a flow that the pod began leaves as the router as soon as an Egress has its destination; off means that no connection keeps a mark`, () =>
      withBed(async (bed) => {
        bed.letOutsideKnowClient();
        await syncRouter(bed, driver, true);
        await masquerade(bed);
        const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
        const openFilter = (): FilterBackend & Disposable => open(bed.netns("client"));
        const tracking = () => openConntrack(bed.netns("client"));
        const ports = { openFilter, openConntrack: tracking };
        const options = { driver, port: TUNNEL_PORT, inCluster: PRIVATE_RANGES, ...ports };
        const sync = async (...destinations: readonly string[]): Promise<void> => {
          const gateways = FAMILIES.map((family) => {
            const own = destinations.filter((one) => one.includes(":") === (family === 6));
            return { ...gatewayOf(family, own, true), originatingOnly: true };
          });
          const { faults } = await syncWhole(bed.stack("client"), pod, gateways, options);
          assert.deepEqual(faults, []);
        };
        const marked = (family: IpFamily): readonly unknown[] => {
          using conntrack = tracking();
          const found = conntrack.list({ family, protocol: 17 }).filter(({ mark }) => mark !== 0);
          return found.map(({ original }) => original.dstPort).filter((port) => port !== TUNNEL_PORT);
        };
        const elsewhere = ["198.51.100.0/24", "2001:db8:5::/48"];
        const everywhere = [...DESTINATIONS[4], ...DESTINATIONS[6]];
        const flows = FAMILIES.map((family) => {
          const [began, cameIn] = [bed.flow(family, 6000), bed.flow(family, 6001)];
          return { family, began, cameIn, client: String(AT.client[family]), router: String(AT.router[family]) };
        });
        await sync(...elsewhere);
        for (const { began, cameIn, client } of flows) {
          assert.equal(await began.ask(), client);
          assert.equal(await cameIn.beAsked(), client);
        }
        await sync(...everywhere);
        for (const { family, began, cameIn, client, router } of flows) {
          assert.equal(await began.ask(), router);
          assert.equal(await cameIn.beAsked(), client);
          assert.deepEqual(marked(family), [6001]);
        }
        await sync();
        for (const { family } of flows) assert.deepEqual(marked(family), []);
        await sync(...everywhere);
        // The kernel still knows the connection that came in. Now the pod sends first.
        for (const { cameIn, router } of flows) assert.equal(await cameIn.ask(), router);
      }));
  }
}
