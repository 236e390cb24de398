import assert from "node:assert/strict";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { MacAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { CLOUDS } from "#cloud/vpc";
import { providerContract } from "#cloud/vpc-contract";
import { defaultNic, gatewaysOf, isDefaultRoute, PRIMARY_NIC, routeMetric } from "#features/nic";
import { ClaimBook, ClaimFiles, NicService, operatorSettings, plannedReport } from "#features/nic-agent";
import {
  cniResult,
  DEVICES,
  Journal,
  NicNetwork,
  planAdded,
  planClaim,
  type SandboxPlan,
  shownNics,
} from "#features/nic-cni";
import { FakeKernel } from "#kernel/fake";
import { FakeSwitch } from "#test/ovs-fake";
import { ToyCloud, toyCloud, toyDevice } from "#test/toy-cloud";
import { CNI_SERVICE, decodeAddResponse, EMPTY_CNI_ARGS, encodeCniArgs } from "#wire/cnirpc";
import { FakeCluster } from "./testing/fake-cluster.ts";

const UID = "3d225262-6fc2-4f31-9a0e-5b6f4cde1a01";
const devices = [...DEVICES, toyDevice];

providerContract("the toy cloud", async () => {
  const provider = new ToyCloud("toy");
  return {
    provider,
    vpc: "toys",
    projectId: undefined,
    freeIp: "10.9.7.7",
    group: "blue",
    host: "node-1",
    setAway: (isAway) => {
      provider.isAway = isAway;
    },
    [Symbol.asyncDispose]: () => provider[Symbol.asyncDispose](),
  };
});

/** A node with the agent of the toys: it has a device for each bound port, in its own namespace. */
function openNode(t: TestContext, cloud: ToyCloud, clock: FakeClock) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-toy-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const kernel = new FakeKernel();
  kernel.createNetNs("sandbox");
  using toyNs = kernel.createNetNs("toy");
  const toys = kernel.openStack(toyNs);
  t.after(() => toys[Symbol.dispose]());
  cloud.onBound = ({ id, mac, binding }) => {
    const link = toys.links.get({ name: id });
    if (binding.host !== "" && link === undefined)
      toys.links.create({ kind: "dummy", name: id, mac: MacAddress.parse(mac) });
    if (binding.host === "" && link !== undefined) toys.links.delete(link.index);
  };
  const claims = new ClaimBook({ files: new ClaimFiles(join(folder, "claims")), log: nullLogger, clock });
  const watch = {
    links: () => ({ [Symbol.asyncDispose]: async () => undefined }),
    folder: () => ({ [Symbol.dispose]: () => undefined }),
  };
  const openNetwork = () =>
    new NicNetwork({
      ...{ kernel, watch, clock, devices, log: nullLogger },
      switchOf: () => new FakeSwitch(),
      journal: new Journal(join(folder, "cni"), devices),
      announce: () => undefined,
    });
  return { kernel, toys, claims, openNetwork };
}

const settings = {
  ...({ ovsdb: "/db.sock", bridge: "br-int", plugMode: "auto", nsPrefix: "vpc-ns" } as const),
  routing: { primary: PRIMARY_NIC, defaultNic, gatewaysOf, isDefaultRoute, routeMetric },
  devices,
};

function openService({ claims, network, clock }: { claims: ClaimBook; network: NicNetwork; clock: FakeClock }) {
  const own = { ovsdb: "/db.sock", integrationBridge: "br-int", plugMode: "auto", vmOwnerUid: 0, nsPrefix: "vpc-ns" };
  return new NicService<SandboxPlan>({
    ...{ claims, network, clock, networks: devices, log: nullLogger, place: { nodeName: "node-1" } },
    readPod: async () => undefined,
    readClaim: async () => undefined,
    handOver: () => undefined,
    describe: (nics) => nics.map(({ name, state }) => `${name}=${state}`).join(),
    plan: (request) => planClaim(request, settings),
    planAdded: (plan, claim, nic) => planAdded(plan, claim, nic, settings),
    resultOf: (plan) => cniResult(plan, devices),
    operator: operatorSettings(own, []),
    kindOf: () => undefined,
    onPlugged: () => undefined,
    onNews: () => undefined,
    onFailed: () => undefined,
    onStep: () => undefined,
  });
}

test("a third cloud: a claim runs from creation to release through the controller and the agent", async (t) => {
  const clock = new FakeClock(Date.UTC(2026, 0, 1));
  const cloud = new ToyCloud("toy");
  const cluster = new FakeCluster(clock, cloud);
  const { kernel, toys, claims, openNetwork } = openNode(t, cloud, clock);
  const network = openNetwork();
  const service = openService({ claims, network, clock });
  using _controller = cluster.start();
  const claim = () => cluster.claims.get(UID) ?? assert.fail("there is no claim");
  const call = async (method: string) => {
    const config = { cniVersion: "1.0.0", name: "toys", type: "vpc-toy" };
    const request = encodeCniArgs({
      ...EMPTY_CNI_ARGS,
      ...{ containerId: "c1", netns: "/run/netns/sandbox", ifname: "eth0" },
      args: { K8S_POD_UID: UID, K8S_POD_NAMESPACE: "default", K8S_POD_NAME: "p" },
      stdinData: new TextEncoder().encode(JSON.stringify(config)),
    });
    return (service.handlers[`/${CNI_SERVICE}/${method}`] ?? assert.fail(method))(request, { signal: t.signal });
  };
  const report = async () => {
    const { isPlugged, nics } = service.stateOf(UID);
    const shown = nics === undefined ? undefined : shownNics(nics, claim(), devices);
    const state = { isPlugged, lost: undefined, nics: shown };
    const planned = plannedReport(claim(), state, { nodeName: "node-1", now: clock.now() });
    const { plugged, conditions } = planned ?? assert.fail("there is nothing to report");
    cluster.report(UID, { conditions: [...conditions], ...(plugged === undefined ? {} : { plugged }) });
    await clock.advance(3000);
  };

  // The controller makes the port and binds it; the cloud's agent makes the device.
  cluster.addPod(UID, { kind: "wanted", vpc: "toys", nics: [{ name: "eth0" }] }, "node-1");
  await clock.advance(3000);
  const [port, ...others] = cloud.ports.values();
  assert.ok(port !== undefined && others.length === 0);
  const [nic] = claim().status?.nics ?? [];
  assert.deepEqual([nic?.portID, nic?.host, nic?.vifType, nic?.vethName], [port.id, "node-1", "toy", port.id]);
  assert.ok(toys.links.get({ name: port.id }) !== undefined);

  // The node plugs it, and answers the runtime; the pod's NIC is ready.
  claims.set(claim());
  const added = JSON.parse(new TextDecoder().decode(decodeAddResponse(await call("Add"))));
  assert.deepEqual(
    [added.interfaces, added.ips],
    [
      [{ name: "eth0", mac: port.mac, mtu: 1400, sandbox: "/run/netns/sandbox" }],
      [{ address: `${port.addresses[0]?.ip}/16`, gateway: "10.9.0.1", interface: 0 }],
    ],
  );
  assert.equal(toys.links.get({ name: port.id }), undefined, "the device has moved");
  await report();
  assert.deepEqual([claim().status?.phase, claim().status?.nics?.[0]?.state], ["Active", "Ready"]);
  await call("Check");
  using sandboxNs = kernel.openNetNs({ name: "sandbox" });
  using sandbox = kernel.openStack(sandboxNs);
  sandbox.links.set(sandbox.links.get({ name: "eth0" })?.index ?? 0, { up: false });
  await assert.rejects(call("Check"), /eth0 is down/);

  // Another agent reads the journal, and the plan is the same.
  assert.deepEqual(openNetwork().plans(), network.plans());

  // DEL gives the device back; the pod ends, and nothing is left.
  await call("Del");
  assert.ok(toys.links.get({ name: port.id }) !== undefined, "the device is back");
  await report();
  cluster.deletePod(UID);
  await clock.advance(200_000);
  assert.deepEqual([[...cloud.ports], [...cluster.claims], network.plans()], [[], [], []]);
  assert.equal(toys.links.get({ name: port.id }), undefined, "the agent has removed the device");
});

const root = join(import.meta.dirname, "../../..");
const sources = globSync("src/**/*.ts", { cwd: root }).filter((file) => !/\.test\.ts$|\/testing\b/.test(file));
const textOf = (file: string): string => readFileSync(join(root, file), "utf8");

test("a third cloud: outside its two folders three files have a line for a kind of cloud: two lists and the schema of a NicPolicy", () => {
  // Alcor is a kind as the toys are; what knows it is what a new kind has to be told to.
  const folders = ["src/cloud/vpc/alcor/", "src/features/nic-cni/alcor/"];
  const outside = sources.filter((file) => !folders.some((folder) => file.startsWith(folder)));
  const knowing = outside.filter((file) => {
    const text = textOf(file);
    const importsIt = /(?:cloud\/vpc|features\/nic-cni)\//.test(file) && /from "(?:\.\/|\.\.\/)alcor\//.test(text);
    return importsIt || /(["'`])alcor\1/.test(text);
  });
  assert.deepEqual(knowing.sort(), [
    "src/cloud/vpc/clouds.ts",
    "src/features/nic-cni/devices.ts",
    "src/kube/nic/schemas.ts",
  ]);
  assert.deepEqual(
    [[...CLOUDS, toyCloud].map(({ type }) => type), devices.map(({ kind }) => kind)],
    [
      ["neutron", "alcor", "toy"],
      ["neutron", "alcor", "toy"],
    ],
  );
});

test("a third cloud: its folders are written against faces alone", () => {
  const files = globSync("test/support/toy-cloud/*/*.ts", { cwd: root });
  const imported = files.flatMap((file) => Array.from(textOf(file).matchAll(/from "([^"]+)"/g), ([, name]) => name));
  assert.deepEqual([...new Set(imported)].sort(), [
    "#base/async",
    "#base/ip",
    "#cloud/vpc",
    "#features/nic-cni",
    "#kernel/net",
    "valibot",
  ]);
  assert.equal(files.length, 2);
});
