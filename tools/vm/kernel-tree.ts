import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";

/** A Debian kernel, unpacked. */
export interface KernelTree {
  /** `6.1.0-56-amd64`. */
  readonly version: string;
  readonly image: string;
  /** Holds `<version>/modules.dep`. */
  readonly modules: string;
}

/** The packages that the vm tier needs beside node. */
export const PACKAGES = ["qemu-system-x86", "busybox-static", "kmod", "cpio"] as const;

/** The kernel in `folder`, fetched with apt when it is not there yet. */
export function kernelTree(folder: string): KernelTree {
  const tree = join(folder, "kernel");
  if (!existsSync(tree)) fetchKernel(folder, tree);
  const modules = join(tree, "lib/modules");
  const [version] = readdirSync(modules);
  if (version === undefined) throw new Error(`${modules} contains no kernel: remove ${tree} and run again`);
  return { version, image: join(tree, "boot", `vmlinuz-${version}`), modules };
}

function fetchKernel(folder: string, tree: string): void {
  mkdirSync(folder, { recursive: true });
  const isPackage = (name: string): boolean => name.startsWith("linux-image-6.1.") && name.endsWith(".deb");
  if (!readdirSync(folder).some(isPackage)) {
    execFileSync("apt-get", ["download", kernelPackage()], { cwd: folder, stdio: ["ignore", "ignore", "pipe"] });
  }
  const file = readdirSync(folder).find(isPackage);
  if (file === undefined) throw new Error("apt-get did not download a kernel package");
  const unpacked = `${tree}.tmp`;
  rmSync(unpacked, { recursive: true, force: true });
  execFileSync("dpkg", ["-x", join(folder, file), unpacked]);
  const [version] = readdirSync(join(unpacked, "lib/modules"));
  execFileSync("depmod", ["-b", unpacked, version ?? ""]);
  renameSync(unpacked, tree); // last, so that an interrupted run does not leave a folder that looks complete
}

/** The kernel that Debian's meta package stands for today. */
function kernelPackage(): string {
  const depends = execFileSync("apt-cache", ["depends", "linux-image-amd64"], { encoding: "utf8" });
  const name = /Depends: (linux-image-6\.1\.\S+)/.exec(depends)?.[1];
  if (name === undefined) throw new Error("apt has no package linux-image-6.1: use Debian 12, and run apt-get update");
  return name;
}
