/** The packages for Debian and npm, in a root file system that has nothing but packages of Debian: installed, run, verified and removed. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
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
import { PROGRAMS } from "../../src/programs/programs.ts";
import { fetchPackages } from "../../tools/image/debian.ts";
import { makeBase } from "../../tools/image/root.ts";

const root = join(import.meta.dirname, "../..");
const LINKED = Object.entries(PROGRAMS).flatMap(([name, { linked }]) => (linked === true ? [name] : []));
/** What dpkg needs, and what the package depends on. */
const CLEAN = ["base-files", "busybox-static", "dpkg", "libc-bin", "libc6", "libgcc-s1", "libnftables1", "libstdc++6"];
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
  return clean;
}

/** All files but dpkg's own records. */
function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .filter((path) => !/^var\/(lib\/dpkg|log)\//.test(path))
    .sort();
}

const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { readonly version: string };
/** The root of both tests: each leaves it as it was. */
const clean = cleanRoot();
const before = filesOf(clean);

function pack(format: string, file: string): string {
  const output = join(folder, file);
  const argv = [join(root, "tools/package.ts"), `--format=${format}`, "--level=1", `--output=${output}`];
  execFileSync("node", argv, { stdio: ["ignore", "ignore", "inherit"] });
  return output;
}

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

test("the Debian package: installs in a clean Debian, each program runs, every file is as it was built, and removal leaves nothing", () => {
  copyFileSync(pack("deb", "isthmus.deb"), join(clean, "tmp/isthmus.deb"));
  inside("dpkg", "--install", "/tmp/isthmus.deb");
  assert.equal(inside("dpkg", "--verify", "isthmus"), "");
  // Programs of root add to the compiled code, which a removal takes along.
  everyProgramRuns();
  for (const name of ["coil", "coil-standalone", "vpc-neutron", "vpc-alcor"])
    assert.ok(lstatSync(join(clean, "usr/lib/isthmus/cni", name)).mode & 0o111, name);
  for (const unit of readdirSync(join(clean, "lib/systemd/system")).filter((one) => one.startsWith("isthmus-"))) {
    const text = readFileSync(join(clean, "lib/systemd/system", unit), "utf8");
    const [, command = ""] = /^ExecStart=(\S+)/m.exec(text) ?? [];
    assert.ok(lstatSync(join(clean, command)).isSymbolicLink(), `${unit}: ${command}`);
  }
  inside("dpkg", "--purge", "isthmus");
  rmSync(join(clean, "tmp/isthmus.deb"));
  nothingIsLeft();
});

test("the package of npm: installs without a network, each program runs under the Node that it brings, and removal leaves nothing", () => {
  const file = pack("npm", "isthmus.tgz");
  const npm = (...args: readonly string[]): string => {
    const argv = [join(root, "tools/runtime/node_modules/npm/bin/npm-cli.js"), ...args, "--global"];
    const own = [`--prefix=${join(clean, "usr/local")}`, `--cache=${join(folder, "cache")}`, "--offline"];
    return execFileSync("node", [...argv, ...own], {
      encoding: "utf8",
      env: { PATH: process.env["PATH"], HOME: folder },
    });
  };
  npm("install", file);
  everyProgramRuns();
  for (const name of ["coil", "coil-standalone"])
    assert.ok(lstatSync(join(clean, "usr/local/lib/node_modules/isthmus/cni", name)).mode & 0o111, name);
  const { length: crds } = readdirSync(join(root, "deploy/crds"));
  assert.equal(readdirSync(join(clean, "usr/local/lib/node_modules/isthmus/deploy/chart/crds")).length, crds);
  npm("uninstall", "isthmus");
  for (const path of ["usr/local/lib/node_modules", "usr/local/lib", "usr/local/bin"]) rmdirSync(join(clean, path));
  if (!before.includes("usr/local")) rmdirSync(join(clean, "usr/local"));
  nothingIsLeft();
});
