import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { type Logger, nullLogger } from "#base/log";
import { AGENTLESS_MS, Agentless } from "./agentless.ts";

test("Agentless: a server without agents is named after half a minute, once, and when it has some again; not while it needs none", async () => {
  const clock = new FakeClock();
  const lines: unknown[] = [];
  const note = (message: string, fields?: Readonly<Record<string, unknown>>): void =>
    void lines.push([message, fields?.["serverID"], fields?.["serverCount"]]);
  const log: Logger = { ...nullLogger, warn: note, info: note };
  const needs = { agents: false };
  const one = new Agentless(
    { clock, log, shouldHaveAgents: () => needs.agents },
    { serverID: "server-1", serverCount: () => 2 },
  );
  one.update(true);
  await clock.advance(10 * AGENTLESS_MS);
  assert.deepEqual(lines, []);
  needs.agents = true;
  await clock.advance(10 * AGENTLESS_MS);
  const named = ["no agent is connected to this server, and its frontends are refused", "server-1", 2];
  assert.deepEqual(lines, [named]);
  one.update(true);
  one.update(false);
  assert.deepEqual(lines.slice(1), [["agents are connected again", "server-1", undefined]]);
  // A gap that is soon over is nothing to tell.
  one.update(true);
  await clock.advance(AGENTLESS_MS - 1);
  one.update(false);
  one.update(true);
  await clock.advance(AGENTLESS_MS);
  assert.deepEqual(lines.slice(2), [named]);
  one.stop();
  assert.equal(clock.pending, 0);
});
