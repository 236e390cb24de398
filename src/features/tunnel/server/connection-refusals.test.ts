/** docs/spec/tunnel.md#10: clients of the server's ports that are refused, and what each side says of it. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:http2";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from "node:tls";
import { FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { makeCertificates } from "#test/certificates";
import { freePort } from "#test/ports";
import { TUNNEL_METHODS } from "#wire/konnectivity";
import { connectServer } from "../agent/connect-server.ts";
import { Bed } from "../testing/bed.ts";
import { ConnectionRefusals } from "./connection-refusals.ts";
import { listenForAgents } from "./listeners.ts";

const { ca, pairs } = makeCertificates(
  "a",
  { server: ["127.0.0.1"], agent: [], expired: [] },
  { expired: { expired: true } },
);
const { pairs: strangers } = makeCertificates("b", { agent: [] });

/** A port for agents with certificates of the authority `a`. */
async function open(t: TestContext) {
  const bed = await Bed.open();
  const folder = mkdtempSync(join(tmpdir(), "isthmus-refused-"));
  const write = (name: string, content: string): string => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const caFile = write("ca.crt", ca);
  const pairOf = (name: string, pair: { readonly cert: string; readonly key: string }) => ({
    cert: write(`${name}.crt`, pair.cert),
    key: write(`${name}.key`, pair.key),
  });
  const port = await freePort();
  const deps = {
    proxy: bed.proxy,
    log: nullLogger,
    clock: systemClock,
    onBug: (error: unknown) => bed.bugs.push(error),
  };
  const listener = await listenForAgents(
    deps,
    { address: { host: "127.0.0.1", port }, tls: { ...pairOf("server", pairs.server), clientCa: caFile } },
    { cipherSuites: [], tlsMinVersion: "" },
  );
  t.after(async () => {
    await listener[Symbol.asyncDispose]();
    await bed[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
    assert.deepEqual(bed.bugs, []);
  });
  /** The agent's words when it connects with a certificate; `connected` if it is served. */
  const agentAs = async (name: string, pair?: { readonly cert: string; readonly key: string }): Promise<string> => {
    const { cert, key } = pair === undefined ? { cert: undefined, key: undefined } : pairOf(name, pair);
    const tls = { caFile, certFile: cert, keyFile: key, serverName: undefined, alpn: [] };
    const options = { agentID: name, identifiers: "", tokenFile: undefined, capabilities: new Set<never>() };
    const timing = { timeoutMs: 5000, keepAliveMs: 0, clock: systemClock };
    return await connectServer(
      { host: "127.0.0.1", port },
      { ...options, ...timing, tls },
      { signal: AbortSignal.timeout(5000) },
    ).then(
      (stream) => {
        stream.discard();
        return "connected";
      },
      (error: unknown) => String(error),
    );
  };
  return {
    bed,
    port,
    agentAs,
    refused: (reason: string) => bed.serverCounts.get(`connectionRefused agents ${reason}`),
  };
}

test("listenForAgents: an agent whose certificate is missing, expired or foreign is told so, and counted by reason", async (t) => {
  const { agentAs, refused } = await open(t);
  const told = "the peer has ended the connection with INADEQUATE_SECURITY: the client";
  assert.match(await agentAs("nobody"), new RegExp(`${told} has no certificate$`));
  assert.match(await agentAs("old", pairs.expired), new RegExp(`${told}'s certificate is refused: CERT_HAS_EXPIRED$`));
  assert.match(await agentAs("stranger", strangers.agent), new RegExp(`${told}'s certificate is refused: [A-Z_]+$`));
  assert.equal(await agentAs("agent", pairs.agent), "connected");
  const counts = ["certificate_missing", "certificate_expired", "certificate_untrusted", "tls", "http2"].map(refused);
  assert.deepEqual(counts, [1, 1, 1, 0, 0]);
});

test("listenForAgents: neither a resumed session nor an early request makes up for a certificate", async (t) => {
  const { port, refused, bed } = await open(t);
  const dial = async (more: ConnectionOptions): Promise<{ socket: TLSSocket; session: Buffer }> => {
    const socket = connectTls({ host: "127.0.0.1", port, ca, ALPNProtocols: ["h2"], ...more });
    socket.on("error", () => undefined);
    const [session] = (await once(socket, "session")) as [Buffer];
    return { socket, session };
  };
  for (const [at, pair] of [{}, strangers.agent, pairs.expired].entries()) {
    const first = await dial(pair);
    first.socket.destroy();
    const again = connectTls({ host: "127.0.0.1", port, ca, ALPNProtocols: ["h2"], ...pair, session: first.session });
    again.on("error", () => undefined);
    await once(again, "secureConnect");
    assert.ok(again.isSessionReused());
    const peer = connect(`https://127.0.0.1:${port}`, { createConnection: () => again });
    peer.on("error", () => undefined);
    const stream = peer.request({
      ":method": "POST",
      ":path": TUNNEL_METHODS.connect,
      "content-type": "application/grpc",
      agentid: `thief-${at}`,
    });
    stream.on("error", () => undefined);
    stream.on("response", () => assert.fail("served"));
    await new Promise((resolve) => peer.once("close", resolve));
  }
  assert.equal(refused("certificate_missing") + refused("certificate_untrusted") + refused("certificate_expired"), 6);
  assert.equal(bed.proxy.backends.all.length, 0);
});

test("serveGrpcFrontends: a client that speaks HTTP/1.1 is named with its bytes, and faults of HTTP/2 are counted", async () => {
  await using bed = await Bed.open();
  const lines: unknown[] = [];
  const note = bed.proxy.refusals.frontends.note.bind(bed.proxy.refusals.frontends);
  bed.proxy.refusals.frontends.note = (reason, about) => {
    lines.push(about.text);
    note(reason, about);
  };
  const socket = connectTcp(bed.frontendPort, "127.0.0.1");
  socket.write("CONNECT 10.0.0.1:10250 HTTP/1.1\r\n\r\n");
  await once(socket.resume(), "close");
  assert.deepEqual(lines, [
    `PROTOCOL_ERROR: the client sent "CONNECT 10.0.0.1:10250 H", an HTTP/1.1 request, in place of HTTP/2's preface`,
  ]);
  assert.equal(bed.serverCounts.get("connectionRefused frontends http2"), 1);
});

test("ConnectionRefusals: every refusal is counted, and a flood of them is a few lines", async () => {
  const clock = new FakeClock();
  const counted: string[] = [];
  const lines: string[] = [];
  const log = { ...nullLogger, warn: (line: string) => void lines.push(line) };
  const metrics = { connectionRefused: (listener: string, reason: string) => counted.push(`${listener} ${reason}`) };
  const refusals = new ConnectionRefusals({ log, clock, metrics }, "agents");
  for (let at = 0; at < 1000; at += 1) refusals.note("tls", { peer: `192.0.2.1:${at}`, text: "wrong version number" });
  assert.deepEqual([counted.length, new Set(counted).size, lines.length], [1000, 1, 5]);
});
