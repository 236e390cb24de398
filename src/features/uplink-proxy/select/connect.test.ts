import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { tcpStreams } from "#kernel/reactor";
import { freePort } from "#test/ports";
import { serverFor } from "../testing/proxy-fixtures.ts";
import { classify } from "./classify.ts";
import { connectUpstream } from "./connect.ts";

const TIMEOUT = { timeout: 20_000 };
const LOOPBACK = IpAddress.parse("127.0.0.1");
const streams = tcpStreams("epoll");
const descriptors = (): number => readdirSync("/proc/self/fd").length;

test("connectUpstream: from the given source, paused until it is resumed", TIMEOUT, async (t) => {
  const sources: (string | undefined)[] = [];
  const { port } = await serverFor(t, (socket) => {
    sources.push(socket.remoteAddress);
    socket.write("banner");
  });
  for (const source of [undefined, IpAddress.parse("127.0.0.7")]) {
    const upstream = await connectUpstream({ address: LOOPBACK, source }, port, { streams });
    const first = new Promise<string>((resolve) => {
      upstream.on("data", (chunk) => resolve(Buffer.from(chunk).toString()));
    });
    upstream.resume();
    assert.equal(await first, "banner");
    upstream.destroy();
  }
  assert.deepEqual(sources, ["127.0.0.1", "127.0.0.7"]);
});

test(
  "connectUpstream: a refusal, a lost source, an unreachable net and an abort are distinguished; nothing is left",
  TIMEOUT,
  async () => {
    const port = await freePort();
    const failureOf = async (address: string, source: string | undefined): Promise<string> => {
      const from = source === undefined ? undefined : IpAddress.parse(source);
      try {
        await connectUpstream({ address: IpAddress.parse(address), source: from }, port, { streams });
        return "connected";
      } catch (error) {
        return classify(error, from, () => false).failure;
      }
    };
    const before = descriptors();
    assert.equal(await failureOf("127.0.0.1", "127.0.0.7"), "refused");
    assert.equal(await failureOf("127.0.0.1", undefined), "refused");
    assert.equal(await failureOf("127.0.0.1", "192.0.2.77"), "address-gone");
    // From loopback nothing else can be reached.
    assert.match(await failureOf("192.0.2.1", "127.0.0.7"), /^(unreachable|other)$/);
    const stop = new AbortController();
    const source = IpAddress.parse("127.0.0.7");
    const dialled = connectUpstream({ address: LOOPBACK, source }, port, { streams, signal: stop.signal });
    stop.abort(new Error("left"));
    await assert.rejects(dialled, /left/);
    while (descriptors() > before) await new Promise((resolve) => setImmediate(resolve));
  },
);
