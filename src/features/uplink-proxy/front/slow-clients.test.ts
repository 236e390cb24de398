import assert from "node:assert/strict";
import { test } from "node:test";
import { FrontBed, TIMEOUT } from "../testing/front-bed.ts";
import { TestClient } from "../testing/proxy-fixtures.ts";

test("HttpConnection: a head has 10 s, a pause between requests 30 s", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t);
  const slow = await TestClient.to(t, bed.port);
  slow.write("CONNECT a.example:443 HT");
  while (bed.pending.size === 0) await new Promise((resolve) => setImmediate(resolve));
  await bed.clock.advance(9999);
  assert.equal(slow.text, "");
  await bed.clock.advance(1);
  assert.match(await slow.read("\r\n\r\n"), /^HTTP\/1\.1 408 .*Connection: close/s);
  const kept = await TestClient.to(t, bed.port);
  kept.write("GET /healthz HTTP/1.1\r\n\r\n");
  await kept.read("{}");
  while (bed.pending.size === 0) await new Promise((resolve) => setImmediate(resolve));
  await bed.clock.advance(30_000);
  await kept.until(({ isEnded }) => isEnded);
  assert.deepEqual(kept.text.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 200"]);
});

test(
  "HttpConnection: a client that does not read its answers is counted, and closed after 30 s",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    // More than the kernel takes for somebody who does not read.
    bed.healthz = "x".repeat(1 << 25);
    const client = await TestClient.to(t, bed.port);
    client.socket.pause();
    client.write("GET /healthz HTTP/1.1\r\n\r\n".repeat(100));
    const isStuck = (): boolean => [...bed.clients].some(({ writableNeedDrain }) => writableNeedDrain);
    while (!isStuck()) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(bed.pending.size, 1);
    await bed.clock.advance(29_000);
    assert.equal(bed.clients.size, 1);
    await bed.clock.advance(1000);
    while (bed.clients.size > 0) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(bed.pending.size, 0);
  },
);

test("HttpConnection: a client that reads its answers late gets all of them", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t);
  bed.healthz = `${"x".repeat(1 << 20)}\n`;
  const client = await TestClient.to(t, bed.port);
  client.socket.pause();
  client.write(`${"GET /healthz HTTP/1.1\r\n\r\n".repeat(9)}GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n`);
  const isStuck = (): boolean => [...bed.clients].some(({ writableNeedDrain }) => writableNeedDrain);
  while (!isStuck()) await new Promise((resolve) => setImmediate(resolve));
  client.socket.resume();
  await client.until(({ isEnded }) => isEnded);
  assert.equal(client.text.match(/HTTP\/1\.1 200 OK/g)?.length, 10);
});

test("HttpConnection: 500 half-open heads do not hold up a valid request; the oldest go", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t);
  const slow = await Promise.all(Array.from({ length: 500 }, () => TestClient.to(t, bed.port)));
  for (const client of slow) client.write("CONNECT a.ex");
  // The bed's clock stands still: no time that half-open heads have passes before this answer.
  assert.match(await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 200 /);
  assert.ok(bed.pending.size <= 256);
  await slow[0]?.until(({ isEnded, isClosed }) => isEnded || isClosed);
});
