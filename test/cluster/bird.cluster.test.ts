/** BIRD of Debian learns the blocks that `coild` exports in table 119 as docs/spec/pod-network.md#4.8 says, announces them by BGP, and withdraws them. */
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { openKernel } from "#kernel/net";
import { CniNode, NODE_IPV4, NODE_IPV6, OUTSIDE_IPV4, OUTSIDE_IPV6 } from "#test/cni-node";
import { start, until } from "#test/lab";

const DEBIAN = join(import.meta.dirname, "../../.state/debian");
const BIRD = join(DEBIAN, "usr/sbin/bird");
const POD = `isthmus-bird-${process.pid}-pod`;
const LOOK_MS = 100;

/** One session for each family, between neighbours on one link. */
const sessions = (ours: readonly string[], theirs: readonly string[], channel: string): string =>
  [4, 6]
    .map(
      (family, at) => `protocol bgp bgp${family} {
  local ${ours[at]} as 64512; neighbor ${theirs[at]} as 64512; direct; connect delay time 1; error wait time 1, 2;
  ipv${family} { next hop self; ${channel} };
}`,
    )
    .join("\n");

/** The node: what table 119 has is announced. */
const ON_NODE = `router id ${NODE_IPV4};
protocol device { scan time 1; }
protocol kernel coil4 { kernel table 119; learn; scan time 1; ipv4 { import all; export none; }; }
protocol kernel coil6 { kernel table 119; learn; scan time 1; ipv6 { import all; export none; }; }
${sessions([NODE_IPV4, NODE_IPV6], [OUTSIDE_IPV4, OUTSIDE_IPV6], "import none; export where source = RTS_INHERIT;")}
`;
/** Its neighbour: what is announced is in the main table. */
const ON_NEIGHBOUR = `router id ${OUTSIDE_IPV4};
protocol device { scan time 1; }
protocol kernel main4 { scan time 1; ipv4 { import none; export all; }; }
protocol kernel main6 { scan time 1; ipv6 { import none; export all; }; }
${sessions([OUTSIDE_IPV4, OUTSIDE_IPV6], [NODE_IPV4, NODE_IPV6], "import all; export none;")}
`;

/** Runs BIRD in a namespace until the test ends. */
function runBird(t: TestContext, node: CniNode, netns: string, config: string): () => string {
  assert.ok(existsSync(BIRD), `no bird at ${BIRD}: ./run test unpacks Debian's bird2 there`);
  const file = join(node.folder, `${netns}.conf`);
  writeFileSync(file, config);
  const argv = [
    "nsenter",
    `--net=/run/netns/${netns}`,
    BIRD,
    "-f",
    "-c",
    file,
    "-s",
    `${file}.ctl`,
    "-P",
    `${file}.pid`,
  ];
  const env = { LD_LIBRARY_PATH: join(DEBIAN, "usr/lib/x86_64-linux-gnu") };
  const bird = start(argv, { env });
  t.after(async () => {
    bird.child.kill("SIGKILL");
    await bird.ended;
  });
  return bird.said;
}

test("bird: a neighbour reaches a pod in both families while its block is the node's, also while coild is restarted, and no longer", async (t) => {
  await using node = await CniNode.open("bird");
  const kernel = openKernel();
  kernel.createNetNs(POD)[Symbol.dispose]();
  t.after(() => kernel.deleteNetNs(POD));
  const logs = [runBird(t, node, node.netns, ON_NODE), runBird(t, node, node.outside, ON_NEIGHBOUR)];
  const seen = (): string => logs.map((said) => said()).join("");
  const ip = async (...args: readonly string[]): Promise<string> =>
    (await start(["ip", "-n", node.outside, ...args]).ended).stdout;
  /** The pool's prefixes in the neighbour's main table, with their gateways. */
  const learned = async (): Promise<string[]> => {
    const routes = (await ip("-4", "route")) + (await ip("-6", "route"));
    return routes.split("\n").flatMap((line) => /^((?:10\.210|fd00:210)\S+ via \S+)/.exec(line)?.[1] ?? []);
  };
  const attachment = { containerId: "c1", netns: POD, pod: "p" };
  const answers = async (address: string): Promise<boolean> => {
    const ping = ["nsenter", `--net=/run/netns/${node.outside}`, "ping", "-c1", "-W1", address];
    return (await start(ping).ended).code === 0;
  };

  await node.createPod("p");
  const addresses = await node.call("Add", attachment);
  const [block] = await node.blocks();
  const wanted = [`${block?.ipv4} via ${NODE_IPV4}`, `${block?.ipv6} via ${NODE_IPV6}`];
  const isLearned = async (): Promise<boolean> => (await learned()).join() === wanted.join();
  await until("the neighbour has the block's prefixes", isLearned, { seen });
  for (const address of addresses) await until(`${address} answers`, () => answers(address), { seen });
  await node.killCoild();
  await node.startCoild();
  let looks = 0;
  await until(
    "BIRD has scanned table 119 again, twice",
    async () => {
      assert.deepEqual(await learned(), wanted);
      looks += 1;
      return looks * LOOK_MS > 2000;
    },
    { everyMs: LOOK_MS },
  );
  await node.call("Del", attachment);
  await until("the routes are withdrawn", async () => (await learned()).length === 0, { seen });
  for (const address of addresses) assert.equal(await answers(address), false);
});
