import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { release } from "node:os";
import { after, before, test } from "node:test";
import { until } from "#test/lab";
import { NicNode, nicState, type Sandbox } from "#test/nic-node";
import { skipWithoutOvs } from "#test/ovs-bed";

/** Older kernels rename no device that is up. */
const [major = 0, minor = 0] = release().split(".").map(Number);
const skipOldKernel =
  major > 6 || (major === 6 && minor >= 2) ? false : "kernel: a device that is up cannot be renamed before Linux 6.2";
const options = { skip: skipWithoutOvs === false ? skipOldKernel : skipWithoutOvs };
const PORT = "00000021-1111-4111-8111-111111111111";
const DEVICE = "veth00000021-11";
let bed: NicNode | undefined;
let vpc = "";

before(async () => {
  if (options.skip !== false) return;
  bed = await NicNode.open("nicalcor");
  vpc = `vpc-nsv${process.pid}`;
});
after(async () => {
  await bed?.[Symbol.asyncDispose]();
  if (vpc !== "" && execFileSync("ip", ["netns", "list"], { encoding: "utf8" }).includes(vpc))
    execFileSync("ip", ["netns", "delete", vpc]);
});

function node(): NicNode {
  assert.ok(bed !== undefined);
  return bed;
}

const inVpc = (...args: readonly string[]): string => node().ip(args, { netns: vpc });

/** Alcor's agent: the device is made under a temporary name, and renamed once the data plane is programmed. */
function makeDevice(): void {
  inVpc(
    "link",
    "add",
    "temp00000021-11",
    "address",
    "fa:16:3e:0a:0b:0c",
    "mtu",
    "1400",
    "type",
    "veth",
    "peer",
    "name",
    "far",
  );
  inVpc("link", "set", "far", "up");
  inVpc("link", "set", "temp00000021-11", "up");
  inVpc("address", "add", "10.8.0.5/24", "dev", "temp00000021-11");
  inVpc("-6", "address", "add", "fd08::5/64", "dev", "temp00000021-11", "nodad");
  inVpc("route", "add", "default", "via", "10.8.0.1", "dev", "temp00000021-11", "metric", "7");
  inVpc("route", "add", "172.20.0.0/16", "via", "10.8.0.9", "dev", "temp00000021-11");
}

function renameDevice(): void {
  inVpc("link", "set", "temp00000021-11", "name", DEVICE);
}

const bound = () =>
  nicState(0x21, {
    portID: PORT,
    vethName: DEVICE,
    netns: `/run/netns/${vpc}`,
    networkID: "v",
    ips: [],
    state: "Ready",
  });
const call = (sandbox: Sandbox, pod: { readonly name: string; readonly uid: string }) =>
  ({ sandbox, pod, plugin: "vpc-alcor", config: { probe_tm_ms: 20_000 } }) as const;

test(
  "T-43, T-44, T-45: ADD waits for the namespace and for the rename, and moves the device with its settings; DEL gives it back",
  options,
  async () => {
    const pod = await node().createClaim("alcor", [bound()]);
    const sandbox = node().makeSandbox("alcor");
    const adding = node().cni("ADD", call(sandbox, pod));
    execFileSync("ip", ["netns", "add", vpc]);
    makeDevice();
    renameDevice();
    const before = inVpc("route", "show");
    const added = await adding;
    assert.equal(added.exit, 0, JSON.stringify(added));
    assert.deepEqual(added.interfaces, [{ name: "eth0", mac: "fa:16:3e:0a:0b:0c", sandbox: sandbox.path }]);
    assert.deepEqual(
      added.ips?.map(({ address, gateway }) => [address, gateway]),
      [
        ["10.8.0.5/24", "10.8.0.1"],
        ["fd08::5/64", undefined],
      ],
    );
    assert.match(node().ip(["link", "show", "eth0"], sandbox), /mtu 1400.*\n.*fa:16:3e:0a:0b:0c/);
    const routes = node().ip(["route", "show"], sandbox);
    assert.match(routes, /^default via 10\.8\.0\.1 dev eth0 metric 100/m);
    assert.match(routes, /^172\.20\.0\.0\/16 via 10\.8\.0\.9 dev eth0/m);
    assert.equal(
      execFileSync("ip", ["netns", "exec", sandbox.netns, "cat", "/proc/sys/net/ipv4/tcp_mtu_probing"], {
        encoding: "utf8",
      }).trim(),
      "2",
    );
    assert.deepEqual(await node().cni("CHECK", call(sandbox, pod)), { exit: 0 });
    assert.doesNotMatch(inVpc("-o", "link", "show"), /veth00000021/);
    assert.deepEqual(await node().cni("DEL", call(sandbox, pod)), { exit: 0 });
    assert.match(inVpc("link", "show", DEVICE), /mtu 1400/);
    assert.equal(inVpc("route", "show"), before);
    assert.match(inVpc("-6", "address", "show", "dev", DEVICE), /fd08::5\/64/);
    node().removeSandbox(sandbox);
  },
);

test(
  "T-46: DEL after the sandbox has ended is success, and the claim tells that the device was lost",
  options,
  async () => {
    const pod = await node().createClaim("lost", [bound()]);
    const sandbox = node().makeSandbox("lost");
    assert.equal((await node().cni("ADD", call(sandbox, pod))).exit, 0);
    node().removeSandbox(sandbox);
    await until("the device has ended with its sandbox", () => !inVpc("-o", "link", "show").includes("far"));
    assert.deepEqual(await node().cni("DEL", call(sandbox, pod)), { exit: 0 });
    await until("the claim tells it", async () => (await node().conditions(pod.uid)).join() === "Unplugged:DeviceLost");
    const later = node().makeSandbox("later");
    const refused = await node().cni("ADD", { ...call(later, pod), config: { probe_tm_ms: 300 } });
    assert.deepEqual([refused.exit, refused.code], [1, 11]);
    assert.match(refused.msg ?? "", /device veth00000021-11 in \/run\/netns\/vpc-ns\S+ did not appear within 300 ms/);
    makeDevice();
    renameDevice();
    assert.equal((await node().cni("ADD", call(later, pod))).exit, 0);
    execFileSync("ip", ["netns", "delete", vpc]);
    assert.deepEqual(await node().cni("DEL", call(later, pod)), { exit: 0 });
    assert.doesNotMatch(node().ip(["-o", "link", "show"], later), /eth0/);
    node().removeSandbox(later);
  },
);
