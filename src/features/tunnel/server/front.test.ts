/** docs/spec/tunnel.md#13.2: balancers before the port for agents. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { type Logger, nullLogger } from "#base/log";
import { makeCertificates } from "#test/certificates";
import { freePort } from "#test/ports";
import { TUNNEL_METHODS } from "#wire/konnectivity";
import { encodeProxyHeader } from "#wire/proxy-protocol";
import { Bed } from "../testing/bed.ts";
import { TunnelClient } from "../testing/client.ts";
import type { NewcomerLimits } from "./front.ts";
import { listenForAgents, listenForFrontends } from "./listeners.ts";

const { ca, pairs } = makeCertificates("a", { server: ["127.0.0.1"], agent: [] });
const [BALANCER, STRANGER] = ["127.0.0.7", "127.0.0.8"] as const;
const isBalancer = (address: string): boolean => address === BALANCER;

/** A port for agents, or frontends, with limits; `hasTokens`: agents show themselves by an accepted stream, not by TLS. */
async function open(t: TestContext, limits: NewcomerLimits, { hasTokens = false, forFrontends = false } = {}) {
  const bed = await Bed.open();
  const folder = mkdtempSync(join(tmpdir(), "isthmus-front-"));
  const write = (name: string, content: string): string => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const paths = { cert: write("server.crt", pairs.server.cert), key: write("server.key", pairs.server.key) };
  const clock = new FakeClock();
  const warnings: unknown[] = [];
  const log: Logger = { ...nullLogger, warn: (_message, fields) => warnings.push(fields?.["reason"]) };
  const port = await freePort();
  const deps = { proxy: bed.proxy, log, clock, onBug: (error: unknown) => bed.bugs.push(error) };
  const tls = { ...paths, clientCa: hasTokens ? undefined : write("ca.crt", ca) };
  const place = { address: { host: "127.0.0.1", port }, tls };
  const options = { cipherSuites: [], tlsMinVersion: "", newcomers: limits };
  const listener = forFrontends
    ? await listenForFrontends(deps, { kind: "tcp", ...place }, { mode: "http-connect", ...options })
    : await listenForAgents(deps, place, options);
  const sockets = new Set<Socket>();
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    await listener[Symbol.asyncDispose]();
    await bed[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
    assert.deepEqual(bed.bugs, []);
  });
  /** A connection from an address, which begins with these bytes. */
  const dial = async (localAddress: string, first: Uint8Array = Buffer.alloc(0)): Promise<Socket> => {
    const socket = connect({ host: "127.0.0.1", port, localAddress, noDelay: true });
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    // It may be reset at once.
    await new Promise<void>((resolve) => socket.once("connect", () => resolve()).once("close", () => resolve()));
    if (first.length > 0 && !socket.destroyed) socket.write(first);
    return socket;
  };
  return { dial, clock, warnings, listener };
}

const headerOf = (client: string): Uint8Array =>
  encodeProxyHeader({
    source: { address: IpAddress.parse(client), port: 4000 },
    destination: { address: IpAddress.parse("203.0.113.1"), port: 8091 },
  });

/** TLS on a connection; `undefined` if the server refuses it. */
async function handshake(socket: Socket, protocol = "h2"): Promise<TLSSocket | undefined> {
  const tls = connectTls({
    socket,
    host: "127.0.0.1",
    ca,
    ...pairs.agent,
    ALPNProtocols: [protocol],
    maxVersion: "TLSv1.2",
  });
  const failed = new Promise<undefined>((resolve) => {
    tls.once("error", () => resolve(undefined));
    tls.once("close", () => resolve(undefined));
  });
  return Promise.race([once(tls, "secureConnect").then(() => tls), failed]);
}

async function agentOn(socket: Socket, agentid: string): Promise<TunnelClient> {
  const tls = (await handshake(socket)) ?? assert.fail("refused");
  return TunnelClient.open(tls, { path: TUNNEL_METHODS.connect, metadata: { agentid } });
}

const ended = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.resume().once("close", () => resolve());
  });

test("listenForAgents: clients behind a balancer have the places of the listener, not those of one address", async (t) => {
  const { dial } = await open(t, { max: 6, isBalancer });
  const behind: Socket[] = [];
  for (let at = 0; at < 5; at += 1) behind.push(await dial(BALANCER));
  await agentOn(await dial(BALANCER), "one");
  assert.deepEqual(behind.filter(({ closed }) => closed).length, 0);
});

test("listenForAgents: the client that a balancer's PROXY header names has its own share, and no agent behind the same balancer is kept out", async (t) => {
  const { dial, warnings } = await open(t, { max: 8, isBalancer, readsProxyHeaders: true });
  const flood: Socket[] = [];
  for (let at = 0; at < 7; at += 1) flood.push(await dial(BALANCER, headerOf("198.51.100.1")));
  await Promise.all(flood.slice(4).map(ended));
  assert.equal(flood.filter(({ closed }) => closed).length, 3, "half of the places are its own");
  const cut = await dial(BALANCER);
  for (const byte of headerOf("198.51.100.2")) await new Promise((resolve) => cut.write(Buffer.of(byte), resolve));
  const agents = [
    await agentOn(cut, "one"),
    await agentOn(await dial(BALANCER, Buffer.from("PROXY TCP6 2001:db8::1 ::1 1 2\r\n")), "two"),
    await agentOn(await dial(BALANCER, Buffer.from("0d0a0d0a000d0a515549540a20000000", "hex")), "three"),
    await agentOn(await dial(STRANGER), "four"),
  ];
  assert.deepEqual(
    agents.map(({ isEnded }) => isEnded),
    [false, false, false, false],
  );
  assert.deepEqual(warnings, []);
});

test("listenForAgents: of a balancer a PROXY header is needed within 5 s, and of anybody else it is a fault of TLS", async (t) => {
  const { dial, clock, warnings } = await open(t, { max: 8, isBalancer, readsProxyHeaders: true });
  assert.equal(await handshake(await dial(STRANGER, headerOf("198.51.100.1"))), undefined);
  assert.equal(await handshake(await dial(BALANCER)), undefined);
  assert.deepEqual(warnings, ["the first bytes are no PROXY header"]);
  const mute = await dial(BALANCER, Buffer.from("PROXY "));
  // It has been accepted when one that came after it is served.
  await agentOn(await dial(STRANGER), "one");
  await clock.advance(5000);
  await ended(mute);
  assert.deepEqual(warnings.slice(1), ["none came within 5 s"]);
});

test("listenForAgents: with tokens an agent behind a balancer gives its place back when its stream is accepted", async (t) => {
  const limits = { max: 2, isBalancer, readsProxyHeaders: true };
  const { dial, listener } = await open(t, limits, { hasTokens: true });
  for (const name of ["one", "two", "three"]) await agentOn(await dial(BALANCER, headerOf("198.51.100.1")), name);
  assert.ok(listener.bytes.received > 0);
});

test("listenForFrontends: behind a balancer a PROXY header comes first too", async (t) => {
  const limits = { max: 4, isBalancer, readsProxyHeaders: true };
  const { dial } = await open(t, limits, { forFrontends: true });
  const tls = (await handshake(await dial(BALANCER, headerOf("198.51.100.1")), "http/1.1")) ?? assert.fail("refused");
  tls.end("CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
  const [answer] = await once(tls, "data");
  assert.match(String(answer), /^HTTP\/1\.1 503 /);
  assert.equal(await handshake(await dial(BALANCER), "http/1.1"), undefined);
});
