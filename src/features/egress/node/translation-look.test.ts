import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { FakeConntrack } from "#kernel/conntrack";
import type { EventInput } from "#kube/events";
import { TranslationLook } from "./translation-look.ts";

const PORT = 5555;

test("TranslationLook: a pod whose tunnel packets leave with another source is told once, with both addresses; others, and packets to other ports, are not", async () => {
  const conntrack = new FakeConntrack();
  const events: EventInput[] = [];
  const look = new TranslationLook(
    {
      openConntrack: () => conntrack,
      events: { record: (event) => void events.push(event) },
      log: nullLogger,
      clock: new FakeClock(),
    },
    { port: PORT },
  );
  const add = (from: string, as: string, dstPort = PORT): void => {
    const [src, dst] = [IpAddress.parse(from), IpAddress.parse("10.68.0.9")];
    const original = { src, dst, dstPort };
    const reply = { src: IpAddress.parse("10.64.0.8"), dst: IpAddress.parse(as) };
    conntrack.entries.push({ family: 4, protocol: 17, original, reply, mark: 0 });
  };
  for (const [uid, address] of [
    ["translated", "10.64.0.7"],
    ["direct", "10.64.0.6"],
    ["silent", "10.64.0.5"],
  ] as const)
    look.add({ uid, name: uid, namespace: "default", addresses: [IpAddress.parse(address)] });
  await look.look();
  assert.equal(look.count, 0);
  add("10.64.0.7", "192.0.2.1");
  add("10.64.0.6", "10.64.0.6");
  add("10.64.0.5", "192.0.2.1", 53);
  for (let times = 0; times < 2; times += 1) await look.look();
  assert.deepEqual(
    events.map(({ regarding, reason }) => [regarding.name, reason]),
    [["translated", "EgressTranslated"]],
  );
  assert.match(
    events[0]?.note ?? "",
    /leave this node as 192\.0\.2\.1 and not as 10\.64\.0\.7.*clusterCIDR.*masqueradeAll.*ipMasq/,
  );
  assert.equal(look.count, 1);
  look.forget("translated");
  assert.equal(look.count, 0);
});
