/** The last bytes of a connection whose reader pauses (docs/spec/tunnel.md#8.11). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { GrpcDeframer } from "#wire/grpc";
import { type Capability, decodePacket, type Packet } from "#wire/konnectivity";
import type { PacketStream, PacketStreamHandlers } from "../link/packet-stream.ts";
import type { LocalHandlers, LocalSide } from "../local/local-side.ts";
import { BufferBudget } from "../mux/budget.ts";
import type { LinkHandlers } from "../mux/link-handlers.ts";
import { LinkMux } from "../mux/link-mux.ts";
import { MUX_DEFAULTS, UNREAD_MS } from "../mux/options.ts";
import { DialAcceptor } from "./dial-acceptor.ts";
import { DialledConnection } from "./dialled-connection.ts";

const KIB = 1024;
const OURS: readonly Capability[] = ["half-close/1", "flow-control/1"];

const nothing = (): void => undefined;
const unexpected = (): void => assert.fail("unexpected");

/** One side of a link in memory. */
class MemoryStream implements PacketStream {
  readonly queuedBytes = 0;
  bytesSent = 0;
  peer: PacketStreamHandlers | undefined;
  readonly #own: PacketStreamHandlers;
  #isBlocked = false;
  readonly #frames = new GrpcDeframer({
    maxBytes: 1024 * KIB,
    onMessage: (pieces, length) => this.#deliver(decodePacket(pieces, length)),
  });

  constructor(own: PacketStreamHandlers) {
    this.#own = own;
  }

  get isWritable(): boolean {
    return !this.#isBlocked;
  }

  /** The peer reads nothing, or reads again. */
  block(isBlocked: boolean): void {
    this.#isBlocked = isBlocked;
    if (!isBlocked) this.#own.onWritable();
  }

  send(pieces: readonly Uint8Array[], bytes: number): void {
    this.bytesSent += bytes;
    for (const piece of pieces) this.#frames.push(piece);
  }

  readonly pause = nothing;
  readonly resume = nothing;
  readonly end = nothing;

  destroy(): void {
    setImmediate(() => this.#own.onClosed(undefined));
  }

  #deliver(packet: Packet): void {
    setImmediate(() => this.peer?.onPacket(packet));
  }
}

/** A client or endpoint. What it has not read waits in the program. */
class Side implements LocalSide {
  readonly detectsClose: boolean;
  bytesWritten = 0;
  end: "none" | "in order" | "reset" = "none";
  handlers: LocalHandlers | undefined;
  #isReading = true;
  #waiting: { readonly bytes: number; readonly done: () => void }[] = [];

  constructor(detectsClose = true) {
    this.detectsClose = detectsClose;
  }

  start(handlers: LocalHandlers): void {
    this.handlers = handlers;
  }

  write(pieces: readonly Uint8Array[], onWritten: () => void): void {
    this.#take({ bytes: pieces.reduce((sum, { length }) => sum + length, 0), done: onWritten });
  }

  finish(error: string | undefined, onFlushed: () => void): void {
    const done = (): void => {
      if (error === undefined && this.end === "none") this.end = "in order";
      onFlushed();
    };
    this.#take({ bytes: 0, done });
  }

  read(isReading: boolean): void {
    this.#isReading = isReading;
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      this.bytesWritten += next.bytes;
      next.done();
    }
  }

  readonly pause = nothing;
  readonly resume = nothing;

  destroy(how: "close" | "reset"): void {
    if (this.end === "none") this.end = how === "reset" ? "reset" : "in order";
    this.#waiting = [];
  }

  #take(one: { readonly bytes: number; readonly done: () => void }): void {
    this.#waiting.push(one);
    this.read(this.#isReading);
  }

  #next(): { readonly bytes: number; readonly done: () => void } | undefined {
    return this.#isReading ? this.#waiting.shift() : undefined;
  }
}

const LINK: Omit<LinkHandlers, "onDialRequest"> = {
  ...{ onDialCancelled: nothing, onUnmatchedDialResponse: nothing, onDrain: nothing, onPacket: nothing },
  ...{ onBlocked: nothing, onSlowConsumerClosed: nothing, onEnd: nothing, onClosed: nothing },
};

/** A server and an agent with one connection of a client to an endpoint. */
async function connect(capabilities: readonly Capability[] = OURS, client = new Side()) {
  const clock = new FakeClock();
  const budget = new BufferBudget(64 * 1024 * KIB);
  const endpoint = new Side();
  const ended = { client: 0, endpoint: 0 };
  const acceptor: { one?: DialAcceptor } = {};
  const open = (side: "server" | "agent") => {
    const opened: { stream?: MemoryStream; own?: PacketStreamHandlers } = {};
    const mux = new LinkMux(
      (own) => {
        opened.own = own;
        opened.stream = new MemoryStream(own);
        return opened.stream;
      },
      {
        ...{ clock, budget, side, capabilities: new Set(capabilities) },
        handlers: { ...LINK, onDialRequest: (request) => acceptor.one?.accept(request) },
      },
      MUX_DEFAULTS,
    );
    assert.ok(opened.stream !== undefined && opened.own !== undefined);
    return { mux, stream: opened.stream, own: opened.own };
  };
  const [server, agent] = [open("server"), open("agent")];
  server.stream.peer = agent.own;
  agent.stream.peer = server.own;
  acceptor.one = new DialAcceptor(agent.mux, {
    ...{ clock, closeLingerMs: 10_000, maxPendingDials: 1, failureText: String, onOpened: nothing, onBug: unexpected },
    decide: () => ({ kind: "connect", connect: () => Promise.resolve(endpoint) }),
    onClosed: () => {
      ended.endpoint += 1;
    },
  });
  const dialled = DialledConnection.dial(
    server.mux,
    { protocol: "tcp", address: "endpoint:1", random: 1 },
    {
      ...{ local: client, localHalfClose: true, clock, dialTimeoutMs: 5000, halfCloseTimeoutMs: 30_000 },
      observer: {
        ...{ onOpen: nothing, onFailed: unexpected },
        onClosed: () => {
          ended.client += 1;
        },
      },
    },
  );
  assert.ok(dialled instanceof DialledConnection);
  await clock.advance(0);
  await clock.advance(0);
  assert.equal(dialled.state, "open");
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn += 1) await clock.advance(0);
  };
  const isOver = (): void => {
    assert.deepEqual(ended, { client: 1, endpoint: 1 });
    assert.deepEqual([server.mux.connections, agent.mux.connections, budget.used, clock.pending], [0, 0, 0, 0]);
  };
  return { clock, budget, client, endpoint, dialled, server, agent, settle, isOver };
}

/** The endpoint sends more than a window, and ends. */
function answer(endpoint: Side, bytes: number): void {
  endpoint.handlers?.onLocalData([Buffer.alloc(bytes, 1)]);
  endpoint.handlers?.onLocalEof();
}

const TOTAL = 600 * KIB;

for (const detectsClose of [true, false]) {
  for (const pauseMs of [11_000, 25_000, UNREAD_MS - 30_000]) {
    const where = detectsClose ? "on a UNIX socket" : "over TCP";
    test(`last bytes: a client ${where} that half-closes and pauses for ${pauseMs / 1000} s gets all of them`, async () => {
      const { clock, client, endpoint, settle, isOver } = await connect(OURS, new Side(detectsClose));
      client.read(false);
      client.handlers?.onLocalEof();
      await settle();
      answer(endpoint, TOTAL);
      await settle();
      assert.equal(endpoint.end, "in order");
      await clock.advance(pauseMs);
      client.read(true);
      await settle();
      assert.deepEqual([client.bytesWritten, client.end], [TOTAL, "in order"]);
      isOver();
    });
  }

  test(`last bytes: a client ${detectsClose ? "on a UNIX socket" : "over TCP"} that never reads again sees no end in order, and nothing is left`, async () => {
    const { clock, client, endpoint, settle, isOver } = await connect(OURS, new Side(detectsClose));
    client.read(false);
    client.handlers?.onLocalEof();
    await settle();
    answer(endpoint, TOTAL);
    await clock.advance(3 * UNREAD_MS);
    assert.equal(client.end, "reset");
    client.read(true);
    await settle();
    isOver();
  });
}

test("last bytes: what the limit cuts off is no end in order for a client that reads again later", async () => {
  const { clock, client, endpoint, settle, isOver } = await connect();
  client.read(false);
  client.handlers?.onLocalEof();
  await settle();
  answer(endpoint, TOTAL);
  await clock.advance(UNREAD_MS + 10_000);
  client.read(true);
  await settle();
  assert.ok(client.bytesWritten < TOTAL);
  assert.equal(client.end, "reset");
  isOver();
});

test("last bytes: without credit, as with Konnectivity's server, they wait for a link that takes nothing for 25 s", async () => {
  const { clock, client, endpoint, agent, settle, isOver } = await connect([]);
  agent.stream.block(true);
  answer(endpoint, TOTAL);
  await clock.advance(25_000);
  agent.stream.block(false);
  await settle();
  assert.deepEqual([client.bytesWritten, client.end], [TOTAL, "in order"]);
  isOver();
});

test("last bytes: without credit, as with Konnectivity's agent, they wait for a client that pauses for 25 s", async () => {
  const { clock, budget, client, endpoint, settle, isOver } = await connect([]);
  client.read(false);
  answer(endpoint, TOTAL);
  await clock.advance(25_000);
  assert.equal(budget.used, TOTAL);
  client.read(true);
  await settle();
  assert.deepEqual([client.bytesWritten, client.end], [TOTAL, "in order"]);
  isOver();
});

test("last bytes: the end of the link ends what waits for its reader", async () => {
  const { clock, budget, client, endpoint, server, agent, settle, isOver } = await connect();
  client.read(false);
  client.handlers?.onLocalEof();
  await settle();
  answer(endpoint, TOTAL);
  await clock.advance(60_000);
  server.stream.destroy();
  agent.stream.destroy();
  await settle();
  assert.ok(budget.used > 0, "what the client has not read is still held, and counted");
  client.read(true);
  await settle();
  assert.equal(client.end, "reset");
  isOver();
});

test("last bytes: those of a client that has closed reach an endpoint that pauses for less than the linger", async () => {
  const { clock, client, endpoint, settle, isOver } = await connect();
  endpoint.read(false);
  client.handlers?.onLocalData([Buffer.alloc(TOTAL, 1)]);
  client.handlers?.onLocalEof();
  await settle();
  client.handlers?.onLocalGone(undefined);
  await clock.advance(9000);
  endpoint.read(true);
  await settle();
  assert.deepEqual([endpoint.bytesWritten, endpoint.end], [TOTAL, "in order"]);
  isOver();
});

for (const how of ["it had ended its sending", "by CLOSE_REQ, as a gRPC frontend"] as const) {
  test(`last bytes: a client that closes (${how}) in front of an endpoint that reads nothing holds the connection for the linger alone`, async () => {
    const { clock, client, endpoint, dialled, settle, isOver } = await connect();
    endpoint.read(false);
    // More than its credit: the rest waits on this side.
    client.handlers?.onLocalData([Buffer.alloc(TOTAL, 1)]);
    if (how === "it had ended its sending") client.handlers?.onLocalEof();
    await settle();
    if (how === "it had ended its sending") client.handlers?.onLocalGone(undefined);
    else dialled.close();
    await clock.advance(9000);
    assert.equal(endpoint.end, "none");
    // Then the agent is told, and gives the endpoint as long.
    await clock.advance(2000);
    await clock.advance(10_000);
    await settle();
    assert.equal(endpoint.end, "reset");
    await clock.advance(10_000);
    isOver();
  });
}

test("last bytes: an endpoint that takes none of them is dropped after the linger, and all that it sent arrives", async () => {
  const { clock, client, endpoint, settle, isOver } = await connect();
  client.handlers?.onLocalData([Buffer.alloc(100 * KIB, 1)]);
  endpoint.read(false);
  client.read(false);
  answer(endpoint, TOTAL);
  await settle();
  client.handlers?.onLocalEof();
  await clock.advance(60_000);
  client.read(true);
  await settle();
  await clock.advance(30_000);
  assert.equal(endpoint.end, "reset");
  assert.deepEqual([client.bytesWritten, client.end], [TOTAL, "in order"]);
  isOver();
});
