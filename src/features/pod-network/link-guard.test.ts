import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import { type GuardedPodLink, type LinkGuard, planGuard } from "./link-guard.ts";
import { PodNetwork } from "./pod-network.ts";

const OPTIONS = {
  ...{ tableId: 116, rulePriority: 2000, protocolId: 30, compatCalico: false, hostLinkLocal: false, mtuBytes: 1500 },
};
const attachment = { containerId: "aaaa", ifname: "eth0" };
const REQUEST = {
  ...{ attachment, pool: "default", pod: { namespace: "ns", name: "a" }, netns: "/run/netns/pod" },
  ...{ ipv4: IpAddress.parse("10.1.0.1"), ipv6: IpAddress.parse("fd01::1") },
};

/** A node, and a guard that notes its calls with the state of the link. */
function bed() {
  const kernel = new FakeKernel();
  kernel.createNetNs("pod")[Symbol.dispose]();
  const own = kernel.openNetNs("own");
  const host = kernel.openStack(own);
  const calls: string[] = [];
  const synced: GuardedPodLink[] = [];
  let failure: Error | undefined;
  const stateOf = (ifindex: number): string => {
    const link = host.links.get({ index: ifindex });
    return link === undefined ? "gone" : link.up ? "up" : "down";
  };
  const guard: LinkGuard = {
    attach: (...links) => {
      for (const { ifindex, addresses, extra } of links)
        calls.push(`attach ${stateOf(ifindex)} ${addresses.join()} ${extra?.join() ?? "unknown"}`);
      if (failure !== undefined) throw failure;
    },
    detach: (ifindex) => calls.push(`detach ${stateOf(ifindex)}`),
    sync: (links) => {
      synced.splice(0, synced.length, ...links);
      return 0;
    },
    differing: () => [],
  };
  const network = new PodNetwork({ kernel, log: nullLogger, guard }, OPTIONS);
  network.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: undefined });
  network.initHost();
  const fail = (error: Error | undefined): void => {
    failure = error;
  };
  return { kernel, host, network, calls, synced, fail };
}

test("PodNetwork: a link is guarded before it is up, and released after it is gone", async () => {
  const { network, calls } = bed();
  await network.setUp({ ...REQUEST, extraSources: [Cidr.parse("10.9.0.0/24")] });
  await network.tearDown(attachment);
  assert.deepEqual(calls, ["attach down 10.1.0.1,fd01::1 10.9.0.0/24", "detach gone"]);
});

test("PodNetwork: a link that cannot be guarded is not made", async () => {
  const { network, calls, host, fail } = bed();
  fail(new KernelError("busy", "Cannot guard"));
  await assert.rejects(network.setUp(REQUEST), /Cannot guard/);
  assert.deepEqual(calls, ["attach down 10.1.0.1,fd01::1 ", "detach gone"]);
  assert.deepEqual(
    host.links.list().filter(({ kind }) => kind === "veth"),
    [],
  );
});

test("PodNetwork: a link that is made again is guarded again, with its extra sources", async () => {
  const { network, calls, host } = bed();
  await network.setUp({ ...REQUEST, extraSources: [Cidr.parse("10.9.0.0/24")] });
  const link = host.links.list().find(({ kind }) => kind === "veth");
  host.links.delete(link?.index ?? assert.fail());
  assert.equal(network.remake(() => true).made.length, 1);
  assert.deepEqual(calls.slice(1), ["attach down 10.1.0.1,fd01::1 10.9.0.0/24"]);
});

test("PodNetwork: a survey guards all links; their extra sources are unknown to a new process until it is told", async () => {
  const { kernel, network, synced } = bed();
  await network.setUp(REQUEST);
  const guard: LinkGuard = {
    ...{ attach: () => undefined, detach: () => undefined, differing: () => [] },
    sync: (links) => {
      synced.splice(0, synced.length, ...links);
      return links.length;
    },
  };
  using next = new PodNetwork({ kernel, log: nullLogger, guard }, OPTIONS);
  assert.equal(next.guard(next.survey()), 1);
  assert.deepEqual(
    synced.map(({ addresses, extra, isHeld }) => [addresses.join(), extra, isHeld]),
    [["10.1.0.1,fd01::1", undefined, true]],
  );
  next.judgeAll();
  next.guard(next.survey());
  assert.equal(synced[0]?.isHeld, false);
  next.setExtraSources([{ attachment, extra: [] }]);
  next.guard(next.survey(), () => [IpAddress.parse("10.1.0.1")]);
  assert.deepEqual(
    synced.map(({ addresses, extra }) => [addresses.join(), extra]),
    [["10.1.0.1", []]],
  );
});

test("PodNetwork: a pod with extra sources sends ARP requests from its own address, from its ADD or from when they are allowed; others keep the default", async () => {
  const { kernel, host, network } = bed();
  using netns = kernel.openNetNs({ name: "pod" });
  using pod = kernel.openStack(netns);
  const announce = (): string => pod.sysctl.get("net/ipv4/conf/eth0/arp_announce");
  const reset = (): void => pod.sysctl.set("net/ipv4/conf/eth0/arp_announce", "0");
  const extra = [Cidr.parse("10.9.0.0/24")];
  await network.setUp(REQUEST);
  network.setExtraSources([{ attachment, extra: [] }]);
  assert.equal(announce(), "0");
  network.setExtraSources([{ attachment, extra }]);
  assert.equal(announce(), "2");
  const link = host.links.list().find(({ kind }) => kind === "veth");
  reset();
  host.links.delete(link?.index ?? assert.fail());
  assert.equal(network.remake(() => true).made.length, 1);
  assert.equal(announce(), "2", "a link that is made again");
  reset();
  await network.setUp({ ...REQUEST, extraSources: extra });
  assert.equal(announce(), "2");
  pod.sysctl.set("net/ipv4/conf/eth0/arp_announce", "1");
  network.setExtraSources([{ attachment, extra }]);
  assert.equal(announce(), "1", "what the pod has set stays");
});

test("planGuard: a link whose addresses cannot be told, and one that is being made, keep what they have", () => {
  const one = { pool: "default", ...attachment, ifindex: 7, hostName: "veth7", addresses: [] };
  const pending = { index: 9, alias: "COIL-PENDING:bbbb:eth0" };
  const { guarded, keep } = planGuard(
    { attached: [one], bare: [], unowned: [] },
    [pending as never],
    { extraOf: () => [] },
    () => undefined,
    true,
  );
  assert.deepEqual([guarded, [...keep].sort()], [[], [7, 9]]);
});
