import assert from "node:assert/strict";
import { test } from "node:test";
import { DialHealth } from "./dial-health.ts";

/** `>a`: a dial to the host a is sent. `a!`: it is overdue. `+`: a dial is answered. */
const CASES: readonly {
  readonly why: string;
  readonly events: string;
  readonly isSilent: boolean;
}[] = [
  { why: "an agent without dials", events: "", isSilent: false },
  { why: "two hosts may be away", events: ">a >b a! b!", isSilent: false },
  { why: "many dials to two hosts", events: ">a >a >b >b a! a! b! b!", isSilent: false },
  { why: "three hosts", events: ">a >b >c a! b! c!", isSilent: true },
  { why: "three hosts, one after the other", events: ">a a! >b b! >c c!", isSilent: true },
  { why: "dials that were given up earlier count for nothing", events: ">a >b >c >d a! d!", isSilent: false },
  { why: "an answer meanwhile", events: ">a a! >b b! + >c c!", isSilent: false },
  { why: "an answer after a dial was sent, before it is overdue", events: ">a >b >c + a! b! c!", isSilent: false },
  { why: "three more after an answer", events: ">a a! + >b >c >d b! c! d!", isSilent: true },
  { why: "it answers again", events: ">a >b >c a! b! c! +", isSilent: false },
  { why: "more than three", events: ">a >b >c >d >e a! b! c! d! e!", isSilent: true },
];

for (const { why, events, isSilent } of CASES) {
  test(`DialHealth: ${why}: the agent is ${isSilent ? "silent" : "healthy"}`, () => {
    const health = new DialHealth();
    const marks = new Map<string, number>();
    for (const event of events.split(" ").filter((one) => one !== "")) {
      if (event === "+") health.answered();
      else if (event.startsWith(">")) marks.set(event.slice(1), health.mark);
      else health.overdue(event.slice(0, -1), marks.get(event.slice(0, -1)) ?? -1);
    }
    assert.equal(health.isSilent, isSilent);
    assert.equal(health.hasAnswered, events.includes("+"));
  });
}
