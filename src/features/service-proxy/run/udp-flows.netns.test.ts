/** UDP senders that keep their port, as resolvers do, follow the Service (docs/spec/service-proxy.md#2.11, #3.2: S18). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { IpAddress } from "#base/ip";
import { NftTransaction } from "#kernel/nft";
import { ElementBatch } from "#kernel/nft-elements";
import { Bed } from "../testing/bed.ts";
import type { UdpFlow } from "../testing/clients.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { CONDITIONS, endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const FAMILIES = [4, 6] as const;
const OTHER_TARGET = 9090;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-flows-${process.pid}`);
  for (const family of FAMILIES) {
    const { localEndpoint, remoteEndpoint } = addressesOf(family);
    for (const port of [TARGET_PORT, OTHER_TARGET]) {
      await bed.answerUdp("local", localEndpoint, port);
      await bed.answerUdp("remote", remoteEndpoint, port);
    }
  }
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

/** Returns the endpoint that answers the flow's next datagram: `address port`, or what becomes of it instead. */
async function answer(flow: UdpFlow): Promise<string> {
  const reached = await flow.ask();
  return reached.kind === "delivered" ? reached.by : reached.kind;
}

function closeAll(flows: readonly UdpFlow[]): void {
  for (const flow of flows) flow[Symbol.dispose]();
}

const answers = (flows: readonly UdpFlow[]): Promise<readonly string[]> => Promise.all(flows.map(answer));

for (const family of FAMILIES) {
  const { clusterIP, node, localEndpoint, remoteEndpoint } = addressesOf(family);
  const dns = { name: "dns", port: SERVICE_PORT, protocol: "UDP", nodePort: NODE_PORT } as const;
  const service = serviceObject(family, { type: "NodePort", ports: [dns] });
  const local = serviceObject(family, { type: "NodePort", ports: [dns], internalTrafficPolicy: "Local" });
  const slice = (address: IpAddress | undefined, { port = TARGET_PORT, isReady = true } = {}) => {
    const where = address === localEndpoint ? "here" : "elsewhere";
    const conditions = isReady ? CONDITIONS.ready : CONDITIONS.unready;
    const endpoints = address === undefined ? [] : [endpointObject(address, where, { conditions })];
    return sliceObject(family, endpoints, { ports: [{ name: "dns", protocol: "UDP", port }] });
  };
  const at = (address: IpAddress, port = TARGET_PORT): string => `${address} ${port}`;
  /** Opens flows by every entry: cluster IP and NodePort, from outside, a pod and the node itself. */
  const openFlows = (): Promise<UdpFlow[]> =>
    Promise.all([
      bed.udpFlow("external", clusterIP, SERVICE_PORT),
      bed.udpFlow("pod", clusterIP, SERVICE_PORT),
      bed.udpFlow("node", clusterIP, SERVICE_PORT),
      bed.udpFlow("external", node, NODE_PORT),
      bed.udpFlow("pod", node, NODE_PORT),
      bed.udpFlow("node", node, NODE_PORT),
    ]);

  test(`UDP flows: by every front end they follow endpoints that change, become ready, change port, go and come back, IPv${family}`, async (t) => {
    await proxy.setBoth(service, slice(remoteEndpoint, { isReady: false }));
    const flows = await openFlows();
    t.after(() => closeAll(flows));
    const all = (text: string): readonly string[] => flows.map(() => text);
    assert.deepEqual(await answers(flows), all("rejected"));
    for (const [what, endpoints, expected] of [
      ["ready at last", slice(remoteEndpoint), at(remoteEndpoint)],
      ["another endpoint", slice(localEndpoint), at(localEndpoint)],
      ["another target port", slice(localEndpoint, { port: OTHER_TARGET }), at(localEndpoint, OTHER_TARGET)],
      ["none", slice(undefined), "rejected"],
      ["one again", slice(remoteEndpoint), at(remoteEndpoint)],
    ] as const) {
      await proxy.setSlices(endpoints);
      assert.deepEqual(await answers(flows), all(expected), what);
      const tracked = [...proxy.udpFlows(family, SERVICE_PORT), ...proxy.udpFlows(family, NODE_PORT)];
      assert.deepEqual(tracked, expected === "rejected" ? [] : all(expected), what);
    }
  });

  test(`UDP flows: unrelated changes leave them as they are, also to endpoints that are published before they are ready, IPv${family}`, async () => {
    const ports = [{ name: "dns", protocol: "UDP" as const, port: TARGET_PORT }];
    const both = (conditions: object) =>
      [localEndpoint, remoteEndpoint].map((address) => endpointObject(address, "elsewhere", { conditions }));
    for (const conditions of [CONDITIONS.ready, { ready: true, serving: false, terminating: false }]) {
      await proxy.setBoth(service, sliceObject(family, both(conditions), { ports }));
      using flow = await bed.udpFlow("pod", clusterIP, SERVICE_PORT);
      const first = await answer(flow);
      for (let round = 0; round < 10; round += 1) {
        const other = endpointObject(addressesOf(family).pod, "here", { conditions: { ready: round % 2 === 0 } });
        await proxy.setSlices(sliceObject(family, [...both(conditions), other], { ports }));
        assert.equal(await answer(flow), first, JSON.stringify(conditions));
      }
    }
  });

  test(`UDP flows: with internalTrafficPolicy Local flows of pods follow the node's endpoint, IPv${family}`, async () => {
    await proxy.setBoth(local, slice(localEndpoint));
    using flow = await bed.udpFlow("pod", clusterIP, SERVICE_PORT);
    assert.equal(await answer(flow), at(localEndpoint));
    await proxy.setSlices(slice(localEndpoint, { port: OTHER_TARGET }));
    assert.equal(await answer(flow), at(localEndpoint, OTHER_TARGET));
    await proxy.setSlices(slice(remoteEndpoint));
    assert.equal(await answer(flow), "dropped");
    await proxy.setSlices(slice(localEndpoint));
    assert.equal(await answer(flow), at(localEndpoint));
  });

  test(`UDP flows: a datagram from before the Service does not keep its sender from the Service, IPv${family}`, async (t) => {
    await proxy.remove("web");
    // Nothing drops or rejects, so connection tracking has entries of datagrams without a receiver.
    await proxy.setServiceCIDRs([]);
    t.after(() => proxy.setServiceCIDRs(FAMILIES.map((one) => addressesOf(one).serviceCIDR)));
    const flows = await openFlows();
    t.after(() => closeAll(flows));
    for (const flow of flows) assert.notEqual((await flow.ask("?", { droppedMs: 20 })).kind, "delivered");
    assert.ok(
      proxy.udpFlows(family, SERVICE_PORT).includes(at(clusterIP, SERVICE_PORT)),
      "tracked, and not translated",
    );
    await proxy.setBoth(service, slice(remoteEndpoint));
    assert.deepEqual(
      await answers(flows),
      flows.map(() => at(remoteEndpoint)),
    );
  });

  test(`UDP flows: a flow that began while the tables were flushed, or before its address took NodePorts, reaches the Service, IPv${family}`, async (t) => {
    await proxy.setBoth(service, slice(remoteEndpoint));
    const [, gateway] = bed.nodeAddresses(family);
    assert.ok(gateway !== undefined);
    using late = await bed.udpFlow("pod", gateway, NODE_PORT);
    assert.notEqual(await answer(late), at(remoteEndpoint));
    t.after(() => proxy.setNodePortAddresses(FAMILIES.map((one) => addressesOf(one).node)));
    await proxy.setNodePortAddresses([node, gateway]);
    assert.equal(await answer(late), at(remoteEndpoint), "by the address that takes NodePorts now");
    await proxy.setNodePortAddresses([node]);
    assert.deepEqual(proxy.udpFlows(family, NODE_PORT, gateway), [], "it takes none any more");
    assert.notEqual((await late.ask("?", { droppedMs: 50 })).kind, "delivered");

    const table = { family: family === 4 ? "ip" : "ip6", name: "kube-proxy" } as const;
    for (const [what, damage] of [
      ["the table", () => bed.nft.run(new NftTransaction(table).removeTable())],
      ["a chain", () => bed.nft.run(new NftTransaction(table).flushChain("services"))],
      ["elements", () => bed.elements.commit(new ElementBatch(table).flush("service-nodeports").flush("service-ips"))],
    ] as const) {
      const flows = await openFlows();
      try {
        await damage();
        for (const flow of flows) assert.notEqual((await flow.ask("?", { droppedMs: 20 })).kind, "delivered", what);
        await proxy.repair();
        assert.deepEqual(
          await answers(flows),
          flows.map(() => at(remoteEndpoint)),
          what,
        );
      } finally {
        closeAll(flows);
      }
    }
  });

  test(`UDP flows: they end with the Service, its port, its NodePort and its external address, also if the proxy restarts meanwhile, IPv${family}`, async (t) => {
    const { externalIP, loadBalancerIP } = addressesOf(family);
    const clusterIPs = { clusterIP: String(clusterIP), clusterIPs: [String(clusterIP)] };
    const other = { ...dns, name: "other", port: SERVICE_PORT + 1, nodePort: NODE_PORT + 1 };
    const targets = ["dns", "other"].map((name) => ({ name, protocol: "UDP" as const, port: TARGET_PORT }));
    const endpoints = sliceObject(family, [endpointObject(remoteEndpoint, "elsewhere")], { ports: targets });
    const whole = serviceObject(family, {
      type: "NodePort",
      ...clusterIPs,
      externalIPs: [String(externalIP)],
      ports: [dns, other],
    });
    const balanced = {
      ...serviceObject(family, { type: "LoadBalancer", ...clusterIPs, ports: [dns, other] }),
      status: { loadBalancer: { ingress: [{ ip: String(loadBalancerIP) }] } },
    };
    const web = { namespace: "ns", name: "web" };
    const without = (spec: object, from: typeof whole = whole) => ({ ...from, spec: { ...from.spec, ...spec } });
    const noNodePorts = [dns, other].map(({ nodePort: _, ...port }) => port);
    for (const [what, service_, [address, port], after_] of [
      ["the Service, by its cluster IP", whole, [clusterIP, SERVICE_PORT], undefined],
      ["the Service, by its NodePort", whole, [node, NODE_PORT], undefined],
      ["the port", whole, [clusterIP, SERVICE_PORT + 1], without({ ports: [dns] })],
      ["the NodePort", whole, [node, NODE_PORT], without({ type: "ClusterIP", ports: noNodePorts })],
      [
        "another NodePort",
        whole,
        [node, NODE_PORT + 1],
        without({ ports: [dns, { ...other, nodePort: NODE_PORT + 2 }] }),
      ],
      ["the external IP", whole, [externalIP, SERVICE_PORT], without({ externalIPs: [] })],
      ["the load balancer", balanced, [loadBalancerIP, SERVICE_PORT], { ...balanced, status: {} }],
      ["the protocol", whole, [clusterIP, SERVICE_PORT], without({ ports: [{ ...dns, protocol: "TCP" }, other] })],
      ["the cluster IP", whole, [clusterIP, SERVICE_PORT], without({ clusterIP: "None", clusterIPs: ["None"] })],
    ] as const) {
      await proxy.setBoth(service_, endpoints);
      using flow = await bed.udpFlow("external", address, port);
      using stays = await bed.udpFlow("external", clusterIP, other.port);
      assert.equal(await answer(flow), at(remoteEndpoint), what);
      assert.equal(await answer(stays), at(remoteEndpoint), what);
      if (after_ === undefined) await proxy.remove(web.name);
      else await proxy.set(after_);
      assert.deepEqual(proxy.udpFlows(family, port, address), [], what);
      assert.notEqual((await flow.ask("?", { droppedMs: 50 })).kind, "delivered", what);
      const isWhole = after_ === undefined || what === "the port" || what === "the cluster IP";
      const others = proxy.udpFlows(family, other.port, clusterIP);
      assert.equal(others.length > 0, !isWhole, `${what}: flows of other front ends`);
    }

    await proxy.setBoth(whole, endpoints);
    using flow = await bed.udpFlow("external", node, NODE_PORT);
    using stays = await bed.udpFlow("external", clusterIP, SERVICE_PORT);
    assert.deepEqual(await answers([flow, stays]), [at(remoteEndpoint), at(remoteEndpoint)]);
    await proxy[Symbol.asyncDispose]();
    t.after(async () => {
      await proxy[Symbol.asyncDispose]();
      proxy = await NodeProxy.open(bed);
    });
    proxy = await NodeProxy.startAgain(bed, [without({ type: "ClusterIP", ports: noNodePorts })], [endpoints]);
    assert.deepEqual(proxy.udpFlows(family, NODE_PORT, node), [], "gone while no proxy ran");
    assert.deepEqual(proxy.udpFlows(family, SERVICE_PORT, clusterIP), [at(remoteEndpoint)]);
  });

  test(`UDP flows: of two Services that claim one address the holder keeps its flows, and the other one gets them when it goes, IPv${family}`, async () => {
    const { externalIP, serviceCIDR } = addressesOf(family);
    const ports = [{ name: "dns", port: SERVICE_PORT, protocol: "UDP" as const }];
    const claim = (name: string, createdAt: number) => {
      const clusterIPs = [String(serviceCIDR.at(0x60 + createdAt))];
      const spec = { ports, externalIPs: [String(externalIP)], clusterIP: clusterIPs[0], clusterIPs };
      const service = serviceObject(family, spec, name);
      const creationTimestamp = new Date(createdAt * 1000).toISOString();
      return { ...service, metadata: { ...service.metadata, creationTimestamp } };
    };
    const targets = [{ name: "dns", protocol: "UDP" as const, port: TARGET_PORT }];
    const sliceFor = (service: string, ...addresses: readonly IpAddress[]) =>
      sliceObject(
        family,
        addresses.map((address) => endpointObject(address, "elsewhere")),
        { name: service, service, ports: targets },
      );
    await proxy.setSlices(sliceFor("older", localEndpoint), sliceFor("younger", remoteEndpoint));
    await proxy.set(claim("older", 1), claim("younger", 2));
    using flow = await bed.udpFlow("external", externalIP, SERVICE_PORT);
    assert.equal(await answer(flow), at(localEndpoint));
    const tracked = (): readonly string[] => proxy.udpFlows(family, SERVICE_PORT);
    const before_ = tracked();
    await proxy.setSlices(sliceFor("younger", remoteEndpoint, addressesOf(family).pod));
    assert.deepEqual(tracked(), before_, "the younger Service's changes do not concern them");
    await proxy.setSlices(sliceFor("younger", remoteEndpoint));
    await proxy.remove("older");
    assert.equal(await answer(flow), at(remoteEndpoint));
    await proxy.remove("younger");
    await proxy.removeSlices("older", "younger");
  });
}
