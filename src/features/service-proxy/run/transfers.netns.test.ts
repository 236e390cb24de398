/** Much data, small links and datagrams in fragments through Services (docs/spec/service-proxy.md#3.2: S25). */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, before, test } from "node:test";
import type { IpAddress, IpFamily } from "#base/ip";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const MIB = 1024 * 1024;
const TRANSFER_MIB = process.env["ISTHMUS_SOAK"] === "full" ? 1024 : 64;
const DATAGRAM_BYTES = 8192;
const ECHO_PORT = 7000;
/** The least that IPv6 knows (RFC 8200 section 5). */
const SMALL_MTU = 1280;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-large-${process.pid}`);
  for (const family of [4, 6] as const) {
    const { remoteEndpoint } = addressesOf(family);
    await bed.answerUdp("remote", remoteEndpoint, TARGET_PORT);
    await bed.listen("remote", remoteEndpoint, ECHO_PORT, (socket) =>
      socket.on("error", () => socket.destroy()).pipe(socket),
    );
  }
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

/** Sends random bytes and gets them back over one connection; both ways at once. */
async function echo(address: IpAddress, port: number, mib: number): Promise<void> {
  const socket = bed.tcpSocket("external", address.family);
  const [sent, received] = [createHash("sha256"), createHash("sha256")];
  let bytes = 0;
  socket.on("data", (part) => {
    received.update(part);
    bytes += part.length;
  });
  const ended = once(socket, "end");
  socket.connect({ host: String(address), port });
  await once(socket, "connect");
  const part = randomBytes(MIB);
  for (let at = 0; at < mib; at += 1) {
    part.writeUInt32BE(at);
    const copy = Buffer.from(part);
    sent.update(copy);
    if (!socket.write(copy)) await once(socket, "drain");
  }
  socket.end();
  await ended;
  assert.deepEqual([bytes, received.digest("hex")], [mib * MIB, sent.digest("hex")]);
}

/** Sends one large datagram, again while the path's MTU is being learned. Returns the number of attempts. */
async function askLarge(address: IpAddress, port: number): Promise<number> {
  using flow = await bed.udpFlow("external", address, port);
  const bytes = randomBytes(DATAGRAM_BYTES);
  for (let tries = 1; tries <= 3; tries += 1) {
    if ((await flow.ask(bytes)).kind !== "delivered") continue;
    assert.equal(flow.lastBytes.length, DATAGRAM_BYTES);
    const from = flow.lastBytes.indexOf("\n") + 1;
    assert.deepEqual(flow.lastBytes.subarray(from), bytes.subarray(from));
    return tries;
  }
  return assert.fail(`no answer to ${DATAGRAM_BYTES} bytes to ${address} ${port}`);
}

function service(family: IpFamily): Promise<void> {
  const ports = [
    { name: "echo", port: SERVICE_PORT, nodePort: NODE_PORT },
    { name: "dns", port: SERVICE_PORT, protocol: "UDP" as const, nodePort: NODE_PORT },
  ];
  const targets = [
    { name: "echo", port: ECHO_PORT },
    { name: "dns", port: TARGET_PORT, protocol: "UDP" as const },
  ];
  const endpoints = [endpointObject(addressesOf(family).remoteEndpoint, "elsewhere")];
  return proxy.setBoth(
    serviceObject(family, { type: "NodePort", ports }),
    sliceObject(family, endpoints, { ports: targets }),
  );
}

for (const family of [4, 6] as const) {
  const { clusterIP, node, remoteEndpoint } = addressesOf(family);
  const kinds = [
    [clusterIP, SERVICE_PORT],
    [node, NODE_PORT],
  ] as const;

  test(`${TRANSFER_MIB} MiB each way arrive as they were sent, by cluster IP and NodePort, IPv${family}`, async () => {
    await service(family);
    for (const [address, port] of kinds) await echo(address, port, TRANSFER_MIB);
  });

  test(`datagrams of ${DATAGRAM_BYTES} bytes pass in fragments both ways, by cluster IP and NodePort, IPv${family}`, async () => {
    await service(family);
    for (const [address, port] of kinds) assert.equal(await askLarge(address, port), 1);
  });

  test(`the client learns a small MTU behind the Service, by cluster IP and NodePort, IPv${family}`, async () => {
    await service(family);
    const route = ["route", "replace", String(remoteEndpoint), "dev", "veth-remote", "mtu", String(SMALL_MTU)];
    bed.ip("node", `-${family}`, ...route);
    for (const [address, port] of kinds) {
      await echo(address, port, 1);
      assert.match(bed.ip("external", "route", "get", String(address)), new RegExp(`\\bmtu ${SMALL_MTU}\\b`));
      await askLarge(address, port);
    }
  });
}
