/** Connections are spread evenly (docs/spec/service-proxy.md#3.2: S24). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { IpAddress, IpFamily } from "#base/ip";
import { Bed } from "../testing/bed.ts";
import { addressesOf, SERVICE_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const ENDPOINTS = 10;
const CONNECTIONS = process.env["ISTHMUS_SOAK"] === "full" ? 100_000 : 10_000;
const AT_ONCE = 40;
/** The value that chi-square with 9 degrees of freedom exceeds once in a thousand times. */
const CRITICAL = 27.877;
const TARGET = 8000;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-dist-${process.pid}`);
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

/**
 * Connects again and again. The client resets, when it has heard from the server: a port that it takes again later is then a new
 * connection for connection tracking too. After the server's reset it would be led to the endpoint of before.
 */
async function connect(family: IpFamily, address: IpAddress, times: number): Promise<void> {
  for (let at = 0; at < times; at += 1) {
    const socket = bed.tcpSocket("pod", family);
    socket.on("error", () => socket.destroy());
    socket.once("data", () => socket.resetAndDestroy());
    socket.connect({ host: String(address), port: SERVICE_PORT });
    await new Promise((resolve) => socket.once("close", resolve));
  }
}

function chiSquare(counts: readonly number[]): number {
  const expected = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

for (const family of [4, 6] as const) {
  test(`${CONNECTIONS} connections over ${ENDPOINTS} endpoints are spread evenly, IPv${family}`, async () => {
    const { clusterIP, remoteEndpoint } = addressesOf(family);
    const counts = new Array<number>(ENDPOINTS).fill(0);
    const endpoints = counts.map((_, at) => remoteEndpoint.plus(100 + at));
    for (const [at, address] of endpoints.entries()) {
      bed.addAddress("remote", address);
      await bed.listen("remote", address, TARGET, (socket) => {
        counts[at] = (counts[at] ?? 0) + 1;
        socket.on("error", () => socket.destroy()).write(".");
      });
    }
    const objects = endpoints.map((address) => endpointObject(address, "elsewhere"));
    await proxy.setBoth(
      serviceObject(family),
      sliceObject(family, objects, { ports: [{ name: "http", port: TARGET }] }),
    );
    const draw = async (): Promise<number> => {
      counts.fill(0);
      await Promise.all(Array.from({ length: AT_ONCE }, () => connect(family, clusterIP, CONNECTIONS / AT_ONCE)));
      return chiSquare(counts);
    };
    const first = await draw();
    // Chance alone fails one draw in a thousand, two in a row one in a million; a skew fails each.
    const again = first < CRITICAL ? first : await draw();
    assert.ok(again < CRITICAL, `chi-square ${first}, then ${again}: ${counts.join(" ")}`);
    const sum = counts.reduce((total, count) => total + count, 0);
    assert.equal(sum, CONNECTIONS);
  });
}
