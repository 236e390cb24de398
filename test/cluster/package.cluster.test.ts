/** The packages for Debian and npm, in a root file system that has nothing but packages of Debian: installed, run, verified and removed. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, test } from "node:test";
import { commandsOf, follow } from "#test/guide";
import { PROGRAMS } from "../../src/programs/programs.ts";
import { fetchPackages } from "../../tools/image/debian.ts";
import { makeBase } from "../../tools/image/root.ts";

const root = join(import.meta.dirname, "../..");
const LINKED = Object.entries(PROGRAMS).flatMap(([name, { linked }]) => (linked === true ? [name] : []));
/** The packages that apt and dpkg need, and those that the package depends on. */
const CLEAN = [
  "apt",
  "base-files",
  "busybox-static",
  "dpkg",
  "libc-bin",
  "libc6",
  "libgcc-s1",
  "libnftables1",
  "libstdc++6",
];
const folder = mkdtempSync(join(tmpdir(), "isthmus-package-test-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** A root file system in which dpkg knows the packages of Debian that it has. */
function cleanRoot(): string {
  const clean = join(folder, "root");
  mkdirSync(clean);
  const packages = fetchPackages(CLEAN, join(root, ".state/package-test"));
  makeBase(clean, packages);
  const dpkg = join(clean, "var/lib/dpkg");
  for (const one of ["info", "updates", "triggers"]) mkdirSync(join(dpkg, one), { recursive: true });
  for (const { name, architecture, control, file } of packages) {
    const tar = execFileSync("dpkg-deb", ["--fsys-tarfile", file], { maxBuffer: 2 ** 30 });
    const paths = execFileSync("tar", ["--list"], { input: tar, encoding: "utf8" });
    const list = /^Multi-Arch: same$/m.test(control) ? `${name}:${architecture}.list` : `${name}.list`;
    writeFileSync(
      join(dpkg, "info", list),
      paths
        .replace(/^\./gm, "")
        .replace(/(?<=.)\/$/gm, "")
        .replace(/^\/$/m, "/."),
    );
  }
  const status = packages.map(({ control }) => control.replace("\n", "\nStatus: install ok installed\n"));
  writeFileSync(join(dpkg, "status"), `${status.join("\n")}\n`);
  // A user answers yes.
  writeFileSync(join(clean, "etc/apt/apt.conf.d/90yes"), 'APT::Get::Assume-Yes "true";\n');
  for (const one of ["dev", "proc", "tmp"]) mkdirSync(join(clean, one), { recursive: true });
  return clean;
}

/** All files but the records of dpkg and apt. */
function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .filter((path) => !/^var\/(lib\/dpkg|lib\/apt|cache\/apt|log)(\/|$)/.test(path))
    .sort();
}

const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { readonly version: string };
/** The root of both tests: each leaves it as it was. */
const clean = cleanRoot();
const before = filesOf(clean);

/** The files that the page's commands write into the checkout. */
const [deb, cniDeb] = [`isthmus_${version}_amd64.deb`, `isthmus-cni_${version}_amd64.deb`];
const written = [deb, cniDeb, `isthmus-${version}.tgz`]
  .map((name) => join(root, name))
  .filter((file) => !existsSync(file));
after(() => {
  for (const file of written) rmSync(file, { force: true });
});
/** Neither the compression nor its reversal by dpkg and npm is what these tests are about; that of the image is at a level. */
const FAST = { "./run package": "./run package --level=0" };
/** In the clean root, with the devices and processes of this machine. */
const IN_CLEAN = {
  root: clean,
  folder: "/tmp",
  env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
  wrap: [
    ...["unshare", "--mount", "--propagation=private", "sh", "-ec"],
    `mount --rbind /dev ${clean}/dev; mount --rbind /proc ${clean}/proc; exec "$@"`,
    "sh",
  ],
};

function inside(...command: readonly string[]): string {
  return execFileSync("chroot", [clean, ...command], {
    encoding: "utf8",
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive" },
  });
}

function everyProgramRuns(): void {
  for (const name of ["isthmus", ...LINKED]) assert.equal(inside(name, "--version"), `${name} ${version}\n`);
  assert.match(inside("isthmus", "coild", "--help"), /--socket/);
}

function nothingIsLeft(): void {
  const left = filesOf(clean);
  assert.deepEqual(
    [left.filter((file) => !before.includes(file)), before.filter((file) => !left.includes(file))],
    [[], []],
  );
}

/** Builds a package by the commands of the page, and gives it to the clean root; returns those that install and remove it. */
async function built(commands: readonly string[], file: string): Promise<readonly [install: string, purge: string]> {
  const [build = "", use = ""] = commands;
  await follow([build], { words: FAST });
  copyFileSync(join(root, file), join(clean, "tmp", file));
  const [install = "", purge = ""] = use.split("\n");
  return [install, purge];
}

test("package.md, the Debian packages: each installs in a clean Debian, each program runs, every file is as it was built, and removal leaves nothing", async () => {
  const [install, purge] = await built(commandsOf("package.md", "For Debian"), deb);
  await follow([install], IN_CLEAN);
  assert.equal(inside("dpkg", "--verify", "isthmus"), "");
  // Programs of root add to the compiled code, which a removal takes along.
  everyProgramRuns();
  // A host without pods has no CNI executables and no runtime of theirs; what needs them says so.
  assert.equal(existsSync(join(clean, "usr/lib/isthmus/cni")), false);
  assert.throws(() => inside("isthmus", "lab"), /there is no \/usr\/lib\/isthmus\/cni\/coil: .*isthmus-cni/);
  for (const unit of readdirSync(join(clean, "lib/systemd/system")).filter((one) => one.startsWith("isthmus-"))) {
    const text = readFileSync(join(clean, "lib/systemd/system", unit), "utf8");
    const [, command = ""] = /^ExecStart=(\S+)/m.exec(text) ?? [];
    // Of iproute2.
    if (command === "ip") continue;
    assert.ok(lstatSync(join(clean, command)).isSymbolicLink(), `${unit}: ${command}`);
  }
  const [installCni, purgeCni] = await built(commandsOf("package.md", "CNI executables for Debian"), cniDeb);
  await follow([installCni], IN_CLEAN);
  assert.equal(inside("dpkg", "--verify", "isthmus-cni"), "");
  const executables = ["coil", "vpc-neutron", "vpc-alcor"].flatMap((one) => [one, `${one}-standalone`]).sort();
  const cni = join(clean, "usr/lib/isthmus/cni");
  assert.deepEqual(readdirSync(cni).sort(), executables);
  for (const name of executables) assert.ok(lstatSync(join(cni, name)).mode & 0o111, name);
  assert.equal(lstatSync(join(cni, "coil-standalone")).nlink, 3);
  await follow([purgeCni, purge], IN_CLEAN);
  for (const file of [deb, cniDeb]) rmSync(join(clean, "tmp", file));
  nothingIsLeft();
});

test("package.md, the package of npm: installs without a network, each program runs under the Node that it brings, and removal leaves nothing", async () => {
  const [build = "", use = ""] = commandsOf("package.md", "For npm");
  await follow([build], { words: FAST });
  const [install = "", uninstall = ""] = use.split("\n");
  const bin = join(folder, "bin");
  mkdirSync(bin);
  const npm = join(root, "tools/runtime/node_modules/npm/bin/npm-cli.js");
  writeFileSync(join(bin, "npm"), `#!/bin/sh\nexec node ${npm} "$@"\n`, { mode: 0o755 });
  const own = { npm_config_prefix: join(clean, "usr/local"), npm_config_cache: join(folder, "cache") };
  const env = { ...own, npm_config_offline: "true" };
  await follow([install], { bin, env });
  everyProgramRuns();
  for (const name of ["coil", "coil-standalone"])
    assert.ok(lstatSync(join(clean, "usr/local/lib/node_modules/isthmus/cni", name)).mode & 0o111, name);
  const { length: crds } = readdirSync(join(root, "deploy/crds"));
  assert.equal(readdirSync(join(clean, "usr/local/lib/node_modules/isthmus/deploy/chart/crds")).length, crds);
  await follow([uninstall], { bin, env });
  for (const path of ["usr/local/lib/node_modules", "usr/local/lib", "usr/local/bin"]) rmdirSync(join(clean, path));
  if (!before.includes("usr/local")) rmdirSync(join(clean, "usr/local"));
  nothingIsLeft();
});
