// `isthmus audit`, `explain`, `doctor` and `nicctl doctor` on a live Neutron with agents of both firewall drivers.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isthmus } from "#test/lab";
import { LiveBed, type LivePod, skipWithoutNeutron } from "#test/live-neutron";
import { nicOf } from "#test/nic-bed";

describe("reports about NICs on a live Neutron", { skip: skipWithoutNeutron }, () => {
  let bed: LiveBed;
  let pods: readonly [LivePod, LivePod];

  before(async () => {
    bed = await LiveBed.open("livereport");
    pods = await Promise.all([bed.start("one", "node1"), bed.start("two", "node2")]);
  });
  after(() => bed?.[Symbol.asyncDispose]());

  const kubeconfig = (): string => `--kubeconfig=${join(bed.nics.folder, "admin")}`;
  const clouds = (): string => join(bed.nics.folder, "clouds.yaml");
  async function audit(): Promise<string> {
    const sockets = ["node1", "node2"].map((name) => `--nic-socket=${bed.node(name).socket}`);
    const { stdout, stderr } = await isthmus(["audit", kubeconfig(), `--nic-credentials=${clouds()}`, ...sockets]);
    assert.equal(stderr, "");
    return stdout;
  }
  const doctor = async (node: string): Promise<string> => {
    const ovsdb = `--ovsdb=${bed.neutron.bed.ovs(node).socketPath}`;
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

  test("doctor, here and there: all is well; the agent that has died is named on its node, and by Neutron", async () => {
    for (const node of ["node1", "node2"]) {
      const text = await doctor(node);
      assert.match(text, /^ok +Open vSwitch +bridge br-int is connected to the provider's agent$/m);
      assert.match(text, /^ok +provider-host +ports are bound to the name of the Node, node\d, and active$/m);
    }
    const well = await nicctl("doctor");
    for (const node of ["node1", "node2"])
      assert.match(well, new RegExp(`^ok +node ${node} +Open vSwitch agent of neutron is alive on host ${node}$`, "m"));
    assert.match(well, /^ok +NicClaims +2, none of which has waited for two minutes$/m);
    await bed.neutron.bed.stopAgent("node2");
    await bed.nics.until("the switch sees it", async () =>
      /^wrong +Open vSwitch +the provider's agent is dead: nobody answers at tcp:/m.test(await doctor("node2")),
    );
    await bed.neutron.bed.untilAlive("node2", {}, false);
    assert.match(
      await nicctl("doctor"),
      /^wrong +node node2 +Open vSwitch agent of neutron on host node2 is not alive/m,
    );
    assert.match(await doctor("node1"), /^ok +Open vSwitch +bridge br-int is connected to the provider's agent$/m);
    bed.neutron.bed.startAgent("node2");
    await bed.neutron.bed.untilAlive("node2");
    await bed.nics.until("the bridge is served again", async () =>
      /^ok +Open vSwitch +bridge br-int is connected to the provider's agent$/m.test(await doctor("node2")),
    );
  });

  test("gc and audit find nothing after the pods", async () => {
    for (const pod of pods) await bed.end(pod);
    assert.equal(
      await nicctl("gc", "--cluster-id=c1", "--min-age=1ms"),
      "no port of cluster c1 is without a NicClaim\n",
    );
    assert.match(await audit(), /^no findings: .* agree on 0 NicClaims, 0 ports, 0 plugged NICs\n$/);
  });
});
