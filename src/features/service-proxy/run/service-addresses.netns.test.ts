/** The owner of an address, by the kernel's sockets and real packets (docs/spec/service-proxy.md#2.1). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { FakeClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { openSockDiag, type SockDiag } from "#kernel/sock-diag";
import { AddressGuard, HOST_PORTS, type LateListener } from "../addresses/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

/** A port that a program of the host serves before the Service is made, one that it serves later, one that nobody serves, and one that is kept. */
const [SERVED, LATER, FREE, KEPT] = [8443, 8444, 8445, 10_250] as const;
const FAMILIES = [4, 6] as const;

let bed: Bed;
let sockets: SockDiag;
let guard: AddressGuard;
let proxy: NodeProxy;
const late: LateListener[] = [];
const clock = new FakeClock();
before(async () => {
  bed = await Bed.open(`isp-whose-${process.pid}`);
  sockets = openSockDiag(bed.netns("node"));
  guard = new AddressGuard(
    {
      ...{ sockets, uptimeMs: () => 1e9, wasGiven: () => false, onChange: () => undefined },
      ...{ onLateListener: (listener) => late.push(listener), clock, log: nullLogger },
    },
    { mode: "guarded", hostPorts: HOST_PORTS, clusterCIDRs: [] },
  );
  for (const family of FAMILIES) guard.setHostAddresses(family, [addressesOf(family).node]);
  guard.setOtherNodes({ nodes: new Map(), podCIDRs: [] });
  guard.setApiServer([], 6443);
  proxy = await NodeProxy.open(bed, { judge: guard });
});
after(async () => {
  await proxy?.[Symbol.asyncDispose]();
  sockets?.[Symbol.dispose]();
  await bed?.[Symbol.asyncDispose]();
});

/** Returns the server that answers at the node's address. */
async function answers(family: IpFamily, port: number): Promise<string> {
  const reached = await bed.connect("external", addressesOf(family).node, port, { droppedMs: 900 });
  return reached.kind === "delivered" ? reached.server : reached.kind;
}

for (const family of FAMILIES) {
  const { node, remoteEndpoint } = addressesOf(family);

  test(`guarded: a Service gets the node's address for a port that no socket serves, and not what the host serves or keeps, IPv${family}`, async () => {
    await bed.listen("node", node, SERVED);
    await clock.advance(1000);
    const ports = [SERVED, LATER, FREE, KEPT].map((port) => ({ name: `p${port}`, port, protocol: "TCP" as const }));
    const slices = ports.map(({ name }) =>
      sliceObject(family, [endpointObject(remoteEndpoint, "elsewhere")], {
        ...{ name: `web-${name}`, ports: [{ name, port: TARGET_PORT, protocol: "TCP" as const }] },
      }),
    );
    await proxy.setBoth(serviceObject(family, { ports, externalIPs: [String(node)] }), ...slices);
    assert.equal(await answers(family, SERVED), "node");
    assert.equal(await answers(family, FREE), "remote");
    assert.equal(await answers(family, LATER), "remote");
    assert.equal(await answers(family, KEPT), "rejected");
    await bed.listen("node", node, LATER);
    // The kernel's answer serves for a moment.
    await clock.advance(1000);
    await proxy.set(serviceObject(family, { ports, externalIPs: [String(node)], internalTrafficPolicy: "Local" }));
    assert.equal(await answers(family, LATER), "remote", "what the Service has got it keeps");
    assert.deepEqual(
      late.splice(0).map(({ service }) => service),
      ["ns/web"],
    );
    await proxy.remove("web");
    await proxy.removeSlices(...slices.map(({ metadata }) => metadata.name));
  });
}
