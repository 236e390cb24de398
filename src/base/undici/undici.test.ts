import assert from "node:assert/strict";
import { test } from "node:test";
import * as whole from "undici";
import * as parts from "./index.ts";

test("base/undici: its parts are those of the whole package, and an agent has the calls", () => {
  const names = Object.keys(parts) as (keyof typeof parts)[];
  assert.deepEqual(names.toSorted(), ["Agent", "Dispatcher", "buildConnector", "errors"]);
  for (const name of names) assert.equal(parts[name], whole[name], name);
  const agent = new parts.Agent();
  for (const call of ["request", "stream", "pipeline", "upgrade", "connect"] as const)
    assert.equal(typeof agent[call], "function", call);
});
