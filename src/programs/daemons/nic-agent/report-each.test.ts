import assert from "node:assert/strict";
import { test } from "node:test";
import { KubeError } from "#kube/client";
import { reportEach } from "./report-each.ts";

test("reportEach: one whose report fails does not hold up the others, and its failure is told; a bug ends all", async (t) => {
  const done: string[] = [];
  const report = async (name: string): Promise<boolean> => {
    done.push(name);
    if (name.startsWith("bad")) throw new KubeError("invalid", name);
    if (name === "bug") throw new TypeError(name);
    return name !== "same";
  };
  await assert.rejects(reportEach(["a", "bad", "worse", "bad too", "b"], report, t), { message: /bad$/ });
  assert.deepEqual(done.splice(0), ["a", "bad", "worse", "bad too", "b"]);
  assert.equal(await reportEach(["a", "same", "b"], report, t), 2);
  done.length = 0;
  await assert.rejects(reportEach(["bad", "bug", "b"], report, t), TypeError);
  assert.deepEqual(done, ["bad", "bug"]);
});
