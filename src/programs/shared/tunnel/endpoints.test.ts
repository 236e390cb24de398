import assert from "node:assert/strict";
import { test } from "node:test";
import { merged } from "./endpoints.ts";

test("merged: a check fails with the reason of the first worker in which it fails; a worker without an answer adds nothing", () => {
  assert.deepEqual(
    merged([
      [{ name: "agents" }, { name: "lease", why: "starting" }],
      undefined,
      [
        { name: "agents", why: "no connection to any proxy agent" },
        { name: "lease", why: "forbidden" },
        { name: "token-review" },
      ],
      [{ name: "agents", why: "shutting down" }],
    ]),
    [
      { name: "agents", why: "worker 3: no connection to any proxy agent" },
      { name: "lease", why: "worker 1: starting" },
      { name: "token-review" },
    ],
  );
  assert.deepEqual(merged([]), []);
});
