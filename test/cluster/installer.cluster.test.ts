import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { ISTHMUS, type Outcome, type Running, start, until } from "#test/lab";

const INSTALLER = join(ISTHMUS, "../coil-installer");
const CONFLIST = JSON.stringify({
  cniVersion: "0.4.0",
  name: "k8s-pod-network",
  plugins: [
    { type: "coil", socket: "/run/coild.sock" },
    { type: "portmap", snat: true, capabilities: { portMappings: true } },
  ],
});

/** A host's folders, an executable to install, and the installer. */
function host(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-installer-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const etc = join(dir, "etc/cni/net.d");
  const bin = join(dir, "opt/cni/bin");
  const source = join(dir, "coil-1");
  writeFileSync(source, "#!/bin/sh\necho one\n");
  const env = {
    CNI_ETC_DIR: etc,
    CNI_BIN_DIR: bin,
    COIL_PATH: source,
    CNI_NETCONF: CONFLIST,
    CNI_NETCONF_FILE: undefined,
    CNI_CONF_NAME: undefined,
    CNI_REMOVE_OTHERS: undefined,
  };
  const launch = (more: Readonly<Record<string, string | undefined>> = {}, args: readonly string[] = []): Running =>
    start([INSTALLER, ...args], { env: { ...env, ...more } });
  return {
    dir,
    etc,
    bin,
    source,
    launch,
    /** Runs it to its end without the wait for runtimes. */
    install: (more: Readonly<Record<string, string | undefined>> = {}): Promise<Outcome> =>
      launch(more, ["--rescan-wait=0"]).ended,
  };
}

/** Permissions, inode and time of change, which a rewritten file does not keep. */
function identity(path: string): string {
  const { mode, ino, mtimeMs } = statSync(path);
  return `${(mode & 0o777).toString(8)} ${ino} ${mtimeMs}`;
}

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);

/** The one line of the fault. */
function complaint({ code, stdout, stderr }: Outcome, wanted: number): string {
  assert.deepEqual([code, stdout], [wanted, ""], stderr);
  const lines = stderr.split("\n").filter((line) => line !== "" && line !== "coil-installer --help lists the flags");
  assert.equal(lines.length, 1, stderr);
  const [line = ""] = lines;
  assert.ok(line.startsWith("coil-installer: "), line);
  assert.doesNotMatch(line, /this is a bug/);
  return line;
}

test("coil-installer: makes the folders and puts the executable and the configuration in place", async (t) => {
  const { etc, bin, source, install } = host(t);
  const { code, stderr } = await install();
  assert.equal(code, 0, stderr);
  assert.deepEqual([readdirSync(etc), readdirSync(bin)], [["10-coil.conflist"], ["coil"]]);
  assert.equal(readFileSync(join(etc, "10-coil.conflist"), "utf8"), CONFLIST);
  assert.deepEqual(readFileSync(join(bin, "coil")), readFileSync(source));
  assert.deepEqual([modeOf(join(bin, "coil")), modeOf(join(etc, "10-coil.conflist"))], ["755", "644"]);
});

test("coil-installer: a second run changes nothing and does not wait", async (t) => {
  const { etc, bin, install, launch } = host(t);
  await install();
  const paths = [join(etc, "10-coil.conflist"), join(bin, "coil"), etc, bin];
  const before = paths.map(identity);
  const { code, stderr } = await launch({}, ["--rescan-wait=1h"]).ended;
  assert.equal(code, 0, stderr);
  assert.match(stderr, /nothing to do: the executable and the configuration are installed already/);
  assert.deepEqual(paths.map(identity), before);
});

test("coil-installer: changed files are restored, their permissions too", async (t) => {
  const { etc, bin, install } = host(t);
  await install();
  writeFileSync(join(etc, "10-coil.conflist"), "{}");
  chmodSync(join(bin, "coil"), 0o600);
  assert.equal((await install()).code, 0);
  assert.equal(readFileSync(join(etc, "10-coil.conflist"), "utf8"), CONFLIST);
  assert.equal(modeOf(join(bin, "coil")), "755");
});

test("coil-installer: an executable that is running is replaced whole, and runs on", async (t) => {
  const { dir, bin, install } = host(t);
  const first = join(dir, "sleeper");
  copyFileSync("/bin/sleep", first);
  assert.equal((await install({ COIL_PATH: first })).code, 0);
  const before = readFileSync(join(bin, "coil"));
  const running = spawn(join(bin, "coil"), ["600"], { stdio: "ignore" });
  const ended = once(running, "exit");
  try {
    await once(running, "spawn");
    // A process that has the old file open keeps it; the path leads to the new one.
    const held = join("/proc", String(running.pid), "exe");
    assert.equal((await install()).code, 0);
    assert.deepEqual(readFileSync(held), before);
    assert.equal(readFileSync(join(bin, "coil"), "utf8"), "#!/bin/sh\necho one\n");
    assert.equal(running.exitCode, null);
  } finally {
    running.kill("SIGKILL");
    await ended;
  }
});

test("coil-installer: the temporary files of a killed run of the same process id do not matter", async (t) => {
  const { bin, etc, source, launch } = host(t);
  mkdirSync(bin, { recursive: true });
  mkdirSync(etc, { recursive: true });
  // The shell's number becomes the program's; in a container it is the same each time.
  const leave = `for f in "$CNI_BIN_DIR/.coil.$$.tmp" "$CNI_ETC_DIR/.10-coil.conflist.$$.tmp"; do echo half > "$f"; done`;
  const env = { CNI_ETC_DIR: etc, CNI_BIN_DIR: bin, COIL_PATH: source, CNI_NETCONF: CONFLIST };
  const { ended } = start(["/bin/sh", "-c", `${leave}; exec "${INSTALLER}" --rescan-wait=0`], { env });
  const { code, stderr } = await ended;
  assert.equal(code, 0, stderr);
  assert.deepEqual([readdirSync(etc), readdirSync(bin)], [["10-coil.conflist"], ["coil"]]);
  assert.equal((await launch().ended).code, 0);
});

test("coil-installer: configurations of others are put aside, on request deleted; other files stay", async (t) => {
  const { etc, install } = host(t);
  mkdirSync(etc, { recursive: true });
  for (const name of ["05-other.conflist", "20-old.conflist.bak", "99-loopback.conf", "readme"]) {
    writeFileSync(join(etc, name), name);
  }
  const { code, stderr } = await install();
  assert.equal(code, 0, stderr);
  assert.deepEqual(readdirSync(etc).sort(), [
    "05-other.conflist.coil-disabled",
    "10-coil.conflist",
    "20-old.conflist.bak.coil-disabled",
    "99-loopback.conf",
    "readme",
  ]);
  assert.equal(readFileSync(join(etc, "05-other.conflist.coil-disabled"), "utf8"), "05-other.conflist");
  assert.match(stderr, /05-other\.conflist/, "the log names them");
  writeFileSync(join(etc, "05-other.conflist"), "again");
  assert.equal((await install({ CNI_REMOVE_OTHERS: "true" })).code, 0);
  assert.deepEqual(readdirSync(etc).sort(), [
    "05-other.conflist.coil-disabled",
    "10-coil.conflist",
    "20-old.conflist.bak.coil-disabled",
    "99-loopback.conf",
    "readme",
  ]);
});

test("coil-installer: every configuration that a runtime would read first is put aside; a file of Multus and half-written ones of others stay", async (t) => {
  const { etc, install } = host(t);
  mkdirSync(etc, { recursive: true });
  mkdirSync(join(etc, "00-folder.conf"));
  for (const name of ["05-other.conf", "10-a.json", ".05-vpc.conflist.123.tmp", "10-d.json"])
    writeFileSync(join(etc, name), "{}");
  writeFileSync(join(etc, "00-multus.conf"), '{"name":"m","type":"multus"}');
  const first = await install();
  assert.equal(first.code, 0, first.stderr);
  const after = [
    ".05-vpc.conflist.123.tmp",
    "00-folder.conf",
    "00-multus.conf",
    "05-other.conf.coil-disabled",
    "10-a.json.coil-disabled",
    "10-coil.conflist",
    "10-d.json",
  ];
  assert.deepEqual(readdirSync(etc).sort(), after);
  assert.match((await install()).stderr, /nothing to do/);
  for (const name of ["05-other.conf", "10-a.json"]) writeFileSync(join(etc, name), "again");
  assert.equal((await install({ CNI_REMOVE_OTHERS: "true" })).code, 0);
  assert.deepEqual(readdirSync(etc).sort(), after);
});

test("coil-installer: a change of the executable alone is no reason to wait, one of the configurations is", async (t) => {
  const { dir, etc, source, install, launch } = host(t);
  const run = (env: Readonly<Record<string, string>> = {}): Running => launch(env, ["--rescan-wait=1h"]);
  const waits = async (env?: Readonly<Record<string, string>>): Promise<void> => {
    const { child, ended, said } = run(env);
    await until("it says that it has installed", () => said().includes('"installed"'));
    child.kill("SIGTERM");
    assert.equal((await ended).code, 1, "the wait was not over");
  };
  await install();
  writeFileSync(source, "#!/bin/sh\necho two\n");
  assert.equal((await run().ended).code, 0);
  const plugin = join(dir, "vpc-neutron");
  writeFileSync(plugin, "#!/bin/sh\n");
  assert.equal((await run({ CNI_PLUGINS: plugin }).ended).code, 0);
  writeFileSync(join(etc, "05-other.conf"), "{}");
  await waits();
  await waits({ CNI_NETCONF: `${CONFLIST} ` });
});

test("coil-installer: a configuration of another installation of the suite is put aside with an error that says what to apply", async (t) => {
  const { etc, install } = host(t);
  mkdirSync(etc, { recursive: true });
  const vpc = { cniVersion: "1.0.0", name: "vpc", plugins: [{ type: "vpc-neutron", delegate: { type: "ptp" } }] };
  writeFileSync(join(etc, "05-vpc.conflist"), JSON.stringify(vpc));
  writeFileSync(join(etc, "07-other.conflist"), '{"name":"other","plugins":[{"type":"bridge"}]}');
  const { code, stderr } = await install();
  assert.equal(code, 0, stderr);
  assert.match(stderr, /"error".*\["05-vpc\.conflist"\].*another installation of this suite.*deploy\/all\.yaml/);
  assert.doesNotMatch((await install()).stderr, /another installation/);
});

test("coil-installer: CNI_NETCONF goes before CNI_NETCONF_FILE, and CNI_CONF_NAME names the file", async (t) => {
  const { etc, dir, install } = host(t);
  const file = join(dir, "netconf");
  writeFileSync(file, CONFLIST.replace("k8s-pod-network", "from-file"));
  const named = { CNI_CONF_NAME: "00-coil.conflist", CNI_NETCONF_FILE: file };
  assert.equal((await install(named)).code, 0);
  assert.equal(readFileSync(join(etc, "00-coil.conflist"), "utf8"), CONFLIST);
  assert.equal((await install({ ...named, CNI_NETCONF: undefined })).code, 0);
  assert.match(readFileSync(join(etc, "00-coil.conflist"), "utf8"), /from-file/);
});

/** A fault, and its message; DIR stands for the test's folder. */
const FAULTS: readonly {
  readonly when: string;
  readonly env: Readonly<Record<string, string>>;
  readonly code: number;
  readonly says: RegExp;
}[] = [
  {
    when: "the executable to install is missing",
    env: { COIL_PATH: "DIR/none" },
    code: 1,
    says: /cannot install.*ENOENT.*DIR\/none/,
  },
  { when: "the executable to install is a folder", env: { COIL_PATH: "DIR" }, code: 1, says: /cannot install.*DIR/ },
  {
    when: "a folder's name is taken by a file",
    env: { CNI_BIN_DIR: "DIR/coil-1" },
    code: 1,
    says: /cannot install.*EEXIST.*DIR\/coil-1/,
  },
  {
    when: "the configuration's file is missing",
    env: { CNI_NETCONF: "", CNI_NETCONF_FILE: "DIR/none" },
    code: 2,
    says: /CNI_NETCONF_FILE DIR\/none is not a CNI configuration list: ENOENT/,
  },
  {
    when: "there is no configuration",
    env: { CNI_NETCONF: "" },
    code: 2,
    says: /neither CNI_NETCONF nor CNI_NETCONF_FILE/,
  },
  { when: "the configuration is not JSON", env: { CNI_NETCONF: "{" }, code: 2, says: /CNI_NETCONF is not .*JSON/ },
  {
    when: "the configuration is null",
    env: { CNI_NETCONF: "null" },
    code: 2,
    says: /CNI_NETCONF is not .*the field name is missing/,
  },
  {
    when: "the configuration has no plugins",
    env: { CNI_NETCONF: '{"name":"n","plugins":[]}' },
    code: 2,
    says: /the field plugins is missing or empty/,
  },
  {
    when: "a plugin has no type",
    env: { CNI_NETCONF: '{"name":"n","plugins":[{"type":"coil"},null]}' },
    code: 2,
    says: /plugins\[1\] has no type/,
  },
  {
    when: "the configuration's name is a path",
    env: { CNI_CONF_NAME: "../x.conflist" },
    code: 2,
    says: /CNI_CONF_NAME is "\.\.\/x\.conflist"; it must be a file name that ends in \.conflist/,
  },
];

for (const { when, env, code, says } of FAULTS) {
  test(`coil-installer: when ${when} it reports that in one line and writes no configuration`, async (t) => {
    const { dir, etc, install } = host(t);
    const here = Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value.replace("DIR", dir)]));
    const line = complaint(await install(here), code);
    assert.match(line.replaceAll(dir, "DIR"), says);
    assert.deepEqual(existsSync(etc) ? readdirSync(etc) : [], []);
  });
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`coil-installer: ${signal} ends the wait for runtimes; installed files stay`, async (t) => {
    const { bin, etc, launch } = host(t);
    const { child, ended, said } = launch({}, ["--rescan-wait=1h"]);
    await until("it says that it has installed", () => said().includes('"installed"'));
    child.kill(signal);
    const { code, stderr } = await ended;
    assert.equal(code, 1, "the wait was not over");
    assert.doesNotMatch(stderr, /this is a bug/);
    assert.deepEqual([readdirSync(etc), readdirSync(bin)], [["10-coil.conflist"], ["coil"]]);
  });
}

const SHIPPED = join(ISTHMUS, "../cni/coil");

/** A launcher with a small file in the place of the standalone executable, whose size would only take time. */
function launcherOf(dir: string): string {
  mkdirSync(join(dir, "image"));
  const launcher = join(dir, "image/coil");
  copyFileSync(SHIPPED, launcher);
  writeFileSync(`${launcher}-standalone`, "#!/bin/sh\necho standalone\n");
  return launcher;
}

test("coil-installer: a launcher gets the socket of the configuration, and the standalone executable beside it", async (t) => {
  const { bin, dir, install } = host(t);
  const source = launcherOf(dir);
  const socketOf = (file: string): string => readFileSync(file).subarray(-108).toString().replace(/\0+$/, "");
  for (const [socket, wanted] of [
    ["/var/run/coil/n1.sock", "/var/run/coil/n1.sock.call1"],
    [undefined, "/run/coild.sock.call1"],
    // Too long for a hand-over socket beside it: the launcher asks at the default one, and runs the standalone executable.
    [`/${"x".repeat(104)}`, "/run/coild.sock.call1"],
  ] as const) {
    const plugins = [
      { type: "ptp", socket: "/run/not-ours.sock" },
      socket === "/var/run/coil/n1.sock"
        ? { type: "vpc-neutron", socket: "/run/vpc.sock", delegate: { plugins: [{ type: "coil", socket }] } }
        : { type: "coil", socket },
    ];
    const conflist = JSON.stringify({ cniVersion: "1.0.0", name: "net", plugins });
    const env = { COIL_PATH: source, CNI_NETCONF: conflist };
    assert.match((await install(env)).stderr, /"configChanged":true/);
    assert.equal(socketOf(join(bin, "coil")), wanted);
    const [installed, shipped] = [readFileSync(join(bin, "coil")), readFileSync(SHIPPED)];
    assert.deepEqual(installed.subarray(0, -108), shipped.subarray(0, -108), "nothing else has changed");
    assert.equal(readFileSync(join(bin, "coil-standalone"), "utf8"), "#!/bin/sh\necho standalone\n");
    assert.deepEqual(
      ["coil", "coil-standalone"].map((name) => modeOf(join(bin, name))),
      ["755", "755"],
    );
    assert.deepEqual(readdirSync(bin).sort(), ["coil", "coil-standalone"]);
    const before = ["coil", "coil-standalone"].map((name) => identity(join(bin, name)));
    assert.match(
      (await install(env)).stderr,
      /nothing to do: the executable and the configuration are installed already/,
    );
    assert.deepEqual(
      ["coil", "coil-standalone"].map((name) => identity(join(bin, name))),
      before,
    );
  }
});

test("coil-installer: what was changed of either file is restored", async (t) => {
  const { bin, dir, install } = host(t);
  const env = { COIL_PATH: launcherOf(dir) };
  await install(env);
  const spoil: (() => void)[] = [
    () => writeFileSync(join(bin, "coil-standalone"), "else"),
    () => rmSync(join(bin, "coil-standalone")),
    () => chmodSync(join(bin, "coil-standalone"), 0o644),
    () => writeFileSync(join(bin, "coil"), readFileSync(SHIPPED)),
    () => chmodSync(join(bin, "coil"), 0o600),
  ];
  const whole = readFileSync(join(bin, "coil"));
  for (const [at, damage] of spoil.entries()) {
    damage();
    const isDamaged = at !== 3 || !readFileSync(SHIPPED).equals(whole);
    const { stderr } = await install(env);
    assert.equal(/"binaryChanged":true/.test(stderr), isDamaged, stderr);
    assert.deepEqual(readFileSync(join(bin, "coil")), whole);
    assert.equal(readFileSync(join(bin, "coil-standalone"), "utf8"), "#!/bin/sh\necho standalone\n");
  }
});

test("coil-installer: a launcher is not installed without the standalone executable; what was there stays", async (t) => {
  const { bin, dir, install } = host(t);
  await install();
  const source = launcherOf(dir);
  rmSync(`${source}-standalone`);
  const line = complaint(await install({ COIL_PATH: source }), 1);
  assert.match(line, /cannot install.*ENOENT.*coil-standalone/);
  assert.equal(readFileSync(join(bin, "coil"), "utf8"), "#!/bin/sh\necho one\n");
});

test("coil-installer: the executable of an earlier version is replaced by the launcher, and the other way round", async (t) => {
  const { bin, dir, install } = host(t);
  const env = { COIL_PATH: launcherOf(dir) };
  assert.equal((await install()).code, 0);
  assert.equal((await install(env)).code, 0);
  assert.equal(readFileSync(join(bin, "coil")).length, readFileSync(SHIPPED).length);
  // A downgrade leaves a file that nothing calls.
  assert.equal((await install()).code, 0);
  assert.equal(readFileSync(join(bin, "coil"), "utf8"), "#!/bin/sh\necho one\n");
});

test("coil-installer: further executables are installed under their names before the configuration, with and without coil", async (t) => {
  const { dir, bin, etc, install } = host(t);
  const plugin = join(dir, "vpc-neutron");
  writeFileSync(plugin, "#!/bin/sh\necho vpc\n");
  const conflist = JSON.stringify({ cniVersion: "1.0.0", name: "vpc", plugins: [{ type: "vpc-neutron" }] });
  const env = { COIL_PATH: "", CNI_PLUGINS: ` ${plugin}, `, CNI_NETCONF: conflist, CNI_CONF_NAME: "05-vpc.conflist" };
  const first = await install(env);
  assert.equal(first.code, 0, first.stderr);
  assert.deepEqual([readdirSync(bin), readdirSync(etc)], [["vpc-neutron"], ["05-vpc.conflist"]]);
  assert.equal(readFileSync(join(bin, "vpc-neutron"), "utf8"), "#!/bin/sh\necho vpc\n");
  assert.equal(statSync(join(bin, "vpc-neutron")).mode & 0o777, 0o755);
  assert.match((await install(env)).stdout + (await install(env)).stderr, /nothing to do/);
  writeFileSync(plugin, "#!/bin/sh\necho newer\n");
  assert.equal((await install(env)).code, 0);
  assert.match(readFileSync(join(bin, "vpc-neutron"), "utf8"), /newer/);
  assert.equal(
    (await install({ ...env, COIL_PATH: undefined, CNI_PLUGINS: plugin })).code,
    1,
    "there is no coil to install",
  );
  for (const wrong of ["vpc-neutron", "/a/../", "/usr/local/coil/coil", "/x/-y"]) {
    const refused = await install({ ...env, CNI_PLUGINS: wrong });
    assert.deepEqual([refused.code, /CNI_PLUGINS has/.test(refused.stderr)], [2, true], wrong);
  }
});
