import assert from "node:assert/strict";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import { FakeKernel } from "#kernel/fake";
import type { TUNNEL_DRIVERS } from "./choose.ts";
import { loadDriverModules } from "./modules.ts";

async function loaded(
  asked: (typeof TUNNEL_DRIVERS)[number],
  lacks: ConstructorParameters<typeof FakeKernel>[0] = {},
): Promise<string[]> {
  const names: string[] = [];
  const load = async (more: readonly string[]): Promise<undefined> => void names.push(...more);
  await loadDriverModules(asked, { kernel: new FakeKernel(lacks), log: nullLogger, load });
  return names;
}

test("loadDriverModules: fou loads both modules, and vxlan none", async () => {
  assert.deepEqual(await loaded("fou", { lacks: ["fou", "fou6"] }), ["fou", "fou6"]);
  assert.deepEqual(await loaded("vxlan", { lacks: ["fou", "fou6"] }), []);
});

test("loadDriverModules: auto loads no fou where nobody has, so that it stays VXLAN beside programs of 0.1.0, and fou6 where fou is", async () => {
  assert.deepEqual(await loaded("auto", { lacks: ["fou", "fou6"] }), []);
  assert.deepEqual(await loaded("auto", { lacks: ["fou6"] }), ["fou6"]);
});
