import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { isShortage, parseOpenFiles } from "./index.ts";

test("parseOpenFiles: the soft limit; none where the text has none", () => {
  assert.equal(
    parseOpenFiles("Limit  Soft\nMax open files            1024                 524288               files\n"),
    1024,
  );
  assert.equal(
    parseOpenFiles("Max open files            unlimited            unlimited            files\n"),
    Number.POSITIVE_INFINITY,
  );
});

test("openFilesLimit: Node has raised the soft limit to the hard one", () => {
  const script = `console.log((await import(${JSON.stringify(join(import.meta.dirname, "index.ts"))})).openFilesLimit())`;
  const shell = 'ulimit -Sn 100; ulimit -Hn 500; exec "$0" --input-type=module -e "$1"';
  assert.equal(execFileSync("sh", ["-c", shell, process.execPath, script], { encoding: "utf8" }), "500\n");
});

test("isShortage: a process without descriptors, and a library that cannot be opened for that; no other failure", () => {
  const error = (code: string, message = ""): Error => Object.assign(new Error(message), { code });
  for (const code of ["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS"]) assert.equal(isShortage(error(code)), true);
  const library = "koffi.node: cannot open shared object file: Too many open files";
  assert.equal(isShortage(error("ERR_DLOPEN_FAILED", library)), true);
  for (const other of [error("ENOENT"), error("ERR_DLOPEN_FAILED", "no such file"), new TypeError("a bug"), "text"])
    assert.equal(isShortage(other), false);
});
