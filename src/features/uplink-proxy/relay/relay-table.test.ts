import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { RELAY_TABLE, type RelayAction, type RelayEvent, type RelayState } from "./relay-table.ts";

interface Walk {
  readonly states: readonly RelayState[];
  readonly actions: readonly RelayAction[];
}

/** Follows events from the first state until the last one. */
function follow(events: readonly RelayEvent[]): Walk {
  let state: RelayState = "unanswered";
  const states: RelayState[] = [];
  const actions: RelayAction[] = [];
  for (const event of events) {
    if (state === "closed") break;
    const [next, ...more]: readonly [RelayState, ...RelayAction[]] = [...RELAY_TABLE[state][event]];
    state = next;
    states.push(next);
    actions.push(...more);
  }
  return { states, actions };
}

const WALKS: readonly ({ readonly why: string; readonly events: readonly RelayEvent[] } & Walk)[] = [
  {
    why: "a request, its answer, and both sides end in order",
    events: ["first-byte", "client-ended", "upstream-ended", "client-closed", "upstream-closed"],
    states: ["open", "client-ended", "both-ended", "client-closed", "closed"],
    actions: ["report-first-byte", "end-upstream", "end-client", "report-closed"],
  },
  {
    why: "the client ends first, and the answer comes after",
    events: ["client-ended", "first-byte", "upstream-ended", "upstream-closed", "client-closed"],
    states: ["unanswered-client-ended", "client-ended", "both-ended", "upstream-closed", "closed"],
    actions: ["end-upstream", "report-first-byte", "end-client", "report-closed"],
  },
  {
    why: "the destination ends without a byte, and the client goes on until it ends",
    events: ["upstream-ended", "client-ended", "client-closed", "upstream-closed"],
    states: ["upstream-ended", "both-ended", "client-closed", "closed"],
    actions: ["end-client", "end-upstream", "report-closed"],
  },
  {
    why: "RST of the client is RST of the destination",
    events: ["first-byte", "client-reset", "upstream-reset"],
    states: ["open", "client-closed", "closed"],
    actions: ["report-first-byte", "reset-upstream", "report-closed"],
  },
  {
    why: "RST of the destination is RST of the client",
    events: ["upstream-reset", "client-reset"],
    states: ["upstream-closed", "closed"],
    actions: ["reset-client", "report-closed"],
  },
  {
    why: "a client that ended and is lost: its bytes still reach the destination, which may answer",
    events: ["client-ended", "client-gone", "first-byte", "upstream-reset"],
    states: ["unanswered-client-ended", "client-closed", "client-closed", "closed"],
    actions: ["end-upstream", "flush-then-reset-upstream", "report-first-byte", "report-closed"],
  },
  {
    why: "a destination that ended and is lost takes nothing from a slow client that still sends",
    events: ["first-byte", "upstream-ended", "upstream-gone", "client-ended", "client-closed"],
    states: ["open", "upstream-ended", "upstream-closed", "upstream-closed", "closed"],
    actions: ["report-first-byte", "end-client", "discard-client", "report-closed"],
  },
];

test("RELAY_TABLE: each walk has its states and actions", () => {
  for (const { why, events, states, actions } of WALKS) assert.deepEqual(follow(events), { states, actions }, why);
});

const SIDES = ["client", "upstream"] as const;
const KINDS = ["closed", "reset", "gone"] as const;
const CLOSES = SIDES.flatMap((side) => KINDS.map((kind) => `${side}-${kind}` as const));
const ANY_EVENT = fc.constantFrom<RelayEvent>("first-byte", "client-ended", "upstream-ended", ...CLOSES);

test("RELAY_TABLE: whatever happens, it is closed when both sockets are, and that is reported once (property)", () => {
  fc.assert(
    fc.property(fc.array(ANY_EVENT), (events) => {
      const { states, actions } = follow(events);
      const isGone = (side: string): boolean =>
        events.some((event) => KINDS.some((kind) => event === `${side}-${kind}`));
      assert.equal(states.at(-1) === "closed", SIDES.every(isGone));
      assert.equal(actions.filter((action) => action === "report-closed").length, states.at(-1) === "closed" ? 1 : 0);
    }),
  );
});

test("RELAY_TABLE: a side that is closed is never ended or reset (property)", () => {
  fc.assert(
    fc.property(fc.array(ANY_EVENT), (events) => {
      const closed = new Set<string>();
      events.forEach((event, at) => {
        const before = follow(events.slice(0, at)).actions.length;
        const [side = "", kind = ""] = event.split("-");
        if (KINDS.some((one) => one === kind)) closed.add(side);
        for (const action of follow(events.slice(0, at + 1)).actions.slice(before)) {
          const target = /(client|upstream)$/.exec(action)?.[1];
          assert.ok(target === undefined || !closed.has(target), `${action} after ${[...closed].join(", ")}`);
        }
      });
    }),
  );
});
