import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

async function client(bed: Bed): Promise<TunnelClient> {
  return TunnelClient.open(await bed.socket(bed.frontendPort));
}

test("tunnel: bytes go there and back, and CLOSE_REQ is confirmed", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.pipe(socket));
  const one = await client(bed);
  assert.equal((await one.dial(`127.0.0.1:${port}`)).kind, "open");
  const chunks: Uint8Array[] = [];
  one.onBytes = (piece) => chunks.push(piece);
  one.write(Buffer.from("hello"));
  await one.until(() => one.received === 5);
  assert.equal(Buffer.concat(chunks).toString(), "hello");
  one.close();
  assert.equal((await one.closed()).error, "");
  one.end();
  await one.until(() => one.isEnded);
  for (const gauge of ["pending", "established", "Proxy"]) assert.equal(bed.serverCounts.get(gauge), 0, gauge);
  assert.equal(bed.agentCounts.get("endpoints"), 0);
  assert.deepEqual(bed.bugs, []);
});

/** All of the promise with ISTHMUS_SOAK=full. */
const TRANSFER_BYTES = (process.env["ISTHMUS_SOAK"] === "full" ? 1024 : 64) * 2 ** 20;

test("tunnel: 64 MiB both ways with equal checksums, with each set of capabilities", async () => {
  for (const caps of [undefined, new Set<never>()]) {
    await using bed = await Bed.open(caps === undefined ? {} : { agentCapabilities: caps });
    await bed.agent();
    const total = TRANSFER_BYTES;
    const got = createHash("sha256");
    let received = 0;
    const port = await bed.endpoint((socket) => {
      socket.on("data", (chunk) => {
        got.update(chunk);
        received += chunk.length;
        if (!socket.write(chunk)) {
          socket.pause();
          socket.once("drain", () => socket.resume());
        }
      });
    });
    const one = await client(bed);
    await one.dial(`127.0.0.1:${port}`);
    const sent = createHash("sha256");
    const back = createHash("sha256");
    one.onBytes = (piece) => back.update(piece);
    for (let at = 0; at < total; ) {
      const chunk = randomBytes(Math.min(total - at, 1 + Math.floor(Math.random() * 200_000)));
      sent.update(chunk);
      at += chunk.length;
      await one.writeAll(chunk);
    }
    await one.until(() => one.received === total, 120_000);
    const digest = sent.digest("hex");
    assert.deepEqual([received, got.digest("hex"), back.digest("hex")], [total, digest, digest]);
    one.close();
    await one.closed();
    assert.deepEqual(bed.bugs, []);
  }
});
