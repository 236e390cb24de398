/** A router whose node is cut off from its clients, as tests that run wherever the kernel has the driver. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { poll, sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { Cidr, type IpFamily } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import {
  type ClientRouter,
  clientScope,
  type Gateway,
  GuardTable,
  nftFilter,
  openClientGuard,
  PRIVATE_RANGES,
  planClient,
  planRouter,
  planRouterGuard,
  planRules,
  probePort,
  ROUTER_TABLE,
  routerRules,
  routerScope,
  syncNet,
  type TunnelDriver,
} from "#features/egress";
import { openConntrack } from "#kernel/conntrack";
import { NftTransaction, openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { ClientRouters } from "../../src/features/egress/node/client-routers.ts";
import { openProbeSocket } from "../../src/features/egress/node/probe-socket.ts";
import { AT, EgressBed, MTU_BYTES, TUNNEL_PORT } from "../../src/features/egress/testing/bed.ts";
import { answerProbes } from "../../src/programs/daemons/coil-egress/answer-probes.ts";

const EGRESS = { namespace: "internet", name: "nat" };
const FAMILIES: readonly IpFamily[] = [4, 6];
/** The second router; the rules of the node never send to it. */
const ROUTERS = ["router", "stranger"] as const;
const SERVER_PORT = 8000;
const TRY_MS = 150;
const ANSWER_MS = 3000;
const WAIT_MS = 15_000;
/** Less than the product's, which these tests would wait for. */
const HOLD_MS = 1000;
/** Longer than a router that answers nothing is kept. */
const AWAY_MS = 3000;
const CUT = { family: "inet", name: "cut" } as const;

/** Makes a router with one client, as `coil-egress` does, and answers probes until the signal aborts. */
async function makeRouter(bed: EgressBed, member: (typeof ROUTERS)[number], driver: TunnelDriver, signal: AbortSignal) {
  const netns = bed.netns(member);
  using nft = openNft(netns);
  using elements = openNftElements(netns);
  const clients = FAMILIES.map((family) => AT.client[family]);
  const pod = { egress: EGRESS, addresses: AT[member], ifname: "eth0", mtuBytes: MTU_BYTES };
  const guard = planRouterGuard({
    ...{ egress: EGRESS, driver, port: TUNNEL_PORT, ifname: "eth0", clients, inCluster: PRIVATE_RANGES },
    destinations: ["0.0.0.0/0", "::/0"].map((text) => Cidr.parse(text)),
  });
  await new GuardTable({ nft, elements }, ROUTER_TABLE).sync(guard);
  const plan = planRouter(pod, clients, { driver, port: TUNNEL_PORT, sourcePortAuto: true });
  await syncNet(bed.stack(member), plan, routerScope(TUNNEL_PORT));
  await routerRules(nftFilter(nft)).sync(planRules(pod));
  const { index } = bed.stack("outside").links.get({ name: "eth0" }) ?? assert.fail("eth0 outside");
  for (const family of FAMILIES)
    bed.stack("outside").routes.replace({
      ...{ dst: Cidr.host(AT[member][family]), gateway: AT.node[family], linkIndex: index, onlink: true },
    });
  const part = { ok: () => undefined, degraded: (error: unknown) => assert.fail(String(error)) };
  return FAMILIES.map((family) =>
    answerProbes(
      { health: part, log: nullLogger, clock: systemClock },
      { address: AT[member][family], port: probePort(TUNNEL_PORT), netns },
      { signal },
    ),
  );
}

/** Drops what passes the node to and from the first router, as where its node is gone: nothing is answered, and no process ends. */
function cutOff(bed: EgressBed): () => void {
  using nft = openNft(bed.netns("node"));
  const rules = new NftTransaction(CUT)
    .addTable()
    .chain("forward", { type: "filter", hook: "forward", priority: "filter - 5" });
  for (const [name, family] of [
    ["ip", 4],
    ["ip6", 6],
  ] as const)
    for (const side of ["saddr", "daddr"]) rules.rule("forward", `${name} ${side} ${AT.router[family]} drop`);
  nft.run(rules);
  return () => {
    using again = openNft(bed.netns("node"));
    again.run(new NftTransaction(CUT).removeTable());
  };
}

/** All claims of one driver. */
export function lostRouterClaims(driver: TunnelDriver): void {
  // Both wait for seconds.
  describe(`a lost router, ${driver.name}`, { concurrency: true }, () => {
    for (const family of FAMILIES)
      test(`${driver.name}, IPv${family}: of a router that is cut off without a word new connects of its clients go to another one, whatever the node's rules say, and come back when it answers`, async (t) => {
        using bed = new EgressBed();
        await bed.serve(family, SERVER_PORT);
        const controller = new AbortController();
        const { signal } = controller;
        const running: Promise<void>[] = [];
        try {
          for (const member of ROUTERS) running.push(...(await makeRouter(bed, member, driver, signal)));
          const { routers, settled } = await clientOf(bed, driver, family);
          running.push(routers.run({ signal }).then(settled));
          await seen(t, bed, family, AT.router[family], "the router that the node's rules choose");
          const alive = (): number => routers.verdicts.filter(({ verdict }) => verdict === "alive").length;
          const count = await poll(alive, {
            until: (n) => n === 2,
            everyMs: 10,
            deadlineMs: WAIT_MS,
            clock: systemClock,
          });
          assert.equal(count, 2);
          const mend = cutOff(bed);
          await seen(t, bed, family, AT.stranger[family], "after the cut, the other router");
          assert.equal(routers.redirects.length, 1);
          mend();
          await seen(t, bed, family, AT.router[family], "after its end, the first router");
          assert.deepEqual(routers.redirects, []);
        } finally {
          controller.abort();
          await Promise.all(running);
        }
      });
    for (const family of FAMILIES)
      test(`${driver.name}, IPv${family}: a router whose process is away keeps its clients, since its kernel answers by the tunnel's way; cut off then, it is left`, async (t) => {
        using bed = new EgressBed();
        await bed.serve(family, SERVER_PORT);
        const [ending, processOfFirst] = [new AbortController(), new AbortController()];
        const { signal } = ending;
        const running: Promise<void>[] = [];
        try {
          const ends = AbortSignal.any([signal, processOfFirst.signal]);
          const answering = await makeRouter(bed, "router", driver, ends);
          running.push(...answering, ...(await makeRouter(bed, "stranger", driver, signal)));
          const lines: string[] = [];
          const log = createLogger({ name: "t", write: (line) => lines.push(line) });
          const { routers, settled } = await clientOf(bed, driver, family, log);
          running.push(routers.run({ signal }).then(settled));
          const alive = (): number => routers.verdicts.filter(({ verdict }) => verdict === "alive").length;
          const wait = { everyMs: 10, deadlineMs: WAIT_MS, clock: systemClock };
          assert.equal(await poll(alive, { until: (n) => n === 2, ...wait }), 2);
          processOfFirst.abort();
          await Promise.all(answering);
          const isSaid = (): boolean => lines.some((line) => line.includes("its kernel forwards on"));
          assert.ok(await poll(isSaid, { until: (is) => is, ...wait }), lines.join(""));
          const end = performance.now() + AWAY_MS;
          while (performance.now() < end) {
            assert.equal(await bed.sourceSeen(family, SERVER_PORT, ANSWER_MS), String(AT.router[family]));
            assert.equal(alive(), 2);
            await sleep(100);
          }
          cutOff(bed);
          await seen(t, bed, family, AT.stranger[family], "after the cut, the other router");
        } finally {
          ending.abort();
          await Promise.all(running);
        }
      });
  });
}

/** The pod's client, which follows its routers as `coild` lets it. */
async function clientOf(
  bed: EgressBed,
  driver: TunnelDriver,
  family: IpFamily,
  log = nullLogger,
): Promise<{ readonly routers: ClientRouters; readonly settled: () => Promise<void> }> {
  const gateway: Gateway = {
    egress: EGRESS,
    address: AT.service[family],
    destinations: [Cidr.parse(family === 4 ? "0.0.0.0/0" : "::/0")],
    sourcePortAuto: true,
    originatingOnly: false,
  };
  const found = ROUTERS.map((member): ClientRouter => {
    const metadata = { name: member, namespace: EGRESS.namespace, uid: member, resourceVersion: "1" };
    return {
      metadata,
      egress: "internet/nat",
      addresses: FAMILIES.map((one) => AT[member][one]),
      isReady: true,
      isEnding: false,
    };
  });
  const netns = bed.netns("client");
  using guard = openClientGuard(netns);
  await guard.sync({
    ...{ driver, port: TUNNEL_PORT },
    routers: [AT.service[family], ...found.flatMap(({ addresses }) => addresses)],
  });
  let turn = Promise.resolve();
  const sync = async (): Promise<void> => {
    const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
    const options = { driver, port: TUNNEL_PORT, inCluster: PRIVATE_RANGES };
    const { plan } = planClient(pod, routers.redirect("client", [gateway]), options);
    await syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT));
  };
  const routers: ClientRouters = new ClientRouters(
    {
      routersOf: () => found,
      openSocket: (_place, address, onDatagram) => openProbeSocket(netns, address, onDatagram, nullLogger),
      openConntrack: () => openConntrack(bed.netns("node")),
      health: { ok: () => undefined, degraded: () => undefined },
      onChange: () => {
        turn = turn.then(sync);
      },
      log,
      clock: systemClock,
    },
    { port: TUNNEL_PORT, holdMs: HOLD_MS },
  );
  const place = { path: netns.path ?? "", inode: netns.inode, ifname: "eth0", addresses: AT.client };
  routers.use("client", { namespace: "default", place, driver, gateways: [gateway] });
  await sync();
  return { routers, settled: () => turn };
}

/** Connects anew until the server sees this source, and says how long that took. */
async function seen(
  t: TestContext,
  bed: EgressBed,
  family: IpFamily,
  source: { toString(): string },
  what: string,
): Promise<void> {
  const begin = performance.now();
  const look = async (): Promise<string> => {
    try {
      return await bed.sourceSeen(family, SERVER_PORT, TRY_MS);
    } catch (error) {
      // While the tunnel is made anew its destinations are unreachable.
      if ((error as NodeJS.ErrnoException).code !== "EHOSTUNREACH") throw error;
      return "unreachable";
    }
  };
  const last = await poll(look, {
    until: (address) => address === String(source),
    everyMs: 20,
    deadlineMs: WAIT_MS,
    clock: systemClock,
  });
  assert.equal(last, String(source), what);
  t.diagnostic(`${what}: ${Math.round(performance.now() - begin)} ms`);
}
