import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { openNetNs } from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-netns-"));
after(() => rmSync(folder, { recursive: true }));

test("openNetNs: a FIFO, a file and a folder are refused at once, by name", () => {
  const fifo = join(folder, "fifo");
  execFileSync("mkfifo", [fifo]);
  const file = join(folder, "file");
  writeFileSync(file, "");
  for (const path of [fifo, file, folder]) {
    assert.throws(() => openNetNs({ path }), {
      name: "KernelError",
      code: "invalid",
      message: `${path} is not a network namespace`,
    });
  }
});

test("openNetNs: the own namespace opens", () => {
  using own = openNetNs("own");
  assert.ok(own.inode > 0n);
});
