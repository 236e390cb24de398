/** `isthmus audit`, `explain` and `doctor` on a node with NICs of VPCs, a real Open vSwitch and the shipped nic-agent. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { podSurface } from "#features/nic";
import { resources } from "#kube/client";
import { nicResources } from "#kube/nic";
import { isthmus, until } from "#test/lab";
import { type ClaimedPod, NicNode, NODE, nicState, type Sandbox } from "#test/nic-node";
import { skipWithoutOvs } from "#test/ovs-bed";

const options = { skip: skipWithoutOvs };
let bed: NicNode | undefined;
let pod: ClaimedPod;
let sandbox: Sandbox;

const HYBRID = { ovsHybridPlug: true, bridgeName: "br-int", datapathType: "netdev" };
const DIRECT = { ...HYBRID, ovsHybridPlug: false };

before(async () => {
  if (skipWithoutOvs !== false) return;
  bed = await NicNode.open("nicrep");
  bed.activatePlugged();
  await bed.api.create(resources.nodes, { metadata: { name: NODE } });
  const nics = [
    nicState(1, { vifDetails: HYBRID }),
    nicState(2, { name: "eth1", net: 1, vifDetails: DIRECT, routes: [{ dst: "172.16.0.0/16", via: "10.1.0.9" }] }),
  ];
  pod = await bed.createClaim("web", nics);
  sandbox = bed.makeSandbox("web");
  const added = await bed.cni("ADD", { pod, sandbox });
  assert.equal(added.exit, 0, JSON.stringify(added));
  await until("the claim says it", async () => (await node().conditions(pod.uid)).join() === "Plugged:Plugged");
  const claim = await bed.api.get(nicResources.nicClaims, { namespace: "default", name: pod.uid });
  const { annotations, condition } = podSurface(claim);
  bed.server.seed([
    {
      apiVersion: "v1",
      kind: "Pod",
      metadata: {
        name: "web",
        namespace: "default",
        uid: pod.uid,
        annotations: {
          "isthmus.dev/vpc": "vpc-1",
          "isthmus.dev/nics": '[{"name":"eth0"},{"name":"eth1"}]',
          ...annotations,
        },
      },
      spec: { nodeName: NODE, containers: [{ name: "c", image: "i" }] },
      status: { phase: "Running", conditions: [condition] },
    },
  ]);
});
after(async () => bed?.[Symbol.asyncDispose]());

function node(): NicNode {
  assert.ok(bed !== undefined);
  return bed;
}
const kubeconfig = (): string => `--kubeconfig=${join(node().folder, "own-kubeconfig")}`;

async function audit(): Promise<{
  readonly code: number | null;
  readonly kinds: readonly string[];
  readonly text: string;
}> {
  const { code, stdout, stderr } = await isthmus(["audit", kubeconfig(), `--nic-socket=${node().socket}`, "--json"]);
  assert.equal(stderr, "");
  const { findings } = JSON.parse(stdout) as { findings: readonly { readonly kind: string; readonly text: string }[] };
  return { code, kinds: findings.map(({ kind }) => kind).sort(), text: findings.map(({ text }) => text).join("\n") };
}

test(
  "audit: nothing is found where all is well; each fault on the real kernel and switch is named, and gone with the fault",
  options,
  async () => {
    const { ovs } = node();
    const clean = await audit();
    assert.deepEqual([clean.code, clean.kinds], [0, []], clean.text);
    const inPod = (...args: readonly string[]): string => node().ip(args, sandbox);
    const [hybrid, direct] = ["00000001-11", "00000002-11"];
    const alias = execFileSync("ip", ["-n", node().netns, "-o", "link", "show", `qvb${hybrid}`], { encoding: "utf8" });
    const mark = /alias (\S+)/.exec(alias)?.[1] ?? assert.fail(alias);
    const ids = (portId: string): string[] =>
      ["iface-id", "vm-id", "vm-uuid"].map((key) => `external_ids:${key}=${key === "iface-id" ? portId : "x"}`);
    const [first = ""] = [nicState(1).portID];
    const rows: readonly (readonly [kind: string, pattern: RegExp, plant: () => unknown, undo: () => unknown])[] = [
      [
        "nic-device-lacks",
        /device tap00000001-11 is down/,
        () => node().ip(["link", "set", `tap${hybrid}`, "down"]),
        () => node().ip(["link", "set", `tap${hybrid}`, "up"]),
      ],
      [
        "nic-device-lacks",
        /device tap00000001-11 is in no bridge, not in qbr00000001-11/,
        () => node().ip(["link", "set", `tap${hybrid}`, "nomaster"]),
        () => node().ip(["link", "set", `tap${hybrid}`, "master", `qbr${hybrid}`]),
      ],
      [
        "nic-device-stray",
        /device tapff of port x and container y is in no journal/,
        () => {
          node().ip(["link", "add", "tapff", "type", "bridge"]);
          node().ip(["link", "set", "tapff", "alias", "isthmus-nic:x:y"]);
        },
        () => node().ip(["link", "delete", "tapff"]),
      ],
      [
        "nic-device-lacks",
        /device qvb00000001-11 has the mark of port other/,
        () => node().ip(["link", "set", `qvb${hybrid}`, "alias", mark.replace(first, "other")]),
        () => node().ip(["link", "set", `qvb${hybrid}`, "alias", mark]),
      ],
      [
        "nic-switch-lacks",
        /qvo00000001-11 has iface-id other, not 00000001-/,
        () => ovs.vsctl("set", "Interface", `qvo${hybrid}`, "external_ids:iface-id=other"),
        () => ovs.vsctl("set", "Interface", `qvo${hybrid}`, `external_ids:iface-id=${first}`),
      ],
      [
        "nic-switch-stray",
        /port stray of br-int is of lost and container x, which is in no journal/,
        () =>
          ovs.vsctl("add-port", "br-int", "stray", "--", "set", "Interface", "stray", "type=internal", ...ids("lost")),
        () => ovs.vsctl("del-port", "br-int", "stray"),
      ],
      [
        "nic-sandbox",
        /eth1 has MTU 1400, not 1450/,
        () => inPod("link", "set", "eth1", "mtu", "1400"),
        () => inPod("link", "set", "eth1", "mtu", "1450"),
      ],
      [
        "nic-sandbox",
        /eth0 lacks the route 0\.0\.0\.0\/0 via 10\.0\.0\.254 in table main/,
        () => inPod("route", "delete", "default", "metric", "100"),
        () => inPod("route", "add", "default", "via", "10.0.0.254", "dev", "eth0", "metric", "100"),
      ],
      [
        "nic-sandbox",
        /eth0 has the address 10\.0\.0\.77\/24, which its port does not have/,
        () => inPod("address", "add", "10.0.0.77/24", "dev", "eth0"),
        () => inPod("address", "delete", "10.0.0.77/24", "dev", "eth0"),
      ],
      [
        "nic-sandbox",
        /eth0 has the route 203\.0\.113\.0\/24 via 10\.0\.0\.9 dev eth0, which is of no subnet/,
        () => inPod("route", "add", "203.0.113.0/24", "via", "10.0.0.9"),
        () => inPod("route", "delete", "203.0.113.0/24"),
      ],
      [
        "nic-sandbox",
        /the sandbox lacks the rule from 10\.1\.0\.2\/32 lookup 101/,
        () => inPod("rule", "delete", "from", "10.1.0.2", "lookup", "101"),
        () => inPod("rule", "add", "from", "10.1.0.2", "lookup", "101", "priority", "20001"),
      ],
      [
        "nic-sandbox",
        /the sandbox has the rule 20005: from 10\.9\.0\.0\/24 lookup 105 that no NIC needs/,
        () => inPod("rule", "add", "from", "10.9.0.0/24", "lookup", "105", "priority", "20005"),
        () => inPod("rule", "delete", "priority", "20005"),
      ],
      [
        "nic-switch",
        /the database at \S+ cannot be read/,
        () => ovs.stopDatabase(),
        async () => {
          await ovs.startDatabase();
          // The switch connects again by itself.
          await until("the switch serves", () => ovs.vsctl("get", "Interface", `qvo${hybrid}`, "ofport") !== "[]");
        },
      ],
    ];
    for (const [kind, pattern, plant, undo] of rows) {
      await plant();
      const { kinds, text, code } = await audit();
      assert.deepEqual([code, kinds], [1, [kind]], text);
      assert.match(text, pattern);
      await undo();
      let last = await audit();
      await until(
        `nothing is found without ${kind}`,
        async () => {
          last = await audit();
          return last.kinds.length === 0;
        },
        { seen: () => last.text },
      );
    }
    assert.ok(ovs.devices().includes(`tap${direct}`));
  },
);

test(
  "explain pod:NAMESPACE/NAME: from the switch's port through the devices to the routes and rules that the pod has",
  options,
  async () => {
    const run = (...args: readonly string[]) =>
      isthmus(["explain", kubeconfig(), `--nic-socket=${node().socket}`, ...args]);
    const { code, stdout, stderr } = await run("pod:default/web");
    assert.deepEqual([code, stderr], [0, ""]);
    for (const line of [
      /^pod default\/web: VPC vpc-1 of provider neutron, on node nic-node$/m,
      /^eth0: Ready$/m,
      /^ {2}port +00000001-\S+, of its user; the provider was not asked$/m,
      /^ {2}plugged +br-int port \d+ - qvo00000001-11 - qvb00000001-11 - qbr00000001-11 - tap00000001-11 - \/run\/netns\//m,
      / default via 10\.0\.0\.254 dev eth0 metric 100$/m,
      /^ {2}plugged +br-int port \d+ - tap00000002-11 - \/run\/netns\//m,
      / 172\.16\.0\.0\/16 via 10\.1\.0\.9 dev eth1$/m,
      / default via 10\.1\.0\.254 dev eth1 table 101$/m,
      /^ {2}rules +20001: from 10\.1\.0\.2\/32 lookup 101$/m,
      /^note: the provider was not asked for the ports: no --nic-credentials$/m,
    ])
      assert.match(stdout, line);
    const { nics } = JSON.parse((await run("--json", "pod:default/web")).stdout) as {
      nics: readonly { readonly nic: string; readonly routing: { readonly from: string } }[];
    };
    assert.deepEqual(
      nics.map(({ nic, routing }) => [nic, routing.from]),
      [
        ["eth0", "there"],
        ["eth1", "there"],
      ],
    );
    const planned = await isthmus(["explain", kubeconfig(), "--nic-socket=/nowhere", "pod:default/web"]);
    assert.match(planned.stdout, /routes \(planned\) +172\.16\.0\.0\/16 via 10\.1\.0\.9 dev eth1\n/);
    assert.match(
      planned.stdout,
      /note: devices, routes and rules were not looked at: .* run it on node nic-node, as root/,
    );
    const missing = await run("pod:default/nobody");
    assert.deepEqual([missing.code, missing.stdout], [1, ""]);
    assert.match(missing.stderr, /there is no pod default\/nobody/);
    assert.deepEqual([(await run("pod:web")).code, (await run("node")).code], [2, 2]);
  },
);

test(
  "doctor: nic-agent, database, bridge, the provider's agent and the name at the provider; what is wrong makes its exit code 1",
  options,
  async () => {
    const { ovs, api } = node();
    type Check = { readonly state: string; readonly subject: string; readonly text: string };
    const doctor = async (...more: readonly string[]) => {
      const flags = [kubeconfig(), `--nic-socket=${node().socket}`, `--ovsdb=${ovs.socketPath}`, "--json", ...more];
      const { code, stdout, stderr } = await isthmus(["doctor", ...flags]);
      assert.equal(stderr, "");
      const { nics } = JSON.parse(stdout) as { readonly nics: readonly Check[] };
      return { code, text: nics.map(({ state, subject, text }) => `${state} ${subject}: ${text}`).join("\n") };
    };
    const annotate = async (host: string): Promise<void> => {
      const found = await api.get(resources.nodes, { name: NODE });
      await api.replace(resources.nodes, {
        ...found,
        metadata: { ...found.metadata, annotations: { "isthmus.dev/provider-host": host } },
      });
    };
    const first = await doctor();
    assert.equal(first.code, 0, first.text);
    for (const line of [
      /^ok nic-agent: answers as node nic-node, with 1 NicClaims and the NICs of 1 sandboxes$/m,
      /^ok Open vSwitch: its database answers, with 1 bridges$/m,
      /^warning Open vSwitch: bridge br-int has no controller/m,
      /^ok provider-host: ports are bound to the name of the Node, nic-node, and active$/m,
    ])
      assert.match(first.text, line);
    // Nobody listens there, as when the agent of Neutron has died.
    ovs.vsctl("set-controller", "br-int", "tcp:127.0.0.1:6633");
    const dead = await doctor();
    assert.equal(dead.code, 1);
    assert.match(
      dead.text,
      /^wrong Open vSwitch: the provider's agent is dead: nobody answers at tcp:127\.0\.0\.1:6633, the controller of bridge br-int$/m,
    );
    ovs.vsctl("del-controller", "br-int");
    const other = await doctor("--integration-bridge=br-other");
    assert.match(other.text, /^wrong Open vSwitch: there is no integration bridge br-other; it has br-int$/m);
    await annotate("wrong-host");
    assert.match(
      (await doctor()).text,
      /^warning provider-host: the annotation isthmus\.dev\/provider-host, wrong-host, is not a name of this machine/m,
    );
    await node().setNics(pod.uid, [
      nicState(1, {
        vifDetails: HYBRID,
        host: "wrong-host",
        vifType: "binding_failed",
        reason: "BindingFailed",
        message: "there is no agent on host wrong-host",
      }),
      nicState(2, { name: "eth1", net: 1, vifDetails: DIRECT }),
    ]);
    const refused = await doctor();
    assert.equal(refused.code, 1);
    assert.match(
      refused.text,
      /^wrong provider-host: the provider does not bind ports to the annotation .*: there is no agent on host wrong-host$/m,
    );
    await ovs.stopDatabase();
    assert.match((await doctor()).text, /^wrong Open vSwitch: its database at \S+ does not answer: /m);
    await ovs.startDatabase();
    await node().killAgent();
    assert.match((await doctor("--nics")).text, /^wrong nic-agent: does not answer: /m);
  },
);
