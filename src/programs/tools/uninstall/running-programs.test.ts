import assert from "node:assert/strict";
import { test } from "node:test";
import { canChangeNode, programOf } from "./running-programs.ts";

const NODE = new Set(["coild", "service-proxy", "nic-agent", "node"]);
const line = (...words: string[]): string => words.join("\0");

test("programOf: programs for nodes are known by the name of their link, or by their first word", () => {
  const bundle = "/usr/lib/isthmus/isthmus.mjs";
  const called = (name: string): string => line("PATH=/bin", `ISTHMUS_CALLED_AS=${name}`, "HOME=/");
  assert.equal(programOf(line("node", "--x", bundle, "--socket=/run/a"), called("coild"), NODE), "coild");
  assert.equal(programOf(line("node", bundle, "service-proxy", "--v=1"), called("isthmus"), NODE), "service-proxy");
  assert.equal(programOf(line("node", "/c/src/programs/start/start.ts", "nic-agent"), "", NODE), "nic-agent");
  assert.equal(programOf(line("node", bundle, "node", "--", "coild"), called("isthmus"), NODE), "node");
});

test("programOf: programs of an administrator, labs and other processes are none", () => {
  for (const words of [
    ["node", "/a/isthmus.mjs", "uninstall", "--pods"],
    ["node", "/a/isthmus.mjs", "lab-host", "--name=coild"],
    ["vim", "coild"],
    ["node", "/a/notisthmus.mjs", "coild"],
  ])
    assert.equal(programOf(line(...words), "ISTHMUS_CALLED_AS=isthmus", NODE), undefined, words.join(" "));
});

test("canChangeNode: root's Node, and that of a user with CAP_NET_ADMIN of this user namespace; nobody else's, whatever its command line says", () => {
  const status = (uid: number, capabilities = "0"): string =>
    `Name:\tnode\nUid:\t0\t${uid}\t0\t0\nCapEff:\t${capabilities}\n`;
  const of = (text: string, executable = "/usr/lib/isthmus/bin/node", isHere = true): boolean =>
    canChangeNode({ status: text, executable, isHere });
  assert.equal(of(status(0)), true);
  assert.equal(of(status(0), "/usr/lib/isthmus/bin/node (deleted)"), true);
  assert.equal(of(status(100, "0000000000001000")), true);
  assert.equal(of(status(100, "0000000000000fff")), false);
  assert.equal(of(status(65_534)), false);
  assert.equal(of(status(0), "/usr/bin/sleep"), false);
  assert.equal(of(status(0, "000001ffffffffff"), "/bin/node", false), false);
});
