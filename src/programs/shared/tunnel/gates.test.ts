import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ConfigError } from "#base/config";
import { CLUSTER_TO_MASTER, gatesFlag } from "./gates.ts";

const parse = (text: string): boolean | undefined => gatesFlag.parse(text, gatesFlag.initial)[CLUSTER_TO_MASTER];

test("gatesFlag: the gate by its name and its alias, off by default", () => {
  assert.equal(gatesFlag.initial[CLUSTER_TO_MASTER], false);
  assert.equal(parse("EnableClusterToMasterTraffic=true"), true);
  assert.equal(parse("NodeToMasterTraffic=true"), true);
  assert.equal(parse("NodeToMasterTraffic=true,EnableClusterToMasterTraffic=false"), false);
  assert.equal(parse(" EnableClusterToMasterTraffic = T ,"), true);
  assert.equal(parse(""), false);
});

test("gatesFlag: an unknown gate, and a value that is neither true nor false, are refused with the text", () => {
  assert.throws(
    () => parse("Other=true"),
    /"Other=true" names no feature gate; there are EnableClusterToMasterTraffic/,
  );
  assert.throws(() => parse("constructor=true"), /"constructor=true" names no feature gate/);
  assert.throws(() => parse("EnableClusterToMasterTraffic=yes"), /is neither true nor false/);
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        parse(text);
      } catch (error) {
        assert.ok(error instanceof ConfigError, String(error));
      }
    }),
  );
});
