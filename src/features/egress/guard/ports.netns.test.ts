import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { openConntrack } from "#kernel/conntrack";
import { bind, C, close, send, socket } from "#kernel/ffi";
import { type Kernel, type NetNs, type NetStack, openKernel } from "#kernel/net";
import { inNetNs } from "#kernel/netns";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { bindUdp } from "#kernel/socket";
import { frame, ipPacket, TCP, tcp, UDP, udp } from "../testing/packets.ts";
import { addressElement } from "./elements.ts";
import type { GuardPlan } from "./plan.ts";
import {
  commonPorts,
  crowdedText,
  listCrowded,
  listRefused,
  type PortRange,
  planShares,
  portChains,
  portSets,
  refuseSpent,
  SOURCE_PORTS,
  settleChain,
  sharePorts,
  sharesInKernel,
} from "./ports.ts";
import { GuardTable } from "./table.ts";

const ip = IpAddress.parse;
const FAMILIES: readonly IpFamily[] = [4, 6];
const TABLE = { family: "inet", name: "coil-egress" } as const;
const SERVER_PORT = 7000;
const AT = {
  router: { 4: ip("10.64.0.8"), 6: ip("fd02::8") },
  /** The router's address towards the pods. */
  gateway: { 4: ip("10.64.0.1"), 6: ip("fd02::1") },
  outside: { 4: ip("203.0.113.9"), 6: ip("2001:db8::9") },
} as const;
/** Two pods of one namespace, and one of another. */
const PODS = {
  one: { namespace: "many", 4: ip("10.64.0.11"), 6: ip("fd02::11") },
  two: { namespace: "many", 4: ip("10.64.0.12"), 6: ip("fd02::12") },
  third: { namespace: "other", 4: ip("10.64.0.13"), 6: ip("fd02::13") },
} as const;
type Pod = keyof typeof PODS;
const POD_NAMES = Object.keys(PODS) as Pod[];
/** Within this time a packet of the bed has arrived, or an error of it. */
const ARRIVAL_MS = 2000;

/** Three pods in one network namespace, a router with the source ports of its plan and nothing else, and a host outside that counts the flows that it sees. */
class Bed implements Disposable {
  readonly #kernel: Kernel = openKernel();
  readonly #spaces = new DisposableStack();
  readonly plan: GuardPlan;
  readonly guard: GuardTable;
  readonly elements: ReturnType<typeof openNftElements>;
  readonly conntrack: ReturnType<typeof openConntrack>;
  readonly #pods = this.#space();
  readonly #router = this.#space();
  readonly #outside = this.#space();
  readonly range: PortRange;
  readonly #raw: number;

  constructor(range: PortRange) {
    this.range = range;
    this.#connect(this.#router, "pods", this.#pods);
    this.#connect(this.#router, "eth0", this.#outside);
    const [inside, out] = ["pods", "eth0"].map((name) => linkOf(this.#router.stack, name).index) as [number, number];
    this.#router.stack.sysctl.set("net.ipv4.ip_forward", 1);
    this.#router.stack.sysctl.set("net.ipv6.conf.all.forwarding", 1);
    for (const family of FAMILIES) {
      this.#address(this.#router.stack, "eth0", AT.router[family]);
      this.#address(this.#router.stack, "pods", AT.gateway[family]);
      this.#address(this.#outside.stack, "eth0", AT.outside[family]);
      const scope = family === 4 ? "link" : undefined;
      const routes = (stack: NetStack, linkIndex: number, dst: IpAddress): void =>
        void stack.routes.add({ dst: Cidr.host(dst), linkIndex, scope });
      const pods = linkOf(this.#pods.stack, "eth0").index;
      for (const pod of POD_NAMES) {
        this.#address(this.#pods.stack, "eth0", PODS[pod][family]);
        routes(this.#router.stack, inside, PODS[pod][family]);
      }
      routes(this.#router.stack, out, AT.outside[family]);
      routes(this.#outside.stack, linkOf(this.#outside.stack, "eth0").index, AT.router[family]);
      routes(this.#pods.stack, pods, AT.gateway[family]);
      const to = { dst: Cidr.host(AT.outside[family]), gateway: AT.gateway[family], linkIndex: pods, onlink: true };
      this.#pods.stack.routes.add(to);
    }
    const nft = this.#spaces.use(openNft(this.#router.netns));
    this.elements = this.#spaces.use(openNftElements(this.#router.netns));
    this.conntrack = this.#spaces.use(openConntrack(this.#router.netns));
    this.guard = new GuardTable({ nft, elements: this.elements }, TABLE);
    this.plan = planOf(range);
    this.#raw = inNetNs(this.#pods.netns, () => socket(C.AF_PACKET, C.SOCK_RAW, 0));
    const address = Buffer.alloc(20); // struct sockaddr_ll
    address.writeUInt16LE(C.AF_PACKET, 0);
    address.writeInt32LE(linkOf(this.#pods.stack, "eth0").index, 4);
    bind(this.#raw, address, "send frames of pods");
  }

  #space() {
    const name = `isk-sp-${process.pid}-${Math.random().toString(36).slice(2, 8)}`;
    this.#spaces.defer(() => this.#kernel.deleteNetNs(name));
    const netns = this.#spaces.use(this.#kernel.createNetNs(name));
    const stack = this.#spaces.use(this.#kernel.openStack(netns));
    stack.links.set(1, { up: true });
    stack.sysctl.set("net.ipv6.conf.default.accept_dad", 0);
    return { netns, stack };
  }

  #connect({ stack }: { readonly stack: NetStack }, name: string, { netns }: { readonly netns: NetNs }): void {
    stack.links.create({ kind: "veth", name, up: true, peer: { name: "eth0", netns, up: true } });
  }

  #address(stack: NetStack, link: string, address: IpAddress): void {
    stack.addresses.add({ linkIndex: linkOf(stack, link).index, address, noDad: address.family === 6 });
  }

  /** A UDP server outside, which answers each packet. Returns the source ports of the flows that it has seen. */
  serve(family: IpFamily): Set<number> {
    const ports = new Set<number>();
    const server = this.#open(family, "outside", AT.outside[family], SERVER_PORT);
    server.on("message", (text, { address, port }) => {
      assert.equal(address, String(AT.router[family]));
      ports.add(port);
      server.send(text, port, address);
    });
    return ports;
  }

  #open(family: IpFamily, where: "outside" | "pods", address: IpAddress, port: number): Socket {
    const { netns } = where === "outside" ? this.#outside : this.#pods;
    const opened = createSocket(family === 4 ? "udp4" : "udp6");
    opened.bind({ fd: bindUdp(address, port, { netns }), exclusive: true });
    this.#spaces.defer(() => opened.close());
    return opened;
  }

  /** Sends a first packet of a pod from each of these source ports; no socket of the pod waits for answers. */
  send(family: IpFamily, pod: Pod, ports: Iterable<number>): void {
    const ends = { src: PODS[pod][family], dst: AT.outside[family] };
    const [to, from] = [linkOf(this.#router.stack, "pods").mac, linkOf(this.#pods.stack, "eth0").mac];
    assert.ok(to !== undefined && from !== undefined);
    for (const port of ports) {
      const packet = ipPacket(ends, UDP, udp(ends, { from: port, to: SERVER_PORT }, Buffer.from("x")));
      send(this.#raw, frame({ to, from }, packet), { what: "send a packet of a pod" });
    }
  }

  /** Sends segments of one connection that the outside does not know, one after the other: each is answered by a reset, with which the kernel forgets the flow. */
  async continueTcp(family: IpFamily, pod: Pod, flags: number, count: number, hops = 64): Promise<void> {
    const ends = { src: PODS[pod][family], dst: AT.outside[family] };
    const [to, from] = [linkOf(this.#router.stack, "pods").mac, linkOf(this.#pods.stack, "eth0").mac];
    assert.ok(to !== undefined && from !== undefined);
    for (let sequence = 1; sequence <= count; sequence += 1) {
      const packet = ipPacket(ends, TCP, tcp(ends, { from: 3000, to: SERVER_PORT }, { flags, sequence }), { hops });
      send(this.#raw, frame({ to, from }, packet), { what: "send a segment of a pod" });
      await setImmediate();
    }
  }

  /** The outside answers no TCP any more. */
  silence(): void {
    const rules = "table inet silent { chain in { type filter hook input priority 0; meta l4proto tcp drop; }; }";
    inNetNs(this.#outside.netns, () => void execFileSync("nft", [rules]));
  }

  /** A pod asks the server from a socket of its own: the answer, or the error that it got. */
  async ask(family: IpFamily, pod: Pod): Promise<string> {
    const asking = this.#open(family, "pods", PODS[pod][family], 0);
    asking.connect(SERVER_PORT, String(AT.outside[family]));
    await once(asking, "connect");
    const answered = once(asking, "message", { signal: AbortSignal.timeout(ARRIVAL_MS) });
    asking.send("x");
    try {
      await answered;
      return "an answer";
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? String(error);
    }
  }

  /** The source ports, as the outside sees them, of a pod's flows to the server. */
  portsOf(family: IpFamily, pod: Pod): number[] {
    return this.conntrack
      .list({ family, protocol: UDP, original: { src: PODS[pod][family], dstPort: SERVER_PORT } })
      .map(({ reply }) => reply.dstPort ?? 0);
  }

  /** The number of packets of new flows that were refused. */
  get refused(): number {
    return this.guard.counters().find(({ reason }) => reason === "ports")?.packets ?? 0;
  }

  crowded(family: IpFamily): string[] {
    return listCrowded(this.elements, TABLE)
      .filter(({ address }) => address.family === family)
      .map(crowdedText);
  }

  async refusals(family: IpFamily): Promise<string[]> {
    const found = await listRefused(this.elements, TABLE, { limit: 10 });
    return found
      .filter(({ address }) => address.family === family)
      .map(({ client, ...destination }) => `${client} ${crowdedText(destination)}`);
  }

  [Symbol.dispose](): void {
    close(this.#raw);
    this.#spaces.dispose();
  }
}

function linkOf(stack: NetStack, name: string) {
  return stack.links.get({ name }) ?? assert.fail(name);
}

const CLIENTS = POD_NAMES.map((name) => {
  const { namespace, ...addresses } = PODS[name];
  return { metadata: { namespace, name }, addresses: Object.values(addresses) };
});
const sharesOf = (range: PortRange): Map<string, number> => planShares(CLIENTS, range);

function planOf(range: PortRange): GuardPlan {
  const ports = { ifname: "eth0", shares: sharesOf(range), range };
  const own = CLIENTS.flatMap(({ addresses }) => addresses);
  return {
    table: TABLE,
    sets: [
      ...FAMILIES.map((family) => ({
        name: `clients${family}`,
        spec: { key: family === 4 ? "ipv4_addr" : "ipv6_addr" },
        elements: own.filter((one) => one.family === family).map(addressElement),
      })),
      ...portSets(ports),
    ],
    chains: [
      settleChain("eth0", ["pods"]),
      ...portChains(ports),
      {
        name: "forward",
        base: { type: "filter", hook: "forward", priority: "filter - 10", policy: "accept" },
        rules: [...FAMILIES.map(refuseSpent)],
      },
    ],
  };
}

const span = (from: number, count: number): number[] => Array.from({ length: count }, (_, at) => from + at);

test("source ports: two pods that take all ports to a destination stop neither a third one nor each other's namespace; beyond its share a pod is refused at once, and counted", async () => {
  for (const family of FAMILIES) {
    // 32 common ports, and four shares of 8: two for each namespace.
    using bed = new Bed({ from: 20_000, to: 20_063, count: 4 });
    assert.equal(await bed.guard.sync(bed.plan), 1);
    assert.equal(await bed.guard.sync(bed.plan), 0);
    assert.deepEqual(sharesInKernel(bed.elements, TABLE), sharesOf(bed.range));
    const seen = bed.serve(family);
    bed.send(family, "one", span(3000, 40));
    assert.equal(bed.portsOf(family, "one").length, 32, "all common ports");
    assert.deepEqual(bed.crowded(family), []);
    // What is sent again has found no port.
    bed.send(family, "one", span(3000, 40));
    assert.deepEqual(bed.crowded(family), [family === 4 ? "udp 203.0.113.9:7000" : "udp [2001:db8::9]:7000"]);
    assert.deepEqual(
      bed.portsOf(family, "one").toSorted((a, b) => a - b),
      [...span(20_000, 8), ...span(20_032, 32)],
      "the common ports and the pod's share",
    );
    bed.send(family, "two", span(3000, 20));
    assert.deepEqual(
      bed.portsOf(family, "two").toSorted((a, b) => a - b),
      span(20_016, 8),
      "the second pod's share",
    );
    // The third one has an answer at its first packet.
    assert.equal(await bed.ask(family, "third"), "an answer", `IPv${family}`);
    const [port = 0] = bed.portsOf(family, "third");
    assert.ok(port >= 20_008 && port < 20_016, `port ${port}`);
    assert.equal(seen.size, 32 + 8 + 8 + 1);
    // One without a port is sent again, and from then on new flows of the second pod are refused at once.
    bed.send(family, "two", span(3008, 1));
    assert.equal(bed.refused, 0);
    const [to] = bed.crowded(family);
    assert.deepEqual(await bed.refusals(family), [`${PODS.two[family]} ${to}`], "the refused client is named");
    assert.equal(await bed.ask(family, "two"), family === 4 ? "EHOSTUNREACH" : "EACCES");
    assert.equal(bed.refused, 1);
    // Flows that it has go on.
    const before = bed.refused;
    bed.send(family, "two", span(3000, 8));
    assert.equal(bed.refused, before);
    assert.equal(await bed.ask(family, "third"), "an answer", `IPv${family}`);
  }
});

test("source ports: what the kernel forgets with a reset is no sign of a crowd: segments of connections that another router had, and connects that are refused or given up", async () => {
  const [acknowledges, opens, resets] = [0x10, 0x02, 0x04];
  for (const family of FAMILIES) {
    using bed = new Bed({ from: 20_000, to: 20_063, count: 4 });
    await bed.guard.sync(bed.plan);
    for (const pod of ["one", "two", "one"] as const) {
      await bed.continueTcp(family, pod, acknowledges, 20);
      // The outside refuses each.
      await bed.continueTcp(family, pod, opens, 5);
    }
    bed.silence();
    for (let round = 0; round < 5; round += 1) {
      await bed.continueTcp(family, "one", opens, 1);
      // The last ones have no hop left, so the router does not forward them.
      await bed.continueTcp(family, "one", resets, 2, round < 3 ? 64 : 1);
    }
    assert.deepEqual([bed.crowded(family), bed.refused], [[], 0], `IPv${family}`);
    // One that is sent again without an end of the one before is one: here the kernel was made to forget it.
    await bed.continueTcp(family, "one", opens, 1);
    await bed.conntrack.delete({ family, protocol: TCP });
    await bed.continueTcp(family, "one", opens, 1);
    assert.equal(bed.crowded(family).length, 1, `IPv${family}`);
  }
});

test("source ports: a pod of a new namespace gets its share without a change to any rule", async () => {
  using bed = new Bed({ from: 20_000, to: 20_063, count: 4 });
  await bed.guard.sync(bed.plan);
  const sets = bed.plan.sets.map((set) => {
    if (set.name !== "shares4") return set;
    const chain = "share-3";
    const value = { text: [`goto ${chain}`], raw: { kind: "goto", chain } } as const;
    return { ...set, elements: [{ ...addressElement(PODS.one[4]), value }] };
  });
  const before = bed.elements.ruleHandles(TABLE);
  // One other share, and two that are gone.
  assert.equal(await bed.guard.sync({ ...bed.plan, sets }), 4);
  assert.equal(await bed.guard.sync({ ...bed.plan, sets }), 0);
  assert.deepEqual(bed.elements.ruleHandles(TABLE), before);
});

if (process.env["ISTHMUS_SOAK"] === "full")
  test("source ports, long form: 69,800 flows of two pods to one destination, and a third one connects", async (t) => {
    using bed = new Bed(SOURCE_PORTS);
    await bed.guard.sync(bed.plan);
    bed.serve(4);
    for (let round = 0; round < 3; round += 1)
      for (const pod of ["one", "two"] as const) bed.send(4, pod, span(2000, 34_900));
    const [one, two] = [bed.portsOf(4, "one").length, bed.portsOf(4, "two").length];
    t.diagnostic(`flows: ${one} and ${two}; refused ${bed.refused}`);
    // The server reads what has arrived meanwhile; its socket has no room before.
    await setImmediate();
    while ((await bed.ask(4, "third")) === "ABORT_ERR") t.diagnostic("the server is behind");
    const common = commonPorts(SOURCE_PORTS);
    const share = sharePorts(SOURCE_PORTS, 0);
    assert.ok(one + two <= common.to - common.from + 1 + 2 * (share.to - share.from + 1));
    assert.ok(one + two > 32_000);
    assert.ok(bed.refused > 0);
    for (let asked = 0; asked < 100; asked += 1) assert.equal(await bed.ask(4, "third"), "an answer");
  });
