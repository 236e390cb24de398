/** docs/spec/tunnel.md#8.9: what peers may hold that are no agents yet. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { TUNNEL_METHODS } from "#wire/konnectivity";
import { Bed } from "../testing/bed.ts";
import { TunnelClient } from "../testing/client.ts";

async function sessionTo(bed: Bed): Promise<ClientHttp2Session> {
  const session = connect(`http://127.0.0.1:${bed.agentPort}`);
  session.on("error", () => undefined);
  await once(session, "remoteSettings");
  return session;
}

function stream(session: ClientHttp2Session, agentid: string): ClientHttp2Stream {
  const head = { ":method": "POST", ":path": TUNNEL_METHODS.connect, "content-type": "application/grpc", agentid };
  const one = session.request(head, { endStream: false });
  one.on("error", () => undefined);
  return one;
}

test("serveAgentStream: a peer that sends before it is an agent loses its stream, and no byte of it is held", async () => {
  await using bed = await Bed.open({ agentAcceptRate: 1 });
  // Two are admitted at once.
  await Promise.all([bed.agent("first"), bed.agent("second")]);
  const session = await sessionTo(bed);
  // All of them together send more than the window of the session.
  const streams = Array.from({ length: 48 }, (_, at) => stream(session, `flood-${at}`));
  const closed = streams.map(async (one) => {
    const end = once(one, "close");
    one.write(Buffer.alloc(512 * 1024));
    await end;
    return one.rstCode;
  });
  const codes = await Promise.race([
    Promise.all(closed),
    new Promise((resolve) => setTimeout(() => resolve("they wait"), 5000)),
  ]);
  assert.deepEqual(new Set(codes as number[]), new Set([8]));
  // The session goes on, and a lawful stream of it waits its turn.
  const lawful = stream(session, "lawful");
  const [headers] = await once(lawful, "response", { signal: AbortSignal.timeout(5000) });
  assert.equal(headers["serverid"], "server-1");
  session.destroy();
  assert.deepEqual(bed.bugs, []);
});

test("serveAgents: a connection without an accepted stream is closed after 90 s, and no other", async () => {
  const clock = new FakeClock();
  await using bed = await Bed.open({ clock });
  const silent = await bed.socket(bed.agentPort);
  const ended = once(silent.resume(), "end", { signal: AbortSignal.timeout(10_000) });
  const agent = await TunnelClient.open(await bed.socket(bed.agentPort), {
    path: TUNNEL_METHODS.connect,
    metadata: { agentid: "one" },
  });
  await clock.advance(89_999);
  assert.deepEqual([silent.readableEnded, agent.isEnded], [false, false]);
  await clock.advance(2);
  await ended;
  assert.equal(bed.serverCounts.get("connectionRefused agents unused"), 1);
  await clock.advance(3_000_000);
  assert.equal(agent.isEnded, false);
  // Once its stream has ended, the connection has no use.
  const session = await sessionTo(bed);
  const gone = once(session, "close", { signal: AbortSignal.timeout(10_000) });
  const one = stream(session, "two");
  await once(one, "response");
  await clock.advance(200_000);
  assert.equal(session.destroyed, false);
  one.close();
  await once(one, "close");
  for (let turn = 0; turn < 200 && !session.destroyed; turn += 1) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    await clock.advance(1000);
  }
  await gone;
  assert.deepEqual(bed.bugs, []);
});

test("serveAgents: calls of methods that are not served end the connection, and its client is refused when it comes again, until it has rested", async () => {
  const clock = new FakeClock();
  await using bed = await Bed.open({ clock });
  const before = await bed.agent("before");
  const ask = (session: ClientHttp2Session): Promise<unknown> => {
    const head = { ":method": "POST", ":path": "/unknown", "content-type": "application/grpc" };
    const one = session.request(head, { endStream: true });
    one.on("error", () => undefined);
    one.resume();
    return once(one, "close");
  };
  const session = await sessionTo(bed);
  const goAway = once(session, "goaway", { signal: AbortSignal.timeout(10_000) });
  for (let at = 0; at < 100; at += 1) await ask(session);
  assert.equal(session.destroyed, false);
  void ask(session);
  const [code, , text] = await goAway;
  assert.deepEqual([code, String(text)], [11, "too many calls of methods that are not served here"]);
  // Another connection would have the whole burst again.
  const again = await sessionTo(bed);
  const [, , why] = await once(again, "goaway", { signal: AbortSignal.timeout(10_000) });
  assert.match(String(why), /^this client was sent away for a flood; come back in 10 s$/);
  again.destroy();
  await clock.advance(10_000);
  const later = await sessionTo(bed);
  await ask(later);
  later.destroy();
  session.destroy();
  assert.equal(before.mux.isClosed, false);
  assert.deepEqual(bed.bugs, []);
});
