// `isthmus lab --vpc --vpc-driver=ovn`: the same NICs where OVN programs the switches (docs/spec/vpc-nics.md#8.3): its bindings tell neither the data
// path nor how to plug, so the agent asks the switch.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isthmus, leftOf, processesOf, start } from "#test/lab";
import { LiveBed, type LivePod, skipWithoutOvn } from "#test/live-neutron";
import { nicOf } from "#test/nic-cluster";

const LAB = "ovn";
/** More than all buffers of a connection, so that its segments are large. */
const BYTES = 8 << 20;

test("lab --vpc-driver: it has a meaning with --vpc alone", async () => {
  const { code, stderr } = await isthmus(["lab", "check", "--vpc-driver=ovn"]);
  assert.equal(code, 2);
  assert.match(stderr, /--vpc-driver: this flag has a meaning with --vpc alone; add --vpc/);
});

describe("NICs on a live OVN", { skip: skipWithoutOvn }, () => {
  let bed: LiveBed;
  let pods: readonly [LivePod, LivePod];

  before(async () => {
    bed = await LiveBed.open(LAB, { driver: "ovn" });
    pods = await Promise.all([bed.start("one", "node1"), bed.start("two", "node2")]);
  });
  after(() => bed?.[Symbol.asyncDispose]());

  const doctor = async (node: string): Promise<string> => {
    const flags = [`--kubeconfig=${bed.kubeconfig}`, `--nic-socket=${bed.node(node).socket}`];
    return (await isthmus(["doctor", ...flags, `--ovsdb=${bed.cloud.ovs(node).socketPath}`])).stdout;
  };

  test("lab --vpc-driver=ovn: the pods of Arktos' design have their NICs without a Linux bridge; groups drop and open; nothing is left", () => {
    const vpc = bed.report.vpc ?? assert.fail("the report has no VPC");
    assert.deepEqual(
      vpc.pods.map(({ name, node, plug, seconds }) => [name, node, plug, seconds !== null]),
      ["pod1", "pod2", "pod3", "pod4"].map((name, at) => [name, `node${(at % 2) + 1}`, "direct", true]),
    );
    assert.deepEqual([vpc.pings.sent, vpc.pings.answered], [12, 12]);
    assert.ok(vpc.group.dropped && vpc.group.openSeconds !== null);
    assert.deepEqual(vpc.left, { ports: [], userPort: [] });
    assert.equal(bed.report.ok, true);
  });

  test("B31: a direct plug makes one device, and TCP of large segments passes between the nodes", async () => {
    const names = await Promise.all(
      pods.map(async (pod) => `tap${(nicOf(await bed.claim(pod)).portID ?? "").slice(0, 11)}`),
    );
    assert.deepEqual(
      [bed.devices("node1"), bed.devices("node2")],
      names.map((name) => [name]),
    );
    for (const pod of pods) await bed.cni("CHECK", pod);
    await bed.untilReaches(pods[0], pods[1]);
    const sent = randomBytes(BYTES);
    const file = join(bed.folder, "sent");
    writeFileSync(file, sent);
    const address = await bed.address(pods[1]);
    const serve = `import http.server,functools; http.server.HTTPServer(("${address}",8080), functools.partial(http.server.SimpleHTTPRequestHandler, directory="${bed.folder}")).serve_forever()`;
    const server = start(["ip", "netns", "exec", pods[1].netns, "/usr/bin/python3", "-c", serve]);
    try {
      const fetch = ["-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", "--max-time", "60"];
      execFileSync(
        "ip",
        ["netns", "exec", pods[0].netns, "curl", ...fetch, "-o", `${file}.got`, `http://${address}:8080/sent`],
        { encoding: "utf8" },
      );
      assert.ok(readFileSync(`${file}.got`).equals(sent));
    } finally {
      server.child.kill("SIGKILL");
      await server.ended;
      rmSync(file, { force: true });
    }
  });

  test("B31: doctor speaks of OVN: all is well, and the ovn-controller that has died is named with its service", async () => {
    assert.match(await doctor("node1"), /^ok +Open vSwitch +bridge br-int is set up for OVN \(ovn-remote\)$/m);
    assert.match(
      await doctor("node1"),
      /^ok +provider-host +ports are bound to the name of the Node, node1, and active$/m,
    );
    await bed.cloud.stopAgent("node2");
    await bed.cloud.untilAlive("node2", {}, false);
    const clouds = `--credentials=${bed.clouds}`;
    const { stdout } = await isthmus(["nicctl", `--kubeconfig=${bed.kubeconfig}`, clouds, "doctor"]);
    assert.match(stdout, /^wrong +node node2 +.* on host node2 is not alive/m);
  });

  test("a NIC ends with its pod; nothing is left of the lab", async () => {
    for (const pod of pods) await bed.end(pod);
    assert.deepEqual([bed.devices("node1"), bed.devices("node2")], [[], []]);
    await bed[Symbol.asyncDispose]();
    assert.deepEqual([leftOf(LAB), processesOf(LAB)], [[], []]);
  });
});
