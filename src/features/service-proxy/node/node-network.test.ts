import assert from "node:assert/strict";
import { test } from "node:test";
import { keepKnown, nodeNetwork, unknownNode } from "./node-network.ts";

const META = { name: "n", uid: "u", resourceVersion: "1", labels: { "topology.kubernetes.io/zone": "b" } };

test("keepKnown: a Node that was made again keeps the known addresses and podCIDRs until it has its own", () => {
  const addresses = [{ type: "InternalIP", address: "192.0.2.1" }];
  const status = { addresses };
  const known = keepKnown(
    nodeNetwork({ metadata: META, spec: { podCIDR: "10.0.0.0/24" }, status }, undefined),
    unknownNode(undefined),
  );
  assert.deepEqual(known.addresses.map(String), ["192.0.2.1"]);
  const again = keepKnown(nodeNetwork({ metadata: META }, undefined), known);
  assert.deepEqual([again.addresses.map(String), again.podCIDRs.map(String)], [["192.0.2.1"], ["10.0.0.0/24"]]);
  assert.equal(again.zone, "b");
  const moved = { addresses: [{ type: "InternalIP", address: "192.0.2.9" }] };
  const other = keepKnown(nodeNetwork({ metadata: META, status: moved }, undefined), again);
  assert.deepEqual(other.addresses.map(String), ["192.0.2.9"]);
});
