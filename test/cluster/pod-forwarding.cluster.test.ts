/** Packets of pods at the limits of their links (docs/design/pod-network.md, D9), with the shipped programs. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openKernel } from "#kernel/net";
import { CniNode, NODE_IPV4, NODE_IPV6, OUTSIDE_IPV4, OUTSIDE_IPV6 } from "#test/cni-node";
import { start, until } from "#test/lab";

const BUSYBOX = "/bin/busybox";
const PORT = 8080;
const MIB = 1024 * 1024;
let node: CniNode;

before(async () => {
  node = await CniNode.open("forward");
});

after(async () => {
  await node?.[Symbol.asyncDispose]();
});

async function run(netns: string, ...command: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await start(["nsenter", `--net=/run/netns/${netns}`, ...command]).ended;
  assert.equal(code, 0, `${command.join(" ")} in ${netns}: ${stderr}${stdout}`);
  return stdout;
}

for (const mtu of [1400, 1500, 9000]) {
  test(`pods with MTU ${mtu}: packets of exactly that size pass, a mebibyte goes both ways, with a strict rp_filter and over a narrower path`, async (t) => {
    const netns = `isthmus-forward-${process.pid}-${mtu}`;
    openKernel().createNetNs(netns)[Symbol.dispose]();
    t.after(() => openKernel().deleteNetNs(netns));
    const web = join(node.folder, `web-${mtu}`);
    mkdirSync(web);
    writeFileSync(join(web, "mebibyte"), Buffer.alloc(MIB, "x"));
    await node.killCoild();
    await node.startCoild(`--mtu=${mtu}`);
    const setMtu = (one: string, bytes: number): unknown =>
      execFileSync("ip", ["-n", one, "link", "set", "eth0", "mtu", String(bytes)]);
    for (const one of [node.netns, node.outside]) setMtu(one, Math.max(mtu, 1500));
    await run(node.netns, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1");
    await node.createPod(`mtu${mtu}`);
    const attachment = { containerId: `mtu${mtu}`, netns, pod: `mtu${mtu}` };
    const [ipv4 = "", ipv6 = ""] = await node.call("Add", attachment);
    await run(node.outside, "ip", "-4", "route", "replace", `${ipv4}/32`, "via", NODE_IPV4);
    await run(node.outside, "ip", "-6", "route", "replace", `${ipv6}/128`, "via", NODE_IPV6);
    const serve = [BUSYBOX, "httpd", "-f", "-p", `[::]:${PORT}`, "-h", web];
    const servers = [netns, node.outside].map((one) => start(["nsenter", `--net=/run/netns/${one}`, ...serve]));
    t.after(async () => {
      for (const one of servers) one.child.kill("SIGKILL");
      await Promise.all(servers.map((one) => one.ended));
    });
    /** Resolves with true if a packet of this size arrives whole and its answer too. */
    const passes = async (from: string, to: string, bytes: number): Promise<boolean> => {
      const headers = to.includes(":") ? 48 : 28;
      const ping = ["ping", "-c1", "-W1", "-M", "do", "-s", String(bytes - headers), to];
      return (await start(["nsenter", `--net=/run/netns/${from}`, ...ping]).ended).code === 0;
    };
    const fetch = async (from: string, host: string): Promise<void> => {
      const url = `http://${host.includes(":") ? `[${host}]` : host}:${PORT}/mebibyte`;
      assert.equal((await run(from, "curl", "-gsS", "--max-time", "20", url)).length, MIB, `${url} from ${from}`);
    };
    for (const [pod, outside] of [
      [ipv4, OUTSIDE_IPV4],
      [ipv6, OUTSIDE_IPV6],
    ] as const) {
      await until(`${pod} answers`, () => passes(node.outside, pod, 100));
      assert.ok(await passes(node.outside, pod, mtu), `${mtu} bytes to ${pod}`);
      assert.ok(await passes(netns, outside, mtu), `${mtu} bytes from ${pod}`);
      assert.equal(await passes(netns, outside, mtu + 1), false, `${mtu + 1} bytes from ${pod}`);
      await until("the servers listen", async () => (await run(netns, "ss", "-ltn")).includes(`:${PORT}`));
      await fetch(node.outside, pod);
      await fetch(netns, outside);
    }
    // The node's uplink is narrower than its pods' links and than its neighbour's: the node tells the pods.
    setMtu(node.netns, 1300);
    for (const pod of [ipv4, ipv6]) await fetch(node.outside, pod);
    for (const to of [OUTSIDE_IPV4, OUTSIDE_IPV6]) assert.match(await run(netns, "ip", "route", "get", to), /mtu 1300/);
    await node.call("Del", attachment);
  });
}
