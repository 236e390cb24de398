/**
 * A client pod, a router pod and a host outside, on the real kernel. The node between them sends packets for the Service's addresses
 * to the router, as kube-proxy does; the host outside has no route to the client.
 */
import { createSocket, type RemoteInfo, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server, Socket } from "node:net";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { type Kernel, type NetNs, type NetStack, openKernel } from "#kernel/net";
import { NftTransaction, openNft } from "#kernel/nft";
import { bindUdp, listenTcp, openTcp } from "#kernel/socket";

const ip = IpAddress.parse;
/** The addresses of the bed, by family. */
export const AT = {
  client: { 4: ip("10.64.0.7"), 6: ip("fd02::7") },
  router: { 4: ip("10.64.0.8"), 6: ip("fd02::8") },
  service: { 4: ip("10.68.0.9"), 6: ip("fd03::9") },
  /** A pod that is no client. */
  stranger: { 4: ip("10.64.0.6"), 6: ip("fd02::6") },
  outside: { 4: ip("203.0.113.9"), 6: ip("2001:db8::9") },
  node: { 4: ip("10.64.0.1"), 6: ip("fd02::1") },
} as const;
const FAMILIES: readonly IpFamily[] = [4, 6];
const ANY = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;
export const TUNNEL_PORT = 5555;
export const MTU_BYTES = 1500;
/** A guest whose processor is emulated beside other work takes seconds. */
const ANSWER_MS = 15_000;
/** The time to wait for an answer where none can come. */
export const SILENCE_MS = 1000;
const MEMBERS = ["client", "router", "stranger", "outside"] as const;
export type Member = (typeof MEMBERS)[number];

/** A flow of UDP between the client and the host outside. */
export interface UdpFlow {
  /** The client sends a packet and gets an answer; the address that the host outside saw of it. */
  ask(): Promise<string>;
  /** The host outside sends a packet and gets an answer; the address from which that came. */
  beAsked(): Promise<string>;
}

export class EgressBed implements Disposable {
  readonly #kernel: Kernel = openKernel();
  readonly #names = new Map<Member | "node", string>();
  readonly #spaces = new Map<Member | "node", { readonly netns: NetNs; readonly stack: NetStack }>();
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #flows: UdpSocket[] = [];

  constructor() {
    for (const name of ["node", ...MEMBERS] as const) {
      const full = `isk-eg-${process.pid}-${Math.random().toString(36).slice(2, 6)}-${name}`;
      const netns = this.#kernel.createNetNs(full);
      this.#names.set(name, full);
      const stack = this.#kernel.openStack(netns);
      this.#spaces.set(name, { netns, stack });
      stack.links.set(1, { up: true });
      // As on a pod's interface: duplicate address detection takes two seconds.
      stack.sysctl.set("net.ipv6.conf.default.accept_dad", 0);
    }
    const node = this.stack("node");
    node.sysctl.set("net.ipv4.ip_forward", 1);
    node.sysctl.set("net.ipv6.conf.all.forwarding", 1);
    for (const member of MEMBERS) this.#connect(member);
    // As on many hosts; the plans must change what is in their way.
    for (const member of ["client", "router"] as const)
      for (const link of ["all", "default", "eth0"])
        this.stack(member).sysctl.set(`net.ipv4.conf.${link}.rp_filter`, 1);
    // The outside knows the router alone; answers to any other source are dropped there.
    const outside = this.stack("outside");
    const { index } = outside.links.get({ name: "eth0" }) ?? fail("eth0 outside");
    for (const family of FAMILIES)
      outside.routes.add({
        dst: Cidr.host(AT.router[family]),
        gateway: AT.node[family],
        linkIndex: index,
        onlink: true,
      });
    this.#serviceAddresses();
  }

  /** One veth to the node, a host route each way, and except outside a default route. */
  #connect(member: Member): void {
    const node = this.stack("node");
    const stack = this.stack(member);
    const host = node.links.create({
      kind: "veth",
      name: member,
      up: true,
      peer: { name: "eth0", netns: this.netns(member), up: true },
    });
    const { index } = stack.links.get({ name: "eth0" }) ?? fail(`eth0 of ${member}`);
    for (const family of FAMILIES) {
      const address = AT[member][family];
      stack.addresses.add({ linkIndex: index, address, noDad: family === 6 });
      node.addresses.add({ linkIndex: host.index, address: AT.node[family], noDad: family === 6 });
      node.routes.add({ dst: Cidr.host(address), linkIndex: host.index, scope: family === 4 ? "link" : undefined });
      stack.routes.add({ dst: Cidr.host(AT.node[family]), linkIndex: index, scope: family === 4 ? "link" : undefined });
      if (member !== "outside")
        stack.routes.add({ dst: ANY[family], gateway: AT.node[family], linkIndex: index, onlink: true });
    }
  }

  #serviceAddresses(): void {
    using nft = openNft(this.netns("node"));
    for (const family of FAMILIES) {
      const name = family === 4 ? "ip" : "ip6";
      const rules = new NftTransaction({ family: name, name: "service" })
        .addTable()
        .chain("pre", { type: "nat", hook: "prerouting", priority: "dstnat" });
      const to = family === 4 ? String(AT.router[4]) : `[${AT.router[6]}]`;
      rules.rule("pre", `${name} daddr ${AT.service[family]} udp dport ${TUNNEL_PORT} dnat to ${to}:${TUNNEL_PORT}`);
      nft.run(rules);
    }
  }

  netns(of: Member | "node"): NetNs {
    return (this.#spaces.get(of) ?? fail(of)).netns;
  }

  stack(of: Member | "node"): NetStack {
    return (this.#spaces.get(of) ?? fail(of)).stack;
  }

  /** A TCP server outside, which echoes after a line with its client's address. */
  async serve(family: IpFamily, port: number): Promise<void> {
    const server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.write(`${socket.remoteAddress}\n`);
      socket.pipe(socket);
    });
    server.listen({ fd: listenTcp(AT.outside[family], port, { netns: this.netns("outside") }) });
    await once(server, "listening");
    this.#servers.push(server);
  }

  /** Connects from the client: the address that the server saw, or `no answer`: the server has no route to the client's own address. */
  async sourceSeen(family: IpFamily, port: number, timeoutMs = ANSWER_MS): Promise<string> {
    const socket = this.#open(family, port);
    try {
      const [line] = (await once(socket, "data", { signal: AbortSignal.timeout(timeoutMs) })) as [Buffer];
      return String(line).trim();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ABORT_ERR") throw error;
      return "no answer";
    } finally {
      socket.destroy();
    }
  }

  /** A TCP connection from the client to the server outside. */
  async connect(family: IpFamily, port: number): Promise<Socket> {
    const socket = this.#open(family, port);
    await once(socket, "data", { signal: AbortSignal.timeout(ANSWER_MS) });
    return socket;
  }

  #open(family: IpFamily, port: number): Socket {
    const socket = new Socket({ fd: openTcp(family, { netns: this.netns("client") }) });
    this.#sockets.add(socket);
    socket.connect({ host: String(AT.outside[family]), port });
    return socket;
  }

  /** A TCP server in the client, which answers with a line. */
  async serveInClient(family: IpFamily, port: number): Promise<void> {
    const server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.write("hello\n");
    });
    server.listen({ fd: listenTcp(AT.client[family], port, { netns: this.netns("client") }) });
    await once(server, "listening");
    this.#servers.push(server);
  }

  /** The host outside learns the way to the client, as a host of the site has it. */
  letOutsideKnowClient(): void {
    const outside = this.stack("outside");
    const { index } = outside.links.get({ name: "eth0" }) ?? fail("eth0 outside");
    for (const family of FAMILIES) {
      const gateway = AT.node[family];
      outside.routes.add({ dst: Cidr.host(AT.client[family]), gateway, linkIndex: index, onlink: true });
    }
  }

  /** Resolves with true if the host outside reaches a server in the client by the client's own address. */
  async isClientReached(family: IpFamily, port: number, timeoutMs = ANSWER_MS): Promise<boolean> {
    const socket = new Socket({ fd: openTcp(family, { netns: this.netns("outside") }) });
    this.#sockets.add(socket);
    socket.connect({ host: String(AT.client[family]), port });
    try {
      await once(socket, "data", { signal: AbortSignal.timeout(timeoutMs) });
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ABORT_ERR") throw error;
      return false;
    } finally {
      socket.destroy();
    }
  }

  /** Two sockets of UDP with this port, of the client and of the host outside. */
  flow(family: IpFamily, port: number): UdpFlow {
    const open = (member: "client" | "outside"): UdpSocket => {
      const socket = createSocket(family === 4 ? "udp4" : "udp6");
      socket.bind({ fd: bindUdp(AT[member][family], port, { netns: this.netns(member) }), exclusive: true });
      this.#flows.push(socket);
      return socket;
    };
    const [client, outside] = [open("client"), open("outside")];
    /** One packet there and one back; the address that `to` saw of `from`, and whether an answer arrived. */
    const exchange = async (from: UdpSocket, to: UdpSocket, address: IpAddress): Promise<readonly [string, string]> => {
      const signal = AbortSignal.timeout(ANSWER_MS);
      const arrived = once(to, "message", { signal });
      from.send("question", port, String(address));
      const [, there] = (await arrived) as [Buffer, RemoteInfo];
      const answered = once(from, "message", { signal });
      to.send("answer", there.port, there.address);
      const [, back] = (await answered) as [Buffer, RemoteInfo];
      return [there.address, back.address];
    };
    return {
      ask: async () => (await exchange(client, outside, AT.outside[family]))[0],
      beAsked: async () => (await exchange(outside, client, AT.client[family]))[1],
    };
  }

  [Symbol.dispose](): void {
    for (const flow of this.#flows) flow.close();
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
    for (const [, { stack, netns }] of this.#spaces) {
      stack[Symbol.dispose]();
      netns[Symbol.dispose]();
    }
    for (const name of this.#names.values()) this.#kernel.deleteNetNs(name);
  }
}

function fail(what: string): never {
  throw new Error(`${what} is missing`);
}
