import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import type { LabReport } from "#lab/scenario";
import { isthmus, leftOf, processesOf, removeLab } from "#test/lab";
import { skipWithoutNeutron } from "#test/live-neutron";

const LAB = "ct-vpc";

test("lab --vpc: other flags that need the same nodes are refused together", async () => {
  const { code, stderr } = await isthmus(["lab", "--vpc", "--services", "--uplinks", `--name=${LAB}`]);
  assert.equal(code, 2);
  assert.match(stderr, /--vpc: this flag cannot be combined with --uplinks, --services/);
  const one = await isthmus(["lab", "--vpc", "--nodes=1", `--name=${LAB}`]);
  assert.match(one.stderr, /--vpc: the lab needs two nodes or more, with IPv4/);
});

suite("lab --vpc", { timeout: 280_000, skip: skipWithoutNeutron }, () => {
  let report: LabReport;
  let vpc: NonNullable<LabReport["vpc"]>;
  before(async () => {
    const args = ["lab", "--vpc", "--json", `--name=${LAB}`, "--nodes=2", "--pods=2"];
    const { code, stdout, stderr } = await isthmus(args, { timeoutMs: 270_000 });
    assert.equal(code, 0, `isthmus lab ended with ${code}: ${stderr}${stdout}`);
    report = JSON.parse(stdout) as LabReport;
    assert.ok(report.vpc !== undefined);
    vpc = report.vpc;
  });
  after(() => removeLab(LAB));

  test("lab --vpc: the pods of Arktos' design have their NICs on both hosts, and reach each other", () => {
    assert.deepEqual(
      vpc.pods.map(({ name, node, plug }) => [name, node, plug]),
      [
        ["pod1", "node1", "direct"],
        ["pod2", "node2", "hybrid"],
        ["pod3", "node1", "direct"],
        ["pod4", "node2", "hybrid"],
      ],
    );
    assert.equal(vpc.pods[2]?.nics[0]?.address, "192.168.0.12");
    assert.deepEqual([vpc.pings.sent, vpc.pings.answered], [12, 12]);
  });

  test("lab --vpc: a pod waits for an address and a port of others, and has both when they are gone", () => {
    assert.deepEqual(
      vpc.waiting.nics.map(({ name, reason }) => [name, reason]),
      [
        ["eth0", "IpInUse"],
        ["eth1", "PortInUse"],
      ],
    );
    assert.equal(vpc.healed.nics[0]?.address, "192.168.0.12");
    assert.equal(vpc.healed.nics[1]?.port, vpc.pods[3]?.nics[0]?.port);
    assert.ok(vpc.group.dropped && vpc.group.openSeconds !== null);
    assert.deepEqual(vpc.left, { ports: [], userPort: [] });
  });

  test("lab --vpc: pods without a VPC are coil's as ever, and nothing is left of the lab", () => {
    assert.equal(report.ok, true);
    assert.equal(report.pings.answered, report.pings.sent);
    assert.deepEqual([leftOf(LAB), processesOf(LAB)], [[], []]);
  });
});
