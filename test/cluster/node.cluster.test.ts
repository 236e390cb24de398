/** `isthmus node` as shipped: several programs of a node in one process, each with its own health, none taking another down. */
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { IpAddress } from "#base/ip";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { labPaths } from "#lab/host";
import { ISTHMUS, isthmus, type Running, removeLab, start, stateOf, until } from "#test/lab";

const LAB = "ct-node";
const KUBECONFIG = (): string => `--kubeconfig=${join(labPaths(LAB).kubeconfig, "..", "kubeconfig-nodes")}`;
const netns = (): string => stateOf(LAB).nodes.find(({ name }) => name === "node1")?.netns ?? assert.fail("node1");

before(async () => {
  const { code, stderr } = await isthmus(["lab", "--json", "--keep", `--name=${LAB}`, "--nodes=2", "--pods=2"]);
  assert.equal(code, 0, stderr);
});
after(() => removeLab(LAB));

async function inNode(...argv: string[]): Promise<string> {
  return (await start(["nsenter", `--net=/run/netns/${netns()}`, ...argv]).ended).stdout;
}

/** The answer on a port of the node; empty without a listener. */
const http = (port: number, path: string): Promise<string> =>
  inNode("curl", "-s", "-m", "5", `http://127.0.0.1:${port}${path}`);

function node(...words: string[]): Running {
  const argv = ["nsenter", `--net=/run/netns/${netns()}`, ISTHMUS, "node", ...words];
  return start(argv, { env: { COIL_NODE_NAME: "node1" } });
}

const tables = (): Promise<string> => inNode("nft", "list", "tables");

test("node: parts run side by side; one that fails is run again and the others go on; SIGTERM ends all, and the kernel's state stays", async () => {
  // Another process has the port that the agent needs.
  using ns = openNetNs({ name: netns() });
  const fd = listenTcp(IpAddress.parse("127.0.0.1"), 18_093, { netns: ns });
  const taken = createServer().listen({ fd });
  const services = ["service-proxy", KUBECONFIG(), "--hostname-override=node1"];
  const agent = [
    "proxy-agent",
    "--proxy-server-port=1",
    "--health-server-port=18093",
    "--health-server-host=127.0.0.1",
  ];
  const running = node(...services, "--", ...agent, "--admin-server-port=18094");
  try {
    await until("the proxy has synced", async () => (await http(10_256, "/healthz")).includes("lastUpdated"));
    await until("the agent was tried several times", async () =>
      /^isthmus_node_part_restarts_total\{part="proxy-agent"\} [2-9]/m.test(await http(9390, "/metrics")),
    );
    assert.match(await http(9390, "/metrics"), /^isthmus_node_part_restarts_total\{part="service-proxy"\} 0$/m);
    const health = await http(9391, "/readyz?verbose");
    assert.match(health, /^\[\+\]service-proxy ok running$/m);
    assert.match(health, /^\[-\]proxy-agent degraded .*18093/m);
    const made = await tables();
    assert.match(made, /table ip kube-proxy/);
    taken.close();
    await until("the agent runs", async () => (await http(9391, "/readyz")).startsWith("ok"), { deadlineMs: 60_000 });
    running.child.kill("SIGTERM");
    const { code, stderr } = await running.ended;
    assert.equal(code, 0, stderr);
    assert.equal(await tables(), made, "an end is not a reason to take Services away");
  } finally {
    taken.close();
    running.child.kill("SIGKILL");
  }
});

test("node: the faults of every command line are reported before a program runs", async () => {
  const { code, stderr } = await node("coil-router", "--nope", "--", "coild", "--mtu=x", "--", "squid").ended;
  assert.equal(code, 2, stderr);
  assert.match(stderr, /"squid" is not a program of a node/);
  const other = await node("coil-router", "--nope", "--", "coild", "--mtu=x").ended;
  assert.match(other.stderr, /isthmus node: coil-router: unknown flag --nope\n[\s\S]*isthmus node: coild: --mtu: /);
});
