/** What a driver promises, as tests that run wherever the kernel has it: the netns tier for VXLAN, the vm tier for FoU. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Cidr, type IpFamily } from "#base/ip";
import { openNft } from "#kernel/nft";
import { clientScope, type Gateway, PRIVATE_RANGES, planClient } from "../client/index.ts";
import { syncNet } from "../net-plan/index.ts";
import { planMasquerade, planRouter, routerScope, syncMasquerade } from "../router/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";
import { AT, EgressBed, MTU_BYTES, TUNNEL_PORT } from "./bed.ts";

const EGRESS = { namespace: "internet", name: "nat" };
const DESTINATIONS = { 4: ["0.0.0.0/0"], 6: ["::/0"] } as const;
const BULK_BYTES = 1 << 20;

function gatewayOf(family: IpFamily, destinations: readonly string[], sourcePortAuto = false): Gateway {
  const cidrs = destinations.map((text) => Cidr.parse(text));
  return { egress: EGRESS, address: AT.service[family], destinations: cidrs, sourcePortAuto };
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
      await syncRouter(bed, driver, false);
      assert.equal(await bed.sourceSeen(4, 8000), "no answer");
      const auto = name === "vxlan";
      await syncClient(bed, driver, [gatewayOf(4, ["203.0.113.9/32"], auto)]);
      const stream = await bed.connect(4, 8000);
      assert.equal(await bed.sourceSeen(6, 8000), "no answer");
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
      assert.equal(await bed.sourceSeen(4, 8000), "no answer");
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

async function echoed(socket: Awaited<ReturnType<EgressBed["connect"]>>, bytes: number): Promise<void> {
  let left = bytes;
  const whole = new Promise<void>((resolve) => {
    socket.on("data", (chunk: Buffer) => {
      left -= chunk.length;
      if (left === 0) resolve();
    });
  });
  socket.write(Buffer.alloc(bytes, 7));
  await Promise.race([
    whole,
    once(socket, "close").then(() => Promise.reject(new Error(`closed with ${left} bytes to come`))),
  ]);
  socket.removeAllListeners("data");
}

/** Rules of a router are written once, changed with its address, and removed alone. */
export function masqueradeClaims(): void {
  test("masquerade: a second sync is empty, another address replaces the rule, and rules of others stay", () => {
    using bed = new EgressBed();
    using nft = openNft(bed.netns("router"));
    const plan = planMasquerade({ addresses: AT.router, ifname: "eth0" });
    assert.equal(syncMasquerade(nft, plan), 0);
    const table = { family: "ip", name: "nat" } as const;
    nft.run([{ op: "add", kind: "rule", table, chain: "POSTROUTING", rule: "counter", comment: "another's" }]);
    const moved = planMasquerade({ addresses: { 4: AT.client[4] }, ifname: "eth0" });
    // Of IPv4 one rule for another, of IPv6 both go.
    assert.equal(syncMasquerade(nft, moved), 4);
    assert.equal(syncMasquerade(nft, []), 2);
    assert.deepEqual(
      nft.listRules(table, "POSTROUTING").map(({ comment }) => comment),
      ["another's"],
    );
  });
}
