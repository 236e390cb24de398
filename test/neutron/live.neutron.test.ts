// `isthmus lab --vpc`: its report; then controller, agents and CNI executables on the live Neutron that it leaves, and what audit, explain, doctor and
// nicctl say of it: two hosts with Open vSwitch, one with each firewall driver.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { resources } from "#kube/client";
import type { NicClaim } from "#kube/nic";
import { labPaths } from "#lab/host";
import { CniCallError } from "#lab/kubelet";
import { ARKTOS_PODS, arktosPods, type LabReport } from "#lab/scenario";
import { commandsOf, follow } from "#test/guide";
import { ISTHMUS, isthmus, leftOf, processesOf, removeLab, start, stateOf, until } from "#test/lab";
import { LiveBed, type LivePod, RUNTIME_CLASS, skipWithoutNeutron } from "#test/live-neutron";
import { NAMESPACE, nicOf } from "#test/nic-cluster";

const LAB = "live";

test("lab --vpc: other flags that need the same nodes are refused together", async () => {
  const { code, stderr } = await isthmus(["lab", "--vpc", "--services", "--uplinks", "--name=ct-vpc"]);
  assert.equal(code, 2);
  assert.match(stderr, /--vpc: this flag cannot be combined with --uplinks, --services/);
  const one = await isthmus(["lab", "--vpc", "--nodes=1", "--name=ct-vpc"]);
  assert.match(one.stderr, /--vpc: the lab needs two nodes or more, with IPv4/);
});

test("lab --vpc: one whose processes are killed while it starts Neutron is removed by its name alone", {
  skip: skipWithoutNeutron,
}, async (t) => {
  const name = "ct-vpc-killed";
  t.after(() => removeLab(name));
  const paths = labPaths(name);
  const lab = start([ISTHMUS, "lab", "--vpc", "--nodes=2", `--name=${name}`]);
  const places = [
    join(paths.neutron, "mysql"),
    join(paths.neutron, "rabbitmq.log"),
    join(paths.ovsOf("node2"), "db.sock"),
  ];
  await until("database, broker and switches have begun", () => places.every((path) => existsSync(path)), {
    seen: lab.said,
  });
  const known = processesOf(name);
  for (const program of ["beam.smp", "ovs-vswitchd", "neutron-openvswitch-agent"])
    assert.ok(
      known.some(({ command }) => command.includes(program)),
      program,
    );
  process.kill(stateOf(name).pid, "SIGKILL");
  lab.child.kill("SIGKILL");
  await lab.ended;
  const { code, stderr } = await isthmus(["lab", "down", `--name=${name}`]);
  assert.deepEqual([code, stderr], [0, `lab ${name} removed\n`]);
  assert.deepEqual(leftOf(name, known), []);
});

describe("NICs on a live Neutron", { skip: skipWithoutNeutron }, () => {
  // One for all tests: it takes half a minute of the processor.
  let bed: LiveBed;

  before(async () => {
    bed = await LiveBed.open(LAB);
  });
  after(() => bed?.[Symbol.asyncDispose]());

  describe("lab --vpc", () => {
    const vpc = (): NonNullable<LabReport["vpc"]> => bed.report.vpc ?? assert.fail("the report has no VPC");

    test("lab --vpc: the pods of Arktos' design have their NICs on both hosts, and reach each other", () => {
      assert.deepEqual(
        vpc().pods.map(({ name, node, plug }) => [name, node, plug]),
        [
          ["pod1", "node1", "direct"],
          ["pod2", "node2", "hybrid"],
          ["pod3", "node1", "direct"],
          ["pod4", "node2", "hybrid"],
        ],
      );
      assert.equal(vpc().pods[2]?.nics[0]?.address, "192.168.0.12");
      assert.deepEqual([vpc().pings.sent, vpc().pings.answered], [12, 12]);
    });

    test("lab --vpc: a pod waits for an address and a port of others, and has both when they are gone", () => {
      assert.deepEqual(
        vpc().waiting.nics.map(({ name, reason }) => [name, reason]),
        [
          ["eth0", "IpInUse"],
          ["eth1", "PortInUse"],
        ],
      );
      assert.equal(vpc().healed.nics[0]?.address, "192.168.0.12");
      assert.equal(vpc().healed.nics[1]?.port, vpc().pods[3]?.nics[0]?.port);
      assert.ok(vpc().group.dropped && vpc().group.openSeconds !== null);
      assert.deepEqual(vpc().left, { ports: [], userPort: [] });
    });

    test("lab --vpc: pods without a VPC are coil's as ever", () => {
      assert.equal(bed.report.ok, true);
      assert.equal(bed.report.pings.answered, bed.report.pings.sent);
    });
  });

  describe("the way of packets, and failures", () => {
    /** A pod that runs on each node through all tests, and what somebody else has done to two more. */
    let still: readonly [LivePod, LivePod];
    let robbed: LivePod;
    let robbedEarly: LivePod;

    before(async () => {
      still = await Promise.all([bed.start("still-1", "node1"), bed.start("still-2", "node2")]);
      robbed = await bed.start("robbed", "node1");
      robbedEarly = await bed.make("robbed-early", "node1");
      await bed.nics.untilClaim(robbedEarly.uid, ({ status }) => status?.phase === "Plumbable");
      for (const pod of [robbed, robbedEarly]) await bed.neutron.request("DELETE", `ports/${await portOf(pod)}`);
      bed.keep();
    });
    afterEach(() => bed.clean());
    after(() => bed?.clean({ all: true }));

    async function portOf(pod: LivePod, nic = "eth0"): Promise<string> {
      return nicOf(await bed.claim(pod), nic).portID ?? assert.fail(`${pod.name} has no port`);
    }
    async function reachAll(pods: readonly LivePod[]): Promise<void> {
      for (const from of pods) for (const to of pods) if (from !== to) await bed.untilReaches(from, to);
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
          spec: { ...draft.spec, nodeName: node, runtimeClassName: RUNTIME_CLASS },
        });
        const pod = bed.sandbox({ name, uid: made.metadata.uid, node });
        if (name !== "pod5") await bed.add(pod);
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
      await bed.add(pod5);
      assert.equal(await bed.address(pod5), "192.168.0.12");
      assert.equal(await portOf(pod5, "eth1"), user.id);
      // Its group lets nothing in; the user's port has the group of all others.
      assert.equal(await bed.reaches(still[0], "192.168.0.12", { tries: 10 }), false);
      await bed.untilReaches(still[0], pod5, { nic: "eth1" });
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
        await bed.untilReaches(pod, still[0]);
        assert.equal(await bed.reaches(pod, to, { from, tries: 10 }), false, node);
        const port = { allowed_address_pairs: [{ ip_address: from }] };
        await bed.neutron.request("PUT", `ports/${await portOf(pod)}`, { port });
        await bed.nics.until(`${node}: the source is allowed`, () => bed.reaches(pod, to, { from, tries: 5 }));
        await bed.end(pod);
      }
    });

    test("a virtual machine's TAP device carries packets of a guest, on both hosts; its address was a pod's before", async () => {
      const config = { vmMode: "tap" };
      const nics = [{ subnet: "subnet-1", ip: "192.168.0.20" }];
      for (const node of ["node1", "node2"]) {
        // Without an announcement of the guest its neighbours would keep the MAC address of the pod for up to 53 s.
        const pod = await bed.start(`before-${node}`, node, { nics });
        for (const from of still) await bed.untilReaches(from, pod);
        await bed.end(pod);
        const vm = await bed.start(`vm-${node}`, node, { nics, vm: { flavor: "m1.large" }, config });
        const guest = await bed.guest(vm);
        for (const from of still) await bed.untilReaches(from, vm, { told: guest.said });
        guest.child.kill("SIGKILL");
        await guest.ended;
        await bed.end(vm, config);
      }
    });

    test("nic-agent is killed: its pods go on, and what it started before is checked and ended after it", async () => {
      const pod = await bed.start("kept", "node1");
      const killed = bed.killAgent("node1");
      await reachAll([pod, still[1]]);
      await killed;
      await bed.cni("CHECK", pod);
      await bed.end(pod);
    });

    test("T-42: without Neutron's agent ADD ends with code 11 and says why; with it again pods start, and those before went on", async () => {
      const late = await bed.make("late", "node2");
      await bed.nics.untilClaim(late.uid, ({ status }) => status?.phase === "Plumbable");
      await bed.cloud.stopAgent("node2");
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
      await bed.cloud.untilAlive("node2", {}, false);
      const unbound = await bed.make("unbound", "node2");
      const failed = await bed.nics.untilClaim(
        unbound.uid,
        ({ status }) => status?.nics?.[0]?.reason === "BindingFailed",
      );
      assert.match(nicOf(failed).message ?? "", /node2/);
      await assert.rejects(bed.cni("ADD", unbound, { plumbTimeoutMs: 1000 }), isCode11(/BindingFailed/));
      await reachAll(still);
      bed.cloud.startAgent("node2");
      await bed.cloud.untilAlive("node2");
      for (const pod of [late, unbound]) {
        // The pause between two tries to bind has grown with each that failed.
        const isPlumbable = ({ status }: NicClaim): boolean => status?.phase === "Plumbable";
        await bed.nics.untilClaim(pod.uid, isPlumbable, "Plumbable", 150_000);
        await bed.add(pod);
        await bed.untilReaches(pod, still[0]);
        await bed.end(pod);
      }
      await reachAll(still);
    });

    test("T-41: Open vSwitch starts again, then with an empty database: ports of running pods are plugged and carry packets", async () => {
      const plugged = bed.plugged("node1");
      for (const way of ["restarted", "lost"] as const) {
        if (way === "restarted") await bed.cloud.restartSwitch("node1");
        else await bed.cloud.loseSwitch("node1");
        // Neutron's agent starts, for which a busy machine needs a minute.
        await bed.nics.until(
          `${way}: the pods reach each other again`,
          async () => bed.reaches(still[0], await bed.address(still[1]), { tries: 5 }),
          150_000,
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
      await bed.add(robbedEarly);
      await bed.untilReaches(robbedEarly, still[1]);
      await bed.end(robbedEarly);
    });

    test("at the end nothing is left in Neutron and on the hosts", async () => {
      for (const pod of still) await bed.end(pod);
      assert.deepEqual(await bed.nics.ports(), []);
      for (const node of ["node1", "node2"]) assert.deepEqual([bed.devices(node), bed.plugged(node)], [[], []]);
    });
  });

  describe("reports about NICs", () => {
    let pods: readonly [LivePod, LivePod];

    before(async () => {
      pods = await Promise.all([bed.start("one", "node1"), bed.start("two", "node2")]);
      bed.keep();
    });
    afterEach(() => bed.clean());

    const kubeconfig = (): string => `--kubeconfig=${bed.kubeconfig}`;
    const clouds = (): string => bed.clouds;
    async function audit(): Promise<string> {
      const sockets = ["node1", "node2"].map((name) => `--nic-socket=${bed.node(name).socket}`);
      const { stdout, stderr } = await isthmus(["audit", kubeconfig(), `--nic-credentials=${clouds()}`, ...sockets]);
      assert.equal(stderr, "");
      return stdout;
    }
    const doctor = async (node: string): Promise<string> => {
      const ovsdb = `--ovsdb=${bed.cloud.ovs(node).socketPath}`;
      return (await isthmus(["doctor", kubeconfig(), `--nic-socket=${bed.node(node).socket}`, ovsdb])).stdout;
    };
    const nicctl = async (...args: readonly string[]): Promise<string> =>
      (await isthmus(["nicctl", kubeconfig(), `--credentials=${clouds()}`, ...args])).stdout;

    test("audit: pods, ports, journals, devices and switches of a direct and a hybrid plug agree", async () => {
      await bed.nics.until("nothing is found", async () => (await audit()).startsWith("no findings"));
      assert.equal(
        await audit(),
        "no findings: API server, kernel and memory agree on 2 NicClaims, 2 ports, 2 plugged NICs\n",
      );
    });

    test("explain: the port with its security group, the switch's port, routes", async () => {
      for (const [at, { name, node }] of pods.entries()) {
        const claim = await bed.claim(pods[at] ?? assert.fail());
        const id = nicOf(claim).portID ?? assert.fail();
        const port = await bed.port(id);
        const [group] = (port?.["security_groups"] ?? []) as readonly string[];
        const flags = [kubeconfig(), `--nic-credentials=${clouds()}`, `--nic-socket=${bed.node(node).socket}`];
        const { stdout } = await isthmus(["explain", ...flags, `pod:default/${name}`]);
        for (const line of [
          new RegExp(`port +${id}, made by nic-controller; ACTIVE at the provider$`, "m"),
          new RegExp(`security +the port has the groups ${group}, whose rules the provider has$`, "m"),
          node === "node1"
            ? /plugged +br-int port \d+ - tap\S+ - \//
            : /br-int port \d+ - qvo\S+ - qvb\S+ - qbr\S+ - tap\S+ - \//,
          /routes +default via 192\.168\.0\.1 dev eth0 metric 100$/m,
        ])
          assert.match(stdout, line);
        assert.doesNotMatch(stdout, /^note:|differs/m);
      }
    });

    test("debug-nics.md: the commands of the page work as they stand", async () => {
      const here = {
        kubeconfig: bed.kubeconfig,
        folder: bed.folder,
        words: { "NAMESPACE/POD": `${NAMESPACE}/${pods[0]?.name}` },
      };
      const run = (section: string): Promise<string> => follow(commandsOf("debug-nics.md", section), here);
      assert.match(await run("Why has this pod no network?"), /Active/);
      assert.match(await run("Which way does a pod's traffic take?"), /made by nic-controller/);
      assert.match(
        await run("Which ports are ours, and which does nobody use?"),
        new RegExp(`no port of cluster ${LAB}`),
      );
      await run("A virtual machine brings up only its first NIC");
      assert.match(readFileSync(join(bed.folder, "network-config"), "utf8"), /macaddress/);
      // The second command of a section is for a node, whose programs have sockets of their own in a lab.
      const { netns, socket } = bed.node("node1");
      const sockets = `--nic-socket=${socket}`;
      const onNode = {
        ...here,
        wrap: ["nsenter", `--net=/run/netns/${netns}`],
        kubeconfig: labPaths(LAB).nodeKubeconfig,
        words: {
          "isthmus doctor": `isthmus doctor --nics ${sockets} --ovsdb=${bed.cloud.ovs("node1").socketPath}`,
          "isthmus audit ": `isthmus audit ${sockets} `,
        },
      };
      const both = (page: string, section: string): readonly [string, string] => {
        const [one = "", other = "", ...more] = commandsOf(page, section).flatMap((block) => block.split("\n"));
        assert.deepEqual(more, []);
        return [one, other];
      };
      const [cloudDoctor, nodeDoctor] = both("debug-nics.md", "What is wrong with the cloud, or a node?");
      assert.match(await follow([cloudDoctor], here), /^ok +node node2 /m);
      assert.match(await follow([nodeDoctor], onNode), /^ok +Open vSwitch /m);
      const [cloudAudit, nodeAudit] = both("debug-nics.md", "Does everything agree?");
      assert.match(await follow([cloudAudit], here), /^no findings: .* 2 NicClaims, 2 ports/m);
      assert.match(await follow([nodeAudit], onNode), /^no findings: .* 1 plugged NICs/m);
    });

    test("doctor: the agent that is connected and has made no flows is named on its node", async () => {
      const ovs = bed.cloud.ovs("node1");
      const flows = `unix:${join(ovs.folder, "br-int.mgmt")}`;
      // In milliseconds: on a busy machine doctor could take longer than the switch waits for the agent.
      ovs.vsctl("set", "Controller", "br-int", "inactivity_probe=60000");
      const isWrong = /^wrong +Open vSwitch +bridge br-int has no flows/m;
      bed.cloud.pauseAgent("node1", true);
      try {
        execFileSync("ovs-ofctl", ["-O", "OpenFlow13", "del-flows", flows]);
        assert.match(await doctor("node1"), isWrong);
      } finally {
        bed.cloud.pauseAgent("node1", false);
      }
      // It misses its own flows, as after a restart of the switch.
      await bed.nics.until("the agent has made them again", async () => !isWrong.test(await doctor("node1")));
      await bed.untilReaches(pods[0], pods[1]);
    });

    test("doctor, here and there: all is well; the agent that has died is named on its node, and by Neutron", async () => {
      for (const node of ["node1", "node2"]) {
        const text = await doctor(node);
        assert.match(text, /^ok +Open vSwitch +bridge br-int is connected to the provider's agent$/m);
        assert.match(text, /^ok +provider-host +ports are bound to the name of the Node, node\d, and active$/m);
      }
      const well = await nicctl("doctor");
      for (const node of ["node1", "node2"])
        assert.match(
          well,
          new RegExp(`^ok +node ${node} +Open vSwitch agent of neutron is alive on host ${node}$`, "m"),
        );
      assert.match(well, /^ok +NicClaims +2, none of which has waited for two minutes$/m);
      await bed.cloud.stopAgent("node2");
      await bed.nics.until("the switch sees it", async () =>
        /^wrong +Open vSwitch +the provider's agent is dead: nobody answers at tcp:/m.test(await doctor("node2")),
      );
      await bed.cloud.untilAlive("node2", {}, false);
      assert.match(
        await nicctl("doctor"),
        /^wrong +node node2 +Open vSwitch agent of neutron on host node2 is not alive/m,
      );
      assert.match(await doctor("node1"), /^ok +Open vSwitch +bridge br-int is connected to the provider's agent$/m);
      bed.cloud.startAgent("node2");
      await bed.cloud.untilAlive("node2");
      await bed.nics.until("the bridge is served again", async () =>
        /^ok +Open vSwitch +bridge br-int is connected to the provider's agent$/m.test(await doctor("node2")),
      );
    });

    test("gc and audit find nothing after the pods", async () => {
      for (const pod of pods) await bed.end(pod);
      assert.equal(
        await nicctl("gc", `--cluster-id=${LAB}`, "--min-age=1ms"),
        `no port of cluster ${LAB} is without a NicClaim\n`,
      );
      assert.match(await audit(), /^no findings: .* agree on 0 NicClaims, 0 ports, 0 plugged NICs\n$/);
    });
  });

  test("lab down: nothing is left of the lab", async () => {
    await bed[Symbol.asyncDispose]();
    assert.deepEqual([leftOf(LAB), processesOf(LAB)], [[], []]);
  });
});
