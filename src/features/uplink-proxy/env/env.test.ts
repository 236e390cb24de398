import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import {
  formatSentinel,
  isStale,
  kubectlApply,
  noProxy,
  OFF_SWITCH,
  parseSentinel,
  proxyEnvironment,
  readOffSwitch,
  readSentinel,
  systemdDropIn,
  writeSentinel,
} from "./index.ts";

const BASE = "127.0.0.0/8,10.42.0.0/16,10.43.0.0/16,169.254.0.0/16,localhost,.svc,.cluster.local";
const node4 = IpAddress.parse("10.244.244.2");

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "uplink-env-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Takes what is logged. */
function logged() {
  const lines: string[] = [];
  const take = (line: string): void => {
    lines.push(line);
  };
  return { lines, log: { info: take, warn: take } };
}

test("noProxy: the base list, then the node with the prefix of its subnet, as the reference writes it", () => {
  assert.equal(noProxy(), BASE);
  assert.equal(noProxy({ nodeIP: node4 }), `${BASE},10.244.244.2`);
  assert.equal(noProxy({ nodeIP: node4, prefixLength: 24 }), `${BASE},10.244.244.2/24`);
  assert.equal(noProxy({ nodeIP: node4, prefixLength: -1 }), `${BASE},10.244.244.2`);
  assert.deepEqual(proxyEnvironment(), { HTTPS_PROXY: "http://127.0.0.1:5443", NO_PROXY: BASE });
});

test("noProxy: other cluster ranges take the place of the default ones; IPv6 follows, before the node", () => {
  const options = {
    podCIDRs: [Cidr.parse("10.1.0.0/16"), Cidr.parse("fd01::/48")],
    serviceCIDRs: [Cidr.parse("10.2.0.0/16"), Cidr.parse("fd02::/112")],
    nodeIP: IpAddress.parse("fd00::5"),
    prefixLength: 64,
    literals: [node4],
  };
  assert.equal(
    noProxy(options),
    "127.0.0.0/8,10.1.0.0/16,10.2.0.0/16,169.254.0.0/16,localhost,.svc,.cluster.local,::1,fe80::/10,fd01::/48,fd02::/112,fd00::5/64,10.244.244.2",
  );
});

test("readOffSwitch: any kind of file switches off; one that cannot be checked does not, with a warning", async (t) => {
  const dir = folder(t);
  const { lines, log } = logged();
  const path = join(dir, "flag");
  assert.equal((await readOffSwitch(path, { log })).isEnabled, true);
  writeFileSync(path, "");
  assert.equal((await readOffSwitch(path, { log })).isEnabled, false);
  assert.equal((await readOffSwitch(dir, { log })).isEnabled, false);
  symlinkSync("/nowhere", join(dir, "dangling"));
  assert.equal((await readOffSwitch(join(dir, "dangling"), { log })).isEnabled, false);
  assert.deepEqual(lines, []);
  assert.equal((await readOffSwitch(join(path, "below"), { log })).isEnabled, true);
  assert.deepEqual(lines, ["cannot check whether the off-switch exists; programs use the proxy"]);
});

test("the sentinel is byte for byte what existing tools read, mode 0644, and comes back", async (t) => {
  const path = join(folder(t), "env");
  const started = new Date("2026-05-04T23:28:24.917Z");
  const env = proxyEnvironment({ nodeIP: node4, prefixLength: 24 });
  writeSentinel(path, { pid: 14398, started, env }, OFF_SWITCH);
  const text = readFileSync(path, "utf8");
  assert.equal(
    text,
    `pid=14398\nstarted=2026-05-04T23:28:24+00:00\nHTTPS_PROXY=http://127.0.0.1:5443\nNO_PROXY=${BASE},10.244.244.2/24\n`,
  );
  assert.equal(statSync(path).mode & 0o777, 0o644);
  assert.deepEqual(await readSentinel(path), { pid: 14398, started: new Date("2026-05-04T23:28:24Z"), env });

  writeSentinel(path, { pid: 7, started }, OFF_SWITCH);
  assert.equal(
    readFileSync(path, "utf8"),
    "pid=7\nstarted=2026-05-04T23:28:24+00:00\nHTTPS_PROXY=(disabled — flag /run/kube/mgmtproxy-disable present)\nNO_PROXY=(none)\n",
  );
  assert.equal((await readSentinel(path))?.env, undefined);
  assert.equal(await readSentinel(`${path}.none`), undefined);
});

test("parseSentinel: any text is a record or none", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 200 }), (text) => {
      const read = parseSentinel(text);
      assert.ok(read === undefined || formatSentinel(read, "/f").startsWith(`pid=${read.pid}\n`));
    }),
  );
  assert.equal(parseSentinel("pid=1\nstarted=never\nHTTPS_PROXY=\nNO_PROXY=\n"), undefined);
});

test("isStale: a list is stale when nothing in it covers the node's address", () => {
  const of = (nodeIP: IpAddress, prefixLength?: number) => ({ env: proxyEnvironment({ nodeIP, prefixLength }) });
  assert.equal(isStale(of(node4), node4), false);
  assert.equal(isStale(of(node4), IpAddress.parse("10.244.244.3")), true);
  assert.equal(isStale(of(node4, 24), IpAddress.parse("10.244.244.3")), false);
  assert.equal(isStale(of(node4, 24), IpAddress.parse("10.244.245.3")), true);
  assert.equal(isStale(of(node4), IpAddress.parse("10.42.9.9")), false, "the wide ranges absorb it");
  assert.equal(isStale(of(node4), IpAddress.parse("fd00::1")), true);
  assert.equal(isStale({ env: undefined }, node4), false);
  assert.equal(isStale({ env: { HTTPS_PROXY: "", NO_PROXY: "10.0.0.0/99,1.2.3.4/x,," } }, node4), true);
});

test("systemdDropIn: a drop-in of a service", () => {
  assert.equal(
    systemdDropIn(proxyEnvironment()),
    `[Service]\nEnvironment="HTTPS_PROXY=http://127.0.0.1:5443"\nEnvironment="NO_PROXY=${BASE}"\n`,
  );
});

/** A kubectl that writes down its arguments and environment. */
function fakeKubectl(t: TestContext, body = "exit 0") {
  const dir = folder(t);
  const kubectl = join(dir, "kubectl");
  writeFileSync(
    kubectl,
    `#!/bin/sh\nprintf '%s\\n' "$#" "$@" > ${dir}/argv\n/usr/bin/env | /usr/bin/grep _PROXY > ${dir}/env\n${body}\n`,
  );
  chmodSync(kubectl, 0o755);
  return {
    dir,
    kubectl,
    argv: () => readFileSync(join(dir, "argv"), "utf8").split("\n").slice(1, -1),
    env: () => readFileSync(join(dir, "env"), "utf8").split("\n").filter(Boolean).sort(),
  };
}

const PROXIED = [`HTTPS_PROXY=http://127.0.0.1:5443`, `NO_PROXY=${BASE}`];

test("kubectlApply: https, http and files, with the off-switch and without: arguments, environment and log", async (t) => {
  const url = "https://example.org/a b;$(x).yaml";
  const cases = [
    {
      path: url,
      off: false,
      env: PROXIED,
      log: [`KubectlApply: routing through mgmtproxy (http://127.0.0.1:5443): ${url}`],
    },
    {
      path: url,
      off: true,
      env: [],
      log: [`KubectlApply: mgmtproxy disabled (FLAG present), fetching direct: ${url}`],
    },
    {
      path: "http://example.org/x.yaml",
      off: false,
      env: [],
      log: ["KubectlApply: plain HTTP is not routed through mgmtproxy, fetching direct: http://example.org/x.yaml"],
    },
    { path: "/etc/x.yaml", off: false, env: [], log: [] },
    { path: "HTTPS://example.org/x.yaml", off: false, env: [], log: [] },
  ];
  for (const { path, off, env, log: expected } of cases) {
    const kubectl = fakeKubectl(t);
    const flag = join(kubectl.dir, "flag");
    if (off) mkdirSync(flag);
    const { lines, log } = logged();
    await kubectlApply(path, { log, flag, kubectl: kubectl.kubectl, env: {} });
    assert.deepEqual(kubectl.argv(), ["apply", "-f", path]);
    assert.deepEqual(kubectl.env(), env, path);
    assert.deepEqual(
      lines.map((line) => line.replace(flag, "FLAG")),
      expected,
    );
  }
});

test("kubectlApply: the parent's environment stays, its proxy variables do not", async (t) => {
  const kubectl = fakeKubectl(t);
  const { log } = logged();
  const env = { HTTPS_PROXY: "http://old:1", MY_PROXY: "kept" };
  await kubectlApply("https://example.org/x", { log, flag: join(kubectl.dir, "flag"), kubectl: kubectl.kubectl, env });
  assert.deepEqual(kubectl.env(), ["HTTPS_PROXY=http://127.0.0.1:5443", "MY_PROXY=kept", `NO_PROXY=${BASE}`]);
});

test("kubectlApply: a failure names the path, the code and kubectl's output; a kubectl that hangs is ended", async (t) => {
  const { log } = logged();
  const failing = fakeKubectl(t, "echo out; echo bad >&2; exit 3").kubectl;
  await assert.rejects(kubectlApply("/x.yaml", { log, kubectl: failing }), {
    name: "KubectlApplyError",
    code: "failed",
    message: 'cannot apply /x.yaml: kubectl ended with code 3; stdout: "out\\n", stderr: "bad\\n"',
  });
  const hanging = fakeKubectl(t, "exec /usr/bin/sleep 60").kubectl;
  await assert.rejects(kubectlApply("/x.yaml", { log, kubectl: hanging, timeoutMs: 200 }), { code: "timeout" });
  await assert.rejects(kubectlApply("/x.yaml", { log, kubectl: "/no/kubectl" }), { code: "cannot-run" });
});
