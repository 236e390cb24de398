/** docs/spec/tunnel.md#8.5 and #15.D: no deadlock with both directions full. */
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { CLOSE_WAIT_MS } from "./mux/options.ts";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

const BLOCK = Buffer.alloc(64 * 1024, 5);
const PAIRS = 6;
/** Bytes that each connection must still pass on each way while one endpoint reads nothing. */
const PROGRESS_BYTES = 8 * 1024 * 1024;

/** Sends and reads as fast as possible; counts the received bytes. */
function saturate(socket: Socket): void {
  const more = (): void => {
    while (socket.writable && socket.write(BLOCK)) {
      // until it takes no more
    }
  };
  socket.on("drain", more).resume();
  more();
}

/** The same for a client, until it has ended. */
async function saturateFrom(client: TunnelClient): Promise<void> {
  while (!client.isEnded && client.closeResponse === undefined) {
    await client.writeAll(BLOCK);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

for (const flowControl of [true, false]) {
  test(`tunnel: with both directions full and one endpoint that stops reading, all others go on (${flowControl ? "credit" : "no credit: that one ends after the grace"})`, {
    timeout: 90_000,
  }, async () => {
    await using bed = await Bed.open({
      ...(flowControl ? {} : { agentCapabilities: new Set<never>() }),
      slowConsumerGraceMs: 300,
    });
    await bed.agent();
    const sockets: Socket[] = [];
    const port = await bed.endpoint((socket) => {
      sockets.push(socket);
      saturate(socket);
    });
    // One after the other, so that sockets of endpoints and clients have the same order.
    const clients: TunnelClient[] = [];
    while (clients.length < PAIRS) {
      const client = await TunnelClient.open(await bed.socket(bed.frontendPort));
      assert.equal((await client.dial(`127.0.0.1:${port}`)).kind, "open");
      clients.push(client);
    }
    const [stuck, ...others] = clients;
    assert.ok(stuck !== undefined);
    const saturated = clients.map((client) => saturateFrom(client));
    await Promise.all(clients.map((client) => client.until(() => client.received > PROGRESS_BYTES / 8)));
    // Both ends of one connection stop reading, with full buffers between them in both directions.
    const stopped = sockets[0];
    assert.ok(stopped !== undefined);
    stopped.pause();
    stuck.pause();
    const [hadIn, hadOut] = [others.map(({ received }) => received), sockets.map(({ bytesRead }) => bytesRead)];
    await Promise.all(
      others.map((client, at) => client.until(() => client.received > (hadIn[at] ?? 0) + PROGRESS_BYTES, 30_000)),
    );
    const moved = sockets.filter(({ bytesRead }, at) => bytesRead > (hadOut[at] ?? 0) + PROGRESS_BYTES / 8);
    assert.ok(moved.length >= PAIRS - 2, `only ${moved.length} endpoints still got something`);
    const bound = PAIRS * 4 * 1024 * 1024;
    assert.ok(bed.proxy.budget.used < bound, `${bed.proxy.budget.used} bytes are buffered`);
    if (flowControl) {
      const had = stuck.received;
      stuck.resume();
      stopped.resume();
      await stuck.until(() => stuck.received > had + PROGRESS_BYTES);
    }
    for (const client of clients) client.destroy();
    await Promise.all(saturated);
    const busy = (): number =>
      bed.serverCounts.get("established") + bed.agentCounts.get("endpoints") + bed.proxy.budget.used;
    // A connection whose endpoint takes nothing ends after a period without progress; it may have progressed in the first one.
    for (const end = performance.now() + 2 * CLOSE_WAIT_MS + 5000; busy() > 0 && performance.now() < end; ) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.equal(busy(), 0, "connections or buffers are left");
    assert.deepEqual(bed.bugs, []);
  });
}
