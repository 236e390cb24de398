import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { test } from "node:test";
import { IpAddress, MacAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { openKernel } from "#kernel/net";
import { inNetNs } from "#kernel/netns";
import { overridden } from "#test/overridden";
import { advertiseRouter } from "#test/router-advertisement";
import { hostNameOf, PodNetwork, type PodNetworkOptions, type PodRequest, type RecordedSteps } from "./index.ts";

const OPTIONS: PodNetworkOptions = {
  tableId: 116,
  rulePriority: 2000,
  protocolId: 30,
  compatCalico: false,
  hostLinkLocal: false,
  mtuBytes: undefined,
};

/** A node and at least two pods, each a namespace; removed when the test ends. */
function machine(options: Partial<PodNetworkOptions> = {}, pods = 2, log = nullLogger) {
  const kernel = openKernel();
  const id = `isthmus-t${process.pid}-${Math.random().toString(36).slice(2, 7)}`;
  const nodeName = `${id}-node`;
  const podNames = Array.from({ length: pods }, (_, pod) => `${id}-${pod}`);
  const names = [nodeName, ...podNames];
  for (const name of names) kernel.createNetNs(name)[Symbol.dispose]();
  using node = kernel.openNetNs({ name: nodeName });
  // A network object belongs to the namespace of its process: enter it for the length of the constructor.
  const network = inNetNs(node, () => new PodNetwork({ kernel, log }, { ...OPTIONS, ...options }));
  network.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") });
  network.initHost();
  const ip = (name: string, ...args: string[]): string =>
    execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
  for (const name of names) ip(name, "link", "set", "lo", "up");
  return {
    kernel,
    network,
    nodeName,
    podNames: podNames as [string, string, ...string[]],
    ip,
    ping: (name: string, target: string) => {
      try {
        execFileSync("ip", ["netns", "exec", name, "ping", "-c1", "-W2", "-q", target]);
        return true;
      } catch {
        return false;
      }
    },
    [Symbol.dispose]() {
      network[Symbol.dispose]();
      for (const name of names) kernel.deleteNetNs(name);
    },
  };
}

function request(
  at: string,
  container: string,
  last: number,
  families: "v4" | "v6" | "dual" = "dual",
): PodRequest & { netns: string } {
  return {
    attachment: { containerId: container, ifname: "eth0" },
    pool: "default",
    pod: { namespace: "ns", name: container },
    ipv4: families === "v6" ? undefined : IpAddress.parse(`10.1.0.${last}`),
    ipv6: families === "v4" ? undefined : IpAddress.parse(`fd01::${last}`),
    netns: `/run/netns/${at}`,
  };
}

for (const families of ["v4", "v6", "dual"] as const) {
  test(`PodNetwork: ${families} pods reach the host and each other`, async () => {
    using at = machine();
    const [a, b] = at.podNames;
    const result = await at.network.setUp(request(a, "aaaa", 1, families));
    await at.network.setUp(request(b, "bbbb", 2, families));
    assert.deepEqual(
      result.ips.map((entry) => entry.address),
      families === "v4" ? ["10.1.0.1/32"] : families === "v6" ? ["fd01::1/128"] : ["10.1.0.1/32", "fd01::1/128"],
    );
    assert.equal(result.interfaces[0]?.sandbox, `/run/netns/${a}`);
    if (families !== "v6") {
      assert.ok(at.ping(a, "10.1.0.2"), "pod to pod, IPv4");
      assert.ok(at.ping(a, "192.0.2.1"), "pod to host, IPv4");
      assert.ok(at.ping(at.nodeName, "10.1.0.1"), "host to pod, IPv4");
    }
    if (families !== "v4") {
      assert.ok(at.ping(a, "fd01::2"), "pod to pod, IPv6");
      assert.ok(at.ping(a, "2001:db8::1"), "pod to host, IPv6");
      assert.ok(at.ping(at.nodeName, "fd01::1"), "host to pod, IPv6");
    }
  });
}

test("PodNetwork: list recovers attachments from aliases and routes, and tearDown leaves nothing", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(b, "bbbb", 2, "v4"));
  const listed = at.network
    .list()
    .map(({ pool, containerId, ifname, addresses }) => [pool, containerId, ifname, addresses.join()]);
  assert.deepEqual(listed, [
    ["default", "aaaa", "eth0", "10.1.0.1,fd01::1"],
    ["default", "bbbb", "eth0", "10.1.0.2"],
  ]);
  for (const containerId of ["aaaa", "bbbb", "aaaa"]) await at.network.tearDown({ containerId, ifname: "eth0" });
  assert.deepEqual(at.network.list(), []);
  assert.doesNotMatch(at.ip(at.nodeName, "link", "show"), /veth/);
  assert.equal(at.ip(at.nodeName, "route", "show", "table", "116"), "");
});

test("PodNetwork: a repeated set-up replaces the interface; a foreign one of that name is refused and stays", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(a, "aaaa", 1));
  assert.equal(at.network.list().length, 1);
  at.ip(b, "link", "add", "eth0", "type", "bridge");
  await assert.rejects(at.network.setUp(request(b, "bbbb", 2)), { code: "interface-exists" });
  assert.match(at.ip(b, "link", "show", "eth0"), /eth0/);
  assert.equal(at.network.list().length, 1);
});

test("PodNetwork: removeHalfMade removes the links of killed ADDs and nothing else", async () => {
  using at = machine();
  const [a] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  at.ip(at.nodeName, "link", "add", "veth00000001", "type", "veth", "peer", "name", "p1");
  at.ip(at.nodeName, "link", "add", "pending", "type", "veth", "peer", "name", "p2");
  at.ip(at.nodeName, "link", "set", "pending", "alias", "COIL-PENDING:cccc:eth0");
  assert.equal(at.network.removeHalfMade(), 1);
  const links = at.ip(at.nodeName, "link", "show");
  assert.match(links, /veth00000001/, "a veth of somebody else stays");
  assert.doesNotMatch(links, /pending/);
  assert.equal(at.network.list().length, 1);
});

for (const { name, remove, missing } of [
  {
    name: "pod address",
    remove: [["pod", "address", "del", "10.1.0.1/32", "dev", "eth0"]],
    missing: /address 10\.1\.0\.1\/32 on eth0/,
  },
  {
    name: "IPv6 pod address",
    remove: [["pod", "address", "del", "fd01::1/128", "dev", "eth0"]],
    missing: /address fd01::1\/128 on eth0/,
  },
  {
    name: "route to the pod",
    remove: [["node", "route", "flush", "table", "116"]],
    missing: /route 10\.1\.0\.1\/32 dev veth/,
  },
  {
    name: "IPv6 route to the pod",
    remove: [["node", "-6", "route", "flush", "table", "116"]],
    missing: /route fd01::1\/128 dev veth/,
  },
  { name: "default route", remove: [["pod", "route", "del", "default"]], missing: /default IPv4 route through eth0/ },
  {
    name: "IPv6 default route",
    remove: [["pod", "-6", "route", "del", "default"]],
    missing: /default IPv6 route through eth0/,
  },
  {
    name: "way to the gateway",
    remove: [["pod", "route", "del", "192.0.2.1"]],
    missing: /route to gateway 192\.0\.2\.1/,
  },
  {
    name: "gateway's address",
    remove: [
      ["node", "address", "del", "192.0.2.1/32", "dev", "HOST"],
      ["node", "route", "replace", "10.1.0.1", "dev", "HOST", "table", "116", "proto", "30", "scope", "link"],
    ],
    missing: /gateway address 192\.0\.2\.1 on host link/,
  },
  {
    name: "IPv6 gateway's address",
    remove: [["node", "-6", "address", "flush", "dev", "HOST", "scope", "link"]],
    missing: /gateway address fe80:.* on host link/,
  },
  { name: "rule", remove: [["node", "rule", "del", "pref", "2000"]], missing: /IPv4 rule 2000 for table 116/ },
  {
    name: "IPv6 rule",
    remove: [["node", "-6", "rule", "del", "pref", "2000"]],
    missing: /IPv6 rule 2000 for table 116/,
  },
  { name: "host link's state", remove: [["node", "link", "set", "HOST", "down"]], missing: /state up of host link/ },
  {
    name: "pod interface's state",
    remove: [["pod", "link", "set", "eth0", "down"]],
    missing: /state up of interface eth0/,
  },
  { name: "alias", remove: [["node", "link", "set", "HOST", "alias", ""]], missing: /alias of container aaaa/ },
  {
    name: "pod's interface, where another has its name",
    remove: [
      ["pod", "link", "set", "eth0", "down"],
      ["pod", "link", "set", "eth0", "name", "old"],
      ["pod", "link", "add", "eth0", "type", "bridge"],
    ],
    missing: /link between interface eth0 in the pod and host link/,
  },
  {
    name: "host link",
    remove: [["node", "link", "del", "HOST"]],
    missing: /no host link has the alias of container aaaa/,
  },
]) {
  test(`PodNetwork: check passes right after set-up, and names a missing ${name}, with prevResult and without`, async () => {
    using at = machine();
    const [a] = at.podNames;
    const made = request(a, "aaaa", 1);
    const expected = await at.network.setUp(made);
    const addresses = [made.ipv4, made.ipv6].filter((address) => address !== undefined);
    const check = (prevResult: typeof expected | undefined, given: typeof addresses): void =>
      at.network.check({ attachment: made.attachment, netns: made.netns, addresses: given, expected: prevResult });
    check(expected, []);
    check(undefined, addresses);
    const host = at.network.list()[0]?.hostName ?? "";
    for (const [where, ...words] of remove) {
      at.ip(where === "pod" ? a : at.nodeName, ...words.map((word) => (word === "HOST" ? host : word)));
    }
    assert.throws(() => check(expected, []), missing);
    assert.throws(() => check(undefined, addresses), missing);
  });
}

test("PodNetwork: check tolerates what later plugins add, and refuses a prevResult without the pod's interface or with another address", async () => {
  using at = machine();
  const [a] = at.podNames;
  const made = request(a, "aaaa", 1);
  const result = await at.network.setUp(made);
  const check = (expected: typeof result): void =>
    at.network.check({ attachment: made.attachment, netns: made.netns, addresses: [], expected });
  at.ip(a, "link", "set", "eth0", "mtu", "1400");
  at.ip(a, "address", "add", "198.51.100.7/24", "dev", "eth0");
  at.ip(a, "route", "add", "203.0.113.0/24", "via", "192.0.2.1", "dev", "eth0");
  check({
    ...result,
    interfaces: [...result.interfaces, { name: "ifb0" }],
    ips: [...result.ips, { address: "198.51.100.9/32", interface: 2 }],
    routes: [{ dst: "203.0.113.0/24" }],
  });
  assert.throws(
    () => check({ ...result, interfaces: [{ name: "ifb0" }] }),
    /interface eth0 with a sandbox in prevResult/,
  );
  assert.throws(() => check({ ...result, ips: [{ address: "10.1.0.9/32", interface: 0 }] }), /address 10\.1\.0\.9\/32/);
});

test("PodNetwork: a pod's interface has the MAC address that was asked for, and CHECK names one that was changed", async () => {
  using at = machine();
  const [a] = at.podNames;
  const mac = MacAddress.parse("02:00:00:00:77:01");
  const made = { ...request(a, "aaaa", 1), mac };
  const result = await at.network.setUp(made);
  assert.equal(result.interfaces[0]?.mac, "02:00:00:00:77:01");
  assert.match(at.ip(a, "link", "show", "eth0"), /link\/ether 02:00:00:00:77:01/);
  assert.ok(at.ping(a, "192.0.2.1") && at.ping(a, "2001:db8::1"));
  const { attachment, netns, ipv4, ipv6 } = made;
  const addresses = [ipv4, ipv6].filter((address) => address !== undefined);
  const check = (expected: typeof result | undefined, wanted: MacAddress | undefined): void =>
    at.network.check({ attachment, netns, addresses, expected, mac: wanted });
  const withMac = (text: string): typeof result => ({
    ...result,
    interfaces: result.interfaces.map((one) => ({ ...one, mac: text })),
  });
  const changed = /MAC address 02:00:00:00:77:01 on eth0 in the pod, which has 02:00:00:00:77:02, is missing/;
  check(result, mac);
  check(undefined, mac);
  check(withMac("02-00-00-00-77-01"), undefined);
  at.ip(a, "link", "set", "eth0", "address", "02:00:00:00:77:02");
  assert.throws(() => check(result, undefined), changed);
  assert.throws(() => check(undefined, mac), changed);
  // A later plugin, such as tuning, has changed it: prevResult says so.
  check(withMac("02:00:00:00:77:02"), mac);
  check(undefined, undefined);
  // A repeated ADD may ask for another one.
  await at.network.setUp({ ...made, mac: MacAddress.parse("02:00:00:00:77:03") });
  check(undefined, MacAddress.parse("02:00:00:00:77:03"));
});

test("PodNetwork: a link that another program removed is made again, also after a restart; not before the node is known, nor without its addresses", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  const made = await at.network.setUp({ ...request(a, "aaaa", 1), network: "net" });
  await at.network.setUp(request(b, "bbbb", 2));
  using node = at.kernel.openNetNs({ name: at.nodeName });
  using restarted = inNetNs(node, () => new PodNetwork({ kernel: at.kernel, log: nullLogger }, OPTIONS));
  restarted.survey();
  for (const { hostName } of restarted.list()) at.ip(at.nodeName, "link", "del", hostName);
  assert.deepEqual(restarted.remake(() => true).made, []);
  restarted.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") });
  assert.equal(restarted.remake(({ containerId }) => containerId === "aaaa").made.length, 1);
  const listed = restarted.list().map(({ containerId, addresses }) => `${containerId} ${addresses.join()}`);
  assert.deepEqual(listed, ["aaaa 10.1.0.1,fd01::1"]);
  assert.equal(restarted.ofNetwork("net").length, 1);
  assert.match(at.ip(a, "link", "show", "eth0"), new RegExp(`link/ether ${made.interfaces[0]?.mac}`));
  assert.ok(at.ping(a, "192.0.2.1") && at.ping(a, "2001:db8::1"));
  assert.deepEqual(restarted.remake(() => true).made, []);
});

test("PodNetwork: a pod that cannot be read keeps no other one from being surveyed, and is learned when it can", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(b, "bbbb", 2));
  using pod = at.kernel.openNetNs({ name: a });
  let isReadable = false;
  const kernel = overridden(at.kernel, {
    openStack: (netns) => {
      if (netns.inode === pod.inode && !isReadable) throw new KernelError("interrupted", "Cannot list links");
      return at.kernel.openStack(netns);
    },
  });
  const lines: string[] = [];
  const log = createLogger({ name: "test", write: (line) => lines.push(line) });
  using node = at.kernel.openNetNs({ name: at.nodeName });
  using restarted = inNetNs(node, () => new PodNetwork({ kernel, log }, OPTIONS));
  restarted.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") });
  const survey = () => restarted.survey().attached.map((one) => `${one.containerId} ${one.addresses.join()}`);
  const both = ["aaaa 10.1.0.1,fd01::1", "bbbb 10.1.0.2,fd01::2"];
  assert.deepEqual(survey().sort(), both);
  survey();
  assert.equal(lines.filter((line) => line.includes("the namespace of a pod cannot be read")).length, 1);
  isReadable = true;
  survey();
  for (const { hostName } of restarted.list()) at.ip(at.nodeName, "link", "del", hostName);
  assert.equal(restarted.remake(() => true).made.length, 2);
});

test("PodNetwork: a pod that fills its routes fails its CHECK at once, by name", async () => {
  using at = machine();
  const [a] = at.podNames;
  const asked = request(a, "aaaa", 1, "v4");
  await at.network.setUp(asked);
  const lines = Array.from({ length: 33_000 }, (_, nth) => `route add unreachable 20.${nth >> 8}.${nth & 255}.0/24`);
  execFileSync("ip", ["-n", a, "-batch", "-"], { input: lines.join("\n") });
  const check = (): void =>
    at.network.check({
      ...{ attachment: asked.attachment, netns: asked.netns, expected: undefined },
      addresses: [IpAddress.parse("10.1.0.1")],
    });
  assert.throws(check, { name: "KernelError", message: /^Cannot list .*routes.*: there are more than 32768$/ });
});

test("PodNetwork: what is read in a pod, and the repair of its link, are steps; a link that is set aside waits, and keeps its addresses", async () => {
  using at = machine();
  const [a] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  const steps: string[] = [];
  let aside = "attachment-reads";
  const recorded: RecordedSteps = (work, link, run) => {
    steps.push(`${work} ${link}`);
    return work === aside ? undefined : { value: run() };
  };
  using node = at.kernel.openNetNs({ name: at.nodeName });
  using restarted = inNetNs(node, () => new PodNetwork({ kernel: at.kernel, log: nullLogger, recorded }, OPTIONS));
  restarted.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") });
  assert.equal(restarted.survey().attached.length, 1);
  const [{ hostName } = assert.fail()] = restarted.list();
  aside = "attachment-repairs";
  restarted.survey();
  at.ip(at.nodeName, "link", "del", hostName);
  const attachment = { containerId: "aaaa", ifname: "eth0" };
  assert.deepEqual(
    restarted.remake(() => true),
    { made: [], waiting: [attachment], failures: [] },
  );
  aside = "";
  assert.deepEqual(restarted.remake(() => true).made, [attachment]);
  assert.deepEqual(steps, [
    `attachment-reads ${hostName}`,
    `attachment-reads ${hostName}`,
    `attachment-repairs ${hostName}`,
    `attachment-repairs ${hostName}`,
  ]);
});

test("PodNetwork: a survey during a DEL does not learn the link again, so the link stays deleted", async () => {
  using at = machine();
  const [a] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  const deletion = at.network.tearDown({ containerId: "aaaa", ifname: "eth0" });
  at.network.survey();
  await deletion;
  assert.deepEqual(
    at.network.remake(() => true),
    { made: [], waiting: [], failures: [] },
  );
  assert.deepEqual(at.network.list(), []);
});

test("PodNetwork: a link that cannot be made again is reported as waiting, the others are made, and it follows when it can", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(b, "bbbb", 2));
  at.ip(b, "link", "add", "d0", "type", "veth", "peer", "name", "d1");
  for (const end of ["d0", "d1"]) at.ip(b, "link", "set", end, "up");
  for (const { hostName } of at.network.list()) at.ip(at.nodeName, "link", "del", hostName);
  at.ip(b, "route", "add", "default", "dev", "d0");
  const first = at.network.remake(() => true);
  const ids = (all: readonly { readonly containerId: string }[]): string[] => all.map(({ containerId }) => containerId);
  assert.deepEqual([ids(first.made), ids(first.waiting), first.failures.length], [["aaaa"], ["bbbb"], 1]);
  assert.ok(at.ping(a, "192.0.2.1"));
  at.ip(b, "link", "del", "d0");
  assert.deepEqual(ids(at.network.remake(() => true).made), ["bbbb"]);
  assert.ok(at.ping(b, "192.0.2.1"));
});

test("PodNetwork: initHost is repeatable and adds one rule a family", () => {
  using at = machine();
  at.network.initHost();
  assert.equal(at.ip(at.nodeName, "rule", "show").match(/^2000:.*lookup 116/gm)?.length, 1);
  assert.equal(at.ip(at.nodeName, "-6", "rule", "show").match(/^2000:.*lookup 116/gm)?.length, 1);
});

for (const acceptRa of ["1", "2"]) {
  test(`PodNetwork: a node with accept_ra=${acceptRa} has the advertised default route before and after it forwards, and takes later ones`, async () => {
    const kernel = openKernel();
    const names = ["host", "router"].map((name) => `isthmus-t${process.pid}-ra-${name}`) as [string, string];
    using host = kernel.createNetNs(names[0]);
    using router = kernel.createNetNs(names[1]);
    try {
      const ip = (name: string, ...args: string[]) => execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
      ip(names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "r0", "netns", names[1]);
      using hostStack = kernel.openStack(host);
      hostStack.sysctl.set("net/ipv6/conf/all/forwarding", "0");
      hostStack.sysctl.set("net/ipv6/conf/eth0/accept_ra", acceptRa);
      ip(names[0], "link", "set", "eth0", "up");
      ip(names[1], "link", "set", "r0", "up");
      using stack = kernel.openStack(router);
      const { index, mac } = stack.links.get({ name: "r0" }) ?? assert.fail();
      assert.ok(mac !== undefined);
      const ways = (): string => ip(names[0], "-6", "route", "show", "default");
      const advertise = async (): Promise<void> => {
        for (let tries = 0; tries < 20 && !ways().includes("proto ra"); tries += 1) {
          advertiseRouter(router, { index, mac }, IpAddress.parse("fe80::77"));
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      };
      const isThere = (): void => assert.match(ways(), /^default via fe80::77 dev eth0 proto ra /);
      await advertise();
      isThere();
      const changed: string[] = [];
      const beforeSettings = (keys: readonly string[]): void => {
        for (const key of keys) changed.push(`${key} ${hostStack.sysctl.get(key)}`);
      };
      using network = inNetNs(host, () => new PodNetwork({ kernel, log: nullLogger, beforeSettings }, OPTIONS));
      network.initHost();
      assert.equal(hostStack.sysctl.get("net/ipv6/conf/all/forwarding"), "1");
      isThere();
      const isTold = changed.includes("net/ipv6/conf/eth0/accept_ra 1");
      assert.equal(isTold, acceptRa === "1", changed.join());
      assert.equal(network.initHost(), 0);
      ip(names[0], "-6", "route", "del", "default");
      await advertise();
      isThere();
    } finally {
      for (const name of names) kernel.deleteNetNs(name);
    }
  });
}

for (const when of ["before", "after"]) {
  test(`PodNetwork: an uplink that is there ${when} the host forwards, and whose router speaks later, gets its IPv6 default route; accept_ra is told as it was`, async () => {
    const kernel = openKernel();
    const names = ["host", "router"].map((name) => `isthmus-t${process.pid}-late-${name}`) as [string, string];
    using host = kernel.createNetNs(names[0]);
    using router = kernel.createNetNs(names[1]);
    try {
      const ip = (name: string, ...args: string[]) => execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
      using hostStack = kernel.openStack(host);
      hostStack.sysctl.set("net/ipv6/conf/all/forwarding", "0");
      hostStack.sysctl.set("net/ipv6/conf/default/accept_ra", "1");
      const former = new Map<string, string>();
      const deps = {
        beforeSettings: (keys: readonly string[]): void => {
          for (const key of keys) former.set(key, former.get(key) ?? hostStack.sysctl.get(key));
        },
        forwardsForUs: () => former.get("net/ipv6/conf/all/forwarding") === "0",
      };
      using network = inNetNs(host, () => new PodNetwork({ kernel, log: nullLogger, ...deps }, OPTIONS));
      if (when === "after") network.initHost();
      ip(names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "r0", "netns", names[1]);
      ip(names[0], "link", "add", "other", "up", "type", "bridge");
      ip(names[0], "address", "add", "192.0.2.2/24", "dev", "eth0");
      ip(names[0], "link", "set", "eth0", "up");
      ip(names[1], "link", "set", "r0", "up");
      ip(names[0], "route", "add", "default", "via", "192.0.2.1");
      network.initHost();
      assert.equal(network.initHost(), 0);
      using stack = kernel.openStack(router);
      const { index, mac } = stack.links.get({ name: "r0" }) ?? assert.fail();
      assert.ok(mac !== undefined);
      const ways = (): string => ip(names[0], "-6", "route", "show", "default");
      for (let tries = 0; tries < 20 && !ways().includes("proto ra"); tries += 1) {
        advertiseRouter(router, { index, mac }, IpAddress.parse("fe80::77"));
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      assert.match(ways(), /^default via fe80::77 dev eth0 proto ra /);
      assert.equal(former.get("net/ipv6/conf/eth0/accept_ra"), "1");
      assert.equal(hostStack.sysctl.get("net/ipv6/conf/other/accept_ra"), "1");
    } finally {
      for (const name of names) kernel.deleteNetNs(name);
    }
  });
}

test("PodNetwork: a pod whose runtime switched IPv6 off on all links answers at ::1 and at its own address", async () => {
  using at = machine();
  const [a] = at.podNames;
  for (const name of ["all", "default"])
    execFileSync("ip", ["netns", "exec", a, "sysctl", "-qw", `net.ipv6.conf.${name}.disable_ipv6=1`]);
  await at.network.setUp(request(a, "aaaa", 1));
  for (const target of ["::1", "fd01::1", "2001:db8::1"]) assert.ok(at.ping(a, target), target);
});

test("PodNetwork: a new link forwards though conf/default says no", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  execFileSync("ip", ["netns", "exec", at.nodeName, "sysctl", "-qw", "net.ipv4.conf.default.forwarding=0"]);
  await at.network.setUp(request(a, "aaaa", 1, "v4"));
  await at.network.setUp(request(b, "bbbb", 2, "v4"));
  assert.ok(at.ping(a, "10.1.0.2"));
});

test("PodNetwork: with an uplink below 1280 dual-stack pods have IPv4 alone, and pods of IPv6 alone are refused with the reason", async () => {
  const lines: string[] = [];
  using at = machine({}, 3, createLogger({ name: "t", write: (line) => lines.push(line) }));
  const [a, b] = at.podNames;
  at.ip(at.nodeName, "link", "add", "up0", "mtu", "1200", "type", "veth", "peer", "name", "up0-peer");
  for (const link of ["up0", "up0-peer"]) at.ip(at.nodeName, "link", "set", link, "up");
  at.ip(at.nodeName, "route", "add", "default", "dev", "up0");
  for (let round = 0; round < 2; round += 1) at.network.initHost();
  const why = /uplink up0 has an MTU of 1200 bytes, which pods get, and IPv6 needs at least 1280/;
  assert.equal(lines.filter((line) => why.test(line)).length, 1);
  assert.match(at.network.ipv6Fault() ?? "", why);
  assert.match(at.network.ipv6Fault(1270) ?? "", /the MTU of pods is set to 1270 bytes/);
  assert.equal(at.network.ipv6Fault(1280), undefined);
  await assert.rejects(at.network.setUp(request(a, "aaaa", 1, "v6")), { code: "mtu-too-small", message: why });
  assert.deepEqual(at.network.list(), []);
  const result = await at.network.setUp(request(a, "aaaa", 1));
  assert.deepEqual(
    result.ips.map(({ address }) => address),
    ["10.1.0.1/32"],
  );
  assert.ok(at.ping(a, "192.0.2.1"));
  // The slot of the pod has an IPv6 address all the same, and neither CHECK nor a repair looks for it.
  const both = [IpAddress.parse("10.1.0.1"), IpAddress.parse("fd01::1")];
  const { attachment, netns } = request(a, "aaaa", 1);
  at.network.check({ attachment, netns, addresses: both, expected: result });
  assert.equal(
    at.network.repair(at.network.survey(), () => both),
    0,
  );
  assert.equal(at.network.repairSettings(at.network.survey()).changes, 0);
  assert.deepEqual([...at.network.withoutIpv6()], ["aaaa/eth0"]);
  // With a larger MTU the next pod has both.
  at.ip(at.nodeName, "link", "set", "up0", "mtu", "1280");
  at.network.initHost();
  assert.equal((await at.network.setUp(request(b, "bbbb", 2))).ips.length, 2);
});

test("PodNetwork: Calico's names are used on request, and an older link of the pod goes", async () => {
  using at = machine({ compatCalico: true });
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp({ ...request(b, "bbbb", 2), pod: { namespace: "ns", name: "aaaa" } });
  const listed = at.network.list();
  assert.equal(listed.length, 1);
  assert.match(listed[0]?.hostName ?? "", /^veth[0-9a-f]{11}$/);
  assert.equal(listed[0]?.containerId, "bbbb");
});

for (const compatCalico of [false, true]) {
  test(`PodNetwork: a second interface leaves the pod's first one, also when it fails; a new sandbox has both (compatCalico: ${compatCalico})`, async () => {
    using at = machine({ compatCalico }, 3);
    const [a, b, c = ""] = at.podNames;
    const pod = { namespace: "ns", name: "aaaa" };
    const first = (netns: string, containerId: string, last: number) => request(netns, containerId, last, "v4");
    const second = (netns: string, containerId: string, last: number, family: "v4" | "v6" = "v6") => ({
      ...request(netns, containerId, last, family),
      attachment: { containerId, ifname: "net1" },
      pod,
    });
    const shown = () => at.network.list().map((one) => `${one.containerId} ${one.ifname} ${one.addresses.join()}`);
    await at.network.setUp(first(a, "aaaa", 1));
    await at.network.setUp(first(c, "other", 3));
    // The pod has a way to its gateway already.
    await assert.rejects(at.network.setUp(second(a, "aaaa", 2, "v4")), { code: "already-exists" });
    assert.deepEqual(shown(), ["aaaa eth0 10.1.0.1", "other eth0 10.1.0.3"]);
    for (let times = 0; times < 2; times += 1) await at.network.setUp(second(a, "aaaa", 2));
    await at.network.setUp(first(a, "aaaa", 1));
    assert.deepEqual(shown().sort(), ["aaaa eth0 10.1.0.1", "aaaa net1 fd01::2", "other eth0 10.1.0.3"]);
    assert.ok(at.ping(c, "10.1.0.1"), "the first interface answers");
    assert.ok(at.ping(at.nodeName, "fd01::2"), "and the second");
    await at.network.setUp({ ...first(b, "bbbb", 4), pod });
    await at.network.setUp(second(b, "bbbb", 5));
    const { hostName } = at.network.list().find(({ containerId }) => containerId === "bbbb") ?? assert.fail();
    assert.match(hostName, compatCalico ? /^veth[0-9a-f]{11}$/ : /^veth[0-9a-f]{8}$/);
    const left = [...(compatCalico ? [] : ["aaaa eth0 10.1.0.1"]), "aaaa net1 fd01::2"];
    assert.deepEqual(shown().sort(), [...left, "bbbb eth0 10.1.0.4", "bbbb net1 fd01::5", "other eth0 10.1.0.3"]);
    for (const containerId of ["aaaa", "bbbb", "other"])
      for (const ifname of ["net1", "eth0"]) await at.network.tearDown({ containerId, ifname });
    assert.deepEqual(at.network.list(), []);
    assert.doesNotMatch(at.ip(at.nodeName, "link", "show"), /veth/);
  });
}

test("PodNetwork: a namespace that is not there is an error that names it, and nothing is left", async () => {
  using at = machine();
  await assert.rejects(at.network.setUp(request("no-such-netns", "aaaa", 1)), /no-such-netns/);
  assert.deepEqual(at.network.list(), []);
});

test("PodNetwork: tear-downs of many pods at once leave nothing of any", async () => {
  using at = machine({}, 40);
  const requests = at.podNames.map((pod, number) => request(pod, `burst${number}`, number + 1));
  for (const one of requests) await at.network.setUp(one);
  const attachments = requests.map(({ attachment }) => attachment);
  // One that is asked for twice and one that never was succeed like the others.
  const asked = [...attachments, ...attachments.slice(0, 1), { containerId: "never", ifname: "eth0" }];
  await Promise.all(asked.map((attachment) => at.network.tearDown(attachment)));
  assert.deepEqual(at.network.list(), []);
  assert.doesNotMatch(at.ip(at.nodeName, "link", "show"), /veth/);
  assert.equal(at.ip(at.nodeName, "route", "show", "table", "116"), "");
  for (const pod of at.podNames) assert.doesNotMatch(at.ip(pod, "link", "show"), /eth0/, "the pods' ends are gone too");
});

test("PodNetwork: a link that a deletion left in a group is listed, works, and goes with its own tear-down only", async () => {
  using at = machine({}, 4);
  const requests = at.podNames.map((pod, number) => request(pod, `pod${number}`, number + 1));
  for (const one of requests) await at.network.setUp(one);
  const [left, ...others] = requests;
  assert.ok(left !== undefined);
  const hostName = at.network.list().find(({ containerId }) => containerId === "pod0")?.hostName ?? "";
  at.ip(at.nodeName, "link", "set", hostName, "group", String(0x4900_0000));
  await Promise.all(others.map(({ attachment }) => at.network.tearDown(attachment)));
  assert.deepEqual(
    at.network.list().map(({ containerId, addresses }) => [containerId, addresses.join()]),
    [["pod0", "10.1.0.1,fd01::1"]],
  );
  assert.equal(at.network.removeHalfMade(), 0);
  assert.ok(at.ping(at.podNames[0], "192.0.2.1"), "and works until then");
  await at.network.tearDown(left.attachment);
  assert.deepEqual(at.network.list(), []);
});

/** Returns the result of a survey as text. */
function surveyed(at: ReturnType<typeof machine>) {
  const { attached, unowned } = at.network.survey();
  return {
    attached: attached.map(({ containerId, addresses }) => `${containerId} ${addresses.join()}`),
    unowned: unowned.map(({ addresses }) => addresses.join()),
  };
}

test("PodNetwork: routes that were flushed are read inside the pods and put back; a second repair finds nothing to do", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(b, "bbbb", 2, "v4"));
  for (const family of ["-4", "-6"]) at.ip(at.nodeName, family, "route", "flush", "table", "116");
  for (const family of ["-4", "-6"]) at.ip(at.nodeName, family, "rule", "del", "pref", "2000");
  assert.deepEqual(surveyed(at), { attached: ["aaaa 10.1.0.1,fd01::1", "bbbb 10.1.0.2"], unowned: [] });
  assert.equal(at.network.initHost(), 2);
  assert.equal(at.network.repair(at.network.survey()), 3);
  assert.deepEqual([at.network.initHost(), at.network.repair(at.network.survey())], [0, 0]);
  assert.ok(at.ping(a, "10.1.0.2") && at.ping(at.nodeName, "fd01::1"));
});

test("PodNetwork: after its link was set down and up a pod works again, and one that is down stays so", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(b, "bbbb", 2));
  for (const { hostName } of at.network.list()) at.ip(at.nodeName, "link", "set", hostName, "down");
  const [first, second] = at.network.list();
  at.ip(at.nodeName, "link", "set", first?.hostName ?? "", "up");
  assert.ok(!at.ping(a, "192.0.2.1"));
  // Two routes, the gateway and the node's address.
  assert.equal(at.network.repair(at.network.survey()), 4);
  assert.equal(at.network.repair(at.network.survey()), 0);
  assert.ok(at.ping(a, "192.0.2.1") && at.ping(a, "2001:db8::1"));
  assert.doesNotMatch(at.ip(at.nodeName, "link", "show", second?.hostName ?? ""), /<[^>]*\bUP\b/);
});

test("PodNetwork: a link whose alias was changed or taken away is unowned with its addresses, and goes with its DEL", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(b, "bbbb", 2));
  const [first, second] = at.network.list().map(({ hostName }) => hostName);
  at.ip(at.nodeName, "link", "set", first ?? "", "alias", "mine");
  at.ip(at.nodeName, "link", "set", second ?? "", "alias", "");
  assert.equal(at.network.removeHalfMade(), 0, "a pod lives on it");
  assert.deepEqual(surveyed(at), { attached: [], unowned: ["10.1.0.1,fd01::1", "10.1.0.2,fd01::2"] });
  at.ip(at.nodeName, "route", "flush", "table", "116");
  at.ip(at.nodeName, "-6", "route", "flush", "table", "116");
  assert.deepEqual(surveyed(at).unowned, ["10.1.0.1,fd01::1", "10.1.0.2,fd01::2"], "read inside the pods");
  for (const containerId of ["aaaa", "bbbb"]) await at.network.tearDown({ containerId, ifname: "eth0" });
  assert.doesNotMatch(at.ip(at.nodeName, "link", "show"), /veth/);
});

test("PodNetwork: a foreign link that our routes lead to is unowned; other routes are not counted", async () => {
  using at = machine();
  at.ip(at.nodeName, "link", "add", "foreign", "type", "veth", "peer", "name", "p1");
  at.ip(at.nodeName, "link", "set", "foreign", "up");
  at.ip(at.nodeName, "route", "add", "10.1.0.9/32", "dev", "foreign", "table", "116", "proto", "30");
  at.ip(at.nodeName, "route", "add", "10.1.0.10/32", "dev", "foreign", "table", "116", "proto", "77");
  at.ip(at.nodeName, "route", "add", "10.2.0.0/24", "dev", "foreign", "table", "116", "proto", "30");
  assert.deepEqual(surveyed(at), { attached: [], unowned: ["10.1.0.9"] });
  assert.equal(at.network.repair(at.network.survey()), 0);
});

test("PodNetwork: a link whose pod cannot be found is listed without addresses", async () => {
  using at = machine();
  const [a] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  at.ip(at.nodeName, "route", "flush", "table", "116");
  at.ip(at.nodeName, "-6", "route", "flush", "table", "116");
  // The namespace loses its name, and lives on only with a descriptor of this process.
  using held = at.kernel.openNetNs({ name: a });
  at.kernel.deleteNetNs(a);
  try {
    assert.deepEqual(surveyed(at).attached, ["aaaa 10.1.0.1,fd01::1"], "the process that made it knows");
    using node = at.kernel.openNetNs({ name: at.nodeName });
    using network = inNetNs(node, () => new PodNetwork({ kernel: at.kernel, log: nullLogger }, OPTIONS));
    const restarted = { ...at, network };
    assert.deepEqual(surveyed(restarted), { attached: ["aaaa "], unowned: [] });
    assert.equal(network.repair(network.survey()), 0);
    const known = { ipv4: IpAddress.parse("10.1.0.1") };
    assert.equal(
      network.repair(network.survey(), () => [known.ipv4]),
      1,
      "who knows may tell",
    );
    assert.deepEqual(surveyed(restarted).attached, ["aaaa 10.1.0.1"]);
  } finally {
    at.kernel.createNetNs(a)[Symbol.dispose]();
  }
  assert.ok(held.fd > 0);
});

test("PodNetwork: a pod whose namespace has no name is found by its processes", async () => {
  using at = machine();
  const [a] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1, "v4"));
  at.ip(at.nodeName, "route", "flush", "table", "116");
  using netns = at.kernel.openNetNs({ name: a });
  const child = inNetNs(netns, () => spawn("/bin/sleep", ["infinity"], { stdio: "ignore" }));
  at.kernel.deleteNetNs(a);
  try {
    assert.deepEqual(surveyed(at), { attached: ["aaaa 10.1.0.1"], unowned: [] });
  } finally {
    child.kill("SIGKILL");
    at.kernel.createNetNs(a)[Symbol.dispose]();
  }
});

test("PodNetwork: an attachment that is set up in another namespace has one link, and its tear-down leaves none", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await at.network.setUp(request(b, "aaaa", 1));
  assert.equal(at.network.list().length, 1);
  assert.ok(at.ping(b, "192.0.2.1"));
  assert.doesNotMatch(at.ip(a, "link", "show"), /eth0/);
  // Links with the alias under other names, as an earlier version or another program left them.
  const names = [hostNameOf({ containerId: "aaaa", ifname: "eth0" }, 1), "odd"];
  for (const name of names) {
    at.ip(at.nodeName, "link", "add", name, "type", "veth", "peer", "name", `${name.slice(0, 8)}p`);
    at.ip(at.nodeName, "link", "set", name, "alias", "COIL:default:aaaa:eth0");
  }
  assert.equal(at.network.survey().attached.length + at.network.list().length, 6);
  await at.network.tearDown({ containerId: "aaaa", ifname: "eth0" });
  assert.deepEqual(at.network.list(), []);
});

test("PodNetwork: an address that is routed to another link is not taken from it, and nothing is left of the attempt", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1));
  await assert.rejects(at.network.setUp(request(b, "bbbb", 1)), { code: "address-in-use", message: /10\.1\.0\.1\/32/ });
  await assert.rejects(at.network.setUp(request(b, "bbbb", 1, "v6")), { code: "address-in-use" });
  assert.deepEqual(surveyed(at), { attached: ["aaaa 10.1.0.1,fd01::1"], unowned: [] });
  assert.doesNotMatch(at.ip(b, "link", "show"), /eth0/);
  assert.ok(at.ping(a, "192.0.2.1"));
});

test("PodNetwork: the node's own namespace is no pod's", async () => {
  using at = machine();
  await assert.rejects(at.network.setUp(request(at.nodeName, "hhhh", 1)), { code: "own-netns" });
  assert.doesNotMatch(at.ip(at.nodeName, "link", "show"), /eth0/);
});

test("PodNetwork: a pod that took its address off its interface has a link still: it is repaired, cut off and joined", async () => {
  using at = machine();
  const [a] = at.podNames;
  await at.network.setUp(request(a, "aaaa", 1, "v4"));
  at.ip(a, "address", "del", "10.1.0.1/32", "dev", "eth0");
  const known = (): readonly IpAddress[] => [IpAddress.parse("10.1.0.1")];
  const bare = (): string[] => at.network.survey().bare.map(({ containerId }) => containerId);
  assert.deepEqual(bare(), [], "its route tells");
  at.ip(at.nodeName, "route", "flush", "table", "116");
  assert.deepEqual([surveyed(at), bare()], [{ attached: [], unowned: [] }, ["aaaa"]]);
  assert.equal(at.network.repair(at.network.survey(), known), 1);
  assert.deepEqual(surveyed(at).attached, ["aaaa 10.1.0.1"]);
  const link = hostNameOf({ containerId: "aaaa", ifname: "eth0" });
  assert.equal(at.network.cutOff(at.network.survey(), () => true).cut.length, 1);
  assert.doesNotMatch(at.ip(at.nodeName, "link", "show", link), /[<,]UP[,>]/);
  assert.deepEqual(bare(), ["aaaa"], "the route went with the link");
  assert.equal(at.network.cutOff(at.network.survey(), () => false).joined.length, 1);
  assert.match(at.ip(at.nodeName, "link", "show", link), /[<,]UP[,>]/);
  at.ip(at.nodeName, "link", "set", link, "alias", "COIL-PENDING:aaaa:eth0");
  assert.deepEqual(at.network.survey().pending, [{ containerId: "aaaa", ifname: "eth0" }]);
});

test("PodNetwork: a pod that is cut off neither sends nor answers, also after a restart, and is whole again when joined", async () => {
  using at = machine();
  const [a, b] = at.podNames;
  await at.network.setUp({ ...request(a, "aaaa", 1), network: "k8s-pod-network" });
  await at.network.setUp(request(b, "bbbb", 2));
  const sync = (lost: readonly string[]): unknown => {
    const survey = at.network.survey();
    const { cut, joined } = at.network.cutOff(survey, ({ containerId }) => lost.includes(containerId));
    at.network.repair(survey);
    return [cut.map(({ containerId }) => containerId), joined.map(({ containerId }) => containerId)];
  };
  assert.deepEqual(sync([]), [[], []]);
  assert.deepEqual(sync(["aaaa"]), [["aaaa"], []]);
  assert.deepEqual(sync(["aaaa"]), [[], []], "a second sync is empty");
  for (const target of ["10.1.0.1", "fd01::1"]) assert.ok(!at.ping(at.nodeName, target), target);
  for (const target of ["10.1.0.2", "fd01::2"]) assert.ok(!at.ping(a, target), target);
  assert.ok(at.ping(at.nodeName, "10.1.0.2"), "others are untouched");
  assert.equal(at.network.removeHalfMade(), 0, "a restart leaves it");
  assert.deepEqual(
    at.network.survey().attached.map(({ containerId, addresses }) => [containerId, addresses.join()]),
    [
      ["aaaa", "10.1.0.1,fd01::1"],
      ["bbbb", "10.1.0.2,fd01::2"],
    ],
    "its addresses are known still",
  );
  at.ip(at.nodeName, "link", "set", hostNameOf({ containerId: "aaaa", ifname: "eth0" }), "up");
  assert.deepEqual(sync(["aaaa"]), [["aaaa"], []], "one that somebody set up is cut off again");
  assert.deepEqual(
    at.network.ofNetwork("k8s-pod-network").map(({ containerId }) => containerId),
    ["aaaa"],
  );
  const undecided = at.network.cutOff(at.network.survey(), () => undefined);
  const kept = [{ containerId: "aaaa", ifname: "eth0" }];
  assert.deepEqual(
    undecided,
    { cut: [], joined: [], kept, failures: [] },
    "a start that knows no blocks yet joins nothing",
  );
  for (const target of ["10.1.0.1", "fd01::1"]) assert.ok(!at.ping(at.nodeName, target), target);
  assert.deepEqual(sync([]), [[], ["aaaa"]]);
  // A neighbour that did not answer meanwhile is asked again after a while.
  const answers = (from: string, target: string): boolean => [1, 2, 3, 4, 5].some(() => at.ping(from, target));
  for (const target of ["10.1.0.1", "fd01::1"]) assert.ok(answers(at.nodeName, target), target);
  for (const target of ["10.1.0.2", "fd01::2", "192.0.2.1", "2001:db8::1"]) assert.ok(answers(a, target), target);
  assert.deepEqual(at.network.ofNetwork("k8s-pod-network").length, 1);
});
