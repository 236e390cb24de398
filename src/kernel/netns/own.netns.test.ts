import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

const SCRIPT = `
  const { inNetNs, openNetNs } = await import(${JSON.stringify(`${import.meta.dirname}/index.ts`)});
  using own = openNetNs("own");
  console.log(inNetNs(own, () => "inside"));
`;

test("inNetNs: the own namespace is entered without CAP_SYS_ADMIN", () => {
  const privileges = ["--inh-caps=-all,+net_admin", "--bounding-set=-all,+net_admin", "--no-new-privs"];
  const node = [process.execPath, "--input-type=module", "--eval", SCRIPT];
  assert.equal(execFileSync("setpriv", [...privileges, ...node], { encoding: "utf8" }), "inside\n");
});
