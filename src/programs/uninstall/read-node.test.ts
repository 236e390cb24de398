import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { planNode } from "#features/uninstall";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { canChangeNode, changedSettings, files, inRoot, programOf, readNode } from "./read-node.ts";

const NODE = new Set(["coild", "service-proxy", "nic-agent", "node"]);
const line = (...words: string[]): string => words.join("\0");

test("programOf: programs for nodes are known by the name of their link, or by their first word", () => {
  const bundle = "/usr/lib/isthmus/isthmus.mjs";
  const called = (name: string): string => line("PATH=/bin", `ISTHMUS_CALLED_AS=${name}`, "HOME=/");
  assert.equal(programOf(line("node", "--x", bundle, "--socket=/run/a"), called("coild"), NODE), "coild");
  assert.equal(programOf(line("node", bundle, "service-proxy", "--v=1"), called("isthmus"), NODE), "service-proxy");
  assert.equal(programOf(line("node", "/c/src/programs/start.ts", "nic-agent"), "", NODE), "nic-agent");
  assert.equal(programOf(line("node", bundle, "node", "--", "coild"), called("isthmus"), NODE), "node");
});

test("programOf: programs of an administrator, labs and other processes are none", () => {
  for (const words of [
    ["node", "/a/isthmus.mjs", "uninstall", "--pods"],
    ["node", "/a/isthmus.mjs", "lab-host", "--name=coild"],
    ["vim", "coild"],
    ["node", "/a/notisthmus.mjs", "coild"],
  ])
    assert.equal(programOf(line(...words), "ISTHMUS_CALLED_AS=isthmus", NODE), undefined, words.join(" "));
});

test("canChangeNode: root's Node, and that of a user with CAP_NET_ADMIN of this user namespace; nobody else's, whatever its command line says", () => {
  const status = (uid: number, capabilities = "0"): string =>
    `Name:\tnode\nUid:\t0\t${uid}\t0\t0\nCapEff:\t${capabilities}\n`;
  const of = (text: string, executable = "/usr/lib/isthmus/bin/node", isHere = true): boolean =>
    canChangeNode({ status: text, executable, isHere });
  assert.equal(of(status(0)), true);
  assert.equal(of(status(0), "/usr/lib/isthmus/bin/node (deleted)"), true);
  assert.equal(of(status(100, "0000000000001000")), true);
  assert.equal(of(status(100, "0000000000000fff")), false);
  assert.equal(of(status(65_534)), false);
  assert.equal(of(status(0), "/usr/bin/sleep"), false);
  assert.equal(of(status(0, "000001ffffffffff"), "/bin/node", false), false);
});

test("changedSettings: a setting whose link is gone is none", () => {
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  stack.links.create({ kind: "bridge", name: "eth0" });
  const [there, gone] = ["net/ipv6/conf/eth0/accept_ra", "net/ipv6/conf/eth1/accept_ra"] as const;
  stack.sysctl.set(there, 2);
  assert.deepEqual(changedSettings(stack, { [there]: "1", [gone]: "1" }), [{ key: there, former: "1", now: "2" }]);
});

test("inRoot: paths are in the folder of the node's files", () => {
  assert.equal(inRoot({ root: "" }, "/run/coild.sock"), "/run/coild.sock");
  assert.equal(inRoot({ root: "/host" }, "/run/coild.sock"), "/host/run/coild.sock");
});

test("inRoot: links of folders lead where the node's lead, and never out of the root; the file's own link is not followed", (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "opt/cni"), { recursive: true });
  symlinkSync("/usr/libexec/cni", join(root, "opt/cni/bin"));
  symlinkSync("../../..", join(root, "opt/up"));
  symlinkSync("/round", join(root, "round"));
  symlinkSync("/elsewhere", join(root, "opt/link"));
  for (const [path, expected] of [
    ["/opt/cni/bin/coil", "usr/libexec/cni/coil"],
    ["/opt/up/x", "x"],
    ["/opt/link", "opt/link"],
    ["/round/x", "round/x"],
  ] as const)
    assert.equal(inRoot({ root }, path), join(root, expected), path);
});

test("files: own configurations that were put aside are removed, those of others come back; links that lead nowhere and folders do no harm", (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  const etc = join(root, "etc/cni/net.d");
  mkdirSync(join(etc, "40-folder.conf"), { recursive: true });
  mkdirSync(join(root, "opt/cni/bin"), { recursive: true });
  const conflist = (type: string): string => JSON.stringify({ name: "n", plugins: [{ type }] });
  writeFileSync(join(etc, "05-vpc.conflist"), conflist("vpc-neutron"));
  writeFileSync(join(etc, "10-coil.conflist.coil-disabled"), conflist("coil"));
  writeFileSync(join(etc, "20-other.conflist.coil-disabled"), conflist("bridge"));
  symlinkSync("/nowhere", join(etc, "30-link.conflist"));
  symlinkSync("/nowhere", join(root, "opt/cni/bin/coil"));
  symlinkSync("/nowhere", join(root, "opt/cni/bin/vpc-alcor"));
  const places = {
    ...{ root, cniEtcDir: "/etc/cni/net.d", cniBinDir: "/opt/cni/bin", socket: "/run/coild.sock" },
    nodePrograms: new Set<string>(),
  };
  assert.deepEqual(
    files(places).map(({ path, role }) => [path.slice(root.length), role]),
    [
      ["/etc/cni/net.d/05-vpc.conflist", "configuration"],
      ["/etc/cni/net.d/10-coil.conflist.coil-disabled", "configuration"],
      ["/etc/cni/net.d/20-other.conflist.coil-disabled", "set-aside"],
      ["/opt/cni/bin/coil", "foreign-executable"],
      ["/opt/cni/bin/vpc-alcor", "executable"],
    ],
  );
});

test("files: the folders of programs in /run/isthmus go, and with them the whole folder unless somebody else has something there", (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  for (const name of ["coild", "nic-agent"]) mkdirSync(join(root, "run/isthmus", name), { recursive: true });
  const places = {
    ...{ root, cniEtcDir: "/etc/cni/net.d", cniBinDir: "/opt/cni/bin", socket: "/run/coild.sock" },
    nodePrograms: new Set(["coild", "nic-agent", "service-proxy"]),
  };
  const found = (): readonly string[] => files(places).map(({ path }) => path.slice(root.length));
  assert.deepEqual(found(), ["/run/isthmus"]);
  mkdirSync(join(root, "run/isthmus/lab-x"));
  assert.deepEqual(found(), ["/run/isthmus/coild", "/run/isthmus/nic-agent"]);
});

/** A plan of `nic-agent` with one NIC of Alcor, whose device is in the sandbox. */
const alcorPlan = (containerId: string, names: readonly string[]): string =>
  JSON.stringify({
    ...{ containerId, podUid: "uid-1", network: "vpc", netns: "/run/netns/s", dns: {} },
    nics: names.map((name, index) => ({
      ...{ name, portId: "30b6911d-1111-4111-8111-000000000001", index, metric: 100, acceptRa: false },
      ...{ addresses: ["10.0.0.5/24"], routes: [], rules: [] },
      place: { kind: "alcor", netns: "/run/netns/vpc-ns1", device: "veth30b6911d-11", waitMs: 1, mizarTuning: true },
    })),
  });

const readPlan = (stack: NetStack, root: string): ReturnType<typeof planNode> =>
  planNode(
    readNode(
      { stack, nft: new FakeNft(), elements: new FakeNftElements() },
      {
        ...{ root, cniEtcDir: "/etc/cni/net.d", cniBinDir: "/opt/cni/bin", socket: "/run/coild.sock" },
        ...{ podTableId: 116, podRulePrio: 2000, exportTableId: 119, protocolId: 30, routerProtocolId: 31 },
        ...{ tableName: "kube-proxy", nodePrograms: new Set<string>() },
        bindAddress: [IpAddress.parse("10.255.255.1")],
      },
    ),
    { pods: true, restoreSettings: false },
  );

test("readNode: NICs that are in sandboxes alone are known by nic-agent's journal, and refuse the removal by container", (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  const journal = join(root, "var/lib/isthmus/cni");
  const write = (name: string, text: string): void => writeFileSync(join(journal, name), text);
  mkdirSync(journal, { recursive: true });
  mkdirSync(join(root, "run/netns"), { recursive: true });
  writeFileSync(join(root, "run/netns/s"), "");
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const read = () => readPlan(stack, root).refused;
  write("c0.json", alcorPlan("c0", []));
  assert.deepEqual(read(), [], "a plan without a NIC is no reason");
  write("c1.json", alcorPlan("c1", ["eth0", "eth1"]));
  assert.deepEqual(read(), [
    "containers have NICs of VPCs (c1: eth0, eth1): delete their pods while nic-agent runs, which unplugs their ports",
  ]);
  write("c2.json", "{");
  const [, fault = ""] = read();
  assert.match(fault, /c2\.json is not JSON: remove it if its container is gone/);
  assert.ok(fault.includes(root), fault);
});

test("readNode: NICs of a sandbox that is gone are removed, and refuse nothing; a folder without /run cannot tell", (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "var/lib/isthmus/cni"), { recursive: true });
  writeFileSync(join(root, "var/lib/isthmus/cni/c1.json"), alcorPlan("c1", ["eth0"]));
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const read = () => readPlan(stack, root);
  assert.match(read().refused.join(), /containers have NICs of VPCs \(c1: eth0\)/);
  mkdirSync(join(root, "run"));
  const { refused, removals } = read();
  assert.deepEqual(refused, []);
  assert.deepEqual(removals[0], {
    op: "unplug",
    containerId: "c1",
    what: "remove NICs eth0 of container c1",
    why: "nic-agent's, by its journal; the sandbox is gone",
  });
  stack.links.create({ kind: "bridge", name: "tap1", alias: "isthmus-nic:p:c1" });
  assert.match(read().refused.join(), /containers have NICs of VPCs \(c1: eth0\)/, "a device of it is there");
});

test("readNode: the bind address of the tunnel on lo is named and stays, that of proxy-agent goes with its link; the counters of uplink-proxy go", (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "run/mgmtproxy/MetricsMap"), { recursive: true });
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const lo = stack.links.get({ name: "lo" }) ?? assert.fail();
  const bind = stack.links.create({ kind: "dummy", name: "knode0", alias: "ISTHMUS:bind" });
  const address = IpAddress.parse("10.255.255.1");
  stack.addresses.add({ linkIndex: bind.index, address, prefixLength: 32 });
  assert.deepEqual(readPlan(stack, root).kept, []);
  stack.addresses.add({ linkIndex: lo.index, address, prefixLength: 32 });
  const { kept, removals } = readPlan(stack, root);
  assert.match(kept.join(), /^address 10\.255\.255\.1\/32 on lo: .*ip address delete 10\.255\.255\.1\/32 dev lo$/);
  assert.deepEqual(
    removals.map(({ what }) => what.replace(root, "")),
    ["delete link knode0", "remove /run/mgmtproxy"],
  );
});
