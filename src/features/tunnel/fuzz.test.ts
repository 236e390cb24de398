/**
 * Unlawful packets in any order, from agents, frontends and a server: only their own stream may suffer. ISTHMUS_SOAK=full runs for a
 * minute each.
 */
import assert from "node:assert/strict";
import { createServer as createTcpServer } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { SystemNames } from "#base/names";
import { seeded } from "#test/seeded";
import { frameControl, frameData, TUNNEL_METHODS, type TunnelId, tunnelId } from "#wire/konnectivity";
import { AgentLink } from "./agent/agent-link.ts";
import { DEFAULT_SETTINGS } from "./http2/windows.ts";
import { serveStreams } from "./link/incoming.ts";
import { openStream } from "./link/outgoing.ts";
import { MAX_MESSAGE_BYTES, type PacketStream } from "./link/packet-stream.ts";
import { BufferBudget } from "./mux/budget.ts";
import { MUX_DEFAULTS } from "./mux/options.ts";
import { Bed, Counts, listen } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

const FUZZ_MS = process.env["ISTHMUS_SOAK"] === "full" ? 60_000 : 1500;

/** A random message. Its ids come from a small set, so that they collide. `address` is the destination of dials. */
function nonsense(random: () => number, address: string): Uint8Array {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] ?? (from[0] as T);
  const ids: readonly TunnelId[] = [
    0,
    1,
    2,
    3,
    -1,
    2 ** 40,
    2 ** 40 + 1,
    2 ** 53,
    tunnelId(2n ** 62n),
    tunnelId(-(2n ** 63n)),
  ];
  const id = pick(ids);
  const text = pick(["", "", "boom", "x".repeat(5000)]);
  switch (Math.floor(random() * 11)) {
    case 0:
      return frameControl({
        type: "DIAL_REQ",
        protocol: pick(["tcp", "tcp", "udp", ""]),
        address: pick([address, "", "x:0", "[::1"]),
        random: id,
      });
    case 1:
      return frameControl({ type: "DIAL_RSP", error: text, connectID: pick(ids), random: id });
    case 2:
      return frameControl({ type: "CLOSE_REQ", connectID: id });
    case 3:
      return frameControl({ type: "CLOSE_RSP", error: text, connectID: id });
    case 4:
      return frameControl({ type: "DIAL_CLS", random: id });
    case 5:
      return random() < 0.02 ? frameControl({ type: "DRAIN" }) : Buffer.from([0, 0, 0, 0, 0]);
    case 6:
      return frameControl({
        type: "WINDOW",
        connectID: id,
        credit: pick([0, -1, 1, 2 ** 31, 2 ** 53 - 1, tunnelId(2n ** 62n)]),
      });
    case 7:
      return frameControl({ type: "FIN", connectID: id });
    case 8: {
      const size = 4 + Math.floor(random() * 40);
      const message = Buffer.alloc(5 + size, Math.floor(random() * 256));
      message.writeUInt32BE(size, 1);
      message[0] = 0;
      // Mostly DATA followed by garbage, sometimes no protobuf at all.
      if (random() < 0.98) message.set([8, pick([0, 4, 7, 64, 99]), 0x7a, size - 4], 5);
      return message;
    }
    default: {
      const size = 1 + Math.floor(random() * pick([10, 70_000, 300_000]));
      return Buffer.concat([frameData(id, size), Buffer.alloc(size, 7)]);
    }
  }
}

/** Sends random messages until the time is over, on a new stream whenever one has ended. */
async function torment(
  open: () => Promise<{ readonly isEnded: boolean; sendRaw(bytes: Uint8Array): void; destroy(): void }>,
  address: string,
  seed: number,
): Promise<number> {
  const random = seeded(seed);
  let streams = 0;
  let packets = 0;
  for (const end = performance.now() + FUZZ_MS; performance.now() < end; ) {
    const peer = await open();
    streams += 1;
    for (let left = 400; left > 0 && !peer.isEnded && performance.now() < end; left -= 1) {
      peer.sendRaw(nonsense(random, address));
      packets += 1;
      if (left % 10 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    peer.destroy();
  }
  assert.ok(streams > 0 && packets > 0);
  return packets;
}

test("fuzz: agents and frontends that send anything do no harm to others, and leave nothing", {
  timeout: FUZZ_MS + 60_000,
}, async () => {
  await using bed = await Bed.open({ allowedDestinations: ["127.0.0.1:1"] });
  const port = await bed.endpoint((socket) => socket.pipe(socket));
  const address = `127.0.0.1:${port}`;
  await bed.agent("good");
  const frontend = async (): Promise<TunnelClient> => TunnelClient.open(await bed.socket(bed.frontendPort));
  await Promise.all([
    torment(() => bed.rawAgent("evil-1"), address, 1),
    torment(() => bed.rawAgent("evil-2"), address, 2),
    torment(frontend, address, 3),
    torment(frontend, address, 4),
  ]);
  assert.deepEqual(bed.bugs, []);
  for (const end = performance.now() + 10_000; bed.proxy.backends.all.length > 1 && performance.now() < end; ) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.deepEqual(
    bed.proxy.backends.all.map(({ agentID }) => agentID),
    ["good"],
  );
  const one = await frontend();
  // Not an id that was given up above: those have tombstones for a minute.
  assert.equal((await one.dial(address, 424_242)).kind, "open");
  one.write(Buffer.from("hello"));
  await one.until(() => one.received === 5);
  one.close();
  await one.closed();
  const held = (): number =>
    bed.proxy.budget.used + bed.serverCounts.get("pending") + bed.serverCounts.get("established");
  for (const end = performance.now() + 12_000; held() > 0 && performance.now() < end; ) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.deepEqual(
    ["pending", "established", "reverseConnections"].map((gauge) => bed.serverCounts.get(gauge)),
    [0, 0, 0],
  );
  assert.equal(bed.proxy.budget.used, 0);
});

test("fuzz: a server that sends anything does not bring an agent down, and its sockets are gone with it", {
  timeout: FUZZ_MS + 60_000,
}, async () => {
  await using bed = await Bed.open();
  const port = await bed.endpoint((socket) => socket.pipe(socket));
  const server = bed.keep(createTcpServer({ noDelay: true }));
  const streams: { stream: PacketStream; isEnded: boolean }[] = [];
  serveStreams(server, {
    settings: DEFAULT_SETTINGS,
    path: TUNNEL_METHODS.connect,
    maxMessageBytes: MAX_MESSAGE_BYTES,
    keepAliveMs: 0,
    minPingIntervalMs: 0,
    onStream: (incoming) => {
      const one = { isEnded: false } as { stream: PacketStream; isEnded: boolean };
      one.stream = incoming.accept(
        { serverid: "evil", servercount: "1" },
        {
          onPacket: () => undefined,
          onEnd: () => undefined,
          onWritable: () => undefined,
          onClosed: () => {
            one.isEnded = true;
          },
        },
      );
      one.stream.resume();
      streams.push(one);
    },
    clock: systemClock,
  });
  const serverPort = await listen(server);
  const counts = new Counts();
  const budget = new BufferBudget(512 * 1024 * 1024);
  const bugs: unknown[] = [];
  const open = async (): Promise<{ readonly isEnded: boolean; sendRaw(bytes: Uint8Array): void; destroy(): void }> => {
    const stream = await openStream(
      {
        socket: await bed.socket(serverPort),
        path: TUNNEL_METHODS.connect,
        authority: "localhost",
        metadata: {},
        timeoutMs: 5000,
        keepAliveMs: 0,
        clock: systemClock,
      },
      { signal: AbortSignal.timeout(5000) },
    );
    const capabilities = new Set(["reverse/1", "half-close/1", "flow-control/1"] as const);
    const link = new AgentLink(
      "evil",
      stream,
      {
        log: nullLogger,
        clock: systemClock,
        budget,
        metrics: counts.agent(),
        names: new SystemNames({ clock: systemClock }),
        capabilities,
        onClosed: () => undefined,
        onBug: (error) => bugs.push(error),
      },
      { mux: MUX_DEFAULTS, dialTimeoutMs: 1000, closeLingerMs: 1000 },
    );
    const mine = streams.at(-1);
    assert.ok(mine !== undefined);
    return {
      get isEnded() {
        return mine.isEnded || link.mux.isClosed;
      },
      sendRaw: (bytes) => mine.stream.send([bytes], bytes.length),
      destroy: () => mine.stream.destroy({ code: 1, message: "next" }),
    };
  };
  await torment(open, `127.0.0.1:${port}`, 5);
  for (const end = performance.now() + 12_000; counts.get("endpoints") + budget.used > 0 && performance.now() < end; ) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.deepEqual([counts.get("endpoints"), budget.used, bugs], [0, 0, []]);
  assert.ok(counts.get("dials") > 0, "no fuzzed dial has connected");
});
