import { existsSync, readFileSync } from "node:fs";
import type { ThisHost } from "#features/node-identity";
import { HOST_PROC_SYS } from "#kernel/sysctl";

/**
 * Reads the ids of this machine as its kubelet reads them. Systems that run nodes in containers give each a boot id of its own by a mount over the
 * file, which a pod sees only in the host's /proc/sys. The machine id is in a file of the host, which a pod reaches through the first process.
 */
export function readThisHost(): ThisHost {
  const sysctls = existsSync(`${HOST_PROC_SYS}/kernel`) ? HOST_PROC_SYS : "/proc/sys";
  return {
    bootId: readId(`${sysctls}/kernel/random/boot_id`),
    machineId: readId("/proc/1/root/etc/machine-id"),
  };
}

/** The errors of a file that this host does not have, or does not let this process read. */
const UNREADABLE = new Set(["ENOENT", "ENOTDIR", "EACCES", "EPERM", "ELOOP", "EISDIR"]);

function readId(path: string): string | undefined {
  try {
    const text = readFileSync(path, "utf8").trim();
    return /^[0-9a-f-]{32,36}$/.test(text) ? text : undefined;
  } catch (error) {
    if (!UNREADABLE.has((error as NodeJS.ErrnoException).code ?? "")) throw error;
    return undefined;
  }
}
