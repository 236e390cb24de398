import assert from "node:assert/strict";
import { test } from "node:test";
import { inRoot, programOf } from "./read-node.ts";

const NODE = new Set(["coild", "service-proxy", "nic-agent", "node"]);
const line = (...words: string[]): string => words.join("\0");

test("programOf: programs for nodes are known by the name of their link, or by their first word", () => {
  const bundle = "/usr/lib/isthmus/isthmus.mjs";
  const called = (name: string): string => line("PATH=/bin", `ISTHMUS_CALLED_AS=${name}`, "HOME=/");
  assert.equal(programOf(line("node", "--x", bundle, "--socket=/run/a"), called("coild"), NODE), "coild");
  assert.equal(programOf(line("node", bundle, "service-proxy", "--v=1"), called("isthmus"), NODE), "service-proxy");
  assert.equal(programOf(line("node", "/c/src/programs/start.ts", "nic-agent"), "", NODE), "nic-agent");
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

test("inRoot: paths are in the folder of the node's files", () => {
  assert.equal(inRoot({ root: "" }, "/run/coild.sock"), "/run/coild.sock");
  assert.equal(inRoot({ root: "/host" }, "/run/coild.sock"), "/host/run/coild.sock");
});
