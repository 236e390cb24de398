import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { resetSocket } from "#base/socket-reset";
import { Bed } from "./testing/bed.ts";

const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";

/** Collects the bytes of a socket, and waits for them. */
class Reader {
  bytes = Buffer.alloc(0);
  ended = false;
  closed = false;
  readonly #waiting = new Set<() => void>();

  constructor(socket: Socket) {
    const wake = (): void => {
      for (const check of this.#waiting) check();
    };
    socket.on("data", (chunk: Buffer) => {
      this.bytes = Buffer.concat([this.bytes, chunk]);
      wake();
    });
    socket.on("end", () => {
      this.ended = true;
      wake();
    });
    socket.on("error", () => undefined);
    socket.on("close", () => {
      this.closed = true;
      wake();
    });
  }

  async until(condition: (reader: this) => boolean): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => reject(new Error(`not in time; got ${this.bytes.length} bytes`)), 10_000);
    const check = (): void => {
      if (condition(this)) resolve();
    };
    this.#waiting.add(check);
    // Also poll: some conditions change without an event of this socket.
    const poll = setInterval(check, 20);
    check();
    await promise.finally(() => {
      clearTimeout(timer);
      clearInterval(poll);
      this.#waiting.delete(check);
    });
  }
}

type Open = (bed: Bed, request: string | Buffer) => Promise<{ socket: Socket; reader: Reader }>;

/** Over TCP the server has sockets of Node, on a UNIX socket streams of kernel/reactor. */
const CONNECTED: Readonly<Record<string, (bed: Bed) => Promise<Socket>>> = {
  TCP: (bed) => bed.socket(bed.connectPort),
  "a UNIX socket": async (bed) => {
    const socket = connect({ path: await bed.connectPath(), allowHalfOpen: true });
    await once(socket, "connect");
    return socket;
  },
};

/** A claim that holds over each transport. */
function claim(text: string, run: (open: Open) => Promise<void>): void {
  for (const [transport, connected] of Object.entries(CONNECTED)) {
    test(`CONNECT: ${text}, over ${transport}`, () =>
      run(async (bed, request) => {
        const socket = await connected(bed);
        const reader = new Reader(socket);
        socket.write(request);
        return { socket, reader };
      }));
  }
}

async function idle(bed: Bed): Promise<void> {
  const deadline = performance.now() + 5000;
  const gauges = (): number[] => [
    bed.serverCounts.get("pending"),
    bed.serverCounts.get("established"),
    bed.serverCounts.get("http"),
    bed.agentCounts.get("endpoints"),
    ...bed.agents.map(({ mux }) => mux.connections),
  ];
  while (gauges().some((value) => value !== 0) && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.deepEqual(
    gauges().filter((value) => value !== 0),
    [],
  );
  assert.deepEqual(bed.bugs, []);
}

claim("the answer comes first, also when the endpoint speaks first; pipelined bytes arrive in order", async (open) => {
  await using bed = await Bed.open();
  await bed.agent();
  const got: Buffer[] = [];
  const port = await bed.endpoint((socket) => {
    socket.write("220 hello\r\n");
    socket.on("data", (chunk) => got.push(chunk));
    socket.on("end", () => socket.end("bye"));
  });
  const { socket, reader } = await open(bed, `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nfirst `);
  await reader.until(({ bytes }) => bytes.length >= ESTABLISHED.length + 11);
  assert.equal(reader.bytes.toString(), `${ESTABLISHED}220 hello\r\n`);
  socket.end("second");
  await reader.until(({ ended }) => ended);
  assert.equal(reader.bytes.toString().slice(ESTABLISHED.length), "220 hello\r\nbye");
  assert.equal(Buffer.concat(got).toString(), "first second");
  await idle(bed);
});

claim("bytes that follow a request stay as they came while the dial lasts and other clients send", async (open) => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  const got: Uint8Array[] = [];
  agent.onBytes = (piece) => void got.push(Buffer.from(piece));
  const dials = () => agent.packets.filter((packet) => packet.type === "DIAL_REQ");
  const first = await open(bed, "CONNECT 192.0.2.1:1 HTTP/1.1\r\n\r\nbytes of the first client");
  await agent.until(() => dials().length === 1);
  const second = await open(bed, `CONNECT 192.0.2.2:2 HTTP/1.1\r\n\r\n${"another client ".repeat(20)}`);
  await agent.until(() => dials().length === 2);
  const [{ random = 0 } = {}] = dials();
  agent.send({ type: "DIAL_RSP", error: "", connectID: 1, random });
  await agent.until(() => agent.received >= 25);
  assert.equal(Buffer.concat(got).toString(), "bytes of the first client");
  for (const { socket } of [first, second]) socket.destroy();
  agent.destroy();
  await idle(bed);
});

test("CONNECT: over a UNIX socket the answer is read alone, however late, when the endpoint speaks first", async (t) => {
  await using bed = await Bed.open();
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.end("220 hello\r\n"));
  const path = await bed.connectPath();
  const dialAndRead = async (at: number): Promise<string[]> => {
    const socket = connect({ path, allowHalfOpen: true });
    t.after(() => socket.destroy());
    socket.write(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`);
    // Some read long after the endpoint's bytes have reached the server.
    const isLate = at % 3 === 0;
    await once(socket, isLate ? "connect" : "readable");
    if (isLate) await new Promise((resolve) => setTimeout(resolve, 100));
    const reads: string[] = [];
    socket.on("data", (chunk: Buffer) => reads.push(chunk.toString()));
    await once(socket, "end");
    socket.end();
    return reads;
  };
  for (let round = 0; round < 10; round += 1) {
    const all = await Promise.all(Array.from({ length: 20 }, (_, at) => dialAndRead(at)));
    for (const reads of all) assert.deepEqual(reads, [ESTABLISHED, "220 hello\r\n"]);
  }
  await idle(bed);
});

for (const halfClose of [true, false]) {
  claim(
    `a client that ends its sending still gets the whole answer, ${halfClose ? "with half-close" : "with a peer without half-close"}`,
    async (open) => {
      await using bed = await Bed.open(halfClose ? {} : { agentCapabilities: new Set() });
      await bed.agent();
      const answer = randomBytes(3_000_000);
      const port = await bed.endpoint((socket) => {
        socket.once("data", () => socket.end(answer));
      });
      const { socket, reader } = await open(bed, `CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`);
      await reader.until(({ bytes }) => bytes.length >= ESTABLISHED.length);
      socket.end("request");
      await reader.until(({ ended }) => ended);
      const digest = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
      assert.equal(digest(reader.bytes.subarray(ESTABLISHED.length)), digest(answer));
      await idle(bed);
    },
  );
}

claim("a client that writes 8 MiB and closes loses nothing", async (open) => {
  await using bed = await Bed.open();
  await bed.agent();
  const sent = randomBytes(8 * 1024 * 1024);
  const got = createHash("sha256");
  const { promise, resolve } = Promise.withResolvers<void>();
  const port = await bed.endpoint((socket) => {
    socket.on("data", (chunk) => got.update(chunk));
    socket.on("end", () => {
      resolve();
      socket.end();
    });
  });
  const { socket, reader } = await open(bed, `CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`);
  await reader.until(({ bytes }) => bytes.length >= ESTABLISHED.length);
  socket.end(sent);
  await promise;
  assert.equal(got.digest("hex"), createHash("sha256").update(sent).digest("hex"));
  await idle(bed);
});

const REFUSED: readonly { readonly request: string; readonly says: RegExp }[] = [
  { request: "GET / HTTP/1.1\r\n\r\n", says: /^HTTP\/1\.1 405 .*this proxy only supports CONNECT passthrough$/s },
  { request: "CONNECT nohost HTTP/1.1\r\n\r\n", says: /^HTTP\/1\.1 400 / },
  { request: "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", says: /^HTTP\/1\.1 502 .*connection refused$/s },
  {
    request: "CONNECT no-such-host.invalid:80 HTTP/1.1\r\n\r\n",
    says: /^HTTP\/1\.1 502 .*(no such host|name resolution)/s,
  },
];

for (const { request, says } of REFUSED) {
  claim(`${request.split("\r\n", 1)} is refused with the right status`, async (open) => {
    await using bed = await Bed.open();
    await bed.agent();
    const { reader } = await open(bed, request);
    await reader.until(({ ended }) => ended);
    assert.match(reader.bytes.toString(), says);
    assert.match(reader.bytes.toString(), /\r\nConnection: close\r\n/);
    await idle(bed);
  });
}

for (const early of ["", "CONNECT 127.0.0.1:1 HTTP/1.1\r\n"]) {
  claim(`a client that ends its sending after ${early.length} bytes of its request is closed at once`, async (open) => {
    await using bed = await Bed.open();
    const { socket, reader } = await open(bed, early);
    socket.end();
    await reader.until(({ closed }) => closed);
    assert.equal(reader.bytes.length, 0);
    await idle(bed);
  });
}

claim("a client that sends on after its request was refused reads the whole reply", async (open) => {
  await using bed = await Bed.open();
  await bed.agent();
  const { socket, reader } = await open(bed, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n");
  // More than is held of a client before its connection is open.
  socket.write(Buffer.alloc(1 << 20));
  await reader.until(({ ended }) => ended);
  assert.match(reader.bytes.toString(), /^HTTP\/1\.1 502 .*connection refused$/s);
  socket.end();
  await idle(bed);
});

claim("without an agent 503, and one that vanishes while dialling 502", async (open) => {
  await using bed = await Bed.open();
  const none = await open(bed, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n");
  await none.reader.until(({ ended }) => ended);
  assert.match(none.reader.bytes.toString(), /^HTTP\/1\.1 503 .*\r\ncurrently no tunnels available: /s);
  await bed.agent();
  bed.proxy.backends.all[0]?.mux.destroy({ code: 14, message: "the test ends it" });
  const gone = await open(bed, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n");
  await gone.reader.until(({ ended }) => ended);
  assert.match(gone.reader.bytes.toString(), /^HTTP\/1\.1 50[23] /);
});

claim("an endpoint that resets, and a client that resets, end the other side and leave nothing", async (open) => {
  await using bed = await Bed.open();
  await bed.agent();
  const sockets: Socket[] = [];
  const port = await bed.endpoint((socket) => {
    sockets.push(socket);
    socket.on("data", () => socket.resetAndDestroy());
  });
  const one = await open(bed, `CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\nreset me`);
  // A UNIX socket has no reset.
  await one.reader.until(({ ended, closed }) => ended || closed);
  const quiet = await bed.endpoint((socket) => {
    sockets.push(socket);
    socket.resume();
    socket.on("end", () => socket.end());
  });
  const two = await open(bed, `CONNECT 127.0.0.1:${quiet} HTTP/1.1\r\n\r\n`);
  await two.reader.until(({ bytes }) => bytes.length >= ESTABLISHED.length);
  resetSocket(two.socket);
  await idle(bed);
  await two.reader.until(() => sockets.every((socket) => socket.destroyed));
});

claim("the agent's end closes its clients and endpoints within a second", async (open) => {
  await using bed = await Bed.open();
  const agent = await bed.agent();
  const sockets: Socket[] = [];
  const port = await bed.endpoint((socket) => {
    sockets.push(socket);
    socket.resume();
  });
  const { reader } = await open(bed, `CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`);
  await reader.until(({ bytes }) => bytes.length >= ESTABLISHED.length);
  const before = performance.now();
  agent.mux.destroy({ code: 14, message: "the test ends it" });
  await reader.until(({ ended, closed }) => ended || closed);
  await idle(bed);
  assert.ok(performance.now() - before < 1000);
  assert.ok(sockets.every((socket) => socket.destroyed));
});
