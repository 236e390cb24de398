/** Ports, addresses and types of Services as they change, by packets (docs/spec/service-proxy.md#3.2: S1, S4, S7). */
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import type { IpAddress, IpFamily } from "#base/ip";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const OTHER_TARGET = 9090;
const SENDERS = ["pod", "node", "external"] as const;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-ports-${process.pid}`);
  for (const family of [4, 6] as const) {
    const { remoteEndpoint } = addressesOf(family);
    await bed.listen("remote", remoteEndpoint, OTHER_TARGET);
    for (const port of [TARGET_PORT, OTHER_TARGET]) await bed.answerUdp("remote", remoteEndpoint, port);
  }
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

/** The port that answers, or what became of it instead. */
async function tcp(address: IpAddress, port: number, sender: (typeof SENDERS)[number] = "external"): Promise<string> {
  const reached = await bed.connect(sender, address, port, { droppedMs: 900 });
  return reached.kind === "delivered" ? (reached.by.split(" ")[1] ?? "") : reached.kind;
}

async function udp(address: IpAddress, port: number, sender: (typeof SENDERS)[number] = "external"): Promise<string> {
  using flow = await bed.udpFlow(sender, address, port);
  const reached = await flow.ask();
  return reached.kind === "delivered" ? (reached.by.split(" ")[1] ?? "") : reached.kind;
}

const http = { name: "http", port: SERVICE_PORT } as const;
const httpTarget = { name: "http", port: TARGET_PORT } as const;
const TARGET = String(TARGET_PORT);
const OTHER = String(OTHER_TARGET);
const endpoints = (family: IpFamily) => [endpointObject(addressesOf(family).remoteEndpoint, "elsewhere")];

for (const family of [4, 6] as const) {
  test(`ports of a Service: added, removed, renamed, and one number in two protocols, IPv${family}`, async () => {
    const { clusterIP } = addressesOf(family);
    const alt = { name: "alt", port: 81 };
    const dns = { name: "dns", port: SERVICE_PORT, protocol: "UDP" } as const;
    const targets = [httpTarget, { name: "alt", port: OTHER_TARGET }, { ...dns, port: OTHER_TARGET }];
    await proxy.setBoth(
      serviceObject(family, { ports: [http] }),
      sliceObject(family, endpoints(family), { ports: targets }),
    );
    assert.deepEqual(
      [await tcp(clusterIP, 80), await tcp(clusterIP, 81), await udp(clusterIP, 80)],
      [TARGET, "rejected", "rejected"],
    );

    await proxy.set(serviceObject(family, { ports: [http, alt, dns] }));
    assert.deepEqual(
      [await tcp(clusterIP, 80), await tcp(clusterIP, 81), await udp(clusterIP, 80)],
      [TARGET, OTHER, OTHER],
    );

    await proxy.set(serviceObject(family, { ports: [alt, { ...http, name: "web" }] }));
    assert.equal(await tcp(clusterIP, 80), "rejected", "no slice has a port of the new name yet");
    assert.equal(await udp(clusterIP, 80), "rejected", "the port is gone in UDP");
    await proxy.setSlices(sliceObject(family, endpoints(family), { ports: [{ ...httpTarget, name: "web" }] }));
    assert.deepEqual([await tcp(clusterIP, 80), await tcp(clusterIP, 81)], [TARGET, "rejected"]);
  });

  test(`a Service that goes and comes back at another address: the old address is dropped, connections stay, IPv${family}`, async () => {
    const { clusterIP, serviceCIDR, remoteEndpoint } = addressesOf(family);
    const other = serviceCIDR.at(0x77);
    const echo = 7000;
    await bed.listen("remote", remoteEndpoint, echo, (socket) =>
      socket.on("error", () => socket.destroy()).pipe(socket),
    );
    const ports = [http, { name: "echo", port: 7 }];
    const slice = sliceObject(family, endpoints(family), { ports: [httpTarget, { name: "echo", port: echo }] });
    await proxy.setBoth(serviceObject(family, { ports }), slice);
    const socket = bed.tcpSocket("external", family);
    socket.connect({ host: String(clusterIP), port: 7 });
    await once(socket, "connect");

    await proxy.remove("web");
    const [gone] = await Promise.all([tcp(clusterIP, 80), proxy.removeSlices(slice.metadata.name)]);
    assert.equal(gone, "dropped");
    const at = { clusterIP: String(other), clusterIPs: [String(other)] };
    await proxy.setBoth(serviceObject(family, { ports, ...at }), slice);
    assert.equal(await tcp(other, 80), TARGET);
    socket.write("still here");
    assert.equal(String((await once(socket, "data"))[0]), "still here");
    socket.destroy();
    await proxy.remove("web");
  });

  test(`NodePort: from pod, node and outside, TCP and UDP at one number, and it follows the Service's type, IPv${family}`, async () => {
    const { clusterIP, node } = addressesOf(family);
    const dns = { name: "dns", port: SERVICE_PORT, protocol: "UDP", nodePort: NODE_PORT } as const;
    const nodePorts = serviceObject(family, { type: "NodePort", ports: [{ ...http, nodePort: NODE_PORT }, dns] });
    const clusterIPs = serviceObject(family, { ports: [http, { ...dns, nodePort: 0 }] });
    const external = serviceObject(family, {
      type: "ExternalName",
      externalName: "example.org",
      clusterIP: "",
      clusterIPs: [],
    });
    const slice = sliceObject(family, endpoints(family), {
      ports: [httpTarget, { name: "dns", port: OTHER_TARGET, protocol: "UDP" }],
    });
    const everywhere = (): Promise<readonly string[]> =>
      Promise.all(SENDERS.flatMap((sender) => [tcp(node, NODE_PORT, sender), udp(node, NODE_PORT, sender)]));
    const open = SENDERS.flatMap(() => [TARGET, OTHER]);
    const closed = open.map(() => "rejected");

    await proxy.setBoth(external, slice);
    assert.deepEqual(await everywhere(), closed);
    await proxy.set(clusterIPs);
    assert.deepEqual([await everywhere(), await tcp(clusterIP, 80)], [closed, TARGET]);
    await proxy.set(nodePorts);
    assert.deepEqual([await everywhere(), await tcp(clusterIP, 80)], [open, TARGET]);
    await proxy.set(clusterIPs);
    assert.deepEqual([await everywhere(), await udp(clusterIP, 80)], [closed, OTHER]);
    await proxy.set(nodePorts);
    assert.deepEqual(await everywhere(), open);
    await proxy.set(external);
    assert.deepEqual([await everywhere(), await tcp(clusterIP, 80)], [closed, "dropped"]);
    await proxy.removeSlices(slice.metadata.name);
  });
}
