/** Session affinity, switched on and off by Services, with packets (docs/spec/service-proxy.md#3.2: S10). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep } from "#base/async";
import type { IpAddress, IpFamily } from "#base/ip";
import { until } from "#test/lab";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, type Sender, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { CONDITIONS, endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const FAMILIES = [4, 6] as const;
const ENDPOINTS = 5;
/** All of five endpoints at random are not one and the same so often in a row, but for one time in ten millions. */
const TRIES = 12;
const TIMEOUT_SECONDS = 1;

let bed: Bed;
let proxy: NodeProxy;
let endpoints: Record<IpFamily, readonly IpAddress[]>;
before(async () => {
  bed = await Bed.open(`isp-sticky-${process.pid}`);
  for (const family of FAMILIES) {
    for (const address of localEndpoints(family).slice(1)) {
      bed.addAddress("local", address);
      await bed.listen("local", address, TARGET_PORT);
    }
  }
  endpoints = { 4: await bed.serveMore(4, ENDPOINTS), 6: await bed.serveMore(6, ENDPOINTS) };
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

const localEndpoints = (family: IpFamily): readonly IpAddress[] =>
  Array.from({ length: ENDPOINTS }, (_, at) => addressesOf(family).localEndpoint.plus(at));

const clientIP = (timeoutSeconds = 10_800): Record<string, unknown> => ({
  sessionAffinity: "ClientIP",
  sessionAffinityConfig: { clientIP: { timeoutSeconds } },
});

/** Returns the endpoints that answer one connection or several. */
async function answering(
  address: IpAddress,
  port = SERVICE_PORT,
  tries = TRIES,
  sender: Sender = "external",
): Promise<readonly string[]> {
  const seen = new Set<string>();
  for (let at = 0; at < tries; at += 1) {
    const reached = await bed.connect(sender, address, port, { droppedMs: 900 });
    assert.equal(reached.kind, "delivered");
    if (reached.kind === "delivered") seen.add(reached.by);
  }
  return [...seen];
}

function remembered(family: IpFamily): number {
  return bed.elements.list({ family: family === 4 ? "ip" : "ip6", name: "kube-proxy" }, "affinity").length;
}

function slice(family: IpFamily, where: "here" | "elsewhere") {
  const addresses = where === "here" ? localEndpoints(family) : endpoints[family];
  return sliceObject(
    family,
    addresses.map((address) => endpointObject(address, where)),
  );
}

for (const family of FAMILIES) {
  const { clusterIP, loadBalancerIP, externalIP, node } = addressesOf(family);

  test(`affinity: switched on, off and on again, a client has one endpoint, all of them, and one, IPv${family}`, async () => {
    const counts: number[] = [];
    await proxy.setSlices(slice(family, "elsewhere"));
    for (const spec of [{}, clientIP(), {}, clientIP(), { sessionAffinity: "None" }]) {
      await proxy.set(serviceObject(family, spec));
      counts.push((await answering(clusterIP)).length);
    }
    assert.deepEqual(
      counts.map((count) => (count === 1 ? "one" : "several")),
      ["several", "one", "several", "one", "several"],
    );
  });

  test(`affinity: a client has one endpoint over all front ends of a service port, in any order, IPv${family}`, async () => {
    const ports = [{ name: "http", port: SERVICE_PORT, nodePort: NODE_PORT }];
    const service = {
      ...serviceObject(family, { type: "LoadBalancer", ports, externalIPs: [String(externalIP)], ...clientIP() }),
      status: { loadBalancer: { ingress: [{ ip: String(loadBalancerIP) }] } },
    };
    const ways = [
      [clusterIP, SERVICE_PORT],
      [loadBalancerIP, SERVICE_PORT],
      [externalIP, SERVICE_PORT],
      [node, NODE_PORT],
    ] as const;
    for (let first = 0; first < ways.length; first += 1) {
      await proxy.remove("web");
      await proxy.setBoth(service, slice(family, "elsewhere"));
      const seen = new Set<string>();
      for (let at = 0; at < 3 * ways.length; at += 1) {
        const [address, port] = ways[(first + at) % ways.length] ?? ways[0];
        for (const one of await answering(address, port, 1)) seen.add(one);
      }
      assert.equal(seen.size, 1, `first by ${ways[first]?.join(" ")}`);
    }
    await proxy.remove("web");
  });

  test(`affinity: by a load balancer's address and NodePort, with both external policies, IPv${family}`, async () => {
    for (const [externalTrafficPolicy, where] of [
      ["Cluster", "elsewhere"],
      ["Local", "here"],
    ] as const) {
      const ports = [{ name: "http", port: SERVICE_PORT, nodePort: NODE_PORT }];
      const service = {
        ...serviceObject(family, { type: "LoadBalancer", ports, externalTrafficPolicy, ...clientIP() }),
        status: { loadBalancer: { ingress: [{ ip: String(loadBalancerIP) }] } },
      };
      await proxy.setBoth(service, slice(family, where));
      assert.equal((await answering(loadBalancerIP)).length, 1, externalTrafficPolicy);
      assert.equal((await answering(node, NODE_PORT)).length, 1, externalTrafficPolicy);
    }
    await proxy.remove("web");
  });
}

for (const family of FAMILIES) {
  const { clusterIP, loadBalancerIP, node } = addressesOf(family);

  test(`affinity: to pods in this node's own network, from outside, from a pod and from the node, IPv${family}`, async (t) => {
    const ports = [TARGET_PORT + 10, TARGET_PORT + 11];
    for (const port of ports) await bed.listen("node", node, port);
    const name = `host${family}`;
    const service = {
      ...serviceObject(
        family,
        { type: "LoadBalancer", ports: [{ name: "http", port: SERVICE_PORT, nodePort: NODE_PORT }], ...clientIP() },
        name,
      ),
      status: { loadBalancer: { ingress: [{ ip: String(loadBalancerIP) }] } },
    };
    const slices = ports.map((port) =>
      sliceObject(family, [endpointObject(node, "here")], {
        name: `${name}-${port}`,
        service: name,
        ports: [{ name: "http", port }],
      }),
    );
    t.after(async () => {
      await proxy.remove(name);
      await proxy.removeSlices(...slices.map(({ metadata }) => metadata.name));
    });
    await proxy.setBoth(service, ...slices);
    const before = remembered(family);
    for (const [at, [sender, address, port]] of (
      [
        ["external", clusterIP, SERVICE_PORT],
        ["external", loadBalancerIP, SERVICE_PORT],
        ["external", node, NODE_PORT],
        ["pod", clusterIP, SERVICE_PORT],
        ["node", clusterIP, SERVICE_PORT],
      ] as const
    ).entries()) {
      const by = await answering(address, port, TRIES, sender);
      assert.equal(by.length, 1, `${sender} to ${address} ${port} reached ${by.join(" and ")}`);
      // One entry for the client outside, by whichever front end it comes; one for the pod, one for the node.
      assert.equal(remembered(family) - before, Math.max(1, at - 1));
      assert.equal(await proxy.countAffinity(family), remembered(family));
    }
  });
}

/** Connects all through twice the time that affinity lasts, then waits until another endpoint is drawn. */
async function refreshThenExpire(family: IpFamily): Promise<void> {
  const { clusterIP } = addressesOf(family);
  const first = new Set<string>();
  const end = performance.now() + 2000 * TIMEOUT_SECONDS;
  let pauseMs = 0;
  for (let last = performance.now(); performance.now() < end; await sleep(150)) {
    pauseMs = Math.max(pauseMs, performance.now() - last);
    last = performance.now();
    for (const by of await answering(clusterIP, SERVICE_PORT, 1)) first.add(by);
  }
  // Where this machine was held up for as long as affinity lasts, a new draw is right.
  if (pauseMs < 900 * TIMEOUT_SECONDS) assert.equal(first.size, 1, "it was used all the time");
  await until(
    "another endpoint is drawn",
    async () => {
      if (remembered(family) > 0) return false;
      const [next = ""] = await answering(clusterIP, SERVICE_PORT, 1);
      return !first.has(next);
    },
    { deadlineMs: 20_000 },
  );
}

test("affinity: each connection renews the timeout, and after it another endpoint is chosen", async () => {
  for (const family of FAMILIES) {
    const service = serviceObject(family, clientIP(TIMEOUT_SECONDS), `web${family}`);
    const endpoints_ = endpoints[family].map((address) => endpointObject(address, "elsewhere"));
    await proxy.setBoth(service, sliceObject(family, endpoints_, { service: `web${family}` }));
  }
  await Promise.all(FAMILIES.map(refreshThenExpire));
});

for (const family of FAMILIES) {
  test(`affinity: packets of a UDP flow without answers, as a tunnel's, do not bring back what its terminating endpoint has lost, IPv${family}`, async () => {
    const { clusterIP } = addressesOf(family);
    const [first, second] = endpoints[family];
    assert.ok(first !== undefined && second !== undefined);
    // Nobody listens there, so that connection tracking sees no answer.
    const port = TARGET_PORT + 1;
    const ports = [{ name: "tunnel", protocol: "UDP" as const, port }];
    const service = serviceObject(
      family,
      { ports: [{ name: "tunnel", port: SERVICE_PORT, protocol: "UDP" }], ...clientIP() },
      "tunnel",
    );
    const slice_ = (...all: readonly object[]) => sliceObject(family, all as never, { service: "tunnel", ports });
    await proxy.setBoth(service, slice_(endpointObject(first, "elsewhere")));
    using flow = await bed.udpFlow("external", clusterIP, SERVICE_PORT);
    await flow.ask();
    assert.equal(remembered(family), 1);
    const conditions = CONDITIONS.terminating;
    await proxy.setSlices(
      slice_(endpointObject(first, "elsewhere", { conditions }), endpointObject(second, "elsewhere")),
    );
    assert.deepEqual(proxy.udpFlows(family, SERVICE_PORT), [`${first} ${port}`], "the flow itself stays");
    for (let packet = 0; packet < 3; packet += 1) await flow.ask();
    assert.equal(remembered(family), 0, "the client is not sent to the endpoint again");
    using next = await bed.udpFlow("external", clusterIP, SERVICE_PORT);
    await next.ask();
    assert.deepEqual(
      proxy.udpFlows(family, SERVICE_PORT).toSorted(),
      [`${first} ${port}`, `${second} ${port}`].toSorted(),
    );
    await proxy.remove("tunnel");
  });
}
