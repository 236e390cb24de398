// in turn: it needs the processor within seconds, when programs are replaced under pings.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { labPaths } from "#lab/host";
import type { LabReport } from "#lab/scenario";
import { isthmus, leftOf, processesOf, removeLab, start } from "#test/lab";

const LAB = "ct-upgrade";
/** The longest time without a new connection while a program on its way is replaced: that of a proxy's end and start on a busy machine, in milliseconds. */
const OUTAGE_MS = 15_000;
const root = join(import.meta.dirname, "../..");

type Found = NonNullable<LabReport["upgrade"]>;

suite("lab --upgrade", { timeout: 280_000 }, () => {
  let report: LabReport;
  let upgrade: Found;
  before(async () => {
    // The release before; a build that is there already takes no time.
    const built = await start([process.execPath, join(root, "tools/release.ts")], { timeoutMs: 150_000 }).ended;
    assert.equal(built.code, 0, built.stderr);
    const args = ["lab", "--json", `--name=${LAB}`, `--upgrade=${built.stdout.trim()}`, "--pods=6"];
    const { code, stdout, stderr } = await isthmus(args, { timeoutMs: 200_000 });
    assert.equal(code, 0, `isthmus lab ended with ${code}: ${stderr}${stdout}`);
    report = JSON.parse(stdout) as LabReport;
    assert.ok(report.upgrade !== undefined);
    upgrade = report.upgrade;
  });
  after(() => removeLab(LAB));

  test("lab --upgrade: every program is replaced place by place, first by this build, then by the release before", () => {
    const { from, to, steps } = upgrade;
    assert.notEqual(from, to);
    const names = [`all on ${from}`, `API types of ${to}`, `controllers to ${to}`, `node1 to ${to}`, `node2 to ${to}`];
    names.push(
      `node3 to ${to}`,
      `routers to ${to}`,
      `node1 to ${from}`,
      `node2 to ${from}`,
      `node3 to ${from}`,
      `controllers to ${from}`,
      `routers to ${from}`,
    );
    assert.deepEqual(
      steps.map(({ name }) => name),
      names,
    );
    // Two controllers and the tunnel's server, four programs on each node, and the uplink proxy on the first.
    assert.deepEqual(
      steps.map(({ programs }) => programs.after),
      [0, 0, 3, 8, 12, 16, 16, 11, 7, 3, 0, 0],
    );
    for (const { programs } of steps) assert.equal(programs.before + programs.after, 16);
  });

  test("lab --upgrade: no ping between pods is lost in any step", () => {
    for (const { name, pings, lostBy } of upgrade.steps) {
      // Three nodes, both families, both ways, twenty times in a second; no step is shorter than half of one.
      assert.ok(pings.sent >= 60, `${name}: ${pings.sent}`);
      assert.equal(pings.lost, 0, `${name}: ${lostBy.join("; ")}`);
    }
  });

  test("lab --upgrade: connections between pods and to a Service live through all steps, those through an Egress, the tunnel and the uplink proxy until a program on their way is replaced, with no byte missing", () => {
    const { connections } = upgrade;
    const kinds = connections.map(({ name }) => name.split(" (")[0]);
    // Of each family one, and after each replacement on its way but the last of the routers one more.
    for (const [kind, count] of [
      ["pod to pod", 2],
      ["pod to Service", 2],
      ["pod through Egress", 4],
      ["control plane through the tunnel", 10],
      ["node1 through the uplink proxy", 6],
    ] as const)
      assert.equal(kinds.filter((one) => one === kind).length, count, `${kind}: ${kinds.join(", ")}`);
    for (const { name, fault, received } of connections) {
      assert.equal(fault, null, name);
      // Some are opened just before the next program on their way is replaced.
      assert.ok(received > (name.startsWith("pod ") ? 100 : 0), `${name}: ${received}`);
    }
    const longest = (kind: string): number =>
      Math.max(...connections.filter(({ name }) => name.startsWith(kind)).map(({ received }) => received));
    for (const kind of ["control plane through the tunnel", "node1 through the uplink proxy"])
      assert.ok(longest(kind) > 50, `${kind}: ${longest(kind)}`);
  });

  test("lab --upgrade: while routers, the tunnel's programs and the uplink proxy are replaced new connections are tried all the time, and succeed again", (t) => {
    const { from, to, steps } = upgrade;
    const waysOf = (name: string): readonly string[] =>
      (steps.find((step) => step.name === name)?.outages ?? []).map(({ way }) => way.split(" (")[0] ?? "");
    const tunnel = "control plane through the tunnel";
    for (const version of [from, to]) {
      assert.deepEqual(waysOf(`controllers to ${version}`), [tunnel, tunnel]);
      assert.deepEqual(waysOf(`node3 to ${version}`), [tunnel, tunnel]);
      assert.deepEqual(waysOf(`node1 to ${version}`), Array(2).fill("node1 through the uplink proxy"));
      assert.deepEqual(waysOf(`routers to ${version}`), Array(2).fill("pod through Egress"));
      assert.deepEqual(waysOf(`node2 to ${version}`), []);
    }
    for (const { name, outages } of steps)
      for (const { way, ms } of outages) {
        assert.ok(ms > 0 && ms < OUTAGE_MS, `${name}: ${way}: ${ms}`);
        t.diagnostic(`${name}: ${way}: no new connection for ${ms} ms`);
      }
  });

  test("lab --upgrade: after each step pods are made and deleted on old and new nodes, new connections open, addresses stay, and the audit finds nothing", () => {
    for (const { name, made, opened, faults, findings } of upgrade.steps) {
      assert.deepEqual([...faults, ...findings], [], name);
      assert.equal(opened, 10, name);
      assert.ok(made.length > 0 || /^(API types|routers)/.test(name), name);
    }
    const of = (name: string): readonly string[] => upgrade.steps.find((one) => one.name === name)?.made ?? [];
    // The node that has the new build, and one that does not have it yet; then the other way round.
    assert.deepEqual(of(`node1 to ${upgrade.to}`), ["dual/on-node1", "dual/on-node3"]);
    assert.deepEqual(of(`node1 to ${upgrade.from}`), ["dual/on-node1", "dual/on-node3"]);
    assert.equal(upgrade.pods, 6);
  });

  test("lab --upgrade: nothing of the lab is left, and the executables of its nodes neither", () => {
    assert.deepEqual(leftOf(LAB, processesOf(LAB)), []);
    assert.ok(!existsSync(labPaths(LAB).disk));
  });
});

test("lab --upgrade: a folder that is no built release is refused by name, and so are other scenarios", async (t) => {
  t.after(() => removeLab("ct-upgrade-no"));
  const none = await isthmus(["lab", "--name=ct-upgrade-no", `--upgrade=${join(root, "docs")}`]);
  assert.equal(none.code, 1, none.stderr);
  assert.match(
    none.stderr,
    /docs\/dist\/isthmus is not there; a folder must be a built checkout, as \.\/run release-build/,
  );
  const both = await isthmus(["lab", "--name=ct-upgrade-no", "--upgrade=x", "--tunnel"]);
  assert.equal(both.code, 2, both.stderr);
  assert.match(both.stderr, /--upgrade: this flag cannot be combined with --tunnel/);
});

test("./run lab --upgrade: flags that a lab with an upgrade refuses are refused before the other release is built", async () => {
  for (const [flags, why] of [
    ["--nodes=1", /needs two nodes or more/],
    ["--vpc", /cannot be combined with --vpc/],
  ] as const) {
    const { code, stderr } = await start([join(root, "run"), "lab", "--upgrade", flags]).ended;
    assert.equal(code, 2, stderr);
    assert.match(stderr, why);
    assert.doesNotMatch(stderr, /release/);
  }
});
