import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health, readiness } from "#base/health";
import { Journal } from "#features/nic-cni";
import { keepDisk } from "./keep-disk.ts";

test("readyz: nic-agent is not ready on a full disk, since no NIC can be made, and is again when there is room", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-full-disk-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]);
  t.after(() => {
    execFileSync("umount", [folder]);
    rmSync(folder, { recursive: true });
  });
  const clock = new FakeClock();
  const health = new Health({ clock });
  const stop = new AbortController();
  const part = health.part("disk", { needed: "always" });
  const journal = new Journal(join(folder, "cni"));
  const keeping = keepDisk({ journal, health: part, clock }, { signal: stop.signal });
  const told = async (): Promise<string> => {
    await clock.advance(30_000);
    return readiness(health, { isVerbose: false }).text;
  };
  assert.equal(await told(), "ok\n");
  const filler = join(folder, "filler");
  assert.throws(() => writeFileSync(filler, new Uint8Array(300_000)), /ENOSPC/);
  assert.match(
    await told(),
    /^\[-\]disk degraded no NIC can be made: cannot write .*\/cni\/\.probe: ENOSPC.*\nnot ready\n$/,
  );
  rmSync(filler);
  assert.equal(await told(), "ok\n");
  assert.deepEqual(readdirSync(join(folder, "cni")), []);
  stop.abort();
  await keeping;
});
