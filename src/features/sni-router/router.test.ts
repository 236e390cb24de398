import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { silentPort } from "#test/silent-port";
import { encodeProxyHeader } from "#wire/proxy-protocol";
import { encodeFatalAlert } from "#wire/tls-hello";
import {
  deadPort,
  dial,
  helloFor,
  readBytes,
  routeTo,
  startBackend,
  startRouter,
  tableOf,
  until,
} from "./testing/bed.ts";

/** All bytes of a socket until its end or loss. */
async function readAll(socket: Socket): Promise<Buffer> {
  return readBytes(socket, Number.POSITIVE_INFINITY);
}

test("SniRouter: the peeked bytes come first and unchanged, then all others, both ways", async (t) => {
  const backend = await startBackend(t);
  const { port, observer } = await startRouter(t, tableOf(routeTo("*.example", [backend.port])));
  const client = dial(t, port);
  const hello = helloFor("A.Example");
  client.write(hello);
  const socket = await backend.accepted();
  assert.deepEqual(await readBytes(socket, hello.length), hello);
  client.write("more");
  assert.equal(String(await readBytes(socket, 4)), "more");
  socket.write("answer");
  assert.equal(String(await readBytes(client, 6)), "answer");
  assert.deepEqual(observer.decisions, ["*.example:routed"]);
  assert.deepEqual(observer.bytes, { to_backend: hello.length + 4, to_client: 6 });
});

test("SniRouter: bytes after the hello, even many, are passed on in order", async (t) => {
  const backend = await startBackend(t);
  const { port } = await startRouter(t, tableOf(routeTo("a", [backend.port])));
  const sent = Buffer.concat([helloFor("a"), randomBytes(1_000_000)]);
  const client = dial(t, port);
  client.end(sent);
  const socket = await backend.accepted();
  assert.ok(sent.equals(await readAll(socket)));
});

test("SniRouter: a hello may come byte by byte", async (t) => {
  const backend = await startBackend(t);
  const { port } = await startRouter(t, tableOf(routeTo("a", [backend.port])));
  const client = dial(t, port);
  const hello = helloFor("a");
  for (const byte of hello) await new Promise((resolve) => client.write(Buffer.of(byte), resolve));
  assert.deepEqual(await readBytes(await backend.accepted(), hello.length), hello);
});

test("SniRouter: a client that sends no hello for 5 s is closed", async (t) => {
  const clock = new FakeClock();
  const backend = await startBackend(t);
  const { router, port, observer } = await startRouter(t, tableOf(routeTo("a", [backend.port])), { clock });
  const client = dial(t, port);
  client.write(helloFor("a").subarray(0, -1));
  await until(() => router.connections === 1);
  await clock.advance(4999);
  assert.deepEqual(observer.decisions, []);
  await clock.advance(1);
  assert.equal((await readAll(client)).length, 0);
  assert.deepEqual(observer.decisions, [":timeout"]);
  await until(() => observer.clients === 0);
});

test("SniRouter: a client without a route gets a TLS alert and is closed; with a default it is routed there", async (t) => {
  const backend = await startBackend(t);
  const { router, port, observer } = await startRouter(t, tableOf(routeTo("a", [backend.port])));
  for (const name of ["b", undefined]) {
    const client = dial(t, port);
    client.write(helloFor(name));
    assert.deepEqual(await readAll(client), Buffer.from(encodeFatalAlert("unrecognized_name")));
  }
  assert.deepEqual(observer.decisions, [":unknown_name", ":no_name"]);
  router.setRoutes(tableOf(routeTo("a", [1]), routeTo("default", [backend.port])));
  for (const name of ["b", undefined]) {
    dial(t, port).write(helloFor(name));
    const socket = await backend.accepted();
    assert.deepEqual(await readBytes(socket, helloFor(name).length), helloFor(name));
  }
  assert.deepEqual(observer.decisions.slice(2), ["default:routed", "default:routed"]);
});

test("SniRouter: a client that sends no TLS, sends too much, or leaves early reaches no backend, not even the default", async (t) => {
  const backend = await startBackend(t);
  const { port, observer } = await startRouter(t, tableOf(routeTo("default", [backend.port])));
  const openings: readonly (readonly [Uint8Array, string])[] = [
    [Buffer.from("GET / HTTP/1.1\r\n\r\n"), ":not_tls"],
    [Buffer.of(22, 3, 1, 0x40, 0, 1, 0, 0x40, 0), ":too_large"],
    [helloFor("a").subarray(0, 20), ":gone"],
    [Buffer.alloc(0), ":gone"],
  ];
  for (const [at, [opening, result]] of openings.entries()) {
    const client = dial(t, port);
    client.end(opening);
    assert.equal((await readAll(client)).length, 0);
    await until(() => observer.decisions.length === at + 1);
    assert.equal(observer.decisions[at], result);
  }
  await until(() => observer.clients === 0);
  assert.deepEqual(observer.bytes, { to_backend: 0, to_client: 0 });
});

test("SniRouter: backends are used in round robin; one that refuses is skipped, and tried last from then on", async (t) => {
  const [dead, one, two] = [await deadPort(t), await startBackend(t), await startBackend(t)];
  const { port, observer } = await startRouter(t, tableOf(routeTo("a", [dead, one.port, two.port])));
  for (let round = 1; round <= 6; round += 1) {
    dial(t, port).write(helloFor("a"));
    await until(() => one.taken() + two.taken() === round);
  }
  // The next backend replaces it.
  assert.deepEqual([one.taken(), two.taken()], [4, 2]);
  assert.deepEqual(observer.failures, [`127.0.0.1:${dead}`]);
});

test("SniRouter: if no backend can be reached the client gets a TLS alert and is closed", async (t) => {
  const ports = [await deadPort(t), await deadPort(t)];
  const { port, observer } = await startRouter(t, tableOf(routeTo("a", ports)));
  const client = dial(t, port);
  client.write(helloFor("a"));
  assert.deepEqual(await readAll(client), Buffer.from(encodeFatalAlert("internal_error")));
  assert.deepEqual(observer.decisions, ["a:no_backend"]);
  assert.equal(observer.failures.length, 2);
});

test("SniRouter: a client that leaves while its backend is dialled ends the dial", async (t) => {
  const { router, port, observer } = await startRouter(t, tableOf(routeTo("a", [await silentPort(t)])));
  const client = dial(t, port);
  client.write(helloFor("a"));
  await until(() => router.connections === 1);
  client.resetAndDestroy();
  await until(() => observer.clients === 0);
  assert.match(observer.decisions.join(), /^a?:gone$/);
});

test("SniRouter: a half-closed client gets the answer, and a half-closed backend the rest of the request", async (t) => {
  const backend = await startBackend(t);
  const { port, observer } = await startRouter(t, tableOf(routeTo("a", [backend.port])));
  const asking = dial(t, port);
  // Its FIN follows the hello at once, perhaps before the backend is dialled.
  asking.end(helloFor("a"));
  const answering = await backend.accepted();
  assert.deepEqual(await readAll(answering), helloFor("a"));
  answering.end("late answer");
  assert.equal(String(await readAll(asking)), "late answer");

  const talking = dial(t, port);
  talking.write(helloFor("a"));
  const listening = await backend.accepted();
  listening.end("done");
  assert.equal(String(await readAll(talking)), "done");
  talking.end("but I am not");
  assert.equal(String(await readAll(listening)), `${helloFor("a")}but I am not`);
  await until(() => observer.clients === 0);
});

test("SniRouter: a reset of one side resets the other", async (t) => {
  const backend = await startBackend(t);
  const { port, observer } = await startRouter(t, tableOf(routeTo("a", [backend.port])));
  for (const who of ["client", "backend"] as const) {
    const client = dial(t, port);
    client.write(helloFor("a"));
    const socket = await backend.accepted();
    await readBytes(socket, helloFor("a").length);
    const [lost, other] = who === "client" ? [client, socket] : [socket, client];
    const failed = once(other, "error");
    other.resume();
    lost.resetAndDestroy();
    const [error] = await failed;
    assert.equal((error as NodeJS.ErrnoException).code, "ECONNRESET");
  }
  await until(() => observer.clients === 0);
});

test("SniRouter: the PROXY header comes before the hello, with the client's own addresses", async (t) => {
  const backend = await startBackend(t);
  const { port } = await startRouter(t, tableOf(routeTo("a", [backend.port], true)));
  const client = dial(t, port);
  client.write(helloFor("a"));
  const socket = await backend.accepted();
  const address = IpAddress.parse("127.0.0.1");
  const source = { address, port: client.localPort ?? 0 };
  const expected = Buffer.concat([encodeProxyHeader({ source, destination: { address, port } }), helloFor("a")]);
  assert.deepEqual(await readBytes(socket, expected.length), expected);
});

test("SniRouter: new routes are for new clients; connected ones stay with their backends", async (t) => {
  const [before, after] = [await startBackend(t), await startBackend(t)];
  const { router, port } = await startRouter(t, tableOf(routeTo("a", [before.port])));
  const first = dial(t, port);
  first.write(helloFor("a"));
  const socket = await before.accepted();
  router.setRoutes(tableOf(routeTo("a", [after.port])));
  const second = dial(t, port);
  second.write(helloFor("a"));
  await after.accepted();
  first.write("still");
  assert.equal(String(await readBytes(socket, helloFor("a").length + 5)).slice(-5), "still");
});

test("SniRouter: when full, the client longest without a hello is closed; if all have sent theirs, the new one is refused", async (t) => {
  const backend = await startBackend(t);
  const { router, port, observer } = await startRouter(t, tableOf(routeTo("a", [backend.port])), { maxConnections: 2 });
  const [mute, later] = [dial(t, port), dial(t, port)];
  await until(() => router.connections === 2);
  const speaking = dial(t, port);
  speaking.write(helloFor("a"));
  await backend.accepted();
  await until(() => observer.decisions.length === 2);
  assert.deepEqual(observer.decisions.toSorted(), [":overload", "a:routed"]);
  const left = await Promise.race([readAll(mute).then(() => mute), readAll(later).then(() => later)]);
  const remaining = left === mute ? later : mute;
  remaining.write(helloFor("a"));
  await backend.accepted();
  const refused = dial(t, port);
  assert.equal((await readAll(refused)).length, 0);
  assert.equal(router.connections, 2);
  assert.equal(observer.decisions.filter((text) => text === ":overload").length, 2);
});

test("SniRouter: when an address has more than half of all places by hellos, its oldest client goes for another address, and none for its own", async (t) => {
  const backend = await startBackend(t);
  const { router, port, observer } = await startRouter(t, tableOf(routeTo("a", [backend.port])), { maxConnections: 5 });
  const routed = async (address: string): Promise<Socket> => {
    const client = dial(t, port, address);
    client.write(helloFor("a"));
    await backend.accepted();
    return client.resume();
  };
  const strangers: Socket[] = [];
  const isOver = ({ closed, readableEnded }: Socket): boolean => closed || readableEnded;
  for (let at = 0; at < 5; at += 1) strangers.push(await routed("127.0.0.2"));
  await until(() => router.connections === 5);
  // Their own next one is refused.
  assert.equal((await readAll(dial(t, port, "127.0.0.2"))).length, 0);
  await routed("127.0.0.3");
  await routed("127.0.0.4");
  await until(() => strangers.filter(isOver).length === 2);
  assert.deepEqual(strangers.map(isOver), [true, true, false, false, false]);
  // They have more than half no more: with one less nobody has to go.
  await routed("127.0.0.5");
  await until(() => strangers.filter(isOver).length === 3);
  assert.equal((await readAll(dial(t, port, "127.0.0.6"))).length, 0);
  assert.equal(router.connections, 5);
  assert.equal(observer.decisions.filter((text) => text === ":overload").length, 2);
});

test("SniRouter: of the places of clients without a hello one address has half, however many it opens, and another is served", async (t) => {
  const backend = await startBackend(t);
  const { router, port, observer } = await startRouter(t, tableOf(routeTo("a", [backend.port])), {
    maxConnections: 100,
  });
  for (let at = 1; at <= 40; at += 1) {
    dial(t, port);
    await until(() => router.connections + observer.decisions.length === at);
  }
  // Of 25.
  assert.equal(router.connections, 12);
  assert.ok(observer.decisions.every((text) => text === ":overload"));
  dial(t, port, "127.0.0.9").write(helloFor("a"));
  await backend.accepted();
});

const BALANCER = "127.0.0.7";
const isBalancer = (address: string): boolean => address.endsWith(BALANCER);
const headerOf = (client: string): Buffer => Buffer.from(`PROXY TCP4 ${client} 203.0.113.1 4000 443\r\n`);

test("SniRouter: clients behind a balancer have the places of the listener", async (t) => {
  const backend = await startBackend(t);
  const table = tableOf(routeTo("a", [backend.port]));
  const { router, port, observer } = await startRouter(t, table, { maxNewcomers: 8, isBalancer });
  for (let at = 0; at < 12; at += 1) {
    dial(t, port, BALANCER);
    await until(() => router.connections + observer.decisions.length === at + 1);
  }
  assert.equal(router.connections, 8);
});

test("SniRouter: a balancer's PROXY header, in any cut, is not for the backend, gets the address that it names, and places of that address", async (t) => {
  const backend = await startBackend(t);
  const table = tableOf(routeTo("a", [backend.port], true));
  const options = { maxNewcomers: 8, isBalancer, readsProxyHeaders: true };
  const { router, port, observer } = await startRouter(t, table, options);
  for (let at = 0; at < 6; at += 1) {
    dial(t, port, BALANCER).write(headerOf("198.51.100.1"));
    await until(() => router.connections + observer.decisions.length === at + 1);
  }
  await until(() => observer.decisions.length === 2);
  assert.deepEqual(observer.decisions, [":overload", ":overload"]);
  assert.equal(router.connections, 4, "half of the places");
  const client = dial(t, port, BALANCER);
  for (const byte of headerOf("198.51.100.2")) await new Promise((resolve) => client.write(Buffer.of(byte), resolve));
  client.write(helloFor("a"));
  const [source, destination] = [
    { address: IpAddress.parse("198.51.100.2"), port: 4000 },
    { address: IpAddress.parse("203.0.113.1"), port: 443 },
  ];
  const expected = Buffer.concat([encodeProxyHeader({ source, destination }), helloFor("a")]);
  assert.deepEqual(await readBytes(await backend.accepted(), expected.length), expected);
});

test("SniRouter: a balancer that sends no PROXY header is refused, and so is a header of anybody else", async (t) => {
  const backend = await startBackend(t);
  const table = tableOf(routeTo("a", [backend.port]));
  const clock = new FakeClock();
  const { router, port, observer } = await startRouter(t, table, { isBalancer, readsProxyHeaders: true, clock });
  const bare = dial(t, port, BALANCER);
  bare.write(helloFor("a"));
  assert.equal((await readAll(bare)).length, 0);
  const stranger = dial(t, port);
  stranger.write(Buffer.concat([headerOf("198.51.100.1"), helloFor("a")]));
  await readAll(stranger);
  const mute = dial(t, port, BALANCER);
  mute.write("PROXY TCP4 ");
  await until(() => router.connections === 1);
  await clock.advance(5000);
  await readAll(mute);
  assert.deepEqual(observer.decisions, [":no_header", ":not_tls", ":timeout"]);
  assert.equal(backend.taken(), 0);
});

test("SniRouter: a balancer that speaks for itself (LOCAL) is served", async (t) => {
  const backend = await startBackend(t);
  const table = tableOf(routeTo("a", [backend.port]));
  const { port } = await startRouter(t, table, { isBalancer, readsProxyHeaders: true });
  const local = Buffer.from("0d0a0d0a000d0a515549540a20000000", "hex");
  dial(t, port, BALANCER).write(Buffer.concat([local, helloFor("a")]));
  assert.deepEqual(await readBytes(await backend.accepted(), helloFor("a").length), helloFor("a"));
});

test("SniRouter: draining refuses new clients, waits for the others, and resets them at the end", async (t) => {
  const clock = new FakeClock();
  const backend = await startBackend(t);
  const { router, port } = await startRouter(t, tableOf(routeTo("a", [backend.port])), { clock });
  const [leaving, staying] = [dial(t, port), dial(t, port)];
  const sockets: Socket[] = [];
  for (const client of [leaving, staying]) {
    client.write(helloFor("a"));
    sockets.push(await backend.accepted());
  }
  const drained = router.drain({ timeoutMs: 10_000 });
  const late = dial(t, port);
  const [error] = await once(late, "error");
  assert.equal((error as NodeJS.ErrnoException).code, "ECONNREFUSED");
  sockets[0]?.end("bye");
  leaving.end();
  assert.equal(String(await readAll(leaving)), "bye");
  await until(() => router.connections === 1);
  // No FIN: the client could take it for the end of an answer.
  sockets[1]?.write("half of it");
  await once(staying, "data");
  const reset = once(staying, "error");
  await clock.advance(10_000);
  assert.equal(await drained, 1);
  assert.equal(((await reset)[0] as NodeJS.ErrnoException).code, "ECONNRESET");
  assert.equal(router.connections, 0);
});

test("SniRouter: the error names an address that is in use", async (t) => {
  const { router, port } = await startRouter(t, tableOf(routeTo("a", [1])));
  await assert.rejects(router.listen({ host: "127.0.0.1", port }), {
    code: "cannot-listen",
    message: new RegExp(`^cannot listen on 127.0.0.1:${port}: .*EADDRINUSE`),
  });
});
