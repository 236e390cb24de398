/** Chains of plugins as shipped: coil behind Debian's ptp in a lab, and Debian's plugins behind coil. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, test } from "node:test";
import { openKernel } from "#kernel/net";
import { labPaths } from "#lab/host";
import type { LabReport } from "#lab/scenario";
import { ISTHMUS, isthmus, leftOf, removeLab, start, stateOf } from "#test/lab";

const LAB = "ct-chained";
const PLUGINS = "/usr/lib/cni";
after(async () => removeLab(LAB));

for (const [family, families] of [
  ["dual", ["ipv4", "ipv6"]],
  ["ipv4", ["ipv4"]],
] as const) {
  test(`lab: --chained --families=${family} runs the default scenario with coil behind ptp`, async () => {
    const args = ["lab", "--json", "--chained", `--name=${LAB}`, "--nodes=2", "--pods=6", `--families=${family}`];
    const { code, stdout, stderr } = await isthmus(args);
    assert.equal(code, 0, stderr + stdout);
    const report = JSON.parse(stdout) as LabReport;
    assert.deepEqual(
      [report.ok, report.pods, report.families, report.addresses.outsideBlocks, report.routes, report.audit.findings],
      [true, 6, families, [], { exported: 0, wanted: 0 }, []],
    );
    assert.ok(report.pings.sent > 0 && report.pings.answered === report.pings.sent && report.pings.acrossNodes > 0);
    assert.deepEqual(report.chained, { marked: 6, unmarked: [], strays: [] });
    assert.deepEqual(leftOf(LAB), []);
  });
}

test("lab: --chained refuses what it cannot be combined with, by name", async () => {
  const { code, stderr } = await isthmus(["lab", "--chained", "--services", "--tunnel", `--name=${LAB}`]);
  assert.notEqual(code, 0);
  assert.match(stderr, /--chained: this flag cannot be combined with --tunnel, --services/);
});

test("coil is the first of a chain with Debian's tuning and portmap behind it, in each version that they know", async (t) => {
  const { code, stdout, stderr } = await isthmus(["lab", "--json", "--keep", `--name=${LAB}`, "--nodes=1", "--pods=1"]);
  assert.equal(code, 0, stderr);
  const [namespace, name] = ((JSON.parse(stdout) as LabReport).cluster.pods[0]?.name ?? "").split("/");
  const node = stateOf(LAB).nodes[0]?.netns ?? assert.fail();
  const kernel = openKernel();
  const pod = `isthmus-${LAB}-extra`;
  kernel.createNetNs(pod)[Symbol.dispose]();
  t.after(() => kernel.deleteNetNs(pod));
  const links = (): string => execFileSync("ip", ["-n", node, "-o", "link", "show"], { encoding: "utf8" });
  const before = links().split("\n").length;
  const chain = [
    { executable: join(ISTHMUS, "../cni/coil"), config: { type: "coil", socket: labPaths(LAB).socketOf("node1") } },
    { executable: join(PLUGINS, "tuning"), config: { type: "tuning", mtu: 1300, mac: "02:00:00:00:77:01" } },
    { executable: join(PLUGINS, "portmap"), config: { type: "portmap", runtimeConfig: { portMappings: [] } } },
  ];
  for (const cniVersion of ["0.3.1", "0.4.0", "1.0.0"]) {
    const call = async (command: string, plugin: (typeof chain)[number], prevResult: unknown): Promise<unknown> => {
      const env = {
        CNI_COMMAND: command,
        CNI_CONTAINERID: "chain1",
        CNI_NETNS: `/run/netns/${pod}`,
        CNI_IFNAME: "eth0",
        CNI_PATH: PLUGINS,
        CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name}`,
      };
      const input = Buffer.from(JSON.stringify({ cniVersion, name: "k8s-pod-network", ...plugin.config, prevResult }));
      const done = await start(["nsenter", `--net=/run/netns/${node}`, plugin.executable], { env, input }).ended;
      assert.equal(done.code, 0, `${command} ${plugin.config.type} ${cniVersion}: ${done.stdout}${done.stderr}`);
      return done.stdout.trim() === "" ? undefined : JSON.parse(done.stdout);
    };
    let result: unknown;
    for (const plugin of chain) result = await call("ADD", plugin, result);
    const { interfaces, ips } = result as { interfaces: { name: string; mac: string }[]; ips: { version?: string }[] };
    assert.equal(interfaces.find((link) => link.name === "eth0")?.mac, "02:00:00:00:77:01");
    assert.equal(ips[0]?.version, cniVersion === "1.0.0" ? undefined : "4");
    // CHECK tolerates the MTU and the MAC address that tuning has changed.
    if (cniVersion !== "0.3.1") for (const plugin of chain.slice(0, 2)) await call("CHECK", plugin, result);
    for (const plugin of chain.toReversed()) await call("DEL", plugin, result);
    assert.equal(links().split("\n").length, before);
  }
});
