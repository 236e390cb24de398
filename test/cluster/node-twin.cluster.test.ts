/**
 * Two machines with one node name, as shipped. The second machine is another network namespace, in which a mount gives another boot id, as systems that run
 * nodes in containers do; the test writes what the two kubelets write. `ISTHMUS_SOAK=full` waits for the end, which takes two minutes.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { openKernel } from "#kernel/net";
import { type Node, resources } from "#kube/client";
import { machineCapacity, nodeStatus } from "#lab/kubelet";
import { type CniCall, CniNode, NODE, NODE_IPV4, OUTSIDE_IPV4 } from "#test/cni-node";
import { ISTHMUS, start, until } from "#test/lab";

const BOOT_ID = "/proc/sys/kernel/random/boot_id";
const OTHER_BOOT = "22222222-2222-4222-8222-222222222222";
const OTHER_MACHINE = "b".repeat(32);

interface Machine {
  readonly bootID: string;
  readonly machineID: string;
  readonly address: string;
}

const FIRST: Machine = {
  bootID: readFileSync(BOOT_ID, "utf8").trim(),
  machineID: "a".repeat(32),
  address: NODE_IPV4,
};
const SECOND: Machine = { bootID: OTHER_BOOT, machineID: OTHER_MACHINE, address: OUTSIDE_IPV4 };

/** Writes what the kubelet of a machine writes into the Node. */
async function writeStatus({ api }: CniNode, { bootID, machineID, address }: Machine): Promise<void> {
  const stored = await api.get(resources.nodes, { name: NODE });
  const settings = { name: NODE, addresses: [address], labels: {}, taints: [] };
  const status = nodeStatus(settings, machineCapacity(), Date.now()) as NonNullable<Node["status"]>;
  const nodeInfo = { ...status.nodeInfo, bootID, machineID };
  await api.replaceStatus(resources.nodes, { ...stored, status: { ...status, nodeInfo } } as Node);
}

/** The answer of a port of a machine; empty without a listener. */
async function http(netns: string, port: number, path: string): Promise<string> {
  const script = `exec 3<>/dev/tcp/127.0.0.1/${port} && printf 'GET ${path} HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3`;
  return (await start(["nsenter", `--net=/run/netns/${netns}`, "bash", "-c", script]).ended).stdout;
}

async function readyz(netns: string, text: RegExp): Promise<void> {
  let seen = "";
  await until(
    `/readyz in ${netns} says ${text}`,
    async () => {
      seen = await http(netns, 9385, "/readyz");
      return text.test(seen);
    },
    { seen: () => seen },
  );
}

/** Starts the `coild` of the second machine; its socket. */
function startSecond(t: TestContext, node: CniNode): string {
  // A folder of its own, as its lock is there too.
  const folder = mkdtempSync(join(node.folder, "second-"));
  const [file, socket] = [join(folder, "boot-id"), join(folder, "coild.sock")];
  writeFileSync(file, `${OTHER_BOOT}\n`);
  const kubeconfig = join(node.folder, "coild-kubeconfig");
  const command = `mount --bind ${file} ${BOOT_ID} && exec ${ISTHMUS} coild --kubeconfig=${kubeconfig} --socket=${socket}`;
  const argv = ["nsenter", `--net=/run/netns/${node.outside}`, "unshare", "--mount", "sh", "-c", command];
  const running = start(argv, { env: { COIL_NODE_NAME: NODE }, timeoutMs: 600_000 });
  t.after(() => running.child.kill("SIGKILL"));
  return socket;
}

/** The error of an ADD by the CNI executable. */
async function addByExecutable(
  node: CniNode,
  { containerId, netns, pod }: CniCall,
): Promise<{ readonly code: number; readonly msg: string }> {
  const env = {
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: containerId,
    CNI_IFNAME: "eth0",
    CNI_NETNS: `/run/netns/${netns}`,
    CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=${pod}`,
  };
  const input = new TextEncoder().encode(
    JSON.stringify({ cniVersion: "1.0.0", name: "k8s-pod-network", type: "coil", socket: node.socket }),
  );
  const { stdout } = await start(node.inside(node.plugin), { env, input }).ended;
  return JSON.parse(stdout) as { readonly code: number; readonly msg: string };
}

test("two machines with one node name: none gives an address of the other's, running pods go on, and the Node says why", async (t) => {
  await using node = await CniNode.open("twin");
  const kernel = openKernel();
  const pods = [0, 1, 2].map((at) => `isthmus-twin-${process.pid}-pod${at}`);
  for (const name of pods) kernel.createNetNs(name)[Symbol.dispose]();
  t.after(() => {
    for (const name of pods) kernel.deleteNetNs(name);
  });
  await writeStatus(node, FIRST);
  for (const at of [0, 1, 2]) await node.createPod(`p${at}`);
  const of = (at: number) => ({ containerId: `c${at}`, netns: pods[at] ?? "", pod: `p${at}` });
  assert.equal((await node.call("Add", of(0))).length, 2);
  await readyz(node.netns, / 200 /);

  const socket = startSecond(t, node);
  await readyz(node.outside, /\[-\]node degraded the status of this Node is another machine's, or of an earlier boot/);
  await writeStatus(node, SECOND);
  await readyz(node.outside, / 200 /);
  await writeStatus(node, FIRST);
  for (const netns of [node.netns, node.outside])
    await readyz(netns, /503 [\s\S]*\[-\]node degraded another machine has the node name cni-node too/);
  const refusal = await addByExecutable(node, of(1));
  assert.equal(refusal.code, 11);
  for (const part of [FIRST.bootID, OTHER_BOOT, OTHER_MACHINE, OUTSIDE_IPV4])
    assert.ok(refusal.msg.includes(part), refusal.msg);
  await assert.rejects(node.call("Add", { ...of(2), socket }), /another machine has the node name cni-node too/);
  assert.match(await http(node.netns, 9384, "/metrics"), /^coil_coild_node_twin 1$/m);
  await until("the Node has an Event of each", async () => {
    const { items } = await node.api.listAll(resources.events);
    const about = items.filter(({ regarding }) => regarding?.kind === "Node" && regarding.name === NODE);
    return about.length === 2 && about.every(({ reason, type }) => reason === "NodeNameTwin" && type === "Warning");
  });

  await node.call("Check", of(0));
  if (process.env["ISTHMUS_SOAK"] === "full") {
    await until("two quiet minutes end it", async () => (await http(node.netns, 9385, "/readyz")).includes(" 200 "), {
      deadlineMs: 150_000,
      everyMs: 1000,
    });
    assert.equal((await node.call("Add", of(1))).length, 2);
    await node.call("Del", of(1));
  }
  await node.call("Del", of(0));
  assert.deepEqual(node.attachments(), []);
});
