import assert from "node:assert/strict";
import { test } from "node:test";
import { TcpStream } from "#kernel/reactor";
import { listenerFor, TestClient } from "../testing/proxy-fixtures.ts";
import { EarlyPayload } from "./early-payload.ts";

const TIMEOUT = { timeout: 20_000 };
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test(
  "EarlyPayload: keeps 64 KiB of an eager client to the byte; the rest waits in the kernel, and comes after it",
  TIMEOUT,
  async (t) => {
    const accepted = Promise.withResolvers<TcpStream>();
    const { port } = listenerFor(t, (fd, remote) => accepted.resolve(TcpStream.adopt(fd, remote)));
    const client = await TestClient.to(t, port);
    const stream = await accepted.promise;
    t.after(() => stream.destroy());
    const sent = Buffer.from(Array.from({ length: 200_000 }, (_, at) => at % 251));
    client.socket.write(sent);
    const early = new EarlyPayload(stream, sent.subarray(0, 0));
    const held = (): number => early.chunks.reduce((sum, { length }) => sum + length, 0);
    while (held() < 65_536) await turn();
    for (let turns = 0; turns < 20; turns += 1) await turn();
    assert.equal(held(), 65_536);
    const all = [...early.release()];
    stream.limitReads(10_000);
    stream.on("data", (chunk) => {
      assert.ok(chunk.length <= 10_000);
      all.push(Buffer.from(chunk));
    });
    stream.resume();
    while (all.reduce((sum, { length }) => sum + length, 0) < sent.length) await turn();
    assert.ok(Buffer.concat(all).equals(sent));
  },
);
