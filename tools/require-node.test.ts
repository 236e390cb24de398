import assert from "node:assert/strict";
import { test } from "node:test";
import { faultOfNode } from "./require-node.ts";

test("faultOfNode: an older Node is sent to ./run", () => {
  assert.equal(faultOfNode("24.2.0"), undefined);
  assert.equal(faultOfNode("26.0.0"), undefined);
  assert.equal(faultOfNode(process.versions.node), undefined);
  for (const version of ["20.20.2", "22.20.0", "24.1.9"]) assert.match(faultOfNode(version) ?? "", /use \.\/run/);
});
