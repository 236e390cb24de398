import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { RemovalConflict } from "./removal-conflict.ts";

test("RemovalConflict: single removals are logged each; a program that goes on is logged and counted once, until it rests a minute", async () => {
  const clock = new FakeClock();
  const lines: string[] = [];
  let conflicts = 0;
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  const conflict = new RemovalConflict({ clock, log, onConflict: () => (conflicts += 1) });
  const messages = (): string[] =>
    lines.splice(0).map((line) => {
      const { level, msg } = JSON.parse(line) as { level: string; msg: string };
      return `${level} ${msg.split(" ").slice(0, 3).join(" ")}`;
    });
  const survey = async (pods: number): Promise<void> => {
    conflict.surveyed({ host: 0, links: 0, pods });
    await clock.advance(500);
  };
  await survey(0);
  await survey(1);
  await survey(0);
  assert.deepEqual([messages(), conflicts], [["warn missing routes, rules,"], 0]);
  for (let round = 0; round < 200; round += 1) await survey(2);
  const fight = messages();
  assert.deepEqual([fight.length, fight.at(-1), conflicts], [9, "error another program keeps", 1]);
  await clock.advance(59_000);
  await survey(0);
  assert.deepEqual(messages(), []);
  await clock.advance(1000);
  await survey(0);
  assert.deepEqual(messages(), ["info no other program"]);
  // Ten removals over more than a minute are no conflict.
  for (let round = 0; round < 30; round += 1) {
    await survey(1);
    await clock.advance(7000);
  }
  assert.deepEqual([messages().length, conflicts], [30, 1]);
});
