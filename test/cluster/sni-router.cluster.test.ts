import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect as connectTcp, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { connect, createServer, type TLSSocket } from "node:tls";
import { makeCertificates } from "#test/certificates";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { freePort } from "#test/ports";

const makeCluster = (name: string) => makeCertificates(name, { server: [`${name}.example`] });
type Cluster = ReturnType<typeof makeCluster>;
const [a, b] = [makeCluster("a"), makeCluster("b")];

/** A server of a cluster: it greets and then echoes. */
async function startServer(t: TestContext, { pairs }: Cluster, greeting: string): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer(pairs.server, (socket) => {
    socket.on("error", () => socket.destroy());
    socket.write(greeting);
    socket.pipe(socket);
  });
  server.on("connection", (socket: Socket) => sockets.add(socket));
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** The content of a line of the log. */
interface LogLine {
  readonly msg: string;
  readonly level: string;
  readonly address?: string;
  readonly error?: string;
}

const linesOf = (running: Running): LogLine[] =>
  running
    .said()
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line): LogLine => JSON.parse(line));

/** The shipped program on ports of loopback that the kernel chose for another moment. */
async function startProgram(t: TestContext, args: readonly string[]) {
  const [metrics, health] = [await freePort(), await freePort()];
  const running = start([
    ...[ISTHMUS, "sni-router", "--listen=127.0.0.1:0", "--listen", "[::1]:0", ...args],
    ...[`--metrics-addr=127.0.0.1:${metrics}`, `--health-addr=127.0.0.1:${health}`],
  ]);
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  const addresses = (): string[] =>
    linesOf(running).flatMap(({ msg, address }) => (msg === "listening" ? (address ?? "") : []));
  await until("it routes", () => linesOf(running).some(({ msg }) => msg === "routing"), { seen: running.said });
  const fetchText = async (port: number, path: string): Promise<string> => {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`);
    return `${answer.status} ${await answer.text()}`;
  };
  const ports = addresses().map((address) => Number(address.replace(/.*:/, "")));
  return {
    running,
    port: ports[0] ?? 0,
    port6: ports[1] ?? 0,
    metrics: () => fetchText(metrics, "/metrics"),
    ready: () => fetchText(health, "/readyz?verbose"),
    said: (message: string) => linesOf(running).filter(({ msg }) => msg === message),
  };
}

/** Connects by name, checks the certificate, and reads the greeting. */
async function greet(t: TestContext, port: number, name: string, { ca }: Cluster, host = "127.0.0.1") {
  const socket = connect({ host, port, ca, servername: name });
  t.after(() => socket.destroy());
  const [greeting] = await once(socket, "data");
  // At the end the router resets what is left.
  socket.on("error", () => undefined);
  return { socket, greeting: String(greeting) };
}

async function echo(socket: TLSSocket, word: string): Promise<string> {
  socket.write(word);
  return String((await once(socket, "data"))[0]);
}

test("sni-router: routes by file and flags, is ready, counts, and drains at SIGTERM", async (t) => {
  const [toA, toB] = [await startServer(t, a, "A"), await startServer(t, b, "B")];
  const folder = mkdtempSync(join(tmpdir(), "isthmus-sni-router-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "routes.yaml");
  writeFileSync(file, `routes:\n  - names: [a.example]\n    backends: ["127.0.0.1:${toA}"]\n`);
  const program = await startProgram(t, [
    `--config=${file}`,
    `--route=*.example=127.0.0.1:${toB}`,
    "--drain-timeout=100ms",
  ]);
  assert.equal((await greet(t, program.port, "a.example", a)).greeting, "A");
  const { socket, greeting } = await greet(t, program.port6, "b.example", b, "::1");
  assert.equal(greeting, "B");
  assert.match(await program.ready(), /^200 /);
  const metrics = await program.metrics();
  assert.match(metrics, /^sni_router_connections_total\{route="a.example",result="routed"\} 1$/m);
  assert.match(metrics, /^sni_router_connections_total\{route="\*.example",result="routed"\} 1$/m);
  assert.match(metrics, /^sni_router_bytes_total\{route="a.example",direction="to_client"\} [1-9]/m);
  assert.match(metrics, /^sni_router_active_connections 2$/m);

  program.running.child.kill("SIGTERM");
  const reset = once(socket, "error");
  const { code } = await program.running.ended;
  assert.equal(code, 0, program.running.said());
  assert.equal(((await reset)[0] as NodeJS.ErrnoException).code, "ECONNRESET");
  assert.equal(program.said("ended").length, 1);
});

test("sni-router: SIGHUP reads the routes again; a wrong file changes nothing and is told with line and field", async (t) => {
  const [before, after] = [await startServer(t, a, "before"), await startServer(t, a, "after")];
  const folder = mkdtempSync(join(tmpdir(), "isthmus-sni-router-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "routes.yaml");
  const routes = (port: number | string): string =>
    `routes:\n  - names: [a.example]\n    backends: ["127.0.0.1:${port}"]\n`;
  writeFileSync(file, routes(before));
  const program = await startProgram(t, ["--config", file]);
  const { socket, greeting } = await greet(t, program.port, "a.example", a);
  assert.equal(greeting, "before");

  const wrong = "the new routes are invalid; the old routes stay in force";
  for (const [count, content] of [routes("http"), "routes: [", ""].entries()) {
    writeFileSync(file, content);
    program.running.child.kill("SIGHUP");
    await until("it complains", () => program.said(wrong).length === count + 1, { seen: program.running.said });
    assert.equal((await greet(t, program.port, "a.example", a)).greeting, "before");
  }
  assert.equal(
    program.said(wrong)[0]?.error,
    `${file}:3: routes[0].backends[0] "127.0.0.1:http" is not HOST:PORT or [IPv6]:PORT`,
  );
  // It goes on with the old ones, and says so where it is looked.
  assert.match(await program.ready(), /^200 .*\[-\]routes degraded /s);

  writeFileSync(file, routes(after));
  program.running.child.kill("SIGHUP");
  await until("it reads", () => program.said("routes reloaded").length === 1, { seen: program.running.said });
  assert.equal((await greet(t, program.port, "a.example", a)).greeting, "after");
  assert.equal(await echo(socket, "still there"), "still there");
  assert.match(await program.metrics(), /^sni_router_reloads_total\{result="refused"\} 3$/m);
});

test("sni-router: a start that cannot be is refused in one line", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-sni-router-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "routes.yaml");
  writeFileSync(file, "routes:\n  - names: [a b]\n    backends: ['h:1']\n");
  const cases: readonly (readonly [readonly string[], number, RegExp])[] = [
    [[], 1, /no routes are defined; define at least one route, or a default\n$/],
    [["--route=a"], 2, /--route: "a" is not NAME=HOST:PORT/],
    [["--route=a=h:0"], 2, /--route: "h:0" is not HOST:PORT/],
    [["--default=h"], 2, /--default: "h" is not HOST:PORT/],
    [["--listen=x"], 2, /--listen: "x" is not a listen address/],
    [
      [`--config=${file}`],
      1,
      /routes.yaml:2: routes\[0\].names\[0\] "a b" is neither a server name nor \*\. and a domain\n$/,
    ],
    [["--config=/nowhere"], 1, /cannot read the routes: ENOENT.*\/nowhere'\n$/],
    [["--config=/"], 1, /cannot read the routes: EISDIR/],
    [["--route=a=h:1", "--route=A.=h:2"], 1, /the name a has two routes/],
  ];
  for (const [args, expected, message] of cases) {
    const { code, stderr } = await start([ISTHMUS, "sni-router", ...args]).ended;
    assert.equal(code, expected, stderr);
    assert.match(stderr, message);
    assert.ok(stderr.split("\n").length <= 3, stderr);
  }
});

test("sni-router: while it drains it is not ready and takes nobody new", async (t) => {
  const port = await startServer(t, a, "hello");
  const program = await startProgram(t, [`--default=127.0.0.1:${port}`, "--drain-timeout=30s"]);
  const { socket } = await greet(t, program.port, "a.example", a);
  program.running.child.kill("SIGTERM");
  await until("it drains", () => program.said("draining").length === 1, { seen: program.running.said });
  assert.match(await program.ready(), /^503 .*listen degraded shutting down/s);
  const late = connectTcp(program.port, "127.0.0.1");
  const [error] = await once(late, "error");
  assert.equal((error as NodeJS.ErrnoException).code, "ECONNREFUSED");
  assert.equal(await echo(socket, "still served"), "still served");
  socket.end();
  assert.equal(await text(socket), "");
  assert.equal((await program.running.ended).code, 0);
});
