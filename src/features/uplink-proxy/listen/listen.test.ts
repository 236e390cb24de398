import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import type { ListenerSettings } from "#base/uplink-model";
import { KernelError } from "#kernel/errors";
import { getsockopt } from "#kernel/ffi";
import { TcpStream, tcpStreams } from "#kernel/reactor";
import { listenTcp, openTcp } from "#kernel/socket";
import { freePort } from "#test/ports";
import { hostListener } from "../testing/proxy-fixtures.ts";
import { BindLoop, type BindLoopDeps } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A loop that runs; `lines` has `level message`. */
function loopFor(t: TestContext, listener: ListenerSettings, deps: Partial<BindLoopDeps> = {}, reusePort = false) {
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = createLogger({
    name: "p",
    level: "debug",
    write: (line) => {
      const { level, msg } = JSON.parse(line) as { level: string; msg: string };
      lines.push(`${level} ${msg}`);
    },
  });
  const clients: TcpStream[] = [];
  const loop = new BindLoop(
    listener,
    {
      streams: tcpStreams("epoll"),
      log,
      clock,
      onClient: (fd, remote) => clients.push(TcpStream.adopt(fd, remote)),
      ...deps,
    },
    { backlog: 511, reusePort },
  );
  const stop = new AbortController();
  const done = loop.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await done;
    for (const client of clients) client.destroy();
  });
  return { loop, clock, lines, clients, stop, done };
}

async function occupy(t: TestContext): Promise<{ readonly port: number; readonly server: Server }> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return { port: (server.address() as AddressInfo).port, server };
}

test(
  "BindLoop: a busy port is tried after 1, 2, 4, 8, 16 and then each 30 s, and had as soon as it is free",
  TIMEOUT,
  async (t) => {
    const { port, server } = await occupy(t);
    const { loop, clock, lines } = loopFor(t, hostListener(port));
    const times: number[] = [];
    for (let failures = 1; failures <= 8; failures += 1) {
      while (lines.length < failures || clock.pending === 0) {
        if (clock.pending > 0) await clock.advance(500);
        else await turn();
      }
      times.push(clock.monotonic());
    }
    const pauses = times.slice(1).map((at, index) => at - (times[index] ?? 0));
    assert.deepEqual(pauses, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    const failed = `error mgmtproxy: listen 127.0.0.1:${port} failed (will retry): Cannot listen on 127.0.0.1:${port}: Address already in use (EADDRINUSE)`;
    assert.deepEqual(lines, Array(8).fill(failed));
    server.close();
    await once(server, "close");
    while (!loop.isBound) {
      if (clock.pending > 0) await clock.advance(1000);
      else await turn();
    }
    assert.equal(lines.at(-1), `info mgmtproxy: listening on 127.0.0.1:${port}`);
  },
);

test(
  "BindLoop: a pod listener waits for its address without an error line, and binds as soon as retryNow is called",
  TIMEOUT,
  async (t) => {
    let isThere = false;
    const port = await freePort();
    const listener = hostListener(port, { role: "pod", name: "pods", interface: "cni0" });
    const [EADDRINUSE, EADDRNOTAVAIL] = [98, 99];
    const { loop, clock, lines } = loopFor(t, listener, {
      openFd: () => {
        throw KernelError.fromErrno(isThere ? EADDRINUSE : EADDRNOTAVAIL, "listen");
      },
    });
    while (clock.pending === 0) await turn();
    assert.deepEqual(
      lines.map((line) => line.split(" ")[0]),
      ["debug"],
    );
    isThere = true;
    loop.retryNow();
    while (lines.length < 2) await turn();
    assert.equal(clock.monotonic(), 0);
    assert.match(lines[1] ?? "", /^error .*EADDRINUSE/);
  },
);

test(
  "BindLoop: logs the address of the pod listener, and passes clients on with the bytes that they have sent",
  TIMEOUT,
  async (t) => {
    const port = await freePort();
    const { loop, lines, clients } = loopFor(t, hostListener(port, { role: "pod", name: "pods", interface: "cni0" }));
    while (!loop.isBound) await turn();
    assert.deepEqual(lines, [`info mgmtproxy: cni0 listener on 127.0.0.1:${port}`]);
    const client = connect(port, "127.0.0.1");
    t.after(() => client.destroy());
    client.write("x");
    while (clients.length === 0) await turn();
    const [accepted] = clients;
    const said = new Promise((resolve) => accepted?.once("data", (chunk) => resolve(Buffer.from(chunk).toString())));
    accepted?.resume();
    assert.equal(await said, "x");
    assert.equal(accepted?.remotePort, client.localPort);
  },
);

test("BindLoop: the reason of a listener's end is logged, and it is bound again after 5 s", TIMEOUT, async (t) => {
  const port = await freePort();
  let bound = 0;
  const { loop, clock, lines, done, stop } = loopFor(t, hostListener(port), {
    onBound: () => {
      bound += 1;
    },
    // At first one that cannot accept, as after a fault of the kernel's.
    openFd: ({ address }) => (bound === 0 ? openTcp(4, { source: address }) : listenTcp(address, port)),
  });
  while (bound === 0 || clock.pending === 0) await turn();
  assert.equal(loop.isBound, false);
  await clock.advance(4999);
  assert.equal(bound, 1);
  await clock.advance(1);
  while (bound < 2) await turn();
  assert.equal(lines.filter((line) => line.includes("listening on")).length, 2);
  const said = lines.filter((line) => line.startsWith("error "));
  assert.deepEqual(said, [
    `error mgmtproxy: listen 127.0.0.1:${port} failed (will retry): Cannot accept a client: Invalid argument (EINVAL)`,
  ]);
  stop.abort();
  await done;
  assert.equal(loop.isBound, false);
  // The port is free again at once.
  const next = createServer().listen(port, "127.0.0.1");
  await once(next, "listening");
  next.close();
});

test(
  "BindLoop: two loops share a port with reusePort, and errors of our own system calls are retried too",
  TIMEOUT,
  async (t) => {
    const port = await freePort();
    const one = loopFor(t, hostListener(port), {}, true);
    const two = loopFor(t, hostListener(port), {}, true);
    while (!one.loop.isBound || !two.loop.isBound) await turn();
    const refused = new KernelError("busy", "listen on 127.0.0.1:1: address already in use", { errno: "EADDRINUSE" });
    const three = loopFor(t, hostListener(1, { role: "transparent", address: IpAddress.parse("127.0.0.1") }), {
      openFd: () => {
        throw refused;
      },
    });
    while (three.lines.length === 0) await turn();
    assert.match(three.lines[0] ?? "", /will retry\): listen on 127\.0\.0\.1:1: address already in use/);
  },
);

test("BindLoop: accepted sockets send at once, without waiting for acknowledgements", TIMEOUT, async (t) => {
  const port = await freePort();
  const { clients, lines } = loopFor(t, hostListener(port));
  while (lines.length === 0) await turn();
  const client = connect({ host: "127.0.0.1", port });
  t.after(() => client.destroy());
  while (clients.length === 0) await turn();
  const [accepted] = clients;
  assert.ok(accepted);
  const [IPPROTO_TCP, TCP_NODELAY] = [6, 1];
  assert.equal(getsockopt(accepted.fd, IPPROTO_TCP, TCP_NODELAY), 1);
});
