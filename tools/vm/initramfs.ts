import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { KernelTree } from "./kernel-tree.ts";

/** The kernel modules for mounting the host's root by 9p under an overlay, in the order of their dependencies. */
const BOOT_MODULES = [
  "netfs",
  "fscache",
  "9pnet",
  "9p",
  "virtio_ring",
  "virtio",
  "9pnet_virtio",
  "virtio_pci_modern_dev",
  "virtio_pci_legacy_dev",
  "virtio_pci",
  "overlay",
] as const;

/** The tags of the 9p shares. */
export const SHARES = { root: "hostroot", modules: "modules", checkout: "checkout", work: "work" } as const;
/** The path of the work folder in the guest. */
export const GUEST_WORK = "/run/isthmus-vm";

/** Writes an initramfs whose /init makes the host's root the guest's, and then runs `guest.sh` of the work folder. */
export function writeInitramfs(file: string, kernel: KernelTree, checkout: string): void {
  const root = `${file}.root`;
  rmSync(root, { recursive: true, force: true });
  for (const folder of ["bin", "proc", "sys", "dev", "ro", "rw", "new", "modules"])
    mkdirSync(join(root, folder), { recursive: true });
  copyFileSync("/bin/busybox", join(root, "bin/busybox"));
  const found = moduleFiles(join(kernel.modules, kernel.version, "kernel"));
  for (const name of BOOT_MODULES) {
    const path = found.get(name);
    if (path === undefined) continue; // built in
    copyFileSync(path, join(root, "modules", `${name}.ko`));
  }
  writeFileSync(join(root, "init"), initScript(checkout));
  chmodSync(join(root, "init"), 0o755);
  execFileSync("sh", ["-c", `cd "$1" && find . | cpio --quiet -o -H newc | gzip -1 > "$2"`, "sh", root, file]);
  rmSync(root, { recursive: true, force: true });
}

function moduleFiles(folder: string): Map<string, string> {
  const files = new Map<string, string>();
  for (const entry of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    if (entry.endsWith(".ko")) files.set(basename(entry, ".ko").replaceAll("-", "_"), join(folder, entry));
  }
  return files;
}

/** `cache=loose` matters most: the first start of node in the guest takes 6 s with it and 20 s without. */
function initScript(checkout: string): string {
  const options = "trans=virtio,version=9p2000.L,msize=512000";
  return `#!/bin/busybox sh
set -e
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for m in ${BOOT_MODULES.join(" ")}; do if [ -e /modules/$m.ko ]; then insmod /modules/$m.ko; fi; done
mount -t 9p -o ro,cache=loose,${options} ${SHARES.root} /ro
mount -t tmpfs -o size=512m tmpfs /rw
mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new
mkdir -p /new/usr/lib/modules
mount -t 9p -o ro,cache=loose,${options} ${SHARES.modules} /new/usr/lib/modules
mount -t tmpfs tmpfs /new/tmp
mount -t tmpfs tmpfs /new/run
mkdir -p "/new${checkout}" /new${GUEST_WORK}
mount -t 9p -o ro,cache=loose,${options} ${SHARES.checkout} "/new${checkout}"
mount -t 9p -o rw,cache=none,${options} ${SHARES.work} /new${GUEST_WORK}
mount --move /proc /new/proc
mount --move /sys /new/sys
mount --move /dev /new/dev
exec switch_root /new /bin/sh ${GUEST_WORK}/guest.sh
`;
}
