/** The shipped coild and coil behind real plugins of Debian, with the rights of deploy/pods/rbac-chained.yaml and no others. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { listenTcp } from "#kernel/socket";
import { type Draft, KubeClient, loadKubeConfig, resources } from "#kube/client";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, isthmus, start, until } from "#test/lab";

const PLUGINS = "/usr/lib/cni";
const root = join(import.meta.dirname, "../..");
const COIL = join(ISTHMUS, "../cni/coil");

/** A node with a coild behind another plugin, one pod in the API and its namespace. */
async function open(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-chained-"));
  const kernel = openKernel();
  const [node, pod] = ["node", "pod"].map((name) => `isthmus-chained-${process.pid}-${name}`) as [string, string];
  for (const name of [node, pod]) {
    kernel.createNetNs(name)[Symbol.dispose]();
    execFileSync("ip", ["-n", name, "link", "set", "lo", "up"]);
  }
  t.after(() => {
    for (const name of [node, pod]) kernel.deleteNetNs(name);
    rmSync(dir, { recursive: true, force: true });
  });
  const netns = kernel.openNetNs({ name: node });
  const fd = listenTcp(IpAddress.parse("127.0.0.1"), 6443, { netns });
  netns[Symbol.dispose]();
  const groups = ["system:serviceaccounts", "system:authenticated"];
  const server = await startApiServer({
    listen: [
      { host: "127.0.0.1", port: 0 },
      { fd, host: "127.0.0.1" },
    ],
    tokens: {
      admin: { name: "admin", groups: ["system:masters"] },
      coild: {
        name: "system:serviceaccount:kube-system:coild",
        groups,
        extra: { "authentication.kubernetes.io/node-name": ["n"] },
      },
    },
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  for (const file of ["rbac-chained.yaml", "coild-policy.yaml"]) {
    const rights = parseAllDocuments(readFileSync(join(root, "deploy/pods", file), "utf8"));
    server.seed(rights.map((one) => one.toJS() as SeedObject));
  }
  const [here = "", inNode = ""] = server.urls;
  writeFileSync(join(dir, "admin"), server.kubeconfig({ server: here, token: "admin" }));
  writeFileSync(join(dir, "coild"), server.kubeconfig({ server: inNode, token: "coild" }));
  await using admin = new KubeClient(await loadKubeConfig({ path: join(dir, "admin"), clock: systemClock }), {
    clock: systemClock,
  });
  const draft = {
    metadata: { namespace: "default", name: "p" },
    spec: { nodeName: "n", containers: [{ name: "c", image: "none" }] },
  };
  const { metadata } = await admin.create(resources.pods, draft as unknown as Draft<never>);
  const socket = join(dir, "coild.sock");
  const flags = ["--enable-ipam=false", "--pod-table-id=0", "--protocol-id=2", `--socket=${socket}`];
  const argv = [
    "nsenter",
    `--net=/run/netns/${node}`,
    ISTHMUS,
    "coild",
    `--kubeconfig=${join(dir, "coild")}`,
    ...flags,
  ];
  const coild = start(argv, { env: { COIL_NODE_NAME: "n" } });
  t.after(() => coild.child.kill("SIGKILL"));
  await until("coild serves", () => coild.said().includes("coild serves calls"), { seen: coild.said });
  const ip = (name: string, ...args: readonly string[]): string =>
    execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
  /** Runs a plugin in the node's namespace as a runtime does. */
  const call = async (executable: string, command: string, config: object) => {
    const env = {
      PATH: process.env["PATH"] ?? "",
      CNI_COMMAND: command,
      CNI_CONTAINERID: "c1",
      CNI_NETNS: `/run/netns/${pod}`,
      CNI_IFNAME: "eth0",
      CNI_PATH: PLUGINS,
      CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p",
    };
    const input = JSON.stringify({ name: "net", ...config });
    const argv = ["nsenter", `--net=/run/netns/${node}`, executable];
    const { code: status, stdout } = await start(argv, { env, input: Buffer.from(input) }).ended;
    return { status, json: stdout.trim() === "" ? undefined : (JSON.parse(stdout) as Record<string, unknown>) };
  };
  const ipam = { type: "host-local", ranges: [[{ subnet: "10.77.0.0/24" }]], dataDir: join(dir, "ipam") };
  /** The pod has got this address, as the kubelet tells. */
  const tellAddress = async (address: string): Promise<void> => {
    await using kubelet = new KubeClient(await loadKubeConfig({ path: join(dir, "admin"), clock: systemClock }), {
      clock: systemClock,
    });
    const status = { phase: "Running", podIP: address, podIPs: [{ ip: address }] };
    const ref = { namespace: "default", name: "p" };
    await kubelet.patch(resources.pods, ref, { type: "merge", body: { status } }, { subresource: "status" });
  };
  const audit = () => isthmus(["audit", "--json", `--socket=${socket}`, `--kubeconfig=${join(dir, "admin")}`]);
  return { node, pod, ip, call, ipam, socket, coild, uid: metadata.uid, tellAddress, audit };
}

for (const { cniVersion, type, settings } of [
  { cniVersion: "0.3.1", type: "ptp", settings: {} },
  { cniVersion: "0.4.0", type: "bridge", settings: { bridge: "cni0", isGateway: true } },
  { cniVersion: "1.0.0", type: "ptp", settings: {} },
]) {
  test(`coil ${cniVersion} behind ${type}: ADD marks that plugin's link and returns prevResult, CHECK sees what is missing, DEL needs nothing`, async (t) => {
    const { node, pod, ip, call, ipam, socket, coild, uid } = await open(t);
    const made = await call(join(PLUGINS, type), "ADD", { cniVersion, type, ...settings, ipam });
    assert.equal(made.status, 0, JSON.stringify(made.json));
    const config = { cniVersion, type: "coil", socket };
    const before = ip(pod, "-4", "-o", "address") + ip(pod, "route");
    const refused = await call(COIL, "ADD", config);
    assert.deepEqual([refused.status, refused.json?.["code"]], [1, 7], JSON.stringify(refused.json));
    for (let repeat = 0; repeat < 2; repeat += 1) {
      const added = await call(COIL, "ADD", { ...config, prevResult: made.json });
      assert.deepEqual([added.status, added.json], [0, made.json]);
    }
    assert.equal(ip(pod, "-4", "-o", "address") + ip(pod, "route"), before);
    assert.match(ip(node, "link", "show"), new RegExp(`alias COIL::${uid}:eth0`));
    if (cniVersion !== "0.3.1") {
      assert.equal((await call(COIL, "CHECK", { ...config, prevResult: made.json })).status, 0);
      const [host] = /veth[0-9a-f]+/.exec(ip(node, "link", "show", "type", "veth")) ?? [];
      ip(node, "link", "set", host ?? "", "alias", "");
      const failed = await call(COIL, "CHECK", { ...config, prevResult: made.json });
      assert.match(String(failed.json?.["msg"]), /alias of pod UID .* is missing/);
    }
    for (const command of ["DEL", "DEL"])
      assert.deepEqual(await call(COIL, command, config), { status: 0, json: undefined });
    assert.equal(
      (await call(join(PLUGINS, type), "DEL", { cniVersion, type, ...settings, ipam, prevResult: made.json })).status,
      0,
    );
    assert.doesNotMatch(ip(node, "link", "show"), /COIL/);
    // Nothing of a coild with address management is on the node.
    assert.doesNotMatch(ip(node, "rule"), /2000/);
    coild.child.kill("SIGTERM");
    assert.equal((await coild.ended).code, 0, coild.said());
    assert.doesNotMatch(coild.said(), /forbidden|cannot (get|list|watch|create|update|patch|delete) resource/);
    assert.equal((await call(COIL, "ADD", { ...config, prevResult: made.json })).json?.["code"], 11);
    assert.equal((await call(COIL, "DEL", config)).json?.["code"], 11, "the namespace is there");
  });
}

test("audit: behind another plugin it names pods whose link is not marked and marks of no pod, and addresses are not its matter", async (t) => {
  const { node, ip, call, ipam, socket, uid, tellAddress, audit } = await open(t);
  const findings = async (): Promise<unknown> => {
    const { code, stdout, stderr } = await audit();
    const report = JSON.parse(stdout === "" ? assert.fail(stderr) : stdout) as { findings: object[] };
    assert.equal(code, report.findings.length === 0 ? 0 : 1);
    return report.findings;
  };
  assert.deepEqual(await findings(), []);
  const made = await call(join(PLUGINS, "ptp"), "ADD", { cniVersion: "1.0.0", type: "ptp", ipam });
  await tellAddress("10.77.0.2");
  assert.deepEqual(await findings(), [
    { kind: "unmarked-pod", node: "n", text: "no link has the mark of pod default/p" },
  ]);
  const added = await call(COIL, "ADD", { cniVersion: "1.0.0", type: "coil", socket, prevResult: made.json });
  assert.equal(added.status, 0);
  assert.deepEqual(await findings(), []);
  const [host = ""] = /veth[0-9a-f]+/.exec(ip(node, "link", "show", "type", "veth")) ?? [];
  ip(node, "link", "set", host, "alias", `COIL::${uid}x:eth0`);
  const text = `link ${host} has the mark of pod UID ${uid}x, interface eth0, but that pod does not run on this node`;
  assert.deepEqual(await findings(), [
    { kind: "unmarked-pod", node: "n", text: "no link has the mark of pod default/p" },
    { kind: "stray-mark", node: "n", text },
  ]);
});

test("coil 1.1.0 behind another plugin: STATUS and GC succeed and print nothing", async (t) => {
  const { call, socket } = await open(t);
  const config = { cniVersion: "1.1.0", type: "coil", socket };
  assert.deepEqual(await call(COIL, "STATUS", config), { status: 0, json: undefined });
  const gc = { ...config, "cni.dev/valid-attachments": [] };
  assert.deepEqual(await call(COIL, "GC", gc), { status: 0, json: undefined });
});
