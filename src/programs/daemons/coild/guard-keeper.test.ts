import assert from "node:assert/strict";
import { test } from "node:test";
import { Health } from "#base/health";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { GuardError, type Refusal } from "#features/source-guard";
import { GuardKeeper, noteOf, SOURCE_REFUSED } from "./guard-keeper.ts";
import type { PodNote } from "./pod-notes.ts";

const POD = IpAddress.parse("10.1.0.2");
const FORGED = IpAddress.parse("10.9.9.9");
const SURVEY = {
  attached: [{ pool: "default", containerId: "aaaa", ifname: "eth0", ifindex: 7, hostName: "veth7", addresses: [POD] }],
  bare: [],
  pending: [],
  unowned: [],
};

function bed(mode: "on" | "count" = "on") {
  const state = { refusals: [] as Refusal[], isDamaged: false, failure: undefined as Error | undefined, repaired: 0 };
  const notes: (PodNote & { readonly addresses: readonly string[] })[] = [];
  const health = new Health();
  const keeper = new GuardKeeper(
    {
      guard: { isDamaged: () => state.isDamaged, refusals: () => state.refusals, isOn: true },
      network: {
        judgesAll: true,
        guard: () => {
          if (state.failure !== undefined) throw state.failure;
          return 0;
        },
      },
      notes: { add: (addresses, note) => notes.push({ ...note, addresses: addresses.map(String) }) },
      health: health.part("source-guard"),
      onRepaired: () => {
        state.repaired += 1;
      },
      log: nullLogger,
    },
    mode,
  );
  const part = () => health.parts.find(({ name }) => name === "source-guard");
  return { state, notes, keep: () => keeper.keep(SURVEY, () => undefined), part };
}

test("GuardKeeper: the first refused packet of a pod for a reason is an event, further ones are none", () => {
  const { state, notes, keep } = bed();
  keep();
  state.refusals = [{ reason: "source", ifindex: 7, source: FORGED }];
  keep();
  keep();
  assert.deepEqual(
    notes.map(({ reason, addresses }) => [reason, ...addresses]),
    [[SOURCE_REFUSED, "10.1.0.2"]],
  );
  for (const part of ["veth7", "10.9.9.9", "isthmus.dev/extra-sources", "isthmus.dev/allowed-sources", "dropped"])
    assert.ok(notes[0]?.note.includes(part), part);
  state.refusals = [...state.refusals, { reason: "arp", ifindex: 7, source: FORGED }];
  keep();
  assert.equal(notes.length, 2);
  state.refusals = [...state.refusals, { reason: "outside", ifindex: 2, source: POD }];
  keep();
  assert.equal(notes.length, 2, "a pod is not told of packets that others send");
});

test("GuardKeeper: with count the event says that the packet passed", () => {
  const { state, notes, keep, part } = bed("count");
  state.refusals = [{ reason: "link-local", ifindex: 7, source: FORGED }];
  keep();
  assert.match(notes[0]?.note ?? "", /would be dropped with --source-guard=on/);
  assert.match(part()?.reason ?? "", /drops nothing/);
  assert.doesNotMatch(noteOf({ reason: "link-local", source: FORGED }, "veth7", "dropped"), /extra-sources/);
});

test("GuardKeeper: a guard that cannot be written is named by health and throws nothing, and is fine again when it can be; damage is counted", () => {
  const { state, keep, part } = bed();
  state.failure = new GuardError("refused", "Cannot write: no");
  keep();
  assert.deepEqual([part()?.status, part()?.reason], ["degraded", "Cannot write: no"]);
  state.failure = new Error("a bug");
  assert.throws(keep, /a bug/);
  state.failure = undefined;
  state.isDamaged = true;
  keep();
  assert.deepEqual([part()?.status, state.repaired], ["ok", 1]);
});
