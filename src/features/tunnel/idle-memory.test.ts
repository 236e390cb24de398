// own process: measures its heap
/** docs/spec/tunnel.md#8.8: what an idle connection holds of the heap. test/cluster/tunnel-idle.cluster.test.ts measures the programs. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { IpAddress } from "#base/ip";
import { connectUnix, TcpListener, type UnixStream } from "#kernel/reactor";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { UnixTransport } from "./http2/unix-transport.ts";
import { DEFAULT_SETTINGS } from "./http2/windows.ts";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

const CONNECTIONS = 500;
/** The heap that server, agent and client use together for one connection, in bytes; measured 3,400, some code among them. */
const MAX_BYTES = 4096;
/** The same of gRPC, with an HTTP/2 session and one of Node's sockets for the client too. */
const MAX_GRPC_BYTES = 24_000;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

interface Destroyable {
  destroy(): void;
}

/** An endpoint whose connections cost this process no memory. */
function endpoint(t: TestContext): number {
  const fd = listenTcp(IpAddress.parse("127.0.0.1"), 0);
  const { port } = localEndpoint(fd);
  const clients: number[] = [];
  const fail = (error: Error): never => assert.fail(error);
  const listener = new TcpListener(fd, { onClient: (client) => clients.push(client), onFault: fail, onError: fail });
  t.after(() => listener.close());
  return port;
}

/** Opens a connection; resolves with its client. */
function open(path: string, port: number): Promise<UnixStream> {
  const stream = connectUnix(path);
  const { promise, resolve } = Promise.withResolvers<void>();
  stream.once("data", (bytes) => {
    assert.match(Buffer.from(bytes).toString(), /^HTTP\/1\.1 200 /);
    resolve();
  });
  stream.write(Buffer.from(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`));
  stream.resume();
  return promise.then(() => stream);
}

async function heapBytes(): Promise<number> {
  // Work of the last connections that is still to be done.
  for (let turn = 0; turn < 5; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
  collect();
  collect();
  const { heapUsed, external, arrayBuffers } = process.memoryUsage();
  return heapUsed + external + arrayBuffers;
}

/** Returns the heap that one connection uses, in bytes: the difference that {@link CONNECTIONS} connections make after as many others have loaded the code. */
async function bytesOfOne(openOne: () => Promise<Destroyable>): Promise<number> {
  const clients: Destroyable[] = [];
  const openMany = async (): Promise<void> => {
    for (let at = 0; at < CONNECTIONS; at += 1) clients.push(await openOne());
  };
  await openMany();
  const before = await heapBytes();
  await openMany();
  const bytes = Math.round(((await heapBytes()) - before) / CONNECTIONS);
  for (const client of clients) client.destroy();
  return bytes;
}

test(`an idle CONNECT connection holds ${MAX_BYTES} bytes of the heap at most, server, agent and client together`, async (t) => {
  const bed = await Bed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  await bed.agent();
  const path = await bed.connectPath();
  const port = endpoint(t);
  const bytes = await bytesOfOne(() => open(path, port));
  t.diagnostic(`${bytes} bytes`);
  assert.ok(bytes <= MAX_BYTES, `${bytes} bytes`);
});

test(`an idle gRPC connection holds ${MAX_GRPC_BYTES} bytes of the heap at most, server, agent and client together`, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-idle-"));
  const bed = await Bed.open();
  t.after(async () => {
    await bed[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });
  await bed.agent();
  const path = join(folder, "socket");
  await bed.listenOn(path, (stream) => bed.proxy.serveGrpcFrontend(new UnixTransport(stream), DEFAULT_SETTINGS));
  const port = endpoint(t);
  const bytes = await bytesOfOne(async () => {
    const client = await TunnelClient.open(connect(path));
    assert.equal((await client.dial(`127.0.0.1:${port}`)).kind, "open");
    return client;
  });
  t.diagnostic(`${bytes} bytes`);
  assert.ok(bytes <= MAX_GRPC_BYTES, `${bytes} bytes`);
});
