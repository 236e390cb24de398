import assert from "node:assert/strict";
import { test } from "node:test";
import * as whole from "undici";
import { Agent, buildConnector, Dispatcher, errors } from "./index.ts";

test("base/undici: its parts are those of the whole package, and an agent has the calls", () => {
  const parts = [Agent, buildConnector, Dispatcher, errors];
  const ofWhole = [whole.Agent, whole.buildConnector, whole.Dispatcher, whole.errors];
  for (const [at, part] of parts.entries()) assert.equal(part, ofWhole[at], `part ${at}`);
  const agent = new Agent();
  for (const call of ["request", "stream", "pipeline", "upgrade", "connect"] as const)
    assert.equal(typeof agent[call], "function", call);
});
