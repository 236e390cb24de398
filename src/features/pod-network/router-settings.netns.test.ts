import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { inNetNs } from "#kernel/netns";
import { type Frame, redirect, redirect4, routerAdvertisement, sendFrames, udp } from "#test/forged-frames";
import { until } from "#test/lab";
import { hostNameOf, PodNetwork, type PodNetworkOptions } from "./index.ts";

const ip = IpAddress.parse;
const OPTIONS: PodNetworkOptions = {
  ...{ tableId: 116, rulePriority: 2000, protocolId: 30, compatCalico: false, hostLinkLocal: false },
  mtuBytes: 1500,
};
const NODE = { ipv4: ip("192.0.2.1"), ipv6: ip("2001:db8::1") };
const attachment = { containerId: "aaaa", ifname: "eth0" };
const HOST = hostNameOf(attachment);

/** A node whose `conf/default` takes routes of everybody, with one pod. */
async function bed(families: "v4" | "dual") {
  const stack = new DisposableStack();
  const kernel = openKernel();
  const names = ["node", "pod"].map((name) => `isthmus-t${process.pid}-rs-${families}-${name}`) as [string, string];
  for (const name of names) {
    kernel.createNetNs(name)[Symbol.dispose]();
    stack.defer(() => kernel.deleteNetNs(name));
  }
  const node = stack.use(kernel.openNetNs({ name: names[0] }));
  const pod = stack.use(kernel.openNetNs({ name: names[1] }));
  const host = stack.use(kernel.openStack(node));
  const inside = stack.use(kernel.openStack(pod));
  for (const [key, value] of [
    ["net/ipv6/conf/default/accept_ra", "2"],
    ["net/ipv6/conf/default/accept_redirects", "1"],
    ["net/ipv6/conf/default/disable_ipv6", "0"],
    ["net/ipv4/conf/default/accept_redirects", "1"],
    ["net/ipv4/conf/default/secure_redirects", "0"],
  ] as const)
    host.sysctl.set(key, value);
  const open = (): PodNetwork => {
    const network = inNetNs(node, () => new PodNetwork({ kernel, log: nullLogger }, OPTIONS));
    network.setNodeAddresses(NODE);
    network.initHost();
    return stack.use(network);
  };
  const network = open();
  await network.setUp({
    ...{ attachment, pool: "default", pod: { namespace: "ns", name: "a" }, netns: `/run/netns/${names[1]}` },
    ...{ ipv4: ip("10.1.0.2"), ipv6: families === "dual" ? ip("fd01::2") : undefined },
  });
  const link = inside.links.get({ name: "eth0" });
  const peer = host.links.get({ name: HOST });
  if (link?.mac === undefined || peer?.mac === undefined) assert.fail();
  const ends = { index: link.index, mac: link.mac, peerMac: peer.mac };
  /** Datagrams for ports of the node at which nobody listens. */
  const refused = (): number =>
    inNetNs(node, () => Number(/^Udp: \d+ (\d+)/m.exec(readFileSync("/proc/thread-self/net/snmp", "utf8"))?.[1]));
  const routes = (): string =>
    [4, 6]
      .map((family) =>
        execFileSync("ip", ["-n", names[0], `-${family}`, "route", "show", "table", "all"], { encoding: "utf8" }),
      )
      .join("");
  return {
    ...{ host, network, open, ends, routes, refused },
    send: (frames: readonly Frame[]) => sendFrames(pod, ends, frames),
    [Symbol.dispose]: () => stack.dispose(),
  };
}

for (const families of ["v4", "dual"] as const) {
  test(`PodNetwork: a node whose default accepts advertisements and redirects takes no route from a ${families} pod`, async () => {
    using at = await bed(families);
    const before = at.routes();
    const sender = { ip: ip("fe80::77"), mac: at.ends.mac };
    const gateway = ip("10.1.0.2");
    at.send([
      routerAdvertisement(sender, ip("ff02::1")),
      redirect(sender.ip, NODE.ipv6, ip("fe80::77"), ip("2001:db8:9::1")),
      redirect4(gateway, NODE.ipv4, gateway, ip("198.51.100.1")),
    ]);
    // It is answered after those before it.
    at.send([udp(gateway, NODE.ipv4, { port: 1 })]);
    await until("the last packet was counted", () => at.refused() > 0, { everyMs: 5 });
    assert.equal(at.routes(), before);
    const conf = (family: 4 | 6, key: string): string => at.host.sysctl.get(`net/ipv${family}/conf/${HOST}/${key}`);
    assert.equal(conf(4, "accept_redirects"), "0");
    assert.deepEqual([conf(6, "accept_ra"), conf(6, "accept_redirects")], ["0", "0"]);
    assert.equal(conf(6, "disable_ipv6"), families === "v4" ? "1" : "0");
  });
}

test("PodNetwork: links of an earlier version get the settings at the next start, and those that others overwrite get them again", async () => {
  using at = await bed("v4");
  const keys = ["accept_ra", "accept_redirects", "disable_ipv6"].map((key) => `net/ipv6/conf/${HOST}/${key}`);
  const values = (): string[] => keys.map((key) => at.host.sysctl.get(key));
  for (const [index, value] of ["2", "1", "0"].entries()) at.host.sysctl.set(keys[index] ?? "", value);
  const next = at.open();
  const repaired = (network: PodNetwork): number => network.repairSettings(network.survey()).changes;
  assert.equal(repaired(next), 2);
  assert.deepEqual(values(), ["0", "0", "0"], "which addresses a link has may be read wrongly: IPv6 is not turned off");
  assert.equal(repaired(next), 0);
  for (const [index, value] of ["2", "1", "0"].entries()) at.host.sysctl.set(keys[index] ?? "", value);
  assert.equal(repaired(at.network), 3, "the process that made the link knows that its pod has no IPv6");
  assert.deepEqual(values(), ["0", "0", "1"]);
  assert.equal(repaired(at.network), 0);
});
