import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { parseProxy } from "#base/http-proxy";
import { nullLogger } from "#base/log";
import { makeCertificates, makeIntermediate } from "#test/certificates";
import { freePort } from "#test/ports";
import type { Capability } from "#wire/konnectivity";
import { type AgentTls, connectServer } from "../agent/connect-server.ts";
import { listenForAgents } from "../server/listeners.ts";
import { Bed } from "../testing/bed.ts";
import { trustedForClients } from "./authorities.ts";

const hosts = { server: ["127.0.0.1", "server.example"], agent: [] };
const one = makeIntermediate("a", hosts);
const two = makeIntermediate("b", hosts);
const DAMAGED = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
const stranger = makeCertificates("another-ca", hosts);

const OPTIONS = {
  agentID: "agent-1",
  identifiers: "",
  tokenFile: undefined,
  capabilities: new Set<Capability>(),
  timeoutMs: 10_000,
  keepAliveMs: 0,
  clock: systemClock,
};

/** A server with the certificate and the authority of `one`, and agents. */
async function open(t: TestContext, bed: Bed) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-authorities-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const write = (name: string, content: string): string => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const paths = {
    cert: write("server.crt", one.pairs.server.cert),
    key: write("server.key", one.pairs.server.key),
    clientCa: write("clients.crt", one.ca),
  };
  const clock = new FakeClock();
  const port = await freePort();
  const listener = await listenForAgents(
    { proxy: bed.proxy, log: nullLogger, clock, onBug: (error) => bed.bugs.push(error) },
    { address: { host: "127.0.0.1", port }, tls: paths },
    { cipherSuites: [], tlsMinVersion: "" },
  );
  t.after(() => listener[Symbol.asyncDispose]());

  /** Connects an agent that trusts `ca`; true if both sides accept the other. */
  const connects = async (
    { cert, key }: { readonly cert: string; readonly key: string },
    ca: string,
    serverName: string | undefined,
  ): Promise<boolean> => {
    const tls: AgentTls = {
      caFile: write("servers.crt", ca),
      certFile: write("agent.crt", cert),
      keyFile: write("agent.key", key),
      serverName,
      alpn: [],
    };
    try {
      const stream = await connectServer({ host: "127.0.0.1", port }, { ...OPTIONS, tls }, t);
      stream.discard();
      return true;
    } catch (error) {
      assert.ok(error instanceof Error && error.name === "LinkError", String(error));
      return false;
    }
  };
  return { write, clock, connects, port };
}

for (const serverName of [undefined, "server.example"]) {
  test(`TLS: an authority that is no root is trusted by agent and server, ${serverName ?? "without SNI"}`, async (t) => {
    await using bed = await Bed.open();
    const { write, clock, connects } = await open(t, bed);
    const outcomes = async (): Promise<boolean[]> => {
      const agents = [one.pairs.agent, two.pairs.agent, one.ofRoot, stranger.pairs.agent];
      const found: boolean[] = [];
      for (const agent of agents) found.push(await connects(agent, one.ca, serverName));
      return found;
    };
    assert.deepEqual(await outcomes(), [true, false, false, false]);
    assert.equal(await connects(one.pairs.agent, two.ca, serverName), false, "the server's chain leads elsewhere");
    assert.equal(await connects(one.pairs.agent, stranger.ca, serverName), false);
    write("clients.crt", two.ca);
    await clock.advance(1000);
    assert.deepEqual(await outcomes(), [false, true, false, false], "after a reload");
    write("clients.crt", `${stranger.ca}\nand\n${one.ca}`);
    await clock.advance(1000);
    assert.deepEqual(await outcomes(), [true, false, false, true], "a root and one that is none");
    write("clients.crt", `${stranger.ca}${DAMAGED}${one.ca}`);
    await clock.advance(1000);
    assert.deepEqual(await outcomes(), [true, false, false, true], "one that cannot be parsed is passed over");
    assert.equal(await connects(one.pairs.agent, `${stranger.ca}${DAMAGED}${one.ca}`, serverName), true);
    assert.equal(await connects(one.pairs.agent, DAMAGED, serverName), false);
    assert.deepEqual(bed.bugs, []);
  });
}

test("connectServer: through a proxy that is asked for the server; its refusal, and a certificate that is not trusted, are named", async (t) => {
  await using bed = await Bed.open();
  const { write, port } = await open(t, bed);
  let answer = "HTTP/1.1 200 OK\r\n\r\n";
  const asked: string[] = [];
  const proxyServer = createServer((socket) => {
    socket
      .on("error", () => undefined)
      .once("data", (head) => {
        asked.push(/^CONNECT (\S+)/.exec(head.toString())?.[1] ?? "");
        socket.write(answer);
        if (answer.includes(" 200 ")) socket.pipe(connect(port, "127.0.0.1").on("error", () => undefined)).pipe(socket);
      });
  });
  proxyServer.listen(0, "127.0.0.1");
  await once(proxyServer, "listening");
  t.after(() => proxyServer.close());
  const proxy = parseProxy(`127.0.0.1:${(proxyServer.address() as AddressInfo).port}`, "test");
  const tls = (ca: string): AgentTls => ({
    caFile: write("ca.crt", ca),
    certFile: write("agent.crt", one.pairs.agent.cert),
    keyFile: write("agent.key", one.pairs.agent.key),
    serverName: undefined,
    alpn: [],
  });
  const to = (ca: string) =>
    connectServer({ host: "server.example", port: 8091 }, { ...OPTIONS, proxy, tls: tls(ca) }, t);
  (await to(one.ca)).discard();
  assert.deepEqual(asked, ["server.example:8091"]);
  await assert.rejects(
    to(stranger.ca),
    /server\.example:8091: is not trusted: its certificate is signed by none of the authorities of .*ca\.crt/,
  );
  answer = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
  await assert.rejects(to(one.ca), /the proxy http:\/\/127\.0\.0\.1:\d+ does not connect to server\.example:8091: 407/);
});

test("trustedForClients: a damaged certificate between others is passed over, as in Go; without another there is none", () => {
  const count = (pem: string) => trustedForClients(pem).split("BEGIN TRUSTED CERTIFICATE").length - 1;
  assert.deepEqual([`${one.ca}\nand\n${two.ca}`, `${one.ca}${DAMAGED}${two.ca}`, DAMAGED, ""].map(count), [2, 2, 0, 0]);
});
