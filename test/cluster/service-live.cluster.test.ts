/** Changes by the API and the host under a running proxy, by packets (docs/spec/service-proxy.md#3.2: S11, S20, S22, S23, S26). */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { IpAddress, type IpFamily } from "#base/ip";
import { until } from "#test/lab";
import type { ServiceBed } from "#test/service-bed";
import { label, openServiceBed, setSlice, startSynced, stop } from "#test/service-objects";
import { serviceCIDRs } from "../../src/features/service-proxy/inputs/index.ts";
import { connectTo, tcpSocket } from "../../src/features/service-proxy/testing/clients.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT } from "../../src/features/service-proxy/testing/fixture.ts";
import { endpointObject } from "../../src/features/service-proxy/testing/objects.ts";

const FAMILIES = [4, 6] as const;
/** Another range of Services, and an address in it that a machine outside has. */
const SECOND_RANGE = { 4: "172.31.0.0/16", 6: "fd00:172:31::/112" } as const;
const FOREIGN = { 4: IpAddress.parse("172.31.0.9"), 6: IpAddress.parse("fd00:172:31::9") } as const;
const LOOPBACK = { 4: IpAddress.parse("127.0.0.1"), 6: IpAddress.parse("::1") } as const;
/** The addresses that the host gets later. */
const ADDED = { 4: IpAddress.parse("192.0.2.1"), 6: IpAddress.parse("2001:db8:ad::1") } as const;
/** Both of two endpoints answer so many connections, but for one time in a million. */
const TRIES = 20;

let cluster: ServiceBed;
before(async () => {
  cluster = await openServiceBed(`isp-live-${process.pid}`);
  for (const family of FAMILIES) await bothEndpoints(family);
});
after(() => cluster[Symbol.asyncDispose]());

/** One here, one elsewhere, each in a zone of its own where `hints` says so. */
async function bothEndpoints(family: IpFamily, { hints = false, labels = {} } = {}): Promise<void> {
  const { localEndpoint, remoteEndpoint } = addressesOf(family);
  const zone = (name: string): object => (hints ? { hints: { forZones: [{ name }] } } : {});
  await setSlice(
    cluster,
    family,
    [endpointObject(localEndpoint, "here", zone("a")), endpointObject(remoteEndpoint, "elsewhere", zone("b"))],
    { labels },
  );
}

/** Returns the endpoints that answer a pod: `local`, `local remote`, or what becomes of its connections instead. */
async function answering(family: IpFamily): Promise<string> {
  const seen = new Set<string>();
  for (let at = 0; at < TRIES; at += 1) {
    const reached = await cluster.bed.connect("pod", addressesOf(family).clusterIP, SERVICE_PORT, { droppedMs: 900 });
    if (reached.kind !== "delivered") return reached.kind;
    seen.add(reached.server);
  }
  return [...seen].sort().join(" ");
}

const answers = (wanted: string): Promise<void> =>
  until(`in both families answer: ${wanted}`, async () =>
    (await Promise.all(FAMILIES.map(answering))).every((seen) => seen === wanted),
  );

test("labels: a Service of another proxy and slices of headless Services lose their rules, and get them back", async (t) => {
  const proxy = await startSynced(t, cluster);
  await answers("local remote");
  await label(cluster, "service", { "service.kubernetes.io/service-proxy-name": "another" });
  await answers("dropped");
  await label(cluster, "service", { "service.kubernetes.io/service-proxy-name": null });
  await answers("local remote");
  for (const family of FAMILIES) await bothEndpoints(family, { labels: { "service.kubernetes.io/headless": "" } });
  await answers("rejected");
  for (const family of FAMILIES) await bothEndpoints(family);
  await answers("local remote");
  await stop(proxy);
});

test("zone: hints count as soon as the Node has the label, with another zone, and until it has none", async (t) => {
  const proxy = await startSynced(t, cluster);
  for (const family of FAMILIES) await bothEndpoints(family, { hints: true });
  await answers("local remote");
  for (const [zone, wanted] of [
    ["a", "local"],
    ["b", "remote"],
    ["c", "local remote"],
    ["a", "local"],
    [null, "local remote"],
  ] as const) {
    await label(cluster, "node", { "topology.kubernetes.io/zone": zone });
    await answers(wanted);
  }
  await stop(proxy);
});

test("ServiceCIDR: unused addresses of an added range are dropped until the range is removed", async (t) => {
  for (const family of FAMILIES) {
    cluster.bed.addAddress("external", FOREIGN[family]);
    await cluster.bed.listen("external", FOREIGN[family], SERVICE_PORT);
  }
  const proxy = await startSynced(t, cluster);
  await answers("local remote");
  const foreign = async (wanted: string): Promise<void> => {
    await until(`addresses of the range are ${wanted}`, async () => {
      const connect = (family: IpFamily) =>
        cluster.bed.connect("pod", FOREIGN[family], SERVICE_PORT, { droppedMs: 900 });
      return (await Promise.all(FAMILIES.map(connect))).every(({ kind }) => kind === wanted);
    });
  };
  await foreign("delivered");
  const cidrs = FAMILIES.map((family) => SECOND_RANGE[family]);
  await cluster.client.create(serviceCIDRs, { metadata: { name: "second" }, spec: { cidrs } });
  await foreign("dropped");
  await cluster.client.delete(serviceCIDRs, { name: "second" });
  await foreign("delivered");
  await stop(proxy);
});

/** From the node by no address of its own choice. */
async function fromLoopback(family: IpFamily): Promise<string> {
  const socket = tcpSocket(cluster.bed.netns("node"), family);
  return (await connectTo(socket, LOOPBACK[family], NODE_PORT, { droppedMs: 900 })).kind;
}

test("NodePort: never at loopback, whatever the configuration", async (t) => {
  for (const flags of [["--nodeport-addresses=0.0.0.0/0,::/0"], ["--nodeport-addresses=127.0.0.0/8,::1/128"]]) {
    const proxy = await startSynced(t, cluster, ...flags);
    await answers("local remote");
    for (const family of FAMILIES) assert.equal(await fromLoopback(family), "rejected", flags.join());
    await stop(proxy);
  }
});

test("NodePort: at both loopback addresses with localhost, by the Service's own rules, without a sysctl, until the Service goes", async (t) => {
  const proxy = await startSynced(t, cluster, "--nodeport-addresses=localhost,primary");
  const localnet = (): string =>
    execFileSync(
      "ip",
      ["netns", "exec", cluster.netnsName("node"), "sysctl", "-n", "net.ipv4.conf.all.route_localnet"],
      {
        encoding: "utf8",
      },
    ).trim();
  await answers("local remote");
  for (const family of FAMILIES)
    await until(`IPv${family}`, async () => (await fromLoopback(family)) === "delivered", { deadlineMs: 5000 });
  assert.equal(localnet(), "0");
  for (const family of FAMILIES) await setSlice(cluster, family, []);
  for (const family of FAMILIES)
    await until(`no endpoint of IPv${family}`, async () => (await fromLoopback(family)) !== "delivered", {
      deadlineMs: 5000,
    });
  for (const family of FAMILIES) await bothEndpoints(family);
  for (const family of FAMILIES)
    await until(`IPv${family} again`, async () => (await fromLoopback(family)) === "delivered", { deadlineMs: 5000 });
  await stop(proxy);
  for (const family of FAMILIES) assert.equal(await fromLoopback(family), "rejected");
});

test("--nodeport-addresses: an address of the host that is added later takes NodePorts at once, until it goes", async (t) => {
  const proxy = await startSynced(t, cluster, "--nodeport-addresses=192.0.2.0/24,2001:db8:ad::/64");
  const { bed } = cluster;
  await answers("local remote");
  for (const family of FAMILIES) {
    const { node } = addressesOf(family);
    const host = [`${ADDED[family]}/${ADDED[family].bits}`, "dev", "veth-external"];
    const at = async (address: IpAddress): Promise<string> =>
      (await bed.connect("external", address, NODE_PORT, { droppedMs: 900 })).kind;
    assert.equal(await at(node), "rejected", "no address of the range");
    bed.ip("node", "address", "add", ...host, ...(family === 6 ? ["nodad"] : []));
    await until(`NodePorts are taken on ${ADDED[family]}`, async () => (await at(ADDED[family])) === "delivered", {
      deadlineMs: 5000,
    });
    assert.equal(await at(node), "rejected");
    bed.ip("node", "address", "delete", ...host);
    const set = (): string => cluster.nft(["list", "set", family === 4 ? "ip" : "ip6", "kube-proxy", "nodeport-ips"]);
    await until("it is deleted", () => !set().includes(String(ADDED[family])), { deadlineMs: 5000 });
  }
  await stop(proxy);
});
