/**
 * A control plane and two nodes with overlapping networks, a firewall between them that admits chosen ports only, and a pod behind one
 * node (docs/spec/tunnel.md#15.E): network namespaces, the built programs, real packets.
 *
 * Owns: namespaces, links, addresses, endpoints, programs in them, and removing all of it. Does not know: the tests.
 *
 * ```ts
 * const sides = await Sides.open(t);
 * await sides.endpoint("master", OVERLAP.master, 6443, "master");
 * const server = await sides.server(...ALLOWED);
 * sides.shut(server.agentPort);
 * await sides.agent("node1", server, ...REVERSE);
 * await sides.reach("node1", BIND, 6443, "master");
 * ```
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { TestContext } from "node:test";
import { IpAddress } from "#base/ip";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { connectInside as connectWithin, InsideError } from "#lab/inside";
import { until } from "#test/lab";
import { connectInside, ProxyBed, type ProxyProcess, type ProxyServerProcess } from "#test/proxies";

/** The flag that enables the direction from nodes. */
export const GATE = "--feature-gates=EnableClusterToMasterTraffic=true";
/** The bind address: the API server's address for nodes. */
export const BIND = "10.255.255.1";
export const BIND6 = "fd10:255:255::1";
/** A connection counts as dropped if nothing comes within this, in milliseconds. */
const DROPPED_MS = 700;
/** The same prefix on both sides: the tunnel does not depend on the networks' addresses. */
export const OVERLAP = { master: "10.9.0.1", node: "10.9.0.1" } as const;

const FIREWALL = `table inet guard {
  chain input {
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    tcp dport AGENTS accept
  }
  chain output {
    type filter hook output priority filter; policy drop;
    oifname "lo" accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    tcp sport AGENTS accept
  }
}`;

/** Loopback stays allowed, so that the test can query the programs' endpoints. */
const DROP = ["input", "output"].map(
  (hook) =>
    `chain ${hook} { type filter hook ${hook} priority -10; ${hook === "input" ? "iifname" : "oifname"} != "lo" drop; }`,
);

/** The address of a server for agents. */
export interface AgentPlace {
  readonly agentPort: number;
  /** Default: the IPv4 address of the control plane. */
  readonly host?: string;
  /** The cluster whose certificates the agent has. Default: the one of the {@link Sides}. */
  readonly bed?: ProxyBed;
}

export type Side = "master" | "node1" | "node2" | "pod1" | "fabric";

/** The machines: master, node1 and node2 on one link, pod1 behind node1. Endpoints send their names and then echo. */
export class Sides implements AsyncDisposable {
  readonly bed: ProxyBed;
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();

  private constructor(bed: ProxyBed) {
    this.bed = bed;
  }

  static async open(t: TestContext): Promise<Sides> {
    const sides = new Sides(await ProxyBed.open());
    t.after(() => sides[Symbol.asyncDispose]());
    for (const side of ["fabric", "master", "node1", "node2", "pod1"] as const) {
      createNetNs(sides.name(side))[Symbol.dispose]();
      sides.ip(side, "link", "set", "lo", "up");
    }
    sides.ip("fabric", "link", "add", "wire0", "type", "bridge");
    sides.ip("fabric", "link", "set", "wire0", "up");
    for (const [side, number] of [
      ["master", 1],
      ["node1", 11],
      ["node2", 12],
    ] as const) {
      sides.wire("fabric", side, `to-${side}`);
      sides.ip("fabric", "link", "set", `to-${side}`, "master", "wire0");
      sides.addresses(side, "eth0", [`192.0.2.${number}/24`, `2001:db8::${number}/64`]);
    }
    sides.wire("node1", "pod1", "to-pod1");
    sides.addresses("node1", "to-pod1", ["198.51.100.1/24"]);
    sides.addresses("pod1", "eth0", ["198.51.100.2/24"]);
    sides.ip("pod1", "route", "add", "default", "via", "198.51.100.1");
    for (const side of ["master", "node1"] as const)
      sides.addresses(side, "lo", [`${OVERLAP[side === "master" ? "master" : "node"]}/24`]);
    return sides;
  }

  name(side: Side): string {
    return `isthmus-rv${process.pid}-${side}`;
  }

  ip(side: Side, ...args: string[]): string {
    return execFileSync("ip", ["-n", this.name(side), ...args], { encoding: "utf8" });
  }

  wire(from: Side, to: Side, link: string): void {
    this.ip(from, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", this.name(to));
    this.ip(from, "link", "set", link, "up");
    this.ip(to, "link", "set", "eth0", "up");
  }

  addresses(side: Side, link: string, addresses: readonly string[]): void {
    for (const address of addresses) {
      const more = address.includes(":") ? ["nodad"] : [];
      this.ip(side, "address", "add", address, "dev", link, ...more);
    }
  }

  shut(agentPort: number): void {
    this.nft("master", [FIREWALL.replaceAll("AGENTS", String(agentPort))]);
  }

  nft(side: Side, lines: readonly string[]): void {
    const input = `${lines.join("\n")}\n`;
    execFileSync("ip", ["netns", "exec", this.name(side), "nft", "-f", "-"], { input });
  }

  /** An endpoint that sends its name, and then echoes. */
  async endpoint(side: Side, host: string, port: number, who: string): Promise<void> {
    using netns = openNetNs({ name: this.name(side) });
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.write(who);
      socket.pipe(socket);
    });
    this.#servers.push(server);
    await once(server.listen({ fd: listenTcp(IpAddress.parse(host), port, { netns }) }), "listening");
  }

  server(...args: string[]): Promise<ProxyServerProcess> {
    return this.bed.server(["--agent-bind-address=", GATE, ...args], { netns: this.name("master") });
  }

  /** Starts an agent and waits until it is ready. */
  async agent(side: "node1" | "node2", server: AgentPlace, ...args: string[]): Promise<ProxyProcess> {
    const agent = await this.startAgent(side, server, ...args);
    const isReady = async (): Promise<boolean> => (await agent.health("/readyz")).startsWith("200 ");
    await until(`the agent of ${side} is ready`, isReady, { seen: agent.running.said });
    return agent;
  }

  /** Starts an agent, which may never be ready. */
  startAgent(side: "node1" | "node2", server: AgentPlace, ...args: string[]): Promise<ProxyProcess> {
    const { host = "192.0.2.1", agentPort, bed = this.bed } = server;
    const address = host.includes(":") ? `[${host}]:${agentPort}` : `${host}:${agentPort}`;
    return bed.agent(
      [],
      [
        ...[`--proxy-server=${address}`, "--tls-server-name=localhost", `--agent-id=${side}`],
        ...[`--agent-identifiers=host=${side}`, ...args],
      ],
      { netns: this.name(side) },
    );
  }

  /** Drops all packets between the control plane and the nodes silently, like a broken link. */
  cut(): void {
    this.nft("master", ["table inet broken {", ...DROP.map((line) => `  ${line}`), "}"]);
  }

  /** Ends {@link Sides.cut}. */
  mend(): void {
    this.nft("master", ["delete table inet broken"]);
  }

  /** Connects, checks the name of the endpoint, and gets an echo. */
  async reach(from: Side, host: string, port: number, who: string): Promise<Socket> {
    const socket = await connectInside(this.name(from), host, port);
    this.#sockets.add(socket);
    socket.on("error", () => socket.destroy());
    assert.equal(await read(socket, who.length), who);
    assert.equal(await echoed(socket, "hello"), "hello");
    return socket;
  }

  /** `open`, or why not. */
  async fate(from: Side, host: string, port: number): Promise<string> {
    const place = { address: IpAddress.parse(host), port };
    try {
      (await connectWithin({ name: this.name(from) }, place, { timeoutMs: DROPPED_MS })).destroy();
      return "open";
    } catch (error) {
      assert.ok(error instanceof InsideError, String(error));
      return error.code;
    }
  }

  /** The way a connection that was accepted at once ends, and its duration in milliseconds. */
  async reset(from: Side, host: string, port: number): Promise<{ readonly how: string; readonly ms: number }> {
    const startedMs = performance.now();
    const { promise, resolve } = Promise.withResolvers<string>();
    const failed = (error: NodeJS.ErrnoException): void => resolve(error.code ?? error.message);
    // The reset may come so soon that connecting itself fails.
    connectInside(this.name(from), host, port).then((socket) => {
      this.#sockets.add(socket);
      socket.once("error", failed);
      socket.once("end", () => resolve("end"));
      socket.resume();
    }, failed);
    const how = await promise;
    return { how, ms: performance.now() - startedMs };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    for (const server of this.#servers) server.close();
    await this.bed[Symbol.asyncDispose]();
    for (const side of ["pod1", "node2", "node1", "master", "fabric"] as const) deleteNetNs(this.name(side));
  }
}

/** Reads this number of bytes as text. Rejects if the socket ends first. */
export function read(socket: Socket, length: number): Promise<string> {
  let got = "";
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const take = (): void => {
    const chunk: Buffer | null = socket.read(Math.min(length - got.length, socket.readableLength));
    got += chunk?.toString("latin1") ?? "";
    if (got.length === length) resolve(got);
    else if (chunk !== null && socket.readableLength > 0) take();
  };
  const ended = (): void => reject(new Error(`the socket ended after ${JSON.stringify(got)}`));
  socket.on("readable", take).once("end", ended).once("close", ended);
  if (socket.readableLength > 0) take();
  return promise.finally(() => socket.off("readable", take).off("end", ended).off("close", ended));
}

/** Writes a text and reads as many bytes. */
export function echoed(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  return read(socket, text.length);
}

/** Flags of an agent that serves two API servers to its node. */
export const REVERSE = [
  GATE,
  `--bind-address=${BIND},${BIND6}`,
  "--target=6443:10.9.0.1:6443",
  "--target=7443:[2001:db8::1]:7443",
];
/** Flags of a server that allows agents to reach both API servers. */
export const ALLOWED = ["--allowed-destination=10.9.0.1:6443", "--allowed-destination=[2001:db8::1]:7443"];
