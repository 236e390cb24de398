import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { RequestTurns } from "./index.ts";

const GET = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

async function serve(t: TestContext) {
  const turns = new RequestTurns();
  let read = 0;
  const server = createServer((request, response) => {
    read += 1;
    if (turns.take(request, response)) setImmediate(() => response.end("ok"));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  const come = () => connect((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => undefined);
  return { come, read: () => read };
}

test("RequestTurns: of 5,000 requests that come at once two are read, and the connection ends", async (t) => {
  const { come, read } = await serve(t);
  const client = come();
  client.write(GET.repeat(5000));
  // It may be reset.
  await new Promise((resolve) => client.resume().once("close", resolve));
  assert.equal(read(), 2);
});

test("RequestTurns: a client that waits for its answers is served on one connection", async (t) => {
  const { come, read } = await serve(t);
  const client = come();
  for (let at = 0; at < 5; at += 1) {
    client.write(GET);
    assert.match(String((await once(client, "data"))[0]), /ok$/);
  }
  client.end(GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
  assert.match(await text(client), /ok$/);
  assert.equal(read(), 6);
});
