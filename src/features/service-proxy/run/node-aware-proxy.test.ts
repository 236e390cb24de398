import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { FakeConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { until } from "#test/lab";
import { overridden } from "#test/overridden";
import { GenerationTracker } from "../dataplane/index.ts";
import { type NodeConfig, PRIMARY_ADDRESSES } from "../node/index.ts";
import { nodeConfig } from "../testing/node-config.ts";
import { NodeAwareProxy, type NodeAwareProxyConfig } from "./node-aware-proxy.ts";

function proxyConfig(nodePortAddresses: NodeConfig["nodePortAddresses"]): NodeAwareProxyConfig {
  return { ...nodeConfig({ nodePortAddresses }), tableName: "kube-proxy", syncMs: 30_000, minSyncMs: 1000 };
}

/** The addresses of the health checks of Services on a host with these addresses. */
function healthAddresses(
  nodePortAddresses: NodeConfig["nodePortAddresses"],
  host: readonly string[],
  family: 4 | 6 = 4,
): string[] {
  const config = proxyConfig(nodePortAddresses);
  const kernel = new FakeKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  const link = stack.links.create({ kind: "dummy", name: "eth0" });
  for (const text of host) stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse(text) });
  const elements = new FakeNftElements();
  const parts = {
    stack,
    nft: new FakeNft(),
    elements,
    conntrack: new FakeConntrack(),
    generations: new GenerationTracker(elements),
  };
  const node = { addresses: [IpAddress.parse("192.0.2.1")], zone: undefined, podCIDRs: [] };
  return new NodeAwareProxy(family, config, parts, {
    node,
    observer: {},
    log: nullLogger,
    clock: systemClock,
  }).healthAddresses.map(String);
}

test("NodeAwareProxy: health checks of Services are answered at the addresses that take NodePorts, at the wildcard where all do", () => {
  const host = ["192.0.2.1", "198.51.100.1", "2001:db8::1"];
  assert.deepEqual(healthAddresses(PRIMARY_ADDRESSES, host), ["192.0.2.1"]);
  assert.deepEqual(healthAddresses({ hasPrimary: false, ranges: [Cidr.parse("198.51.100.0/24")] }, host), [
    "198.51.100.1",
  ]);
  assert.deepEqual(healthAddresses({ hasPrimary: false, ranges: [Cidr.parse("0.0.0.0/0")] }, host), ["0.0.0.0"]);
  assert.deepEqual(healthAddresses({ hasPrimary: false, ranges: [Cidr.parse("198.51.100.0/24")] }, host, 6), ["::"]);
});

test("NodeAwareProxy: a loopback range is logged once, however often addresses change", () => {
  const kernel = new FakeKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  const elements = new FakeNftElements();
  const parts = {
    stack,
    nft: new FakeNft(),
    elements,
    conntrack: new FakeConntrack(),
    generations: new GenerationTracker(elements),
  };
  const node = { addresses: [], zone: undefined, podCIDRs: [] };
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  const family = new NodeAwareProxy(4, proxyConfig({ hasPrimary: false, ranges: [Cidr.parse("127.0.0.0/8")] }), parts, {
    node,
    observer: {},
    log,
    clock: systemClock,
  });
  for (let round = 0; round < 100; round += 1) family.setNode({ ...node, zone: `${round}` });
  assert.equal(lines.length, 1, lines.join(""));
});

test("NodeAwareProxy: a Node is applied with the addresses that were read last, also while the kernel does not list them", () => {
  const kernel = new FakeKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  const link = stack.links.create({ kind: "dummy", name: "eth0" });
  const add = (text: string): void => stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse(text) });
  add("198.51.100.1");
  let isBusy = false;
  const list = (): ReturnType<typeof stack.addresses.list> => {
    if (isBusy)
      throw new KernelError("interrupted", "cannot list addresses: the list changed while it was read, 6 times");
    return stack.addresses.list();
  };
  const elements = new FakeNftElements();
  const parts = {
    stack: overridden(stack, { addresses: overridden(stack.addresses, { list }) }),
    nft: new FakeNft(),
    elements,
    conntrack: new FakeConntrack(),
    generations: new GenerationTracker(elements),
  };
  const node = { addresses: [], zone: undefined, podCIDRs: [] };
  const deps = { node, observer: {}, log: nullLogger, clock: systemClock };
  const family = new NodeAwareProxy(
    4,
    proxyConfig({ hasPrimary: false, ranges: [Cidr.parse("198.51.100.0/24")] }),
    parts,
    deps,
  );
  const addresses = (): string => family.healthAddresses.join(" ");
  add("198.51.100.2");
  isBusy = true;
  family.setNode({ ...node, zone: "a" });
  assert.throws(() => family.readHostAddresses(node), KernelError);
  assert.equal(addresses(), "198.51.100.1");
  isBusy = false;
  family.readHostAddresses(node);
  assert.equal(addresses(), "198.51.100.1 198.51.100.2");
});

test("NodeAwareProxy: where all local addresses take NodePorts, new ones need no sync, and those of pods' links no check of flows", async (t) => {
  const kernel = new FakeKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  const links = ["eth0", "veth1", "veth2"].map((name) => stack.links.create({ kind: "dummy", name }).index);
  const add = (text: string, at = 0): void =>
    stack.addresses.add({ linkIndex: links[at] ?? 0, address: IpAddress.parse(text) });
  add("2001:db8::1");
  const elements = new FakeNftElements();
  const conntrack = new FakeConntrack();
  const parts = { stack, nft: new FakeNft(), elements, conntrack, generations: new GenerationTracker(elements) };
  const node = { addresses: [], zone: undefined, podCIDRs: [] };
  const clock = new FakeClock();
  let [syncs, checks] = [0, 0];
  const observer = {
    queued: () => {
      syncs += 1;
    },
    flowsDeleted: () => {
      checks += 1;
    },
  };
  const config = proxyConfig({ hasPrimary: false, ranges: [Cidr.parse("192.0.2.0/24")] });
  const family = new NodeAwareProxy(6, config, parts, { node, observer, log: nullLogger, clock });
  const report = { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 } as const;
  t.mock.method(family.proxy.plane, "sync", async () => report);
  const stop = new AbortController();
  const running = family.proxy.run({ signal: stop.signal });
  family.proxy.open();
  await until("the first sync and check are done", async () => {
    await clock.advance(100);
    return checks > 0;
  });
  const read = async (): Promise<readonly number[]> => {
    [syncs, checks] = [0, 0];
    family.readHostAddresses(node);
    await clock.advance(5000);
    return [syncs, checks];
  };
  add("fe80::1", 1);
  add("fe80::1", 2);
  add("2001:db8::1", 1);
  assert.deepEqual(await read(), [0, 0]);
  add("2001:db8::2");
  assert.deepEqual(await read(), [0, 1]);
  assert.deepEqual(await read(), [0, 0]);
  stop.abort();
  await running;
});
