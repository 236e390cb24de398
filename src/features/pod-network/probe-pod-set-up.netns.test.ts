// alone: it compares the links and network namespaces of the machine before and after
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { openKernel } from "#kernel/net";
import { probePodSetUp } from "./index.ts";

test("probePodSetUp: this kernel allows all that an ADD does, and nothing of it is left", () => {
  const kernel = openKernel();
  const links = (): string => execFileSync("ip", ["-o", "link"], { encoding: "utf8" });
  const before = [links(), kernel.listNetNs()];
  probePodSetUp(kernel);
  assert.deepEqual([links(), kernel.listNetNs()], before);
});
