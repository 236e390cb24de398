import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { until } from "#test/lab";
import { onBug } from "../testing/probe.ts";
import { ProbeHttp } from "./index.ts";

const REQUEST = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

test("ProbeHttp: clients that close half, send half, or never read to the end are closed after the timeout", async () => {
  const ways: Readonly<Record<string, (socket: Socket) => void>> = {
    "nothing at all": () => undefined,
    "its end at once": (socket) => socket.end(),
    "half a head": (socket) => socket.write("GET / HT"),
    "half a head and its end": (socket) => socket.end("GET / HT"),
    "a request and its end": (socket) => socket.end(REQUEST),
    "a body that never comes": (socket) => socket.write("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc"),
  };
  await using http = new ProbeHttp(
    () => ({ body: "ok" }),
    { log: nullLogger, clock: systemClock, onBug },
    { headersTimeoutMs: 200 },
  );
  const { port } = http.listen(IpAddress.parse("127.0.0.1"), 0);
  const sockets: Socket[] = [];
  for (const send of Object.values(ways)) {
    // It stays open on its side, whatever the server does.
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.on("error", () => undefined).resume();
    sockets.push(socket);
    await once(socket, "connect");
    send(socket);
  }
  await until("all are let go of", () => http.connections === 0, { deadlineMs: 5000 });
  for (const socket of sockets) socket.destroy();
  assert.equal(http.connections, 0);
});
