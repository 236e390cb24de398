import assert from "node:assert/strict";
import { once } from "node:events";
import { copyFileSync, existsSync, readFileSync, statSync } from "node:fs";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { credentials } from "@grpc/grpc-js";
import { openFrontend } from "#test/grpc-frontend";
import { ISTHMUS, start, until } from "#test/lab";
import { freePort } from "#test/ports";
import { connectThrough, fetchText, ProxyBed, type ProxyServerProcess, roundTrip } from "#test/proxies";

const CONNECT = "--mode=http-connect";
const OPENED = "HTTP/1.1 200 Connection Established";

/** Waits until the gauges say that nothing is open, pending or counted twice. */
async function idle(server: ProxyServerProcess): Promise<void> {
  const gauges = ["pending_backend_dials", "established_connections", "http_connections", "buffered_bytes"];
  const names = [...gauges, 'grpc_connections{service_method="Proxy"}'].map((name) => `server_${name}`);
  for (const name of names) await until(`${name} is 0`, async () => (await server.metric(name)) === 0);
}

const READY = 'server_ready_backends{proxy_strategy="default"}';

async function connected(server: ProxyServerProcess, agents = 1): Promise<void> {
  await until("agents are connected", async () => (await server.metric(READY)) === agents, {
    seen: server.running.said,
  });
}

/** A TLS connection to loopback; resolves once it is sure that the server took it, rejects with its alert. */
async function tls(
  bed: ProxyBed,
  port: number,
  as: string | undefined,
  more: ConnectionOptions = {},
): Promise<TLSSocket> {
  const pair =
    as === undefined ? {} : { cert: readFileSync(bed.path(`${as}.crt`)), key: readFileSync(bed.path(`${as}.key`)) };
  const socket = connect({ port, host: "127.0.0.1", ca: readFileSync(bed.path("ca.crt")), ...pair, ...more });
  await once(socket, "secureConnect");
  return socket;
}

/** Returns how a server refuses a TLS client. In TLS 1.3 the client is done before the server is, so this comes with the first read. */
async function alertTo(bed: ProxyBed, port: number, as: string | undefined, more?: ConnectionOptions): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = await tls(bed, port, as, more).catch((error: unknown) => String(error));
  if (typeof socket === "string") return socket;
  socket.once("error", (error) => resolve(String(error)));
  socket.once("close", () => resolve("closed without an alert"));
  socket.resume();
  return promise;
}

test("proxy-server and proxy-agent: CONNECT over a UNIX socket, and what health and metrics say of it", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--server-id=server-a", "--server-count=1"]);
  assert.equal(statSync(server.udsPath).mode & 0o777, 0o770);
  assert.equal(await server.health("/healthz"), "200 ok");
  assert.equal(await server.health("/readyz"), "500 no connection to any proxy agent");
  assert.equal(await server.health("/nothing"), "404 404 page not found\n");
  assert.match(
    await server.health("/metrics"),
    /^konnectivity_network_proxy_server_ready_backends\{proxy_strategy="default"\} 0$/m,
  );
  const none = await bed.dial(server.udsPath);
  assert.match(await connectThrough(none, "127.0.0.1:1"), /^HTTP\/1\.1 503 /);

  const agent = await bed.agent([server], ["--agent-id=agent-a"]);
  await connected(server);
  assert.equal(await server.health("/ready"), "200 ok");
  assert.equal(await agent.health("/readyz"), "200 ok");
  assert.equal(await agent.health("/readyz?verbose"), "200 [+]ping ok\n[+]server-connected ok\ncheck passed\n");
  assert.equal(await agent.health("/healthz"), "200 ok");
  const moved = await fetch(`http://127.0.0.1:${agent.adminPort}/metrics`, { redirect: "manual" });
  assert.deepEqual(
    [moved.status, moved.headers.get("location")],
    [301, `http://127.0.0.1:${agent.healthPort}/metrics`],
  );
  assert.match(await fetchText(`http://127.0.0.1:${server.adminPort}/metrics`), /^200 /);
  assert.match(await fetchText(`http://127.0.0.1:${server.adminPort}/debug/pprof/`), /^404 /);

  const port = await bed.echo();
  const socket = await bed.dial(server.udsPath);
  assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
  assert.equal(await roundTrip(socket, "hello"), "hello");
  assert.equal(await server.metric("server_established_connections"), 1);
  assert.equal(await agent.metric("agent_open_endpoint_connections"), 1);
  socket.end();
  assert.equal(await text(socket), "");
  await idle(server);
  await until("the endpoint is closed", async () => (await agent.metric("agent_open_endpoint_connections")) === 0);
  const refused = await bed.dial(server.udsPath);
  assert.match(await connectThrough(refused, `127.0.0.1:${await freePort()}`), /^HTTP\/1\.1 502 /);
  assert.equal(await server.metric('server_dial_failure_count{reason="error_response"}'), 1);
  assert.equal(await server.metric('server_dial_failure_count{reason="no_agent"}'), 1);
  assert.equal(await agent.metric('agent_endpoint_dial_failure_total{reason="unknown"}'), 1);

  assert.equal((await server.stop()).code, 0);
  assert.equal(existsSync(server.udsPath), false);
  await until("the agent says so", async () => (await agent.health("/readyz")).startsWith("503 "));
  assert.equal(await agent.health("/readyz"), "503 [+]ping ok\n[-]server-connected failed: no servers connected\n");
  assert.equal((await agent.stop()).code, 0);
});

test("proxy-server: gRPC frontends over a UNIX socket, with grpc-js on their side", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server();
  const agent = await bed.agent([server]);
  await connected(server);
  const port = await bed.echo();
  using frontend = openFrontend(`unix:${server.udsPath}`, credentials.createInsecure());
  assert.equal(await frontend.dial(`127.0.0.1:${port}`, 2 ** 52 + 1), "");
  assert.equal(await frontend.roundTrip("hello"), "hello");
  assert.equal(await frontend.roundTrip("x".repeat(200_000)), "x".repeat(200_000));
  await frontend.end();
  assert.deepEqual(frontend.ended()?.code, 0);
  using refused = openFrontend(`unix:${server.udsPath}`, credentials.createInsecure());
  assert.match(await refused.dial(`127.0.0.1:${await freePort()}`, 7), /connection refused/);
  await refused.end();
  await idle(server);
  await until("the endpoint is closed", async () => (await agent.metric("agent_open_endpoint_connections")) === 0);
});

test("proxy-server: frontends over TCP must have a certificate of --server-ca-cert", async () => {
  await using bed = await ProxyBed.open();
  const tcp = async (mode: string) => {
    const port = await freePort();
    const pair = [`--server-cert=${bed.path("server.crt")}`, `--server-key=${bed.path("server.key")}`];
    const place = ["--uds-name=", `--server-port=${port}`, "--server-bind-address=127.0.0.1"];
    const ca = `--server-ca-cert=${bed.path("ca.crt")}`;
    return { port, server: await bed.server([`--mode=${mode}`, ...pair, ...place, ca]) };
  };
  const grpc = await tcp("grpc");
  const http = await tcp("http-connect");
  await bed.agent([grpc.server]);
  await bed.agent([http.server]);
  await connected(grpc.server);
  await connected(http.server);
  const port = await bed.echo();

  const read = (name: string): Buffer => readFileSync(bed.path(name));
  const frontendAs = (name: string) =>
    openFrontend(
      `localhost:${grpc.port}`,
      credentials.createSsl(read("ca.crt"), read(`${name}.key`), read(`${name}.crt`)),
    );
  {
    using frontend = frontendAs("frontend");
    assert.equal(await frontend.dial(`127.0.0.1:${port}`, 1), "");
    assert.equal(await frontend.roundTrip("hello"), "hello");
  }
  {
    using stranger = frontendAs("stranger");
    assert.match(await stranger.dial(`127.0.0.1:${port}`, 1), /^status 14 /);
  }

  const socket = await tls(bed, http.port, "frontend", { ALPNProtocols: ["h2", "http/1.1"] });
  assert.equal(socket.alpnProtocol, "http/1.1");
  assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
  assert.equal(await roundTrip(socket, "hello"), "hello");
  socket.end();
  assert.equal(await text(socket), "");
  await assert.rejects(tls(bed, http.port, "frontend", { ALPNProtocols: ["h2"] }), /no application protocol/i);
  assert.match(await alertTo(bed, http.port, undefined), /certificate required/);
  // Node judges a certificate after the handshake, and closes.
  for (const name of ["stranger", "expired", "serverOnly"]) {
    assert.equal(await alertTo(bed, http.port, name), "closed without an alert", name);
  }
  const old = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "ALL:@SECLEVEL=0" } as const;
  assert.match(await alertTo(bed, http.port, "frontend", old), /protocol version/);
});

test("proxy-server: agents must have a certificate of --cluster-ca-cert, and tell whom they trust", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server();
  const as = (name: string): string[] => [
    `--agent-cert=${bed.path(`${name}.crt`)}`,
    `--agent-key=${bed.path(`${name}.key`)}`,
  ];
  const strangers = [
    await bed.agent([server], as("stranger")),
    await bed.agent([server], as("expired")),
    await bed.agent([server], as("serverOnly")),
    await bed.agent([server], ["--agent-cert=", "--agent-key="]),
    // It takes the server for a stranger.
    await bed.agent([server], [`--ca-cert=${bed.path("stranger-ca.crt")}`]),
    await bed.agent([server], ["--tls-server-name=other.example"]),
  ];
  for (const agent of strangers) {
    await until("it was refused", () => agent.said("cannot connect to a proxy server").length > 1, {
      seen: agent.running.said,
    });
    assert.match(await agent.health("/readyz"), /^503 /);
  }
  assert.equal(await server.metric("server_ready_backend_connections"), 0);
  await bed.agent([server], ["--alpn-proto=tunnel.example,other", "--tls-server-name=localhost"]);
  await connected(server);
});

test("proxy-server: agents' TLS is at least 1.2, with suites that Go deems secure, and others only by name", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server();
  const named = await bed.server(["--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"]);
  const offer = async (port: number, ciphers: string, version: "TLSv1.1" | "TLSv1.2"): Promise<string> => {
    const versions = { minVersion: version === "TLSv1.1" ? "TLSv1" : version, maxVersion: version } as const;
    const more = { ...versions, ciphers: `${ciphers}:@SECLEVEL=0`, ALPNProtocols: ["h2"] };
    const socket = await tls(bed, port, "agent", more).catch((error: NodeJS.ErrnoException) => error.code ?? "");
    if (typeof socket === "string") return socket;
    const { name } = socket.getCipher();
    socket.destroy();
    return name;
  };
  const cbc = "ECDHE-ECDSA-AES128-SHA";
  assert.match(await offer(server.agentPort, "ALL", "TLSv1.1"), /PROTOCOL_VERSION/);
  assert.match(await offer(server.agentPort, "ALL", "TLSv1.2"), /^ECDHE-ECDSA-(AES|CHACHA20)/);
  for (const weak of [cbc, "AES128-SHA", "ECDHE-ECDSA-NULL-SHA", "aNULL", "AECDH-AES128-SHA"]) {
    assert.match(await offer(server.agentPort, weak, "TLSv1.2"), /HANDSHAKE_FAILURE/, weak);
  }
  assert.equal(await offer(named.agentPort, cbc, "TLSv1.2"), cbc);
  assert.match(await offer(named.agentPort, "ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2"), /HANDSHAKE_FAILURE/);
});

test("proxy-server: a new certificate serves the next handshake, a broken one changes nothing", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server();
  const serial = async (): Promise<string> => {
    const socket = await tls(bed, server.agentPort, "agent", {
      ALPNProtocols: ["h2"],
      checkServerIdentity: () => undefined,
    });
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  const before = await serial();
  bed.write("server.crt", "nothing");
  await until("it is told", async () => {
    assert.equal(await serial(), before);
    return server.said("new certificate files cannot be used; the old files stay in use").length === 1;
  });
  copyFileSync(bed.path("frontend.crt"), bed.path("server.crt"));
  copyFileSync(bed.path("frontend.key"), bed.path("server.key"));
  await until("the new one is served", async () => (await serial()) !== before);
});

test("proxy-agent: connects again after a server was killed, and a server forgets an agent that was", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT]);
  const agent = await bed.agent([server]);
  await connected(server);
  const port = await bed.echo();
  const lost = await bed.dial(server.udsPath);
  assert.equal(await connectThrough(lost, `127.0.0.1:${port}`), OPENED);
  await server.stop("SIGKILL");
  await until("the endpoint is closed", async () => (await agent.metric("agent_open_endpoint_connections")) === 0);

  const next = await bed.server([CONNECT, `--agent-port=${server.agentPort}`, `--uds-name=${server.udsPath}`]);
  const again = { ...next, agentPort: server.agentPort, udsPath: server.udsPath };
  await connected(again);
  assert.ok((await agent.metric("agent_reconnects_total")) >= 1);
  const socket = await bed.dial(again.udsPath);
  assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
  assert.equal(await roundTrip(socket, "hello"), "hello");

  await agent.stop("SIGKILL");
  assert.equal(await text(socket), "");
  await idle(again);
  assert.equal(await again.health("/readyz"), "500 no connection to any proxy agent");
  await bed.agent([again]);
  await connected(again);
});

test("proxy-agent: the first SIGTERM drains, and it ends with its last connection", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT]);
  const first = await bed.agent([server], ["--agent-id=first"]);
  await connected(server);
  const port = await bed.echo();
  const old = await bed.dial(server.udsPath);
  assert.equal(await connectThrough(old, `127.0.0.1:${port}`), OPENED);
  const second = await bed.agent([server], ["--agent-id=second"]);
  await connected(server, 2);

  first.running.child.kill("SIGTERM");
  await until("the server knows", () => server.said("agent drains").length === 1, { seen: server.running.said });
  for (let at = 0; at < 8; at += 1) {
    const socket = await bed.dial(server.udsPath);
    assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
  }
  assert.equal(await second.metric("agent_open_endpoint_connections"), 8);
  assert.equal(await roundTrip(old, "still here"), "still here");
  old.end();
  assert.equal((await first.running.ended).code, 0);
  await connected(server, 1);

  // With a connection open the second signal ends it at once.
  second.running.child.kill("SIGTERM");
  await until("it drains", () => server.said("agent drains").length === 2, { seen: server.running.said });
  second.running.child.kill("SIGTERM");
  assert.equal((await second.running.ended).code, 0);
  await idle(server);
});

test("proxy-server: at SIGTERM connections go on for --graceful-shutdown-timeout, and new ones are taken until then", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--graceful-shutdown-timeout=60s"]);
  const agent = await bed.agent([server]);
  await connected(server);
  const port = await bed.echo();
  const socket = await bed.dial(server.udsPath);
  assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
  server.running.child.kill("SIGTERM");
  await until("it says so", async () => (await server.health("/readyz")) === "500 shutting down");
  // Nobody else could serve it.
  const late = await bed.dial(server.udsPath);
  assert.equal(await connectThrough(late, `127.0.0.1:${port}`), OPENED);
  assert.equal(await roundTrip(late, "served"), "served");
  late.end();
  assert.equal(await text(late), "");
  assert.equal(await roundTrip(socket, "still here"), "still here");
  assert.equal(await agent.health("/readyz"), "200 ok");
  socket.end();
  assert.equal(await text(socket), "");
  assert.equal((await server.running.ended).code, 0);

  const other = await bed.server([CONNECT, "--graceful-shutdown-timeout=60s"]);
  await bed.agent([other]);
  await connected(other);
  const held = await bed.dial(other.udsPath);
  assert.equal(await connectThrough(held, `127.0.0.1:${port}`), OPENED);
  other.running.child.kill("SIGTERM");
  await until("it says so", async () => (await other.health("/readyz")) === "500 shutting down");
  assert.equal((await other.stop()).code, 1);
  assert.equal(existsSync(other.udsPath), false);

  const short = await bed.server([CONNECT, "--graceful-shutdown-timeout=200ms"]);
  await bed.agent([short]);
  await connected(short);
  const cut = await bed.dial(short.udsPath);
  assert.equal(await connectThrough(cut, `127.0.0.1:${port}`), OPENED);
  assert.equal((await short.stop()).code, 0);
  assert.equal(
    short.said(
      "open connections are closed, because the graceful shutdown took longer than --graceful-shutdown-timeout",
    ).length,
    1,
  );
});

test("proxy-server --take-over: while one server follows another no dial fails, and held connections go on", async () => {
  await using bed = await ProxyBed.open();
  const flags = [CONNECT, "--take-over", "--graceful-shutdown-timeout=60s"];
  const before = await bed.server(flags);
  const agent = await bed.agent([before]);
  await connected(before);
  const port = await bed.echo();
  const held = await bed.dial(before.udsPath);
  assert.equal(await connectThrough(held, `127.0.0.1:${port}`), OPENED);

  const replies: string[] = [];
  const stop = new AbortController();
  const dials = (async () => {
    while (!stop.signal.aborted) {
      const socket = await bed.dial(before.udsPath);
      replies.push(await connectThrough(socket, `127.0.0.1:${port}`));
      assert.equal(await roundTrip(socket, "hello"), "hello");
      socket.destroy();
    }
  })();
  const same = [`--uds-name=${before.udsPath}`, `--agent-port=${before.agentPort}`];
  const ports = [`--health-port=${before.healthPort}`, `--admin-port=${before.adminPort}`];
  const after = await bed.server([...flags, ...same, ...ports]);
  await until(
    "it waits",
    () => after.said("another server has the socket of frontends: waiting for it to end").length === 1,
  );
  // Probes are answered by the follower alone, which has no agent yet: its readiness is its own.
  const YIELDS = "another server waits to take over: it alone answers probes now";
  await until("probes are its own", () => before.said(YIELDS).length === 1);
  for (let asked = 0; asked < 10; asked += 1) assert.equal(await before.metric(READY), 0);
  assert.equal(await before.health("/readyz"), "200 ok");
  before.running.child.kill("SIGTERM");
  await until("frontends reach the follower", () => after.said("frontends come to this server now").length === 1);
  assert.equal(await before.health("/readyz"), "200 ok");
  const then = replies.length;
  await until("it serves", () => replies.length > then + 3);
  assert.equal(await roundTrip(held, "still here"), "still here");
  held.end();
  assert.equal(await text(held), "");
  assert.equal((await before.running.ended).code, 0);
  assert.equal(agent.said("the connection to a proxy server ended").length, 1);

  // One that is killed hands nothing over: its follower takes the socket.
  const last = await bed.server([...flags, ...same, ...ports]);
  await until(
    "it waits",
    () => last.said("another server has the socket of frontends: waiting for it to end").length === 1,
  );
  stop.abort();
  await dials;
  assert.deepEqual(new Set(replies), new Set([OPENED]));
  await after.stop("SIGKILL");
  await until("frontends reach it", () => last.said("frontends come to this server now").length === 1);
  await connected({ ...last, metric: before.metric });
  const again = await bed.dial(before.udsPath);
  assert.equal(await connectThrough(again, `127.0.0.1:${port}`), OPENED);
  again.destroy();
  assert.equal((await last.stop()).code, 0);
  assert.equal(existsSync(before.udsPath), false);
});

test("proxy-server: profiles are there when asked for", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server(["--enable-profiling"]);
  const admin = (path: string): Promise<string> => fetchText(`http://127.0.0.1:${server.adminPort}${path}`);
  assert.match(await admin("/debug/pprof/"), /^200 .*profile/s);
  assert.match(await admin("/debug/pprof/profile?seconds=0.1"), /^200 \{"nodes":/);
  assert.match(await admin("/debug/pprof/profile?seconds=soon"), /^400 /);
  assert.match(await admin("/debug/pprof/heap"), /^200 \{"head":/);
  assert.match(await admin("/debug/pprof/mutex"), /^404 /);
});

test("proxy-server and proxy-agent: a wrong command line is one line for each fault and exit code 1", async () => {
  const server = await start([ISTHMUS, "proxy-server", "--mode=fast", "--agent-port=80", "--cluster-cert=x"]).ended;
  assert.equal(server.code, 1);
  assert.match(server.stderr, /^isthmus proxy-server: --mode: "fast" is not one of grpc, http-connect\n/);
  const more = await start([ISTHMUS, "proxy-server", "--agent-port=80", "--cluster-cert=/nowhere"]).ended;
  assert.equal(more.code, 1);
  assert.match(more.stderr, /^isthmus proxy-server: --agent-port: 80 is not from 1024 to 49151: /m);
  assert.match(more.stderr, /^isthmus proxy-server: --cluster-key: is needed with --cluster-cert$/m);
  const agent = await start([ISTHMUS, "proxy-agent", "--target=6443:localhost:6443"]).ended;
  assert.equal(agent.code, 1);
  assert.match(
    agent.stderr,
    /^isthmus proxy-agent: --target: needs --feature-gates=EnableClusterToMasterTraffic=true$/m,
  );
});

test("proxy-server: a socket that another process serves is not taken, one that a dead one left is", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server();
  const same = `--uds-name=${server.udsPath}`;
  await assert.rejects(bed.server([same]), /another process listens there; stop that process, or choose another path/);
  await server.stop("SIGKILL");
  assert.equal(existsSync(server.udsPath), true);
  await assert.rejects(
    bed.server([same, "--delete-existing-uds-file=false"]),
    /an earlier process left its socket there/,
  );
  const next = await bed.server([same]);
  assert.equal((await next.stop()).code, 0);
  const file = bed.write("no-socket", "");
  await assert.rejects(bed.server([`--uds-name=${file}`]), /the path exists and is not a socket/);
  const taken = await bed.server();
  await assert.rejects(
    bed.server([`--agent-port=${taken.agentPort}`]),
    /proxy-server: cannot listen on 127\.0\.0\.1:\d+: .*EADDRINUSE/,
  );
});
