/** Objects that block `service-proxy` until it is killed: the third time they are left out, and other Services are served (docs/design/strangers.md). */
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { resources } from "#kube/client";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { NODE, PORTS, ServiceBed } from "#test/service-bed";
import { addressesOf, TARGET_PORT } from "../../src/features/service-proxy/testing/fixture.ts";

const BLOCKING = "192.0.2.66";
/** A port of this name alone blocks when its elements are compared with the table. */
const BLOCKING_PORT = "poison";
const BLOCKING_COMMENT = `default/poison:${BLOCKING_PORT}/TCP`;
const { clusterIP } = addressesOf(4);
const metadata = { name: "poison", namespace: "default" };
const POISON_IP = "172.30.0.99";

/** Starts the program as the launcher does, with a text that blocks it. */
function startProxy(t: TestContext, cluster: ServiceBed): Running {
  const program = [process.execPath, "--disable-sigusr1", join(dirname(ISTHMUS), "isthmus.mjs"), "service-proxy"];
  program.splice(1, 0, `--require=${join(import.meta.dirname, "../support/blocking-text.cjs")}`);
  const place = [`--hostname-override=${NODE}`, `--netns=/run/netns/${cluster.netnsName("node")}`];
  const own = [`--kubeconfig=${join(cluster.folder, "kubeconfig")}`, "--min-sync-period=0s"];
  const record = `--record-dir=${join(cluster.folder, "record")}`;
  const running = start([...program, ...place, ...own, record], {
    env: { ISTHMUS_TEST_BLOCKS: BLOCKING, ISTHMUS_TEST_BLOCKS_COMMENT: BLOCKING_COMMENT },
    timeoutMs: 60_000,
  });
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  return running;
}

/** The poison, and a change that heals it. */
interface Subject {
  readonly name: string;
  readonly what: string;
  readonly kind: string;
  readonly make: (cluster: ServiceBed) => Promise<void>;
  readonly heal: (cluster: ServiceBed) => Promise<unknown>;
}

async function makeService(cluster: ServiceBed, externalIPs: readonly string[], portName = "http"): Promise<void> {
  const ports = PORTS.map(({ nodePort: _, ...port }) => ({ ...port, name: portName }));
  const spec = { clusterIP: POISON_IP, clusterIPs: [POISON_IP], ports, externalIPs: [...externalIPs] };
  await cluster.client.create(resources.services, { metadata, spec });
}

async function setEndpoint(cluster: ServiceBed, address: string): Promise<void> {
  const body = {
    metadata: { ...metadata, labels: { "kubernetes.io/service-name": metadata.name } },
    addressType: "IPv4",
    ports: [{ name: "http", port: TARGET_PORT, protocol: "TCP" }],
    endpoints: [{ addresses: [address], conditions: { ready: true } }],
  };
  await cluster.client.patch(resources.endpointSlices, metadata, {
    type: "apply",
    body,
    fieldManager: "test",
    force: true,
  });
}

const SUBJECTS: readonly Subject[] = [
  {
    name: "ssp",
    what: "an endpoint, which blocks the plan of its Service",
    kind: "Service",
    make: async (cluster) => {
      await makeService(cluster, []);
      await setEndpoint(cluster, BLOCKING);
    },
    heal: (cluster) => setEndpoint(cluster, "10.42.9.9"),
  },
  {
    name: "ssr",
    what: "an external address of a Service, which blocks when the Service is read",
    kind: "Service",
    make: async (cluster) => {
      await makeService(cluster, [BLOCKING]);
      await setEndpoint(cluster, "10.42.9.9");
    },
    heal: (cluster) =>
      cluster.client.patch(resources.services, metadata, { type: "merge", body: { spec: { externalIPs: null } } }),
  },
  {
    name: "ssd",
    what: "a port of a Service, which blocks when its elements are compared with the kernel's table",
    kind: "Service",
    make: (cluster) => makeService(cluster, [], BLOCKING_PORT),
    heal: (cluster) =>
      cluster.client.patch(resources.services, metadata, {
        type: "json",
        operations: [{ op: "replace", path: "/spec/ports/0/name", value: "healed" }],
      }),
  },
];

for (const { name, what, kind, make, heal } of SUBJECTS) {
  test(`service-proxy: ${what}, until the process was killed three times, is set aside with an event; others are served, and a change frees it`, async (t) => {
    const service = { type: "ClusterIP", clusterIP: String(clusterIP), clusterIPs: [String(clusterIP)] };
    const cluster = await ServiceBed.open(`isp-${name}-${process.pid}`, { service });
    t.after(() => cluster[Symbol.asyncDispose]());
    await cluster.setEndpoints(4, [{ addresses: ["10.42.1.7"], conditions: { ready: true } }]);
    await make(cluster);
    for (let at = 0; at < 3; at += 1) {
      const proxy = startProxy(t, cluster);
      // As a kubelet does it whose liveness probe fails.
      await until("it is blocked", () => proxy.said().includes("blocked"), { seen: proxy.said });
      proxy.child.kill("SIGKILL");
      await proxy.ended;
    }
    const proxy = startProxy(t, cluster);
    const table = (): string =>
      cluster.nft(["list", "tables"]).includes("ip kube-proxy")
        ? cluster.nft(["list", "table", "ip", "kube-proxy"])
        : "";
    // A process that blocked in the middle of a sync may have left addresses of both.
    const isServed = (): boolean => /10\.42\.1\.7 \. \d+/.test(table()) && !table().includes(POISON_IP);
    await until("the other Service is served, and this one is not", isServed, { seen: () => proxy.said() + table() });
    const notes = async (): Promise<readonly string[]> =>
      (await cluster.client.list(resources.events, {})).items
        .filter(
          ({ reason, regarding }) => reason === "SetAside" && regarding?.name === "poison" && regarding.kind === kind,
        )
        .map(({ note = "" }) => note);
    await until("the event is written", async () => (await notes()).length > 0, { seen: proxy.said });
    await heal(cluster);
    await until("the changed object is served", () => table().includes(POISON_IP), { seen: proxy.said });
    assert.doesNotMatch(proxy.said(), /^blocked/m);
    assert.match(proxy.said(), /object set aside/);
    proxy.child.kill("SIGTERM");
    assert.equal((await proxy.ended).code, 0);
  });
}
