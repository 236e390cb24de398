/** The endpoints that take new connections as endpoints become ready, end and go, by packets (docs/spec/service-proxy.md#3.2: S8, S9, S12, S13, S15). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { IpAddress, IpFamily } from "#base/ip";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { CONDITIONS, type EndpointObject, endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

type Sender = "pod" | "node" | "external";
const SENDERS = ["pod", "node", "external"] as const;
/** Every endpoint of a few is met by so many connections, but for one time in a million. */
const TRIES = 20;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-ready-${process.pid}`);
  for (const family of [4, 6] as const) {
    const { node, localEndpoint } = addressesOf(family);
    await bed.listen("node", node, TARGET_PORT);
    bed.addAddress("local", secondLocal(family));
    await bed.listen("local", secondLocal(family), TARGET_PORT);
    await bed.answerUdp("local", localEndpoint, TARGET_PORT);
  }
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

/** Another endpoint on the node, next to the first. */
const secondLocal = (family: IpFamily): IpAddress => addressesOf(family).localEndpoint.plus(1n);

/** The addresses that answer a sender, or what becomes of its connections instead. */
async function reached(sender: Sender, address: IpAddress, port: number, tries = TRIES): Promise<string> {
  const seen = new Set<string>();
  for (let at = 0; at < tries; at += 1) {
    const one = await bed.connect(sender, address, port, { droppedMs: 900 });
    if (one.kind !== "delivered") return one.kind;
    seen.add(one.by.split(" ")[0] ?? "");
  }
  return [...seen].sort().join(" ");
}

/** The same for all senders at once. */
const byAll = (address: IpAddress, port: number, tries = TRIES): Promise<readonly string[]> =>
  Promise.all(SENDERS.map((sender) => reached(sender, address, port, tries)));
const all = (text: string): readonly string[] => SENDERS.map(() => text);
const list = (...addresses: readonly IpAddress[]): string => addresses.map(String).sort().join(" ");

/** Endpoints by their place and conditions. */
function slice(
  family: IpFamily,
  ...endpoints: readonly (readonly [IpAddress, "here" | "elsewhere", keyof typeof CONDITIONS])[]
) {
  return sliceObject(
    family,
    endpoints.map(
      ([address, where, state]): EndpointObject => endpointObject(address, where, { conditions: CONDITIONS[state] }),
    ),
  );
}

for (const family of [4, 6] as const) {
  const { clusterIP, externalIP, node, localEndpoint, remoteEndpoint } = addressesOf(family);
  const nodePort = [{ name: "http", port: SERVICE_PORT, nodePort: NODE_PORT }];

  test(`externalIPs: an address that no node has leads all senders to the endpoints, TCP and UDP, IPv${family}`, async () => {
    const ports = [
      { name: "http", port: SERVICE_PORT },
      { name: "dns", port: SERVICE_PORT, protocol: "UDP" as const },
    ];
    const spec = { ports, externalIPs: [String(externalIP)] };
    const targets = ports.map((port) => ({ ...port, port: TARGET_PORT }));
    await proxy.setBoth(
      serviceObject(family, spec),
      sliceObject(family, [endpointObject(localEndpoint, "here")], { ports: targets }),
    );
    assert.deepEqual(await byAll(externalIP, SERVICE_PORT, 2), all(String(localEndpoint)));
    for (const sender of SENDERS) assert.ok(await bed.askUdp(sender, externalIP, SERVICE_PORT), sender);
    await proxy.set(serviceObject(family, { ports }));
    assert.equal(await reached("external", externalIP, SERVICE_PORT), "dropped", "it leads nowhere any more");
  });

  test(`readiness: unready, evicted and ended endpoints get no traffic; terminating ones get it if no other is left, IPv${family}`, async () => {
    await proxy.set(serviceObject(family));
    const at = async (...states: Parameters<typeof slice>[1][]): Promise<string> => {
      await proxy.setSlices(slice(family, ...states));
      return reached("external", clusterIP, SERVICE_PORT);
    };
    const [here, there] = [
      [localEndpoint, "here"],
      [remoteEndpoint, "elsewhere"],
    ] as const;
    assert.equal(await at([...here, "unready"]), "rejected");
    assert.equal(await at([...here, "ready"], [...there, "unready"]), String(localEndpoint));
    assert.equal(await at([...here, "ready"], [...there, "terminating"]), String(localEndpoint));
    assert.equal(await at([...here, "unready"], [...there, "terminating"]), String(remoteEndpoint));
    assert.equal(await at([...here, "gone"], [...there, "unready"]), "rejected");
    // As from the slice controller with publishNotReadyAddresses: ready, whatever the other conditions.
    const published = (rest: object): EndpointObject =>
      endpointObject(remoteEndpoint, "elsewhere", { conditions: { ready: true, ...rest } });
    for (const rest of [
      { serving: false, terminating: false },
      { serving: false, terminating: true },
    ]) {
      await proxy.set(serviceObject(family, { publishNotReadyAddresses: true }));
      await proxy.setSlices(sliceObject(family, [published(rest)]));
      assert.equal(await reached("external", clusterIP, SERVICE_PORT, 2), String(remoteEndpoint), JSON.stringify(rest));
    }
  });

  test(`no endpoints: refused within 100 ms by every front end, IPv${family}`, async () => {
    const spec = { type: "NodePort", ports: nodePort, externalIPs: [String(externalIP)] };
    await proxy.setBoth(serviceObject(family, spec), slice(family, [localEndpoint, "here", "unready"]));
    for (const [address, port] of [
      [clusterIP, SERVICE_PORT],
      [externalIP, SERVICE_PORT],
      [node, NODE_PORT],
    ] as const) {
      for (const sender of SENDERS) {
        const times: number[] = [];
        for (let tries = 0; tries < 5; tries += 1) {
          const startedAt = performance.now();
          assert.equal(await reached(sender, address, port, 1), "rejected");
          times.push(performance.now() - startedAt);
        }
        // This machine may be held up now and then, but not each time.
        assert.ok(Math.min(...times) < 100, `${sender} to ${address}: ${times.join(", ")} ms`);
      }
    }
  });

  test(`internalTrafficPolicy Local: pod, node and host-network senders reach only the node's endpoints, IPv${family}`, async () => {
    await proxy.setBoth(
      serviceObject(family, { internalTrafficPolicy: "Local" }),
      slice(family, [localEndpoint, "here", "ready"], [remoteEndpoint, "elsewhere", "ready"]),
    );
    assert.deepEqual(await byAll(clusterIP, SERVICE_PORT), all(String(localEndpoint)));
    // A pod in the host's network: its address is the node's.
    await proxy.setSlices(slice(family, [node, "here", "ready"], [remoteEndpoint, "elsewhere", "ready"]));
    assert.deepEqual(await byAll(clusterIP, SERVICE_PORT), all(String(node)));
    await proxy.setSlices(slice(family, [remoteEndpoint, "elsewhere", "ready"]));
    assert.deepEqual(await byAll(clusterIP, SERVICE_PORT), all("dropped"));
  });

  test(`fallback: each policy uses terminating endpoints if it has no ready one, and only then, IPv${family}`, async () => {
    const second = secondLocal(family);
    const [one, two, there] = [
      [localEndpoint, "here"],
      [second, "here"],
      [remoteEndpoint, "elsewhere"],
    ] as const;
    const policies = [
      { internalTrafficPolicy: "Cluster", externalTrafficPolicy: "Cluster" },
      { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" },
    ] as const;
    const rows = [
      {
        states: [
          [...one, "ready"],
          [...two, "terminating"],
          [...there, "ready"],
        ],
        cluster: list(localEndpoint, remoteEndpoint),
        local: list(localEndpoint),
      },
      {
        states: [
          [...one, "terminating"],
          [...two, "unready"],
          [...there, "ready"],
        ],
        cluster: list(remoteEndpoint),
        local: list(localEndpoint),
      },
      {
        states: [
          [...one, "terminating"],
          [...two, "terminating"],
          [...there, "terminating"],
        ],
        cluster: list(localEndpoint, second, remoteEndpoint),
        local: list(localEndpoint, second),
      },
      {
        states: [
          [...one, "gone"],
          [...there, "terminating"],
        ],
        cluster: list(remoteEndpoint),
        local: "dropped",
      },
      {
        states: [
          [...one, "gone"],
          [...there, "gone"],
        ],
        cluster: "rejected",
        local: "rejected",
      },
    ] as const;
    for (const policy of policies) {
      await proxy.set(serviceObject(family, { type: "NodePort", ports: nodePort, ...policy }));
      for (const { states, ...expected } of rows) {
        await proxy.setSlices(slice(family, ...states));
        const found = await Promise.all([
          reached("external", clusterIP, SERVICE_PORT, 40),
          reached("external", node, NODE_PORT, 40),
        ]);
        const wanted = policy.externalTrafficPolicy === "Local" ? expected.local : expected.cluster;
        assert.deepEqual(found, [wanted, wanted], `${policy.externalTrafficPolicy}: ${JSON.stringify(states)}`);
      }
    }
  });
}
