/**
 * The ways of a client's packets to a host outside, in one topology (a client, a node, a router, a host outside; IPv4): through our tunnel,
 * through the same tunnel made by commands of `ip`, and through the router without a tunnel. The router masquerades in all of them. The work is the kernel's in
 * all of them.
 */
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { Cidr, IpAddress } from "#base/ip";
import {
  clientScope,
  GuardTable,
  nftFilter,
  PRIVATE_RANGES,
  planClient,
  planRouter,
  planRouterGuard,
  planRules,
  ROUTER_TABLE,
  routerRules,
  routerScope,
  syncNet,
  vxlanDriver,
} from "#features/egress";
import { inNetNs } from "#kernel/netns";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { AT, EgressBed, MTU_BYTES, TUNNEL_PORT } from "../src/features/egress/testing/bed.ts";
import { end } from "./cni-add.world.ts";
import type { Command } from "./egress.load.ts";

export const WAYS = ["ours", "ip commands", "no tunnel"] as const;
export type WayName = (typeof WAYS)[number];

const EGRESS = { namespace: "internet", name: "bench" };
const PORT = 8000;
/** Clients that the router lets through besides the one of the measurement. */
const OTHER_CLIENTS = 1000;
const ONLY = 4;
/** The ends of the tunnel made by commands. */
const BARE = { client: "169.254.77.1", router: "169.254.77.2" };

/** A way that stands, with a client and a server at its ends. */
export interface Way extends AsyncDisposable {
  readonly bytesPerSecond: (options: { readonly bytes: number; readonly streams: number }) => Promise<number>;
  readonly connectsPerSecond: (options: { readonly ms: number; readonly atOnce: number }) => Promise<number>;
}

/** Builds a way that lasts for this number of measurements of connections. Rejects if the host outside does not see the router's address. */
export async function openWay(name: WayName, rounds: number): Promise<Way> {
  await using undo = new AsyncDisposableStack();
  const bed = undo.use(new EgressBed());
  const ip = (space: "client" | "router" | "node", line: string): void => {
    execFileSync("nsenter", [`--net=${bed.netns(space).path}`, "ip", ...line.split(" ")]);
  };
  const router = bed.stack("router");
  router.sysctl.set("net.ipv4.ip_forward", 1);
  // All ways have the same reverse path settings as ours.
  for (const member of ["client", "router"] as const)
    for (const link of ["all", "default", "eth0"]) bed.stack(member).sysctl.set(`net.ipv4.conf.${link}.rp_filter`, 0);
  {
    using nft = openNft(bed.netns("router"));
    await routerRules(nftFilter(nft)).sync(planRules({ addresses: { 4: AT.router[ONLY] }, ifname: "eth0" }));
  }
  const outside = AT.outside[ONLY];
  if (name === "ours") await makeOurs(bed);
  else if (name === "ip commands") {
    const vxlan = (to: string): string =>
      `link add bare type vxlan id 77 remote ${to} dstport ${TUNNEL_PORT} dev eth0 nolearning`;
    ip("client", vxlan(String(AT.service[ONLY])));
    ip("router", vxlan(String(AT.client[ONLY])));
    for (const side of ["client", "router"] as const) {
      ip(side, `address add ${BARE[side]}/30 dev bare`);
      ip(side, "link set bare up");
    }
    ip("client", `route add ${outside}/32 via ${BARE.router} dev bare src ${AT.client[ONLY]}`);
    ip("router", `route add ${AT.client[ONLY]}/32 via ${BARE.client} dev bare`);
    // The tunnel's own packets go to the client by the node.
    ip("router", `rule add to ${AT.client[ONLY]} ipproto udp table 78`);
    ip("router", `route add default via ${AT.node[ONLY]} dev eth0 onlink table 78`);
  } else {
    ip("node", `rule add iif client to ${outside} table 77`);
    ip("node", `route add default via ${AT.router[ONLY]} dev router onlink table 77`);
  }

  const start = (space: "client" | "outside") => {
    const child = inNetNs(bed.netns(space), () =>
      fork(join(import.meta.dirname, "egress.load.ts"), [], { stdio: ["ignore", "ignore", "inherit", "ipc"] }),
    );
    undo.defer(() => end(child));
    // With both ends and the kernel's work between them on one processor, a rate is the processor time of a byte or a connection. Over several
    // processors, rates differ by a third from one second to the next with the kernel's placement of processes.
    execFileSync("taskset", ["--all-tasks", "--cpu-list", "--pid", "0", String(child.pid)], { stdio: "ignore" });
    return async (command: Command): Promise<number> => {
      child.send(command);
      const [answer] = (await once(child, "message")) as [{ readonly result?: number; readonly error?: string }];
      if (answer.result === undefined) throw new Error(`${name}: ${command.do}: ${answer.error}`);
      return answer.result;
    };
  };
  await bed.serve(ONLY, PORT);
  const seen = await bed.sourceSeen(ONLY, PORT);
  if (seen !== String(AT.router[ONLY])) throw new Error(`${name}: the host outside saw ${seen}, not the router`);
  const host = String(outside);
  // Each measurement has a port of its own: the connections of the one before still occupy the client's ports for a minute.
  const ports = Array.from({ length: rounds + 1 }, (_, at) => PORT + 1 + at);
  await start("outside")({ do: "serve", host, ports });
  const client = start("client");
  let used = 0;
  const parts = undo.move();
  return {
    bytesPerSecond: (options) => client({ do: "transfer", host, port: PORT + 1, ...options }),
    connectsPerSecond: (options) => {
      used += 1;
      return client({ do: "connect", host, port: ports[used] ?? PORT + 1, ...options });
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}

/** As `coild` and `coil-egress` make it. */
async function makeOurs(bed: EgressBed): Promise<void> {
  const gateway = {
    egress: EGRESS,
    address: AT.service[ONLY],
    destinations: [Cidr.parse("0.0.0.0/0")],
    sourcePortAuto: true,
    originatingOnly: false,
  };
  const pod = { addresses: { 4: AT.client[ONLY] }, ifname: "eth0", mtuBytes: MTU_BYTES };
  const options = { driver: vxlanDriver, port: TUNNEL_PORT };
  const { plan } = planClient(pod, [gateway], { ...options, inCluster: [] });
  await syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT));
  const router = { egress: EGRESS, addresses: { 4: AT.router[ONLY] }, ifname: "eth0", mtuBytes: MTU_BYTES };
  const clients = planRouter(router, [AT.client[ONLY]], { ...options, sourcePortAuto: true });
  await syncNet(bed.stack("router"), clients, routerScope(TUNNEL_PORT));
  using nft = openNft(bed.netns("router"));
  using elements = openNftElements(bed.netns("router"));
  const others = Array.from({ length: OTHER_CLIENTS }, (_, at) => IpAddress.parse("10.65.0.0").plus(at));
  await new GuardTable({ nft, elements }, ROUTER_TABLE).sync(
    planRouterGuard({
      ...options,
      egress: EGRESS,
      ifname: "eth0",
      clients: [AT.client[ONLY], ...others],
      destinations: gateway.destinations,
      inCluster: PRIVATE_RANGES,
    }),
  );
}
