/**
 * Spec tunnel 15.E: a control plane and two nodes whose networks overlap, with a firewall between them that lets in at the agent
 * port alone, and a pod behind one node. The built programs, real packets.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { IpAddress } from "#base/ip";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { connectInside as connectWithin, InsideError } from "#lab/inside";
import { until } from "#test/lab";
import { connectInside, connectThrough, ProxyBed, type ProxyProcess, type ProxyServerProcess } from "#test/proxies";

const GATE = "--feature-gates=EnableClusterToMasterTraffic=true";
const BIND = "10.255.255.1";
const BIND6 = "fd10:255:255::1";
const TIMEOUT = { timeout: 90_000 };
/** Backlog of dropped connections: nothing comes within this, milliseconds. */
const DROPPED_MS = 700;
/** The same prefix on both sides: what the tunnel joins has nothing to agree about. */
const OVERLAP = { master: "10.9.0.1", node: "10.9.0.1" } as const;

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

type Side = "master" | "node1" | "node2" | "pod1" | "fabric";

/** The machines: master, node1 and node2 on one wire, pod1 behind node1. Endpoints say who they are and echo. */
class Sides implements AsyncDisposable {
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

  /** Somebody who says who he is, and then echoes. */
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

  async agent(side: "node1" | "node2", server: ProxyServerProcess, ...args: string[]): Promise<ProxyProcess> {
    const agent = await this.bed.agent(
      [],
      [
        ...[`--proxy-server=192.0.2.1:${server.agentPort}`, "--tls-server-name=localhost", `--agent-id=${side}`],
        ...[`--agent-identifiers=host=${side}`, ...args],
      ],
      { netns: this.name(side) },
    );
    const isReady = async (): Promise<boolean> => (await agent.health("/readyz")).startsWith("200 ");
    await until(`the agent of ${side} is ready`, isReady, { seen: agent.running.said });
    return agent;
  }

  /** Connects, hears who it is, and gets an echo. */
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

  /** How a connection ends that is accepted at once, and how long it takes, milliseconds. */
  async reset(from: Side, host: string, port: number): Promise<{ readonly how: string; readonly ms: number }> {
    const startedMs = performance.now();
    const { promise, resolve } = Promise.withResolvers<string>();
    const failed = (error: NodeJS.ErrnoException): void => resolve(error.code ?? error.message);
    // The reset may come so soon that connecting itself is seen to fail.
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

/** So many bytes, as text. Rejects where the socket ends first. */
function read(socket: Socket, length: number): Promise<string> {
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

/** Writes and reads as much. */
function echoed(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  return read(socket, text.length);
}

const REVERSE = [
  GATE,
  `--bind-address=${BIND},${BIND6}`,
  "--target=6443:10.9.0.1:6443",
  "--target=7443:[2001:db8::1]:7443",
];
const ALLOWED = ["--allowed-destination=10.9.0.1:6443", "--allowed-destination=[2001:db8::1]:7443"];

test(
  "reverse: past a firewall that drops, nodes and a pod reach two API servers by addresses that every node has",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    await sides.endpoint("master", OVERLAP.master, 6443, "master");
    await sides.endpoint("master", "2001:db8::1", 7443, "master6");
    // The same address and port on the node's side is somebody else.
    await sides.endpoint("node1", OVERLAP.node, 6443, "node1!");
    const server = await sides.server(...ALLOWED);
    sides.shut(server.agentPort);
    const agents = [await sides.agent("node1", server, ...REVERSE), await sides.agent("node2", server, ...REVERSE)];

    for (const node of ["node1", "node2"] as const) {
      const past = [
        sides.fate(node, "192.0.2.1", 6443),
        sides.fate(node, "2001:db8::1", 7443),
        sides.fate(node, "192.0.2.1", server.healthPort),
      ];
      assert.deepEqual(await Promise.all(past), ["timeout", "timeout", "timeout"], node);
      for (const bind of [BIND, BIND6]) {
        (await sides.reach(node, bind, 6443, "master")).destroy();
        (await sides.reach(node, bind, 7443, "master6")).destroy();
      }
    }
    (await sides.reach("node1", OVERLAP.node, 6443, "node1!")).destroy();
    (await sides.reach("pod1", BIND, 6443, "master")).destroy();
    // As kube-proxy makes a service's address.
    sides.nft("node1", [
      "table ip services {",
      "chain prerouting { type nat hook prerouting priority dstnat;",
      `ip daddr 10.96.0.1 tcp dport 443 dnat to ${BIND}:6443`,
      "}",
      "}",
    ]);
    (await sides.reach("pod1", "10.96.0.1", 443, "master")).destroy();
    for (const [agent, wanted] of [
      [agents[0], 6],
      [agents[1], 4],
    ] as const) {
      const count = async (): Promise<number> =>
        Promise.all(
          ['"10.9.0.1:6443"', '"[2001:db8::1]:7443"'].map((target) =>
            agent?.metric(`agent_reverse_accepted_total{target=${target}}`),
          ),
        ).then((counts) => counts.reduce<number>((sum, one) => sum + (one ?? 0), 0));
      assert.equal(await count(), wanted);
    }
    const idle = async (): Promise<boolean> => (await server.metric("server_reverse_connections")) === 0;
    await until("nothing is open", idle);
  },
);

test("reverse: a neighbour of the node is turned away, the pod and the node are not", TIMEOUT, async (t) => {
  const sides = await Sides.open(t);
  await sides.endpoint("master", OVERLAP.master, 6443, "master");
  const server = await sides.server(...ALLOWED);
  sides.shut(server.agentPort);
  const agent = await sides.agent(
    "node1",
    server,
    ...REVERSE,
    `--allowed-source=${BIND}/32`,
    "--allowed-source=198.51.100.0/24",
  );
  sides.ip("node2", "route", "add", `${BIND}/32`, "via", "192.0.2.11");
  const { how, ms } = await sides.reset("node2", BIND, 6443);
  assert.equal(how, "ECONNRESET");
  assert.ok(ms < 1000, `${ms} ms`);
  assert.equal(await agent.metric('agent_reverse_failures_total{reason="source"}'), 1);
  assert.equal(await server.metric('server_reverse_dials_total{result="ok"}'), 0);
  (await sides.reach("node1", BIND, 6443, "master")).destroy();
  (await sides.reach("pod1", BIND, 6443, "master")).destroy();
  sides.nft("node1", [readFileSync(join(import.meta.dirname, "../../deploy/tunnel/uplink-guard.nft"), "utf8")]);
  assert.equal(await sides.fate("node2", BIND, 6443), "timeout");
  (await sides.reach("pod1", BIND, 6443, "master")).destroy();
});

test("reverse and forward at once: connections with the same low numbers do not meet", TIMEOUT, async (t) => {
  const sides = await Sides.open(t);
  await sides.endpoint("master", OVERLAP.master, 6443, "master");
  await sides.endpoint("node1", OVERLAP.node, 6443, "node1!");
  await sides.endpoint("pod1", "198.51.100.2", 8080, "pod1");
  const server = await sides.server(...ALLOWED, "--mode=http-connect");
  sides.shut(server.agentPort);
  const agent = await sides.agent("node1", server, ...REVERSE);
  const forward = async (target: string, who: string): Promise<Socket> => {
    const socket = await sides.bed.dial(server.udsPath);
    assert.match(await connectThrough(socket, target), /^HTTP\/1\.1 200 /);
    assert.equal(await read(socket, who.length), who);
    return socket;
  };
  const pairs = await Promise.all(
    Array.from({ length: 20 }, async (_, at) => {
      const [target, who] = at % 2 === 0 ? ["10.9.0.1:6443", "node1!"] : ["198.51.100.2:8080", "pod1"];
      return [
        await forward(target ?? "", who ?? ""),
        await sides.reach(at % 2 === 0 ? "node1" : "pod1", BIND, 6443, "master"),
      ];
    }),
  );
  const sockets = pairs.flat();
  for (const round of [1, 2, 3]) {
    const said = await Promise.all(sockets.map((socket, at) => echoed(socket, `${round}: ${at} ${"x".repeat(5000)}`)));
    assert.deepEqual(
      said,
      sockets.map((_, at) => `${round}: ${at} ${"x".repeat(5000)}`),
    );
  }
  assert.equal(await server.metric("server_reverse_connections"), 20);
  assert.equal(await agent.metric("agent_open_endpoint_connections"), 20);
  for (const socket of sockets) socket.destroy();
  const idle = async (): Promise<boolean> =>
    (await server.metric("server_reverse_connections")) === 0 &&
    (await agent.metric("agent_open_endpoint_connections")) === 0;
  await until("nothing is open", idle);
});

test("reverse: the server goes, its connections are reset, new ones go to the other server", TIMEOUT, async (t) => {
  const sides = await Sides.open(t);
  await sides.endpoint("master", OVERLAP.master, 6443, "master");
  const servers = [
    await sides.server(...ALLOWED, "--server-count=2"),
    await sides.server(...ALLOWED, "--server-count=2"),
  ];
  const [first, second] = servers;
  assert.ok(first !== undefined && second !== undefined);
  const agent = await sides.agent("node1", first, ...REVERSE, `--proxy-server=192.0.2.1:${second.agentPort}`);
  await until("both are connected", async () => (await agent.metric("agent_open_server_connections")) === 2);
  const open = await Promise.all(Array.from({ length: 4 }, () => sides.reach("node1", BIND, 6443, "master")));
  const counts = await Promise.all(servers.map((server) => server.metric("server_reverse_connections")));
  assert.deepEqual(counts, [2, 2]);
  await first.stop("SIGKILL");
  await until("two are reset", () => open.filter(({ destroyed }) => destroyed).length === 2);
  for (const socket of open.filter(({ destroyed }) => !destroyed)) assert.equal(await echoed(socket, "still"), "still");
  for (let at = 0; at < 5; at += 1) (await sides.reach("node1", BIND, 6443, "master")).destroy();
});

test("reverse: with the gate off on the agent's side it does not start, and says which gate", TIMEOUT, async (t) => {
  const sides = await Sides.open(t);
  const server = await sides.server(...ALLOWED);
  const args = REVERSE.filter((arg) => arg !== GATE);
  await assert.rejects(
    sides.agent("node1", server, ...args),
    /--target: needs --feature-gates=EnableClusterToMasterTraffic=true/,
  );
});
