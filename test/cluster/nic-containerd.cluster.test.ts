/** containerd of Debian runs pods with NICs of a VPC through `vpc-neutron`: what the executables get of a stock runtime, and what a kubelet sees. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Containerd, PAGE } from "#test/containerd";
import { ISTHMUS, start, until } from "#test/lab";
import { NicNode, nicState } from "#test/nic-node";
import { skipWithoutOvs } from "#test/ovs-bed";

const options = { skip: skipWithoutOvs };
let bed: NicNode | undefined;
let runtime: Containerd | undefined;

before(async () => {
  if (skipWithoutOvs !== false) return;
  bed = await NicNode.open("niccri");
  bed.activatePlugged();
  runtime = await Containerd.start({
    netns: bed.netns,
    plugins: {
      "vpc-neutron": join(ISTHMUS, "../cni/vpc-neutron"),
      ...Object.fromEntries(
        ["ptp", "host-local", "portmap", "loopback"].map((type) => [type, join("/usr/lib/cni", type)]),
      ),
    },
    config: {
      cniVersion: "1.0.0",
      name: "vpc",
      plugins: [
        {
          type: "vpc-neutron",
          socket: bed.socket,
          capabilities: { "io.kubernetes.cri.pod-annotations": true, portMappings: true },
          delegate: {
            plugins: [
              {
                type: "ptp",
                ipam: {
                  type: "host-local",
                  ranges: [[{ subnet: "10.78.0.0/24" }]],
                  routes: [{ dst: "0.0.0.0/0" }],
                  dataDir: join(bed.folder, "ipam"),
                },
              },
              { type: "portmap", capabilities: { portMappings: true } },
            ],
          },
        },
      ],
    },
  });
});
after(async () => {
  await runtime?.[Symbol.asyncDispose]();
  await bed?.[Symbol.asyncDispose]();
});

function theBed(): { readonly node: NicNode; readonly containerd: Containerd } {
  assert.ok(bed !== undefined && runtime !== undefined);
  return { node: bed, containerd: runtime };
}

test("containerd: a pod of a VPC has its NIC's address, and removing it leaves nothing", options, async () => {
  const { node, containerd } = theBed();
  assert.deepEqual(await containerd.status(), { RuntimeReady: true, NetworkReady: true });
  const pod = await node.createClaim("web", [nicState(0x51, { net: 51 }), nicState(0x52, { name: "eth1", net: 52 })]);
  const annotations = { "isthmus.dev/vpc": "vpc-1" };
  const id = await containerd.runPodSandbox({ namespace: "default", ...pod, annotations });
  assert.equal((await containerd.addressesOf(id))[0], "10.51.0.81");
  assert.deepEqual(node.ovs.devices(), ["qvo00000051-11", "qvo00000052-11"]);
  await containerd.stopPodSandbox(id);
  await containerd.removePodSandbox(id);
  assert.deepEqual([node.ovs.devices(), node.devices()], [[], []]);
});

test(
  "containerd: the annotations tell of a VPC before there is a claim, and the pod waits for it",
  options,
  async () => {
    const { node, containerd } = theBed();
    const name = "early";
    const uid = node.nextUid();
    const running = containerd.runPodSandbox({
      namespace: "default",
      name,
      uid,
      annotations: { "isthmus.dev/vpc": "v" },
    });
    const pod = await node.createClaim(name, [nicState(0x53, { net: 53 })]);
    assert.equal(pod.uid, uid);
    const id = await running;
    assert.deepEqual(await containerd.addressesOf(id), ["10.53.0.83"]);
    await containerd.stopPodSandbox(id);
    await containerd.removePodSandbox(id);
    assert.deepEqual(node.ovs.devices(), []);
  },
);

test(
  "containerd: a pod without a VPC gets its address of the delegate, and both plugins clean up",
  options,
  async () => {
    const { node, containerd } = theBed();
    const id = await containerd.runPodSandbox({
      namespace: "default",
      name: "plain",
      uid: "0a64ecb8-0000-4d0f-9e42-000000000001",
    });
    assert.deepEqual(await containerd.addressesOf(id), ["10.78.0.2"]);
    await containerd.stopPodSandbox(id);
    await containerd.removePodSandbox(id);
    assert.doesNotMatch(node.ip(["-o", "link", "show"]), /veth/);
  },
);

test(
  "containerd: a port of the host leads to a pod without a VPC, and to none of a VPC, whose address others may have",
  options,
  async () => {
    const { node, containerd } = theBed();
    const [address, port, other] = ["198.51.100.9", 18_080, 18_081];
    node.ip(["address", "add", `${address}/32`, "dev", "lo"]);
    const get = async (): Promise<string> => {
      const command = ["curl", "-sS", "--max-time", "5", `http://${address}:${port}/`];
      return (await start(node.inside(...command)).ended).stdout;
    };
    const rules = async (): Promise<string> => (await start(node.inside("iptables", "-t", "nat", "-S")).ended).stdout;
    const uid = "0a64ecb8-0000-4d0f-9e42-000000000002";
    const id = await containerd.runPodSandbox({ namespace: "default", name: "web", uid, hostPorts: [port] });
    await until("the port serves", async () => (await get()) === PAGE);
    const pod = await node.createClaim("vpc-port", [nicState(0x54, { net: 54 })]);
    const annotations = { "isthmus.dev/vpc": "vpc-1" };
    const inVpc = await containerd.runPodSandbox({ namespace: "default", ...pod, annotations, hostPorts: [other] });
    assert.equal((await containerd.addressesOf(inVpc))[0], "10.54.0.84");
    assert.match(await rules(), /--dport 18080 /);
    assert.doesNotMatch(await rules(), /18081|10\.54\./);
    for (const one of [id, inVpc]) {
      await containerd.stopPodSandbox(one);
      await containerd.removePodSandbox(one);
    }
    assert.doesNotMatch(await rules(), /18080/);
  },
);
