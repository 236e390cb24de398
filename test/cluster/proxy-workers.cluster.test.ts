/** `--workers` of proxy-server and proxy-agent, with the programs as a user runs them. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { connect as tlsConnect } from "node:tls";
import { credentials } from "@grpc/grpc-js";
import { openFrontend } from "#test/grpc-frontend";
import { until } from "#test/lab";
import { freePort } from "#test/ports";
import { connectThrough, ProxyBed, type ProxyProcess, type ProxyServerProcess, roundTrip } from "#test/proxies";

const CONNECT = "--mode=http-connect";
const OPENED = "HTTP/1.1 200 Connection Established";
const STREAMS = "server_ready_backend_connections";
const AGENTS = 'server_ready_backends{proxy_strategy="default"}';

/** Process ids of the workers that a program has started. */
function workersOf({ running }: ProxyProcess): number[] {
  const pid = running.child.pid ?? 0;
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
}

function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}`) && !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
}

async function untilGone(pids: readonly number[]): Promise<void> {
  await until("no worker is left", () => !pids.some(isAlive), { seen: () => pids.filter(isAlive).join(", ") });
}

async function linked(server: ProxyServerProcess, streams: number): Promise<void> {
  await until(`${streams} links`, async () => (await server.metric(STREAMS)) === streams, {
    seen: server.running.said,
  });
}

test("--workers: an agent has a link to each worker, each worker serves frontends, metrics are summed", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=3", "--server-id=a"]);
  await until("it has started", async () => (await server.health("/healthz")) === "200 ok");
  await until("all workers say so", async () => server.said("started").length === 3);
  assert.deepEqual(
    server
      .said("started")
      .map(({ serverID, logger }) => [serverID, logger])
      .sort(),
    [1, 2, 3].map((index) => [`a-${index}`, `proxy-server.${index}`]),
  );
  assert.equal(await server.health("/readyz"), "500 worker 1: no connection to any proxy agent");
  const agent = await bed.agent([server]);
  // For a moment an agent may have two links to one worker.
  await until("each worker has a link", async () => (await server.health("/readyz")) === "200 ok");
  await linked(server, 3);
  assert.equal(await server.metric(AGENTS), 1);
  assert.equal(
    await server.health("/readyz?verbose"),
    "200 [+]frontends ok\n[+]workers ok\n[+]agents ok\ncheck passed\n",
  );
  const metrics = await server.health("/metrics");
  assert.match(metrics, /^konnectivity_network_proxy_server_build_info\{[^}]*\} 1$/m);
  assert.match(metrics, /^isthmus_build_info\{[^}]*\} 1$/m);

  const port = await bed.echo();
  const sockets = await Promise.all(
    Array.from({ length: 60 }, async (_, at) => {
      const socket = await bed.dial(server.udsPath);
      assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
      assert.equal(await roundTrip(socket, `hello ${at}`), `hello ${at}`);
      return socket;
    }),
  );
  assert.equal(await server.metric("server_established_connections"), 60);
  assert.equal(await server.metric("server_http_connections"), 60);
  assert.equal(await agent.metric("agent_open_endpoint_connections"), 60);
  assert.equal(await server.metric("server_dial_duration_seconds_count"), 60);
  for (const socket of sockets) {
    socket.end();
    assert.equal(await text(socket), "");
  }
  for (const name of ["established_connections", "http_connections", "buffered_bytes", "pending_backend_dials"]) {
    await until(`${name} is 0`, async () => (await server.metric(`server_${name}`)) === 0);
  }

  const pids = workersOf(server);
  assert.equal(pids.length, 3);
  assert.equal((await server.stop()).code, 0);
  assert.equal(existsSync(server.udsPath), false);
  await untilGone(pids);
  assert.equal((await agent.stop()).code, 0);
});

test("--workers: when the file of the UNIX socket is removed, or its place taken, all workers listen there again; a place that another process has is named", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=2"]);
  const agent = await bed.agent([server], ["--workers=2"]);
  await linked(server, 4);
  const port = await bed.echo();
  const pids = workersOf(server);
  const dialled = await bed.dial(server.udsPath);
  assert.equal(await connectThrough(dialled, `127.0.0.1:${port}`), OPENED);
  for (const path of [server.udsPath, server.udsPath]) {
    rmSync(path);
    await until("it listens again", () => existsSync(path), { seen: server.running.said });
    await until("it is ready", async () => (await server.health("/readyz")) === "200 ok");
    await Promise.all(
      Array.from({ length: 20 }, async (_, at) => {
        const socket = await bed.dial(path);
        assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
        assert.equal(await roundTrip(socket, `hello ${at}`), `hello ${at}`);
        socket.end();
        assert.equal(await text(socket), "");
      }),
    );
  }
  // The connections of before go on, and no worker has ended.
  assert.equal(await roundTrip(dialled, "hello"), "hello");
  assert.deepEqual(workersOf(server), pids);
  const other = createServer();
  rmSync(server.udsPath);
  await once(other.listen(server.udsPath), "listening");
  await until("it is not ready", async () =>
    /^500 .* was removed or replaced, and listening again failed: /.test(await server.health("/readyz")),
  );
  other.close();
  await until("it is ready again", async () => (await server.health("/readyz")) === "200 ok", {
    seen: server.running.said,
  });
  dialled.destroy();
  assert.equal((await agent.stop()).code, 0);
});

test("--workers: gRPC frontends over a UNIX socket; agents with workers have links of their own", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server(["--workers=2"]);
  const agent = await bed.agent([server], ["--workers=2", "--agent-id=b", "--agent-identifiers=host=node1"]);
  await linked(server, 4);
  assert.equal(await server.metric(AGENTS), 2);
  await until("both are ready", async () => (await agent.health("/readyz")) === "200 ok");
  assert.equal(
    await agent.health("/readyz?verbose"),
    "200 [+]workers ok\n[+]ping ok\n[+]server-connected ok\ncheck passed\n",
  );
  const port = await bed.echo();
  await Promise.all(
    Array.from({ length: 20 }, async (_, at) => {
      using frontend = openFrontend(`unix:${server.udsPath}`, credentials.createInsecure());
      assert.equal(await frontend.dial(`127.0.0.1:${port}`, 1000 + at), "");
      assert.equal(await frontend.roundTrip("hello"), "hello");
      await frontend.end();
    }),
  );
  assert.deepEqual((await agent.stop()).code, 0);
  await linked(server, 0);
});

test("--workers: frontends over TCP are spread over the workers", async () => {
  await using bed = await ProxyBed.open();
  const port = await freePort();
  const server = await bed.server([
    ...[CONNECT, "--workers=2", "--uds-name=", `--server-port=${port}`, "--server-bind-address=127.0.0.1"],
    ...[`--server-cert=${bed.path("server.crt")}`, `--server-key=${bed.path("server.key")}`],
    `--server-ca-cert=${bed.path("ca.crt")}`,
  ]);
  await bed.agent([server]);
  await until("each worker has a link", async () => (await server.health("/readyz")) === "200 ok");
  const echo = await bed.echo();
  const [ca, cert, key] = ["ca.crt", "frontend.crt", "frontend.key"].map((name) => readFileSync(bed.path(name)));
  const sockets = await Promise.all(
    Array.from({ length: 24 }, async () => {
      const socket = tlsConnect({ port, host: "127.0.0.1", servername: "localhost", ca, cert, key });
      await once(socket, "secureConnect");
      assert.equal(await connectThrough(socket, `127.0.0.1:${echo}`), OPENED);
      assert.equal(await roundTrip(socket, "hello"), "hello");
      return socket;
    }),
  );
  assert.equal(await server.metric("server_established_connections"), 24);
  for (const socket of sockets) socket.destroy();
});

test("--workers: frontends are served by the workers that have an agent, and none waits while none has one", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=3"]);
  const port = await bed.echo();
  const head = async (): Promise<string> => connectThrough(await bed.dial(server.udsPath), `127.0.0.1:${port}`);
  assert.match(await head(), /^HTTP\/1\.1 503 /);
  // An agent that looks for other servers once a minute: for a while it has a link to one worker only.
  const agent = await bed.agent([server], ["--sync-interval=60s", "--sync-interval-cap=60s"]);
  await until("the first link", async () => (await server.metric(STREAMS)) > 0);
  await until("the other workers know", async () => {
    const heads = await Promise.all(Array.from({ length: 12 }, head));
    return heads.every((one) => one === OPENED);
  });
  for (let round = 0; round < 5; round += 1) {
    const heads = await Promise.all(Array.from({ length: 12 }, head));
    assert.deepEqual([...new Set(heads)], [OPENED], `with ${await server.metric(STREAMS)} links`);
  }
  await agent.stop("SIGKILL");
  await linked(server, 0);
  await until("clients are refused at once", async () => / 503 /.test(await head()));
});

test("--workers: a worker without descriptors leaves frontends to the others", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=2"]);
  await bed.agent([server]);
  await until("each worker has a link", async () => (await server.health("/readyz")) === "200 ok");
  const [first = 0] = workersOf(server);
  const used = readdirSync(`/proc/${first}/fd`).length;
  execFileSync("prlimit", [`--pid=${first}`, `--nofile=${used + 5}:${used + 5}`]);
  const port = await bed.echo();
  for (let at = 0; at < 100; at += 1) {
    const socket = await bed.dial(server.udsPath);
    assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED, `client ${at}`);
  }
  // The log comes by the leader, after the clients have been served.
  await until("it is said", async () => server.said("cannot accept a connection").length > 0);
  assert.equal(server.said("cannot accept a connection").length, 1);
});

test("--workers: a worker that is killed ends the program, which names it, and leaves nothing", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=2"]);
  await until("all workers say so", async () => server.said("started").length === 2);
  const [first = 0, second = 0] = workersOf(server);
  process.kill(second, "SIGKILL");
  const { code, stderr } = await server.running.ended;
  assert.equal(code, 1);
  assert.match(stderr, /^isthmus proxy-server: worker \d has ended by SIGKILL$/m);
  await untilGone([first, second]);
  assert.equal(existsSync(server.udsPath), false);
});

test("--workers: SIGTERM while workers start is an orderly end", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=3"]);
  await until("the first says so", async () => server.said("started").length > 0);
  const pids = workersOf(server);
  const { code, stderr } = await server.stop();
  assert.equal(code, 0, stderr);
  await untilGone(pids);
  assert.equal(existsSync(server.udsPath), false);
});

test("--workers: a worker that is stopped makes the program unhealthy, and healthy again when it goes on", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=2"]);
  await until("all workers say so", async () => server.said("started").length === 2);
  const [, second = 0] = workersOf(server);
  process.kill(second, "SIGSTOP");
  try {
    const [healthz = "", readyz = ""] = await Promise.all(["/healthz", "/readyz"].map((path) => server.health(path)));
    assert.match(healthz, /^500 no answer within 5000 ms from worker [12]$/);
    assert.match(readyz, /no answer within 5000 ms from worker [12]/);
  } finally {
    process.kill(second, "SIGCONT");
  }
  await until("it is healthy", async () => (await server.health("/healthz")) === "200 ok");
});

test("--workers: the death of the leader ends its workers, and another one takes their place", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=2"]);
  const agent = await bed.agent([server]);
  await linked(server, 2);
  const pids = workersOf(server);
  await server.stop("SIGKILL");
  await untilGone(pids);
  const next = await bed.server([
    ...[CONNECT, "--workers=2", `--agent-port=${server.agentPort}`, `--uds-name=${server.udsPath}`],
  ]);
  await until("the agent is back", async () => (await next.metric(STREAMS)) === 2, { seen: agent.running.said });
  const socket = await bed.dial(server.udsPath);
  assert.equal(await connectThrough(socket, `127.0.0.1:${await bed.echo()}`), OPENED);
  assert.equal(await roundTrip(socket, "hello"), "hello");
});

test("--workers: a worker that is stuck does not outlive its leader either", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=2"]);
  const agent = await bed.agent([server], ["--workers=2"]);
  await until("all workers say so", async () => server.said("started").length + agent.said("started").length === 4);
  const stuck = [...workersOf(server), ...workersOf(agent)];
  for (const pid of stuck) process.kill(pid, "SIGSTOP");
  try {
    await Promise.all([server, agent].map((program) => program.stop("SIGKILL")));
    await untilGone(stuck);
  } finally {
    for (const pid of stuck.filter(isAlive)) process.kill(pid, "SIGKILL");
  }
});

test("--workers: SIGTERM lets connections of all workers go on for --graceful-shutdown-timeout", async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server([CONNECT, "--workers=2", "--graceful-shutdown-timeout=20s"]);
  await bed.agent([server]);
  await linked(server, 2);
  const port = await bed.echo();
  const sockets = await Promise.all(
    Array.from({ length: 12 }, async () => {
      const socket = await bed.dial(server.udsPath);
      assert.equal(await connectThrough(socket, `127.0.0.1:${port}`), OPENED);
      return socket;
    }),
  );
  server.running.child.kill("SIGTERM");
  await until("it drains", () => server.said("shutting down").length === 2);
  for (const socket of sockets) assert.equal(await roundTrip(socket, "still here"), "still here");
  await until("health says it", async () => (await server.health("/readyz")).includes("shutting down"));
  for (const socket of sockets) socket.end();
  assert.equal((await server.running.ended).code, 0);
  assert.equal(existsSync(server.udsPath), false);
});

test("--workers: a port of another program is refused, and what does not work with workers", async () => {
  await using bed = await ProxyBed.open();
  const taken = createServer();
  await once(taken.listen({ port: 0, host: "127.0.0.1", reusePort: true }), "listening");
  const address = taken.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const refused = (args: readonly string[]): Promise<string> =>
    bed.server([CONNECT, "--workers=2", ...args]).then(
      () => "it has started",
      (error: unknown) => String(error),
    );
  assert.match(await refused([`--agent-port=${port}`]), /cannot listen on 127\.0\.0\.1:\d+: .*EADDRINUSE/);
  assert.match(await refused(["--enable-profiling"]), /--enable-profiling: profiles one process/);
  const missing = await refused([`--cluster-key=${bed.path("agent.key")}`]);
  // Reported once, by the first worker.
  assert.equal(missing.match(/key values mismatch/g)?.length, 1, missing);
  taken.close();
});
