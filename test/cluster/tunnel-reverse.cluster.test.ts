/** docs/spec/tunnel.md#15.E: destinations that nodes reach through the tunnel, and those they do not. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "#test/lab";
import { connectThrough } from "#test/proxies";
import { ALLOWED, BIND, BIND6, echoed, GATE, OVERLAP, REVERSE, read, Sides } from "#test/tunnel-sides";
import { upstreamLikeServer } from "#test/tunnel-upstream";

const TIMEOUT = { timeout: 90_000 };

test(
  "reverse: past a firewall that drops, nodes and a pod reach two API servers by addresses that every node has",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    await sides.endpoint("master", OVERLAP.master, 6443, "master");
    await sides.endpoint("master", "2001:db8::1", 7443, "master6");
    // The same address and port on the node's side is another endpoint.
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

test(
  "reverse: by the unit for the bind address, connections fail at once while no agent has it, before the first one and after an orderly end, and do not leave the node",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    await sides.endpoint("master", OVERLAP.master, 6443, "master");
    const server = await sides.server(...ALLOWED);
    sides.shut(server.agentPort);
    for (const hop of ["192.0.2.1", "2001:db8::1"]) sides.ip("node1", "route", "add", "default", "via", hop);
    const fates = () => Promise.all([BIND, BIND6].map((bind) => sides.fate("node1", bind, 6443)));
    assert.deepEqual(await fates(), ["timeout", "timeout"]);
    const unit = readFileSync(join(import.meta.dirname, "../../deploy/tunnel/isthmus-bind-route.service"), "utf8");
    const run = (key: string): void => {
      for (const [, words = ""] of unit.matchAll(new RegExp(`^${key}=ip (.*)$`, "gm")))
        sides.ip("node1", ...words.split(" "));
    };
    run("ExecStart");
    assert.deepEqual(await fates(), ["failed", "failed"]);
    const agent = await sides.agent("node1", server, ...REVERSE);
    for (const bind of [BIND, BIND6]) (await sides.reach("node1", bind, 6443, "master")).destroy();
    agent.running.child.kill("SIGTERM");
    await agent.running.ended;
    assert.deepEqual(await fates(), ["failed", "failed"]);
    run("ExecStop");
    assert.deepEqual(await fates(), ["timeout", "timeout"]);
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
  // As kube-proxy makes a service's address for the node's own programs and pods of its network: their source is another address of the node.
  sides.ip("node1", "route", "add", "10.96.0.0/16", "via", "192.0.2.12");
  sides.nft("node1", [
    "table ip services {",
    "chain output { type nat hook output priority -100;",
    `ip daddr 10.96.0.1 tcp dport 443 dnat to ${BIND}:6443`,
    "}",
    "}",
  ]);
  (await sides.reach("node1", "10.96.0.1", 443, "master")).destroy();
  assert.equal(await agent.metric('agent_reverse_failures_total{reason="source"}'), 1);
  (await sides.reach("pod1", BIND, 6443, "master")).destroy();
  sides.nft("node1", [readFileSync(join(import.meta.dirname, "../../deploy/tunnel/uplink-guard.nft"), "utf8")]);
  assert.equal(await sides.fate("node2", BIND, 6443), "timeout");
  (await sides.reach("pod1", BIND, 6443, "master")).destroy();
});

test("reverse and forward at once: connections with the same low ids do not collide", TIMEOUT, async (t) => {
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

test(
  "reverse: with IPv6 alone, from link to bind address, and with the same prefix on both sides",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    for (const side of ["master", "node1", "node2"] as const) sides.ip(side, "-4", "address", "flush", "dev", "eth0");
    for (const side of ["master", "node1"] as const) sides.addresses(side, "lo", ["fd99::1/64"]);
    await sides.endpoint("master", "fd99::1", 6443, "master");
    await sides.endpoint("node1", "fd99::1", 6443, "node1!");
    const server = await sides.server("--allowed-destination=[fd99::1]:6443", "--mode=http-connect");
    sides.shut(server.agentPort);
    const { agentPort } = server;
    await sides.agent(
      "node1",
      { agentPort, host: "2001:db8::1" },
      GATE,
      `--bind-address=${BIND6}`,
      "--target=6443:[fd99::1]:6443",
    );
    assert.equal(await sides.fate("node1", "2001:db8::1", 6443), "timeout");
    assert.equal(await echoed(await sides.reach("node1", BIND6, 6443, "master"), "there"), "there");
    (await sides.reach("node1", "fd99::1", 6443, "node1!")).destroy();
    const socket = await sides.bed.dial(server.udsPath);
    assert.match(await connectThrough(socket, "[fd99::1]:6443"), /^HTTP\/1\.1 200 /);
    assert.equal(await read(socket, 6), "node1!");
  },
);

test(
  "reverse: a server as upstream's gets no packet that it does not know, and nodes' clients are reset at once",
  TIMEOUT,
  async (t) => {
    const sides = await Sides.open(t);
    const upstream = await upstreamLikeServer(sides);
    t.after(() => upstream.close());
    const agent = await sides.startAgent("node1", upstream, ...REVERSE);
    await until("it is connected", async () => (await agent.metric("agent_open_server_connections")) === 1);
    // Its readiness shows it: listening is not enough if no server serves this direction.
    assert.match(await agent.health("/readyz"), /^503 .*\[-\]reverse-listener failed: /s);
    for (let at = 0; at < 3; at += 1) {
      const { how, ms } = await sides.reset("node1", BIND, 6443);
      assert.equal(how, "ECONNRESET");
      assert.ok(ms < 1000, `a client waited ${ms} ms`);
    }
    assert.equal(await agent.metric('agent_reverse_failures_total{reason="no_server"}'), 3);
    assert.deepEqual(upstream.packets, [], "what the agent sent");
  },
);
