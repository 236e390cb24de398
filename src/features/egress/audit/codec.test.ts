import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openWorld } from "../testing/audit-world.ts";
import { fouDriver, vxlanDriver } from "../tunnel/index.ts";
import { decodeNode, EgressStateError, encodeNode } from "./codec.ts";

test("encodeNode, decodeNode: the state of a node comes back as it was, with both drivers", async () => {
  for (const driver of [fouDriver, vxlanDriver]) {
    const world = await openWorld(driver);
    await world.syncClient(world.gateways(true));
    world.flow("10.64.3.3", "203.0.113.9");
    const state = await world.look();
    const text = JSON.stringify(encodeNode(state));
    assert.deepEqual(decodeNode(JSON.parse(text)), state);
    assert.match(text, /"router":\{"rules":\[\{.*"flows":\[\{"source":"10\.64\.3\.3","entries":1\}\]/);
  }
});

test("decodeNode: of any JSON, and of a state with any part replaced, only EgressStateError escapes", async () => {
  const state = JSON.stringify(encodeNode(await (await openWorld(vxlanDriver)).look()));
  const decode = (json: unknown): void => {
    try {
      decodeNode(json);
    } catch (error) {
      assert.ok(error instanceof EgressStateError, String(error));
      assert.match(error.message, /^the state of a node's pods is malformed: /);
    }
  };
  fc.assert(fc.property(fc.jsonValue(), decode), { numRuns: 200 });
  const replaced = (at: number, by: unknown): unknown => {
    let seen = 0;
    return JSON.parse(state, (_key, part: unknown) => {
      seen += 1;
      return seen === at ? by : part;
    });
  };
  fc.assert(
    fc.property(fc.nat(600), fc.jsonValue(), (at, by) => decode(replaced(at, by))),
    { numRuns: 500 },
  );
});
