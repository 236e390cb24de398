/** The folder from which servers of OpenStack start, and the settings of their Python. */
import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { keptTemplate, runPython } from "#test/openstack-process";

test("runPython: the collector looks for cycles seldom, and what its program starts inherits that", async () => {
  const script = "import gc, subprocess, sys\nprint(gc.get_threshold())\nsys.stdout.flush()\n";
  const child = `${script}subprocess.run([sys.executable, "-c", "import gc; print(gc.get_threshold())"], check=True)`;
  assert.equal(await runPython("-c", child), "(50000, 20, 20)\n".repeat(2));
});

test("keptTemplate: of two that want it at a time one makes it, and both get it; a failure leaves it to the next", async (t) => {
  const name = `test-template-${process.pid}`;
  const made: string[] = [];
  const make = async (path: string): Promise<void> => {
    made.push(path);
    // The other one comes meanwhile.
    await runPython("-c", "");
    writeFileSync(path, "tables");
  };
  await assert.rejects(
    keptTemplate(name, () => Promise.reject(new Error("no tables"))),
    /no tables/,
  );
  const [one, other] = await Promise.all([keptTemplate(name, make), keptTemplate(name, make)]);
  t.after(() => {
    for (const file of [one, `${one}.lock`]) rmSync(file, { force: true });
  });
  assert.equal(made.length, 1);
  assert.equal(one, other);
  assert.equal(readFileSync(one, "utf8"), "tables");
});
