// The shipped nic-agent with Open vSwitch: NICs that are added to sandboxes that run, and removed from them.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { resources } from "#kube/client";
import { type NicClaim, type NicStatus, nicResources } from "#kube/nic";
import { until } from "#test/lab";
import { type ClaimedPod, NicNode, nicState, type Sandbox, VM_OWNERS } from "#test/nic-node";
import { skipWithoutOvs } from "#test/ovs-bed";

const options = { skip: skipWithoutOvs };
let bed: NicNode | undefined;

before(async () => {
  if (skipWithoutOvs === false) bed = await NicNode.open("nichot");
  bed?.activatePlugged();
});
after(async () => bed?.[Symbol.asyncDispose]());

function node(): NicNode {
  assert.ok(bed !== undefined);
  return bed;
}

const claimOf = (pod: ClaimedPod): Promise<NicClaim> =>
  node().api.get(nicResources.nicClaims, { namespace: "default", name: pod.uid });
const links = (sandbox: Sandbox): readonly string[] =>
  [
    ...node()
      .ip(["-o", "link", "show"], sandbox)
      .matchAll(/^\d+: (eth\d)/gm),
  ].map(([, name = ""]) => name);

/** Acts as the controller does when the pod requests these NICs: the claim first, and then the ports. */
async function want(pod: ClaimedPod, nics: readonly NicStatus[], leaving: readonly NicStatus[] = []): Promise<void> {
  const spec = { nics: nics.map(({ name }) => ({ name })) };
  const ref = { namespace: "default", name: pod.uid };
  await node().api.patch(nicResources.nicClaims, ref, { type: "merge", body: { spec } });
  await node().setNics(pod.uid, [...nics, ...leaving]);
}

/** Waits until the agent has told that it has these NICs, for the claim as it is now; an addition alone needs no new report of the generation. */
async function untilTold(pod: ClaimedPod, names: readonly string[], isLeaving = false): Promise<void> {
  let seen: NicClaim | undefined;
  const isSo = async (): Promise<boolean> => {
    seen = await claimOf(pod);
    const { plugged } = seen.status ?? {};
    const isNew = !isLeaving || plugged?.generation === seen.metadata.generation;
    return isNew && plugged?.nics.map(({ name }) => name).join() === names.join();
  };
  await until(`the agent has ${names.join()}`, isSo, {
    seen: () => `${JSON.stringify(seen?.status)}\n${node().said().slice(-2000)}`,
  });
}

const nothingIsLeft = (sandbox: Sandbox): void => {
  const { ovs, stateDir } = node();
  const journal = readdirSync(join(stateDir, "cni")).filter((name) => !name.startsWith("."));
  assert.deepEqual([node().devices(), ovs.devices(), journal, links(sandbox)], [[], [], [], []]);
};

test(
  "hot-plug: a NIC that is added to a sandbox that runs reaches its network, and goes without a trace",
  options,
  async () => {
    const [eth0, eth1] = [nicState(1), nicState(2, { name: "eth1", net: 7 })];
    const other = nicState(3, { net: 7, last: 9 });
    const pods = [await node().createClaim("grows", [eth0]), await node().createClaim("other", [other])] as const;
    const sandboxes = [node().makeSandbox("grows"), node().makeSandbox("other")] as const;
    for (const at of [0, 1] as const)
      assert.equal((await node().cni("ADD", { pod: pods[at], sandbox: sandboxes[at] })).exit, 0);
    await untilTold(pods[0], ["eth0"]);
    await want(pods[0], [eth0, eth1]);
    await untilTold(pods[0], ["eth0", "eth1"]);
    assert.deepEqual(links(sandboxes[0]), ["eth0", "eth1"]);
    const ping = execFileSync("ip", [
      "netns",
      "exec",
      sandboxes[0].netns,
      "ping",
      "-c",
      "2",
      "-i",
      "0.2",
      "-W",
      "3",
      "10.7.0.9",
    ]);
    assert.match(String(ping), / 0% packet loss/);
    assert.match(node().ip(["rule"], sandboxes[0]), /from 10\.7\.0\.2 lookup 101/);
    assert.match(node().ip(["route", "show", "default"], sandboxes[0]), /via 10\.0\.0\.254 .*metric 100/);
    assert.deepEqual(await node().cni("CHECK", { pod: pods[0], sandbox: sandboxes[0] }), { exit: 0 });
    await want(pods[0], [eth0], [eth1]);
    await untilTold(pods[0], ["eth0"], true);
    assert.deepEqual([links(sandboxes[0]), node().ip(["rule"], sandboxes[0]).includes("10.7.0.2")], [["eth0"], false]);
    assert.deepEqual(node().ovs.devices(), ["qvo00000001-11", "qvo00000003-11"]);
    assert.deepEqual(await node().cni("CHECK", { pod: pods[0], sandbox: sandboxes[0] }), { exit: 0 });
    await until("events tell it", async () => {
      const { items } = await node().api.listAll(resources.events);
      const reasons = items.filter(({ regarding }) => regarding?.uid === pods[0].uid).map(({ reason }) => reason);
      return reasons.sort().join() === "NicPlugged,NicUnplugged";
    });
    for (const at of [0, 1] as const)
      assert.deepEqual(await node().cni("DEL", { pod: pods[at], sandbox: sandboxes[at] }), { exit: 0 });
    for (const sandbox of sandboxes) {
      nothingIsLeft(sandbox);
      node().removeSandbox(sandbox);
    }
  },
);

test("hot-plug: an agent that is killed at any moment of a change finishes it at its next start", options, async () => {
  const [eth0, eth1, eth2] = [
    nicState(1),
    nicState(2, { name: "eth1", net: 7 }),
    nicState(4, { name: "eth2", net: 8, vifDetails: { ovsHybridPlug: false, bridgeName: "br-int" } }),
  ];
  const pod = await node().createClaim("shaken", [eth0]);
  const sandbox = node().makeSandbox("shaken");
  assert.equal((await node().cni("ADD", { pod, sandbox })).exit, 0);
  const wishes = [[eth0, eth1, eth2], [eth0, eth2], [eth0, eth1], [eth0]];
  let now: readonly NicStatus[] = [eth0];
  for (const [round, wish] of wishes.entries()) {
    // The agent is killed when it has made, or removed, a first device of the change.
    const before = node().devices().join();
    const leaving = now.filter((nic) => !wish.includes(nic));
    await want(pod, wish, leaving);
    await until("the agent is at work", () => node().devices().join() !== before, { everyMs: 1 });
    await node().killAgent();
    await node().startAgent();
    await untilTold(pod, wish.map(({ name }) => name).sort(), leaving.length > 0);
    assert.deepEqual([...links(sandbox)].sort(), wish.map(({ name }) => name).sort(), `round ${round}`);
    assert.deepEqual(await node().cni("CHECK", { pod, sandbox }), { exit: 0 });
    await want(pod, wish);
    now = wish;
  }
  assert.deepEqual(await node().cni("DEL", { pod, sandbox }), { exit: 0 });
  nothingIsLeft(sandbox);
  node().removeSandbox(sandbox);
});

test(
  "hot-plug: a virtual machine's runtime finds the TAP device of a NIC that was added in the claim",
  options,
  async () => {
    const pod = await node().createClaim("machine", [nicState(5)], { vm: {} });
    const sandbox = node().makeSandbox("machine");
    const config = { vmMode: "tap", vmOwnerUid: VM_OWNERS[1] };
    assert.equal((await node().cni("ADD", { pod, sandbox, config })).exit, 0);
    const eth1 = nicState(6, { name: "eth1", net: 7 });
    await want(pod, [nicState(5), eth1]);
    await untilTold(pod, ["eth0", "eth1"]);
    assert.deepEqual((await claimOf(pod)).status?.plugged?.nics[1], { name: "eth1", device: "tap00000006-11" });
    assert.match(node().ip(["-d", "link", "show", "tap00000006-11"]), /tun type tap .*user 60107/);
    assert.deepEqual(await node().cni("DEL", { pod, sandbox, config }), { exit: 0 });
    nothingIsLeft(sandbox);
    node().removeSandbox(sandbox);
  },
);

test(
  "hot-plug: a NIC whose device has the name of another is refused with an event, and comes when the name is free",
  options,
  async () => {
    const pod = await node().createClaim("named", [nicState(7)]);
    const sandbox = node().makeSandbox("named");
    assert.equal((await node().cni("ADD", { pod, sandbox })).exit, 0);
    node().ip(["link", "add", "eth1", "type", "bridge"], sandbox);
    await want(pod, [nicState(7), nicState(8, { name: "eth1", net: 7 })]);
    await until("an event tells it", async () => {
      const { items } = await node().api.listAll(resources.events);
      return items.some(
        ({ regarding, note = "" }) => regarding?.uid === pod.uid && note.includes("another device eth1"),
      );
    });
    node().ip(["link", "delete", "eth1"], sandbox);
    await untilTold(pod, ["eth0", "eth1"]);
    assert.deepEqual(await node().cni("DEL", { pod, sandbox }), { exit: 0 });
    nothingIsLeft(sandbox);
    node().removeSandbox(sandbox);
  },
);
