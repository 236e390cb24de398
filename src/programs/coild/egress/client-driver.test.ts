import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { nullLogger } from "#base/log";
import { FakeKernel } from "#kernel/fake";
import { ClientDriver } from "./client-driver.ts";

test("ClientDriver: modules are loaded before each later try, so those that a system gets at last are used", async () => {
  const clock = new FakeClock();
  const [lacking, whole] = [new FakeKernel({ lacks: ["fou", "fou6"] }), new FakeKernel()];
  let [kernel, loads] = [lacking, 0];
  const chosen: string[] = [];
  const driver = new ClientDriver({
    kernel: {
      createAnonymousNetNs: () => kernel.createAnonymousNetNs(),
      openStack: (netns) => kernel.openStack(netns),
    },
    asked: "fou",
    loadModules: async () => {
      loads += 1;
      if (loads === 3) kernel = whole;
    },
    health: new Health({ log: nullLogger }).part("tunnel-driver"),
    onChosen: (name) => chosen.push(name),
    log: nullLogger,
    clock,
  });
  assert.match(driver.fault, /this kernel has no fou, no fou6/);
  const found = driver.run({ signal: new AbortController().signal });
  for (let tries = 0; tries < 3; tries += 1) await clock.advance(60_000);
  assert.equal(await found, true);
  assert.deepEqual([loads, driver.current?.name], [3, "fou"]);
  assert.deepEqual(chosen, ["none", "fou"]);
});
