import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { PROGRAMS } from "../../programs.ts";
import { metricsFromFlag } from "./index.ts";

test("--metrics-from: each program with a port of metrics has it, and no other", async () => {
  let count = 0;
  for (const { load } of Object.values(PROGRAMS)) {
    const { name, flags } = await load();
    const all = Object.values(flags);
    const serves = all.some(
      (flag) => /(-addr|-port|-host|-bind-address)$/.test(flag.name) && flag.help.includes("/metrics"),
    );
    assert.equal(all.includes(metricsFromFlag.metricsFrom), serves, name);
    if (serves) count += 1;
  }
  assert.equal(count, 13);
});

test("--metrics-from: a list with commas, or several; one entry that is no CIDR is a fault that names it", () => {
  const read = (...argv: readonly string[]) => parseFlags(metricsFromFlag, argv).values.metricsFrom.map(String);
  assert.deepEqual(read(), []);
  const argv = ["--metrics-from=10.0.0.0/8, fd00::/8", "--metrics-from", "192.0.2.1/32"];
  assert.deepEqual(read(...argv), ["10.0.0.0/8", "fd00::/8", "192.0.2.1/32"]);
  for (const entry of ["", "10.0.0.1", "10.0.0.0/33", "node", "10.0.0.0/8,,fd00::/8", "10.0.0.0/8,"]) {
    const at = entry.includes(",") ? "" : entry;
    const fault = `--metrics-from: "${at}" is not a CIDR; examples are 10.0.0.0/16 and fd00::/64`;
    assert.throws(() => read(`--metrics-from=${entry}`), { faults: [fault] }, entry);
  }
});
