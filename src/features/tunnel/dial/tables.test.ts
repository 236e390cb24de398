import assert from "node:assert/strict";
import { test } from "node:test";
import { type AcceptorEvent, type AcceptorState, acceptorTable } from "./acceptor-table.ts";
import { type DiallerEvent, type DiallerState, diallerTable } from "./dialler-table.ts";

/** Follows events from the first state; returns the states and all actions. */
function follow<State extends string, Event extends string>(
  table: Readonly<Record<string, Readonly<Record<string, readonly [string, ...string[]]>>>>,
  events: readonly Event[],
): { readonly states: State[]; readonly actions: string[] } {
  let state = "dialing";
  const states: string[] = [];
  const actions: string[] = [];
  for (const event of events) {
    const row = table[state]?.[event];
    if (row === undefined) break;
    const [next, ...does] = row;
    state = next;
    states.push(next);
    actions.push(...does);
  }
  return { states: states as State[], actions };
}

const ACCEPTOR: readonly {
  readonly why: string;
  readonly halfClose: boolean;
  readonly events: readonly AcceptorEvent[];
  readonly states: readonly AcceptorState[];
  readonly actions: readonly string[];
}[] = [
  {
    why: "the dialler closes: the endpoint gets what has come, then CLOSE_RSP follows",
    halfClose: true,
    events: ["connected", "peer-close", "flushed"],
    states: ["open", "closing", "closed"],
    actions: ["accept", "stop-reading", "end-endpoint", "send-close", "drop-endpoint"],
  },
  {
    why: "the endpoint ends and the peer knows no FIN: CLOSE_RSP after its bytes, then it is flushed",
    halfClose: false,
    events: ["connected", "eof", "flushed"],
    states: ["open", "lingering", "closed"],
    actions: ["accept", "send-close", "end-endpoint", "drop-endpoint"],
  },
  {
    why: "the endpoint ends first, the dialler goes on and ends later",
    halfClose: true,
    events: ["connected", "eof", "peer-fin", "flushed"],
    states: ["open", "endpoint-done", "closing", "closed"],
    actions: ["accept", "send-fin", "end-endpoint", "send-close", "drop-endpoint"],
  },
  {
    why: "the dialler ends first, the endpoint answers and ends",
    halfClose: true,
    events: ["connected", "peer-fin", "eof", "flushed"],
    states: ["open", "peer-done", "lingering", "closed"],
    actions: ["accept", "end-endpoint", "send-close", "drop-endpoint"],
  },
  {
    why: "the endpoint resets: CLOSE_RSP with the error behind its bytes",
    halfClose: true,
    events: ["connected", "gone"],
    states: ["open", "closed"],
    actions: ["accept", "send-failure", "drop-endpoint"],
  },
  {
    why: "a dial that is given up says nothing more",
    halfClose: true,
    events: ["cancelled", "connected"],
    states: ["closed"],
    actions: ["abort-dial"],
  },
  {
    why: "a failed dial is answered",
    halfClose: true,
    events: ["failed"],
    states: ["closed"],
    actions: ["refuse"],
  },
  {
    why: "an endpoint that takes nothing at the end is dropped",
    halfClose: true,
    events: ["connected", "peer-close", "stuck"],
    states: ["open", "closing", "closed"],
    actions: ["accept", "stop-reading", "end-endpoint", "send-failure", "drop-endpoint"],
  },
  {
    why: "an endpoint that has ended and takes nothing is dropped, and its own last bytes go on",
    halfClose: true,
    events: ["connected", "peer-fin", "eof", "stuck"],
    states: ["open", "peer-done", "lingering", "closed"],
    actions: ["accept", "end-endpoint", "send-close", "drop-endpoint"],
  },
];

for (const { why, halfClose, events, states, actions } of ACCEPTOR) {
  test(`acceptorTable: ${why}`, () => {
    const followed = follow<AcceptorState, AcceptorEvent>(acceptorTable({ halfClose }), events);
    assert.deepEqual(followed, { states: [...states], actions: [...actions] });
  });
}

const SOCKET = { linkHalfClose: true, localHalfClose: true };
const OLD_PEER = { linkHalfClose: false, localHalfClose: true };
const FRONTEND = { linkHalfClose: true, localHalfClose: false };
const DIALLER: readonly {
  readonly why: string;
  readonly traits: typeof SOCKET;
  readonly events: readonly DiallerEvent[];
  readonly states: readonly DiallerState[];
  readonly actions: readonly string[];
}[] = [
  {
    why: "the client ends its sending, the endpoint answers and ends",
    traits: SOCKET,
    events: ["accepted", "local-eof", "peer-fin", "peer-closed", "flushed"],
    states: ["open", "local-done", "waiting", "finishing", "closed"],
    actions: ["announce", "send-fin", "end-local", "end-local", "drop-local"],
  },
  {
    why: "a peer without FIN: the endpoint's end is waited for",
    traits: OLD_PEER,
    events: ["accepted", "local-eof", "peer-closed", "flushed"],
    states: ["open", "local-done-quietly", "finishing", "closed"],
    actions: ["announce", "end-local", "drop-local"],
  },
  {
    why: "a peer without FIN that stays silent is asked to close",
    traits: OLD_PEER,
    events: ["accepted", "local-eof", "idle", "peer-closed", "flushed"],
    states: ["open", "local-done-quietly", "waiting", "finishing", "closed"],
    actions: ["announce", "send-close", "end-local", "drop-local"],
  },
  {
    why: "a frontend cannot be half-closed: the endpoint's FIN ends the connection",
    traits: FRONTEND,
    events: ["accepted", "peer-fin", "peer-closed", "flushed"],
    states: ["open", "waiting", "finishing", "closed"],
    actions: ["announce", "send-close", "end-local", "drop-local"],
  },
  {
    why: "a client that leaves while dialling cancels the dial",
    traits: SOCKET,
    events: ["local-gone", "accepted"],
    states: ["closed"],
    actions: ["cancel-dial"],
  },
  {
    why: "a client that vanishes is abandoned: CLOSE_REQ at once",
    traits: SOCKET,
    events: ["accepted", "local-gone"],
    states: ["open", "closed"],
    actions: ["announce", "abandon"],
  },
  {
    why: "a client that leaves after it has ended its sending loses nothing of it",
    traits: SOCKET,
    events: ["accepted", "local-eof", "local-gone"],
    states: ["open", "local-done", "closed"],
    actions: ["announce", "send-fin", "leave"],
  },
  {
    why: "a client that may have left is given up after a while in which nothing came for it",
    traits: SOCKET,
    events: ["accepted", "local-eof", "idle", "peer-closed", "flushed"],
    states: ["open", "local-done", "waiting", "finishing", "closed"],
    actions: ["announce", "send-fin", "send-close", "end-local", "drop-local"],
  },
  {
    why: "a lost link while dialling fails the dial, later it ends the client after what has come",
    traits: SOCKET,
    events: ["accepted", "link-lost", "flushed"],
    states: ["open", "finishing", "closed"],
    actions: ["announce", "end-local", "drop-local"],
  },
  {
    why: "a dial without an answer is cancelled and told",
    traits: SOCKET,
    events: ["dial-timeout"],
    states: ["closed"],
    actions: ["cancel-dial", "fail"],
  },
  {
    why: "a dial that another link has won is closed when it is answered, and the local side is not touched",
    traits: SOCKET,
    events: ["superseded", "local-eof", "local-close", "accepted"],
    states: ["superseded", "superseded", "superseded", "closed"],
    actions: ["abandon"],
  },
  {
    why: "a dial that another link has won is cancelled when its answer is waited for no longer",
    traits: SOCKET,
    events: ["superseded", "local-gone"],
    states: ["superseded", "closed"],
    actions: ["cancel-dial"],
  },
  {
    why: "a peer that never confirms a close is abandoned",
    traits: SOCKET,
    events: ["accepted", "local-close", "stuck"],
    states: ["open", "waiting", "closed"],
    actions: ["announce", "send-close", "abandon", "drop-local"],
  },
];

for (const { why, traits, events, states, actions } of DIALLER) {
  test(`diallerTable: ${why}`, () => {
    const followed = follow<DiallerState, DiallerEvent>(diallerTable(traits), events);
    assert.deepEqual(followed, { states: [...states], actions: [...actions] });
  });
}

test("both tables: every event in every state has a row, and from every state an end can be reached", () => {
  const tables: Readonly<Record<string, Readonly<Record<string, readonly [string, ...string[]]>>>>[] = [];
  for (const one of [true, false]) {
    tables.push(acceptorTable({ halfClose: one }));
    for (const other of [true, false]) tables.push(diallerTable({ linkHalfClose: one, localHalfClose: other }));
  }
  for (const table of tables) {
    const ending = new Set(["closed"]);
    for (let before = -1; before !== ending.size; ) {
      before = ending.size;
      for (const [state, rows] of Object.entries(table)) {
        if (Object.values(rows).some(([next]) => ending.has(next))) ending.add(state);
      }
    }
    assert.deepEqual(
      Object.keys(table).filter((state) => !ending.has(state)),
      [],
    );
    const events = Object.keys(table["dialing"] ?? {}).sort();
    for (const rows of Object.values(table)) {
      assert.deepEqual(Object.keys(rows).sort(), events);
      for (const [next] of Object.values(rows)) assert.ok(next === "closed" || next in table, next);
    }
  }
});
