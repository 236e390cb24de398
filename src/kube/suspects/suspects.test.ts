import assert from "node:assert/strict";
import { test } from "node:test";
import { afterEnd, asideFor, describeAside, MAX_SUSPECTS, type Pass, type Suspect } from "./suspects.ts";

const MINUTE = 60_000;
const pass = (key: string, atMs: number, version = "1"): Pass => ({ controller: "egress", key, version, atMs });
/** Ends of the process at these times, while these passes were under way. */
const endings = (...ends: readonly (readonly Pass[])[]): readonly Suspect[] =>
  ends.reduce<readonly Suspect[]>((before, underWay) => afterEnd(before, underWay, underWay[0]?.atMs ?? 0), []);
const keys = (suspects: readonly Suspect[]): string[] => suspects.map(({ key }) => key);
const asideOf = (suspects: readonly Suspect[]) => suspects.find(({ key }) => key === "poison")?.aside;

test("suspects: the third end within ten minutes sets an object aside for a minute, and each further one for twice the time, an hour at most", () => {
  const at = [0, 4, 9, 11, 14, 19, 28, 45, 78, 143, 208];
  let suspects: readonly Suspect[] = [];
  const minutes = at.map((minute) => {
    suspects = afterEnd(suspects, [pass("poison", minute * MINUTE)], minute * MINUTE);
    const aside = asideOf(suspects);
    return aside === undefined ? 0 : aside.untilMs / MINUTE - minute;
  });
  assert.deepEqual(minutes, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
});

test("suspects: ends that are further apart than ten minutes set nothing aside", () => {
  assert.equal(
    asideOf(endings([pass("poison", 0)], [pass("poison", 6 * MINUTE)], [pass("poison", 11 * MINUTE)])),
    undefined,
  );
});

test("suspects: another version is tried at once; when two changed versions have ended the process too, time alone counts", () => {
  const third = endings([pass("poison", 1)], [pass("poison", 2)], [pass("poison", 3)]);
  const wait = (suspects: readonly Suspect[], version: string, nowMs: number): number =>
    suspects[0] === undefined ? -1 : asideFor(suspects[0], version, nowMs);
  assert.deepEqual([wait(third, "1", 3), wait(third, "2", 3), wait(third, "1", 3 + MINUTE)], [MINUTE, 0, 0]);
  const changed = afterEnd(third, [pass("poison", 4, "2")], 4);
  assert.deepEqual([wait(changed, "2", 4), wait(changed, "3", 4)], [2 * MINUTE, 0]);
  const again = afterEnd(changed, [pass("poison", 5, "3")], 5);
  assert.deepEqual([wait(again, "3", 5), wait(again, "4", 5)], [4 * MINUTE, 4 * MINUTE]);
  const texts = [third, again].map((suspects) => describeAside(asideOf(suspects) ?? assert.fail()));
  assert.match(texts[0] ?? "", /it is not reconciled until it changes, at the latest until 1970-01-01T00:01:00\.003Z$/);
  assert.match(texts[1] ?? "", /changed versions of it too: it is not reconciled until 1970-01-01T00:04:00\.005Z$/);
});

test("suspects: where a suspect was under way, what was under way beside it is none", () => {
  const first = endings([pass("poison", 1), pass("innocent", 1)]);
  assert.deepEqual(keys(first), ["poison", "innocent"]);
  const second = afterEnd(first, [pass("poison", 2), pass("other", 2)], 2);
  assert.deepEqual(
    second.map(({ key, ends }) => [key, ends.length]),
    [
      ["innocent", 1],
      ["poison", 2],
    ],
  );
});

test("suspects: they are bounded, and those whose objects are gone are forgotten with time", () => {
  const many = Array.from({ length: 2 * MAX_SUSPECTS }, (_, at) => pass(`${at}`, 1));
  assert.equal(afterEnd([], many, 1).length, MAX_SUSPECTS);
  assert.deepEqual(keys(afterEnd(endings(many), [pass("late", 11 * MINUTE)], 11 * MINUTE)), ["late"]);
  const aside = endings([pass("poison", 1)], [pass("poison", 2)], [pass("poison", 3)]);
  assert.deepEqual(keys(afterEnd(aside, [pass("late", 60 * MINUTE)], 60 * MINUTE)), ["poison", "late"]);
  assert.deepEqual(keys(afterEnd(aside, [pass("late", 62 * MINUTE)], 62 * MINUTE)), ["late"]);
});

test("suspects: a clock that was set back keeps nothing aside for longer than an hour", () => {
  const [suspect] = endings(...Array.from({ length: 12 }, (_, at) => [pass("poison", 10 ** 12 + at)]));
  assert.equal(asideFor(suspect ?? assert.fail(), "1", 0), 60 * MINUTE);
});
