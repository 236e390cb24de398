import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

/** The output of a script that has only CAP_NET_ADMIN. */
function unprivileged(script: string): string {
  const privileges = ["--inh-caps=-all,+net_admin", "--bounding-set=-all,+net_admin", "--no-new-privs"];
  const face = JSON.stringify(`${import.meta.dirname}/index.ts`);
  const source = `const netns = await import(${face});\n${script}`;
  const node = [process.execPath, "--input-type=module", "--eval", source];
  return execFileSync("setpriv", [...privileges, ...node], { encoding: "utf8" });
}

test("inNetNs: the own namespace is entered without CAP_SYS_ADMIN", () => {
  const printed = unprivileged(`
    using own = netns.openNetNs("own");
    console.log(netns.inNetNs(own, () => "inside"));
  `);
  assert.equal(printed, "inside\n");
});

test("createAnonymousNetNs: it fails without CAP_SYS_ADMIN, and the program goes on", () => {
  const printed = unprivileged(`
    try {
      netns.createAnonymousNetNs();
    } catch (error) {
      console.log(error.name, error.code);
    }
  `);
  assert.equal(printed, "KernelError not-permitted\n");
});
