import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { runningPrograms } from "./running-programs.ts";

test("runningPrograms: a process of another user whose command line is that of a program is none; root's is one", async (t) => {
  const start = async (program: string): Promise<number> => {
    const words = ["-e", `${program}; console.log(); setInterval(() => undefined, 1e6)`, "/x/isthmus.mjs", "coild"];
    const child = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    await once(child.stdout, "data");
    return child.pid ?? 0;
  };
  const stranger = await start("process.setgid(65534); process.setuid(65534)");
  const ours = await start("");
  const found = runningPrograms({ nodePrograms: new Set(["coild"]) });
  assert.ok(found.includes(`coild (process ${ours})`), found.join());
  assert.ok(!found.includes(`coild (process ${stranger})`), found.join());
});
