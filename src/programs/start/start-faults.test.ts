import assert from "node:assert/strict";
import { test } from "node:test";
import { explainLoadFailure, nodeFault } from "./start-faults.ts";

test("nodeFault: a Node that is too old is named with the one that is needed", () => {
  assert.match(nodeFault("20.19.0", 24) ?? "", /this is Node 20\.19\.0; Isthmus needs Node 24 or later/);
  for (const version of ["24.0.0", "24.21.0", "26.1.0"]) assert.equal(nodeFault(version, 24), undefined);
});

test("explainLoadFailure: an old C library, a missing part and a library that does not load are named; a bug is not explained away", () => {
  const glibc = new Error(
    "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /opt/isthmus/dist/node_modules/koffi.node)",
  );
  assert.match(explainLoadFailure(glibc) ?? "", /koffi\.node needs GLIBC_2\.34; use Debian 12/);
  const missing = Object.assign(new Error("Cannot find package 'koffi' imported from /opt/x.mjs\nmore"), {
    code: "ERR_MODULE_NOT_FOUND",
  });
  assert.match(
    explainLoadFailure(missing) ?? "",
    /Cannot find package 'koffi' imported from \/opt\/x\.mjs; copy the whole folder/,
  );
  const dlopen = Object.assign(new Error("libx.so: cannot open"), { code: "ERR_DLOPEN_FAILED" });
  assert.match(explainLoadFailure(dlopen) ?? "", /libx\.so/);
  assert.equal(explainLoadFailure(new TypeError("a bug")), undefined);
  assert.equal(explainLoadFailure("no error"), undefined);
});
