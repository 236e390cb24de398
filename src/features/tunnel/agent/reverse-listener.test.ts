import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { until } from "#test/lab";
import { freePort } from "#test/ports";
import type { DialHandlers } from "../mux/link-handlers.ts";
import { Counts } from "../testing/bed.ts";
import { FakePulse } from "../testing/fake-pulse.ts";
import type { AgentLink } from "./agent-link.ts";
import { ReverseListener } from "./reverse-listener.ts";
import { parseTarget } from "./target.ts";

const DIAL_MS = 10_000;

/** A link that takes dials and answers none; `connections` is what it has besides them. */
function silentLink(connections = 0) {
  const dials: DialHandlers[] = [];
  const mux = {
    ...{ isClosed: false, halfClose: true, reverse: true, connections, taken: 0 },
    get pendingDials(): number {
      return dials.length;
    },
    dial: (request: { readonly random: number }, handlers: DialHandlers) => {
      mux.taken += 1;
      dials.push(handlers);
      return { random: request.random, cancel: () => dials.splice(dials.indexOf(handlers), 1) };
    },
  };
  const pulse = new FakePulse();
  const link = { mux, pulse } as unknown as AgentLink;
  return { link, mux, pulse, dials };
}

/** A listener over links, and clients of it. */
async function listen(
  t: TestContext,
  links: readonly { readonly link: AgentLink }[],
  { maxClients }: { readonly maxClients?: number } = {},
) {
  const clock = new FakeClock();
  const counts = new Counts();
  const port = await freePort();
  const listener = await ReverseListener.open(
    { links: () => links.map(({ link }) => link), metrics: counts.agent(), clock, log: nullLogger },
    {
      bindAddresses: [IpAddress.parse("127.0.0.1")],
      targets: [parseTarget(`${port}:10.0.0.1:443`)],
      allowedSources: [],
      halfCloseTimeoutMs: 1000,
      ...(maxClients === undefined ? {} : { maxClients }),
    },
  );
  t.after(() => listener[Symbol.asyncDispose]());
  const dial = async (localAddress = "127.0.0.1"): Promise<Socket> => {
    const socket = connect({ port, host: "127.0.0.1", localAddress });
    socket.on("error", () => undefined);
    t.after(() => socket.destroy());
    await once(socket, "connect");
    return socket;
  };
  return { clock, counts, dial };
}

test("ReverseListener: a server that has sent no byte since a dial that timed out is probed", async (t) => {
  const one = silentLink();
  const { clock, counts, dial } = await listen(t, [one]);
  await dial();
  await until("it is dialled", () => one.dials.length === 1);
  await clock.advance(DIAL_MS - 1);
  assert.equal(one.pulse.probes, 0);
  await clock.advance(1);
  assert.deepEqual([one.pulse.probes, counts.get("reverseFailed dial")], [1, 1]);
  one.pulse.beat();
  await dial();
  await until("it is dialled", () => one.dials.length === 1);
  one.pulse.beat();
  await clock.advance(DIAL_MS);
  assert.deepEqual([one.pulse.probes, counts.get("reverseFailed dial")], [1, 2]);
});

test("ReverseListener: a server is probed too when the client has left after 5 s without a byte", async (t) => {
  const one = silentLink();
  const { clock, dial } = await listen(t, [one]);
  const socket = await dial();
  await until("it is dialled", () => one.dials.length === 1);
  await clock.advance(5000);
  socket.resetAndDestroy();
  await until("the dial is given up", () => one.dials.length === 0);
  assert.equal(one.pulse.probes, 1);
});

test("ReverseListener: a time-out is tried at another server, and the silent one is chosen no more until it says something", async (t) => {
  const [busy, silent] = [silentLink(10), silentLink()];
  const { clock, counts, dial } = await listen(t, [busy, silent]);
  await dial();
  await until("the least loaded one is dialled", () => silent.dials.length === 1);
  await clock.advance(DIAL_MS);
  assert.deepEqual([silent.pulse.probes, busy.dials.length, counts.get("reverseFailed dial")], [1, 1, 0]);
  for (let at = 2; at <= 6; at += 1) {
    await dial();
    await until(`client ${at} is dialled for`, () => busy.dials.length === at);
  }
  assert.equal(silent.mux.taken, 1);
  silent.pulse.beat();
  await dial();
  await until("it is dialled again", () => silent.dials.length === 1);
  busy.pulse.beat();
  await clock.advance(DIAL_MS);
  // Clients are refused after two servers.
  assert.equal(counts.get("reverseFailed dial"), 1);
});

test("ReverseListener: of the clients that there may be one address has half; its next one is reset, its open ones stay, and another address is served", async (t) => {
  const one = silentLink();
  const { counts, dial } = await listen(t, [one], { maxClients: 6 });
  for (let at = 1; at <= 3; at += 1) {
    await dial("127.0.0.2");
    await until("it is dialled", () => one.dials.length === at);
  }
  for (let at = 1; at <= 5; at += 1) {
    // It may be reset before it knows that it was connected.
    void dial("127.0.0.2").catch(() => undefined);
    await until("it is refused", () => counts.get("reverseFailed limit") === at);
  }
  assert.equal(one.dials.length, 3);
  await dial();
  await until("another is dialled", () => one.dials.length === 4);
});
