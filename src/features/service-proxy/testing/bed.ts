/**
 * The small cluster of `fixture.ts` as namespaces: a node under test that forwards, a pod and an endpoint on it, an endpoint
 * elsewhere, a client outside; servers that say who they are and whom they see.
 */
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server, Socket } from "node:net";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { type Kernel, type NetNs, type NetStack, openKernel } from "#kernel/net";
import { type Nft, openNft } from "#kernel/nft";
import { type NftElements, openNftElements } from "#kernel/nft-elements";
import { bindUdp, listenTcp, openTcp } from "#kernel/socket";
import { type Addresses, addressesOf, type Sender, TARGET_PORT } from "./fixture.ts";

type Machine = "node" | "pod" | "local" | "remote" | "external";
const MACHINES = ["node", "pod", "local", "remote", "external"] as const;
const FAMILIES = [4, 6] as const;
const ANY = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;
/** The node's address towards pods; one for all its links. */
const GATEWAYS = { 4: IpAddress.parse("10.180.255.1"), 6: IpAddress.parse("fd00:10:180:ff::1") } as const;
/** A connection that is dropped shows by nothing coming in so long, milliseconds. */
const DROPPED_MS = 250;

/** What came of a connection. */
export type Reached =
  | { readonly kind: "delivered"; readonly server: "local" | "remote"; readonly seen: IpAddress }
  | { readonly kind: "dropped" }
  | { readonly kind: "rejected" };

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
    bed.#wire();
    for (const family of FAMILIES)
      for (const machine of ["local", "remote"] as const) await bed.#serve(machine, family);
    return bed;
  }

  netns(machine: Machine): NetNs {
    const found = this.#namespaces.get(machine);
    if (found === undefined) throw new Error(`there is no machine ${machine}`);
    return found;
  }

  /** More endpoints elsewhere, alive as long as the bed: addresses that follow the remote one. */
  async serveMore(family: IpFamily, count: number): Promise<readonly IpAddress[]> {
    using node = this.#kernel.openStack(this.netns("node"));
    using remote = this.#kernel.openStack(this.netns("remote"));
    const first = addressesOf(family).remoteEndpoint;
    const addresses = Array.from({ length: count }, (_, at) =>
      IpAddress.fromValue(family, first.value + BigInt(at + 1)),
    );
    for (const address of addresses) {
      node.routes.replace({ dst: Cidr.host(address), linkIndex: up(node, "veth-remote"), scope: "link" });
      const host = { address, prefixLength: address.bits, noDad: family === 6 };
      remote.addresses.replace({ linkIndex: up(remote, "eth0"), ...host });
      await this.#listen("remote", address);
      await this.#echoUdp("remote", address);
    }
    return addresses;
  }

  /** One UDP question from a new port; false when nobody answers within a second. */
  async askUdp(sender: Sender, destination: IpAddress, port: number): Promise<boolean> {
    const socket = createSocket({ type: destination.family === 4 ? "udp4" : "udp6" });
    const any = IpAddress.parse(destination.family === 4 ? "0.0.0.0" : "::");
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    socket.once("error", reject);
    socket.once("message", () => resolve(true));
    socket.bind({ fd: bindUdp(any, 0, { netns: this.netns(sender) }) }, () =>
      socket.send("?", port, destination.toString()),
    );
    const late = setTimeout(() => resolve(false), 1000);
    try {
      return await promise;
    } finally {
      clearTimeout(late);
      socket.close();
    }
  }

  /** The addresses of the node, which masqueraded connections come from. */
  nodeAddresses(family: IpFamily): readonly IpAddress[] {
    return [addressesOf(family).node, GATEWAYS[family]];
  }

  /** One connection of a sender. */
  async connect(
    sender: Sender | "local",
    destination: IpAddress,
    port: number,
    { droppedMs = DROPPED_MS }: { readonly droppedMs?: number } = {},
  ): Promise<Reached> {
    const { node } = addressesOf(destination.family);
    const place = { netns: this.netns(sender === "external" ? "external" : sender) };
    const socket = new Socket({
      fd: openTcp(destination.family, sender === "node" ? { ...place, source: node } : place),
    });
    const { promise, resolve, reject } = Promise.withResolvers<Reached>();
    // Where this process was held up, what has come meanwhile is read first.
    const late = setTimeout(() => setImmediate(() => setImmediate(() => resolve({ kind: "dropped" }))), droppedMs);
    socket.once("data", (bytes: Buffer) => {
      const [server = "", seen = ""] = bytes.toString().split(" ");
      resolve({ kind: "delivered", server: server as "local" | "remote", seen: IpAddress.parse(seen) });
    });
    socket.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ECONNREFUSED" || error.code === "ECONNRESET") resolve({ kind: "rejected" });
      else reject(error);
    });
    socket.connect({ host: destination.toString(), port });
    try {
      return await promise;
    } finally {
      clearTimeout(late);
      socket.destroy();
    }
  }

  async #serve(machine: "local" | "remote", family: IpFamily): Promise<void> {
    await this.#listen(machine, this.#addressOf(machine, family));
  }

  async #echoUdp(machine: Machine, address: IpAddress): Promise<void> {
    const socket = createSocket({ type: address.family === 4 ? "udp4" : "udp6" });
    // With a descriptor it listens before `bind` returns.
    const listening = once(socket, "listening");
    socket.bind({ fd: bindUdp(address, TARGET_PORT, { netns: this.netns(machine) }) });
    await listening;
    socket.on("message", (bytes, { address: client, port }) => socket.send(bytes, port, client));
    this.#servers.push(socket);
  }

  async #listen(machine: Machine, address: IpAddress): Promise<void> {
    const server = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.end(`${machine} ${socket.remoteAddress ?? ""}`);
    });
    server.listen({ fd: listenTcp(address, TARGET_PORT, { netns: this.netns(machine) }) });
    await once(server, "listening");
    this.#servers.push(server);
  }

  #addressOf(machine: Exclude<Machine, "node">, family: IpFamily): IpAddress {
    const addresses: Addresses = addressesOf(family);
    const keys = { pod: "pod", local: "localEndpoint", remote: "remoteEndpoint", external: "external" } as const;
    return addresses[keys[machine]];
  }

  #wire(): void {
    using node = this.#kernel.openStack(this.netns("node"));
    up(node, "lo");
    for (const machine of ["pod", "local", "remote", "external"] as const) this.#join(node, machine);
    for (const [name, value] of [
      ["net/ipv4/ip_forward", "1"],
      ["net/ipv6/conf/all/forwarding", "1"],
      ["net/ipv4/conf/all/rp_filter", "0"],
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
      // What no other route has, Services among it, must have one: without it the kernel answers before any rule does.
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
