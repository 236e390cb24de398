// Controller, agents and CNI executables on a live Neutron: two hosts with Open vSwitch, one with each firewall driver.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { resources } from "#kube/client";
import { CniCallError } from "#lab/kubelet";
import { ARKTOS_PODS, arktosPods } from "#lab/scenario";
import { ISTHMUS, start } from "#test/lab";
import { LiveBed, type LivePod, skipWithoutNeutron } from "#test/live-neutron";
import { NAMESPACE, nicOf } from "#test/nic-bed";

describe("NICs on a live Neutron", { skip: skipWithoutNeutron }, () => {
  let bed: LiveBed;
  /** A pod that runs on each node through all tests, and what somebody else has done to two more. */
  let still: readonly [LivePod, LivePod];
  let robbed: LivePod;
  let robbedEarly: LivePod;

  before(async () => {
    bed = await LiveBed.open("live");
    still = await Promise.all([bed.start("still-1", "node1"), bed.start("still-2", "node2")]);
    robbed = await bed.start("robbed", "node1");
    robbedEarly = await bed.make("robbed-early", "node1");
    await bed.nics.untilClaim(robbedEarly.uid, ({ status }) => status?.phase === "Plumbable");
    for (const pod of [robbed, robbedEarly]) await bed.neutron.request("DELETE", `ports/${await portOf(pod)}`);
  });
  after(() => bed?.[Symbol.asyncDispose]());

  async function portOf(pod: LivePod, nic = "eth0"): Promise<string> {
    return nicOf(await bed.claim(pod), nic).portID ?? assert.fail(`${pod.name} has no port`);
  }
  async function reachAll(pods: readonly LivePod[]): Promise<void> {
    for (const from of pods)
      for (const to of pods)
        if (from !== to)
          assert.ok(await bed.reaches(from, await bed.address(to)), `${from.name} does not reach ${to.name}`);
  }

  test("T-30: pods of one host and of both reach each other, with both firewall drivers and plugs; nothing is left", async () => {
    const before = { 1: bed.devices("node1"), 2: bed.devices("node2") };
    const pods = await Promise.all([bed.start("direct", "node1"), bed.start("hybrid", "node2")]);
    for (const pod of pods) {
      const claim = await bed.claim(pod);
      assert.deepEqual([claim.status?.phase, nicOf(claim).state], ["Active", "Ready"]);
      const port = await bed.port(await portOf(pod));
      assert.deepEqual([port?.["status"], port?.["binding:host_id"]], ["ACTIVE", pod.node]);
      await bed.cni("CHECK", pod);
    }
    const [direct, hybrid] = [(await portOf(pods[0])).slice(0, 11), (await portOf(pods[1])).slice(0, 11)];
    assert.ok(bed.plugged("node1").includes(`tap${direct}`) && bed.plugged("node2").includes(`qvo${hybrid}`));
    await reachAll([...pods, ...still]);
    const ports = await Promise.all(pods.map((pod) => portOf(pod)));
    for (const pod of pods) await bed.end(pod);
    for (const id of ports) assert.equal(await bed.port(id), undefined);
    assert.deepEqual({ 1: bed.devices("node1"), 2: bed.devices("node2") }, before);
  });

  test("the five pods of Arktos' design: who waits for an address and a port gets both, and the user's port survives", async () => {
    await bed.nics.policy({ flavors: { "m1.large": { maxNics: 2 } } });
    const [network] = await bed.neutron.list("networks?name=vpc-1");
    const user = await bed.neutron.make("port", { network_id: network?.["id"], name: "mine", description: "my own" });
    const group = await bed.neutron.make("security_group", { name: "closed" });
    const manifests = arktosPods({
      vpc: "vpc-1",
      subnet: "subnet-1",
      ip: "192.168.0.12",
      portId: user.id,
      securityGroup: group.id,
    });
    const converted = await start([ISTHMUS, "nicctl", "convert", "-f", "-"], {
      input: new TextEncoder().encode(manifests),
    }).ended;
    assert.equal(converted.code, 0, converted.stderr);
    const drafts = parseAllDocuments(converted.stdout).map((one) => one.toJS());
    const pods: LivePod[] = [];
    for (const [at, name] of ARKTOS_PODS.entries()) {
      const node = at % 2 === 0 ? "node1" : "node2";
      const draft = drafts[at];
      assert.equal(draft.metadata.name, name);
      const made = await bed.nics.api.create(resources.pods, {
        ...draft,
        metadata: { ...draft.metadata, namespace: NAMESPACE },
        spec: { ...draft.spec, nodeName: node },
      });
      const pod = bed.sandbox({ name, uid: made.metadata.uid, node });
      if (name !== "pod5") await bed.cni("ADD", pod);
      pods.push(pod);
    }
    const [, , pod3, pod4, pod5] = pods;
    assert.ok(pod3 !== undefined && pod4 !== undefined && pod5 !== undefined);
    assert.equal(await bed.address(pod3), "192.168.0.12");
    assert.equal(await portOf(pod4), user.id);
    await reachAll(pods.slice(0, 4));
    const waiting = await bed.nics.untilClaim(
      pod5.uid,
      ({ status }) => status?.nics?.length === 2 && status.nics.every(({ reason }) => reason !== undefined),
    );
    assert.deepEqual(
      waiting.status?.nics?.map(({ name, reason }) => [name, reason]),
      [
        ["eth0", "IpInUse"],
        ["eth1", "PortInUse"],
      ],
    );
    await assert.rejects(bed.cni("ADD", pod5, { plumbTimeoutMs: 1000 }), (error: unknown) => {
      assert.ok(error instanceof CniCallError);
      assert.equal(error.cniCode, 11);
      assert.match(error.message, /eth0=.*IpInUse.*eth1=.*PortInUse/);
      return true;
    });
    await bed.end(pod3);
    await bed.end(pod4);
    await bed.cni("ADD", pod5);
    assert.equal(await bed.address(pod5), "192.168.0.12");
    assert.equal(await portOf(pod5, "eth1"), user.id);
    // Its group lets nothing in; the user's port has the group of all others.
    assert.equal(await bed.reaches(still[0], "192.168.0.12", { tries: 10 }), false);
    assert.ok(await bed.reaches(still[0], await bed.address(pod5, "eth1")));
    for (const pod of pods.filter((one) => one !== pod3 && one !== pod4)) await bed.end(pod);
    const left = await bed.port(user.id);
    assert.deepEqual(
      [left?.["name"], left?.["description"], left?.["device_id"], left?.["device_owner"], left?.["binding:host_id"]],
      ["mine", "my own", "", "", ""],
    );
    await bed.neutron.request("DELETE", `ports/${user.id}`);
  });

  test("T-39: a security group drops, and lets through as soon as it has a rule; without it drops again", async () => {
    for (const node of ["node1", "node2"]) {
      const group = await bed.neutron.make("security_group", { name: `group-${node}` });
      const pod = await bed.start(`guarded-${node}`, node, { nics: [{ securityGroup: group.id }] });
      const address = await bed.address(pod);
      assert.equal(await bed.reaches(still[0], address, { tries: 10 }), false, `${node}: closed`);
      const rule = await bed.neutron.make("security_group_rule", {
        security_group_id: group.id,
        direction: "ingress",
        protocol: "icmp",
      });
      await bed.nics.until(`${node}: a rule lets packets in`, () => bed.reaches(still[0], address, { tries: 5 }));
      await bed.neutron.request("DELETE", `security-group-rules/${rule.id}`);
      await bed.nics.until(
        `${node}: without it none come in`,
        async () => !(await bed.reaches(still[0], address, { tries: 5 })),
      );
      await bed.end(pod);
    }
  });

  test("a source that is not the port's is dropped, until the port allows it", async () => {
    for (const node of ["node1", "node2"]) {
      const pod = await bed.start(`spoof-${node}`, node);
      const to = await bed.address(still[0]);
      // Another address on each node: neighbours remember the MAC address of the first one.
      const from = node === "node1" ? "192.168.0.251" : "192.168.0.252";
      execFileSync("ip", ["-n", pod.netns, "address", "add", `${from}/24`, "dev", "eth0"]);
      assert.ok(await bed.reaches(pod, to));
      assert.equal(await bed.reaches(pod, to, { from, tries: 10 }), false, node);
      const port = { allowed_address_pairs: [{ ip_address: from }] };
      await bed.neutron.request("PUT", `ports/${await portOf(pod)}`, { port });
      await bed.nics.until(`${node}: the source is allowed`, () => bed.reaches(pod, to, { from, tries: 5 }));
      await bed.end(pod);
    }
  });

  test("a virtual machine's TAP device carries packets of a guest, on both hosts", async () => {
    const config = { vmMode: "tap" };
    for (const node of ["node1", "node2"]) {
      const vm = await bed.start(`vm-${node}`, node, { vm: { flavor: "m1.large" }, config });
      const guest = await bed.guest(vm);
      assert.ok(await bed.reaches(still[0], await bed.address(vm)), node);
      assert.ok(await bed.reaches(still[1], await bed.address(vm)), node);
      guest.child.kill("SIGKILL");
      await guest.ended;
      await bed.end(vm, config);
    }
  });

  test("nic-agent is killed: its pods go on, and what it started before is checked and ended after it", async () => {
    const pod = await bed.start("kept", "node1");
    bed.node("node1").agent.child.kill("SIGKILL");
    await reachAll([pod, still[1]]);
    await bed.restartAgent("node1");
    await bed.cni("CHECK", pod);
    await bed.end(pod);
  });

  test("T-42: without Neutron's agent ADD ends with code 11 and says why; with it again pods start, and those before went on", async () => {
    const late = await bed.make("late", "node2");
    await bed.nics.untilClaim(late.uid, ({ status }) => status?.phase === "Plumbable");
    await bed.neutron.bed.stopAgent("node2");
    const isCode11 =
      (text: RegExp) =>
      (error: unknown): boolean => {
        assert.ok(error instanceof CniCallError);
        assert.equal(error.cniCode, 11);
        assert.match(error.message, text);
        return true;
      };
    const before = bed.devices("node2");
    await assert.rejects(bed.cni("ADD", late, { activeTimeoutMs: 2000 }), isCode11(/eth0=/));
    assert.deepEqual(bed.devices("node2"), before);
    await bed.neutron.bed.untilAlive("node2", {}, false);
    const unbound = await bed.make("unbound", "node2");
    const failed = await bed.nics.untilClaim(
      unbound.uid,
      ({ status }) => status?.nics?.[0]?.reason === "BindingFailed",
    );
    assert.match(nicOf(failed).message ?? "", /node2/);
    await assert.rejects(bed.cni("ADD", unbound, { plumbTimeoutMs: 1000 }), isCode11(/BindingFailed/));
    await reachAll(still);
    bed.neutron.bed.startAgent("node2");
    await bed.neutron.bed.untilAlive("node2");
    for (const pod of [late, unbound]) {
      await bed.nics.untilClaim(pod.uid, ({ status }) => status?.phase === "Plumbable");
      await bed.cni("ADD", pod);
      assert.ok(await bed.reaches(pod, await bed.address(still[0])));
      await bed.end(pod);
    }
    await reachAll(still);
  });

  test("T-41: Open vSwitch starts again, then with an empty database: ports of running pods are plugged and carry packets", async () => {
    const plugged = bed.plugged("node1");
    for (const way of ["restarted", "lost"] as const) {
      if (way === "restarted") await bed.neutron.bed.restartSwitch("node1");
      else await bed.neutron.bed.loseSwitch("node1");
      await bed.nics.until(`${way}: the pods reach each other again`, async () =>
        bed.reaches(still[0], await bed.address(still[1]), { tries: 5 }),
      );
      await bed.nics.until("all ports are there", async () => bed.plugged("node1").join() === plugged.join());
      await bed.untilStatus(await portOf(still[0]), "ACTIVE");
    }
    const pod = await bed.start("after", "node1");
    await reachAll([pod, ...still]);
    await bed.end(pod);
  });

  test("a port that somebody has deleted: made again for a pod that has not started, told for one that runs", async () => {
    const lost = await bed.nics.untilClaim(robbed.uid, ({ status }) => status?.nics?.[0]?.reason === "PortLost");
    assert.equal(nicOf(lost).state, "Failed");
    await bed.nics.until("an event tells it", async () =>
      (await bed.nics.events(robbed.uid)).some(({ reason }) => reason === "PortLost"),
    );
    await bed.end(robbed);
    await bed.cni("ADD", robbedEarly);
    assert.ok(await bed.reaches(robbedEarly, await bed.address(still[1])));
    await bed.end(robbedEarly);
  });

  test("at the end nothing is left in Neutron and on the hosts", async () => {
    for (const pod of still) await bed.end(pod);
    assert.deepEqual(await bed.nics.ports(), []);
    for (const node of ["node1", "node2"]) assert.deepEqual([bed.devices(node), bed.plugged(node)], [[], []]);
  });
});
