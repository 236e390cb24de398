import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CHECKS, commandsOf, runCommands, summaryOf } from "./checks.ts";

const root = join(import.meta.dirname, "..");
const sh = (name: string, script: string): { readonly name: string; readonly argv: readonly string[] } => ({
  name,
  argv: ["/bin/sh", "-c", script],
});

test("runCommands: each command runs after a failed one, and its output is under its name, in the order of the list", async () => {
  const commands = [
    sh("slow", "sleep 0.2; echo one; echo two >&2; exit 3"),
    sh("killed", "printf three; kill -9 $$"),
    { name: "absent", argv: ["/nonexistent/program"] },
    sh("right", "pwd"),
  ];
  for (const atOnce of [1, 3]) {
    const printed: string[] = [];
    const all = await runCommands(commands, { cwd: "/", atOnce, print: (text) => void printed.push(text) });
    assert.match(
      printed.join(""),
      /^== slow: exit code 3\none\ntwo\n== killed: signal SIGKILL\nthree\n== absent: spawn \/nonexistent\/program ENOENT\n== right: ok\n\/\n$/,
    );
    assert.equal(summaryOf(all), "1 of 4 are right; failed: slow, killed, absent");
  }
});

test("summaryOf: without a failure it names none", () => {
  assert.equal(summaryOf([{ name: "types", failure: undefined }]), "1 of 1 are right");
});

test("commandsOf: ok has the checks, which write nothing; fix and gen have what writes; CRDs come before manifests", () => {
  const namesOf = (...words: readonly string[]): readonly string[] | undefined =>
    commandsOf(words)?.map(({ name }) => name);
  const all = CHECKS.map(({ name }) => name);
  assert.deepEqual(namesOf("check"), all);
  assert.deepEqual(namesOf("ok"), all);
  assert.deepEqual(namesOf("check", "types", "faces"), ["types", "faces"]);
  assert.deepEqual(namesOf("fix"), ["format"]);
  assert.deepEqual(namesOf("gen"), ["layers", "crds", "manifests", "docs"]);
  assert.ok(commandsOf(["ok"])?.every(({ argv }) => !argv.includes("--write")));
  for (const wrong of [[], ["none"], ["check", "none"], ["fix", "types"]]) assert.equal(commandsOf(wrong), undefined);
});

test("checks: a wrong command line ends with 2 and names the checks", () => {
  const { status, stderr } = spawnSync(process.execPath, [join(root, "tools/checks.ts"), "check", "tyeps"], {
    encoding: "utf8",
  });
  assert.equal(status, 2);
  assert.match(stderr, /^usage: .*; checks: format types /);
});

test("checks: CI and npm run the checks by the one list", () => {
  const read = (file: string): string => readFileSync(join(root, file), "utf8");
  const { scripts } = JSON.parse(read("package.json")) as { readonly scripts: Readonly<Record<string, string>> };
  for (const text of [read(".ci/run"), read("run"), ...Object.values(scripts)])
    assert.doesNotMatch(text, /tools\/check-|tools\/gen-|biome|tsc/);
  assert.match(read(".ci/run"), /^ *node tools\/checks\.ts check /m);
});
