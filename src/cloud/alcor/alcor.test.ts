import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CloudError } from "#cloud/rest";
import { alcorFault } from "./faults.ts";
import { readPort, readPorts, readSubnets, readVpcs } from "./objects.ts";

test("readPort and the other readers of Alcor: of any answer the only error is ours", () => {
  fc.assert(
    fc.property(fc.anything(), (value) => {
      for (const reader of [readPort, readPorts, readVpcs, readSubnets]) {
        for (const body of [
          value,
          { port: value },
          { ports: value },
          { ports: [value] },
          { vpcs: value },
          { subnets: [value] },
        ]) {
          try {
            reader(body);
          } catch (error) {
            assert.ok(error instanceof CloudError && error.code === "bad-response", String(error));
          }
        }
      }
      alcorFault(value);
    }),
  );
  assert.equal(readPort({ port: { id: "a", vpc_id: "v" } }).networkId, "v");
  assert.equal(readVpcs({ networks: [{ id: "a" }] })[0]?.mtu, 1500);
});
