import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FROM_SOURCE } from "#test/from-source";

function nicctl(args: readonly string[], input = "") {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...FROM_SOURCE, "nicctl", ...args], {
    input,
    encoding: "utf8",
  });
  return { status, stdout, stderr };
}

const POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  vpc: v\n";

test("nicctl convert: manifests on standard output, or all faults on standard error and nothing else", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-nicctl-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const [good, bad] = [join(dir, "good.yaml"), join(dir, "bad.yaml")];
  writeFileSync(good, POD);
  writeFileSync(bad, `${POD}---\n${POD}  nics: [{ip: x, subnet: s}, {name: lo}]\n`);
  const converted = nicctl(["convert", "-f", good, "-o", "json"]);
  assert.deepEqual([converted.status, converted.stderr], [0, ""]);
  assert.deepEqual(JSON.parse(converted.stdout), {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "a", annotations: { "isthmus.dev/vpc": "v" } },
    spec: {},
  });
  const back = nicctl(["convert", "-f", "-", "--to", "arktos"], converted.stdout);
  assert.match(back.stdout, /"?vpc"?: "?v"?/);
  assert.deepEqual(nicctl(["convert", "-f", good, "-f", bad]), {
    status: 1,
    stdout: "",
    stderr: [
      `${bad}:12: document 2: Pod/a: spec.nics[0].ip: Invalid value: "x": must be a unicast IP address`,
      `${bad}:12: document 2: Pod/a: spec.nics[1].name: Invalid value: "lo": must be a valid interface name of at most 15 bytes`,
      "",
    ].join("\n"),
  });
});

test("nicctl: a command line that is wrong, and a file that is not there", () => {
  const rows: readonly (readonly [readonly string[], RegExp])[] = [
    [[], /a command is needed: convert/],
    [["state"], /there is no command "state": the commands are convert, status, trace, cloud-init, gc, doctor/],
    [["trace"], /usage: nicctl trace POD/],
    [["cloud-init", "a", "b"], /usage: nicctl cloud-init POD/],
    [["status", "-o", "yaml"], /--output: "yaml" is not one of text, json/],
    [["convert"], /--filename: give a file/],
    [["convert", "-f", "-", "-o", "text"], /--output: "text" is not one of yaml, json/],
    [["convert", "-f", "/nowhere"], /nicctl convert: .*\/nowhere/],
    [["convert", "-f", "-", "--vm-runtime", "class:A B"], /--vm-runtime: .*is neither virtlet nor class:NAME/],
    [["convert", "-f", "-", "-o", "xml"], /"xml" is not one of text, yaml, json/],
  ];
  for (const [args, says] of rows) {
    const { status, stdout, stderr } = nicctl(args);
    assert.deepEqual([status, stdout], [2, ""], args.join(" "));
    assert.match(stderr, says);
  }
});
