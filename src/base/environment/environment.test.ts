import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { callersEnvironment, keptVariable } from "./index.ts";

const LAUNCHER = join(import.meta.dirname, "../../../tools/launcher.sh");

test("callersEnvironment: behind the launcher it is what the caller had, and Node sees none of the variables that it must not see", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-environment-"));
  t.after(() => rmSync(folder, { recursive: true }));
  copyFileSync(LAUNCHER, join(folder, "isthmus"));
  writeFileSync(join(folder, "isthmus.mjs"), "process.stdout.write(JSON.stringify(process.env));");
  const caller = {
    PATH: "/usr/bin:/bin",
    NODE_NAME: "node1",
    NODE_OPTIONS: "--require=/nowhere 'a b'\n$(false)",
    NODE_EXTRA_CA_CERTS: "",
    SSL_CERT_FILE: "/etc/my ca.crt",
  };
  const printed = execFileSync("sh", [join(folder, "isthmus")], {
    env: { ...caller, ISTHMUS_NODE: process.execPath },
    encoding: "utf8",
  });
  const seen = JSON.parse(printed) as Record<string, string>;
  for (const name of ["NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"])
    assert.equal(seen[name], undefined, name);
  assert.equal(keptVariable(seen, "SSL_CERT_FILE"), "/etc/my ca.crt");
  assert.equal(keptVariable(seen, "SSL_CERT_DIR"), undefined);
  const { ISTHMUS_NODE, PWD, _, SHLVL, OLDPWD, ...rest } = callersEnvironment(seen);
  assert.deepEqual(rest, caller);
});

test("callersEnvironment: what the launcher has added is not the caller's", () => {
  const env = {
    MALLOC_ARENA_MAX: "1",
    ISTHMUS_ADDED: "MALLOC_ARENA_MAX",
    ISTHMUS_CALLED_AS: "coild",
    A: "1",
    B: undefined,
  };
  assert.deepEqual(callersEnvironment(env), { A: "1" });
  assert.deepEqual(callersEnvironment({ MALLOC_ARENA_MAX: "2" }), { MALLOC_ARENA_MAX: "2" });
});
