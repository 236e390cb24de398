import assert from "node:assert/strict";
import { test } from "node:test";
import { withRouteHint } from "./route-hint.ts";

test("withRouteHint: a failure for want of a route says what to do, and others stay as they are", () => {
  assert.equal(withRouteHint("connect ECONNREFUSED 10.96.0.1:443"), "connect ECONNREFUSED 10.96.0.1:443");
  assert.match(
    withRouteHint("connect ENETUNREACH 10.96.0.1:443 - Local (0.0.0.0:0)"),
    /^connect ENETUNREACH 10\.96\.0\.1:443 .*; this machine has no route to the address: give it a default route, or/,
  );
});
