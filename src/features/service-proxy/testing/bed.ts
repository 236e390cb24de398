/**
 * The small cluster of `fixture.ts` as namespaces: a forwarding node under test, a pod and an endpoint on it, an endpoint
 * elsewhere, a client outside. Servers answer with their name and the client's address.
 */
import { execFileSync } from "node:child_process";
import type { Socket as UdpSocket } from "node:dgram";
import type { Server, Socket } from "node:net";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { type Kernel, type NetNs, type NetStack, openKernel } from "#kernel/net";
import { type Nft, openNft } from "#kernel/nft";
import { type NftElements, openNftElements } from "#kernel/nft-elements";
import { connectTo, type Reached, tcpSocket, UdpFlow } from "./clients.ts";
import { type Addresses, addressesOf, type Sender, TARGET_PORT } from "./fixture.ts";
import { serveTcp, serveUdp } from "./servers.ts";

export type { Reached } from "./clients.ts";
/** The namespaces of the bed. */
export type Machine = "node" | "pod" | "local" | "remote" | "external";
const MACHINES = ["node", "pod", "local", "remote", "external"] as const;
const FAMILIES = [4, 6] as const;
const ANY = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;
/** The node's address towards pods, the same on all its links. */
const GATEWAYS = { 4: IpAddress.parse("10.180.255.1"), 6: IpAddress.parse("fd00:10:180:ff::1") } as const;
/** A connection counts as dropped without an answer after this time, in milliseconds. */
const DROPPED_MS = 250;

/** Timeout, milliseconds, and number of attempts until a link carries traffic. */
const SETTLE_MS = 50;
const SETTLE_TRIES = 200;

/** Namespaces, links and servers; disposing removes all. */
export class Bed implements AsyncDisposable {
  readonly #kernel: Kernel = openKernel();
  readonly #prefix: string;
  readonly #namespaces = new Map<Machine, NetNs>();
  readonly #servers: (Server | UdpSocket)[] = [];
  readonly nft: Nft;
  readonly elements: NftElements;

  private constructor(prefix: string) {
    this.#prefix = prefix;
    for (const machine of MACHINES) this.#namespaces.set(machine, this.#kernel.createNetNs(`${prefix}-${machine}`));
    this.nft = openNft(this.netns("node"));
    this.elements = openNftElements(this.netns("node"));
  }

  /** `prefix` names the namespaces. */
  static async open(prefix: string): Promise<Bed> {
    const bed = new Bed(prefix);
    try {
      bed.#wire();
      for (const family of FAMILIES)
        for (const machine of ["local", "remote"] as const)
          await bed.listen(machine, bed.#addressOf(machine, family), TARGET_PORT);
      await bed.#settle();
      return bed;
    } catch (error) {
      await bed[Symbol.asyncDispose]();
      throw error;
    }
  }

  netns(machine: Machine): NetNs {
    const found = this.#namespaces.get(machine);
    if (found === undefined) throw new Error(`there is no machine ${machine}`);
    return found;
  }

  /** Adds remote endpoints for the bed's lifetime, at the addresses after the remote one. */
  async serveMore(family: IpFamily, count: number): Promise<readonly IpAddress[]> {
    const first = addressesOf(family).remoteEndpoint;
    const addresses = Array.from({ length: count }, (_, at) =>
      IpAddress.fromValue(family, first.value + BigInt(at + 1)),
    );
    for (const address of addresses) {
      this.addAddress("remote", address);
      await this.listen("remote", address, TARGET_PORT);
      await this.answerUdp("remote", address, TARGET_PORT);
    }
    return addresses;
  }

  /** Gives a machine another address, with a route on the node. */
  addAddress(machine: Exclude<Machine, "node">, address: IpAddress): void {
    using node = this.#kernel.openStack(this.netns("node"));
    using other = this.#kernel.openStack(this.netns(machine));
    node.routes.replace({ dst: Cidr.host(address), linkIndex: up(node, `veth-${machine}`), scope: "link" });
    const host = { address, prefixLength: address.bits, noDad: address.family === 6 };
    other.addresses.replace({ linkIndex: up(other, "eth0"), ...host });
  }

  /** Runs ip(8) in a machine; returns its output. */
  ip(machine: Machine, ...words: readonly string[]): string {
    return execFileSync("ip", ["-n", `${this.#prefix}-${machine}`, ...words], { encoding: "utf8" });
  }

  /** Starts a TCP server for the bed's lifetime. Without `onConnection` it answers with its name and the client's address. */
  async listen(
    machine: Machine,
    address: IpAddress,
    port: number,
    onConnection?: (socket: Socket) => void,
  ): Promise<void> {
    const netns = this.netns(machine);
    this.#servers.push(await serveTcp({ netns, machine, address, port }, onConnection));
  }

  /** Starts a UDP server for the bed's lifetime. It answers with its name and the client's address. */
  async answerUdp(machine: Machine, address: IpAddress, port: number): Promise<void> {
    this.#servers.push(await serveUdp({ netns: this.netns(machine), machine, address, port }));
  }

  /** Sends one datagram from a new port. False if no answer comes within a second. */
  async askUdp(sender: Sender, destination: IpAddress, port: number): Promise<boolean> {
    using flow = await this.udpFlow(sender, destination, port);
    return (await flow.ask()).kind === "delivered";
  }

  /** A UDP client that keeps its port. */
  udpFlow(sender: Sender | "local", destination: IpAddress, port: number): Promise<UdpFlow> {
    return UdpFlow.open(this.netns(sender), destination, port, this.#sourceOf(sender, destination.family));
  }

  /** An unconnected TCP socket of a sender. */
  tcpSocket(sender: Sender | "local", family: IpFamily): Socket {
    return tcpSocket(this.netns(sender), family, this.#sourceOf(sender, family));
  }

  /** Addresses of the node, the sources of masqueraded connections. */
  nodeAddresses(family: IpFamily): readonly IpAddress[] {
    return [addressesOf(family).node, GATEWAYS[family]];
  }

  /** Makes one connection of a sender. */
  async connect(
    sender: Sender | "local",
    destination: IpAddress,
    port: number,
    { droppedMs = DROPPED_MS, reset }: { readonly droppedMs?: number; readonly reset?: boolean } = {},
  ): Promise<Reached> {
    return connectTo(this.tcpSocket(sender, destination.family), destination, port, {
      droppedMs,
      ...(reset === undefined ? {} : { reset }),
    });
  }

  /** Source of the node's own connections: its external address. */
  #sourceOf(sender: Sender | "local", family: IpFamily): IpAddress | undefined {
    return sender === "node" ? addressesOf(family).node : undefined;
  }

  /** Waits until links carry traffic: a packet that is lost before is repeated after a second, which looks like a fault. */
  async #settle(): Promise<void> {
    for (const sender of ["pod", "node", "external"] as const) {
      for (const destination of FAMILIES.flatMap((family) => [
        this.#addressOf("local", family),
        this.#addressOf("remote", family),
      ])) {
        const reach = () => this.connect(sender, destination, TARGET_PORT, { droppedMs: SETTLE_MS });
        for (let tries = 1; (await reach()).kind !== "delivered"; tries += 1)
          if (tries === SETTLE_TRIES) throw new Error(`${sender} cannot reach ${destination}`);
      }
    }
  }

  #addressOf(machine: Exclude<Machine, "node">, family: IpFamily): IpAddress {
    const addresses: Addresses = addressesOf(family);
    const keys = { pod: "pod", local: "localEndpoint", remote: "remoteEndpoint", external: "external" } as const;
    return addresses[keys[machine]];
  }

  #wire(): void {
    for (const machine of MACHINES) {
      using stack = this.#kernel.openStack(this.netns(machine));
      // Neighbours answer at once instead of after a second.
      stack.sysctl.set("net/ipv6/conf/default/accept_dad", "0");
    }
    using node = this.#kernel.openStack(this.netns("node"));
    up(node, "lo");
    for (const machine of ["pod", "local", "remote", "external"] as const) this.#join(node, machine);
    for (const [name, value] of [
      ["net/ipv4/ip_forward", "1"],
      ["net/ipv6/conf/all/forwarding", "1"],
      ["net/ipv4/conf/all/rp_filter", "0"],
      // One client is rejected more often here than the kernel's default limits allow.
      ["net/ipv4/icmp_ratelimit", "0"],
      ["net/ipv6/icmp/ratelimit", "0"],
      ["net/ipv4/icmp_msgs_per_sec", "1000000"],
      ["net/ipv4/icmp_msgs_burst", "1000000"],
    ] as const) {
      node.sysctl.set(name, value);
    }
  }

  #join(node: NetStack, machine: Exclude<Machine, "node">): void {
    using other = this.#kernel.openStack(this.netns(machine));
    const link = node.links.create({
      kind: "veth",
      name: `veth-${machine}`,
      up: true,
      peer: { name: "eth0", netns: this.netns(machine) },
    });
    up(other, "lo");
    const eth0 = up(other, "eth0");
    for (const family of FAMILIES) {
      const address = this.#addressOf(machine, family);
      const gateway = machine === "external" ? addressesOf(family).node : GATEWAYS[family];
      const host = { prefixLength: address.bits, noDad: family === 6 };
      node.addresses.replace({ linkIndex: link.index, address: gateway, ...host });
      node.routes.replace({ dst: Cidr.host(address), linkIndex: link.index, scope: "link" });
      other.addresses.replace({ linkIndex: eth0, address, ...host });
      other.routes.replace({ dst: Cidr.host(gateway), linkIndex: eth0, scope: "link" });
      other.routes.replace({ dst: ANY[family], gateway, linkIndex: eth0 });
      // Addresses of Services need a route: without one the kernel rejects packets before any rule.
      if (machine === "external") node.routes.replace({ dst: ANY[family], gateway: address, linkIndex: link.index });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers) server.close();
    this.elements[Symbol.dispose]();
    this.nft[Symbol.dispose]();
    for (const [machine, netns] of this.#namespaces) {
      netns[Symbol.dispose]();
      this.#kernel.deleteNetNs(`${this.#prefix}-${machine}`);
    }
  }
}

function up(stack: NetStack, name: string): number {
  const link = stack.links.get({ name });
  if (link === undefined) throw new Error(`there is no link ${name}`);
  stack.links.set(link.index, { up: true });
  return link.index;
}
