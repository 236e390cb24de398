import assert from "node:assert/strict";
import type { Socket } from "node:net";
import type { TestContext } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { connectTcp, TcpStream } from "#kernel/reactor";
import { type ByteCount, Relay, type RelayEnd, RelayTimer } from "../relay/index.ts";
import { listenerFor, serverFor, TestClient } from "./proxy-fixtures.ts";

const LOOPBACK = IpAddress.parse("127.0.0.1");

/** The limits of the bed's tunnels. */
export const RELAY_OPTIONS = {
  idleTimeoutMs: 30_000,
  quietTimeoutMs: 300_000,
  halfCloseTimeoutMs: 20_000,
  firstByteTimeoutMs: 5000,
  replayBytes: 65_536,
  bufferBytes: 65_536,
};

/** A tunnel between a test's client and a test's server, both real sockets of loopback; the test moves the clock. */
export class RelayBed {
  readonly clock = new FakeClock();
  readonly total: ByteCount = { up: 0, down: 0 };
  readonly reported: string[] = [];
  readonly client: TestClient;
  readonly near: TcpStream;
  readonly relay: Relay;
  readonly upstream: TcpStream;
  readonly far: TestClient;
  readonly timer: RelayTimer;
  end: RelayEnd | undefined;

  private constructor(client: TestClient, near: TcpStream, upstream: TcpStream, far: TestClient) {
    this.client = client;
    this.near = near;
    this.upstream = upstream;
    this.far = far;
    this.timer = new RelayTimer(this.clock);
    const deps = { timer: this.timer, total: this.total };
    this.relay = new Relay(near, upstream, deps, RELAY_OPTIONS, {
      onFirstByte: () => this.reported.push("first byte"),
      onBlackhole: () => this.reported.push("blackhole"),
      onLargeSegmentsLost: () => this.reported.push("large segments lost"),
      onClosed: (end) => {
        assert.equal(this.end, undefined, "closed twice");
        this.end = end;
      },
    });
  }

  static async open(t: TestContext, early: readonly Uint8Array[] = []): Promise<RelayBed> {
    const [near, client] = await pair(t);
    const { upstream, far } = await upstreamPair(t);
    const bed = new RelayBed(client, near, upstream, far);
    bed.relay.start(early);
    return bed;
  }

  async closed(): Promise<RelayEnd> {
    while (this.end === undefined) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(this.timer.size, 0);
    return this.end;
  }

  /** The monotonic time at which the timer has ended the tunnel. */
  async endedBy(untilMs: number): Promise<number> {
    while (this.end === undefined && this.clock.monotonic() < untilMs) await this.clock.advance(100);
    return this.clock.monotonic();
  }
}

/** The proxy's side of a client, and the client. */
async function pair(t: TestContext): Promise<[near: TcpStream, client: TestClient]> {
  const accepted = Promise.withResolvers<TcpStream>();
  const { port } = listenerFor(t, (fd, remote) => accepted.resolve(TcpStream.adopt(fd, remote)));
  const client = await TestClient.to(t, port);
  const near = await accepted.promise;
  t.after(() => near.destroy());
  return [near, client];
}

/** A connected upstream, and the destination's side of it. */
export async function upstreamPair(t: TestContext): Promise<{ upstream: TcpStream; far: TestClient }> {
  const accepted = Promise.withResolvers<Socket>();
  const { port } = await serverFor(t, (socket) => accepted.resolve(socket));
  const upstream = await connectTcp({ address: LOOPBACK, port });
  t.after(() => upstream.destroy());
  return { upstream, far: new TestClient(await accepted.promise) };
}
