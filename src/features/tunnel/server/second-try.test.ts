import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import type { Packet } from "#wire/konnectivity";
import { Bed, type BedOptions, endpointOn } from "../testing/bed.ts";
import { TunnelClient } from "../testing/client.ts";
import type { Strategy } from "./strategies.ts";

/** When a dial without an answer is sent to a second agent, and when an answer is late, in milliseconds. */
const [SECOND_MS, LATE_MS] = [2000, 7000];

async function openBed(options: BedOptions): Promise<{ readonly bed: Bed; readonly clock: FakeClock }> {
  const clock = new FakeClock();
  return { bed: await Bed.open({ ...options, clock }), clock };
}

const client = async (bed: Bed): Promise<TunnelClient> => TunnelClient.open(await bed.socket(bed.frontendPort));

/** Turns of the event loop until the condition holds. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

type DialPacket = Packet & { readonly type: "DIAL_REQ" };
const dialsOf = ({ packets }: TunnelClient): DialPacket[] =>
  packets.filter((packet): packet is DialPacket => packet.type === "DIAL_REQ");

const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
const CLAIMS = HOSTS.map((host) => `ipv4=${host}`).join("&");

for (const [strategies, delayMs] of [
  [["destHost", "default"], 0],
  [["default"], SECOND_MS],
] as readonly (readonly [readonly Strategy[], number])[]) {
  test(`Forwarder: 100 agents that come later, claim a good agent's hosts and answer nothing lose 0 of 40 dials, with ${strategies}`, async () => {
    const { bed, clock } = await openBed({ strategies });
    await using _ = bed;
    await bed.agent("good", CLAIMS);
    const evil = await Promise.all(Array.from({ length: 100 }, (_none, at) => bed.rawAgent(`evil${at}`, [], CLAIMS)));
    const addresses = await Promise.all(HOSTS.map((host) => endpointOn(bed, host)));
    const clients = await Promise.all(Array.from({ length: 40 }, () => client(bed)));
    const dials = clients.map((one, at) => one.dial(addresses[at % addresses.length] ?? ""));
    const sent = (): number => bed.serverCounts.get("to_agent DIAL_REQ");
    await until(() => sent() >= 40);
    await clock.advance(delayMs);
    const outcomes = await Promise.all(dials);
    assert.deepEqual(new Set(outcomes.map(({ kind }) => kind)), new Set(["open"]));
    if (delayMs === 0) assert.deepEqual(evil.flatMap(dialsOf), []);
    for (const one of clients) one.destroy();
    await clock.advance(LATE_MS);
    await until(() => bed.proxy.backends.all.every(({ load }) => load === 0));
    assert.deepEqual([bed.serverCounts.get("pending"), bed.serverCounts.get("established"), bed.bugs], [0, 0, []]);
  });
}

test("Forwarder: a first agent of hosts that answers nothing costs dials 2 s, and hardly a dial once it is silent, until it answers one", async () => {
  const { bed, clock } = await openBed({ strategies: ["destHost"] });
  await using _ = bed;
  const hole = await bed.rawAgent("hole", [], CLAIMS);
  const good = await bed.agent("good", CLAIMS);
  const addresses = await Promise.all(HOSTS.map((host) => endpointOn(bed, host)));
  /** Resolves with how many of so many dials went to the silent agent first. */
  const dialAll = async (count: number): Promise<number> => {
    const before = [dialsOf(hole).length, bed.serverCounts.get("to_agent DIAL_REQ")] as const;
    const clients = await Promise.all(Array.from({ length: count }, () => client(bed)));
    const dials = clients.map((one, at) => one.dial(addresses[at % addresses.length] ?? ""));
    await until(() => bed.serverCounts.get("to_agent DIAL_REQ") >= before[1] + count);
    await clock.advance(SECOND_MS);
    assert.deepEqual(new Set((await Promise.all(dials)).map(({ kind }) => kind)), new Set(["open"]));
    await until(() => bed.proxy.backends.all.some(({ agentID, load }) => agentID === "good" && load >= count));
    return dialsOf(hole).length - before[0];
  };
  assert.equal(await dialAll(3), 3);
  const [backend] = bed.proxy.backends.all;
  assert.ok(backend !== undefined);
  await clock.advance(LATE_MS - SECOND_MS - 1);
  assert.equal(backend.health.isSilent, false);
  await clock.advance(1);
  assert.equal(backend.health.isSilent, true);
  await hole.until(() => hole.packets.filter(({ type }) => type === "DIAL_CLS").length === 3);
  assert.equal(backend.load, 0, "nothing of its dials is left");
  // Each dial is its trial with a chance of 1 of 64.
  const trials = await dialAll(40);
  assert.ok(trials < 12, `${trials} of 40 dials`);
  good.mux.end();
  await until(() => bed.proxy.backends.all.length === 1);
  const last = await client(bed);
  const dial = last.dial("127.0.0.1:9");
  await hole.until(() => dialsOf(hole).length === 3 + trials + 1);
  hole.send({ type: "DIAL_RSP", error: "connection refused", connectID: 0, random: dialsOf(hole).at(-1)?.random ?? 0 });
  assert.equal((await dial).kind, "refused");
  assert.equal(backend.health.isSilent, false);
});

for (const frontend of ["gRPC", "CONNECT"] as const) {
  test(`Forwarder: the first answer wins, and a connection that the other agent opens later is closed at once, over ${frontend}`, async () => {
    const { bed, clock } = await openBed({});
    await using _ = bed;
    const agents = [await bed.rawAgent("one"), await bed.rawAgent("two")];
    const opened = async (): Promise<() => boolean> => {
      if (frontend === "gRPC") {
        const one = await client(bed);
        void one.dial("10.0.0.1:80");
        return () => one.packets.some((packet) => packet.type === "DIAL_RSP" && packet.error === "");
      }
      const socket = await bed.socket(bed.connectPort);
      let text = "";
      socket.on("data", (bytes: Buffer) => (text += bytes.toString()));
      socket.write("CONNECT 10.0.0.1:80 HTTP/1.1\r\nHost: 10.0.0.1:80\r\n\r\n");
      return () => text.startsWith("HTTP/1.1 200 ");
    };
    const isOpen = await opened();
    await until(() => agents.some((agent) => dialsOf(agent).length === 1));
    const slow = agents.find((agent) => dialsOf(agent).length === 1);
    const quick = agents.find((agent) => agent !== slow);
    assert.ok(slow !== undefined && quick !== undefined);
    await clock.advance(SECOND_MS - 1);
    assert.deepEqual(dialsOf(quick), []);
    await clock.advance(1);
    await quick.until(() => dialsOf(quick).length === 1);
    const [random] = dialsOf(quick).map((packet) => packet.random);
    assert.ok(random !== undefined);
    quick.send({ type: "DIAL_RSP", error: "", connectID: 7, random });
    await until(isOpen);
    slow.send({ type: "DIAL_RSP", error: "", connectID: 9, random });
    await slow.until(() => slow.packets.some((packet) => packet.type === "CLOSE_REQ" && packet.connectID === 9));
    slow.send({ type: "CLOSE_RSP", error: "", connectID: 9 });
    await until(
      () =>
        bed.proxy.backends.all
          .map(({ load }) => load)
          .toSorted()
          .join() === "0,1",
    );
    assert.deepEqual([bed.serverCounts.get("pending"), bed.serverCounts.get("established")], [0, 1]);
    assert.equal(bed.serverCounts.get("dialFailed unrecognized_response"), 0);
  });
}

test("Forwarder: there is one second try, whose error waits for the first agent; the first agent's counts at once", async () => {
  for (const [first, second, expected] of [
    ["", "no route to host", "open"],
    ["connection refused", undefined, "connection refused"],
    [undefined, "no route to host", "no route to host"],
  ] as const) {
    const { bed, clock } = await openBed({});
    await using _ = bed;
    const agents = await Promise.all(["a", "b", "c"].map((id) => bed.rawAgent(id)));
    const one = await client(bed);
    const dial = one.dial("10.0.0.1:80");
    const tried = (): TunnelClient[] => agents.filter((agent) => dialsOf(agent).length > 0);
    await until(() => tried().length === 1);
    const [early] = tried();
    await clock.advance(SECOND_MS);
    await until(() => tried().length === 2);
    const late = tried().find((agent) => agent !== early);
    const answer = (agent: TunnelClient | undefined, error: string): void => {
      const random = agent === undefined ? 0 : (dialsOf(agent)[0]?.random ?? 0);
      agent?.send({ type: "DIAL_RSP", error, connectID: error === "" ? 1 : 0, random });
    };
    const answers = (): number => bed.serverCounts.get("from_agent DIAL_RSP");
    if (second !== undefined) answer(late, second);
    if (second !== undefined) await until(() => answers() === 1);
    assert.deepEqual(
      one.packets.filter(({ type }) => type === "DIAL_RSP"),
      [],
    );
    if (first === undefined) await clock.advance(LATE_MS - SECOND_MS);
    else answer(early, first);
    const outcome = await dial;
    assert.equal(outcome.kind === "refused" ? outcome.error : outcome.kind, expected);
    await clock.advance(LATE_MS);
    assert.equal(tried().length, 2);
  }
});

test("Forwarder: a client that leaves cancels both tries, which count for nothing", async () => {
  const { bed, clock } = await openBed({});
  await using _ = bed;
  const agents = [await bed.rawAgent("one"), await bed.rawAgent("two")];
  const clients = await Promise.all(HOSTS.map(() => client(bed)));
  for (const [at, one] of clients.entries()) void one.dial(`10.0.0.${at}:80`).catch(() => undefined);
  const sent = (): number => agents.flatMap(dialsOf).length;
  await until(() => sent() === 3);
  await clock.advance(SECOND_MS);
  await until(() => sent() === 6);
  await clock.advance(LATE_MS - SECOND_MS - 1);
  for (const one of clients) one.destroy();
  const cancelled = (): number =>
    agents.flatMap(({ packets }) => packets).filter(({ type }) => type === "DIAL_CLS").length;
  await until(() => cancelled() === 6);
  await clock.advance(LATE_MS);
  assert.deepEqual(
    bed.proxy.backends.all.map(({ load, health }) => [load, health.isSilent]),
    [
      [0, false],
      [0, false],
    ],
  );
  assert.deepEqual([bed.serverCounts.get("pending"), bed.serverCounts.get("dialFailed frontend_close")], [0, 3]);
});
