import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { inNetNs } from "#kernel/netns";
import { parseResult } from "#wire/cni";
import { ChainedNetwork, PodNetwork } from "./index.ts";

/** Debian's containernetworking-plugins. */
const PLUGINS = "/usr/lib/cni";
const UID = "0b6a2c4e-0000-4000-8000-000000000001";

/** A node and two pods whose interfaces a real plugin makes. */
function machine(t: TestContext) {
  const kernel = openKernel();
  const id = `isthmus-t${process.pid}-${Math.random().toString(36).slice(2, 7)}`;
  const names = [`${id}-node`, `${id}-0`, `${id}-1`] as const;
  for (const name of names) kernel.createNetNs(name)[Symbol.dispose]();
  const [node, ...pods] = names;
  const data = mkdtempSync(join(tmpdir(), "isthmus-ipam-"));
  using netns = kernel.openNetNs({ name: node });
  const network = inNetNs(netns, () => new ChainedNetwork(kernel));
  const ip = (name: string, ...args: readonly string[]): string =>
    execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
  ip(node, "link", "set", "lo", "up");
  t.after(() => {
    network[Symbol.dispose]();
    for (const name of names) kernel.deleteNetNs(name);
    rmSync(data, { recursive: true, force: true });
  });
  const plugin = (command: "ADD" | "DEL", at: { type: string; pod: string; ifname?: string; settings?: object }) => {
    const ranges = [[{ subnet: "10.77.0.0/24" }], [{ subnet: "fd77::/64" }]];
    const config = {
      cniVersion: "1.0.0",
      name: "net",
      type: at.type,
      ...at.settings,
      ipam: { type: "host-local", ranges, dataDir: data },
    };
    const env = {
      PATH: process.env["PATH"] ?? "",
      CNI_COMMAND: command,
      CNI_CONTAINERID: at.pod,
      CNI_NETNS: `/run/netns/${at.pod}`,
      CNI_IFNAME: at.ifname ?? "eth0",
      CNI_PATH: PLUGINS,
    };
    const argv = ["netns", "exec", node, join(PLUGINS, at.type)];
    const { status, stdout, stderr } = spawnSync("ip", argv, { env, input: JSON.stringify(config), encoding: "utf8" });
    assert.equal(status, 0, stdout + stderr);
    return stdout === "" ? undefined : parseResult(JSON.parse(stdout));
  };
  return { kernel, network, node, pods: pods as readonly [string, string], ip, plugin, netns: `/run/netns/${node}` };
}

for (const { type, settings } of [
  { type: "ptp", settings: {} },
  { type: "bridge", settings: { bridge: "cni0", isGateway: true } },
]) {
  test(`ChainedNetwork: behind ${type} the host's end of the pod's interface is marked, and goes with that plugin's DEL`, (t) => {
    const { network, pods, ip, node, plugin } = machine(t);
    const expected = pods.map((pod) => plugin("ADD", { type, pod, settings }));
    const before = pods.map((pod) => ip(pod, "-4", "-o", "address") + ip(pod, "route"));
    for (const [at, pod] of pods.entries()) {
      const request = { netns: `/run/netns/${pod}`, ifname: "eth0", podUid: `${UID}${at}` };
      assert.equal(network.ownerOf(request), undefined);
      network.adopt(request);
      network.adopt(request);
      network.check(request, expected[at]);
      assert.equal(network.ownerOf(request), request.podUid);
      assert.throws(() => network.check({ ...request, podUid: "other" }, undefined), /alias of pod UID other/);
    }
    assert.equal(network.list().length, 2);
    const [found, ...more] = network.list({ podUid: `${UID}0` });
    assert.deepEqual([found?.ifname, more], ["eth0", []]);
    // The marked link is the peer of this pod's interface.
    const index = /eth0@if(\d+)/.exec(ip(pods[0], "link", "show", "eth0"))?.[1];
    assert.equal(String(found?.ifindex), index);
    assert.match(ip(node, "link", "show", found?.hostName ?? ""), new RegExp(`alias COIL::${UID}0:eth0`));
    assert.deepEqual(
      pods.map((pod) => ip(pod, "-4", "-o", "address") + ip(pod, "route")),
      before,
      "the pods are untouched",
    );
    plugin("DEL", { type, pod: pods[0], settings });
    assert.deepEqual(
      network.list().map(({ podUid }) => podUid),
      [`${UID}1`],
    );
  });
}

test("ChainedNetwork: of several links the one whose peer is the pod's is marked, whatever bears the same index or comes first", (t) => {
  const { network, pods, ip, node, plugin } = machine(t);
  const settings = { bridge: "cni0" };
  for (const ifname of ["net1", "eth0"]) plugin("ADD", { type: "bridge", pod: pods[0], ifname, settings });
  network.adopt({ netns: `/run/netns/${pods[0]}`, ifname: "eth0", podUid: UID });
  const [marked] = network.list();
  const index = /eth0@if(\d+)/.exec(ip(pods[0], "link", "show", "eth0"))?.[1];
  assert.equal(String(marked?.ifindex), index);
  network.adopt({ netns: `/run/netns/${pods[0]}`, ifname: "net1", podUid: UID });
  assert.deepEqual(
    network
      .list({ podUid: UID })
      .map(({ ifname }) => ifname)
      .sort(),
    ["eth0", "net1"],
  );
  assert.match(ip(node, "link", "show"), /alias COIL::/);
});

test("ChainedNetwork: CHECK names what is missing; other interfaces and bad UIDs are refused by name", (t) => {
  const { network, pods, ip, plugin, kernel, netns } = machine(t);
  const [pod, other] = pods;
  const expected = plugin("ADD", { type: "ptp", pod, settings: {} });
  const request = { netns: `/run/netns/${pod}`, ifname: "eth0", podUid: UID };
  network.adopt(request);
  const address = expected?.ips[0]?.address ?? "";
  ip(pod, "address", "del", address, "dev", "eth0");
  assert.throws(() => network.check(request, expected), new RegExp(`address ${address} on eth0 in the pod is missing`));
  ip(pod, "address", "add", address, "dev", "eth0");
  network.check(request, expected);
  ip(pod, "link", "set", "eth0", "down");
  assert.throws(() => network.check(request, expected), /state up of/);
  assert.throws(() => network.adopt({ ...request, netns: `/run/netns/${other}` }), { code: "no-interface" });
  ip(other, "link", "add", "eth0", "type", "bridge");
  assert.throws(() => network.adopt({ ...request, netns: `/run/netns/${other}` }), { code: "no-host-side" });
  // A pair with both ends in the pod: its peer's index is also one of the host's links.
  ip(other, "link", "del", "eth0");
  ip(other, "link", "add", "eth0", "type", "veth", "peer", "name", "x0");
  assert.throws(() => network.adopt({ ...request, netns: `/run/netns/${other}` }), { code: "no-host-side" });
  for (const podUid of ["", "a:b", "x".repeat(300)]) {
    assert.throws(() => network.adopt({ ...request, podUid }), { code: "bad-name" });
  }
  assert.throws(() => network.adopt({ ...request, netns: "/run/netns/no-such" }), { code: "netns-not-found" });
  assert.throws(() => network.adopt({ ...request, netns }), { code: "own-netns" });
  assert.ok(kernel.listNetNs().includes(pod));
});

test("PodNetwork: links that a coild behind another plugin marked are neither attachments nor unowned", (t) => {
  const { network, pods, plugin, kernel, node } = machine(t);
  plugin("ADD", { type: "ptp", pod: pods[0], settings: {} });
  network.adopt({ netns: `/run/netns/${pods[0]}`, ifname: "eth0", podUid: UID });
  using netns = kernel.openNetNs({ name: node });
  const options = {
    tableId: 116,
    rulePriority: 2000,
    protocolId: 30,
    compatCalico: false,
    hostLinkLocal: false,
    mtuBytes: 1500,
  };
  using own = inNetNs(netns, () => new PodNetwork({ kernel, log: nullLogger }, options));
  assert.deepEqual([own.list(), own.survey().attached, own.survey().unowned, own.removeHalfMade()], [[], [], [], 0]);
});
