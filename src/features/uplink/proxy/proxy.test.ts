import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createLogger } from "#base/log";
import type { Settings } from "../model/index.ts";
import {
  EvidenceLog,
  FakeSnapshots,
  freePort,
  hostListener,
  serverFor,
  settingsOf,
  snapshotOf,
  TestClient,
  uplink,
} from "../testing/proxy-fixtures.ts";
import { UplinkProxy } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };

/** A proxy at a port of loopback; its one uplink has a source of loopback too. */
async function proxyFor(t: TestContext, fields: Partial<Settings> = {}) {
  const port = await freePort();
  const snapshots = new FakeSnapshots(snapshotOf([uplink("eth0", { sources: ["127.0.0.2"] })]));
  const evidence = new EvidenceLog();
  const lines: string[] = [];
  const log = createLogger({ name: "p", level: "debug", write: (line) => lines.push(JSON.parse(line).msg) });
  const settings = settingsOf({ listeners: [hostListener(port)], ...fields });
  const proxy = new UplinkProxy({ snapshots, evidence, log }, settings, { version: "1" });
  const stop = new AbortController();
  const done = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await done;
  });
  while (!proxy.bound.has("host")) await new Promise((resolve) => setImmediate(resolve));
  return { port, proxy, snapshots, evidence, lines, settings };
}

test(
  "UplinkProxy: a CONNECT is carried over the uplink, early bytes first, ends in order both ways",
  TIMEOUT,
  async (t) => {
    const target = await serverFor(t, (client) => {
      let text = `${client.remoteAddress} `;
      client.on("data", (chunk: Buffer) => {
        text += chunk.toString();
      });
      client.on("end", () => client.end(text));
    });
    const { port, proxy, lines, evidence } = await proxyFor(t);
    const client = await TestClient.to(t, port);
    client.write(`CONNECT 127.0.0.1:${target.port} HTTP/1.1\r\nHost: x\r\n\r\nearly `);
    await client.read("200 OK\r\n\r\n");
    client.write("late");
    client.socket.end();
    await client.until(({ isEnded }) => isEnded);
    assert.equal(client.text, "HTTP/1.1 200 OK\r\n\r\n127.0.0.2 early late");
    await client.until(({ isClosed }) => isClosed);
    while (proxy.counters.activeTunnels > 0) await new Promise((resolve) => setImmediate(resolve));
    const { successByPort, bytesUp, bytesDown, requests } = proxy.health() as Record<string, unknown>;
    assert.deepEqual(
      { successByPort, bytesUp, bytesDown, requests },
      {
        successByPort: { eth0: 1 },
        bytesUp: 10,
        bytesDown: 20,
        requests: 1,
      },
    );
    assert.match(
      lines.join("\n"),
      /CONNECT 127\.0\.0\.1:\d+ from 127\.0\.0\.1:\d+ via eth0 src 127\.0\.0\.2 cost 0 \(dial \d+ms, 0 fallback\(s\)\)/,
    );
    assert.match(lines.join("\n"), /closed: up=10 down=20 duration=\d+ms idle=false reason=eof/);
    assert.equal(evidence.lines[0], `dialled eth0 127.0.0.1:${target.port}`);
  },
);

test("UplinkProxy: answers of the host listener, on a connection that stays", TIMEOUT, async (t) => {
  const { port } = await proxyFor(t);
  const client = await TestClient.to(t, port);
  client.write("GET /healthz HTTP/1.1\r\n\r\n");
  await client.read('"ready":true');
  client.write("POST / HTTP/1.1\r\n\r\n");
  const text = await client.read("are supported\n");
  assert.match(text, /HTTP\/1\.1 405 Method Not Allowed\r\n.*Allow: CONNECT, GET\r\n/s);
  client.write("CONNECT nowhere HTTP/1.1\r\n\r\n");
  await client.read("mgmtproxy: bad CONNECT target\n");
  await client.until(({ isEnded }) => isEnded);
});
