/** docs/spec/tunnel.md#2, #3: lawful connection ids, who assigns them, and the handling of others. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { frameData, type Packet, type TunnelId, tunnelId } from "#wire/konnectivity";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

async function frontend(bed: Bed): Promise<TunnelClient> {
  return TunnelClient.open(await bed.socket(bed.frontendPort));
}

type Of<T extends Packet["type"]> = Extract<Packet, { readonly type: T }>;

/** The received packets of one type. */
function packetsOf<T extends Packet["type"]>({ packets }: TunnelClient, type: T): Of<T>[] {
  return packets.filter((packet): packet is Of<T> => packet.type === type);
}

/** Answers the next dial to an agent that the test plays. */
async function answer(agent: TunnelClient, seen: number, connectID: TunnelId): Promise<void> {
  await agent.until(() => packetsOf(agent, "DIAL_REQ").length > seen);
  const { random } = packetsOf(agent, "DIAL_REQ")[seen] ?? assert.fail("no dial");
  agent.send({ type: "DIAL_RSP", error: "", connectID, random });
}

const anyId = fc
  .oneof(
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
    fc.constantFrom(2n ** 40n, 2n ** 40n + 1n, 2n ** 53n, -1n),
  )
  .filter((id) => id !== 0n)
  .map(tunnelId);

test("ids: an agent that does not dial may choose any int64, and each connection has its bytes", async () => {
  await using bed = await Bed.open({ allowedDestinations: ["127.0.0.1:1"] });
  const agent = await bed.rawAgent();
  await fc.assert(
    fc.asyncProperty(anyId, async (connectID) => {
      const client = await frontend(bed);
      const seen = packetsOf(agent, "DIAL_REQ").length;
      const dialled = client.dial("127.0.0.1:1");
      await answer(agent, seen, connectID);
      assert.deepEqual(await dialled, { kind: "open", connectID });
      agent.sendRaw(Buffer.concat([frameData(connectID, 3), Buffer.from("abc")]));
      await client.until(() => client.received === 3);
      const had = agent.received;
      client.write(Buffer.from("four"));
      await agent.until(() => agent.received === had + 4);
      client.close();
      await agent.until(() => packetsOf(agent, "CLOSE_REQ").some((packet) => packet.connectID === connectID));
      agent.send({ type: "CLOSE_RSP", error: "", connectID });
      await client.closed();
      client.destroy();
    }),
    { numRuns: 50 },
  );
  assert.deepEqual(bed.bugs, []);
});

test("ids: with reverse/1 an agent's answer with an id of the server's range is refused, and closed at the agent", async () => {
  await using bed = await Bed.open({ allowedDestinations: ["127.0.0.1:1"] });
  const agent = await bed.rawAgent("raw", ["reverse/1"]);
  const client = await frontend(bed);
  const dialled = client.dial("127.0.0.1:1");
  await answer(agent, 0, 2 ** 40 + 7);
  assert.equal((await dialled).kind, "refused");
  await agent.until(() => packetsOf(agent, "CLOSE_REQ").length === 1);
  assert.equal(packetsOf(agent, "CLOSE_REQ")[0]?.connectID, 2 ** 40 + 7);
});

test("ids: an id that is given twice ends both connections, and is closed at the agent", async () => {
  await using bed = await Bed.open();
  const agent = await bed.rawAgent();
  const [first, second] = [await frontend(bed), await frontend(bed)];
  const opened = first.dial("127.0.0.1:1");
  await answer(agent, 0, 7);
  assert.equal((await opened).kind, "open");
  const dialled = second.dial("127.0.0.1:2");
  await answer(agent, 1, 7);
  assert.equal((await dialled).kind, "refused");
  assert.match((await first.closed()).error, /id/);
  await agent.until(() => packetsOf(agent, "CLOSE_REQ").length === 1);
  agent.sendRaw(Buffer.concat([frameData(7, 3), Buffer.from("abc")]));
  agent.send({ type: "DRAIN" });
  assert.equal(first.received + second.received, 0);
});

test("ids: DATA of a frontend with id 0, or with another type's payload, is dropped and nothing else happens", async () => {
  await using bed = await Bed.open();
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.pipe(socket));
  const client = await frontend(bed);
  // DATA with id 0; DATA with the payload of CLOSE_REQ; DATA with none.
  const dropped = [
    Buffer.concat([frameData(0, 3), Buffer.from("abc")]),
    Buffer.from("00000000060804" + "2a020801", "hex"),
    Buffer.from("00000000020804", "hex"),
  ];
  for (const bytes of dropped) client.sendRaw(bytes);
  assert.equal((await client.dial(`127.0.0.1:${port}`)).kind, "open");
  for (const bytes of dropped) client.sendRaw(bytes);
  client.write(Buffer.from("xyz"));
  await client.until(() => client.received === 3);
  assert.deepEqual(
    client.packets.map(({ type }) => type),
    ["DIAL_RSP"],
  );
  client.close();
  await client.closed();
  for (const bytes of dropped) client.sendRaw(bytes);
  assert.deepEqual(bed.bugs, []);
});
