/**
 * The root file system of the image: packages of Debian and Node in one tree, the build in another.
 *
 * Owns: the folders that it is given. Maintainers' scripts of packages are not run; what they would do is done here.
 */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { compileAhead } from "../compile-ahead.ts";
import type { DebianPackage } from "./debian.ts";
import type { NpmPackage } from "./npm.ts";

/** The folder of the programs in the image. */
export const PROGRAMS = "/usr/local/isthmus";
/** The folder of the CNI executables, where Coil's manifests have theirs. */
export const CNI = "/usr/local/coil";
export const PATH = `${PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;
/** The user id of programs that need no rights; manifests name it by number. */
export const UNPRIVILEGED = 10000;
const NODE = "/usr/local/bin/node";

/** Merged /usr, as in an installed Debian 12. */
const MERGED = ["bin", "sbin", "lib", "lib64"];
/** Nothing in the image reads these. Copyright notices stay. */
const UNUSED = [
  "usr/share/man",
  "usr/share/info",
  "usr/share/locale",
  "usr/share/lintian",
  "usr/share/bash-completion",
  "usr/share/bug",
  "usr/share/initramfs-tools",
  "usr/share/zsh",
  "usr/lib/x86_64-linux-gnu/gconv",
  "usr/lib/x86_64-linux-gnu/engines-3",
  "etc/init.d",
  "etc/default",
  "etc/modprobe.d",
  ...["boot", "home", "media", "mnt", "opt", "srv", "usr/games", "usr/share/base-files"],
];
/** The commands of busybox. The launcher needs sh and readlink; the rest is for people who look into a container. */
const BUSYBOX = [
  ..."cat chmod cp cut date df diff dmesg du echo env find free grep head hostname id ip kill less ln ls mkdir more".split(
    " ",
  ),
  ..."mv nc netstat nslookup ping ping6 ps pwd readlink rm sed sh sleep sort stat tail tar tee top touch traceroute".split(
    " ",
  ),
  ..."true uname vi wc wget which xargs".split(" "),
];

/** Debian, and Node if it is given. The folder must be empty. */
export function makeBase(folder: string, packages: readonly DebianPackage[], node?: NpmPackage): void {
  for (const name of MERGED) {
    mkdirSync(join(folder, "usr", name), { recursive: true });
    symlinkSync(`usr/${name}`, join(folder, name));
  }
  for (const { file } of packages) {
    const tar = execFileSync("dpkg-deb", ["--fsys-tarfile", file], { maxBuffer: 2 ** 30 });
    execFileSync("tar", ["--extract", "--keep-directory-symlink", "--directory", folder], { input: tar });
  }
  for (const path of UNUSED) rmSync(join(folder, path), { recursive: true, force: true });
  const docs = join(folder, "usr/share/doc");
  for (const name of readdirSync(docs)) keepCopyright(join(docs, name));
  // Scanners of images read the packages here.
  const status = join(folder, "var/lib/dpkg/status.d");
  mkdirSync(status, { recursive: true });
  for (const { name, control } of packages) writeFileSync(join(status, name), control);
  for (const name of BUSYBOX) linkAbsent("/bin/busybox", join(folder, "usr/bin", name));
  // What update-alternatives would choose.
  for (const name of ["iptables", "ip6tables"])
    for (const end of ["", "-save", "-restore"])
      linkAbsent(`${name}-nft${end}`, join(folder, "usr/sbin", `${name}${end}`));
  if (node !== undefined) {
    const runtime = join(folder, NODE);
    mkdirSync(dirname(runtime), { recursive: true });
    copyFileSync(join(node.folder, "bin/node"), runtime);
    copyLicenses(folder, [node]);
  }
  mkdirSync(join(folder, "etc"), { recursive: true });
  writeFileSync(
    join(folder, "etc/passwd"),
    [
      "root:x:0:0:root:/root:/bin/sh",
      `isthmus:x:${UNPRIVILEGED}:${UNPRIVILEGED}:isthmus:/:/bin/sh`,
      "nobody:x:65534:65534:nobody:/:/bin/sh\n",
    ].join("\n"),
  );
  writeFileSync(join(folder, "etc/group"), `root:x:0:\nisthmus:x:${UNPRIVILEGED}:\nnogroup:x:65534:\n`);
  // Container runtimes write hosts, hostname and resolv.conf.
  writeFileSync(join(folder, "etc/nsswitch.conf"), "hosts: files dns\n");
  for (const path of ["dev", "proc", "sys", "run", "tmp", "root", "var/lib/isthmus"])
    mkdirSync(join(folder, path), { recursive: true });
  // Not a link to /run, which is the host's in pods of nodes: the kubelet mounts tokens below /var/run, and would make their folders on the host.
  mkdirSync(join(folder, "var/run"), { recursive: true });
  setModes(folder);
  chmodSync(join(folder, "tmp"), 0o1777);
}

/**
 * The build as {@link layPrograms} has it, its compiled code, licences, manifests and bill of materials. The folder must be empty. `base` is the folder of {@link makeBase}, in which the programs run
 * once, at the path that they have in the image.
 */
export function makePrograms(
  folder: string,
  base: string,
  dist: string,
  {
    licenses,
    deploy,
    sbom,
  }: { readonly licenses: readonly NpmPackage[]; readonly deploy: string; readonly sbom: string },
): void {
  const programs = join(folder, PROGRAMS);
  layPrograms(folder, dist);
  const share = join(folder, "usr/share/isthmus");
  mkdirSync(share, { recursive: true });
  execFileSync("cp", ["--recursive", deploy, join(share, "deploy")]);
  writeFileSync(join(share, "sbom.spdx.json"), sbom);
  copyLicenses(folder, licenses);
  compileAt(programs, base, PROGRAMS);
  setModes(folder);
}

/** The build in its places, and what other manifests call it. In the folder none of these may exist. */
export function layPrograms(folder: string, dist: string): void {
  const programs = join(folder, PROGRAMS);
  copyBuild(dist, programs);
  execFileSync("mv", [join(programs, "cni"), join(folder, CNI)]);
  symlinkSync(`../${basename(CNI)}`, join(programs, "cni"));
  // Konnectivity's images have their programs at the root, that of kube-proxy has it in /usr/local/bin.
  for (const name of ["proxy-server", "proxy-agent"]) symlinkSync(`${PROGRAMS.slice(1)}/${name}`, join(folder, name));
  mkdirSync(join(folder, "usr/local/bin"), { recursive: true });
  const kubeProxy = join(folder, "usr/local/bin/kube-proxy");
  writeFileSync(kubeProxy, `#!/bin/sh\nexec ${PROGRAMS}/service-proxy "$@"\n`);
  chmodSync(kubeProxy, 0o755);
}

/** Copies what the build ships; three CNI executables are one file. The folder must not exist. */
export function copyBuild(dist: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  execFileSync("cp", ["--archive", dist, to]);
  for (const name of readdirSync(to)) if (name.endsWith(".map") || name === ".stamp") rmSync(join(to, name));
}

/** The names of the programs in a copy of the build. */
export function programsIn(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name !== "cni" && lstatSync(join(folder, name)).isSymbolicLink())
    .sort();
}

/**
 * Compiles a copy of the build at the path that it is to have, in the root file system of {@link makeBase}. Code that was compiled at another path
 * would neither be the same from checkout to checkout, nor be found.
 */
export function compileAt(programs: string, base: string, path: string): void {
  const mountpoint = join(base, path);
  mkdirSync(mountpoint, { recursive: true });
  execFileSync("mount", ["--bind", programs, mountpoint]);
  try {
    compileAhead(programs, programsIn(programs), { folder: base, node: NODE, dist: path });
  } finally {
    execFileSync("umount", [mountpoint]);
    rmdirSync(mountpoint);
  }
}

/** Copies the licences of packages to usr/share/doc. */
export function copyLicenses(folder: string, packages: readonly NpmPackage[]): void {
  for (const { name, folder: from } of packages) {
    const to = join(folder, "usr/share/doc", name.replaceAll("/", "__"));
    const files = readdirSync(from).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file));
    mkdirSync(to, { recursive: true });
    for (const file of files) copyFileSync(join(from, file), join(to, file));
  }
}

function keepCopyright(folder: string): void {
  if (!lstatSync(folder).isDirectory()) return;
  for (const name of readdirSync(folder))
    if (name !== "copyright") rmSync(join(folder, name), { recursive: true, force: true });
}

/** A package may have the command itself, as kmod and iptables have. */
function linkAbsent(target: string, path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) symlinkSync(target, path);
}

/** The modes of files do not depend on the machine's umask, and none is set-uid. */
export function setModes(folder: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isDirectory()) chmodSync(path, 0o755);
    else if (entry.isFile()) chmodSync(path, (lstatSync(path).mode & 0o111) === 0 ? 0o644 : 0o755);
  }
}
