/** Tests of the packets that routers and clients take. They run wherever the kernel has the driver. */
import assert from "node:assert/strict";
import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { once } from "node:events";
import { test } from "node:test";
import { Cidr, type IpAddress, type IpFamily, MacAddress } from "#base/ip";
import { type Nft, openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { bindUdp } from "#kernel/socket";
import { clientScope, PRIVATE_RANGES, planClient } from "../client/index.ts";
import { nftFilter } from "../filter/index.ts";
import {
  type GuardPlan,
  GuardTable,
  openClientGuard,
  planRouterGuard,
  ROUTER_TABLE,
  type RouterGuard,
} from "../guard/index.ts";
import { syncNet } from "../net-plan/index.ts";
import { answerTo, encodeProbe, newProbeToken, probePort, wrapProbe } from "../probe/index.ts";
import { planRouter, planRules, routerRules, routerScope } from "../router/index.ts";
import { type TunnelDriver, vniOf } from "../tunnel/index.ts";
import { AT, EgressBed, type Member, MTU_BYTES, TUNNEL_PORT } from "./bed.ts";
import { behindOptions, frame, ipPacket, sendFrame, UDP, udp, vxlan } from "./packets.ts";

const EGRESS = { namespace: "internet", name: "nat" };
const FAMILIES = [4, 6] as const;
/** The UDP port on which the targets of the packets listen. */
const TARGET_PORT = 7000;
const PROBE_PORTS = { from: TARGET_PORT, to: probePort(TUNNEL_PORT) };
const WAIT_MS = 15_000;
const CLIENT_MAC = MacAddress.parse("02:00:00:00:55:01");
const ROUTER_MAC = MacAddress.parse("02:00:00:00:55:02");
const IN_IP: Readonly<Record<IpFamily, number>> = { 4: 4, 6: 41 };

type Pair = { readonly src: IpAddress; readonly dst: IpAddress };

/** One packet of the attack, or several that belong together. */
interface Attack {
  readonly name: string;
  /** The sender; the node sends by the router's link. */
  readonly from: Member | "node";
  readonly packets: (family: IpFamily) => readonly Buffer[];
  /** The reason that counts it. */
  readonly reason: string;
  readonly only?: IpFamily;
}

/** A datagram to the targets' port. */
const datagram = (ends: Pair, text = "attack"): Buffer =>
  ipPacket(ends, UDP, udp(ends, { from: TARGET_PORT, to: TARGET_PORT }, Buffer.from(text)));

/** Returns functions that wrap packets as a driver does, and in forms that the driver does not have. */
function wrappers(driver: TunnelDriver) {
  const inner = (
    packet: Buffer,
    more: { readonly vlan?: number; readonly vni?: number; readonly flags?: number },
  ): Buffer => {
    if (driver.name === "fou") return packet;
    const bytes = frame({ to: ROUTER_MAC, from: CLIENT_MAC }, packet, more);
    return vxlan(more.vni ?? vniOf(EGRESS), bytes, more.flags);
  };
  const outer = (from: Pair, packet: Buffer, more: Parameters<typeof inner>[1] = {}): Buffer =>
    udp(from, { from: 40_000, to: TUNNEL_PORT }, inner(packet, more));
  return { inner, outer };
}

function attacksOf(driver: TunnelDriver): readonly Attack[] {
  const { inner, outer } = wrappers(driver);
  const toRouter = (member: Member, family: IpFamily): Pair => ({ src: AT[member][family], dst: AT.router[family] });
  const pair = (src: keyof typeof AT, dst: keyof typeof AT, family: IpFamily): Pair => ({
    src: AT[src][family],
    dst: AT[dst][family],
  });
  const tunnel = (member: Member, family: IpFamily, packet: Buffer, more: Parameters<typeof outer>[2] = {}): Buffer =>
    ipPacket(toRouter(member, family), UDP, outer(toRouter(member, family), packet, more));
  const own = (family: IpFamily): Buffer => datagram(pair("client", "outside", family));
  const one =
    (make: (family: IpFamily) => Buffer): Attack["packets"] =>
    (family) => [make(family)];
  const split = (ends: Pair, payload: Buffer): readonly Buffer[] => [
    ipPacket(ends, UDP, payload.subarray(0, 24), { fragment: { offset: 0, more: true } }),
    ipPacket(ends, UDP, payload.subarray(24), { fragment: { offset: 24, more: false } }),
  ];
  const all: Attack[] = [
    {
      name: "a pod that is no client sends its own packet",
      from: "stranger",
      reason: "outer-source",
      packets: one((f) => tunnel("stranger", f, datagram(pair("stranger", "outside", f)))),
    },
    {
      name: "a host outside sends to a pod",
      from: "outside",
      reason: "outer-source",
      packets: one((f) => tunnel("outside", f, datagram(pair("outside", "client", f)))),
    },
    {
      name: "a host outside sends to a Service",
      from: "outside",
      reason: "outer-source",
      packets: one((f) => tunnel("outside", f, datagram(pair("outside", "service", f)))),
    },
    {
      name: "a host outside sends as a client to another pod",
      from: "outside",
      reason: "translated",
      packets: one((f) => tunnel("outside", f, datagram(pair("client", "stranger", f)))),
    },
    {
      name: "a pod that is no client sends as one",
      from: "stranger",
      reason: "translated",
      packets: one((f) => tunnel("stranger", f, own(f))),
    },
    {
      name: "a client sends as another pod",
      from: "client",
      reason: "inner-source",
      packets: one((f) => tunnel("client", f, datagram(pair("stranger", "outside", f)))),
    },
    {
      name: "a client sends as a host outside",
      from: "client",
      reason: "inner-source",
      packets: one((f) => tunnel("client", f, datagram(pair("outside", "client", f)))),
    },
    {
      name: "a client sends to another pod",
      from: "client",
      reason: "destination",
      packets: one((f) => tunnel("client", f, datagram(pair("client", "stranger", f)))),
    },
    {
      name: "a client sends to a Service",
      from: "client",
      reason: "destination",
      packets: one((f) => tunnel("client", f, datagram(pair("client", "service", f)))),
    },
    {
      name: "a client sends to its node",
      from: "client",
      reason: "destination",
      packets: one((f) => tunnel("client", f, datagram(pair("client", "node", f)))),
    },
    {
      name: "a client sends to the router",
      from: "client",
      reason: "local",
      packets: one((f) => tunnel("client", f, datagram(pair("client", "router", f)))),
    },
    ...(["stranger", "client", "outside"] as const).map(
      (from): Attack => ({
        name: `${from === "client" ? "a client" : `the ${from}`} sends a probe without a tunnel`,
        from,
        reason: "probe",
        packets: one((f) =>
          ipPacket(pair(from, "router", f), UDP, udp(pair(from, "router", f), PROBE_PORTS, Buffer.from("probe"))),
        ),
      }),
    ),
    {
      name: "a client sends a tunnel packet in a tunnel packet",
      from: "client",
      reason: "local",
      packets: one((f) =>
        tunnel("client", f, ipPacket(pair("client", "router", f), UDP, outer(pair("client", "router", f), own(f)))),
      ),
    },
    {
      name: "a client sends fragments to another pod",
      from: "client",
      reason: "destination",
      packets: (f) =>
        split(
          pair("client", "stranger", f),
          udp(pair("client", "stranger", f), { from: 9, to: TARGET_PORT }, Buffer.alloc(40)),
        ).map((part) => tunnel("client", f, part)),
    },
    {
      name: "a pod that is no client sends fragments of a tunnel packet",
      from: "stranger",
      reason: "translated",
      packets: (f) => split(toRouter("stranger", f), outer(toRouter("stranger", f), own(f))),
    },
    {
      name: "a pod that is no client sends without UDP",
      from: "stranger",
      reason: "plain-tunnel",
      packets: one((f) => ipPacket(toRouter("stranger", f), IN_IP[f], own(f))),
    },
    {
      name: "a client sends without UDP",
      from: "client",
      reason: "plain-tunnel",
      packets: one((f) => ipPacket(toRouter("client", f), IN_IP[f], own(f))),
    },
    {
      name: "a client sends IPv6 in IPv4, or IPv4 in IPv6, without UDP",
      from: "client",
      reason: "plain-tunnel",
      packets: one((f) => ipPacket(toRouter("client", f), IN_IP[f === 4 ? 6 : 4], own(f === 4 ? 6 : 4))),
    },
    {
      name: "a pod that is no client sends with options",
      from: "stranger",
      reason: "translated",
      only: 4,
      packets: one((f) =>
        ipPacket(toRouter("stranger", f), UDP, outer(toRouter("stranger", f), own(f)), {
          options: Buffer.from([1, 1, 1, 0]),
        }),
      ),
    },
    {
      name: "a pod that is no client sends with an extension header",
      from: "stranger",
      reason: "translated",
      only: 6,
      packets: one((f) =>
        ipPacket(toRouter("stranger", f), 60, behindOptions(UDP, outer(toRouter("stranger", f), own(f)))),
      ),
    },
    {
      name: "a client sends a packet of the other family",
      from: "client",
      reason: "inner-source",
      packets: one((f) => tunnel("client", f, own(f === 4 ? 6 : 4))),
    },
    {
      name: "a packet to a client that answers none",
      from: "node",
      reason: "unsolicited",
      packets: one((f) => datagram(pair("outside", "client", f))),
    },
    {
      name: "a packet that is not a client's",
      from: "node",
      reason: "transit",
      packets: one((f) => datagram(pair("stranger", "outside", f))),
    },
  ];
  if (driver.name === "fou") return all;
  return [
    ...all,
    ...[0, 5].map(
      (vlan): Attack => ({
        name: `a client sends to another pod, tagged with VLAN ${vlan}`,
        from: "client",
        reason: "inner-source",
        packets: one((f) => tunnel("client", f, datagram(pair("client", "stranger", f)), { vlan })),
      }),
    ),
    {
      name: "a client sends as another pod, tagged with VLAN 0",
      from: "client",
      reason: "inner-source",
      packets: one((f) => tunnel("client", f, datagram(pair("stranger", "outside", f)), { vlan: 0 })),
    },
    {
      name: "a pod that is no client sends, tagged with VLAN 0",
      from: "stranger",
      reason: "outer-source",
      packets: one((f) => tunnel("stranger", f, datagram(pair("stranger", "outside", f)), { vlan: 0 })),
    },
    {
      name: "a client sends by the identifier of another Egress",
      from: "client",
      reason: "inner-source",
      packets: one((f) => tunnel("client", f, own(f), { vni: 77 })),
    },
    {
      name: "a client sends with other flags of VXLAN",
      from: "client",
      reason: "inner-source",
      packets: one((f) => tunnel("client", f, own(f), { flags: 0x0c })),
    },
    {
      name: "a client sends a frame that ends in its headers",
      from: "client",
      reason: "inner-source",
      packets: one((f) =>
        ipPacket(
          toRouter("client", f),
          UDP,
          udp(toRouter("client", f), { from: 9, to: TUNNEL_PORT }, inner(own(f), {}).subarray(0, 30)),
        ),
      ),
    },
  ];
}

/** The senders of packets to a router, and the receivers that must not get them. */
export class Strangers implements Disposable {
  readonly #bed: EgressBed;
  readonly #driver: TunnelDriver;
  readonly #sockets: Socket[] = [];
  /** Texts that arrived at any target, with the name of the target. */
  readonly #arrived: string[] = [];

  constructor(bed: EgressBed, driver: TunnelDriver) {
    this.#bed = bed;
    this.#driver = driver;
    for (const member of ["client", "stranger", "outside", "router"] as const)
      for (const family of FAMILIES) this.#listen(member, family);
    // Packets that the kernel itself would drop say nothing of the router.
    for (const link of ["all", "default", "router"]) bed.stack("node").sysctl.set(`net.ipv4.conf.${link}.rp_filter`, 0);
  }

  /**
   * Sends every packet of the list, and waits until the router has counted it by its reason. Before and after them a packet of the client must arrive. Throws
   * `AssertionError`, also if anything else has arrived anywhere. `count`: the packets that the router has dropped for a reason.
   */
  async attack(count: (reason: string) => number | Promise<number>): Promise<void> {
    for (const family of FAMILIES) {
      await this.#rightful(family, `before ${family}`);
      for (const { name, from, packets, reason, only = family } of attacksOf(this.#driver)) {
        if (only !== family) continue;
        const before = await count(reason);
        this.#send(from, packets(family));
        await until(async () => (await count(reason)) > before, `IPv${family}, ${name}: counted as ${reason}`);
      }
      await this.#rightful(family, `after ${family}`);
    }
    assert.deepEqual(
      this.#arrived.filter((one) => !/^outside (before|after) /.test(one)),
      [],
    );
  }

  /** The source that the host outside sees of a packet of the client to a port of it. */
  async sourceSeen(family: IpFamily, port: number): Promise<string> {
    const socket = createSocket(family === 4 ? "udp4" : "udp6");
    socket.bind({ fd: bindUdp(AT.outside[family], port, { netns: this.#bed.netns("outside") }), exclusive: true });
    this.#sockets.push(socket);
    const arrived = once(socket, "message", { signal: AbortSignal.timeout(WAIT_MS) });
    const ends = { src: AT.client[family], dst: AT.outside[family] };
    const inner = ipPacket(ends, UDP, udp(ends, { from: TARGET_PORT, to: port }, Buffer.from("own")));
    const tunnel = { src: AT.client[family], dst: AT.router[family] };
    this.#send("client", [ipPacket(tunnel, UDP, wrappers(this.#driver).outer(tunnel, inner))]);
    const [, { address }] = (await arrived) as [Buffer, RemoteInfo];
    return address;
  }

  #listen(member: Member, family: IpFamily): void {
    const socket = createSocket(family === 4 ? "udp4" : "udp6");
    const fd = bindUdp(AT[member][family], TARGET_PORT, { netns: this.#bed.netns(member) });
    socket.bind({ fd, exclusive: true });
    socket.on("message", (text) => this.#arrived.push(`${member} ${text}`));
    this.#sockets.push(socket);
  }

  /** Sends packets by the link of a member to the node, or by the node's link to the router. */
  #send(from: Member | "node", packets: readonly Buffer[]): void {
    const name = from === "node" ? "router" : "eth0";
    const other = from === "node" ? ("router" as const) : ("node" as const);
    const link = this.#bed.stack(from).links.get({ name }) ?? assert.fail(name);
    const peer = this.#bed.stack(other).links.get({ name: from === "node" ? "eth0" : from }) ?? assert.fail(from);
    const [own, to] = [link.mac ?? assert.fail("no MAC"), peer.mac ?? assert.fail("no MAC")];
    for (const packet of packets) sendFrame(this.#bed.netns(from), link.index, frame({ to, from: own }, packet));
  }

  /** A packet of the client as the tunnel carries it, which must arrive: all that was sent before has been judged by then. */
  async #rightful(family: IpFamily, text: string): Promise<void> {
    const ends = { src: AT.client[family], dst: AT.router[family] };
    const inner = datagram({ src: AT.client[family], dst: AT.outside[family] }, text);
    this.#send("client", [ipPacket(ends, UDP, wrappers(this.#driver).outer(ends, inner))]);
    await until(() => this.#arrived.includes(`outside ${text}`), `${text} arrives`);
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.close();
  }
}

async function until(isTrue: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + WAIT_MS;
  while (!(await isTrue())) {
    assert.ok(performance.now() < deadline, `${what} within ${WAIT_MS} ms`);
    await new Promise((done) => setTimeout(done, 5));
  }
}

/** A router with one client, as `coil-egress` makes it. */
async function makeRouter(
  bed: EgressBed,
  driver: TunnelDriver,
  guard: GuardTable,
  nft: Nft,
  ports: Pick<RouterGuard, "shares" | "ports"> = {},
): Promise<GuardPlan> {
  const clients = FAMILIES.map((family) => AT.client[family]);
  const plan = planRouterGuard({
    egress: EGRESS,
    driver,
    port: TUNNEL_PORT,
    ifname: "eth0",
    clients,
    destinations: ["0.0.0.0/0", "::/0"].map((text) => Cidr.parse(text)),
    inCluster: PRIVATE_RANGES,
    ...ports,
  });
  await guard.sync(plan);
  const pod = { egress: EGRESS, addresses: AT.router, ifname: "eth0", mtuBytes: MTU_BYTES };
  const net = planRouter(pod, clients, { driver, port: TUNNEL_PORT, sourcePortAuto: true });
  await syncNet(bed.stack("router"), net, routerScope(TUNNEL_PORT));
  await routerRules(nftFilter(nft)).sync(planRules(pod));
  return plan;
}

/** The client of the router, with all its destinations of one family. */
async function makeClient(bed: EgressBed, driver: TunnelDriver, family: IpFamily): Promise<void> {
  const gateway = {
    ...{ egress: EGRESS, address: AT.service[family], sourcePortAuto: true, originatingOnly: false },
    destinations: [Cidr.parse(family === 4 ? "0.0.0.0/0" : "::/0")],
  };
  const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
  const { plan } = planClient(pod, [gateway], { driver, port: TUNNEL_PORT, inCluster: PRIVATE_RANGES });
  await syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT));
}

/** All claims of one driver. */
export function guardClaims(driver: TunnelDriver): void {
  test(`router guard, ${driver.name}: packets of strangers, and forged ones, in every form reach nobody and are counted by reason; those of a client pass`, async () => {
    using bed = new EgressBed();
    using nft = openNft(bed.netns("router"));
    using elements = openNftElements(bed.netns("router"));
    const guard = new GuardTable({ nft, elements }, ROUTER_TABLE);
    const plan = await makeRouter(bed, driver, guard, nft);
    assert.equal(await guard.sync(plan), 0);
    using strangers = new Strangers(bed, driver);
    await strangers.attack((reason) => guard.counters().find((one) => one.reason === reason)?.packets ?? 0);
  });

  test(`router guard, ${driver.name}: what a client sends to the tunnels' port of a host outside leaves as the router`, async () => {
    using bed = new EgressBed();
    using nft = openNft(bed.netns("router"));
    using elements = openNftElements(bed.netns("router"));
    await makeRouter(bed, driver, new GuardTable({ nft, elements }, ROUTER_TABLE), nft);
    using strangers = new Strangers(bed, driver);
    for (const family of FAMILIES)
      assert.equal(await strangers.sourceSeen(family, TUNNEL_PORT), String(AT.router[family]));
  });
}

/** Claims of the source ports, with two common ones and shares of one. */
export function portShareClaims(driver: TunnelDriver): void {
  for (const family of FAMILIES)
    test(`source ports, ${driver.name}, IPv${family}: a client without common ports has its share with the second packet, and beyond it is refused at once; its connections go on`, async () => {
      using bed = new EgressBed();
      using nft = openNft(bed.netns("router"));
      using elements = openNftElements(bed.netns("router"));
      const guard = new GuardTable({ nft, elements }, ROUTER_TABLE);
      const shares = new Map([[String(AT.client[family]), 1]]);
      await makeRouter(bed, driver, guard, nft, { shares, ports: { from: 20_000, to: 20_003, count: 2 } });
      await makeClient(bed, driver, family);
      await bed.serve(family, TARGET_PORT);
      const open = await Promise.all([bed.connect(family, TARGET_PORT), bed.connect(family, TARGET_PORT)]);
      open.push(await bed.connect(family, TARGET_PORT));
      // Its first packet and the second one find no port.
      const waiting = bed.connect(family, TARGET_PORT);
      waiting.catch(() => undefined);
      await until(() => elements.list(ROUTER_TABLE, `spent${family}`).length === 1, "its share is spent");
      await assert.rejects(bed.connect(family, TARGET_PORT), { code: family === 4 ? "EHOSTUNREACH" : "EACCES" });
      // What waits is sent again too.
      assert.ok((guard.counters().find(({ reason }) => reason === "ports")?.packets ?? 0) >= 1);
      for (const socket of open) {
        const echoed = once(socket, "data");
        socket.write("still there");
        assert.equal(String((await echoed)[0]), "still there");
      }
    });
}

/** Claims of probes: what `coild` sends in a client's namespace, a router's process gets and answers. */
export function probeClaims(driver: TunnelDriver): void {
  test(`probes, ${driver.name}: one that a client sends to a router's own address is answered past the tunnel; of a flood at most fifty are, and the others are counted`, async () => {
    using bed = new EgressBed();
    using nft = openNft(bed.netns("router"));
    using elements = openNftElements(bed.netns("router"));
    const guard = new GuardTable({ nft, elements }, ROUTER_TABLE);
    await makeRouter(bed, driver, guard, nft);
    const local = (): number => guard.counters().find(({ reason }) => reason === "local")?.packets ?? 0;
    for (const family of FAMILIES) {
      const sockets: Socket[] = [];
      const open = (member: "client" | "router", port: number): Socket => {
        const socket = createSocket(family === 4 ? "udp4" : "udp6");
        socket.bind({ fd: bindUdp(AT[member][family], port, { netns: bed.netns(member) }), exclusive: true });
        sockets.push(socket);
        return socket;
      };
      try {
        const [client, router] = [open("client", 0), open("router", probePort(TUNNEL_PORT))];
        const answers: string[] = [];
        router.on("message", (bytes, { address, port }) => {
          const answer = answerTo(bytes);
          if (answer !== undefined) router.send(answer, port, address);
        });
        client.on("message", (bytes, { address, port }) => answers.push(`${bytes.toString("hex")} ${address} ${port}`));
        const ports = { clientPort: client.address().port, routerPort: probePort(TUNNEL_PORT) };
        const ends = { client: AT.client[family], router: AT.router[family], ...ports };
        const token = newProbeToken();
        const probe = wrapProbe(driver, EGRESS, ends, encodeProbe({ kind: "question", token }));
        client.send(probe, TUNNEL_PORT, String(AT.router[family]));
        await until(() => answers.length === 1, `IPv${family}: an answer`);
        const answer = encodeProbe({ kind: "answer", token }).toString("hex");
        assert.deepEqual(answers, [`${answer} ${AT.router[family]} ${ports.routerPort}`]);
        const before = local();
        for (let sent = 0; sent < 200; sent += 1) client.send(probe, TUNNEL_PORT, String(AT.router[family]));
        await until(() => answers.length + local() - before >= 201, `IPv${family}: all are answered or counted`);
        assert.ok(local() > before, "a flood is limited");
      } finally {
        for (const socket of sockets) socket.close();
      }
    }
  });
}

/** Claims of the table of a client. They hold for every driver, since the table does not read the packet inside. */
export function clientGuardClaims(): void {
  test("client guard: packets to the tunnels' port come in from routers and their Service alone, also where the node translates a router's answers back; off means gone", async () => {
    using bed = new EgressBed();
    using guard = openClientGuard(bed.netns("client"));
    const routers = FAMILIES.flatMap((family) => [AT.router[family], AT.service[family]]);
    const wanted = { driver: { name: "vxlan" as const }, port: TUNNEL_PORT, routers };
    assert.equal(await guard.sync(wanted), 1);
    assert.equal(await guard.sync(wanted), 0);
    for (const family of FAMILIES) {
      const open = (member: Member): Socket => {
        const socket = createSocket(family === 4 ? "udp4" : "udp6");
        socket.bind({ fd: bindUdp(AT[member][family], TUNNEL_PORT, { netns: bed.netns(member) }), exclusive: true });
        return socket;
      };
      const sockets = { client: open("client"), router: open("router"), stranger: open("stranger") };
      try {
        const got: string[] = [];
        sockets.client.on("message", (text, { address }) => got.push(`${text} from ${address}`));
        sockets.router.on("message", (_, { address, port }) => sockets.router.send("answer", port, address));
        sockets.stranger.send("forged", TUNNEL_PORT, String(AT.client[family]));
        sockets.router.send("own", TUNNEL_PORT, String(AT.client[family]));
        await until(() => got.length === 1, "the router's packet arrives");
        sockets.client.send("ask", TUNNEL_PORT, String(AT.service[family]));
        await until(() => got.length === 2, "the router's answer arrives");
        assert.deepEqual(got, [`own from ${AT.router[family]}`, `answer from ${AT.service[family]}`]);
      } finally {
        for (const socket of Object.values(sockets)) socket.close();
      }
    }
    assert.equal(guard.remove(), 1);
    assert.equal(guard.remove(), 0);
  });
}
