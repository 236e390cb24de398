import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { credentials } from "@grpc/grpc-js";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { openFrontend } from "#test/grpc-frontend";
import { until } from "#test/lab";
import { connectThrough, roundTrip } from "#test/proxies";
import { Bed, endpoint } from "../testing/bed.ts";
import { listenForFrontends } from "./listeners.ts";

const PLACES = 3;

async function serve(t: TestContext, mode: "grpc" | "http-connect") {
  const bed = await Bed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  await bed.agent();
  const folder = mkdtempSync(join(tmpdir(), "isthmus-waiting-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "socket");
  const onBug = (error: unknown): void => assert.fail(String(error));
  const listener = await listenForFrontends(
    { proxy: bed.proxy, log: nullLogger, clock: systemClock, onBug },
    { kind: "uds", path, deleteExisting: false },
    { mode, cipherSuites: [], tlsMinVersion: "", newcomers: { max: PLACES } },
  );
  t.after(() => listener[Symbol.asyncDispose]());
  const { server, port } = await endpoint((socket) => socket.pipe(socket));
  t.after(() => server.close());
  const come = async (): Promise<Socket> => {
    const socket = connect(path);
    t.after(() => socket.destroy());
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return socket;
  };
  return { come, path, target: `127.0.0.1:${port}` };
}

/** Ten come and send nothing: the oldest go. */
async function comeSilent(come: () => Promise<Socket>): Promise<void> {
  const silent: Socket[] = [];
  for (let at = 0; at < 10; at += 1) silent.push((await come()).resume());
  await until("all but the last ones are ended", () => silent.filter(({ closed }) => closed).length === 10 - PLACES);
  assert.deepEqual(
    silent.slice(-PLACES).map(({ closed }) => closed),
    Array(PLACES).fill(false),
  );
}

test("frontends by a UNIX socket: clients of HTTP CONNECT without a request have few places, and those with one keep theirs", async (t) => {
  const { come, target } = await serve(t, "http-connect");
  const known = await come();
  assert.match(await connectThrough(known, target), /^HTTP\/1\.1 200 /);
  await comeSilent(come);
  assert.equal(await roundTrip(known, "hello"), "hello");
});

test("frontends by a UNIX socket: clients of gRPC without a call have few places, and those with one keep theirs", async (t) => {
  const { come, path, target } = await serve(t, "grpc");
  using known = openFrontend(`unix:${path}`, credentials.createInsecure());
  assert.equal(await known.dial(target, 7), "");
  await comeSilent(come);
  assert.equal(await known.roundTrip("hello"), "hello");
});
