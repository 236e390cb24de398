import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { resources } from "#kube/client";
import { start, until } from "#test/lab";
import { NicNode, nicState, type Sandbox, VM_OWNERS } from "#test/nic-node";
import { skipWithoutOvs } from "#test/ovs-bed";

const options = { skip: skipWithoutOvs };
let bed: NicNode | undefined;

before(async () => {
  if (skipWithoutOvs === false) bed = await NicNode.open("nicplug");
  bed?.activatePlugged();
});
after(async () => bed?.[Symbol.asyncDispose]());

function node(): NicNode {
  assert.ok(bed !== undefined);
  return bed;
}

function ping(from: Sandbox, to: string): string {
  return execFileSync("ip", ["netns", "exec", from.netns, "ping", "-c", "2", "-i", "0.2", "-W", "3", to], {
    encoding: "utf8",
  });
}

/** Sends bytes by TCP from one sandbox to another; what arrives. A switch in user space would drop packets without checksums. */
async function transfer(from: Sandbox, to: Sandbox, address: string): Promise<number> {
  const server = `let n = 0; const s = require("node:net").createServer((c) => c.on("data", (d) => { n += d.length; }).on("end", () => { process.stdout.write("got " + n); s.close(); })); s.listen(7000, "${address}", () => process.stdout.write("listening "));`;
  const client = `require("node:net").connect(7000, "${address}").end(Buffer.alloc(300000));`;
  const run = ({ netns }: Sandbox, script: string) =>
    start(["ip", "netns", "exec", netns, process.execPath, "-e", script], { timeoutMs: 20_000 });
  const serving = run(to, server);
  await until("the server listens", () => serving.printed().includes("listening"));
  assert.equal((await run(from, client).ended).code, 0);
  return Number(/got (\d+)/.exec((await serving.ended).stdout)?.[1]);
}

function leftovers(sandbox: Sandbox): object {
  const { ovs, stateDir } = node();
  return {
    devices: node().devices(),
    ports: ovs.devices(),
    journal: readdirSync(join(stateDir, "cni")).filter((name) => !name.startsWith(".")),
    sandbox: node()
      .ip(["-o", "link", "show"], sandbox)
      .split("\n")
      .filter((line) => / eth\d/.test(line)),
  };
}
const NOTHING = { devices: [], ports: [], journal: [], sandbox: [] };

test("T-30: hybrid and direct ports of two pods reach each other, and DEL leaves nothing", options, async () => {
  for (const [ovsHybridPlug, wanted] of [
    [true, ["qvo00000001-11", "qvo00000002-11"]],
    [false, ["tap00000001-11", "tap00000002-11"]],
  ] as const) {
    const state = (at: number) =>
      nicState(at, { vifDetails: { ovsHybridPlug, bridgeName: "br-int", datapathType: "netdev" } });
    const pods = [await node().createClaim("one", [state(1)]), await node().createClaim("two", [state(2)])] as const;
    const sandboxes = [node().makeSandbox("one"), node().makeSandbox("two")] as const;
    for (const at of [0, 1] as const) {
      const added = await node().cni("ADD", { pod: pods[at], sandbox: sandboxes[at] });
      assert.equal(added.exit, 0, JSON.stringify(added));
      assert.deepEqual(
        added.interfaces?.map(({ name, sandbox }) => [name, sandbox]),
        [
          [`tap0000000${at + 1}-11`, undefined],
          ["eth0", sandboxes[at].path],
        ],
      );
      assert.deepEqual(added.ips, [{ address: `10.0.0.${at + 1}/24`, gateway: "10.0.0.254", interface: 1 }]);
    }
    assert.deepEqual(node().ovs.devices(), wanted);
    assert.match(
      node().ovs.vsctl("get", "Interface", wanted[0], "external_ids"),
      /attached-mac="fa:16:3e:00:00:01", iface-id="00000001-\S+", iface-status=active/,
    );
    assert.match(ping(sandboxes[0], "10.0.0.2"), / 0% packet loss/);
    assert.equal(await transfer(sandboxes[0], sandboxes[1], "10.0.0.2"), 300_000);
    assert.deepEqual(await node().conditions(pods[0].uid), ["Plugged:Plugged"]);
    const checked = await node().cni("CHECK", { pod: pods[0], sandbox: sandboxes[0] });
    assert.deepEqual(checked, { exit: 0 });
    for (const at of [0, 1] as const)
      assert.deepEqual(await node().cni("DEL", { pod: pods[at], sandbox: sandboxes[at] }), { exit: 0 });
    assert.deepEqual(leftovers(sandboxes[0]), NOTHING);
    await until(
      "the claim tells it",
      async () => (await node().conditions(pods[0].uid)).join() === "Unplugged:Unplugged",
    );
    for (const sandbox of sandboxes) node().removeSandbox(sandbox);
  }
});

test(
  "OVN, whose bindings tell neither data path nor plug: its switch says them, so TCP works in user space, without a Linux bridge",
  options,
  async () => {
    const { ovs } = node();
    ovs.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-remote=unix:/run/ovn/ovnsb_db.sock");
    const state = (at: number) => nicState(at, { vifDetails: { portFilter: true } });
    const pods = [
      await node().createClaim("ovn1", [state(31)]),
      await node().createClaim("ovn2", [state(32)]),
    ] as const;
    const sandboxes = [node().makeSandbox("ovn1"), node().makeSandbox("ovn2")] as const;
    for (const at of [0, 1] as const)
      assert.equal((await node().cni("ADD", { pod: pods[at], sandbox: sandboxes[at] })).exit, 0);
    assert.deepEqual(ovs.devices(), ["tap0000001f-11", "tap00000020-11"]);
    assert.equal(await transfer(sandboxes[0], sandboxes[1], "10.0.0.32"), 300_000);
    assert.deepEqual(await node().cni("CHECK", { pod: pods[0], sandbox: sandboxes[0] }), { exit: 0 });
    for (const at of [0, 1] as const)
      assert.deepEqual(await node().cni("DEL", { pod: pods[at], sandbox: sandboxes[at] }), { exit: 0 });
    assert.deepEqual(leftovers(sandboxes[0]), NOTHING);
    for (const sandbox of sandboxes) node().removeSandbox(sandbox);
    ovs.vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-remote");
  },
);

test(
  "a secondary network, as with Multus: the cluster network's eth0 and defaults stay, and the NIC has the name of CNI_IFNAME",
  options,
  async () => {
    const pods = [
      await node().createClaim("main", [nicState(21)]),
      await node().createClaim("second", [nicState(22)]),
    ] as const;
    const sandboxes = [node().makeSandbox("main"), node().makeSandbox("second")] as const;
    const inSecond = (...args: readonly string[]): string => node().ip(args, sandboxes[1]).replace(/ +\n/g, "\n");
    inSecond("link", "add", "eth0", "type", "veth", "peer", "name", "cluster0");
    for (const name of ["eth0", "cluster0"]) inSecond("link", "set", name, "up");
    inSecond("address", "add", "10.99.0.2/24", "dev", "eth0");
    inSecond("route", "add", "default", "via", "10.99.0.1");
    const second = { pod: pods[1], sandbox: sandboxes[1], env: { CNI_IFNAME: "net1" } };
    assert.equal((await node().cni("ADD", { pod: pods[0], sandbox: sandboxes[0] })).exit, 0);
    const added = await node().cni("ADD", second);
    assert.deepEqual(
      [added.exit, added.interfaces?.map(({ name }) => name), added.ips],
      [0, ["tap00000016-11", "net1"], [{ address: "10.0.0.22/24", gateway: "10.0.0.254", interface: 1 }]],
    );
    assert.match(ping(sandboxes[1], "10.0.0.21"), / 0% packet loss/);
    assert.equal(inSecond("route", "show", "default"), "default via 10.99.0.1 dev eth0\n");
    assert.match(inSecond("route", "get", "10.7.0.1", "from", "10.0.0.22"), /via 10\.0\.0\.254 dev net1 table 100/);
    assert.deepEqual(await node().cni("CHECK", second), { exit: 0 });
    assert.equal((await node().cni("CHECK", { ...second, env: {} })).code, 103);
    // The same network once more, as the first one of the pod: nothing of the NICs changes, whatever becomes of it.
    assert.equal((await node().cni("ADD", { ...second, env: { CNI_IFNAME: "net2" } })).code, 105);
    assert.deepEqual(await node().cni("DEL", { ...second, env: { CNI_IFNAME: "net2" } }), { exit: 0 });
    assert.deepEqual(await node().cni("CHECK", second), { exit: 0 });
    assert.deepEqual(await node().cni("DEL", second), { exit: 0 });
    assert.match(inSecond("-o", "link", "show"), / eth0@cluster0: /);
    assert.doesNotMatch(inSecond("-o", "link", "show"), / net1/);
    assert.deepEqual(await node().cni("DEL", { pod: pods[0], sandbox: sandboxes[0] }), { exit: 0 });
    assert.deepEqual(leftovers(sandboxes[0]), NOTHING);
    for (const sandbox of sandboxes) node().removeSandbox(sandbox);
  },
);

test("T-31: an ADD before the port is bound waits, and succeeds when it is", options, async () => {
  const pod = await node().createClaim("early");
  const sandbox = node().makeSandbox("early");
  const adding = node().cni("ADD", { pod, sandbox });
  await node().setNics(
    pod.uid,
    [{ name: "eth0", state: "InProgress", portID: "00000003-1111-4111-8111-111111111111" }],
    "Created",
  );
  await node().setNics(pod.uid, [nicState(3, { vifType: "binding_failed", reason: "BindingFailed" })], "Binding");
  await node().setNics(pod.uid, [nicState(3)]);
  assert.equal((await adding).exit, 0);
  await node().cni("DEL", { pod, sandbox });
  node().removeSandbox(sandbox);
});

test(
  "T-32: no claim, a port that is never bound, and one that is never active are code 11; nothing is left",
  options,
  async () => {
    const sandbox = node().makeSandbox("late");
    const config = {
      plumbTimeoutMs: 300,
      runtimeConfig: { "io.kubernetes.cri.pod-annotations": { "isthmus.dev/vpc": "vpc-1" } },
    };
    const unknown = { name: "late", uid: "0a64ecb8-6f54-4d0f-9e42-ffffffffffff" };
    const without = await node().cni("ADD", { pod: unknown, sandbox, config });
    assert.deepEqual(
      [without.exit, without.code, without.msg],
      [1, 11, "waiting for ports: the pod has no claim on this node yet"],
    );
    const pod = await node().createClaim("late", [
      nicState(4, { vifType: "binding_failed", reason: "BindingFailed", message: "no agent is alive on nic-node" }),
    ]);
    await node().agentKnows(pod.uid, "BindingFailed");
    const unbound = await node().cni("ADD", { pod, sandbox, config });
    assert.deepEqual(
      [unbound.code, unbound.msg],
      [11, "waiting for ports: eth0=InProgress(BindingFailed: the port cannot be bound to the pod's node)"],
    );
    await node().setNics(
      pod.uid,
      [{ name: "eth0", state: "Failed", reason: "IpIsGateway", message: "10.0.0.254 is the gateway" }],
      "Failed",
    );
    const failed = await node().cni("ADD", { pod, sandbox, config });
    assert.deepEqual(
      [failed.code, failed.msg],
      [101, "NICs of the pod failed: eth0=Failed(IpIsGateway: the address is that of the subnet's gateway)"],
    );
    await until("the pod has an event", async () => {
      const { items } = await node().api.listAll(resources.events, { namespace: "default" });
      return items.some(({ reason, regarding }) => reason === "NicFailed" && regarding?.name === "late");
    });
    assert.deepEqual(leftovers(sandbox), NOTHING);
    const down = await node().createClaim("down", [nicState(17)]);
    node().inactive.add(down.uid);
    const inactive = await node().cni("ADD", { pod: down, sandbox, config: { activeTimeoutMs: 500 } });
    assert.equal(inactive.code, 11);
    assert.match(
      inactive.msg ?? "",
      /^waiting for ports: eth0=InProgress; the node has plugged them: is the provider's agent/,
    );
    assert.deepEqual(leftovers(sandbox), NOTHING);
    const allowed = { activeTimeoutMs: 100, requireActive: false };
    const taken = await node().cni("ADD", { pod: down, sandbox, config: allowed });
    assert.equal(taken.exit, 0, JSON.stringify(taken));
    assert.deepEqual(await node().cni("DEL", { pod: down, sandbox }), { exit: 0 });
    node().removeSandbox(sandbox);
  },
);

test(
  "T-33, T-34: two NICs: order, one default route, an own table for the second, MTU, routes of the subnet, name servers",
  options,
  async () => {
    const first = nicState(5, {
      net: 5,
      routes: [{ dst: "172.16.0.0/16", via: "10.5.0.253" }],
      dns: { nameservers: ["10.5.0.2"] },
    });
    const second = nicState(6, { name: "eth1", net: 6, mtu: 1400 });
    const pod = await node().createClaim("multi", [first, second]);
    const sandbox = node().makeSandbox("multi");
    const added = await node().cni("ADD", { pod, sandbox });
    assert.equal(added.exit, 0, JSON.stringify(added));
    assert.deepEqual(
      added.interfaces?.flatMap(({ name, sandbox: at }) => (at === undefined ? [] : [name])),
      ["eth0", "eth1"],
    );
    assert.deepEqual(added.dns, { nameservers: ["10.5.0.2"] });
    const routes = node().ip(["route", "show"], sandbox);
    assert.deepEqual(
      routes.match(/^default.*$/gm)?.map((line) => line.trim()),
      ["default via 10.5.0.254 dev eth0 metric 100", "default via 10.6.0.254 dev eth1 metric 101"],
    );
    assert.match(routes, /^172\.16\.0\.0\/16 via 10\.5\.0\.253 dev eth0/m);
    assert.match(node().ip(["rule"], sandbox), /^20001:\tfrom 10\.6\.0\.6 lookup 101/m);
    assert.match(node().ip(["route", "show", "table", "101"], sandbox), /^default via 10\.6\.0\.254 dev eth1/m);
    assert.match(node().ip(["route", "get", "8.8.8.8", "from", "10.6.0.6"], sandbox), /via 10\.6\.0\.254 dev eth1/);
    assert.match(node().ip(["route", "get", "8.8.8.8"], sandbox), /via 10\.5\.0\.254 dev eth0/);
    assert.match(node().ip(["link", "show", "eth1"], sandbox), /mtu 1400/);
    assert.match(node().ip(["link", "show", "qbr00000005-11"]), /mtu 1450/);
    // A neighbour of the second network gets its answer by the second NIC.
    const peer = await node().createClaim("peer", [
      nicState(7, { net: 6, last: 7, vifDetails: { ovsHybridPlug: false, datapathType: "netdev" } }),
    ]);
    const there = node().makeSandbox("peer");
    assert.equal((await node().cni("ADD", { pod: peer, sandbox: there })).exit, 0);
    assert.match(ping(there, "10.6.0.6"), / 0% packet loss/);
    await node().cni("DEL", { pod, sandbox });
    await node().cni("DEL", { pod: peer, sandbox: there });
    assert.deepEqual(leftovers(sandbox), NOTHING);
    for (const one of [sandbox, there]) node().removeSandbox(one);
  },
);

test(
  "T-35, T-36: DEL twice, after the sandbox, and of an older container than the ADD that followed",
  options,
  async () => {
    const pod = await node().createClaim("again", [nicState(8)]);
    const [old, next] = [node().makeSandbox("old"), node().makeSandbox("next")];
    assert.equal((await node().cni("ADD", { pod, sandbox: old })).exit, 0);
    assert.equal((await node().cni("ADD", { pod, sandbox: next })).exit, 0);
    assert.deepEqual(await node().cni("DEL", { pod, sandbox: old }), { exit: 0 });
    assert.deepEqual(node().ovs.devices(), ["qvo00000008-11"]);
    assert.match(node().ip(["-o", "link", "show", "eth0"], next), /eth0/);
    node().removeSandbox(next);
    assert.deepEqual(await node().cni("DEL", { pod, sandbox: next }), { exit: 0 });
    assert.deepEqual(await node().cni("DEL", { pod, sandbox: next }), { exit: 0 });
    assert.deepEqual(leftovers(old), NOTHING);
    node().removeSandbox(old);
  },
);

test("the switch's database is away: ADD and DEL are code 11, and both work once it is back", options, async () => {
  const pod = await node().createClaim("nodb", [nicState(21)]);
  const sandbox = node().makeSandbox("nodb");
  assert.equal((await node().cni("ADD", { pod, sandbox })).exit, 0);
  await node().ovs.stopDatabase();
  const kept = await node().cni("DEL", { pod, sandbox });
  assert.deepEqual([kept.exit, kept.code], [1, 11]);
  assert.match(kept.msg ?? "", /cannot reach the database of Open vSwitch/);
  const other = node().makeSandbox("nodb2");
  const refused = await node().cni("ADD", { pod: await node().createClaim("nodb2", [nicState(22)]), sandbox: other });
  assert.deepEqual([refused.exit, refused.code], [1, 11]);
  // Pods need it here: `isthmus doctor` calls it wrong, and so does whoever asks whether the agent is ready.
  await until("the agent is not ready", () => /^\[-\]switch degraded /m.test(node().readyz()), { seen: node().readyz });
  await node().ovs.startDatabase();
  await until("it is ready again", () => node().readyz() === "ok\n", { seen: node().readyz });
  assert.deepEqual(await node().cni("DEL", { pod, sandbox }), { exit: 0 });
  assert.deepEqual(leftovers(sandbox), NOTHING);
  assert.deepEqual(leftovers(other), NOTHING);
  for (const one of [sandbox, other]) node().removeSandbox(one);
});

test("a NIC with addresses of both families is reached by both", options, async () => {
  const ips = (last: number) => [
    { ip: `10.40.0.${last}`, prefixLength: 24, gateway: "10.40.0.254" },
    { ip: `fd00:40::${last}`, prefixLength: 64, gateway: "fd00:40::ffff" },
  ];
  const pods = [
    await node().createClaim("dual1", [nicState(23, { ips: ips(1) })]),
    await node().createClaim("dual2", [nicState(24, { ips: ips(2) })]),
  ] as const;
  const sandboxes = [node().makeSandbox("dual1"), node().makeSandbox("dual2")] as const;
  for (const at of [0, 1] as const)
    assert.equal((await node().cni("ADD", { pod: pods[at], sandbox: sandboxes[at] })).exit, 0);
  for (const address of ["10.40.0.2", "fd00:40::2"]) assert.match(ping(sandboxes[0], address), / 0% packet loss/);
  assert.match(node().ip(["-6", "route", "show", "default"], sandboxes[0]), /via fd00:40::ffff dev eth0 .*metric 100/);
  assert.deepEqual(await node().cni("CHECK", { pod: pods[0], sandbox: sandboxes[0] }), { exit: 0 });
  for (const at of [0, 1] as const)
    assert.deepEqual(await node().cni("DEL", { pod: pods[at], sandbox: sandboxes[at] }), { exit: 0 });
  assert.deepEqual(leftovers(sandboxes[0]), NOTHING);
  for (const sandbox of sandboxes) node().removeSandbox(sandbox);
});

test("T-40: a second port with the same first characters is code 105, and the first one goes on", options, async () => {
  const first = await node().createClaim("first", [nicState(9)]);
  const twin = await node().createClaim("twin", [
    nicState(9, { portID: "00000009-1111-4999-8999-999999999999", last: 10 }),
  ]);
  const [one, two] = [node().makeSandbox("first"), node().makeSandbox("twin")];
  assert.equal((await node().cni("ADD", { pod: first, sandbox: one })).exit, 0);
  const refused = await node().cni("ADD", { pod: twin, sandbox: two });
  assert.deepEqual([refused.exit, refused.code], [1, 105]);
  assert.match(refused.msg ?? "", /port qvo00000009-11 of br-int is of 00000009-1111-4111/);
  assert.equal((await node().cni("CHECK", { pod: first, sandbox: one })).exit, 0);
  await node().cni("DEL", { pod: first, sandbox: one });
  for (const sandbox of [one, two]) node().removeSandbox(sandbox);
});

test(
  "a pod without a VPC goes to the delegate; without one it is code 104, and its DEL succeeds",
  options,
  async () => {
    const sandbox = node().makeSandbox("plain");
    const pod = { name: "plain", uid: "0a64ecb8-6f54-4d0f-9e42-eeeeeeeeeeee" };
    const refused = await node().cni("ADD", { pod, sandbox });
    assert.deepEqual([refused.exit, refused.code], [1, 104]);
    assert.deepEqual(await node().cni("DEL", { pod, sandbox }), { exit: 0 });
    const delegate = {
      type: "ptp",
      ipam: { type: "host-local", ranges: [[{ subnet: "10.77.0.0/24" }]], dataDir: join(node().folder, "ipam") },
    };
    const call = { pod, sandbox, config: { delegate }, env: { CNI_PATH: "/usr/lib/cni:/opt/cni/bin" } };
    const added = await node().cni("ADD", call);
    assert.equal(added.exit, 0, JSON.stringify(added));
    assert.equal(added.ips?.[0]?.address, "10.77.0.2/24");
    assert.match(node().ip(["address", "show", "eth0"], sandbox), /10\.77\.0\.2/);
    assert.deepEqual(await node().cni("DEL", call), { exit: 0 });
    assert.doesNotMatch(node().ip(["-o", "link", "show"], sandbox), /eth0/);
    node().removeSandbox(sandbox);
  },
);

test("a virtual machine gets a TAP device of its user, and its sandbox nothing", options, async () => {
  const pod = await node().createClaim("vm", [nicState(11)], { vm: { flavor: "m1.small" } });
  const sandbox = node().makeSandbox("vm");
  const added = await node().cni("ADD", {
    pod,
    sandbox,
    config: { vmMode: "tap", vmOwnerUid: VM_OWNERS[0], vmMultiQueue: true },
  });
  assert.deepEqual(
    [added.exit, added.interfaces, added.ips],
    [0, [{ name: "tap0000000b-11", mac: "fa:16:3e:00:00:0b" }], []],
  );
  const shown = node().ip(["-d", "link", "show", "tap0000000b-11"]);
  assert.match(shown, /tun type tap.* multi_queue.* user 71077/);
  assert.match(shown, /master qbr0000000b-11/);
  assert.deepEqual(await node().cni("DEL", { pod, sandbox }), { exit: 0 });
  assert.deepEqual(leftovers(sandbox), NOTHING);
  node().removeSandbox(sandbox);
});

test("a hand-over in CNI_ARGS finds the claim by its ports, and names the first NIC", options, async () => {
  const pod = await node().createClaim("handed", [nicState(12)]);
  await node().agentKnows(pod.uid, "0000000c-1111");
  const sandbox = node().makeSandbox("handed");
  const args = `IgnoreUnknown=1;VPC=demo;NICs=[{"portid":"0000000c-1111-4111-8111-111111111111"}]`;
  const added = await node().cni("ADD", { sandbox, args, env: { CNI_IFNAME: "net1" } });
  assert.equal(added.exit, 0, JSON.stringify(added));
  assert.equal(added.interfaces?.[1]?.name, "net1");
  assert.deepEqual(await node().cni("DEL", { sandbox, args, env: { CNI_IFNAME: "net1" } }), { exit: 0 });
  assert.deepEqual(leftovers(sandbox), NOTHING);
  node().removeSandbox(sandbox);
});

test(
  "restart and outage: without an API server the agent serves DEL and CHECK, and an ADD whose ports are active already",
  options,
  async () => {
    const pod = await node().createClaim("outage", [nicState(13)]);
    const sandbox = node().makeSandbox("outage");
    assert.equal((await node().cni("ADD", { pod, sandbox })).exit, 0);
    await until("the claim on disk is active", () =>
      execFileSync("cat", [join(node().stateDir, "claims", `${pod.uid}.json`)], { encoding: "utf8" }).includes(
        '"Ready"',
      ),
    );
    await node().killAgent();
    const away = await node().cni("DEL", { pod, sandbox });
    assert.deepEqual([away.exit, away.code], [1, 11]);
    assert.match(away.msg ?? "", /cannot reach nic-agent at/);
    await node().startAgent({ isAway: true });
    assert.deepEqual(await node().cni("CHECK", { pod, sandbox }), { exit: 0 });
    assert.deepEqual(await node().cni("DEL", { pod, sandbox }), { exit: 0 });
    assert.deepEqual(leftovers(sandbox), NOTHING);
    const second = node().makeSandbox("outage2");
    assert.equal((await node().cni("ADD", { pod, sandbox: second })).exit, 0);
    assert.deepEqual(await node().cni("DEL", { pod, sandbox: second }), { exit: 0 });
    await node().killAgent();
    await node().startAgent();
    await until("the claim tells it", async () => (await node().conditions(pod.uid)).join() === "Unplugged:Unplugged");
    for (const one of [sandbox, second]) node().removeSandbox(one);
  },
);

test("twenty pods at once are plugged and removed, each with its own devices", options, async () => {
  const all = await Promise.all(
    Array.from({ length: 20 }, async (_, at) => {
      const hybrid = at % 2 === 0;
      const state = nicState(0x40 + at, { net: 30, vifDetails: { ovsHybridPlug: hybrid, datapathType: "netdev" } });
      return { pod: await node().createClaim(`many${at}`, [state]), sandbox: node().makeSandbox(`many${at}`) };
    }),
  );
  const added = await Promise.all(all.map((one) => node().cni("ADD", one)));
  assert.deepEqual(
    added.filter(({ exit }) => exit !== 0),
    [],
  );
  assert.equal(node().ovs.devices().length, 20);
  const [first, last] = [all[0], all.at(-1)];
  assert.ok(first !== undefined && last !== undefined);
  assert.match(ping(first.sandbox, "10.30.0.83"), / 0% packet loss/);
  const removed = await Promise.all(all.map((one) => node().cni("DEL", one)));
  assert.deepEqual(
    removed.filter(({ exit }) => exit !== 0),
    [],
  );
  assert.deepEqual(leftovers(last.sandbox), NOTHING);
  for (const { sandbox } of all) node().removeSandbox(sandbox);
});

test(
  "an agent that is killed at any moment of an ADD leaves nothing that a later DEL does not remove",
  options,
  async () => {
    const sandbox = node().makeSandbox("killed");
    const first = nicState(18, { net: 18 });
    const pod = await node().createClaim("killed", [first, nicState(19, { name: "eth1", net: 19 })]);
    let cut = 0;
    for (let afterMs = 0; afterMs < 60; afterMs += 6) {
      const adding = node().cni("ADD", { pod, sandbox });
      await until("something is made", () => node().devices().length > 0, { everyMs: 1, deadlineMs: 10_000 });
      // The moments are spread over the rest of the ADD.
      const endMs = performance.now() + afterMs;
      await until("its moment has come", () => performance.now() >= endMs, { everyMs: 1 });
      await node().killAgent();
      if ((await adding).exit !== 0) cut += 1;
      await node().startAgent();
      assert.deepEqual(await node().cni("DEL", { pod, sandbox }), { exit: 0 });
      assert.deepEqual(leftovers(sandbox), NOTHING);
    }
    assert.ok(cut > 0, "no ADD was cut");
    node().removeSandbox(sandbox);
  },
);

test(
  "T-41: a switch that comes back with an empty database gets the ports of running pods again; without its bridge ADD is code 102",
  options,
  async () => {
    const state = (at: number) => nicState(at, { vifDetails: { ovsHybridPlug: false, datapathType: "netdev" } });
    const pods = [
      await node().createClaim("stay1", [state(14)]),
      await node().createClaim("stay2", [state(15)]),
    ] as const;
    const sandboxes = [node().makeSandbox("stay1"), node().makeSandbox("stay2")] as const;
    for (const at of [0, 1] as const)
      assert.equal((await node().cni("ADD", { pod: pods[at], sandbox: sandboxes[at] })).exit, 0);
    const before = node().ovs.devices();
    await node().ovs.lose();
    await node().ovs.start();
    const other = node().makeSandbox("nobridge");
    const late = await node().createClaim("nobridge", [nicState(16)]);
    const refused = await node().cni("ADD", { pod: late, sandbox: other });
    assert.deepEqual([refused.exit, refused.code], [1, 102], JSON.stringify(refused));
    node().ovs.makeBridge();
    await until("the ports are back", () => node().ovs.devices().join() === before.join(), {
      seen: () => node().ovs.devices().join(),
    });
    assert.match(ping(sandboxes[0], "10.0.0.15"), / 0% packet loss/);
    for (const at of [0, 1] as const)
      assert.deepEqual(await node().cni("DEL", { pod: pods[at], sandbox: sandboxes[at] }), { exit: 0 });
    assert.deepEqual(leftovers(other), NOTHING);
    for (const one of [...sandboxes, other]) node().removeSandbox(one);
  },
);
