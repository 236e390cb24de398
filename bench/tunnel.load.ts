/** The load of bench/tunnel.ts: connections opened through a side, and the endpoints that they reach. */
import { connect, createServer, type Server, type Socket } from "node:net";

/** The request for a connection to `port` of loopback through a side. */
export type Handshake = "connect" | "plain";

const CHUNK = Buffer.alloc(64 * 1024, 0x5a);

/** Endpoints: `echo` returns the received bytes; `source` reads a number and sends this number of bytes; `sink` counts until the end. */
export async function serveEndpoints(): Promise<{
  readonly echo: number;
  readonly source: number;
  readonly sink: number;
}> {
  const listen = (onSocket: (socket: Socket) => void): Promise<number> => {
    const server: Server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      socket.on("error", () => socket.destroy());
      onSocket(socket);
    });
    return new Promise((resolve) => {
      server.listen(0, "127.0.0.1", 1024, () => {
        const address = server.address();
        resolve(typeof address === "object" ? (address?.port ?? 0) : 0);
      });
    });
  };
  return {
    echo: await listen((socket) => {
      socket.on("data", (chunk) => socket.write(chunk));
      socket.on("end", () => socket.end());
    }),
    source: await listen((socket) => {
      socket.once("data", (wanted: Buffer) => {
        let left = Number(wanted.toString());
        const more = (): void => {
          while (left > 0 && !socket.destroyed) {
            const part = left >= CHUNK.length ? CHUNK : CHUNK.subarray(0, left);
            left -= part.length;
            if (!socket.write(part)) return;
          }
          if (left === 0) socket.end();
        };
        socket.on("drain", more);
        socket.resume();
        more();
      });
    }),
    sink: await listen((socket) => {
      let bytes = 0;
      socket.on("data", (chunk) => {
        bytes += chunk.length;
      });
      socket.on("end", () => socket.end(String(bytes)));
    }),
  };
}

/** Opens a connection through a side. */
export async function open(uds: string, port: number, handshake: Handshake): Promise<Socket> {
  const socket = connect({ path: uds, allowHalfOpen: true });
  const answer = handshake === "connect" ? "\r\n\r\n" : "\n";
  socket.write(handshake === "connect" ? `CONNECT 127.0.0.1:${port} HTTP/1.1\r\nHost: x\r\n\r\n` : `${port}\n`);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let head = "";
  const onData = (chunk: Buffer): void => {
    head += chunk.toString("latin1");
    if (!head.endsWith(answer)) return;
    if (handshake === "connect" && !head.startsWith("HTTP/1.1 200 ")) reject(new Error(head));
    resolve();
  };
  socket.on("data", onData);
  socket.once("error", reject);
  socket.once("close", () => reject(new Error("closed before it was open")));
  await promise;
  socket.off("data", onData);
  socket.off("error", reject);
  socket.on("error", () => socket.destroy());
  socket.pause();
  return socket;
}

/** Ends a socket and waits until it is closed. */
export async function finish(socket: Socket): Promise<void> {
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.resume();
  socket.end();
  socket.once("end", () => socket.destroySoon());
  await closed;
}

/** Reads `bytes` from the source over each of `flows` connections; returns MiB a second over all. */
export async function download(
  uds: string,
  source: number,
  handshake: Handshake,
  flows: number,
  bytes: number,
): Promise<number> {
  const sockets = await Promise.all(Array.from({ length: flows }, () => open(uds, source, handshake)));
  const started = performance.now();
  await Promise.all(
    sockets.map(async (socket) => {
      let got = 0;
      socket.on("data", (chunk) => {
        got += chunk.length;
      });
      const ended = new Promise<void>((resolve) => socket.once("end", () => resolve()));
      socket.resume();
      socket.write(String(bytes));
      await ended;
      if (got !== bytes) throw new Error(`${got} of ${bytes} bytes came`);
      socket.end();
    }),
  );
  return (flows * bytes) / 2 ** 20 / ((performance.now() - started) / 1000);
}

/** Sends `bytes` to the sink and waits for its count; returns MiB a second. */
export async function upload(uds: string, sink: number, handshake: Handshake, bytes: number): Promise<number> {
  const socket = await open(uds, sink, handshake);
  const started = performance.now();
  let answer = "";
  socket.on("data", (chunk: Buffer) => {
    answer += chunk.toString();
  });
  const ended = new Promise<void>((resolve) => socket.once("end", () => resolve()));
  socket.resume();
  for (let left = bytes; left > 0; ) {
    const part = left >= CHUNK.length ? CHUNK : CHUNK.subarray(0, left);
    left -= part.length;
    if (!socket.write(part)) await new Promise<void>((resolve) => socket.once("drain", () => resolve()));
  }
  socket.end();
  await ended;
  const seconds = (performance.now() - started) / 1000;
  // A peer without half-close ends before it has counted.
  if (answer !== "" && Number(answer) !== bytes) throw new Error(`${answer} of ${bytes} bytes arrived`);
  return bytes / 2 ** 20 / seconds;
}

/** Opens, echoes 64 bytes and closes, `concurrency` at a time; returns the number a second. */
export async function dials(
  uds: string,
  echo: number,
  handshake: Handshake,
  concurrency: number,
  ms: number,
): Promise<number> {
  const started = performance.now();
  let done = 0;
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      while (performance.now() - started < ms) {
        const socket = await open(uds, echo, handshake);
        await echoOnce(socket);
        await finish(socket);
        done += 1;
      }
    }),
  );
  return done / ((performance.now() - started) / 1000);
}

/** Round trips of 64 bytes over one connection for `ms`, with `bulk` endless downloads beside it; microseconds. */
export async function latency(
  uds: string,
  ports: { readonly echo: number; readonly source: number },
  handshake: Handshake,
  bulk: number,
  ms: number,
): Promise<{ readonly p50: number; readonly p99: number }> {
  const flows = await Promise.all(Array.from({ length: bulk }, () => open(uds, ports.source, handshake)));
  for (const flow of flows) {
    flow.resume();
    flow.write(String(2 ** 50));
  }
  const socket = await open(uds, ports.echo, handshake);
  const times: number[] = [];
  const started = performance.now();
  while (performance.now() - started < ms) {
    const before = performance.now();
    await echoOnce(socket);
    times.push((performance.now() - before) * 1000);
  }
  for (const flow of flows) flow.destroy();
  await finish(socket);
  times.sort((a, b) => a - b);
  const at = (share: number): number => times[Math.floor(times.length * share)] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99) };
}

/** Round trips of 64 bytes over one connection for `ms`, one at a time; returns their number. */
export async function echoes(uds: string, echo: number, handshake: Handshake, ms: number): Promise<number> {
  const socket = await open(uds, echo, handshake);
  let done = 0;
  for (const started = performance.now(); performance.now() - started < ms; done += 1) await echoOnce(socket);
  await finish(socket);
  return done;
}

const SMALL = Buffer.alloc(64, 1);

function echoOnce(socket: Socket): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let got = 0;
  const onClose = (): void => reject(new Error("closed before its echo came"));
  const onData = (chunk: Buffer): void => {
    got += chunk.length;
    if (got < SMALL.length) return;
    socket.off("data", onData);
    socket.off("close", onClose);
    resolve();
  };
  socket.on("data", onData);
  socket.once("close", onClose);
  socket.resume();
  socket.write(SMALL);
  return promise;
}
