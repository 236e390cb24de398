/** The API server behind an HTTP proxy, by proxy-url and by the environment. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import { type AddressInfo, connect, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { KubeClient, loadKubeConfig, resources } from "./index.ts";

const VALID = { notBefore: Date.now() - 60_000, notAfter: Date.now() + 3_600_000, organization: "isthmus" };

async function listen(t: TestContext, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

test("KubeClient: through the proxy of proxy-url, or of HTTPS_PROXY; a probe waits until the proxy connects; NO_PROXY goes around it", async (t) => {
  const authority = createAuthority({ commonName: "ca", ...VALID });
  const pair = issueServerCertificate(authority, { hosts: ["api.test"], ...VALID });
  const server = await listen(
    t,
    createServer({ cert: pair.cert, key: pair.key }, (_, response) =>
      response.end(JSON.stringify({ kind: "NodeList", metadata: { resourceVersion: "1" }, items: [] })),
    ),
  );
  const asked: string[] = [];
  let refusals = 0;
  const proxy = await listen(
    t,
    createTcpServer((socket) => {
      socket
        .on("error", () => undefined)
        .once("data", (head) => {
          asked.push(/^CONNECT (\S+)/.exec(head.toString())?.[1] ?? "");
          if (refusals > 0) {
            refusals -= 1;
            socket.end("HTTP/1.1 503 Service Unavailable\r\n\r\n");
            return;
          }
          const out = connect(server, "127.0.0.1");
          out
            .on("error", () => socket.destroy())
            .on("connect", () => {
              socket.write("HTTP/1.1 200 OK\r\n\r\n");
              socket.pipe(out).pipe(socket);
            });
        });
    }),
  );
  const folder = mkdtempSync(join(tmpdir(), "isthmus-proxy-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "config");
  const open = async (cluster: object, env: Record<string, string>): Promise<KubeClient> => {
    const ca = { "certificate-authority-data": Buffer.from(authority.cert).toString("base64") };
    const entry = { name: "k", cluster: { server: "https://api.test:6443", ...ca, ...cluster } };
    writeFileSync(
      path,
      JSON.stringify({
        "current-context": "c",
        contexts: [{ name: "c", context: { cluster: "k" } }],
        clusters: [entry],
      }),
    );
    const client = new KubeClient(await loadKubeConfig({ path, env, clock: systemClock }), { clock: systemClock });
    t.after(() => client.close());
    return client;
  };
  const url = `http://127.0.0.1:${proxy}`;
  const byFile = await open({ "proxy-url": url }, { HTTPS_PROXY: "http://127.0.0.1:1" });
  await byFile.list(resources.nodes, {});
  const byEnvironment = await open({}, { https_proxy: url });
  await byEnvironment.list(resources.nodes, {});
  assert.deepEqual([...new Set(asked)], ["api.test:6443"]);

  refusals = 2;
  assert.equal(await (await open({ "proxy-url": url }, {})).whenOpen(), "returned");
  refusals = 5;
  const refused = await open({ "proxy-url": url }, {});
  await assert.rejects(refused.create(resources.namespaces, { metadata: { name: "x" } }), {
    code: "unreachable",
    message: /the proxy http:\/\/127\.0\.0\.1:\d+ does not connect to api\.test:6443: 503/,
  });
  asked.length = 0;
  const around = await open(
    { server: `https://127.0.0.1:${server}`, "tls-server-name": "api.test" },
    { HTTPS_PROXY: url, NO_PROXY: "127.0.0.0/8" },
  );
  await around.list(resources.nodes, {});
  assert.deepEqual(asked, []);
});
