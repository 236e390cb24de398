import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, test } from "node:test";
import { labPaths } from "#lab/host";
import type { LabReport } from "#lab/scenario";
import {
  ISTHMUS,
  isthmus,
  type KnownProcess,
  leftOf,
  namespacesOf,
  processesOf,
  type Running,
  removeLab,
  start,
  stateOf,
  until,
} from "#test/lab";

const LAB = "ct-lab";
const SMALL = ["--nodes=2", "--pods=4"];
const TIMEOUT = { timeout: 90_000 };

after(async () => removeLab(LAB));

async function report(args: readonly string[]): Promise<LabReport> {
  const { code, stdout, stderr } = await isthmus(["lab", "--json", `--name=${LAB}`, ...args]);
  assert.equal(code, 0, `isthmus lab ended with ${code}: ${stderr}${stdout}`);
  return JSON.parse(stdout) as LabReport;
}

function assertGood(found: LabReport, wanted: { nodes: number; pods: number; families: readonly string[] }): void {
  assert.equal(found.ok, true);
  assert.equal(found.nodes, wanted.nodes);
  assert.equal(found.cluster.nodes.length, wanted.nodes);
  assert.equal(found.pods, wanted.pods);
  assert.equal(found.cluster.pods.length, wanted.pods);
  assert.deepEqual(found.families, wanted.families);
  assert.ok(found.pings.sent > 0, "nothing was pinged");
  assert.equal(found.pings.answered, found.pings.sent);
  assert.equal(found.addresses.unique, true);
  assert.deepEqual(found.addresses.outsideBlocks, []);
  assert.ok(found.routes.exported > 0, "no route was exported");
  assert.equal(found.routes.exported, found.routes.wanted);
  assert.deepEqual(found.audit.findings, []);
  assert.ok(Number.isFinite(found.seconds) && found.seconds > 0, `seconds is ${found.seconds}`);
}

/** Starts a lab and waits until it has printed a line. */
async function startedLab(said: RegExp): Promise<Running> {
  const running = start([ISTHMUS, "lab", "--json", `--name=${LAB}`, "--nodes=2", "--pods=20"]);
  await until(`the lab says ${said}`, () => said.test(running.said()) || running.child.exitCode !== null);
  assert.equal(running.child.exitCode, null, `the lab ended early: ${running.said()}`);
  return running;
}

test(
  "lab: the default one has three nodes and twelve pods that reach each other in both families",
  TIMEOUT,
  async () => {
    assertGood(await report([]), { nodes: 3, pods: 12, families: ["ipv4", "ipv6"] });
    assert.deepEqual(leftOf(LAB), []);
  },
);

for (const moment of [/^building/m, /^starting \d+ programs/m, /^([1-9]|1\d) of 20 pods run/m]) {
  test(`lab: Ctrl-C after it prints ${moment.source} leaves nothing behind`, TIMEOUT, async () => {
    const running = await startedLab(moment);
    const known = processesOf(LAB);
    running.child.kill("SIGINT");
    const { code, stdout } = await running.ended;
    assert.notEqual(code, 0);
    assert.equal(stdout, "");
    assert.deepEqual(leftOf(LAB, known), []);
  });
}

test("lab: a front end that is killed leaves nothing behind", TIMEOUT, async () => {
  const running = await startedLab(/^([1-9]|1\d) of 20 pods run/m);
  const known = processesOf(LAB);
  assert.ok(known.length >= 6, `a lab with pods has more than ${known.length} processes`);
  running.child.kill("SIGKILL");
  await running.ended;
  await until("the lab is gone", () => leftOf(LAB, known).length === 0, { seen: () => leftOf(LAB, known).join("\n") });
});

test(
  "lab: the next start removes a lab whose host and front end were killed; without --json its report is text, with pods, nodes and the result",
  TIMEOUT,
  async () => {
    const running = await startedLab(/^([1-9]|1\d) of 20 pods run/m);
    const known: readonly KnownProcess[] = processesOf(LAB);
    process.kill(stateOf(LAB).pid, "SIGKILL");
    running.child.kill("SIGKILL");
    await running.ended;
    assert.ok(namespacesOf(LAB).length > 0, "a killed lab leaves its namespaces, or the test tests nothing");
    const { code, stdout, stderr } = await isthmus(["lab", `--name=${LAB}`, ...SMALL]);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /removed the remains of an earlier lab: \d+ processes, \d+ namespaces/);
    assert.match(stdout, /^NODE +ADDRESSES +PODS +BLOCKS$/m);
    assert.match(stdout, /^all is well: 2 nodes, 4 pods, [\d.]+ s$/m);
    assert.deepEqual(leftOf(LAB, known), []);
  },
);

test(
  "lab: a kept lab can be used, also by kubectl exec in a pod, is not started twice, and is removed once",
  TIMEOUT,
  async () => {
    const found = await report([...SMALL, "--keep"]);
    assertGood(found, { nodes: 2, pods: 4, families: ["ipv4", "ipv6"] });
    const known = processesOf(LAB);
    const name = `--name=${LAB}`;
    const paths = labPaths(LAB);

    const kubeconfig = await isthmus(["lab", "kubeconfig", name]);
    assert.equal(kubeconfig.code, 0);
    assert.match(kubeconfig.stdout, /^ +server: https:\/\/127\.0\.0\.1:\d+$/m);

    const route = await isthmus(["lab", "exec", name, "node1", "--", "ip", "route"]);
    assert.equal(route.code, 0, route.stderr);
    assert.match(route.stdout, /172\.31\.0\.0\/20/);

    const pod = found.cluster.pods.find(({ addresses }) => addresses.length === 2);
    const [ipv4 = "none", ipv6 = "none"] = pod?.addresses ?? [];
    const addr = await isthmus(["lab", "exec", name, pod?.name ?? "", "--", "ip", "addr", "show", "eth0"]);
    assert.equal(addr.code, 0, addr.stderr);
    assert.ok(addr.stdout.includes(`inet ${ipv4}/32`), addr.stdout);
    assert.ok(addr.stdout.includes(`inet6 ${ipv6}/128`), addr.stdout);

    // Straight to its node, with its input and exit code.
    const [namespace = "", ownName = ""] = pod?.name.split("/") ?? [];
    const kubectl = [
      "kubectl",
      `--kubeconfig=${paths.kubeconfig}`,
      "exec",
      "--stdin",
      "--namespace",
      namespace,
      ownName,
    ];
    const command = ["sh", "-c", "ip -o address show eth0; cat; exit 7"];
    const inPod = await start([...kubectl, "--", ...command], { input: Buffer.from("and this") }).ended;
    assert.equal(inPod.code, 7, inPod.stderr);
    assert.ok(inPod.stdout.includes(` ${ipv4}/`) && inPod.stdout.endsWith("and this"), inPod.stdout);

    const failing = await isthmus(["lab", "exec", name, "node2", "--", "sh", "-c", "exit 7"]);
    assert.equal(failing.code, 7);
    const nobody = await isthmus(["lab", "exec", name, "nobody", "--", "true"]);
    assert.equal(nobody.code, 1);
    assert.match(nobody.stderr, /no running pod or node nobody in lab ct-lab/);

    const sockets = ["node1", "node2"].map((node) => `--socket=${paths.socketOf(node)}`);
    const audit = await isthmus(["audit", `--kubeconfig=${paths.kubeconfig}`, ...sockets]);
    assert.equal(audit.code, 0, audit.stdout + audit.stderr);
    assert.match(
      audit.stdout,
      /no findings: API server, kernel and memory agree on 2 nodes, \d+ blocks, 4 pods, 4 links/,
    );

    const second = await isthmus(["lab", name]);
    assert.equal(second.code, 1);
    assert.match(second.stderr, /lab ct-lab already runs: remove it with isthmus lab down/);
    assert.ok(existsSync(paths.state), "a refused second start harmed the first lab");

    const down = await isthmus(["lab", "down", name]);
    assert.deepEqual([down.code, down.stderr], [0, `lab ${LAB} removed\n`]);
    assert.deepEqual(leftOf(LAB, known), []);
    const again = await isthmus(["lab", "down", name]);
    assert.deepEqual([again.code, again.stderr], [0, `there is no lab ${LAB}\n`]);
    const absent = await isthmus(["lab", "exec", name, "node1", "--", "true"]);
    assert.equal(absent.code, 1);
    assert.match(absent.stderr, /lab ct-lab does not run: start it with isthmus lab --keep --name ct-lab/);
  },
);
