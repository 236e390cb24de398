import assert from "node:assert/strict";
import { test } from "node:test";
import { runPath } from "./run-path.ts";

test("runPath: what is below /var/run is below /run; every other path is as it was", () => {
  assert.equal(runPath("/var/run/netns/cni-1"), "/run/netns/cni-1");
  assert.equal(runPath("//var//run//a/var/run/b"), "/run/a/var/run/b");
  for (const same of [
    "/run/netns/a",
    "/var/running/a",
    "/srv/var/run/a",
    "var/run/a",
    "/proc/1/ns/net",
    "/var/run",
    "",
  ])
    assert.equal(runPath(same), same);
});
