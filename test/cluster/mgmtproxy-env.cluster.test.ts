import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { ISTHMUS, isthmus, start, until } from "#test/lab";

const BASE = "127.0.0.0/8,10.42.0.0/16,10.43.0.0/16,169.254.0.0/16,localhost,.svc,.cluster.local";

/** A folder with an off-switch that is not on. */
function place(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), "mgmtproxy-env-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const flag = join(dir, "off");
  const env = (...words: string[]) =>
    isthmus(["mgmtproxy-env", `--off-switch=${flag}`, `--sentinel=${join(dir, "sentinel")}`, ...words]);
  return { dir, flag, env };
}

test("mgmtproxy-env print: both variables, empty where the off-switch is on", async (t) => {
  const { flag, env } = place(t);
  const on = await env("--node-ip=10.9.9.1", "--prefix-length=24");
  assert.equal(on.stdout, `HTTPS_PROXY=http://127.0.0.1:5443\nNO_PROXY=${BASE},10.9.9.1/24\n`);
  assert.equal((await env("enabled")).code, 0);
  writeFileSync(flag, "");
  assert.equal((await env("print")).stdout, "HTTPS_PROXY=\nNO_PROXY=\n");
  assert.deepEqual(await env("enabled").then(({ code, stdout }) => [code, stdout]), [1, `disabled via ${flag}\n`]);
});

test("mgmtproxy-env run: the command's words, output and exit status are its own", async (t) => {
  const { flag, env } = place(t);
  const script = `printf '[%s]' "$@"; printf '%s' "\${HTTPS_PROXY-none}"; exit 9`;
  const on = await env("run", "--", "sh", "-c", script, "x", "a b", "", "*");
  assert.deepEqual([on.code, on.stdout], [9, "[a b][][*]http://127.0.0.1:5443"]);
  assert.match(on.stderr, /mgmtproxy_run: routing through proxy \(http:\/\/127\.0\.0\.1:5443\): sh -c/);
  writeFileSync(flag, "");
  const off = await env("run", "--", "sh", "-c", script, "x");
  assert.deepEqual([off.code, off.stdout], [9, "[]none"]);
  assert.match(off.stderr, /mgmtproxy_run: bypassing proxy \(disabled via /);
  assert.equal((await env("run", "--", "sh", "-c", "kill -9 $$")).code, 137);
  const missing = await env("run", "--", "/no/such/command");
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /cannot start \/no\/such\/command/);
});

test("mgmtproxy-env launch: starts the runtime with the variables, records them, and does nothing while it runs", async (t) => {
  const { dir, env } = place(t);
  const words = [
    "launch",
    `--pid-file=${dir}/pid`,
    `--log-file=${dir}/log`,
    "--node-ip=10.9.9.1",
    "--",
    "sleep",
    "300",
  ];
  const first = await env(...words);
  const pid = Number(readFileSync(join(dir, "pid"), "utf8"));
  t.after(() => process.kill(pid, "SIGKILL"));
  assert.match(
    first.stderr,
    new RegExp(`Started k3s-containerd at pid:${pid} HTTPS_PROXY=http://127.0.0.1:5443 NO_PROXY=127`),
  );
  assert.match(readFileSync(`/proc/${pid}/environ`, "latin1"), /\0?NO_PROXY=127\.0\.0\.0\/8[^\0]*,10\.9\.9\.1\0/);
  assert.match(
    readFileSync(join(dir, "sentinel"), "utf8"),
    new RegExp(
      `^pid=${pid}\nstarted=\\S+\\+00:00\nHTTPS_PROXY=http://127\\.0\\.0\\.1:5443\nNO_PROXY=127.*,10\\.9\\.9\\.1\n$`,
    ),
  );
  const second = await env(...words);
  assert.match(second.stderr, /k3s-containerd is running already/);
  assert.equal(Number(readFileSync(join(dir, "pid"), "utf8")), pid);
});

test("mgmtproxy-env watch: logs once that the list is stale, and runs the operator's command once for each start of the runtime", async (t) => {
  const { dir, flag } = place(t);
  const sentinel = join(dir, "sentinel");
  const ran = join(dir, "ran");
  const record = (pid: number): void =>
    writeFileSync(
      sentinel,
      `pid=${pid}\nstarted=2026-05-04T23:28:24+00:00\nHTTPS_PROXY=http://127.0.0.1:5443\nNO_PROXY=${BASE},10.9.9.1\n`,
    );
  record(1);
  const running = start([
    ISTHMUS,
    "mgmtproxy-env",
    "watch",
    `--sentinel=${sentinel}`,
    `--off-switch=${flag}`,
    "--node-ip=10.9.9.2",
    "--interval=1s",
    "--debounce=1s",
    "--healthz-url=http://127.0.0.1:9/healthz",
    `--on-node-ip-change=echo ran >> ${ran}`,
  ]);
  t.after(() => running.child.kill("SIGKILL"));
  await until("the command has run", () => existsSync(ran));
  const hooks = () => running.said().match(/ran the command for a stale NO_PROXY/g)?.length ?? 0;
  await until("it is said", () => hooks() === 1);
  record(2);
  await until("it runs again for the next start of the runtime", () => hooks() === 2);
  running.child.kill("SIGTERM");
  assert.equal((await running.ended).code, 0);
  assert.equal(readFileSync(ran, "utf8"), "ran\nran\n");
  assert.equal(running.said().match(/NO_PROXY is stale/g)?.length, 1);
});

test("mgmtproxy-env: a fault is reported in one line", async (t) => {
  const { env } = place(t);
  for (const [words, expected] of [
    [["fly"], /unexpected "fly": it must be one of print, run/],
    [["run"], /run needs a command/],
    [["print", "x"], /unexpected "x" after print/],
    [["sentinel"], /sentinel needs --pid/],
    [["--pod-cidr=10.0.0.0/99"], /--pod-cidr: "10\.0\.0\.0\/99" is not a CIDR/],
    [["--node-ip=10.0.0"], /--node-ip: /],
  ] as const) {
    const { code, stderr } = await env(...words);
    assert.equal(code, 2, stderr);
    assert.match(stderr, expected);
  }
});

test("mgmtproxy-env apply: kubectl fetches a manifest through the proxy; its output and its failure are passed on", async (t) => {
  const { dir, flag } = place(t);
  const script = (body: string): void => {
    writeFileSync(join(dir, "kubectl"), `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  };
  const apply = (path: string) =>
    start([
      "env",
      `PATH=${dir}:${process.env["PATH"]}`,
      ISTHMUS,
      "mgmtproxy-env",
      `--off-switch=${flag}`,
      "apply",
      path,
    ]).ended;
  script(`echo "$* by \${HTTPS_PROXY-none}"`);
  assert.equal(
    (await apply("https://example.org/a b.yaml")).stdout,
    "apply -f https://example.org/a b.yaml by http://127.0.0.1:5443\n",
  );
  assert.equal((await apply("/x.yaml")).stdout, "apply -f /x.yaml by none\n");
  script("echo no such thing >&2; exit 3");
  const failed = await apply("https://example.org/x");
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /cannot apply https:\/\/example\.org\/x: kubectl ended with code 3; .*no such thing/);
});

test("isthmus: the executable alone, copied elsewhere, names the missing parts", async (t) => {
  const { dir } = place(t);
  copyFileSync(ISTHMUS, join(dir, "isthmus"));
  const { code, stderr } = await start([join(dir, "isthmus"), "version"]).ended;
  assert.equal(code, 1);
  assert.match(stderr, /isthmus\.mjs is not there.*copy the whole folder dist/);
});
