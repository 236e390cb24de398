import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { createInformer } from "#kube/informer";
import { startApiServer } from "#lab/api-server";
import { Relay } from "#test/relay";
import { KubeClient, loadKubeConfig, resources, type ServerAddress, staticConnection } from "./index.ts";

const TIMEOUT = { timeout: 30_000 };
const names = { organization: "test", notBefore: Date.now() - 3_600_000, notAfter: Date.now() + 3_600_000 };
const ca = createAuthority({ commonName: "ca", ...names });

async function listen(t: TestContext, server: Server, host: string, port = 0): Promise<URL> {
  server.listen(port, host);
  await once(server, "listening");
  t.after(() => server.close());
  return new URL(`https://${host}:${(server.address() as AddressInfo).port}`);
}

/** An API server with a certificate for its address, or for `name`, alone. `silent`: it takes requests and answers none, also not of its health; `broken`: it answers each with 503. */
async function serve(
  t: TestContext,
  host: string,
  state: "well" | "silent" | "broken" = "well",
  name = host,
): Promise<URL> {
  const { cert, key } = issueServerCertificate(ca, { hosts: [name], ...names });
  const server = createHttpsServer({ cert, key }, (request, response) => {
    if (state === "silent") return;
    if (state === "broken") {
      response.writeHead(503).end("etcd");
      return;
    }
    const name = request.url?.split("/").at(-1) ?? "";
    // A request that takes long, at a server that is well.
    const waitMs = name === "slow" ? 6000 : 0;
    response.setHeader("content-type", "application/json");
    const body = JSON.stringify({ kind: "Node", metadata: { name: host, resourceVersion: "1" } });
    setTimeout(() => response.end(body), waitMs).unref();
  });
  t.after(() => server.closeAllConnections());
  return listen(t, server, host);
}

/** An API server that, once it fails, answers nothing by the connections that are there and refuses new ones. */
async function serveUntil(t: TestContext, host: string): Promise<{ readonly url: URL; readonly fail: () => void }> {
  let isFailing = false;
  const { cert, key } = issueServerCertificate(ca, { hosts: [host], ...names });
  const server = createHttpsServer({ cert, key }, (_request, response) => {
    if (!isFailing) response.end(JSON.stringify({ kind: "Node", metadata: { name: host, resourceVersion: "1" } }));
  });
  server.on("connection", (socket: Socket) => {
    if (isFailing) socket.destroy();
  });
  t.after(() => server.closeAllConnections());
  return { url: await listen(t, server, host), fail: () => (isFailing = true) };
}

/** A port that accepts connections and says nothing. */
async function mute(t: TestContext, host: string): Promise<URL> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => sockets.add(socket.on("error", () => undefined)));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  return listen(t, server, host);
}

/** A port at which nobody listens. */
async function closed(t: TestContext, host: string): Promise<URL> {
  const server = createServer();
  const url = await listen(t, server, host);
  server.close();
  await once(server, "close");
  return url;
}

function clientOf(t: TestContext, server: URL, ...others: readonly URL[]): KubeClient {
  const client = new KubeClient(staticConnection({ server, others, ca: ca.cert }), { clock: systemClock });
  t.after(() => client.close());
  return client;
}

const answeredBy = async (client: KubeClient, name = "n"): Promise<string> =>
  (await client.get(resources.nodes, { name })).metadata.name;

test("several servers: one that refuses, and one whose certificate is not for its address, are passed over; the one that answers stays", async (t) => {
  const good = await serve(t, "127.0.0.3");
  // Its certificate is for 127.0.0.3.
  const wrong = new URL(`https://127.0.0.2:${good.port}`);
  const stranger = createServer((socket) => {
    const far = connect(Number(good.port), "127.0.0.3");
    socket
      .on("error", () => undefined)
      .pipe(far.on("error", () => undefined))
      .pipe(socket);
  });
  await listen(t, stranger, "127.0.0.2", Number(good.port));
  const client = clientOf(t, await closed(t, "127.0.0.1"), wrong, good);
  assert.equal(await answeredBy(client), "127.0.0.3");
  assert.equal(await answeredBy(client), "127.0.0.3");
  await assert.rejects(answeredBy(clientOf(t, wrong)), /does not match|altnames|is not trusted/i);
});

test(
  "several servers: one that accepts and says nothing, and one that answers no request, are left after some seconds; a slow answer of one that is well is waited for",
  TIMEOUT,
  async (t) => {
    const good = await serve(t, "127.0.0.2");
    const fromMute = clientOf(t, await mute(t, "127.0.0.1"), good);
    const fromSilent = clientOf(t, await serve(t, "127.0.0.1", "silent"), good);
    const patient = clientOf(t, good, await serve(t, "127.0.0.3"));
    const failing = await serveUntil(t, "127.0.0.4");
    const kept = clientOf(t, failing.url, good);
    assert.equal(await answeredBy(kept), "127.0.0.4");
    failing.fail();
    const found = [answeredBy(fromMute), answeredBy(fromSilent), answeredBy(patient, "slow"), answeredBy(kept)];
    assert.deepEqual(await Promise.all(found), ["127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.2"]);
    assert.equal(await answeredBy(fromSilent), "127.0.0.2", "it stays with the one that answers");
  },
);

test(
  "several servers: each of three is killed in turn under changes, and an informer sees them all",
  TIMEOUT,
  async (t) => {
    await using server = await startApiServer({
      listen: [{ host: "127.0.0.1", port: 0 }],
      log: nullLogger,
      clock: systemClock,
    });
    const target = new URL(server.urls[0] ?? "");
    const relays = [1, 2, 3].map((last) => new Relay(`127.0.0.${last}`, target));
    for (const relay of relays) await relay.open();
    t.after(() => Promise.all(relays.map((relay) => relay.close())));
    const folder = mkdtempSync(join(tmpdir(), "isthmus-servers-"));
    t.after(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, "kubeconfig"), server.kubeconfig());
    const connection = await loadKubeConfig({ path: join(folder, "kubeconfig"), clock: systemClock });
    const [first, ...others] = relays.map(({ url }) => url);
    const via = new KubeClient(
      { ...connection, server: first ?? target, others, tlsServerName: target.hostname },
      { clock: systemClock },
    );
    await using _via = via;
    await using direct = new KubeClient(connection, { clock: systemClock });
    const informer = createInformer(via, resources.namespaces, { clock: systemClock });
    const stop = new AbortController();
    const running = informer.run({ signal: stop.signal });
    try {
      for (const [at, relay] of [...relays, ...relays].entries()) {
        await relay.close();
        await direct.create(resources.namespaces, {
          apiVersion: "v1",
          kind: "Namespace",
          metadata: { name: `n${at}` },
        });
        const seen = await poll(() => informer.store.get(`n${at}`) !== undefined, {
          ...{ until: (is: boolean) => is, everyMs: 20, deadlineMs: 5000, clock: systemClock },
        });
        assert.ok(seen, `after ${at} deaths`);
        assert.equal((await via.get(resources.namespaces, { name: `n${at}` })).metadata.name, `n${at}`);
        await relay.open();
      }
    } finally {
      stop.abort();
      await running;
    }
  },
);

const learntFrom = ({ hostname, port }: URL): ServerAddress => ({
  address: IpAddress.parse(hostname),
  port: Number(port),
});

test("several servers: one that is learnt needs the certificate of a configured name, is tried after the configured ones, and is left when it is not named any more", async (t) => {
  const [first, second] = [await closed(t, "127.0.0.1"), await closed(t, "127.0.0.2")];
  const own = await serve(t, "127.0.0.3");
  const named = await serve(t, "127.0.0.4", "well", "127.0.0.2");
  const client = clientOf(t, first, second);
  client.learn([learntFrom(own)]);
  await assert.rejects(answeredBy(client), /is not trusted|does not match|altnames/i);
  client.learn([learntFrom(own), learntFrom(named)]);
  const found = await Promise.allSettled([answeredBy(client), answeredBy(client)]);
  assert.ok(found.some((one) => one.status === "fulfilled" && one.value === "127.0.0.4"));
  assert.equal(await answeredBy(client), "127.0.0.4", "it stays with the one that answers");
  client.learn([]);
  await assert.rejects(answeredBy(client), { code: "unreachable" });
  const configured = clientOf(t, await serve(t, "127.0.0.5"));
  configured.learn([learntFrom(named)]);
  assert.equal(await answeredBy(configured), "127.0.0.5");
});

test("loadKubeConfig: further servers have the scheme and path of the first one; one that is named twice is one", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-servers-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "kubeconfig");
  writeFileSync(
    path,
    JSON.stringify({
      ...{ "current-context": "c", contexts: [{ name: "c", context: { cluster: "c", user: "u" } }] },
      ...{
        clusters: [{ name: "c", cluster: { server: "https://10.0.0.1:6443/k" } }],
        users: [{ name: "u", user: {} }],
      },
    }),
  );
  const load = (...others: readonly string[]) => loadKubeConfig({ path, others, clock: systemClock, env: {} });
  const found = await load("https://10.0.0.2:6443/k/", "https://10.0.0.1:6443/k", "https://10.0.0.2:6443/k");
  assert.deepEqual(found.others?.map(String), ["https://10.0.0.2:6443/k/"]);
  await assert.rejects(
    load("http://10.0.0.2:6443/k"),
    /the API server "http:.*" must have scheme and path of the first one/,
  );
  await assert.rejects(load("https://10.0.0.2:6443"), /must have scheme and path/);
  await assert.rejects(load("10.0.0.2:6443"), /is not a URL of an API server: https:/);
});
