import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeTry, type OtherTries, type TryOutcome, type Verdict } from "./judge-try.ts";

const ALONE: OtherTries = { earlierOwes: false, othersWait: false, holdsError: false };
const SECOND: OtherTries = { ...ALONE, earlierOwes: true, othersWait: true };

const CASES: readonly (readonly [why: string, TryOutcome, OtherTries, Verdict])[] = [
  ["the error of the only agent", "refused", ALONE, "fail"],
  ["the first agent's error while the second one waits", "refused", { ...ALONE, othersWait: true }, "fail"],
  ["the second agent's error while the first one owes its answer", "refused", SECOND, "hold"],
  ["the second agent gives up while the first one owes its answer", "aborted", SECOND, "hold"],
  ["the second agent's error after the first one's time", "refused", { ...SECOND, earlierOwes: false }, "fail"],
  [
    "the first agent's time is over and the second one's error is held",
    "overdue",
    { ...ALONE, holdsError: true },
    "fail-held",
  ],
  ["the first agent's time is over and the second one waits", "overdue", { ...ALONE, othersWait: true }, "wait"],
  ["the only agent's time is over", "overdue", ALONE, "wait"],
  ["the second agent's time is over", "overdue", SECOND, "wait"],
  ["the link of the only agent is lost", "link-lost", ALONE, "move"],
  ["the link of one of two is lost", "link-lost", { ...ALONE, othersWait: true }, "wait"],
  [
    "the link of the first is lost, and the second one's error is held",
    "link-lost",
    { ...ALONE, holdsError: true },
    "fail-held",
  ],
  ["nobody answers", "timeout", ALONE, "fail"],
  ["nobody answers, one of two", "timeout", { ...ALONE, othersWait: true }, "fail"],
  ["nobody else answers, and an error is held", "timeout", { ...ALONE, holdsError: true }, "fail-held"],
];

for (const [why, outcome, others, verdict] of CASES) {
  test(`judgeTry: ${why}: ${verdict}`, () => assert.equal(judgeTry(outcome, others), verdict));
}
