/** The controllers and daemons of the pod network are ready after a start at which nothing fails, as the probes of their manifests need it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { CniNode } from "#test/cni-node";
import { start, until } from "#test/lab";

const PORTS = { coild: 9385, "coil-ipam-controller": 9387, "coil-router": 9389 } as const;

test("readiness: coild, coil-ipam-controller and coil-router answer /readyz with 200, every part ok, within seconds of a start without a failure", async () => {
  // A kernel without FoU is a failure of the default driver, and is said.
  await using node = await CniNode.open("ready", ["--tunnel-driver=auto"]);
  node.run("coil-router");
  for (const [program, port] of Object.entries(PORTS)) {
    let said = "";
    const ask = async (): Promise<boolean> => {
      const url = `http://127.0.0.1:${port}/readyz?verbose`;
      said = (await start(node.inside("curl", "-s", "-w", "%{http_code}", "--max-time", "2", url)).ended).stdout;
      return said.endsWith("200");
    };
    await until(`${program} is ready`, ask, { deadlineMs: 10_000, seen: () => said });
    assert.doesNotMatch(said, /^\[-\]/m, program);
  }
});
