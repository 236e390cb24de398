import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { noProxy } from "./index.ts";

const LIBRARY = join(import.meta.dirname, "../../../../deploy/uplink/mgmtproxy.sh");
const BASE = noProxy();

/** Runs a script with the library sourced, in a folder whose `bin` comes first on the PATH. */
function shell(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), "uplink-shell-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const flag = join(dir, "flag");
  const command = (name: string, body: string): void => {
    writeFileSync(join(dir, name), `#!/bin/sh\n${body}\n`);
    chmodSync(join(dir, name), 0o755);
  };
  const run = (script: string, input = "") => {
    const env = { PATH: `${dir}:${process.env["PATH"]}`, MGMTPROXY_FLAG: flag, DIR: dir, MGMTPROXY_RETRY_SECONDS: "0" };
    const { status, stdout, stderr } = spawnSync("dash", ["-euc", `. ${LIBRARY}\n${script}`], {
      env,
      input,
      encoding: "utf8",
    });
    return { status, stdout, stderr };
  };
  return { dir, flag, command, run };
}

test("mgmtproxy_no_proxy: the same list as the program's", (t) => {
  const { run } = shell(t);
  assert.equal(run("mgmtproxy_no_proxy").stdout, `${BASE}\n`);
  assert.equal(run("mgmtproxy_no_proxy 10.9.9.1").stdout, `${BASE},10.9.9.1\n`);
  assert.equal(run("mgmtproxy_no_proxy 10.9.9.1 24").stdout, `${BASE},10.9.9.1/24\n`);
  assert.equal(
    run("mgmtproxy_no_proxy 10.9.9.1 -1; mgmtproxy_no_proxy 10.9.9.1 0").stdout,
    `${BASE},10.9.9.1\n${BASE},10.9.9.1\n`,
  );
  assert.equal(
    run("MGMTPROXY_POD_CIDR=10.1.0.0/16 MGMTPROXY_SERVICE_CIDR=10.2.0.0/16 mgmtproxy_no_proxy").stdout,
    "127.0.0.0/8,10.1.0.0/16,10.2.0.0/16,169.254.0.0/16,localhost,.svc,.cluster.local\n",
  );
});

test("mgmtproxy_run: arguments, streams and status pass through untouched; the variables are the command's alone", (t) => {
  const { run, command } = shell(t);
  command(
    "show",
    `printf '[%s]' "$@"; printf ' %s %s ' "\${HTTPS_PROXY-none}" "\${NO_PROXY-none}"; cat; echo told >&2; exit 7`,
  );
  const { status, stdout, stderr } = run(
    `code=0; mgmtproxy_run show 'a b' '' '$x' '*' || code=$?; printf ' after=%s' "\${HTTPS_PROXY-none}"; exit $code`,
    "stdin",
  );
  assert.equal(stdout, `[a b][][$x][*] http://127.0.0.1:5443 ${BASE} stdin after=none`);
  assert.equal(stderr, "mgmtproxy_run: routing through proxy (http://127.0.0.1:5443): show a b  $x *\ntold\n");
  assert.equal(status, 7);
});

test("mgmtproxy_run: switched off it runs the command unchanged, and says why", (t) => {
  const { run, command, flag } = shell(t);
  command("show", `printf '%s %s' "\${HTTPS_PROXY-none}" "$1"`);
  writeFileSync(flag, "");
  const { stdout, stderr } = run("mgmtproxy_run show x");
  assert.equal(stdout, "none x");
  assert.equal(stderr, `mgmtproxy_run: bypassing proxy (disabled via ${flag}): show x\n`);
});

test("mgmtproxy_run: log lines go to the caller's logmsg where there is one", (t) => {
  const { run } = shell(t);
  const { stdout, stderr } = run(`logmsg() { echo "log: $*"; }; mgmtproxy_run true`);
  assert.equal(stdout, "log: mgmtproxy_run: routing through proxy (http://127.0.0.1:5443): true\n");
  assert.equal(stderr, "");
});

/** A curl that says 503 twice, then 200, and writes down its variables. */
const CURL = `
echo "\${HTTPS_PROXY-unset}|\${NO_PROXY-unset}" >> $DIR/curls
while [ $# -gt 0 ]; do case "$1" in --output) out="$2"; shift;; esac; shift; done
if [ "$out" = /dev/null ]; then
  n=$(cat $DIR/n 2>/dev/null || echo 0); echo $((n + 1)) > $DIR/n
  if [ "$n" -lt 2 ]; then printf 503; else printf 200; fi
else
  echo 'echo "installed $1 with \${HTTPS_PROXY-unset}"; exit 4' > "$out"
fi`;

test("mgmtproxy_install: waits for the address, and downloads and installs with the same variables; empty when switched off", (t) => {
  const { run, command, flag, dir } = shell(t);
  command("curl", CURL);
  const on = run("mgmtproxy_install https://get.example.org v1.30 || exit $?");
  assert.equal(on.stdout, "installed v1.30 with http://127.0.0.1:5443\n");
  assert.equal(on.status, 4);
  assert.equal(readFileSync(join(dir, "curls"), "utf8"), `http://127.0.0.1:5443|${BASE}\n`.repeat(4));
  assert.match(on.stderr, /mgmtproxy_install: routing through proxy/);

  rmSync(join(dir, "curls"));
  writeFileSync(flag, "");
  const off = run("mgmtproxy_install https://get.example.org v1.30 || exit $?");
  assert.equal(off.stdout, "installed v1.30 with \n");
  assert.equal(readFileSync(join(dir, "curls"), "utf8"), "|\n".repeat(2));
  assert.match(off.stderr, /mgmtproxy_install: bypassing proxy/);
});

test("mgmtproxy_install: a download that fails runs nothing", (t) => {
  const { run, command } = shell(t);
  command("curl", `case "$*" in *write-out*) printf 200;; *) exit 22;; esac`);
  const { status, stdout } = run("mgmtproxy_install https://get.example.org || exit $?");
  assert.deepEqual({ status, stdout }, { status: 22, stdout: "" });
});
