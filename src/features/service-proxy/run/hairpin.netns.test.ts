/** An endpoint that is a client of its own Service, by packets (docs/spec/service-proxy.md#2.4, #3.2: S3). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { IpAddress } from "#base/ip";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const POLICIES = ["Cluster", "Local"] as const;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-hair-${process.pid}`);
  for (const family of [4, 6] as const) {
    const { localEndpoint, node } = addressesOf(family);
    await bed.answerUdp("local", localEndpoint, TARGET_PORT);
    await bed.listen("node", node, TARGET_PORT);
  }
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

for (const family of [4, 6] as const) {
  const { clusterIP, externalIP, loadBalancerIP, node, localEndpoint } = addressesOf(family);
  const kinds = [
    [clusterIP, SERVICE_PORT],
    [externalIP, SERVICE_PORT],
    [loadBalancerIP, SERVICE_PORT],
    [node, NODE_PORT],
  ] as const;
  const slice = (address: IpAddress) =>
    sliceObject(family, [endpointObject(address, "here")], {
      ports: [
        { name: "http", port: TARGET_PORT },
        { name: "dns", port: TARGET_PORT, protocol: "UDP" },
      ],
    });
  const service = (policy: (typeof POLICIES)[number]) => ({
    ...serviceObject(family, {
      type: "LoadBalancer",
      externalIPs: [String(externalIP)],
      ports: [
        { name: "http", port: SERVICE_PORT, nodePort: NODE_PORT },
        { name: "dns", port: SERVICE_PORT, protocol: "UDP", nodePort: NODE_PORT },
      ],
      internalTrafficPolicy: policy,
      externalTrafficPolicy: policy,
    }),
    status: { loadBalancer: { ingress: [{ ip: String(loadBalancerIP) }] } },
  });

  for (const policy of POLICIES) {
    test(`hairpin: an endpoint reaches itself by every front end, TCP and UDP, and sees the node, policy ${policy}, IPv${family}`, async () => {
      await proxy.setBoth(service(policy), slice(localEndpoint));
      for (const [address, port] of kinds) {
        using flow = await bed.udpFlow("local", address, port);
        const both = [await bed.connect("local", address, port, { droppedMs: 900 }), await flow.ask()];
        for (const reached of both) {
          assert.ok(reached.kind === "delivered", `${address} ${port}: ${reached.kind}`);
          assert.equal(reached.by, `${localEndpoint} ${TARGET_PORT}`);
          assert.ok(
            bed.nodeAddresses(family).some((own) => own.equals(reached.seen)),
            `${address} ${port}: saw ${reached.seen}`,
          );
        }
      }
    });

    test(`hairpin: the node reaches an endpoint of its own network by every front end, policy ${policy}, IPv${family}`, async () => {
      await proxy.setBoth(service(policy), slice(node));
      for (const [address, port] of kinds) {
        const reached = await bed.connect("node", address, port, { droppedMs: 900 });
        assert.ok(reached.kind === "delivered", `${address} ${port}: ${reached.kind}`);
        assert.equal(reached.by, `${node} ${TARGET_PORT}`);
      }
    });
  }
}
