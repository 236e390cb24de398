import assert from "node:assert/strict";
import { test } from "node:test";
import { portBytes } from "../plan/index.ts";
import { MAX_REMOVED, RemovedFrontEnds } from "./removed-front-ends.ts";

const nodePort = (port: number, protocol: "TCP" | "UDP" = "UDP") => ({
  key: portBytes(protocol, port),
  isNodePort: true,
});

test("RemovedFrontEnds: keeps those of UDP until they are taken, once each", () => {
  const removed = new RemovedFrontEnds();
  for (const one of [nodePort(1), nodePort(2, "TCP"), nodePort(1)]) removed.add(one);
  assert.deepEqual([...removed.take().values()], [nodePort(1)]);
  assert.equal(removed.take().size, 0);
});

test("RemovedFrontEnds: the oldest ones are forgotten when there are too many", () => {
  const removed = new RemovedFrontEnds();
  for (let port = 1; port <= MAX_REMOVED + 1; port += 1) removed.add(nodePort(port));
  const kept = [...removed.take().values()];
  assert.equal(kept.length, MAX_REMOVED);
  assert.deepEqual(kept[0], nodePort(2));
});
