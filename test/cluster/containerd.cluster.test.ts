/** containerd of Debian runs pods through the shipped CNI executable: its CRI as a kubelet calls it, and `ctr run --cni`. */
import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { CniNode, NODE_IPV4, NODE_IPV6 } from "#test/cni-node";
import { CGROUP_PARENT, Containerd, IMAGE, PAGE, PORT } from "#test/containerd";
import { commandsOf, fenceOf } from "#test/guide";
import { start, until } from "#test/lab";

const PLUGINS = "/usr/lib/cni";
const HOST_PORT = 18_080;
let node: CniNode;
let containerd: Containerd;

before(async () => {
  node = await CniNode.open("containerd");
  // ctr gives plugins no name of a pod; the test's environment does.
  const wrapper = join(node.folder, "coil");
  writeFileSync(
    wrapper,
    `#!/bin/sh\n[ -z "$POD" ] || export CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=$POD"\nexec ${node.plugin}\n`,
  );
  chmodSync(wrapper, 0o755);
  // The configuration of the page for an installation by hand, with one more plugin in the chain.
  const page = JSON.parse(fenceOf("guides/pods.md", "json")) as { readonly plugins: readonly object[] };
  const [coil, portmap] = page.plugins;
  assert.deepEqual(
    [page.plugins.length, portmap],
    [2, { type: "portmap", capabilities: { portMappings: true }, snat: true }],
  );
  const bandwidth = { type: "bandwidth", capabilities: { bandwidth: true } };
  containerd = await Containerd.start({
    netns: node.netns,
    plugins: {
      coil: wrapper,
      ...Object.fromEntries(["portmap", "bandwidth", "loopback"].map((type) => [type, join(PLUGINS, type)])),
    },
    config: { ...page, plugins: [{ ...coil, socket: node.socket }, bandwidth, portmap] },
  });
});

after(async () => {
  await containerd?.[Symbol.asyncDispose]();
  await node?.[Symbol.asyncDispose]();
});

/** Returns the answer of an HTTP server to a request from a namespace. */
async function get(netns: string, url: string): Promise<string> {
  const { stdout } = await start(["nsenter", `--net=/run/netns/${netns}`, "curl", "-gsS", "--max-time", "5", url])
    .ended;
  return stdout;
}

test("containerd: RunPodSandbox has coil give a pod both addresses, a port of the host and its bandwidth; removing it leaves nothing", async () => {
  assert.deepEqual(await containerd.status(), { RuntimeReady: true, NetworkReady: true });
  const uid = await node.createPod("web");
  const annotations = { "kubernetes.io/ingress-bandwidth": "10M", "kubernetes.io/egress-bandwidth": "10M" };
  const id = await containerd.runPodSandbox({
    namespace: "default",
    name: "web",
    uid,
    annotations,
    hostPorts: [HOST_PORT],
  });
  const [ipv4 = "", ipv6 = "", ...more] = await containerd.addressesOf(id);
  assert.match(ipv4, /^10\.210\.0\.\d+$/);
  assert.match(ipv6, /^fd00:210::/);
  assert.deepEqual(more, []);
  for (const [from, host] of [
    [node.netns, ipv4],
    [node.netns, `[${ipv6}]`],
  ] as const) {
    await until(`${host} serves`, async () => (await get(from, `http://${host}:${PORT}/`)) === PAGE);
  }
  // The port of the host: from the node itself, and from outside of it.
  for (const from of [node.netns, node.outside]) {
    for (const host of [NODE_IPV4, `[${NODE_IPV6}]`]) {
      assert.equal(await get(from, `http://${host}:${HOST_PORT}/`), PAGE, `${host} from ${from}`);
    }
  }
  // What the page says how to find where a change of the configuration has lost portmap's DEL.
  const [find = ""] = commandsOf("pods.md", "Another network configuration");
  const rules = async (): Promise<string> => (await start(node.inside("sh", "-c", find)).ended).stdout;
  const ofPod = new RegExp(`-A CNI-HOSTPORT-DNAT .*id: \\\\"${id}\\\\".* -j (CNI-DN-\\w+)`);
  const [, chain = ""] = ofPod.exec(await rules()) ?? assert.fail(await rules());
  assert.match(await rules(), new RegExp(`-A ${chain} .*--dport ${HOST_PORT} .*-j DNAT`));
  assert.equal(node.attachments().length, 1);
  // The bandwidth plugin shapes at the host's end, and the other direction at an ifb device of its own.
  assert.match(await tc("show"), /tbf .*rate 10Mbit/);
  assert.match(node.ip("-o", "link", "show", "type", "ifb"), /bwp/);
  await containerd.stopPodSandbox(id);
  assert.deepEqual([node.attachments(), node.ip("-o", "link", "show", "type", "ifb")], [[], ""]);
  assert.equal(await get(node.netns, `http://${NODE_IPV4}:${HOST_PORT}/`), "");
  assert.doesNotMatch(await rules(), /CNI-DN-/);
  await containerd.stopPodSandbox(id);
  await containerd.removePodSandbox(id);
  await until("the block goes back", async () => (await node.blocks()).length === 0);
});

test("containerd: a pod that the API server does not have gets no sandbox, and the reason is coil's own", async () => {
  const pod = { namespace: "default", name: "nobody", uid: "11111111-2222-3333-4444-555555555555" };
  await assert.rejects(containerd.runPodSandbox(pod), /pod default\/nobody does not exist/);
  const uid = await node.createPod("twin");
  await assert.rejects(
    containerd.runPodSandbox({ ...pod, name: "twin" }),
    new RegExp(`pod default/twin has UID ${uid}`),
  );
  assert.deepEqual(node.attachments(), []);
});

test("containerd: while coild is away a sandbox cannot be stopped, and the runtime's next try after its return frees everything", async () => {
  const uid = await node.createPod("stays");
  const id = await containerd.runPodSandbox({ namespace: "default", name: "stays", uid });
  const addresses = await containerd.addressesOf(id);
  await node.killCoild();
  await assert.rejects(containerd.stopPodSandbox(id), /plugin type="coil" failed \(delete\).*coild/);
  assert.equal(node.attachments().length, 1);
  await node.startCoild();
  const other = await containerd.runPodSandbox({
    namespace: "default",
    name: "later",
    uid: await node.createPod("later"),
  });
  const later = await containerd.addressesOf(other);
  assert.ok(!later.some((one) => addresses.includes(one)), `${later} and ${addresses}`);
  for (const one of [id, other]) {
    await containerd.stopPodSandbox(one);
    await containerd.removePodSandbox(one);
  }
  assert.deepEqual(node.attachments(), []);
  await until("the block goes back", async () => (await node.blocks()).length === 0);
});

test("containerd: ctr run --cni gives a container the pod's addresses, and without the pod's name it is refused by name", async () => {
  await node.createPod("by-ctr");
  const run = ["run", "--cni", "--rm", "--snapshotter=native", `--cgroup=${CGROUP_PARENT}/ctr`, IMAGE];
  const shown = await containerd.ctr([...run, "one", "/bin/busybox", "ip", "-o", "address", "show", "dev", "eth0"], {
    POD: "by-ctr",
  });
  assert.equal(shown.code, 0, shown.stderr);
  assert.match(shown.stdout, /inet 10\.210\.0\.\d+\/32/);
  assert.match(shown.stdout, /inet6 fd00:210::[0-9a-f]*\/128/);
  assert.deepEqual(node.attachments(), []);
  const refused = await containerd.ctr([...run, "two", "/bin/busybox", "true"]);
  assert.notEqual(refused.code, 0);
  assert.match(refused.stderr, /CNI_ARGS lacks K8S_POD_NAMESPACE and K8S_POD_NAME/);
  assert.deepEqual(node.attachments(), []);
});

async function tc(command: string): Promise<string> {
  return (await start(node.inside("tc", "qdisc", command)).ended).stdout;
}
